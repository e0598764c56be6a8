//! Nodes and hooks as the actors of a graph.

use super::hook::Hook;
use super::work::Node;

/// A node or a hook, with its index.
pub(super) enum Actor<'g> {
    Node(usize, &'g Node),
    Hook(usize, &'g Hook),
}
