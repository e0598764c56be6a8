//! The arguments of `ps`.

use std::time::Duration;

use clap::Args;
use globset::GlobMatcher;
use rye_core::model::Status;

use super::values::{duration, item_glob, status};

/// Which runs to list.
#[derive(Debug, Args)]
pub(crate) struct Ps {
    /// Also runs that have ended.
    #[arg(long)]
    pub(crate) all: bool,
    /// Only runs with this status, ended or not; may be given several times.
    #[arg(long = "status", value_name = "STATUS", value_parser = status)]
    pub(crate) statuses: Vec<Status>,
    /// Only runs that are suspended for this reason.
    #[arg(long, value_name = "REASON", value_parser = REASONS)]
    pub(crate) reason: Option<String>,
    /// Only runs of the items that match: `app/deploy`, `app/*`.
    #[arg(long, value_name = "GLOB", value_parser = item_glob)]
    pub(crate) item: Option<GlobMatcher>,
    /// Only runs that began so long ago at most: `90`, `90s`, `1h30m`.
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) since: Option<Duration>,
    /// At most so many, the newest ones; 0 shows all. A table has 20, unless this says otherwise.
    #[arg(short = 'n', value_name = "N")]
    pub(crate) count: Option<usize>,
    /// Print the ids alone, one a line.
    #[arg(long, short)]
    pub(crate) quiet: bool,
    /// Show runs below the run that started them.
    #[arg(long)]
    pub(crate) tree: bool,
}

/// Reasons for which a run may be suspended.
const REASONS: [&str; 10] = [
    "limit",
    "budget",
    "error",
    "approval",
    "restart",
    "uncertain",
    "storage",
    "child",
    "crash_loop",
    "user",
];
