//! The model of threads: a conversation with a model, turn by turn.
//!
//! A turn is one call of the model that came to a message, and the calls of tools that the message asks for. What was said in
//! turns that are over lies in the conversation, of which the record holds the newest entry; the record itself holds no more than
//! the turn in hand.
//!
//! ```text
//! Composing ─prompt_composed─► Before ─step_start─► Calling ─cognition_out─► Acting ─step_finish─► Before (the next turn)
//!                                ▲                     │
//!                                └──── turn_retry ──── Failed ◄─error_classified
//!                                      (or context_reseeded)
//! ```
//!
//! Calls of tools start while the model still speaks: `tool_call_start` brings along the parts of the message up to the call, so
//! that a message which breaks off has said at least that much.

mod artifacts;
mod carried;
mod limits;
mod queue;
mod recent;
mod repeated;

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

/// Where a thread stands, and what its turns came to.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ThreadState {
    /// What happens now.
    pub at: At,
    /// What its turns used.
    pub used: Used,
    /// What they may use.
    pub limits: ThreadLimits,
    /// The entry with which its conversation began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub root: Option<Digest>,
    /// The newest entry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub head: Option<Digest>,
    /// How much the model reads at its next call.
    pub context: Context,
    /// What somebody said to it and its model has not received.
    #[serde(default, skip_serializing_if = "Queue::is_empty")]
    pub queue: Queue,
    /// The long results that it can read again.
    #[serde(default, skip_serializing_if = "Artifacts::is_empty")]
    pub artifacts: Artifacts,
    /// The last call of the turns that are over, and how often it was made in a row.
    #[serde(default, skip_serializing_if = "Repeated::is_none")]
    pub repeated: Repeated,
    /// The higher limit that it asks for, while it is suspended at one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub escalated: Option<Arc<str>>,
    /// Whether its conversation was restated because the provider did not take its reasoning back; that helps once.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub reseeded: bool,
    /// How often the model was reminded of what it has to return.
    #[serde(default)]
    pub nudges: u8,
    /// How often it was asked to continue an answer that was too long.
    #[serde(default)]
    pub lengths: u8,
    /// Whether the last answer was cut off by its length.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_cut_short: bool,
    /// The text so far of an answer that is being continued over several turns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unfinished: Option<Arc<str>>,
    /// What was said and what failed last.
    #[serde(default, skip_serializing_if = "Recent::is_none")]
    pub recent: Arc<Recent>,
    /// What it returned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub returned: Option<Arc<Returned>>,
    /// What it gave back, once it has ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<Arc<Value>>,
}

/// How much the model reads at its next call.
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

/// What a thread does now.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum At {
    /// Its prompt is put together.
    #[default]
    Composing,
    /// A turn is about to begin, or to be tried again.
    Before(Box<NextTurn>),
    /// The model is called, and speaks. Calls of tools may be under way.
    Calling(Box<Turn>),
    /// The model has spoken; the calls it asked for are made.
    Acting(Box<Turn>),
    /// The call of the model failed.
    Failed(Box<Failed>),
}

/// A turn that has not begun.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NextTurn {
    /// Its number, from 1.
    pub turn: u32,
    /// The number of its next try, from 1.
    pub attempt: u32,
    /// How many tries failed.
    #[serde(default)]
    pub retries: u8,
    /// What the model receives first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub texts: Vec<DeliveredText>,
    /// When it may begin, if it has to wait.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub due: Option<Timestamp>,
}

impl NextTurn {
    /// The first try of a turn.
    pub const fn turn(turn: u32) -> Self {
        Self {
            turn,
            attempt: 1,
            retries: 0,
            texts: Vec::new(),
            due: None,
        }
    }
}

/// A text that the model receives.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DeliveredText {
    /// Where it came from.
    pub source: Source,
    /// What it says.
    pub text: String,
}

/// A call of the model that failed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Failed {
    /// The turn as it would be tried again.
    pub next: NextTurn,
    /// What happened.
    pub failure: Failure,
    /// What that means.
    pub class: Class,
    /// The pause before another try, in milliseconds.
    pub pause_ms: u64,
}

/// What becomes of a failed call of a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Class {
    /// It may pass.
    Transient,
    /// Too many calls; it passes.
    RateLimited,
    /// The account is used up: a person must act.
    Quota,
    /// The conversation is too long for the model.
    Context,
    /// The provider does not take back reasoning that it sent: another root without it may help, once.
    Reasoning,
    /// The same call fails again.
    Permanent,
    /// The daemon went down meanwhile, or the time of the thread was over. That counts as no try.
    Interrupted,
}

/// The turn in hand.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Turn {
    /// Its number, from 1.
    pub number: u32,
    /// Which try it is, from 1.
    pub attempt: u32,
    /// How many tries failed before.
    pub retries: u8,
    /// When it began.
    pub now: Timestamp,
    /// Since when its time is not yet counted: since it began, or the thread was resumed.
    pub since: Timestamp,
    /// What the model received first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub texts: Vec<DeliveredText>,
    /// About how many tokens were sent.
    pub input: u64,
    /// The most tokens of the answer.
    pub max_output: u32,
    /// Parts of the message that a call brought along, while there is no message.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub parts: Vec<Arc<MessagePart>>,
    /// The message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub said: Option<Arc<Message>>,
    /// The calls that it asks for, as far as they are known.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub calls: Vec<ToolCall>,
    /// Whether the thread that this one continues was ended in it: no call of it is carried out any more.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_cut: bool,
}

/// A complete part of a message.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MessagePart {
    /// What it says.
    pub block: Block,
    /// The same as it was received, JSON text.
    pub raw: String,
}

/// A call of a tool.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ToolCall {
    /// Its place among the calls of the turn, in the order in which they were known: the slot of its attempt.
    pub position: u32,
    /// The id by which it is answered.
    pub id: String,
    /// The tool, by the name that the model knows.
    pub name: String,
    /// With what.
    pub input: Arc<Object>,
    /// How far it is.
    pub at: CallAt,
}

/// How far a call of a tool is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CallAt {
    /// It can start.
    Ready,
    /// It is under way.
    Running {
        /// Which attempt.
        attempt: Attempt,
        /// Whether nobody has said what a second one would mean.
        undeclared: bool,
    },
    /// It has ended.
    Done(Arc<Answered>),
}

/// What a call of a tool came to, as the model receives it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Answered {
    /// The text.
    pub content: String,
    /// Whether it failed.
    pub is_error: bool,
}

/// How a thread says it ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReturnStatus {
    /// It did what it was asked for.
    Success,
    /// It could not.
    Error,
}

/// A valid call of `directive_return`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Returned {
    /// How it ended.
    pub status: ReturnStatus,
    /// Why it could not, if it says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error_detail: Option<String>,
    /// The outputs.
    pub outputs: Object,
}

impl Turn {
    /// The call with that place.
    pub fn call(&self, position: u32) -> Option<&ToolCall> {
        self.calls.iter().find(|call| call.position == position)
    }

    pub(crate) fn call_mut(&mut self, position: u32) -> Option<&mut ToolCall> {
        self.calls.iter_mut().find(|call| call.position == position)
    }

    /// Why the model stopped; `None` if it has not, or was cut off.
    pub(crate) fn stop(&self) -> Option<Stop> {
        match self.said.as_deref() {
            Some(Message::Assistant { stop, .. }) => *stop,
            Some(Message::User { .. }) | None => None,
        }
    }

    /// Whether its message is a part of an answer that the next turn continues.
    pub(crate) fn is_unfinished(&self) -> bool {
        self.calls.is_empty() && matches!(self.stop(), Some(Stop::Length | Stop::Pause))
    }

    /// The turn as it would be tried again.
    pub(crate) fn again(&self, failed: bool) -> NextTurn {
        NextTurn {
            turn: self.number,
            attempt: self.attempt + 1,
            retries: self.retries.saturating_add(u8::from(failed)),
            texts: self.texts.clone(),
            due: None,
        }
    }
}

impl ToolCall {
    /// The attempt in flight.
    pub(super) const fn attempt(&self) -> Option<&Attempt> {
        match &self.at {
            CallAt::Running { attempt, .. } => Some(attempt),
            CallAt::Ready | CallAt::Done(_) => None,
        }
    }
}

impl ThreadState {
    /// Whether it helps to tell the conversation anew without reasoning: there may be some, and it was not done before.
    pub(crate) fn may_be_reseeded(&self) -> bool {
        !self.reseeded && self.head != self.root
    }

    /// The text of the answer that ends, so far, with the message of `turn`: joined with what it continues.
    pub(crate) fn whole_text(&self, turn: &Turn) -> String {
        let mut text = self.unfinished.as_deref().unwrap_or_default().to_owned();
        if let Some(said) = &turn.said {
            text.push_str(&said.plain_text());
        }
        text
    }

    /// The turn in hand.
    pub fn turn(&self) -> Option<&Turn> {
        match &self.at {
            At::Calling(turn) | At::Acting(turn) => Some(turn),
            At::Composing | At::Before(_) | At::Failed(_) => None,
        }
    }

    /// Counts the time of the turn in hand up to now.
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
