//! The arguments of verbs that take runs and nothing else, of `resume` and of `wait`.

use std::time::Duration;

use clap::Args;

use super::graph::Attach;
use super::run_name::RunName;
use super::values::{Answer, Limit, duration};
use crate::input::Source;

/// One run.
#[derive(Debug, Args)]
pub(crate) struct OneRun {
    /// The run.
    #[arg(value_name = "RUN")]
    pub(crate) run: RunName,
}

/// Several runs.
#[derive(Debug, Args)]
pub(crate) struct Runs {
    /// The runs.
    #[arg(required = true, value_name = "RUN")]
    pub(crate) runs: Vec<RunName>,
}

/// A run to resume.
#[derive(Debug, Args)]
pub(crate) struct Resume {
    /// The run.
    #[arg(value_name = "RUN")]
    pub(crate) run: RunName,
    /// Give it a new limit: `steps=N`, `turns=N`, `tokens=N`, `duration=TIME`, `spawns=N`, `depth=N`, `spend=USD`.
    #[arg(long = "raise", value_name = "KEY=VALUE")]
    pub(crate) raises: Vec<Limit>,
    /// Tell the model of a suspended thread something when it resumes.
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    pub(crate) message: Option<String>,
    /// Say what became of an attempt whose outcome nobody knows: retry it, it is done, or it failed.
    #[arg(long = "uncertain", value_name = "ITEM=retry|done|fail")]
    pub(crate) answers: Vec<Answer>,
    /// What the one attempt came to that `--uncertain ITEM=done` says is done; `-` reads stdin.
    #[arg(long, value_name = "JSON|@FILE|-", requires = "answers")]
    pub(crate) result: Option<Source>,
    /// Continue a graph that has ended with the text it started with, whatever its file says by now.
    #[arg(long)]
    pub(crate) same_text: bool,
    /// Repeat what failed at the first node after whose failure the graph went on, and walk on from there.
    #[arg(long)]
    pub(crate) failed: bool,
    /// Why, for those who read about the run.
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    pub(crate) reason: Option<String>,
    #[command(flatten)]
    pub(crate) attach: Attach,
}

/// Runs to wait for.
#[derive(Debug, Args)]
pub(crate) struct Wait {
    #[command(flatten)]
    pub(crate) runs: Runs,
    /// Longest wait: `90`, `90s`, `1h30m`; 0 or no timeout waits without end.
    #[arg(long, value_name = "TIME", value_parser = duration, allow_negative_numbers = true)]
    pub(crate) timeout: Option<Duration>,
}
