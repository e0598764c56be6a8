//! The arguments of `kill`, `rm` and `prune`.

use std::time::Duration;

use clap::Args;
use rye_core::model::Status;

use super::runs::Runs;
use super::values::{duration, status};

/// Runs to end.
#[derive(Debug, Args)]
pub(crate) struct Kill {
    #[command(flatten)]
    pub(crate) runs: Runs,
    /// Time between TERM and KILL: `3`, `0.5s`, `1m`.
    #[arg(long, value_name = "TIME", value_parser = duration, allow_negative_numbers = true)]
    pub(crate) grace: Option<Duration>,
    /// End detached runs below (`async: true`), too.
    #[arg(long)]
    pub(crate) tree: bool,
}

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
pub(crate) struct Prune {
    #[command(flatten)]
    pub(crate) selection: Selection,
    /// Write history again without the runs before it returns.
    #[arg(long)]
    pub(crate) purge: bool,
}

/// Selection of trees of runs; all of them only on request.
#[derive(Debug, Args)]
#[group(required = true, multiple = true)]
pub(crate) struct Selection {
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
}
