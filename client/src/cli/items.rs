//! Arguments of verbs that find items, and of those that help.

use std::path::PathBuf;

use clap::Args;
use clap_complete::Shell;
use rye_core::id::ItemKind;

use super::item_name::{ItemName, any_name};
use super::values::executable;
use crate::input::Source;

/// Which items to list.
#[derive(Debug, Args)]
pub(crate) struct Ls {
    /// A type (tool, directive, knowledge, config), a pattern of ids, or `TYPE:PATTERN`. Without a type tools and directives are listed.
    #[arg(value_name = "TYPE|GLOB")]
    pub(crate) first: Option<String>,
    /// A pattern of ids: `app/*`.
    #[arg(value_name = "GLOB")]
    pub(crate) pattern: Option<String>,
    /// Only items of this space, also those that another space shadows.
    #[arg(long, value_name = "SPACE", value_parser = ["project", "user", "system"])]
    pub(crate) space: Option<String>,
}

/// An item to show.
#[derive(Debug, Args)]
pub(crate) struct ShowItem {
    /// The item; without a type it is looked for as a tool, a directive and knowledge.
    #[arg(value_name = "ITEM", value_parser = any_name)]
    pub(crate) item: ItemName,
}

/// For which shell.
#[derive(Debug, Args)]
pub(crate) struct Completions {
    /// The shell.
    #[arg(value_name = "SHELL")]
    pub(crate) shell: Shell,
}

/// Where to write manual pages.
#[derive(Debug, Args)]
pub(crate) struct Man {
    /// The directory; it is made if it is not there.
    #[arg(value_name = "DIR")]
    pub(crate) directory: PathBuf,
}

/// What to fetch.
#[derive(Debug, Args)]
pub(crate) struct Fetch {
    /// The item; without a type it is looked for as a tool, a directive and knowledge.
    #[arg(
        value_name = "ITEM",
        value_parser = any_name,
        required_unless_present = "query",
        conflicts_with = "query"
    )]
    pub(crate) item: Option<ItemName>,
    /// Words, joined by AND, OR and NOT, with parentheses, "phrases" and beginnings like `auth*`.
    #[arg(long, value_name = "WORDS")]
    pub(crate) query: Option<String>,
    /// A type and a folder to look in, such as `tool.team`.
    #[arg(long, requires = "query")]
    pub(crate) scope: Option<String>,
    /// Most results.
    #[arg(long, value_name = "N", requires = "query")]
    pub(crate) limit: Option<u32>,
    /// How many results to pass over.
    #[arg(long, value_name = "N", requires = "query")]
    pub(crate) offset: Option<u32>,
    /// The space to look in: project, user or system.
    #[arg(long, value_name = "SPACE")]
    pub(crate) source: Option<String>,
    /// Copy the item to this space, project or user, signature and all.
    #[arg(long, value_name = "SPACE", requires = "item")]
    pub(crate) copy_to: Option<String>,
    /// Let the copy take the place of what is there.
    #[arg(long, requires = "copy_to")]
    pub(crate) replace: bool,
}

/// An item to execute.
#[derive(Debug, Args)]
pub(crate) struct Execute {
    /// `tool`. Other types are not executed: `run` starts a directive, `fetch` reads knowledge.
    #[arg(value_name = "TYPE", value_parser = executable)]
    pub(crate) kind: ItemKind,
    /// The item.
    #[arg(value_name = "ID", value_parser = any_name)]
    pub(crate) item: ItemName,
    /// Parameters as a JSON object; `-` reads stdin.
    #[arg(long, value_name = "JSON|@FILE|-")]
    pub(crate) params: Option<Source>,
    /// Also tell which files were resolved, what they shadow, and who signed them.
    #[arg(long)]
    pub(crate) trace: bool,
    /// Run nothing: tell how the item would be resolved, and what would be started.
    #[arg(long)]
    pub(crate) dry_run: bool,
}
