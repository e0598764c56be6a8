//! Tools that a model is offered, by the names under which it knows them.

use serde::{Deserialize, Serialize};

use crate::conversation::Tool;
use crate::id::ItemRef;

/// The name of the tool by which a model carries out items.
pub(super) const EXECUTE: &str = "rye_execute";

/// The name of the tool by which it reads items, and looks for them.
pub(super) const FETCH: &str = "rye_fetch";

/// The name of the tool by which it signs items.
pub(super) const SIGN: &str = "rye_sign";

/// The name of the tool by which it returns its outputs.
pub(super) const RETURN: &str = "directive_return";

/// A tool that the model may call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct OfferedTool {
    /// How the model is offered it.
    pub tool: Tool,
    /// What a call of it does.
    pub does: Does,
}

/// What a call of an offered tool does.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Does {
    /// It carries out the item that its arguments name.
    Execute,
    /// It carries out this item, whose parameters its arguments are.
    Item(ItemRef),
    /// It reads the item that its arguments name, or looks for items.
    Fetch,
    /// It signs the items that its arguments name.
    Sign,
    /// It returns the outputs of the thread.
    Return,
    /// It reads a part of a long result.
    Read,
}
