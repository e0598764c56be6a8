//! What was asked and answered before, and whether a request continues it.
//!
//! A conversation is known by all that stands before its first answer: the model, the system prompt, the first message. Of a request
//! that continues a known one, everything before its last answer has to be a body that was seen, and the answer one that was sent
//! to it. So any number of threads may begin alike. One that begins otherwise is new, and may bring along what it likes.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use super::request::{Asked, Turn};
use super::script::Stop;

/// The conversations that were seen.
#[derive(Default)]
pub(super) struct History {
    lines: HashMap<String, Line>,
}

/// Conversations that begin alike.
#[derive(Default)]
struct Line {
    /// Everything that a body began with, as digests.
    beginnings: HashSet<String>,
    /// The bodies themselves.
    bodies: HashSet<String>,
    /// What was sent in answer to each.
    answers: HashMap<String, Vec<Arc<Answer>>>,
    /// Whether a request was refused as one that can never be answered: its messages may come in another shape then.
    is_free: bool,
}

/// An answer, as far as it was sent.
pub(super) struct Answer {
    stop: Stop,
    /// Whether the connection that brought it still lives.
    connection: Arc<AtomicBool>,
    sent: Mutex<Sent>,
}

#[derive(Default)]
struct Sent {
    /// Its complete blocks.
    blocks: Vec<String>,
    /// Whether all of it was sent.
    is_whole: bool,
}

impl History {
    /// Checks that a request continues what was before.
    pub(super) fn check(&self, asked: &Asked) -> Result<(), String> {
        let is_answer = |turn: &Turn| turn.blocks.is_some();
        let Some(last) = asked.messages.iter().rposition(is_answer) else {
            return Ok(());
        };
        let line = self.lines.get(root(asked));
        let goes_on = line.is_some_and(|line| {
            let mut answers = line.answers(&asked.chain[last]).iter();
            answers.any(|answer| answer.stop == Stop::Pause)
        });
        if last + 1 == asked.messages.len() && !goes_on {
            return Err("the newest message is the model's own, which did not pause".to_owned());
        }
        let Some(line) = line else {
            return Ok(());
        };
        if line.is_free {
            return Ok(());
        }
        let before = &asked.chain[last];
        if !line.bodies.contains(before) {
            let same = |at: &usize| line.beginnings.contains(&asked.chain[at + 1]);
            let other = (0..last).find(|at| !same(at)).unwrap_or(last);
            return Err(format!(
                "message {} of the conversation (counted from 1) is not what the requests before had there",
                other + 1
            ));
        }
        let blocks = asked.messages[last].blocks.as_deref().unwrap_or_default();
        if line
            .answers(before)
            .iter()
            .any(|answer| answer.fits(blocks))
        {
            return Ok(());
        }
        Err(format!(
            "message {} of the conversation (counted from 1) is not the answer that was sent",
            last + 1
        ))
    }

    /// Remembers a request.
    pub(super) fn add(&mut self, asked: &Asked) {
        let line = self.lines.entry(root(asked).to_owned()).or_default();
        line.beginnings.extend(asked.chain.iter().cloned());
        line.bodies.extend(asked.chain.last().cloned());
    }

    /// Remembers the answer to a request.
    pub(super) fn answer(&mut self, asked: &Asked, answer: &Arc<Answer>) {
        let line = self.lines.entry(root(asked).to_owned()).or_default();
        let body = asked.chain.last().cloned().unwrap_or_default();
        line.answers
            .entry(body)
            .or_default()
            .push(Arc::clone(answer));
    }

    /// Remembers that a request was refused for what it holds.
    pub(super) fn refused(&mut self, asked: &Asked) {
        let line = self.lines.entry(root(asked).to_owned()).or_default();
        line.is_free = true;
    }
}

/// A digest of all that stands before the first answer.
fn root(asked: &Asked) -> &str {
    let first = asked.messages.iter().position(|turn| turn.blocks.is_some());
    &asked.chain[first.unwrap_or(asked.messages.len())]
}

impl Line {
    /// What was sent in answer to a body.
    fn answers(&self, body: &str) -> &[Arc<Answer>] {
        self.answers.get(body).map_or(&[], Vec::as_slice)
    }
}

impl Answer {
    /// One of which nothing was sent.
    pub(super) fn new(stop: Stop, connection: &Arc<AtomicBool>) -> Self {
        Self {
            stop,
            connection: Arc::clone(connection),
            sent: Mutex::default(),
        }
    }

    /// A block is complete.
    pub(super) fn push(&self, block: String) {
        self.sent().blocks.push(block);
    }

    /// All of it was sent.
    pub(super) fn end(&self) {
        self.sent().is_whole = true;
    }

    /// Whether `blocks` is what a client has of it. One that was cut off, or killed before it could keep all, has its beginning.
    /// One that paused continues in the same message.
    fn fits(&self, blocks: &[String]) -> bool {
        let sent = self.sent();
        if sent.blocks == blocks {
            return true;
        }
        let goes_on = self.stop == Stop::Pause && blocks.starts_with(&sent.blocks);
        let is_cut = !sent.is_whole || !self.connection.load(Ordering::Acquire);
        goes_on || (is_cut && sent.blocks.starts_with(blocks))
    }

    fn sent(&self) -> std::sync::MutexGuard<'_, Sent> {
        self.sent.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
