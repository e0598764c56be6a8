//! The arguments of `approvals`, `approve` and `deny`.

use clap::Args;

use super::run_name::RunName;
use super::values::Answer;
use crate::input::Source;

/// Whose questions to list.
#[derive(Debug, Args)]
pub(crate) struct Approvals {
    /// Only those of this run.
    #[arg(value_name = "RUN")]
    pub(crate) run: Option<RunName>,
}

/// A question that is approved.
#[derive(Debug, Args)]
pub(crate) struct Approve {
    /// The run that asks.
    #[arg(value_name = "RUN")]
    pub(crate) run: RunName,
    /// Which of its questions, as `approvals` lists it; not needed for the only one.
    #[arg(value_name = "ID")]
    pub(crate) id: Option<String>,
    /// Say that an at-most-once attempt, which may have executed, may execute again.
    #[arg(long = "uncertain", value_name = "ITEM=retry")]
    pub(crate) answers: Vec<Answer>,
    /// More than yes, as JSON; `-` reads stdin.
    #[arg(long, value_name = "JSON|@FILE|-")]
    pub(crate) answer: Option<Source>,
    /// Why, for those who read about the run.
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    pub(crate) comment: Option<String>,
}

/// A question that is denied.
#[derive(Debug, Args)]
pub(crate) struct Deny {
    /// The run that asks.
    #[arg(value_name = "RUN")]
    pub(crate) run: RunName,
    /// Which of its questions, as `approvals` lists it; not needed for the only one.
    #[arg(value_name = "ID")]
    pub(crate) id: Option<String>,
    /// Why, for those who read about the run.
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    pub(crate) comment: Option<String>,
}
