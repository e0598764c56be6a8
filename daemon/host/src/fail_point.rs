//! Fail points: positions at which a test kills the daemon.
//!
//! **Owns** the only fail point of this process, which [`VARIABLE`] names, and the kill: SIGKILL for the daemon and its
//! parent, so that no process cleans up. **Never** active in a release build: without debug assertions all functions
//! are empty.
//!
//! ```text
//! RYE_FAIL_POINT = before:EVENT[:N]     the N-th commit with such an event is not written; earlier commits are durable
//!                | after:EVENT[:N]      it is durable, and no effect that waits for it has begun
//!                | at:PLACE[:N]         the N-th time that the daemon reaches a place that is no commit
//! ```
//!
//! **Order.** Commits are counted over all runs, from the start of the daemon, in the order of the log.

use std::ffi::OsStr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, getpid};
use rye_core::id::Lsn;
use rye_core::model::Event;

/// Environment variable that names the fail point.
pub const VARIABLE: &str = "RYE_FAIL_POINT";

/// A place that is no commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FailPlace {
    /// The keys of a copied state directory are about to be swapped. Reached three times: after the new pair is
    /// created, after it is on record, and after the old one is moved aside.
    Adopting,
    /// A new base was renamed to its name, and the log before it is still there.
    BaseRenamed,
    /// The prompt of a thread is being composed.
    Composing,
    /// A transcript was moved aside, and no file has its name.
    ExportAside,
    /// Lines are about to be written to a transcript.
    ExportLines,
    /// The checkpoints of exports are about to be replaced.
    ExportCheckpoints,
    /// An object is about to be appended.
    ExportObjects,
    /// A page about a run is about to be replaced.
    ExportPage,
    /// A file with the record of a run is about to be replaced.
    ExportRecord,
    /// A ref is about to be replaced.
    ExportRef,
    /// Files of a removed run are about to be removed.
    ExportRemoval,
    /// The directory of history is about to be synced, after a file was created or renamed in it.
    HistoryDirectory,
    /// A file without removed runs is about to replace its original.
    HistoryReplace,
    /// Sections in a file of history are about to be synced.
    HistorySync,
    /// A frame is about to be written to history.
    HistoryWrite,
    /// Ended runs are in history and in the index, and still in memory.
    Indexed,
    /// The removal of runs is durable, and nothing else was done.
    Removed,
    /// A section is durable, and the index lacks its runs.
    Sealed,
    /// One of the log segments that are no longer needed was removed.
    SegmentRemoved,
    /// Objects that only removed runs named are about to be deleted, or all are deleted and the sweep is about to be
    /// put on record.
    Sweep,
    /// A tool is about to wait for other runs.
    Waiting,
}

/// Side of a commit on which the log ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// The commit is lost.
    Before,
    /// The commit is durable.
    After,
}

/// Error of a text that is no fail point.
#[derive(Debug, thiserror::Error)]
#[error(
    "{VARIABLE}=`{text}` is none of `before:EVENT[:N]`, `after:EVENT[:N]`, `at:PLACE[:N]`: {problem}"
)]
pub struct InvalidFailPoint {
    text: String,
    problem: String,
}

/// Position at which this process is killed.
#[derive(Debug, PartialEq, Eq)]
enum Target {
    Commit(Side, &'static str),
    Place(FailPlace),
}

#[derive(Debug)]
struct FailPoint {
    target: Target,
    /// Number of times that the target has still to be reached, including the last one.
    left: AtomicU64,
    /// Position of the commit with which the log ends; 0 until it is known.
    end: AtomicU64,
    parent: Pid,
}

static ARMED: OnceLock<FailPoint> = OnceLock::new();

impl FailPlace {
    const ALL: [Self; 21] = [
        Self::Adopting,
        Self::BaseRenamed,
        Self::Composing,
        Self::ExportAside,
        Self::ExportLines,
        Self::ExportCheckpoints,
        Self::ExportObjects,
        Self::ExportPage,
        Self::ExportRecord,
        Self::ExportRef,
        Self::ExportRemoval,
        Self::HistoryDirectory,
        Self::HistoryReplace,
        Self::HistorySync,
        Self::HistoryWrite,
        Self::Indexed,
        Self::Removed,
        Self::Sealed,
        Self::SegmentRemoved,
        Self::Sweep,
        Self::Waiting,
    ];

    const fn as_str(self) -> &'static str {
        match self {
            Self::Adopting => "adopting",
            Self::BaseRenamed => "base_renamed",
            Self::Composing => "composing",
            Self::ExportAside => "export_aside",
            Self::ExportLines => "export_lines",
            Self::ExportCheckpoints => "export_marks",
            Self::ExportObjects => "export_objects",
            Self::ExportPage => "export_page",
            Self::ExportRecord => "export_record",
            Self::ExportRef => "export_ref",
            Self::ExportRemoval => "export_removal",
            Self::HistoryDirectory => "history_directory",
            Self::HistoryReplace => "history_replace",
            Self::HistorySync => "history_sync",
            Self::HistoryWrite => "history_write",
            Self::Indexed => "indexed",
            Self::Removed => "removed",
            Self::Sealed => "sealed",
            Self::SegmentRemoved => "segment_removed",
            Self::Sweep => "sweep",
            Self::Waiting => "waiting",
        }
    }
}

/// Sets the fail point of this process to `text`, the value of [`VARIABLE`]. Without debug assertions none is set.
pub fn arm(text: Option<&OsStr>, parent: Pid) -> Result<(), InvalidFailPoint> {
    let Some(text) = text.filter(|_| cfg!(debug_assertions)) else {
        return Ok(());
    };
    let text = text.to_string_lossy();
    let (target, times) = parse(&text).map_err(|problem| InvalidFailPoint {
        text: text.clone().into_owned(),
        problem,
    })?;
    tracing::warn!(fail_point = %text, "a test has this daemon killed");
    ARMED.get_or_init(|| FailPoint {
        target,
        left: AtomicU64::new(times),
        end: AtomicU64::new(0),
        parent,
    });
    Ok(())
}

/// Returns the target in `text`, and the number of the time that counts.
fn parse(text: &str) -> Result<(Target, u64), String> {
    let mut words = text.split(':');
    let (side, name) = (words.next().unwrap_or_default(), words.next());
    let name = name.ok_or("it names no event and no place")?;
    let times = words.next().map_or(Ok(1), str::parse::<u64>);
    let times = times.ok().filter(|times| *times > 0);
    let times = times.ok_or("what is counted is a number from 1")?;
    if words.next().is_some() {
        return Err("there is more behind the number".to_owned());
    }
    let commit = |side| {
        let event = Event::names().find(|event| *event == name);
        let event = event.ok_or_else(|| format!("there is no event `{name}`"))?;
        Ok(Target::Commit(side, event))
    };
    let target = match side {
        "before" => commit(Side::Before),
        "after" => commit(Side::After),
        "at" => {
            let place = FailPlace::ALL
                .into_iter()
                .find(|place| place.as_str() == name);
            let place = place.ok_or_else(|| format!("there is no place `{name}`"));
            place.map(Target::Place)
        }
        _ => Err(format!("`{side}` is no side")),
    };
    Ok((target?, times))
}

fn armed() -> Option<&'static FailPoint> {
    ARMED.get().filter(|_| cfg!(debug_assertions))
}

impl FailPoint {
    /// Counts one more time. Returns true if it is the one that counts.
    fn is_reached(&self) -> bool {
        let before = self
            .left
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| {
                left.checked_sub(1)
            });
        before == Ok(1)
    }
}

/// Announces that the next commit has the position `lsn` and these events. Called in the order of the log, before it
/// can be written.
pub fn commit<'a>(lsn: Lsn, mut events: impl Iterator<Item = &'a Event>) {
    let Some(point) = armed() else { return };
    if let Target::Commit(_, name) = point.target
        && events.any(|event| event.name() == name)
        && point.is_reached()
    {
        point.end.store(lsn.0, Ordering::Release);
    }
}

/// True if the log has to end on that side of the commit at `lsn`.
pub fn ends(side: Side, lsn: Lsn) -> bool {
    armed().is_some_and(|point| {
        let is_side = matches!(point.target, Target::Commit(wanted, _) if wanted == side);
        is_side && point.end.load(Ordering::Acquire) == lsn.0
    })
}

/// Kills the daemon if `place` is its fail point and the count is reached.
pub fn reach(place: FailPlace) {
    if let Some(point) = armed()
        && point.target == Target::Place(place)
        && point.is_reached()
    {
        die();
    }
}

/// Kills both processes, as a power cut would.
pub fn die() -> ! {
    let parent = armed().map(|point| point.parent);
    for process in parent.into_iter().chain([getpid()]) {
        if let Err(error) = kill(process, Signal::SIGKILL) {
            tracing::error!(%process, %error, "a process survives its fail point");
        }
    }
    std::process::abort()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fail_point_is_a_side_an_event_and_a_number() {
        let commit = |side, event| Target::Commit(side, event);
        let table = [
            ("before:step_start", commit(Side::Before, "step_start"), 1),
            ("after:budget_held:3", commit(Side::After, "budget_held"), 3),
            ("at:waiting:2", Target::Place(FailPlace::Waiting), 2),
        ];
        for (text, target, times) in table {
            assert_eq!(parse(text), Ok((target, times)), "{text}");
        }
        let table = [
            ("", "names no event"),
            ("before", "names no event"),
            ("beside:step_start", "`beside` is no side"),
            ("before:step_begin", "no event `step_begin`"),
            ("at:step_start", "no place `step_start`"),
            ("after:step_start:0", "a number from 1"),
            ("after:step_start:x", "a number from 1"),
            ("after:step_start:1:2", "more behind the number"),
        ];
        for (text, words) in table {
            let problem = parse(text).unwrap_err();
            assert!(problem.contains(words), "{text}: {problem}");
        }
    }

    #[test]
    fn fail_point_fires_only_at_its_count() {
        let point = FailPoint {
            target: Target::Place(FailPlace::Waiting),
            left: AtomicU64::new(2),
            end: AtomicU64::new(0),
            parent: getpid(),
        };
        let reached: Vec<bool> = (0..4).map(|_| point.is_reached()).collect();
        assert_eq!(reached, [false, true, false, false]);
    }
}
