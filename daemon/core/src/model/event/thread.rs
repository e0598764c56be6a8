//! The facts about a thread.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::clock::Timestamp;
use crate::conversation::{Digest, Message, Source};
use crate::expr::Object;
use crate::id::{ItemRef, RunId};
use crate::ledger::Usage;
use crate::model::attempt::Effect;
use crate::model::failure::Failure;
use crate::model::thread::{Class, MessagePart, ThreadLimits};

/// What the thread is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ThreadStarted {
    /// The directive.
    pub directive: ItemRef,
    /// The provider of its model.
    pub provider: String,
    /// Its model, as the provider calls it.
    pub model: String,
    /// How the provider is talked to.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub api: String,
    /// What its turns may use.
    #[serde(default)]
    pub limits: ThreadLimits,
    /// The ended thread whose conversation it continues.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub continuation_of: Option<RunId>,
}

/// What the model receives before everything else.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SystemPrompt {
    /// It.
    pub text: String,
}

/// The prompt is put together, and the conversation begins.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PromptComposed {
    /// The first entry of the conversation.
    pub head: Digest,
    /// The names of the tools that the model may call.
    pub tools: Vec<String>,
    /// Bytes that the model reads.
    pub bytes: u64,
}

/// The model receives something.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CognitionIn {
    /// Before which turn.
    pub turn: u32,
    /// Where it came from.
    pub source: Source,
    /// What it says.
    pub text: String,
}

/// Somebody said something to the thread, which its model receives before its next call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MessageQueued {
    /// What.
    pub text: String,
    /// Who.
    pub by: String,
}

/// The model is called: a turn begins, or is tried again.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StepStart {
    /// The turn, from 1.
    pub turn: u32,
    /// Which try of it, from 1.
    pub attempt: u32,
    /// When.
    pub now: Timestamp,
    /// About how many tokens are sent.
    pub input_tokens: u64,
    /// The most tokens of the answer.
    pub max_output: u32,
}

/// What the model thought, as far as it says.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CognitionReasoning {
    /// The turn.
    pub turn: u32,
    /// It.
    pub text: String,
}

/// The model has spoken.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CognitionOut {
    /// The turn.
    pub turn: u32,
    /// Which try of it.
    pub attempt: u32,
    /// What it said, without its calls.
    pub text: String,
    /// The whole message.
    pub message: Arc<Message>,
    /// What the call used and cost; `None` if nobody said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
    /// By which the provider finds the call again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_id: Option<String>,
}

/// A call of a tool has ended, or was refused.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ToolCallResult {
    /// The turn.
    pub turn: u32,
    /// Its place among the calls of the turn.
    pub position: u32,
    /// The id by which it is answered.
    pub call_id: String,
    /// What the model receives.
    pub output: String,
    /// Whether it failed.
    pub is_error: bool,
    /// Why it failed, for programs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// The object that holds all of it, if the model receives a part.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub artifact: Option<Digest>,
    /// Wall time in milliseconds.
    pub duration_ms: u64,
}

/// A turn is over.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StepFinish {
    /// The turn.
    pub turn: u32,
    /// The newest entry of the conversation.
    pub head: Digest,
    /// Tokens that the thread used.
    pub tokens: u64,
    /// Calls of tools in this turn.
    pub calls: u32,
    /// Wall time in milliseconds.
    pub duration_ms: u64,
}

/// The call of the model failed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ErrorClassified {
    /// The turn.
    pub turn: u32,
    /// Which try of it.
    pub attempt: u32,
    /// What happened.
    pub error: Failure,
    /// What becomes of it.
    pub classification: Class,
    /// The pause before another try, if there is one, in milliseconds.
    pub pause_ms: u64,
}

/// The turn is tried again.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TurnRetryScheduled {
    /// The turn.
    pub turn: u32,
    /// Which try of it.
    pub attempt: u32,
    /// Not before.
    pub due: Timestamp,
}

/// The conversation continues under another root, in which all of it is restated.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ContextReseeded {
    /// The turn that is tried again.
    pub turn: u32,
    /// Why.
    pub reason: Reason,
    /// Its first entry, which is the newest one too.
    pub root: Digest,
    /// Bytes that the model reads.
    pub bytes: u64,
    /// About how many tokens were read before.
    pub tokens_before: u64,
    /// The same, from now on.
    pub tokens_after: u64,
    /// Turns of which it tells.
    pub kept_turns: u32,
}

/// The model answered after all.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RetrySucceeded {
    /// The turn.
    pub turn: u32,
    /// How many tries it took.
    pub attempts: u32,
}

/// A limit leaves nothing for another turn: the one who resumes the thread is asked to raise it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LimitEscalationRequested {
    /// The limit, by the code of the suspension.
    pub limit_code: String,
    /// What is used of it.
    pub current_value: String,
    /// What may be.
    pub current_max: String,
    /// What would let it continue.
    pub proposed_max: String,
}

/// The thread did what it was to do.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ThreadCompleted {
    /// What it gives back: its outputs, or else the last text.
    pub output: Arc<Value>,
    /// Wall time since it was accepted.
    pub elapsed_ms: u64,
}

/// The thread failed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ThreadError {
    /// Why.
    pub error: Failure,
    /// Wall time since it was accepted.
    pub elapsed_ms: u64,
}

/// The thread stopped on request.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ThreadCancelled {
    /// Who or what asked.
    pub cause: String,
    /// Wall time since it was accepted.
    pub elapsed_ms: u64,
}

/// Why a conversation is restated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    /// The provider does not take back the reasoning that it sent.
    ReasoningRejected,
}

/// A call of a tool starts, or starts again after the daemon went down.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ToolCallStart {
    /// The turn.
    pub turn: u32,
    /// Its place among the calls of the turn.
    pub position: u32,
    /// The id by which it is answered.
    pub call_id: String,
    /// The tool, by the name that the model knows.
    pub tool: String,
    /// What is done, to which item.
    pub item: String,
    /// The arguments as the model gave them.
    pub input: Arc<Object>,
    /// Which attempt, from 1.
    pub attempt: u32,
    /// What a second one would mean.
    pub effect: Effect,
    /// Whether nobody has said so: then it is not repeated after a crash, and the model learns of it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub undeclared: bool,
    /// The idempotency key handed to the tool.
    pub key: String,
    /// The run that carries it out; created in the same commit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub child: Option<RunId>,
    /// Parts of the message that no earlier call brought along, up to this call; none once there is a message.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub parts: Vec<Arc<MessagePart>>,
}
