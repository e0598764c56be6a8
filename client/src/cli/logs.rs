//! The arguments of `logs`.

use clap::Args;

use super::run_name::RunName;

/// What of the output of a run's tools to print.
#[derive(Debug, Args)]
pub(crate) struct Logs {
    /// The run.
    #[arg(value_name = "RUN")]
    pub(crate) run: RunName,
    /// Only what this node printed, or this tool of a thread.
    #[arg(long, value_name = "NODE")]
    pub(crate) node: Option<String>,
    /// Only this item of it: the position of an item, from 0, or the name of a branch.
    #[arg(long, value_name = "ITEM")]
    pub(crate) item: Option<String>,
    /// Only so many of the last lines.
    #[arg(long, value_name = "N")]
    pub(crate) tail: Option<u32>,
    /// Stay until the run has ended or is suspended.
    #[arg(long, short)]
    pub(crate) follow: bool,
}
