//! The facts about a thread.

use std::borrow::Cow;
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
use crate::model::limits::Limits;
use crate::model::thread::{Class, MessagePart, TurnWait, WatchMessage};

/// The thread starts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ThreadStarted {
    pub directive: ItemRef,
    pub provider: String,
    /// The model, as the provider calls it.
    pub model: String,
    /// The API by which the provider is called.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub api: String,
    /// Limits of its turns and of its account.
    #[serde(default)]
    pub limits: Limits,
    /// The ended thread whose conversation it continues.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub continuation_of: Option<RunId>,
}

/// The system prompt of a conversation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SystemPrompt {
    pub text: String,
}

/// The prompt is composed, and the conversation begins.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PromptComposed {
    /// The first entry of the conversation.
    pub head: Digest,
    /// Names of the tools that the model may call.
    pub tools: Vec<String>,
    /// Bytes of the prompt that the model reads.
    pub bytes: u64,
}

/// The model receives a text before `turn`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CognitionIn {
    pub turn: u32,
    pub source: Source,
    pub text: String,
}

/// A message for the thread was queued; its model receives it before its next call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MessageQueued {
    /// The message; empty if it has lines of a process.
    pub text: String,
    /// The sender.
    pub by: String,
    /// Lines of a process, which are the message or join the one with the same id.
    #[serde(default, flatten)]
    pub lines: Option<WatchMessage>,
}

impl MessageQueued {
    /// Returns the message as the model receives it, if it joins no other one.
    pub fn shown(&self) -> Cow<'_, str> {
        match &self.lines {
            Some(lines) => lines.to_string().into(),
            None => (&*self.text).into(),
        }
    }
}

/// The model is called: a turn begins, or is tried again.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StepStart {
    pub turn: u32,
    /// Number of the try, from 1.
    pub attempt: u32,
    pub now: Timestamp,
    /// Estimated tokens sent.
    pub input_tokens: u64,
    /// Limit of the tokens of the answer.
    pub max_output: u32,
}

/// Reasoning of the model, as far as the provider returns it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CognitionReasoning {
    pub turn: u32,
    pub text: String,
}

/// The model has answered.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CognitionOut {
    pub turn: u32,
    /// Number of the try, from 1.
    pub attempt: u32,
    /// Text of the answer, without its calls.
    pub text: String,
    pub message: Arc<Message>,
    /// Usage and cost of the call; `None` if the provider did not report them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
    /// Id by which the provider finds the call again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_id: Option<String>,
}

/// A call of a tool has ended, or was refused.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ToolCallResult {
    pub turn: u32,
    /// Index among the calls of the turn.
    pub position: u32,
    /// Id by which it is answered.
    pub call_id: String,
    /// The text that the model receives.
    pub output: String,
    pub is_error: bool,
    /// Failure code, for programs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// The object that holds the whole output, if the model receives a part.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub artifact: Option<Digest>,
    /// Wall time in milliseconds.
    pub duration_ms: u64,
}

/// A turn is over.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StepFinish {
    pub turn: u32,
    /// The newest entry of the conversation.
    pub head: Digest,
    /// Tokens that the thread used so far.
    pub tokens: u64,
    /// Number of tool calls in this turn.
    pub calls: u32,
    /// Wall time in milliseconds.
    pub duration_ms: u64,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ErrorClassified {
    pub turn: u32,
    /// Number of the try, from 1.
    pub attempt: u32,
    pub error: Failure,
    /// Class of the failure, which decides what follows.
    pub classification: Class,
    /// The pause before another try in milliseconds; 0 if there is none.
    pub pause_ms: u64,
}

/// The turn is tried again.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TurnRetryScheduled {
    pub turn: u32,
    /// Number of the coming try.
    pub attempt: u32,
    /// Earliest time of the try.
    pub due: Timestamp,
}

/// The next turn does not begin yet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TurnWaiting {
    pub turn: u32,
    /// Number of the coming try, from 1.
    pub attempt: u32,
    #[serde(flatten)]
    pub waiting: TurnWait,
}

/// The conversation continues under another root, in which all of it is restated.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ContextReseeded {
    pub turn: u32,
    pub reason: Reason,
    /// The first entry of the restated conversation, which is also the newest.
    pub root: Digest,
    /// Bytes of it that the model reads.
    pub bytes: u64,
    /// Estimated tokens of the conversation before.
    pub tokens_before: u64,
    /// Estimated tokens of the restated conversation.
    pub tokens_after: u64,
    /// Number of turns that it restates.
    pub kept_turns: u32,
}

/// The model answered after failed tries.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RetrySucceeded {
    pub turn: u32,
    /// Number of tries that were needed.
    pub attempts: u32,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LimitEscalationRequested {
    /// The limit, by the code of the suspension.
    pub limit_code: String,
    pub current_value: String,
    pub current_max: String,
    /// The limit with which the thread could continue.
    pub proposed_max: String,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ThreadCompleted {
    /// The outputs, or else the last text.
    pub output: Arc<Value>,
    /// Wall time since the run was accepted, in milliseconds.
    pub elapsed_ms: u64,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ThreadError {
    pub error: Failure,
    /// Wall time since the run was accepted, in milliseconds.
    pub elapsed_ms: u64,
}

/// The thread stopped on request.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ThreadCancelled {
    /// The user or component that requested it.
    pub cause: String,
    /// Wall time since the run was accepted, in milliseconds.
    pub elapsed_ms: u64,
}

/// The reason for which a conversation is restated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    /// The provider does not accept the reasoning that it sent.
    ReasoningRejected,
}

/// A call of a tool starts, or starts again after the daemon went down.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ToolCallStart {
    pub turn: u32,
    /// Index among the calls of the turn.
    pub position: u32,
    /// Id by which it is answered.
    pub call_id: String,
    /// The tool, by the name that the model knows.
    pub tool: String,
    pub item: String,
    /// The arguments as the model gave them.
    pub input: Arc<Object>,
    /// Number of the attempt, from 1.
    pub attempt: u32,
    /// The meaning of a second attempt.
    pub effect: Effect,
    /// True if the tool does not declare `effect`: the call is not repeated after a crash, and the model is informed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub undeclared: bool,
    /// The idempotency key handed to the tool.
    pub key: String,
    /// The run that carries it out; created in the same commit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub child: Option<RunId>,
    /// Parts of the message up to this call that no earlier call recorded; empty once there is a message.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub parts: Vec<Arc<MessagePart>>,
}
