//! Graph files, parsed once into types.
//!
//! **Owns** the shape of a graph file: its closed lists of keys, its types, and every check that needs no run. A graph
//! from [`parse`] is sound: each target is a node, each template and condition is well-formed and reads names that
//! exist, and the schema of the inputs compiles.
//! **Never** looks at other files, and never decides about a graph without `permissions`: it returns `None`, and the
//! caller that starts runs decides.
//!
//! **Failure.** All findings of a file are returned together, in the order of the text, each with line and column. One
//! error is enough to keep the graph from running. Parts of the language that this release does not run yet are errors
//! (`not_supported`), so that nothing is ever silently ignored. A key whose value is null counts as absent. [`parse`]
//! finds the errors that keep a graph from running and likely surprises. [`validate`] makes the slower checks, for
//! users who request them.

mod backoff;
mod remark;
mod segments;
mod shared;

mod work;

mod hook;

mod actor;
mod keys;
pub(crate) mod roots;

mod read;

mod foreach;
mod hooks;
mod inputs;
mod retry;
mod scope;

mod graph;
mod waiting;

mod processes;

mod node;

mod action;
mod file;
mod flow;
mod kinds;
mod paths;
mod permissions;
pub mod show;
mod uses;

mod state;
mod undeclared;

mod parse;

mod validate;

pub use self::backoff::{Backoff, Retry};
pub use self::graph::{DEFAULT_MAX_STEPS, Graph, GraphLimits, Nodes, OnError};
pub use self::hook::{Authority, Hook, HookAction, HookEvent};
pub use self::inputs::{Inputs, MISFIT, coerce};
pub use self::keys::schema;
pub use self::parse::{parse, parse_among};
pub use self::remark::{About, Remark};
pub use self::shared::{FETCH, SIGN};
pub use self::validate::{Around, Validation, validate, validate_among};
pub use self::waiting::{duration, time};
pub use self::work::{
    Action, ApprovalRequest, Caching, Edge, Fail, Foreach, ItemOrder, Next, Node, OnItemError,
    Parallel, Pause, Work,
};
pub use crate::declared::{Finding, errors};
pub use crate::expr::Severity;

#[cfg(test)]
mod tests;
