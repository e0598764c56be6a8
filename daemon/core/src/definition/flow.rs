//! Checks over the whole of a graph: what is reached, what ends it, what state is read.

use std::collections::HashSet;

use super::read::{At, Reader};
use super::{Action, Graph, Next, Node, Work};
use crate::expr::{nearest, references};

/// Keys of the state that no node assigns.
const BUILT_IN: [&str; 3] = ["inputs", "_last_error", "_retries"];

pub(super) fn check<'d>(reader: &mut Reader<'d>, graph: &Graph, config: &At<'d>) {
    let Some(nodes) = config.child("nodes") else {
        return;
    };
    if !graph
        .nodes
        .iter()
        .any(|node| matches!(node.work, Work::Return { .. }))
    {
        reader.key_warn(
            "no_return_node",
            &nodes,
            "no node has `type: return`: the graph ends where `next` does, with an empty output",
        );
    }
    let reached = reachable(graph);
    let assigned = state_keys(graph);
    for node in &graph.nodes {
        let Some(at) = nodes.child(&node.name) else {
            continue;
        };
        reader.node = Some(node.name.clone());
        if !reached.contains(node.name.as_str()) {
            reader.key_warn("unreachable_node", &at, "nothing leads to this node");
        }
        unassigned(reader, node, &at, &assigned);
        reader.node = None;
    }
}

/// Names of the nodes some way leads to.
fn reachable(graph: &Graph) -> HashSet<&str> {
    let mut reached = HashSet::new();
    let mut open = vec![graph.start.as_str()];
    while let Some(name) = open.pop() {
        if reached.insert(name)
            && let Some(node) = graph.nodes.get(name)
        {
            open.extend(node.on_error.as_deref());
            match &node.next {
                Next::End => {}
                Next::Always(to) => open.push(to),
                Next::Edges(edges) => open.extend(edges.iter().map(|edge| edge.to.as_str())),
            }
        }
    }
    reached
}

/// Keys some part of the graph puts into the state.
fn state_keys(graph: &Graph) -> HashSet<&str> {
    let assigns = graph.nodes.iter().flat_map(|node| &node.assign);
    assigns
        .map(|(key, _)| key)
        .chain(graph.state.keys())
        .map(String::as_str)
        .chain(BUILT_IN)
        .collect()
}

/// Warns of state keys that `node` reads and nobody assigns.
fn unassigned<'d>(reader: &mut Reader<'d>, node: &Node, at: &At<'d>, assigned: &HashSet<&str>) {
    let mut warned = HashSet::new();
    for path in reads(node) {
        let Some(key) = state_key(&path) else {
            continue;
        };
        if assigned.contains(key) || !warned.insert(key.to_owned()) {
            continue;
        }
        let mut known: Vec<&str> = assigned.iter().copied().collect();
        known.sort_unstable();
        let hint = nearest(key, known)
            .map_or_else(String::new, |near| format!(" (did you mean state.{near}?)"));
        reader.key_warn(
            "unassigned_state",
            at,
            format!("reads state.{key}, which nothing assigns{hint}"),
        );
    }
}

/// All paths a node reads.
fn reads(node: &Node) -> Vec<String> {
    let mut paths = match &node.work {
        Work::Action(action) => reads_of(action),
        Work::Foreach(foreach) => {
            let mut paths = references(&foreach.over);
            paths.extend(reads_of(&foreach.action));
            paths
        }
        Work::Gate => Vec::new(),
        Work::Return { output } => output.as_ref().map(references).unwrap_or_default(),
    };
    for (_, template) in &node.assign {
        paths.extend(references(template));
    }
    if let Next::Edges(edges) = &node.next {
        for condition in edges.iter().filter_map(|edge| edge.when.as_ref()) {
            paths.extend(condition.paths().into_iter().map(ToOwned::to_owned));
        }
    }
    paths
}

fn reads_of(action: &Action) -> Vec<String> {
    let mut paths = references(&action.params);
    paths.extend(references(&action.id.as_str().into()));
    paths
}

/// `key` of `state.key…`.
fn state_key(path: &str) -> Option<&str> {
    path.strip_prefix("state.")?.split(['.', '[']).next()
}
