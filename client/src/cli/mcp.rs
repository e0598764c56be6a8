//! The arguments of `mcp`.

use clap::{Args, Subcommand};
use rye_core::id::ItemId;

use super::values::item_id;

/// Verbs about servers of the Model Context Protocol.
#[derive(Debug, Subcommand)]
pub(crate) enum McpVerb {
    /// Write tools for what a server has, each pinned to what the server tells of it
    ///
    /// Starts the server, which is an item (`tool_type: mcp_server`), and shows each of its tools. With --yes a signed tool is written for
    /// each of them below `.ai/tools`: in the folder of the server's folder, named as the server. A tool that its server changes afterwards
    /// is refused until it is imported again.
    #[command(
        after_help = "Examples:\n  ryectl mcp import mcp/servers/docs\n  ryectl mcp import mcp/servers/docs --tools 'search*' --yes"
    )]
    Import(Import),
}

/// What to import.
#[derive(Debug, Args)]
pub(crate) struct Import {
    /// The id of the server's item.
    #[arg(value_name = "SERVER", value_parser = item_id)]
    pub(crate) server: ItemId,
    /// Only tools whose names match this pattern.
    #[arg(long, value_name = "GLOB")]
    pub(crate) tools: Option<String>,
    /// Write and sign, not only show.
    #[arg(long)]
    pub(crate) yes: bool,
    /// Write over tools that are there and differ.
    #[arg(long)]
    pub(crate) replace: bool,
}
