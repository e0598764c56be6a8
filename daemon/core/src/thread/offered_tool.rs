//! Tools that are offered to a model, by the names under which it knows them.

use serde::{Deserialize, Serialize};

use crate::conversation::Tool;
use crate::id::ItemRef;

/// Name of the tool by which a model carries out items.
pub(super) const EXECUTE: &str = "rye_execute";

/// Name of the tool by which it reads items, and searches for them.
pub(super) const FETCH: &str = "rye_fetch";

/// Name of the tool by which it signs items.
pub(super) const SIGN: &str = "rye_sign";

/// Name of the tool by which it returns its outputs.
pub(super) const RETURN: &str = "directive_return";

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct OfferedTool {
    /// The form in which it is offered.
    pub tool: Tool,
    pub does: Does,
}

/// The effect of a call of an offered tool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Does {
    /// It carries out the item that its arguments name.
    Execute,
    /// It carries out this item with its arguments as parameters.
    Item(ItemRef),
    /// It reads the item that its arguments name, or searches for items.
    Fetch,
    /// It signs the items that its arguments name.
    Sign,
    /// It returns the outputs of the thread.
    Return,
    /// It reads a part of a long result.
    Read,
}
