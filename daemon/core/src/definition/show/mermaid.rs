//! Mermaid flowcharts.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::{
    END, HIDDEN, NodeState, NodeStatus, edges, has_open_end, needs_description, status_label, work,
};
use crate::definition::graph::Graph;
use crate::definition::work::{Node, Work};
use crate::printable::is_invisible;

const TO_STRING: &str = "writing to a String cannot fail";

pub(super) fn render(graph: &Graph, overlay: &BTreeMap<String, NodeState>) -> String {
    let mut out = String::from("flowchart TD\n  begin((\" \"))\n");
    for (index, node) in graph.nodes.iter().enumerate() {
        let label = label(node, overlay.get(&node.name).copied());
        let (open, close) = shape(&node.work);
        writeln!(out, "  n{index}{open}\"{label}\"{close}").expect(TO_STRING);
    }
    if has_open_end(graph) {
        writeln!(out, "  {END}(((\" \")))").expect(TO_STRING);
    }
    if let Some(start) = graph.nodes.index(&graph.start) {
        writeln!(out, "  begin --> n{start}").expect(TO_STRING);
    }
    for (from, way, to) in edges(graph) {
        let arrow = if way.on_error { "-.->" } else { "-->" };
        let label = way
            .label
            .map_or_else(String::new, |label| format!("|\"{}\"|", escape(&label)));
        writeln!(out, "  n{from} {arrow}{label} {to}").expect(TO_STRING);
    }
    classes(graph, overlay, &mut out);
    out
}

/// Writes the classes of the visited nodes.
fn classes(graph: &Graph, overlay: &BTreeMap<String, NodeState>, out: &mut String) {
    let mut members: BTreeMap<NodeStatus, Vec<String>> = BTreeMap::new();
    for (index, node) in graph.nodes.iter().enumerate() {
        if let Some(state) = overlay.get(&node.name) {
            members
                .entry(state.status)
                .or_default()
                .push(format!("n{index}"));
        }
    }
    for (status, members) in members {
        let name = status.as_str();
        let (fill, stroke) = status.colours();
        writeln!(
            out,
            "  classDef status_{name} fill:{fill},stroke:{stroke},color:#1f2328"
        )
        .expect(TO_STRING);
        writeln!(out, "  class {} status_{name}", members.join(",")).expect(TO_STRING);
    }
}

const fn shape(work: &Work) -> (&'static str, &'static str) {
    match work {
        Work::Action(_) => ("[", "]"),
        Work::Service(_) => ("[[", "]]"),
        Work::Foreach(_) | Work::Parallel(_) => ("{{", "}}"),
        Work::Gate => ("{", "}"),
        Work::Approval(_) => ("[/", "/]"),
        Work::Return { .. } | Work::Fail(_) | Work::Wait(_) | Work::ProcessWait(_) => ("([", "])"),
    }
}

fn label(node: &Node, state: Option<NodeState>) -> String {
    let mut label = escape(&node.name);
    if needs_description(&node.work) {
        label.push_str("<br/>");
        label.push_str(&escape(&work(node)));
    }
    if let Some(state) = state {
        label.push_str("<br/>");
        label.push_str(&escape(&status_label(state)));
    }
    label
}

/// Escapes text between quotes. Every character except letters, digits and harmless signs is written by its number, so
/// that no text opens a tag, a Markdown text, a comment or another node.
fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        if is_invisible(c) {
            escaped.push(HIDDEN);
        } else if c.is_alphanumeric() || " _-./:,=()!…✓✗⏹·×".contains(c) {
            escaped.push(c);
        } else {
            write!(escaped, "#{};", u32::from(c)).expect(TO_STRING);
        }
    }
    escaped
}
