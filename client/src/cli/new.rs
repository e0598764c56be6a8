//! Arguments of `new`.

use clap::{Args, Subcommand};
use rye_core::id::ItemId;

use super::values::item_id;

/// What to write.
#[derive(Debug, Subcommand)]
pub(crate) enum NewVerb {
    /// Write a Python tool
    #[command(after_help = "Example:\n  ryectl new tool team/greet")]
    Tool(Draft),
    /// Write a graph of two steps
    #[command(after_help = "Example:\n  ryectl new graph team/count")]
    Graph(Draft),
    /// Write a directive
    #[command(after_help = "Example:\n  ryectl new directive team/review --user")]
    Directive(Draft),
}

/// An item to write.
#[derive(Debug, Args)]
pub(crate) struct Draft {
    /// Its id: folder and name.
    #[arg(value_name = "ID", value_parser = item_id)]
    pub(crate) id: ItemId,
    /// Write it into your user space, where all your projects see it.
    #[arg(long)]
    pub(crate) user: bool,
}
