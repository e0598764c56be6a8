//! Output of one attempt, split into lines and written.

use std::convert::Infallible;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};

use rye_core::printable;
use rye_process::Source;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::unfinished_line::UnfinishedLine;
use super::{Log, LogPool, heading};

/// Maximum bytes of lines that wait for a write.
const MOST_WAITING: usize = 1 << 20;
/// Bytes of a burst that are kept in full: the size of one file of the log.
const BURST: usize = 8 << 20;
/// Bytes kept per millisecond beyond a burst; about 8 MB per second.
const RATE: usize = 8 << 10;
/// Granularity in bytes of keeping or dropping output.
pub const PART: usize = 64 << 10;

/// Writer of one attempt's output to the log.
#[derive(Debug)]
pub struct OutputWriter {
    pool: LogPool,
    shared: Arc<SharedOutput>,
    more: Notify,
}

/// Output of an attempt, shared with the work that writes it.
#[derive(Debug)]
struct SharedOutput {
    log: Arc<Log>,
    heading: Arc<str>,
    buffer: Mutex<OutputBuffer>,
    /// Held from before lines are taken until they are in the file.
    writing: Mutex<()>,
}

/// Output that is not written yet.
#[derive(Debug, Default)]
struct OutputBuffer {
    lines: Vec<u8>,
    /// Incomplete last line of stdout, and of stderr.
    begun: [UnfinishedLine; 2],
    /// True if the rest of a line is dropped because its beginning was.
    skips: [bool; 2],
    /// Bytes dropped since lines were last taken.
    dropped: usize,
    allowance: Allowance,
}

/// Number of bytes that are kept at present. Excess output is not even inspected, so a tool that floods costs the
/// daemon only the read.
#[derive(Debug)]
pub struct Allowance {
    remaining: usize,
    /// Time of its last increase.
    at: Instant,
}

impl Default for Allowance {
    fn default() -> Self {
        Self {
            remaining: BURST,
            at: Instant::now(),
        }
    }
}

impl Allowance {
    /// Takes `bytes` of it if enough is left. Returns true if so.
    pub fn spend(&mut self, bytes: usize) -> bool {
        if self.remaining < bytes {
            let passed = self.at.elapsed();
            self.at += passed;
            let passed = usize::try_from(passed.as_millis()).unwrap_or(usize::MAX);
            let grown = passed.saturating_mul(RATE);
            self.remaining = self.remaining.saturating_add(grown).min(BURST);
        }
        let may = self.remaining >= bytes;
        self.remaining -= if may { bytes } else { 0 };
        may
    }
}

impl OutputWriter {
    /// Makes a writer for an attempt whose lines are below `heading`.
    pub fn new(log: Arc<Log>, pool: LogPool, heading: &str) -> Self {
        Self {
            pool,
            shared: Arc::new(SharedOutput {
                log,
                // A heading is one line.
                heading: printable::in_line(heading, ' ').into(),
                buffer: Mutex::default(),
                writing: Mutex::default(),
            }),
            more: Notify::new(),
        }
    }

    /// Buffers output. Neither waits nor blocks.
    pub fn receive(&self, source: Source, bytes: &[u8]) {
        if self.shared.buffer().take(source, bytes) {
            self.more.notify_one();
        }
    }

    /// Writes lines as they arrive, and a text without a line end once it has waited. Dropping the future loses nothing:
    /// a write in progress completes, and the rest stays buffered.
    pub async fn write(&self) -> Infallible {
        loop {
            let due = self.shared.buffer().due();
            let waited = async {
                match due {
                    Some(due) => tokio::time::sleep_until(due).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = self.more.notified() => {}
                () = waited => self.shared.buffer().show_waiting(Instant::now()),
            }
            self.flush().await;
        }
    }

    /// Writes the rest, unterminated lines included. All output is in the file when this returns, or is lost and
    /// counted because the files of the project hang.
    pub async fn close(&self) {
        self.shared.buffer().end();
        if !self.pool.wait_for(self.flush()).await {
            let lost = self.shared.buffer().clear();
            self.shared.log.lose(lost);
        }
    }

    async fn flush(&self) {
        if self.shared.is_written() {
            return;
        }
        let said = Arc::clone(&self.shared);
        if let Err(error) = self.pool.write(move || said.write()).await {
            let run = &self.shared.log.run;
            tracing::warn!(%run, %error, "what a tool printed was not kept");
        }
    }
}

impl SharedOutput {
    fn buffer(&self) -> MutexGuard<'_, OutputBuffer> {
        self.buffer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// True if nothing is buffered and no write is in progress.
    fn is_written(&self) -> bool {
        // The order matters: a writer holds `writing` before it takes the lines.
        let is_empty = self.buffer().is_empty();
        is_empty && !matches!(self.writing.try_lock(), Err(TryLockError::WouldBlock))
    }

    /// Writes the buffered lines, after a write in progress. Blocks.
    fn write(&self) -> io::Result<()> {
        let _turn = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        let lines = self.buffer().lines();
        if lines.is_empty() {
            return Ok(());
        }
        self.log.append(&self.heading, &lines)
    }
}

impl OutputBuffer {
    const fn is_empty(&self) -> bool {
        self.lines.is_empty() && self.dropped == 0
    }

    /// Time at which a text without a line end is shown.
    fn due(&self) -> Option<Instant> {
        self.begun.iter().filter_map(UnfinishedLine::due).min()
    }

    /// Makes lines of the texts that have waited long enough at `now`.
    fn show_waiting(&mut self, now: Instant) {
        for begun in &mut self.begun {
            begun.show(now, |line| keep(&mut self.lines, line));
        }
    }

    /// Buffers output. Returns true if there are lines to write, or if a text begins to wait for its line end.
    fn take(&mut self, source: Source, bytes: &[u8]) -> bool {
        let place = match source {
            Source::Stdout => 0,
            Source::Stderr => 1,
        };
        let due = self.due();
        for part in bytes.chunks(PART) {
            let is_full = self.lines.len() + part.len() > MOST_WAITING;
            if is_full || !self.allowance.spend(part.len()) {
                self.dropped += self.begun[place].clear() + part.len();
                self.skips[place] = !part.ends_with(b"\n");
                continue;
            }
            for piece in part.split_inclusive(|byte| *byte == b'\n') {
                self.take_piece(place, piece);
            }
        }
        !self.lines.is_empty() || (due.is_none() && self.due().is_some())
    }

    /// Buffers a line, or a part of one.
    fn take_piece(&mut self, place: usize, piece: &[u8]) {
        let is_end = piece.ends_with(b"\n");
        if self.skips[place] {
            self.dropped += piece.len();
            self.skips[place] = !is_end;
            return;
        }
        self.begun[place].take(piece, |line| keep(&mut self.lines, line));
    }

    fn end(&mut self) {
        for begun in &mut self.begun {
            begun.end(|line| keep(&mut self.lines, line));
        }
    }

    /// Drops all output. Returns its length in bytes.
    fn clear(&mut self) -> usize {
        std::mem::take(&mut self.lines).len() + std::mem::take(&mut self.dropped)
    }

    fn lines(&mut self) -> Vec<u8> {
        let mut lines = std::mem::take(&mut self.lines);
        let dropped = std::mem::take(&mut self.dropped);
        if dropped > 0 {
            let note = format!("[{dropped} bytes left out: they came faster than they are kept]\n");
            lines.extend_from_slice(note.as_bytes());
        }
        lines
    }
}

/// Appends a line. One that looks like a heading gets a leading space, so that it cannot be read as one.
fn keep(lines: &mut Vec<u8>, line: &[u8]) {
    if heading(line).is_some() {
        lines.push(b' ');
    }
    lines.extend_from_slice(line);
    lines.push(b'\n');
}
