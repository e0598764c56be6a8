//! Arguments of verbs about what runs may do.

use clap::Args;
use rye_core::capability::Capability;

use super::run_name::RunName;

/// A run to show.
#[derive(Debug, Args)]
pub(crate) struct Get {
    /// The run.
    #[arg(value_name = "RUN")]
    pub(crate) run: RunName,
    /// Show what it may do instead: layers of patterns, each of which must allow an action.
    #[arg(long)]
    pub(crate) capabilities: bool,
}

/// An action to ask about.
#[derive(Debug, Args)]
pub(crate) struct Can {
    /// The run.
    #[arg(value_name = "RUN")]
    pub(crate) run: RunName,
    /// An item to execute as TYPE:ID, or a capability such as `rye.execute.tool.a.b`.
    #[arg(value_name = "ACTION")]
    pub(crate) action: Capability,
}
