//! Plays the stream of a message event by event, with its waits and faults.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::Frame;

use super::history::Answer;
use super::script::{ApiError, Flow, StreamFault};
use super::shared::Watch;

/// A part of a stream in the format of an API.
pub(super) enum Piece {
    Event {
        /// All lines of the event.
        text: String,
        /// The block that the event completes, in the form of later requests.
        completes: Option<String>,
    },
    /// A wait until the test releases this name.
    Hold(String),
}

impl Piece {
    /// Makes an event that completes no block.
    pub(super) fn event(text: String) -> Self {
        Self::Event {
            text,
            completes: None,
        }
    }
}

/// Next action of the player.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Send an event, which may complete a block.
    Send(String, Option<String>),
    Pause(Duration),
    /// Wait until the test releases this name.
    Hold(String),
    Cut,
    Reset,
    /// Send nothing more and keep the connection open.
    Stall,
}

/// Plans the steps of a stream. `error` renders the event of an error. A position beyond the end of the stream is
/// refused.
pub(super) fn plan(
    flow: &Flow,
    pieces: Vec<Piece>,
    error: impl Fn(&ApiError) -> String,
) -> Result<Vec<Step>, String> {
    let is_event = |piece: &&Piece| matches!(piece, Piece::Event { .. });
    let events = pieces.iter().filter(is_event).count();
    if let Some((before, name)) = flow.hold.as_ref().filter(|(before, _)| *before >= events) {
        return Err(format!(
            "`{name}` holds before event {before}, but the stream has {events}"
        ));
    }
    if let Some((after, _)) = flow.fault.as_ref().filter(|(after, _)| *after > events) {
        return Err(format!(
            "a fault comes after {after} events, but the stream has {events}"
        ));
    }
    let mut steps = Vec::new();
    let mut sent = 0;
    let mut pieces = pieces.into_iter();
    loop {
        if let Some((_, fault)) = flow.fault.as_ref().filter(|(after, _)| *after == sent) {
            match fault {
                StreamFault::Cut => steps.push(Step::Cut),
                StreamFault::Reset => steps.push(Step::Reset),
                StreamFault::Stall => steps.push(Step::Stall),
                StreamFault::Error(told) => steps.push(Step::Send(error(told), None)),
                StreamFault::Malformed => {
                    steps.push(Step::Send("data: {\"type\": \n\n".to_owned(), None));
                }
            }
            return Ok(steps);
        }
        match pieces.next() {
            None => return Ok(steps),
            Some(Piece::Hold(name)) => steps.push(Step::Hold(name)),
            Some(Piece::Event { text, completes }) => {
                if let Some(pace) = flow.pace.filter(|_| sent > 0) {
                    steps.push(Step::Pause(pace));
                }
                if let Some((_, name)) = flow.hold.as_ref().filter(|(before, _)| *before == sent) {
                    steps.push(Step::Hold(name.clone()));
                }
                steps.push(Step::Send(text, completes));
                sent += 1;
            }
        }
    }
}

pub(super) type Body = UnsyncBoxBody<Bytes, Broken>;

/// Error of a body that ends early.
#[derive(Debug, thiserror::Error)]
#[error("the script breaks the connection")]
pub(super) struct Broken;

/// Plays the steps of a stream.
pub(super) struct Player {
    /// Remaining steps.
    pub(super) steps: std::vec::IntoIter<Step>,
    /// Record of what was sent.
    pub(super) answer: Arc<Answer>,
    /// Detects a client that goes away.
    pub(super) watch: Watch,
    /// True if the connection is to be reset when it ends.
    pub(super) reset: Arc<AtomicBool>,
}

impl Player {
    /// Returns the stream as a body.
    pub(super) fn body(self) -> Body {
        let frames = stream::unfold(self, |mut player| async {
            player.next().await.map(|frame| (frame, player))
        });
        StreamBody::new(frames).boxed_unsync()
    }

    async fn next(&mut self) -> Option<Result<Frame<Bytes>, Broken>> {
        loop {
            match self.steps.next() {
                None => {
                    self.end();
                    return None;
                }
                Some(Step::Send(text, completes)) => {
                    if let Some(block) = completes {
                        self.answer.push(block);
                    }
                    self.watch.sends();
                    if self.steps.len() == 0 {
                        self.end();
                    }
                    return Some(Ok(Frame::data(Bytes::from(text))));
                }
                Some(Step::Pause(pause)) => tokio::time::sleep(pause).await,
                Some(Step::Hold(name)) => self.watch.shared().released(&name).await,
                Some(Step::Stall) => std::future::pending().await,
                Some(Step::Cut) => return self.broken().await,
                Some(Step::Reset) => {
                    self.reset.store(true, Ordering::Release);
                    return self.broken().await;
                }
            }
        }
    }

    /// Records that the whole answer was sent.
    fn end(&mut self) {
        self.answer.end();
        self.watch.done();
    }

    /// Breaks the answer off. Earlier events are sent first: hyper flushes a body that is pending, but not one that
    /// fails.
    async fn broken(&mut self) -> Option<Result<Frame<Bytes>, Broken>> {
        tokio::task::yield_now().await;
        self.watch.done();
        Some(Err(Broken))
    }
}
