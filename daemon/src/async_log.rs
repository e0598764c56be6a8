//! Live output of a run's tools: `async.log` next to the transcript of the run, and its readers.
//!
//! **Owns** `state/threads/<run>/async.log` below the run's `files` directory. The first output creates the file, and
//! only its user may read it. A [`OutputWriter`] takes the bytes of one attempt and writes whole lines: of a line with
//! carriage returns the last state, and a text without a line end once it has waited. Where the file changes from one
//! attempt to another it has a heading, `== step 3 build[1] ==`. A [`Reader`] reads the file and, if it follows, waits
//! for more. **Never** blocks a tool: output that exceeds the rate of the writer, or the allowance of
//! the attempt, is dropped and counted.
//!
//! **Order.** All access passes the [`LogPool`] of the project, with one writer or reader of a run at a time. The lines
//! of an attempt are in the file before its outcome is recorded, unless the file takes longer than a second: then the
//! attempt ends without them, and later ones do not wait until the file takes a write again.
//! **Bounds.** The file grows to 8 MiB, then replaces `async.log.1`. A following reader reads from the files and keeps
//! no lines in memory; one that falls further behind gets a note that lines are missing. **Failure**: lines that cannot
//! be written are lost, with a warning; a run never fails for it, and no run stands still for it. The next write after a
//! hang notes how many bytes were lost.

mod log_pool;
mod unfinished_line;

mod output_writer;
mod read;

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use rye_core::id::RunId;
use rye_core::model::Spec;
use tokio::sync::watch;

use rye_host::safe_path::Dir;

pub use self::log_pool::LogPool;
pub use self::output_writer::{Allowance, OutputWriter, PART};
pub use self::read::{LineFilter, Piece, Reader};
pub use self::unfinished_line::UnfinishedLine;

/// Maximum length of the file in bytes; then the next one begins.
const MOST_BYTES: u64 = 8 << 20;
/// Current file.
const NEW: &str = "async.log";
/// Previous file.
const OLD: &str = "async.log.1";
/// Number of entries from which on unused logs are removed from the map.
const SWEEP: usize = 256;

/// Logs that have a writer or a reader.
#[derive(Debug, Default)]
pub struct Logs {
    open: Mutex<HashMap<RunId, Weak<Log>>>,
}

impl Logs {
    /// Log of `run`; all concurrent callers get the same one.
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

#[derive(Debug)]
pub struct Log {
    run: RunId,
    spec: Arc<Spec>,
    /// Held during each access to the files.
    at: Mutex<At>,
    /// Bytes lost since the last write because the file hung.
    lost: AtomicUsize,
    /// Counts writes, to wake waiting readers.
    written: watch::Sender<u64>,
}

/// Position of the writer.
#[derive(Debug, Default)]
struct At {
    /// Number of earlier files since the daemon started.
    file: u64,
    /// Attempt that wrote the last lines.
    heading: Option<Arc<str>>,
    /// Kept open while an attempt writes.
    open: Option<Open>,
}

/// The current file and its directory.
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
            lost: AtomicUsize::new(0),
            written: watch::Sender::new(0),
        }
    }

    fn at(&self) -> MutexGuard<'_, At> {
        self.at.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts `bytes` of output that the file did not take in time.
    fn lose(&self, bytes: usize) {
        self.lost.fetch_add(bytes, Ordering::Relaxed);
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
        let lost = self.lost.swap(0, Ordering::Relaxed);
        if lost > 0 {
            let note = format!("[{lost} bytes left out: this file took no writes]\n");
            text.extend_from_slice(note.as_bytes());
        }
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

    /// The current file and its length. Reopens it if `known` was removed from its directory.
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

    /// Opens one of the two files, if it exists. Blocks.
    fn look(&self, name: &str) -> io::Result<Option<File>> {
        match self.directory()? {
            Some(directory) => directory.look(name),
            None => Ok(None),
        }
    }

    /// Opens the directory of the run's files, if it exists. Blocks.
    fn directory(&self) -> io::Result<Option<Dir>> {
        let place = Path::new("state/threads").join(self.run.as_str());
        let directory = Dir::of_run(&self.spec).and_then(|root| root.enter(&place));
        match directory {
            Ok(directory) => Ok(Some(directory)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// Text of the heading if `line` is one.
fn heading(line: &[u8]) -> Option<&[u8]> {
    line.strip_prefix(b"== ")?.strip_suffix(b" ==")
}

#[cfg(test)]
mod tests;
