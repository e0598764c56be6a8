//! What the tools of a run print, as it comes: `async.log` beside the transcript of the run, and those who read it meanwhile.
//!
//! **Owns** `state/threads/<run>/async.log` below the run's `files` directory, which is there once a tool had something to say, and
//! which its user alone may read. A [`Voice`] takes the bytes of one attempt and hands on whole lines; where the file goes over
//! to another attempt stands a heading, `== step 3 build[1] ==`. A [`Reader`] reads the file and, if it follows, waits for more.
//! **Never** holds a tool up: what is printed faster than it is written, or than an attempt may print, is dropped and counted.
//!
//! **Order.** Through the gate of the project, one writer or reader of a run at a time; the lines of an attempt are in the file before
//! what it came to is on record, unless its run is to stop and the project hangs. **Bounds.** The file grows to 8 MiB, then takes
//! the place of `async.log.1`; a reader that follows reads from the files and keeps nothing, and one that is further behind is told how
//! it lost its place. **Failure**: what cannot be written is lost, with a warning; a run never fails for it.

mod read;
mod voice;

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use rye_core::id::RunId;
use rye_core::model::Spec;
use tokio::sync::watch;

use rye_host::safe_path::Dir;

pub use self::read::{Piece, Reader, Wanted};
pub use self::voice::{Source, Voice};

/// Longest file; beyond it begins the next.
const MOST_BYTES: u64 = 8 << 20;
/// The file that grows.
const NEW: &str = "async.log";
/// The one before it.
const OLD: &str = "async.log.1";
/// Runs that are looked through for those that nobody has any more.
const SWEEP: usize = 256;

/// The logs that somebody writes or reads.
#[derive(Debug, Default)]
pub struct Logs {
    open: Mutex<HashMap<RunId, Weak<Log>>>,
}

impl Logs {
    /// The log of `run`; the same for all that have it at once.
    pub fn of(&self, run: &RunId, spec: &Arc<Spec>) -> Arc<Log> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(log) = open.get(run).and_then(Weak::upgrade) {
            return log;
        }
        if open.len() >= SWEEP {
            open.retain(|_, log| log.strong_count() > 0);
        }
        let log = Arc::new(Log::new(run, spec));
        open.insert(run.clone(), Arc::downgrade(&log));
        log
    }
}

/// The log of one run.
#[derive(Debug)]
pub struct Log {
    run: RunId,
    spec: Arc<Spec>,
    /// Held while somebody works on the files.
    at: Mutex<At>,
    /// Counts what was written, for those who wait for more.
    written: watch::Sender<u64>,
}

/// Where the writing is.
#[derive(Debug, Default)]
struct At {
    /// How many files of this life came before the one that grows.
    file: u64,
    /// Whose lines came last.
    heading: Option<Arc<str>>,
    /// Kept as long as an attempt writes.
    open: Option<Open>,
}

/// The file that grows, and its directory.
#[derive(Debug)]
struct Open {
    directory: Dir,
    file: File,
}

impl Log {
    fn new(run: &RunId, spec: &Arc<Spec>) -> Self {
        Self {
            run: run.clone(),
            spec: Arc::clone(spec),
            at: Mutex::default(),
            written: watch::Sender::new(0),
        }
    }

    fn at(&self) -> MutexGuard<'_, At> {
        self.at.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Appends whole lines of the attempt that `heading` names. Blocks.
    fn append(&self, heading: &Arc<str>, lines: &[u8]) -> io::Result<()> {
        let mut at = self.at();
        let (mut open, mut length) = self.opened(at.open.take())?;
        let more = u64::try_from(lines.len()).unwrap_or(u64::MAX);
        if length > 0 && length.saturating_add(more) > MOST_BYTES {
            open.directory.rename(NEW, OLD)?;
            *at = At {
                file: at.file + 1,
                ..At::default()
            };
            open.file = open.directory.append(NEW)?;
            length = 0;
        }
        if length == 0 {
            at.heading = None;
        }
        let mut text = Vec::with_capacity(lines.len() + 64);
        if at.heading.as_ref() != Some(heading) {
            at.heading = Some(Arc::clone(heading));
            text.extend_from_slice(format!("== {heading} ==\n").as_bytes());
        }
        text.extend_from_slice(lines);
        open.file.write_all(&text)?;
        at.open = Some(open);
        drop(at);
        self.written.send_modify(|count| *count += 1);
        Ok(())
    }

    /// The file that grows, opened again if somebody removed `known`; and its length.
    fn opened(&self, known: Option<Open>) -> io::Result<(Open, u64)> {
        if let Some(open) = known {
            let found = open.file.metadata()?;
            if found.nlink() > 0 {
                return Ok((open, found.len()));
            }
        }
        let state = Dir::of_run(&self.spec)?.state()?;
        let directory = state.make(&Path::new("threads").join(self.run.as_str()))?;
        let file = directory.append(NEW)?;
        let length = file.metadata()?.len();
        Ok((Open { directory, file }, length))
    }

    /// One of the two files, if it is there. Blocks.
    fn look(&self, name: &str) -> io::Result<Option<File>> {
        let place = Path::new("state/threads").join(self.run.as_str());
        let directory = Dir::of_run(&self.spec).and_then(|root| root.enter(&place));
        match directory {
            Ok(directory) => directory.look(name),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// The heading that a line of the file is, if it is one.
fn heading(line: &[u8]) -> Option<&[u8]> {
    line.strip_prefix(b"== ")?.strip_suffix(b" ==")
}

#[cfg(test)]
mod tests;
