//! Former requests and answers, and the check that a request continues them.
//!
//! The key of a conversation is everything before its first answer: the model, the system prompt and the first message.
//! In a request that continues a known conversation, everything before its last answer must be a former body, and the
//! answer must be one that was sent to it. So any number of threads may begin alike. A conversation with a new
//! beginning may contain anything.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use super::request::{ParsedRequest, Turn};
use super::script::Stop;

/// All conversations so far.
#[derive(Default)]
pub(super) struct History {
    lines: HashMap<String, SharedBeginning>,
}

/// Conversations with the same beginning.
#[derive(Default)]
struct SharedBeginning {
    /// Digests of all beginnings of bodies.
    beginnings: HashSet<String>,
    /// Digests of the bodies themselves.
    bodies: HashSet<String>,
    /// Answers that were sent to each body.
    answers: HashMap<String, Vec<Arc<Answer>>>,
    /// True if a request was refused as one that can never be answered. Its messages may have another form afterwards.
    is_free: bool,
}

/// An answer, as far as it was sent.
pub(super) struct Answer {
    stop: Stop,
    /// True while the connection of the answer is open.
    connection: Arc<AtomicBool>,
    sent: Mutex<Sent>,
}

#[derive(Default)]
struct Sent {
    /// Complete blocks.
    blocks: Vec<String>,
    /// True if the whole answer was sent.
    is_whole: bool,
}

impl History {
    /// Checks that a request continues a former one.
    pub(super) fn check(&self, asked: &ParsedRequest) -> Result<(), String> {
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

    pub(super) fn add(&mut self, asked: &ParsedRequest) {
        let line = self.lines.entry(root(asked).to_owned()).or_default();
        line.beginnings.extend(asked.chain.iter().cloned());
        line.bodies.extend(asked.chain.last().cloned());
    }

    pub(super) fn answer(&mut self, asked: &ParsedRequest, answer: &Arc<Answer>) {
        let line = self.lines.entry(root(asked).to_owned()).or_default();
        let body = asked.chain.last().cloned().unwrap_or_default();
        line.answers
            .entry(body)
            .or_default()
            .push(Arc::clone(answer));
    }

    /// Records that a request was refused for its content.
    pub(super) fn refused(&mut self, asked: &ParsedRequest) {
        let line = self.lines.entry(root(asked).to_owned()).or_default();
        line.is_free = true;
    }
}

/// Returns a digest of everything before the first answer.
fn root(asked: &ParsedRequest) -> &str {
    let first = asked.messages.iter().position(|turn| turn.blocks.is_some());
    &asked.chain[first.unwrap_or(asked.messages.len())]
}

impl SharedBeginning {
    /// Returns the answers that were sent to a body.
    fn answers(&self, body: &str) -> &[Arc<Answer>] {
        self.answers.get(body).map_or(&[], Vec::as_slice)
    }
}

impl Answer {
    /// Makes an answer of which nothing was sent.
    pub(super) fn new(stop: Stop, connection: &Arc<AtomicBool>) -> Self {
        Self {
            stop,
            connection: Arc::clone(connection),
            sent: Mutex::default(),
        }
    }

    /// Adds a complete block.
    pub(super) fn push(&self, block: String) {
        self.sent().blocks.push(block);
    }

    /// Records that the whole answer was sent.
    pub(super) fn end(&self) {
        self.sent().is_whole = true;
    }

    /// True if `blocks` is what a client may have of the answer. If the answer was cut off, or the client was killed
    /// before it had all, the client has its beginning. A paused answer continues in the same message.
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
