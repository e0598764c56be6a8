//! Arguments of verbs that find items, and of those that help.

use std::path::PathBuf;

use clap::Args;
use clap_complete::Shell;

use super::ItemName;
use super::item_name::any_name;

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
