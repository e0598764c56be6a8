//! The arguments of `rm` and `prune`.

use std::time::Duration;

use clap::Args;
use rye_core::model::Status;

use super::Runs;
use super::values::{duration, status};

/// Runs to remove.
#[derive(Debug, Args)]
pub(crate) struct Rm {
    #[command(flatten)]
    pub(crate) runs: Runs,
    /// Write history again without the runs before it returns.
    #[arg(long)]
    pub(crate) purge: bool,
}

/// Trees of runs to remove.
#[derive(Debug, Args)]
#[group(id = "selection", required = true, multiple = true, args = ["older_than", "keep", "statuses", "dry_run"])]
pub(crate) struct Prune {
    /// Only trees in which nothing has happened for so long: `90s`, `12h`, `30d`.
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) older_than: Option<Duration>,
    /// Not the newest so many trees of each project.
    #[arg(long, value_name = "N")]
    pub(crate) keep: Option<u32>,
    /// Only trees whose newest run ended with this status; may be given several times.
    #[arg(long = "status", value_name = "STATUS", value_parser = status)]
    pub(crate) statuses: Vec<Status>,
    /// Print the runs, and remove nothing.
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Write history again without the runs before it returns.
    #[arg(long)]
    pub(crate) purge: bool,
}
