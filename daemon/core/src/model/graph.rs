//! The model of graph runs: the state that results from their events.

mod items;
mod state;
mod status;

pub use self::items::{ItemResult, Items, RESULTS_TOO_LARGE, Retrying, SIBLING_FAILED};
pub use self::state::{
    At, Due, FailedAttempt, GraphState, Idle, LastStep, Step, StepWork, UnfinishedWork, Unrepaired,
    Waits,
};
pub use self::status::{StepStatus, SuppressedError};
