//! The Rye daemon as a library.
//!
//! Modules stand in the order in which they may use each other (ARCHITECTURE.md, "Rows").

pub mod config;
pub mod exit;
pub mod logging;
pub mod task;

pub mod journal;
pub mod object;

pub mod chain;
pub mod dispatch;
pub mod graph;
pub mod native;
pub mod process;
pub mod rpc;
pub mod supervisor;

use nix::unistd::Pid;

use crate::config::Config;
use crate::exit::ExitStatus;

/// Runs the daemon until it is asked to stop. `parent` is the parent process.
#[expect(
    clippy::needless_pass_by_value,
    reason = "the daemon owns its settings"
)]
pub fn serve(config: Config, parent: Pid) -> ExitStatus {
    tracing::error!(%parent, state_dir = %config.state_dir.display(), "there is no daemon yet");
    ExitStatus::Internal
}
