//! The model of threads: a conversation with a model, turn by turn.
//!
//! A turn is one call of the model that resulted in a message, and the calls of tools that the message requests. The
//! conversation holds the turns that are over; the record holds its newest entry and the current turn only.
//!
//! ```text
//! Composing ─prompt_composed─► Before ─step_start─► Calling ─cognition_out─► Acting ─step_finish─► Before (the next turn)
//!                                ▲                     │
//!                                └──── turn_retry ──── Failed ◄─error_classified
//!                                      (or context_reseeded)
//! ```
//!
//! Calls of tools start while the model still streams its answer: `tool_call_start` records the parts of the message up
//! to the call. So a message that breaks off has those parts at least.

mod artifacts;
mod carried;
mod limits;
mod queue;
mod recent;
mod repeated;
mod turn_wait;
mod watch_message;

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::attempt::Attempt;
use super::failure::Failure;
use crate::clock::Timestamp;
use crate::conversation::{Block, Digest, Message, Source, Stop};
use crate::expr::Object;

pub use artifacts::{Artifacts, MOST_ARTIFACTS};
pub use limits::{Reached, ThreadLimits, Used};
pub use queue::{MOST_MESSAGE_BYTES, MOST_QUEUED, Queue};
pub use recent::Recent;
pub use repeated::Repeated;
pub use turn_wait::{TurnWait, WaitsFor};
pub use watch_message::{MOST_WATCH_BYTES, MOST_WATCH_LINES, WatchMessage};

/// Limit of the characters of the last text of a thread in its result.
pub(super) const MOST_RESULT_CHARS: usize = 4000;

/// The state of a thread and the totals of its turns.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ThreadState {
    pub at: At,
    /// Usage of its turns.
    pub used: Used,
    /// Limits of its turns.
    pub limits: ThreadLimits,
    /// The first entry of its conversation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub root: Option<Digest>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub head: Option<Digest>,
    /// Size of the input of the next model call.
    pub context: Context,
    /// Messages that its model has not received yet.
    #[serde(default, skip_serializing_if = "Queue::is_empty")]
    pub queue: Queue,
    /// The long results that it can read again.
    #[serde(default, skip_serializing_if = "Artifacts::is_empty")]
    pub artifacts: Artifacts,
    /// The last call of the finished turns, and how often it was made in a row.
    #[serde(default, skip_serializing_if = "Repeated::is_none")]
    pub repeated: Repeated,
    /// The higher limit that it requests while it is suspended at one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub escalated: Option<Arc<str>>,
    /// True if its conversation was restated because the provider rejected its reasoning; that helps once.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub reseeded: bool,
    /// Number of reminders to the model of its required outputs.
    #[serde(default)]
    pub nudges: u8,
    /// Number of requests to the model to continue an answer that was too long.
    #[serde(default)]
    pub lengths: u8,
    /// True if the last answer was cut off by its length.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_cut_short: bool,
    /// The text so far of an answer that continues over several turns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unfinished: Option<Arc<str>>,
    /// The latest texts and failures.
    #[serde(default, skip_serializing_if = "Recent::is_none")]
    pub recent: Arc<Recent>,
    /// The outputs that it returned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub returned: Option<Arc<Returned>>,
    /// The beginning of the text of the message that returned them, unless it is empty.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub closing_text: Option<Arc<str>>,
    /// The result, once it has ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<Arc<Value>>,
}

/// Size of the input of the next model call.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Context {
    /// Tokens that the last call reported, its answer included.
    pub reported: u64,
    /// Bytes that were added since.
    pub new_bytes: u64,
}

impl Context {
    pub(super) fn add(&mut self, bytes: usize) {
        let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
        self.new_bytes = self.new_bytes.saturating_add(bytes);
    }
}

/// The current activity of a thread.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum At {
    /// The prompt is composed.
    #[default]
    Composing,
    Before(Box<NextTurn>),
    /// The model is called and streams its answer. Calls of tools may be in flight.
    Calling(Box<Turn>),
    Acting(Box<Turn>),
    /// The call of the model failed.
    Failed(Box<Failed>),
}

/// A turn that has not begun.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NextTurn {
    /// Number of the turn, from 1.
    pub turn: u32,
    /// Number of its next try, from 1.
    pub attempt: u32,
    /// Number of failed tries.
    #[serde(default)]
    pub retries: u8,
    /// Texts that the model receives first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub texts: Vec<DeliveredText>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub due: Option<Timestamp>,
    /// The wait of at least a second that delays it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiting: Option<TurnWait>,
}

impl NextTurn {
    /// Makes the first try of a turn.
    pub const fn turn(turn: u32) -> Self {
        Self {
            turn,
            attempt: 1,
            retries: 0,
            texts: Vec::new(),
            due: None,
            waiting: None,
        }
    }
}

/// A text that the model receives.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DeliveredText {
    pub source: Source,
    pub text: String,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Failed {
    /// The turn, prepared for another try.
    pub next: NextTurn,
    pub failure: Failure,
    /// The class, which decides what follows.
    pub class: Class,
    /// The pause before another try, in milliseconds.
    pub pause_ms: u64,
}

/// Class of a failed model call, by its remedy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Class {
    /// The failure may pass.
    Transient,
    /// Too many calls; the failure passes.
    RateLimited,
    /// The account is used up: a person must act.
    Quota,
    /// The conversation is too long for the model.
    Context,
    /// The provider rejects the reasoning that it sent: another root without it may help, once.
    Reasoning,
    /// An equal call would fail again.
    Permanent,
    /// The daemon went down meanwhile, or the time of the thread was over. It counts as no try.
    Interrupted,
}

/// The current turn.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Turn {
    /// Number of the turn, from 1.
    pub number: u32,
    /// Number of the try, from 1.
    pub attempt: u32,
    /// Number of earlier failed tries.
    pub retries: u8,
    pub now: Timestamp,
    /// Start of the time not yet counted: the start of the turn, or the last resumption.
    pub since: Timestamp,
    /// Texts that the model received first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub texts: Vec<DeliveredText>,
    /// Estimated tokens sent.
    pub input: u64,
    /// Limit of the tokens of the answer.
    pub max_output: u32,
    /// Parts of the message that calls recorded, while there is no message.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub parts: Vec<Arc<MessagePart>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub said: Option<Arc<Message>>,
    /// The calls that it requests, as far as they are known.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub calls: Vec<ToolCall>,
    /// True if the thread that this one continues was ended in this turn: no further call of it is carried out.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_cut: bool,
}

/// A complete part of a message.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MessagePart {
    pub block: Block,
    /// The part as it was received, JSON text.
    pub raw: String,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ToolCall {
    /// Index among the calls of the turn, in the order in which they became known: the slot of its attempt.
    pub position: u32,
    /// Id by which it is answered.
    pub id: String,
    pub name: String,
    /// The arguments.
    pub input: Arc<Object>,
    pub at: CallAt,
}

/// Progress of a call of a tool.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CallAt {
    Ready,
    Running {
        attempt: Attempt,
        /// True if the tool does not declare the meaning of a second attempt.
        undeclared: bool,
    },
    Done(Arc<Answered>),
}

/// The result of a call of a tool, as the model receives it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Answered {
    pub content: String,
    pub is_error: bool,
}

/// The status that a thread returns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReturnStatus {
    Success,
    Error,
}

/// A valid call of `directive_return`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Returned {
    pub status: ReturnStatus,
    /// The cause of an error, if the model gives one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error_detail: Option<String>,
    pub outputs: Object,
}

impl Turn {
    /// Returns the call with that index.
    pub fn call(&self, position: u32) -> Option<&ToolCall> {
        self.calls.iter().find(|call| call.position == position)
    }

    pub(crate) fn call_mut(&mut self, position: u32) -> Option<&mut ToolCall> {
        self.calls.iter_mut().find(|call| call.position == position)
    }

    /// Returns the stop reason of the model; `None` if it has not stopped, or was cut off.
    pub(crate) fn stop(&self) -> Option<Stop> {
        match self.said.as_deref() {
            Some(Message::Assistant { stop, .. }) => *stop,
            Some(Message::User { .. }) | None => None,
        }
    }

    /// True if its message is a part of an answer that the next turn continues.
    pub(crate) fn is_unfinished(&self) -> bool {
        self.calls.is_empty() && matches!(self.stop(), Some(Stop::Length | Stop::Pause))
    }

    /// Returns the turn, prepared for another try.
    pub(crate) fn again(&self, failed: bool) -> NextTurn {
        NextTurn {
            turn: self.number,
            attempt: self.attempt + 1,
            retries: self.retries.saturating_add(u8::from(failed)),
            texts: self.texts.clone(),
            due: None,
            waiting: None,
        }
    }
}

impl ToolCall {
    pub(super) const fn attempt(&self) -> Option<&Attempt> {
        match &self.at {
            CallAt::Running { attempt, .. } => Some(attempt),
            CallAt::Ready | CallAt::Done(_) => None,
        }
    }
}

impl ThreadState {
    /// True if it helps to restate the conversation without reasoning: there may be some, and it was not done before.
    pub(crate) fn may_be_reseeded(&self) -> bool {
        !self.reseeded && self.head != self.root
    }

    /// Returns the text of the answer up to the message of `turn`, joined with the text that it continues.
    pub(crate) fn whole_text(&self, turn: &Turn) -> String {
        let mut text = self.unfinished.as_deref().unwrap_or_default().to_owned();
        if let Some(said) = &turn.said {
            text.push_str(&said.plain_text());
        }
        text
    }

    /// Returns the current turn.
    pub fn turn(&self) -> Option<&Turn> {
        match &self.at {
            At::Calling(turn) | At::Acting(turn) => Some(turn),
            At::Composing | At::Before(_) | At::Failed(_) => None,
        }
    }

    /// Returns the wait that delays the next turn.
    pub const fn waiting(&self) -> Option<&TurnWait> {
        match &self.at {
            At::Before(next) => next.waiting.as_ref(),
            At::Composing | At::Calling(_) | At::Acting(_) | At::Failed(_) => None,
        }
    }

    /// Counts the time of the current turn up to `now`.
    pub(super) fn count_time(&mut self, now: Timestamp) {
        let Some(turn) = self.turn_mut() else {
            return;
        };
        let passed = now.ms_since(turn.since);
        turn.since = now;
        self.used.active_ms = self.used.active_ms.saturating_add(passed);
    }

    pub(super) fn turn_mut(&mut self) -> Option<&mut Turn> {
        match &mut self.at {
            At::Calling(turn) | At::Acting(turn) => Some(turn),
            At::Composing | At::Before(_) | At::Failed(_) => None,
        }
    }
}
