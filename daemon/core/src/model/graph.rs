//! The model of graph runs: their events, and the state that these add up to.

mod event;
mod items;
mod state;
mod transition;

pub use self::event::GraphEvent;
pub use self::items::{ItemResult, Items, RESULTS_TOO_LARGE};
pub use self::state::{
    At, Due, FailedAttempt, Idle, LastStep, Left, State, Step, StepWork, Unrepaired, Waits,
};
