//! What is new of a run that is watched.

use rye_core::model::StepStatus;

use super::Child;
use rye_proto::v1::ItemCount;

/// What an event or a delta brought.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ViewUpdate {
    /// [`super::View::hand`] is another, or has come farther.
    Hand,
    /// The same, and a child run carries it out.
    Child(Child),
    /// A step has ended.
    Step(StepEnd),
    /// A step failed and is tried again.
    Retry {
        /// Number of the step.
        step: u32,
        /// The node.
        node: String,
        /// Why it failed, if that was not told before.
        why: Option<String>,
        /// How often it was tried again, this time included.
        retries: u32,
        /// In how many milliseconds.
        wait_ms: u64,
        /// Who asked for it: `node`, `resume`, or the id of a hook.
        by: String,
    },
    /// Something the author should know.
    Warning {
        /// The node at hand.
        node: Option<String>,
        /// What.
        message: String,
    },
    /// More of what the model says.
    More(String),
    /// The rest of what was told as it came.
    Rest(String),
    /// What the model said, of which nothing was told yet.
    Said(String),
    /// What was told of this turn does not count.
    TakenBack {
        /// The turn.
        turn: u32,
    },
    /// Somebody said something to the model.
    Told {
        /// The turn.
        turn: u32,
        /// What.
        text: String,
    },
    /// A call of a tool has ended.
    Call {
        /// The turn.
        turn: u32,
        /// What it carried out; none if it was refused.
        item: Option<String>,
        /// Wall time in milliseconds.
        elapsed_ms: u64,
        /// Why it failed.
        error: Option<String>,
    },
    /// A call of the model failed.
    TurnFailed {
        /// The turn.
        turn: u32,
        /// Why.
        error: String,
        /// In how many milliseconds it is made again; 0 if it is not, or at once.
        pause_ms: u64,
    },
}

/// How a step ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StepEnd {
    /// Its number.
    pub step: u32,
    /// Its node.
    pub node: String,
    /// How.
    pub status: StepStatus,
    /// Wall time in milliseconds.
    pub elapsed_ms: u64,
    /// State keys that it set and no step before it.
    pub new_keys: Vec<String>,
    /// Why it failed.
    pub error: Option<String>,
    /// Its items, if it had any.
    pub items: Option<ItemCount>,
    /// How many of these were results of an earlier run.
    pub cached: u32,
}
