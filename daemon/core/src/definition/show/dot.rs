//! Graphviz digraphs.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::{END, HIDDEN, NodeState, edges, has_open_end, needs_description, status_label, work};
use crate::definition::graph::Graph;
use crate::definition::work::{Node, Work};
use crate::printable::is_invisible;

const TO_STRING: &str = "writing to a String cannot fail";

pub(super) fn render(graph: &Graph, title: &str, overlay: &BTreeMap<String, NodeState>) -> String {
    let mut out = String::from("digraph {\n");
    writeln!(out, "  label=\"{}\";", escape(title)).expect(TO_STRING);
    out.push_str("  node [fontname=\"sans-serif\", style=filled, fillcolor=\"white\"];\n");
    out.push_str("  edge [fontname=\"sans-serif\"];\n");
    out.push_str("  begin [shape=circle, label=\"\", width=0.2, fillcolor=\"black\"];\n");
    for (index, node) in graph.nodes.iter().enumerate() {
        let state = overlay.get(&node.name).copied();
        let (label, shape) = (label(node, state), shape(&node.work));
        write!(out, "  n{index} [label=\"{label}\", {shape}").expect(TO_STRING);
        if let Some(state) = state {
            let (fill, stroke) = state.status.colours();
            write!(
                out,
                ", class=\"{}\", fillcolor=\"{fill}\", color=\"{stroke}\"",
                state.status.as_str()
            )
            .expect(TO_STRING);
        }
        out.push_str("];\n");
    }
    if has_open_end(graph) {
        writeln!(out, "  {END} [shape=doublecircle, label=\"\", width=0.2];").expect(TO_STRING);
    }
    if let Some(start) = graph.nodes.index(&graph.start) {
        writeln!(out, "  begin -> n{start};").expect(TO_STRING);
    }
    for (from, way, to) in edges(graph) {
        let label = way.label.unwrap_or_default();
        let style = if way.on_error { ", style=dashed" } else { "" };
        writeln!(
            out,
            "  n{from} -> {to} [label=\"{}\"{style}];",
            escape(&label)
        )
        .expect(TO_STRING);
    }
    out.push_str("}\n");
    out
}

const fn shape(work: &Work) -> &'static str {
    match work {
        Work::Action(_) => "shape=box",
        Work::Service(_) => "shape=component",
        Work::Foreach(_) | Work::Parallel(_) => "shape=hexagon",
        Work::Gate => "shape=diamond",
        Work::Approval(_) => "shape=parallelogram",
        Work::Return { .. } | Work::Fail(_) | Work::Wait(_) | Work::ProcessWait(_) => {
            "shape=box, style=\"rounded,filled\""
        }
    }
}

fn label(node: &Node, state: Option<NodeState>) -> String {
    let mut lines = vec![escape(&node.name)];
    lines.extend(needs_description(&node.work).then(|| escape(&work(node))));
    lines.extend(state.map(|state| escape(&status_label(state))));
    lines.join("\\n")
}

/// Escapes text between quotes: no escape sequences, no entities.
fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '"' => escaped.push_str("\\\""),
            '\\' => escaped.push_str("\\\\"),
            '&' => escaped.push_str("&amp;"),
            hidden if is_invisible(hidden) => escaped.push(HIDDEN),
            other => escaped.push(other),
        }
    }
    escaped
}
