//! The facts about a thread.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use strum::{IntoStaticStr, VariantNames};

use super::{Facets, While};
use crate::clock::Timestamp;
use crate::conversation::{Digest, Message, Source};
use crate::expr::Object;
use crate::id::{ItemRef, RunId};
use crate::ledger::Usage;
use crate::model::attempt::Effect;
use crate::model::failure::Failure;
use crate::model::life::Outcome;
use crate::model::thread::{Class, Limits, Part, Returned};

/// A fact about a thread.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IntoStaticStr, VariantNames)]
#[serde(tag = "event_type", content = "payload", rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum ThreadEvent {
    /// What the thread is.
    ThreadStarted {
        /// The directive.
        directive: ItemRef,
        /// The provider of its model.
        provider: String,
        /// Its model, as the provider calls it.
        model: String,
        /// How the provider is talked to.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        api: String,
        /// What its turns may use.
        #[serde(default)]
        limits: Limits,
        /// The ended thread whose conversation it continues.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        continuation_of: Option<RunId>,
    },
    /// What the model receives before everything else.
    SystemPrompt {
        /// It.
        text: String,
    },
    /// The prompt is put together, and the conversation begins.
    PromptComposed {
        /// The first entry of the conversation.
        head: Digest,
        /// The names of the tools that the model may call.
        tools: Vec<String>,
        /// Bytes that the model reads.
        bytes: u64,
    },
    /// The model receives something.
    CognitionIn {
        /// Before which turn.
        turn: u32,
        /// Where it came from.
        source: Source,
        /// What it says.
        text: String,
    },
    /// Somebody said something to the thread, which its model receives before its next call.
    MessageQueued {
        /// What.
        text: String,
        /// Who.
        by: String,
    },
    /// The model is called: a turn begins, or is tried again.
    StepStart {
        /// The turn, from 1.
        turn: u32,
        /// Which try of it, from 1.
        attempt: u32,
        /// When.
        now: Timestamp,
        /// About how many tokens are sent.
        input_tokens: u64,
        /// The most tokens of the answer.
        max_output: u32,
    },
    /// What the model thought, as far as it says.
    CognitionReasoning {
        /// The turn.
        turn: u32,
        /// It.
        text: String,
    },
    /// The model has spoken.
    CognitionOut {
        /// The turn.
        turn: u32,
        /// Which try of it.
        attempt: u32,
        /// What it said, without its calls.
        text: String,
        /// The whole message.
        message: Arc<Message>,
        /// What the call used and cost; `None` if nobody said.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        usage: Option<Usage>,
        /// By which the provider finds the call again.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        request_id: Option<String>,
    },
    /// A call of a tool starts, or starts again after the daemon went down.
    ToolCallStart(Box<Started>),
    /// A call of a tool has ended, or was refused.
    ToolCallResult {
        /// The turn.
        turn: u32,
        /// Its place among the calls of the turn.
        position: u32,
        /// The id by which it is answered.
        call_id: String,
        /// What the model receives.
        output: String,
        /// Whether it failed.
        is_error: bool,
        /// Why it failed, for programs.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        code: Option<String>,
        /// The object that holds all of it, if the model receives a part.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        artifact: Option<Digest>,
        /// Wall time in milliseconds.
        duration_ms: u64,
    },
    /// A turn is over.
    StepFinish {
        /// The turn.
        turn: u32,
        /// The newest entry of the conversation.
        head: Digest,
        /// Tokens that the thread used.
        tokens: u64,
        /// Calls of tools in this turn.
        calls: u32,
        /// Wall time in milliseconds.
        duration_ms: u64,
    },
    /// The call of the model failed.
    ErrorClassified {
        /// The turn.
        turn: u32,
        /// Which try of it.
        attempt: u32,
        /// What happened.
        error: Failure,
        /// What becomes of it.
        classification: Class,
        /// The pause before another try, if there is one, in milliseconds.
        pause_ms: u64,
    },
    /// The turn is tried again.
    TurnRetryScheduled {
        /// The turn.
        turn: u32,
        /// Which try of it.
        attempt: u32,
        /// Not before.
        due: Timestamp,
    },
    /// The conversation continues under another root, in which all of it is restated.
    ContextReseeded {
        /// The turn that is tried again.
        turn: u32,
        /// Why.
        reason: Reason,
        /// Its first entry, which is the newest one too.
        root: Digest,
        /// Bytes that the model reads.
        bytes: u64,
        /// About how many tokens were read before.
        tokens_before: u64,
        /// The same, from now on.
        tokens_after: u64,
        /// Turns of which it tells.
        kept_turns: u32,
    },
    /// The model answered after all.
    RetrySucceeded {
        /// The turn.
        turn: u32,
        /// How many tries it took.
        attempts: u32,
    },
    /// A limit leaves nothing for another turn: the one who resumes the thread is asked to raise it.
    LimitEscalationRequested {
        /// The limit, by the code of the suspension.
        limit_code: String,
        /// What is used of it.
        current_value: String,
        /// What may be.
        current_max: String,
        /// What would let it continue.
        proposed_max: String,
    },
    /// The model returned its outputs.
    DirectiveReturn(Arc<Returned>),
    /// The thread did what it was to do.
    ThreadCompleted {
        /// What it gives back: its outputs, or else the last text.
        output: Arc<Value>,
        /// Wall time since it was accepted.
        elapsed_ms: u64,
    },
    /// The thread failed.
    ThreadError {
        /// Why.
        error: Failure,
        /// Wall time since it was accepted.
        elapsed_ms: u64,
    },
    /// The thread stopped on request.
    ThreadCancelled {
        /// Who or what asked.
        cause: String,
        /// Wall time since it was accepted.
        elapsed_ms: u64,
    },
}

/// Why a conversation is restated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    /// The provider does not take back the reasoning that it sent.
    ReasoningRejected,
}

/// A call of a tool that starts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Started {
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
    pub parts: Vec<Arc<Part>>,
}

impl ThreadEvent {
    /// What everybody beside the model asks of it.
    pub const fn facets(&self) -> Facets {
        match self {
            Self::StepStart { .. } | Self::ToolCallStart(_) => Facets::ATTEMPT,
            Self::CognitionOut { .. } | Self::ToolCallResult { .. } => Facets::PROGRESS,
            Self::MessageQueued { .. } => Facets {
                allowed: While::Live,
                ..Facets::BEGINS
            },
            Self::StepFinish { .. } => Facets {
                boundary: true,
                ..Facets::PROGRESS
            },
            Self::ThreadStarted { .. }
            | Self::SystemPrompt { .. }
            | Self::PromptComposed { .. }
            | Self::CognitionIn { .. }
            | Self::CognitionReasoning { .. }
            | Self::ErrorClassified { .. }
            | Self::TurnRetryScheduled { .. }
            | Self::ContextReseeded { .. }
            | Self::RetrySucceeded { .. }
            | Self::LimitEscalationRequested { .. }
            | Self::DirectiveReturn(_) => Facets::PLAIN,
            Self::ThreadCompleted { .. }
            | Self::ThreadError { .. }
            | Self::ThreadCancelled { .. } => Facets::ENDS,
        }
    }

    /// What the run came to, if this event ends it.
    pub fn outcome(&self) -> Option<Outcome> {
        match self {
            Self::ThreadCompleted { output, .. } => Some(Outcome::Completed {
                output: Arc::clone(output),
            }),
            Self::ThreadError { error, .. } => Some(Outcome::Error {
                error: error.clone(),
            }),
            Self::ThreadCancelled { cause, .. } => Some(Outcome::Cancelled {
                cause: cause.clone(),
            }),
            Self::ThreadStarted { .. }
            | Self::SystemPrompt { .. }
            | Self::PromptComposed { .. }
            | Self::CognitionIn { .. }
            | Self::MessageQueued { .. }
            | Self::StepStart { .. }
            | Self::CognitionReasoning { .. }
            | Self::CognitionOut { .. }
            | Self::ToolCallStart(_)
            | Self::ToolCallResult { .. }
            | Self::StepFinish { .. }
            | Self::ErrorClassified { .. }
            | Self::TurnRetryScheduled { .. }
            | Self::ContextReseeded { .. }
            | Self::RetrySucceeded { .. }
            | Self::LimitEscalationRequested { .. }
            | Self::DirectiveReturn(_) => None,
        }
    }
}
