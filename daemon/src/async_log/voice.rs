//! What one attempt prints, made into lines and written.

use std::convert::Infallible;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};

use rye_core::sight;
use tokio::sync::Notify;

use super::{Log, heading};
use crate::gate::Gate;

/// Bytes of lines that wait to be written.
const MOST_WAITING: usize = 1 << 20;
/// A line that is longer is cut into several.
const LONGEST_LINE: usize = 16 << 10;

/// A stream of an attempt: its lines are its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

/// One attempt on its way into the log.
#[derive(Debug)]
pub struct Voice {
    gate: Gate,
    said: Arc<Said>,
    more: Notify,
}

/// What an attempt says, shared with the work that writes it.
#[derive(Debug)]
struct Said {
    log: Arc<Log>,
    heading: Arc<str>,
    heard: Mutex<Heard>,
    /// Held from before lines are taken until they are in the file.
    writing: Mutex<()>,
}

/// What was printed and not written.
#[derive(Debug, Default)]
struct Heard {
    lines: Vec<u8>,
    /// The beginning of the next line of stdout, and of stderr.
    begun: [Vec<u8>; 2],
    /// Bytes that were dropped since lines were last taken.
    dropped: usize,
}

impl Voice {
    /// What an attempt says whose lines stand below `heading`; it goes through `gate`.
    pub fn new(log: Arc<Log>, gate: Gate, heading: &str) -> Self {
        Self {
            gate,
            said: Arc::new(Said {
                log,
                // A heading is one line.
                heading: sight::in_line(heading, ' ').into(),
                heard: Mutex::default(),
                writing: Mutex::default(),
            }),
            more: Notify::new(),
        }
    }

    /// Takes in what was printed. Neither waits nor blocks.
    pub fn hear(&self, source: Source, bytes: &[u8]) {
        if self.said.heard().take(source, bytes) {
            self.more.notify_one();
        }
    }

    /// Writes lines as they come. Nothing is lost when this is dropped midway: what is being written is written, and the rest stays.
    pub async fn write(&self) -> Infallible {
        loop {
            self.more.notified().await;
            self.flush().await;
        }
    }

    /// Writes the rest, with lines that have no end. All that was heard is in the file when this returns.
    pub async fn close(&self) {
        self.said.heard().end();
        self.flush().await;
    }

    async fn flush(&self) {
        if self.said.is_written() {
            return;
        }
        let said = Arc::clone(&self.said);
        let written = self.gate.pass("append to async.log", move || said.write());
        if let Err(error) = written.await {
            let run = &self.said.log.run;
            tracing::warn!(%run, %error, "what a tool printed was not kept");
        }
    }
}

impl Said {
    fn heard(&self) -> MutexGuard<'_, Heard> {
        self.heard.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether there is nothing to write, and nobody is about it.
    fn is_written(&self) -> bool {
        // In this order: whoever took the lines has been writing since before.
        let is_empty = self.heard().is_empty();
        is_empty && !matches!(self.writing.try_lock(), Err(TryLockError::WouldBlock))
    }

    /// Writes what was heard, behind what is being written. Blocks.
    fn write(&self) -> io::Result<()> {
        let _turn = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        let lines = self.heard().lines();
        if lines.is_empty() {
            return Ok(());
        }
        self.log.append(&self.heading, &lines)
    }
}

impl Heard {
    /// Whether there are no lines to write, and none were dropped.
    const fn is_empty(&self) -> bool {
        self.lines.is_empty() && self.dropped == 0
    }

    /// Whether there are lines to write.
    fn take(&mut self, source: Source, bytes: &[u8]) -> bool {
        let place = match source {
            Source::Stdout => 0,
            Source::Stderr => 1,
        };
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            let mut rest = piece;
            while !rest.is_empty() {
                let room = LONGEST_LINE.saturating_sub(self.begun[place].len()).max(1);
                let (now, later) = rest.split_at(rest.len().min(room));
                self.begun[place].extend_from_slice(now);
                rest = later;
                if now.ends_with(b"\n") || self.begun[place].len() >= LONGEST_LINE {
                    self.end_line(place);
                }
            }
        }
        !self.lines.is_empty()
    }

    fn end_line(&mut self, place: usize) {
        let line = std::mem::take(&mut self.begun[place]);
        if self.lines.len() + line.len() > MOST_WAITING {
            self.dropped += line.len();
            return;
        }
        let text = line.strip_suffix(b"\n").unwrap_or(&line);
        // A line that looks like a heading is none, whatever else is in it.
        if heading(text).is_some() {
            self.lines.push(b' ');
        }
        self.lines.extend_from_slice(text);
        self.lines.push(b'\n');
    }

    fn end(&mut self) {
        for place in 0..self.begun.len() {
            if !self.begun[place].is_empty() {
                self.end_line(place);
            }
        }
    }

    fn lines(&mut self) -> Vec<u8> {
        let mut lines = std::mem::take(&mut self.lines);
        let dropped = std::mem::take(&mut self.dropped);
        if dropped > 0 {
            let note = format!(
                "[{dropped} bytes left out: they came faster than they could be written]\n"
            );
            lines.extend_from_slice(note.as_bytes());
        }
        lines
    }
}
