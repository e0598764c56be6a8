//! What one attempt prints, made into lines and written.

use std::convert::Infallible;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

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
    log: Arc<Log>,
    gate: Gate,
    heading: Arc<str>,
    heard: Mutex<Heard>,
    more: Notify,
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
            log,
            gate,
            // A heading is one line.
            heading: heading.replace(char::is_control, " ").into(),
            heard: Mutex::default(),
            more: Notify::new(),
        }
    }

    fn heard(&self) -> MutexGuard<'_, Heard> {
        self.heard.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes in what was printed. Neither waits nor blocks.
    pub fn hear(&self, source: Source, bytes: &[u8]) {
        if self.heard().take(source, bytes) {
            self.more.notify_one();
        }
    }

    /// Writes lines as they come. Nothing is lost when this is dropped midway but what is being written, which is written.
    pub async fn write(&self) -> Infallible {
        loop {
            self.more.notified().await;
            self.flush().await;
        }
    }

    /// Writes the rest, with lines that have no end.
    pub async fn close(&self) {
        self.heard().end();
        self.flush().await;
    }

    async fn flush(&self) {
        let lines = self.heard().lines();
        if lines.is_empty() {
            return;
        }
        let (log, heading) = (Arc::clone(&self.log), Arc::clone(&self.heading));
        let written = self
            .gate
            .pass("append to async.log", move || log.append(&heading, &lines));
        if let Err(error) = written.await {
            tracing::warn!(run = %self.log.run, %error, "what a tool printed was not kept");
        }
    }
}

impl Heard {
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
        // A line that looks like a heading is none.
        if std::str::from_utf8(text).is_ok_and(|text| heading(text).is_some()) {
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
