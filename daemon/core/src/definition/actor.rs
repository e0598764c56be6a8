//! Nodes and hooks, as those that act in a graph.

use super::hook::Hook;
use super::work::Node;

/// What acts in a graph, and its position among its like.
pub(super) enum Actor<'g> {
    Node(usize, &'g Node),
    Hook(usize, &'g Hook),
}
