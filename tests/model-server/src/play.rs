//! Playing the stream of a message: event by event, with its waits and faults.

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

/// A part of a stream as an api writes it.
pub(super) enum Piece {
    /// An event.
    Event {
        /// All of its lines.
        text: String,
        /// The block that it completes, as it comes back.
        completes: Option<String>,
    },
    /// The stream waits until the test releases this name.
    Hold(String),
}

impl Piece {
    /// An event that completes no block.
    pub(super) fn event(text: String) -> Self {
        Self::Event {
            text,
            completes: None,
        }
    }
}

/// What is done next.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// An event is sent, which may complete a block.
    Send(String, Option<String>),
    /// Some time passes.
    Pause(Duration),
    /// Nothing happens until the test releases this name.
    Hold(String),
    /// The connection is closed.
    Cut,
    /// The connection is reset.
    Reset,
    /// Nothing more happens.
    Stall,
}

/// The steps of a stream; `error` writes the event of an error. Refuses a position that the stream never comes to.
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

/// The body of an answer.
pub(super) type Body = UnsyncBoxBody<Bytes, Broken>;

/// The answer ends before its end.
#[derive(Debug, thiserror::Error)]
#[error("the script breaks the connection")]
pub(super) struct Broken;

/// Plays the steps of a stream.
pub(super) struct Player {
    /// What is left to do.
    pub(super) steps: std::vec::IntoIter<Step>,
    /// What was sent.
    pub(super) answer: Arc<Answer>,
    /// Notices a client that goes away.
    pub(super) watch: Watch,
    /// Whether the connection is reset when it ends.
    pub(super) reset: Arc<AtomicBool>,
}

impl Player {
    /// The stream as a body.
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

    /// All of it was sent.
    fn end(&mut self) {
        self.answer.end();
        self.watch.done();
    }

    /// Ends the answer here. What was said before goes out first: a body that waits is flushed, one that fails is not.
    async fn broken(&mut self) -> Option<Result<Frame<Bytes>, Broken>> {
        tokio::task::yield_now().await;
        self.watch.done();
        Some(Err(Broken))
    }
}
