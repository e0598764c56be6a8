//! The state of a graph: keys that are read but never assigned, and keys that are assigned but never read.

use std::collections::HashSet;

use super::actor::Actor;
use super::graph::Graph;
use super::paths::{Read, Reads};
use super::read::{At, Reader};
use super::work::{Node, Work};

/// Keys of the state that no node assigns.
const BUILT_IN: [&str; 3] = ["inputs", "_last_error", "_retries"];

/// Warns of state keys that some node or hook reads and nothing assigns.
pub(super) fn check_reads(reader: &mut Reader<'_>, graph: &Graph, reads: &Reads) {
    let keys = keys(graph);
    let known: HashSet<&str> = keys.iter().copied().collect();
    reader.each_actor(graph, |reader, at, actor| {
        unassigned(reader, reads.of_actor(&actor), at, &keys, &known);
    });
}

/// Returns the keys that the graph assigns, in the order of the file.
fn keys(graph: &Graph) -> Vec<&str> {
    let of_state = graph.state.keys().map(String::as_str);
    let of_nodes = graph.nodes.iter().flat_map(assigned);
    of_state.chain(of_nodes).chain(BUILT_IN).collect()
}

/// Returns the keys that a node assigns for later nodes.
fn assigned(node: &Node) -> impl Iterator<Item = &str> {
    let collect = match &node.work {
        Work::Foreach(foreach) => foreach.collect.as_deref(),
        Work::Action(_)
        | Work::Gate
        | Work::Return { .. }
        | Work::Fail(_)
        | Work::Wait(_)
        | Work::Approval(_)
        | Work::Parallel(_)
        | Work::Service(_)
        | Work::ProcessWait(_) => None,
    };
    node.assign
        .iter()
        .map(|(key, _)| key.as_str())
        .chain(collect)
}

fn unassigned<'d>(
    reader: &mut Reader<'d>,
    reads: &[Read],
    at: &At<'d>,
    keys: &[&str],
    known: &HashSet<&str>,
) {
    let mut warned = HashSet::new();
    for read in reads {
        let Some(key) = read.state_key() else {
            continue;
        };
        if known.contains(key) || !warned.insert(key) {
            continue;
        }
        let hint = reader
            .nearest(key, keys.iter().copied())
            .map_or_else(String::new, |near| format!(" (did you mean state.{near}?)"));
        reader.warn(
            "unassigned_state",
            at.at(&read.at),
            format!("reads state.{key}, which nothing assigns{hint}"),
        );
    }
}

/// Warns of state keys that are assigned and never read, each at its first assignment.
pub(super) fn check_writes(reader: &mut Reader<'_>, graph: &Graph, reads: &Reads) {
    // A read of the whole state reads all keys.
    if reads.iter().any(|read| read.path == "state") {
        return;
    }
    let mut known: HashSet<&str> = reads.iter().filter_map(Read::state_key).collect();
    known.extend(BUILT_IN);
    if let Some(state) = reader.config("state") {
        for key in graph.state.keys() {
            unread(reader, key, state.child(key), &mut known);
        }
    }
    reader.each_actor(graph, |reader, at, actor| {
        let Actor::Node(_, node) = actor else {
            return;
        };
        for key in assigned(node) {
            let of_assign = at.child("assign").and_then(|assign| assign.child(key));
            let place = of_assign.or_else(|| at.child("collect"));
            unread(reader, key, place, &mut known);
        }
    });
}

fn unread<'d, 'g>(
    reader: &mut Reader<'d>,
    key: &'g str,
    at: Option<At<'d>>,
    known: &mut HashSet<&'g str>,
) {
    if known.insert(key)
        && let Some(at) = at
    {
        let message = format!("assigns state.{key}, which nothing reads");
        reader.warn("unread_state", at.named(), message);
    }
}
