//! The reachable nodes of a graph, and its end.

use std::collections::{HashMap, VecDeque};

use super::graph::Graph;
use super::read::Reader;
use super::work::{Edge, Next, Node, Work};

/// Warns of a graph without a return node and of unreachable nodes.
pub(super) fn check(reader: &mut Reader<'_>, graph: &Graph) {
    let Some(nodes) = reader.config("nodes") else {
        return;
    };
    if !graph.nodes.iter().any(returns) {
        reader.warn(
            "no_return_node",
            nodes.named(),
            "no node has `type: return`: the graph ends where `next` does, with an empty output",
        );
    }
    let reached = distances(graph);
    for node in &graph.nodes {
        if !reached.contains_key(node.name.as_str())
            && let Some(at) = nodes.child(&node.name)
        {
            reader.node = Some(node.name.clone());
            reader.warn("unreachable_node", at.named(), "nothing leads to this node");
            reader.node = None;
        }
    }
}

/// Warns of a graph that cannot end, or not within its own limit.
pub(super) fn check_ends(reader: &mut Reader<'_>, graph: &Graph) {
    let reached = distances(graph);
    let nodes = || graph.nodes.iter();
    let distance = |node: &Node| reached.get(node.name.as_str()).copied();
    if !nodes().any(|node| ends(node) && distance(node).is_some()) {
        let message =
            "no way from here leads to an end: a run stops at its limit of steps, with an error";
        let root = reader.root();
        reader.warn("endless", root.at("/config/start"), message);
    }
    let shortest = nodes()
        .filter(|node| returns(node))
        .filter_map(distance)
        .min();
    if let (Some(max), Some(shortest)) = (graph.max_steps, shortest)
        && max < shortest
    {
        let message = format!(
            "the shortest way to a return node takes {shortest} steps: a run never gets there with max_steps {max}"
        );
        let root = reader.root();
        reader.warn("max_steps_too_small", root.at("/config/max_steps"), message);
    }
}

/// Warns of nodes whose edges may all be refused. Conditions are not solved: together they may cover every state.
pub(super) fn check_defaults(reader: &mut Reader<'_>, graph: &Graph) {
    let Some(nodes) = reader.config("nodes") else {
        return;
    };
    for node in &graph.nodes {
        if let Next::Edges(edges) = &node.next
            && !edges.iter().any(Edge::always)
            && let Some(at) = nodes.child(&node.name)
        {
            reader.node = Some(node.name.clone());
            let message = "every edge has a condition: if none holds, the run completes here, with an empty output; end the \
                           list with an edge without `when`";
            reader.warn("no_default_edge", at.at("/next"), message);
            reader.node = None;
        }
    }
}

fn returns(node: &Node) -> bool {
    matches!(node.work, Work::Return { .. })
}

/// True if a run can end after this node without an error.
fn ends(node: &Node) -> bool {
    match &node.next {
        Next::End => !matches!(node.work, Work::Fail(_)),
        Next::Always(_) => false,
        Next::Edges(edges) => !edges.iter().any(Edge::always),
    }
}

/// Returns the reachable nodes, with the steps of a run when it leaves them, on the shortest path.
fn distances(graph: &Graph) -> HashMap<&str, u32> {
    let mut distances = HashMap::with_capacity(graph.nodes.len());
    let mut open = VecDeque::from([(graph.start.as_str(), 1)]);
    while let Some((name, steps)) = open.pop_front() {
        if distances.contains_key(name) {
            continue;
        }
        distances.insert(name, steps);
        let Some(node) = graph.nodes.get(name) else {
            continue;
        };
        let next: Vec<&str> = match &node.next {
            Next::End => Vec::new(),
            Next::Always(to) => vec![to],
            Next::Edges(edges) => edges.iter().map(|edge| edge.to.as_str()).collect(),
        };
        let ways = node.on_error.as_deref().into_iter().chain(next);
        open.extend(ways.map(|to| (to, steps + 1)));
    }
    distances
}
