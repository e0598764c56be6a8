//! Arguments of `stub`.

use clap::Subcommand;

use super::item_name::{ItemName, any_name};

/// For which language.
#[derive(Debug, Subcommand)]
pub(crate) enum StubVerb {
    /// Print a Python module
    ///
    /// Required inputs come first; optional ones are passed by keyword. An item without a schema takes any keywords. The functions call
    /// `rye_client.execute`, and return what the item returns.
    #[command(after_help = "Example:\n  ryectl stub python rye/bash team/greet > items.py")]
    Python {
        /// Tools, graphs and directives; without a type an item is looked for as a tool, a directive and knowledge.
        #[arg(value_name = "ITEM", required = true, value_parser = any_name)]
        items: Vec<ItemName>,
    },
}
