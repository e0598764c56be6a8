//! Checks the actions of a graph against its permissions.

use super::graph::Graph;
use super::read::{At, Reader};
use super::work::Action;
use crate::capability::{Capability, Layer};

/// This tool acts on the run that calls it and on nothing else.
const EMITTER: &str = "rye/agent/threads/internal/emitter";
/// Limit of the patterns in a proposal.
const MAX_PATTERNS: usize = 5;

/// Finds missing `permissions`, and actions that the declared ones do not cover. An id with templates is unknown before
/// its use.
pub(super) fn check(reader: &mut Reader<'_>, graph: Option<&Graph>) {
    let root = reader.root();
    if !root.value.is_object() {
        return;
    }
    if root.child("permissions").is_none() {
        return missing(reader, &root, graph);
    }
    let Some((graph, patterns)) = graph.and_then(|graph| Some((graph, graph.permissions.clone()?)))
    else {
        return;
    };
    let layer = Layer {
        source: String::new(),
        patterns,
    };
    reader.each_action(graph, |reader, at, action| {
        check_action(reader, at, action, &layer);
    });
}

/// `at` is the position of the action.
fn check_action<'d>(reader: &mut Reader<'d>, at: &At<'d>, action: &Action, layer: &Layer) {
    let Some(needed) = action.needed().filter(|needed| !layer.allows(needed)) else {
        return;
    };
    let message = format!("`permissions` do not cover `{needed}`; add it to them");
    reader.warn("not_permitted", at.at("/item_id"), message);
}

fn missing<'d>(reader: &mut Reader<'d>, root: &At<'d>, graph: Option<&Graph>) {
    let mut patterns: Vec<String> = Vec::new();
    for action in graph.into_iter().flat_map(Graph::actions) {
        let pattern = action.needed().map_or_else(
            || format!("rye.{}.{}.*", action.primary.as_str(), action.kind),
            |needed| needed.as_str().to_owned(),
        );
        if !patterns.contains(&pattern) && patterns.len() < MAX_PATTERNS {
            patterns.push(pattern);
        }
    }
    let message = format!(
        "`permissions` is missing: it lists what the graph may do; write permissions: [{}]",
        patterns.join(", ")
    );
    reader.error("missing_permissions", root, message);
}

impl Action {
    /// Returns the capability that it needs; `None` if its id comes from a template or is invalid, or it needs none. An
    /// action on many items finds those that are permitted.
    pub fn needed(&self) -> Option<Capability> {
        let item = self.named().filter(|_| !self.is_of_many())?;
        (item.id.as_str() != EMITTER).then(|| Capability::of(self.primary, &item))
    }
}
