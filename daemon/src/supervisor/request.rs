//! What callers ask of the supervisor, and what they are told.

use std::collections::BTreeMap;
use std::path::PathBuf;

use rye_core::capability::Layer;
use rye_core::id::{ItemRef, RunId};
use rye_core::model::{Durability, Limits, Object};

/// What a caller asks for.
#[derive(Debug, Clone)]
pub struct Start {
    /// The item.
    pub item: ItemRef,
    /// The project, or the directory the caller stands in.
    pub directory: PathBuf,
    /// Typed inputs.
    pub inputs: Object,
    /// Inputs as text, read as the type the graph declares.
    pub text_inputs: BTreeMap<String, String>,
    /// Patterns that narrow the run's authority.
    pub capabilities: Option<Vec<String>>,
    /// Limits.
    pub limits: Limits,
    /// Durability, where the caller has a wish.
    pub durability: Option<Durability>,
    /// A second start with this key is the first one.
    pub start_key: Option<String>,
    /// Who asks, and what they may do.
    pub caller: Layer,
}

/// An accepted run.
#[derive(Debug, Clone)]
pub struct Started {
    /// Its id.
    pub run: RunId,
    /// What the caller should know.
    pub warnings: Vec<String>,
    /// Whether it had been started before, with the same key.
    pub existed: bool,
}
