//! Checkpoints that wait for the files of projects.
//!
//! **Owns** the checkpoint that waits, and the newest one after it. One waits at a time, so that a project that is behind all the time comes
//! to its end; the last one of a journal waits for [`LAST`] at most. **Failure.** A project is waited for while it makes progress, up to
//! [`LONGEST`] segments of the log; one that makes none, up to [`RETAINED`]. Then the log is not kept for it.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use rye_core::id::Lsn;

use super::Shared;
use super::projector::RETAINED;
use super::publisher::CheckpointJob;

/// How long the last checkpoint waits for projects.
const LAST: Duration = Duration::from_secs(2);
/// Segments of the log kept for projects that are slower than their runs: these wait long before (see [`super::lag`]), unless others
/// fill the log.
const LONGEST: usize = 8 * RETAINED;

/// What the lane of a project reports at a checkpoint.
#[derive(Debug)]
pub(super) struct Report {
    /// Its project.
    pub(super) files: String,
    /// The checkpoint.
    pub(super) lsn: Lsn,
    pub(super) covered: Covered,
}

/// Whether every file is on disk up to a checkpoint, or given up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Covered {
    All,
    NotAll,
}

/// A checkpoint that waits for lanes.
#[derive(Debug)]
pub(super) struct Waiting {
    pub(super) job: CheckpointJob,
    lanes: HashSet<String>,
    /// True if a lane has reported that not everything is on disk.
    pub(super) failed: bool,
    since: Instant,
}

#[derive(Debug, Default)]
pub(super) struct Checkpoints {
    waiting: Option<Waiting>,
    next: Option<(CheckpointJob, HashSet<String>)>,
    reports: HashMap<String, Report>,
}

impl Checkpoints {
    /// True if the last checkpoint of the journal waits.
    pub(super) fn is_closing(&self) -> bool {
        let is_last = |waiting: &Waiting| waiting.job.reply.is_some();
        self.waiting.as_ref().is_some_and(is_last)
    }

    pub(super) fn report(&mut self, report: Report) {
        self.reports.insert(report.files.clone(), report);
    }

    pub(super) fn begin(&mut self, job: CheckpointJob, lanes: HashSet<String>) {
        let is_last = job.reply.is_some();
        if self.waiting.is_some() && !is_last {
            self.next = Some((job, lanes));
            return;
        }
        self.next = None;
        let earlier = self.waiting.replace(Waiting {
            job,
            lanes,
            failed: false,
            since: Instant::now(),
        });
        // The later one covers it.
        if let Some(reply) = earlier.and_then(|earlier| earlier.job.reply) {
            crate::task::reply(reply, ());
        }
    }

    /// Returns the checkpoint that waits if no lane keeps it any more. The next one begins to wait then.
    pub(super) fn take_due(&mut self, shared: &Shared) -> Option<Waiting> {
        let mut waiting = self.waiting.take()?;
        self.take_reports(&mut waiting);
        let stuck = stuck(shared, &waiting.lanes);
        for files in &stuck {
            tracing::warn!(
                files,
                "a project has not taken its files for too long: the log is not kept for its sake"
            );
        }
        waiting.lanes.retain(|files| !stuck.contains(files));
        let last = waiting.job.reply.is_some() && waiting.since.elapsed() >= LAST;
        if !waiting.lanes.is_empty() && !last {
            self.waiting = Some(waiting);
            return None;
        }
        waiting.failed |= !waiting.lanes.is_empty();
        if let Some((job, lanes)) = self.next.take() {
            self.begin(job, lanes);
        }
        Some(waiting)
    }

    /// A lane that is done with a later checkpoint is done with this.
    fn take_reports(&mut self, waiting: &mut Waiting) {
        let lsn = waiting.job.lsn;
        self.reports.retain(|files, report| {
            report.lsn >= lsn && {
                if waiting.lanes.remove(files) {
                    waiting.failed |= report.covered == Covered::NotAll;
                }
                true
            }
        });
    }
}

/// Those of `lanes` that the log is kept for no longer.
fn stuck(shared: &Shared, lanes: &HashSet<String>) -> HashSet<String> {
    let segments = shared.log.segments();
    let is_stuck = |files: &&String| {
        segments >= LONGEST || segments >= RETAINED && !shared.lanes.lag(files).is_moving()
    };
    lanes.iter().filter(is_stuck).cloned().collect()
}
