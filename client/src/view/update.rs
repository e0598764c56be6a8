//! Changes of a followed run.

use rye_core::model::StepStatus;
use rye_core::model::thread::TurnWait;
use rye_core::thread::ShellCommand;

use super::Child;
use rye_proto::v1::ItemCount;

/// Change by an event or a delta.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ViewUpdate {
    /// [`super::View::current`] is another step or has progressed.
    CurrentChanged,
    /// A child run executes an attempt.
    Child(Child),
    /// A step has ended.
    Step(StepEnd),
    /// A step failed and is tried again.
    Retry {
        /// Number of the step.
        step: u32,
        node: String,
        /// Error of the failed try, if it was not reported before.
        why: Option<String>,
        /// Number of retries of the step, this one included.
        retries: u32,
        /// Pause before the retry, in milliseconds.
        wait_ms: u64,
        /// Requester of the retry: `node`, `resume`, or the id of a hook.
        by: String,
    },
    /// Warning for the author of the item.
    Warning {
        /// Present node, if there is one.
        node: Option<String>,
        message: String,
    },
    /// More of the model's text.
    More(String),
    /// Rest of a text of which a part was shown.
    Rest(String),
    /// Text of the model of which nothing was shown.
    ModelMessage(String),
    /// The text shown of this turn is void.
    Retracted { turn: u32 },
    /// A message to the model.
    UserMessage { turn: u32, text: String },
    /// A call of a tool has ended.
    Call {
        turn: u32,
        /// Item that the call executed; `None` if the call was refused.
        item: Option<String>,
        /// Wall time in milliseconds.
        elapsed_ms: u64,
        /// Error, if the call failed.
        error: Option<String>,
        /// Command of the call, if it executed one.
        command: Option<ShellCommand>,
    },
    /// A turn waits for at least a second before its model is called.
    TurnWaiting { turn: u32, waiting: TurnWait },
    /// A call of the model failed.
    TurnFailed {
        turn: u32,
        error: String,
        /// Pause in milliseconds before the next try; 0 if there is none, or if it follows at once.
        pause_ms: u64,
    },
}

/// End of a step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StepEnd {
    /// Number of the step.
    pub step: u32,
    pub node: String,
    pub status: StepStatus,
    /// Wall time in milliseconds.
    pub elapsed_ms: u64,
    /// State keys that no step before it has set.
    pub new_keys: Vec<String>,
    /// Error, if the step failed.
    pub error: Option<String>,
    /// Count of its items, if it has any.
    pub items: Option<ItemCount>,
    /// Number of items whose results come from an earlier run.
    pub cached: u32,
}
