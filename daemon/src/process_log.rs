//! Output of managed processes: the last lines in memory, and `out.log` in the state directory.
//!
//! **Owns** `<state>/procs/<handle>`, for the user of the daemon alone. Each line of the file has its position, time,
//! attempt and stream; positions and attempts only grow, so that a [`LogCursor`] is valid across files and across lives
//! of the daemon. The file grows to 8 MiB, then replaces `out.log.1`. **Never** blocks a process: lines are written by
//! one task on a thread for blocking work. Lines that the disk does not take are counted and left out of the file, and
//! output that comes faster than 8 MB per second for long is not even inspected. The lines of a process that survives the
//! daemon are written by its shim, and read from the files ([`ProcessLog::take_in`]).
//! **Failure**: a file that cannot be written costs its lines, with one marker line, and nothing else.

mod file;

mod tail;

use std::collections::{HashMap, VecDeque};
use std::convert::Infallible;
use std::fmt;
use std::fs;
use std::future::Future;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use rye_core::clock::Timestamp;
use rye_core::id::RunId;
pub use rye_core::model::LogCursor;
use rye_core::process::LinePattern;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

use self::file::Appender;
pub use self::file::{OutputLine, Stream};
pub use self::tail::Tail;
use crate::async_log::{Allowance, PART, UnfinishedLine};
use rye_host::clock::Timer;
use rye_host::task;
use rye_process::Source;
use rye_process::shim::DIRECTORY;

/// Number of lines in memory.
const RING_LINES: usize = 1000;
/// Bytes of these lines.
const RING_BYTES: usize = 1 << 20;
/// Maximum bytes of lines that wait for a write.
const MOST_PENDING: usize = 1 << 20;
/// Lines that a wait for a line reads at a time.
const LINES_PER_READ: usize = 1000;
/// Time for which the end of an attempt waits until its lines are in the file.
const PATIENCE: Duration = Duration::from_secs(5);

/// The lines that a reader wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogRange {
    /// The last ones.
    Last(usize),
    /// The first ones after this position.
    After(LogCursor, usize),
}

/// Lines of a process, in order.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct LogPage {
    /// Bytes between the requested position and the first line, which are not kept any more.
    pub gap: u64,
    pub lines: Vec<OutputLine>,
    /// The position behind the last line.
    pub next: LogCursor,
}

/// The result of a wait for a line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LineWait {
    Line(OutputLine),
    /// The process has ended without it.
    Ended,
}

/// Receives each line of an attempt.
pub type LineObserver = Box<dyn FnMut(&str) + Send>;

/// The logs of all processes.
#[derive(Debug)]
pub struct ProcessLogs {
    root: PathBuf,
    clock: Arc<dyn Timer>,
    open: Mutex<HashMap<RunId, Weak<ProcessLog>>>,
}

impl ProcessLogs {
    pub fn new(state: &Path, clock: Arc<dyn Timer>) -> Self {
        Self {
            root: state.join(DIRECTORY),
            clock,
            open: Mutex::default(),
        }
    }

    /// Log of the process `run`; all concurrent callers get the same one.
    pub fn of(&self, run: &RunId) -> Arc<ProcessLog> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(log) = open.get(run).and_then(Weak::upgrade) {
            return log;
        }
        open.retain(|_, log| log.strong_count() > 0);
        let log = Arc::new(ProcessLog::new(
            self.root.join(run.as_str()),
            Arc::clone(&self.clock),
        ));
        open.insert(run.clone(), Arc::downgrade(&log));
        log
    }

    /// Removes the files of a removed run. Blocks.
    pub fn remove(&self, run: &RunId) -> io::Result<()> {
        match fs::remove_dir_all(self.root.join(run.as_str())) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            Ok(()) | Err(_) => Ok(()),
        }
    }

    /// Returns the runs that have files here. Blocks.
    pub fn runs(&self) -> io::Result<Vec<RunId>> {
        let entries = match fs::read_dir(&self.root) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries?,
        };
        let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        Ok(names.filter_map(|name| RunId::new(&name).ok()).collect())
    }
}

/// Log of one process.
pub struct ProcessLog {
    directory: PathBuf,
    clock: Arc<dyn Timer>,
    shared: Mutex<Shared>,
    /// The file, held from before lines are taken until they are in it.
    file: Mutex<Appender>,
    more: Notify,
    /// Counts lines, to wake readers.
    lines: watch::Sender<u64>,
    /// Counts writes to the file.
    writes: watch::Sender<u64>,
}

impl fmt::Debug for ProcessLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProcessLog")
            .field("directory", &self.directory)
            .finish_non_exhaustive()
    }
}

#[derive(Default)]
struct Shared {
    ring: VecDeque<OutputLine>,
    ring_bytes: usize,
    end: LogCursor,
    /// Incomplete last line of stdout, and of stderr.
    begun: [UnfinishedLine; 2],
    /// True if the rest of a line is left out because its beginning was.
    skips: [bool; 2],
    allowance: Allowance,
    /// Lines for the file.
    pending: Vec<u8>,
    /// Bytes of lines that the file does not get.
    lost: u64,
    observer: Option<LineObserver>,
}

impl ProcessLog {
    fn new(directory: PathBuf, clock: Arc<dyn Timer>) -> Self {
        Self {
            file: Mutex::new(Appender::new(&directory)),
            directory,
            clock,
            shared: Mutex::default(),
            more: Notify::new(),
            lines: watch::Sender::new(0),
            writes: watch::Sender::new(0),
        }
    }

    /// Log of the process whose files are in `directory`, for its only user.
    pub fn alone(directory: PathBuf, clock: Arc<dyn Timer>) -> Arc<Self> {
        Arc::new(Self::new(directory, clock))
    }

    fn shared(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins the attempt `number`. `observer` receives its lines.
    pub async fn begin(self: &Arc<Self>, number: u32, observer: Option<LineObserver>) {
        let is_new = self.shared().end == LogCursor::default();
        let known = if is_new {
            let directory = self.directory.clone();
            let last = move || file::last_position(&directory);
            task::blocking("open the log of a process", last).await
        } else {
            Ok(None)
        };
        let mut shared = self.shared();
        match known {
            Ok(Some(position)) => shared.end.position = position,
            Ok(None) => {}
            Err(error) => {
                tracing::warn!(directory = %self.directory.display(), %error, "the log of a process cannot be read");
            }
        }
        shared.end.attempt = number;
        shared.observer = observer;
    }

    /// Takes output. Neither waits nor blocks.
    pub fn receive(&self, source: Source, bytes: &[u8]) {
        let now = self.clock.now();
        let mut shared = self.shared();
        for part in bytes.chunks(PART) {
            if shared.allowance.spend(part.len()) {
                for piece in part.split_inclusive(|byte| *byte == b'\n') {
                    shared.take(now, source, piece);
                }
            } else {
                shared.skip(source, part);
            }
        }
        drop(shared);
        self.more.notify_one();
        self.lines.send_modify(|count| *count += 1);
    }

    /// Writes lines as they arrive, and a text without a line end once it has waited. Dropping the future loses nothing.
    pub async fn write(self: &Arc<Self>) -> Infallible {
        loop {
            let due = self.shared().due();
            let waited = async {
                match due {
                    Some(due) => tokio::time::sleep_until(due).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = self.more.notified() => {}
                () = waited => {
                    let now = self.clock.now();
                    self.shared().each_begun(now, |line, keep| line.show(Instant::now(), keep));
                    self.lines.send_modify(|count| *count += 1);
                }
            }
            self.flush().await;
        }
    }

    /// Ends the attempt. Its lines are in the file when this returns, unless the disk hangs.
    pub async fn close(self: &Arc<Self>) {
        let now = self.clock.now();
        {
            let mut shared = self.shared();
            shared.each_begun(now, |line, keep| line.end(keep));
            shared.observer = None;
        }
        self.lines.send_modify(|count| *count += 1);
        if tokio::time::timeout(PATIENCE, self.flush()).await.is_err() {
            tracing::warn!(directory = %self.directory.display(), "the log of a process takes no output");
        }
    }

    async fn flush(self: &Arc<Self>) {
        // A write in progress has taken its lines out.
        if self.shared().pending.is_empty() && self.file.try_lock().is_ok() {
            return;
        }
        let this = Arc::clone(self);
        task::blocking("write the log of a process", move || this.write_pending()).await;
    }

    /// Writes the pending lines, after a write in progress. Blocks.
    fn write_pending(&self) {
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        let (mut lines, lost) = self.shared().take_pending();
        if lines.is_empty() {
            return;
        }
        if lost > 0 {
            let end = self.shared().end;
            let text = format!("[{lost} bytes left out: they came faster than they are kept]");
            let mut marked = Vec::with_capacity(lines.len() + 128);
            file::encode(
                &mut marked,
                end,
                self.clock.now(),
                Stream::Note,
                text.as_bytes(),
            );
            lines.splice(0..0, marked);
        }
        if let Err(error) = file.append(&lines) {
            tracing::warn!(directory = %self.directory.display(), %error, "output of a process was not kept");
            let bytes = u64::try_from(lines.len()).unwrap_or(u64::MAX);
            self.shared().lost += lost.saturating_add(bytes);
        }
        self.writes.send_modify(|count| *count += 1);
    }

    /// Begins to follow the attempt `number`, whose lines another process writes to the files. `observer` receives its
    /// lines.
    pub fn follow(&self, number: u32, observer: Option<LineObserver>) -> Tail {
        let mut shared = self.shared();
        let begin = LogCursor {
            attempt: number,
            position: 0,
        };
        shared.ring.clear();
        shared.ring_bytes = 0;
        shared.end = shared.end.max(begin);
        shared.observer = observer;
        Tail::new(&self.directory, begin)
    }

    /// Takes in the lines that `tail` has not read. Returns those that were never returned before, by an earlier daemon
    /// either. After a crash a few may be missing.
    pub async fn take_in(self: &Arc<Self>, mut tail: Tail) -> (Tail, Vec<OutputLine>) {
        let directory = self.directory.clone();
        let read = move || {
            let lines = tail.read(usize::MAX);
            let new = lines.and_then(|lines| {
                let mut printed = lines.iter().rev();
                let last = printed.find(|line| line.stream != Stream::Note);
                let last = last.map(OutputLine::cursor);
                let before = file::mark(&directory, last)?;
                Ok((lines, before))
            });
            (tail, new)
        };
        let (tail, read) = task::blocking("read the log of a process", read).await;
        let (lines, before) = match read {
            Ok(read) => read,
            Err(error) => {
                tracing::warn!(directory = %self.directory.display(), %error, "the log of a process cannot be read");
                return (tail, Vec::new());
            }
        };
        let mut shared = self.shared();
        for line in &lines {
            shared.end = shared.end.max(line.cursor());
            shared.show(line.clone());
        }
        drop(shared);
        self.lines.send_modify(|count| *count += 1);
        self.writes.send_modify(|count| *count += 1);
        let new = lines.into_iter().filter(|line| line.cursor() > before);
        (tail, new.collect())
    }

    /// Returns a reader of the lines after `from` in the files.
    pub fn tail(&self, from: LogCursor) -> Tail {
        Tail::new(&self.directory, from)
    }

    /// Returns a receiver that changes with each write to the file, by this process or by a shim.
    pub fn writes(&self) -> watch::Receiver<u64> {
        self.writes.subscribe()
    }

    /// Returns a receiver that changes with each output.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.lines.subscribe()
    }

    /// Returns the position behind the last line in memory.
    pub fn end(&self) -> LogCursor {
        self.shared().end
    }

    /// Returns lines of the attempt in flight that are in memory, of one stream, as a text.
    pub fn recent(&self, source: Source) -> String {
        let shared = self.shared();
        let attempt = shared.end.attempt;
        let lines = shared
            .ring
            .iter()
            .filter(|line| line.attempt == attempt && line.stream == source.into());
        let mut text = String::new();
        for line in lines {
            text.push_str(&line.text);
            text.push('\n');
        }
        text
    }

    /// Reads the lines `wanted`, from the memory and the files.
    pub async fn read(self: &Arc<Self>, wanted: LogRange) -> io::Result<LogPage> {
        if let Some(page) = self.in_memory(wanted) {
            return Ok(page);
        }
        let this = Arc::clone(self);
        let read = move || {
            let mut lines = file::read(&this.directory, wanted)?;
            let behind = lines
                .last()
                .map_or(LogCursor::default(), OutputLine::cursor);
            let from = match wanted {
                LogRange::Last(_) => behind,
                LogRange::After(cursor, _) => behind.max(cursor),
            };
            let newer = this.shared();
            let newer = newer.ring.iter().filter(|line| line.cursor() > from);
            lines.extend(newer.cloned());
            Ok(page(lines, wanted))
        };
        task::blocking("read the log of a process", read).await
    }

    /// Waits for a line that `pattern` matches, after `since` or from now on, until `ended` resolves.
    pub async fn wait_for_line(
        self: &Arc<Self>,
        pattern: &LinePattern,
        since: Option<LogCursor>,
        ended: impl Future<Output = ()>,
    ) -> io::Result<LineWait> {
        let mut changes = self.changes();
        let mut from = since.unwrap_or_else(|| self.end());
        let mut ended = std::pin::pin!(ended);
        let mut is_over = false;
        loop {
            changes.mark_unchanged();
            let mut page = self.read(LogRange::After(from, LINES_PER_READ)).await?;
            from = page.next;
            let is_last = page.lines.len() < LINES_PER_READ;
            let found = page
                .lines
                .iter()
                .position(|line| pattern.matches(&line.text) == Some(true));
            if let Some(found) = found {
                return Ok(LineWait::Line(page.lines.swap_remove(found)));
            }
            if !is_last {
                continue;
            }
            if is_over {
                return Ok(LineWait::Ended);
            }
            tokio::select! {
                grown = changes.changed() => is_over = grown.is_err(),
                // Its last lines may have come meanwhile.
                () = &mut ended => is_over = true,
            }
        }
    }

    /// Returns the lines `wanted` if the memory has all of them.
    fn in_memory(&self, wanted: LogRange) -> Option<LogPage> {
        let shared = self.shared();
        let first = shared.ring.front()?;
        let lines = match wanted {
            LogRange::Last(most) if shared.ring.len() >= most || first.begin() == 0 => {
                shared.ring.iter().cloned().collect()
            }
            LogRange::After(cursor, _)
                if cursor >= first.cursor() || cursor.position == first.begin() =>
            {
                let later = shared.ring.iter().filter(|line| line.cursor() > cursor);
                later.cloned().collect()
            }
            LogRange::Last(_) | LogRange::After(..) => return None,
        };
        drop(shared);
        Some(page(lines, wanted))
    }
}

/// Returns the `wanted` ones of `lines`, which begin at or after the requested position.
fn page(mut lines: Vec<OutputLine>, wanted: LogRange) -> LogPage {
    let (gap, before) = match wanted {
        LogRange::Last(most) => {
            lines.drain(..lines.len().saturating_sub(most));
            (0, LogCursor::default())
        }
        LogRange::After(cursor, most) => {
            lines.truncate(most);
            let first = lines.first().map_or(0, OutputLine::begin);
            (first.saturating_sub(cursor.position), cursor)
        }
    };
    let next = lines.last().map_or(before, OutputLine::cursor);
    LogPage { gap, lines, next }
}

impl Shared {
    /// Time at which a text without a line end is shown.
    fn due(&self) -> Option<Instant> {
        self.begun.iter().filter_map(UnfinishedLine::due).min()
    }

    /// Leaves output out that comes faster than it is kept, up to the next line that begins after it.
    fn skip(&mut self, source: Source, part: &[u8]) {
        let place = usize::from(source == Source::Stderr);
        let bytes = part.len() + self.begun[place].clear();
        self.lose(bytes);
        self.skips[place] = !part.ends_with(b"\n");
    }

    /// Counts bytes of output that are not kept.
    fn lose(&mut self, bytes: usize) {
        let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
        self.end.position += bytes;
        self.lost += bytes;
    }

    fn take(&mut self, now: Timestamp, source: Source, piece: &[u8]) {
        let place = usize::from(source == Source::Stderr);
        if self.skips[place] {
            self.skips[place] = !piece.ends_with(b"\n");
            return self.lose(piece.len());
        }
        let mut begun = std::mem::take(&mut self.begun[place]);
        begun.take(piece, |line| self.keep(now, source, line));
        self.begun[place] = begun;
    }

    /// Calls `work` for both incomplete lines, with a function that keeps a line.
    fn each_begun(
        &mut self,
        now: Timestamp,
        work: impl Fn(&mut UnfinishedLine, &mut dyn FnMut(&[u8])),
    ) {
        for (place, source) in [Source::Stdout, Source::Stderr].into_iter().enumerate() {
            let mut begun = std::mem::take(&mut self.begun[place]);
            work(&mut begun, &mut |line| self.keep(now, source, line));
            self.begun[place] = begun;
        }
    }

    fn keep(&mut self, at: Timestamp, source: Source, line: &[u8]) {
        let bytes = line.len() + 1;
        self.end.position += u64::try_from(bytes).unwrap_or(u64::MAX);
        if self.pending.len() + bytes <= MOST_PENDING {
            file::encode(&mut self.pending, self.end, at, source.into(), line);
        } else {
            self.lost += u64::try_from(bytes).unwrap_or(u64::MAX);
        }
        self.show(OutputLine {
            at,
            attempt: self.end.attempt,
            stream: source.into(),
            text: String::from_utf8_lossy(line).into_owned(),
            bytes: u64::try_from(bytes).unwrap_or(u64::MAX),
            position: self.end.position,
        });
    }

    /// Passes a line to the observer and to the lines in memory.
    fn show(&mut self, line: OutputLine) {
        if let Some(observer) = &mut self.observer
            && line.stream != Stream::Note
        {
            observer(&line.text);
        }
        self.ring_bytes += usize::try_from(line.bytes).unwrap_or_default();
        self.ring.push_back(line);
        while self.ring.len() > RING_LINES || self.ring_bytes > RING_BYTES {
            let Some(oldest) = self.ring.pop_front() else {
                break;
            };
            self.ring_bytes -= usize::try_from(oldest.bytes).unwrap_or_default();
        }
    }

    fn take_pending(&mut self) -> (Vec<u8>, u64) {
        (
            std::mem::take(&mut self.pending),
            std::mem::take(&mut self.lost),
        )
    }
}

#[cfg(test)]
mod tests;
