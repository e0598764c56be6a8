//! The arguments of `daemon`.

use clap::{Args, Subcommand};

/// Verbs about the daemon.
#[derive(Debug, Subcommand)]
pub(crate) enum DaemonVerb {
    /// Tell whether the daemon runs; ends with 69 if not
    #[command(after_help = "Example:\n  ryectl daemon status --json")]
    Status,
    /// Start the daemon in the background if it does not run
    #[command(after_help = "Example:\n  ryectl daemon start --state-dir /var/tmp/rye")]
    Start,
    /// Stop the daemon: calls in flight are ended, live runs are recovered at the next start
    ///
    /// Processes that survive the daemon keep running, and are named.
    #[command(after_help = "Example:\n  ryectl daemon stop")]
    Stop {
        /// Stop processes that survive the daemon, too.
        #[arg(long)]
        all: bool,
    },
    /// Stop the daemon, and start it again as `daemon start` does; live runs are recovered
    #[command(after_help = "Example:\n  ryectl daemon restart")]
    Restart,
    /// Print the log of a daemon that `ryectl` has started; one of a service manager logs there (`journalctl -u ryed`)
    #[command(after_help = "Example:\n  ryectl daemon logs --tail 20 -f")]
    Logs(DaemonLogs),
    /// Show what the daemon is and what is in force; starts none, and ends with 69 if none runs
    #[command(after_help = "Example:\n  ryectl daemon info --json")]
    Info,
}

/// What of the log of the daemon to print.
#[derive(Debug, Args)]
pub(crate) struct DaemonLogs {
    /// How many of the last lines.
    #[arg(long, value_name = "N", default_value_t = 50)]
    pub(crate) tail: u64,
    /// Stay, and print what comes.
    #[arg(long, short)]
    pub(crate) follow: bool,
}
