//! Indented text.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::{NodeState, hook, plain, status_label, ways, work};
use crate::definition::graph::Graph;

const TO_STRING: &str = "writing to a String cannot fail";

pub(super) fn render(graph: &Graph, title: &str, overlay: &BTreeMap<String, NodeState>) -> String {
    let count = graph.nodes.len();
    let nodes = if count == 1 { "node" } else { "nodes" };
    let mut out = format!("{}  {count} {nodes}\n", plain(title));
    for node in &graph.nodes {
        let start = if node.name == graph.start { "▶" } else { " " };
        write!(
            out,
            "\n{start} {}  {}",
            plain(&node.name),
            plain(&work(node))
        )
        .expect(TO_STRING);
        if let Some(state) = overlay.get(&node.name) {
            write!(out, "  {}", status_label(*state)).expect(TO_STRING);
        }
        out.push('\n');
        for way in ways(node) {
            let arrow = if way.on_error { "⇢" } else { "→" };
            write!(out, "    {arrow} {}", way.to.map_or("end".into(), plain)).expect(TO_STRING);
            if let Some(label) = way.label {
                write!(out, "  [{}]", plain(&label)).expect(TO_STRING);
            }
            out.push('\n');
        }
    }
    if !graph.hooks.is_empty() {
        out.push_str("\nhooks\n");
    }
    for entry in &graph.hooks {
        let (event, does) = (entry.event.as_str(), plain(&hook(entry)));
        writeln!(out, "  {event}  {does}").expect(TO_STRING);
    }
    out
}
