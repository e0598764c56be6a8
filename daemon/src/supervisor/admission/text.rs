//! The text of the graph of a run, and its use with a state made under another text.
//!
//! **Rule.** A run has the present text of its item. A continuation has the recorded text if the caller requests it; if
//! the texts differ otherwise, a note says so. A state that is taken over keeps all its values. Keys that it lacks get
//! the values that the text declares. Keys that neither has read as null.

use std::sync::Arc;

use rye_core::definition::Graph;
use rye_core::model::{GraphSource, StartFrom};
use rye_item::{Item, Snapshot};

use super::{StartAt, declared};

/// Text of the graph of a run.
pub(super) struct Chosen {
    pub(super) text: Arc<str>,
    /// SHA-256 of the item with this text, in hex.
    pub(super) content_hash: String,
    /// Note for the readers of the run.
    pub(super) note: Option<String>,
}

/// Source of a run with this `text` of `graph`, under the configuration in `snapshot`.
pub(super) fn source(text: Arc<str>, graph: &Graph, snapshot: &Snapshot) -> GraphSource {
    GraphSource {
        text,
        category: graph.category.clone(),
        version: graph.version.clone(),
        nodes: u32::try_from(graph.nodes.len()).unwrap_or(u32::MAX),
        policy: Arc::clone(&snapshot.policy),
        config_hash: snapshot.hash.to_string(),
    }
}

/// Chooses the text for a run whose item is `now`.
pub(super) fn chosen(now: &Item, start_at: &StartAt) -> Chosen {
    let mut chosen = Chosen {
        text: Arc::clone(&now.text),
        content_hash: now.content_hash.clone(),
        note: None,
    };
    let continued = declared::recorded(start_at);
    let changed = continued.filter(|(run, _)| run.spec.content_hash != now.content_hash);
    if let Some((run, recorded)) = changed {
        if let StartAt::Continue {
            same_text: true, ..
        } = start_at
        {
            chosen.text = Arc::clone(recorded);
            chosen.content_hash.clone_from(&run.spec.content_hash);
        } else {
            chosen.note = Some(format!(
                "`{}` has changed since run `{}` started, which is continued with the text it has now",
                now.item, run.id
            ));
        }
    }
    chosen
}

/// Adds the keys that `graph` declares and the initial state lacks. Returns a note about them. Only a state made under
/// another text, or by a run that never began, lacks keys.
pub(super) fn complete(start: Option<&mut StartFrom>, graph: &Graph) -> Option<String> {
    let StartFrom { state, .. } = start?;
    let mut added = Vec::new();
    for (key, value) in &graph.state {
        if state.vars.get(key).is_none() {
            state.vars.set(key, value.clone());
            added.push(format!("`state.{key}`"));
        }
    }
    (!added.is_empty()).then(|| {
        let added = added.join(", ");
        format!("{added}: set as the graph declares; the state that is taken over has no such key")
    })
}

#[cfg(test)]
mod tests {
    use rye_core::definition;
    use rye_core::model::graph::GraphState;
    use rye_core::model::{Extent, Object};
    use serde_json::json;

    use super::*;

    #[test]
    fn inherited_state_keeps_values_and_gets_declared_keys() {
        let text = "version: \"1.0.0\"\ncategory: t\ntool_type: graph\nexecutor_id: rye/core/runtimes/state-graph/runtime\n\
                    permissions: []\nconfig:\n  state: {kept: new, none: new, added: [1], more: 2}\n  start: a\n  nodes:\n    a: {type: return}";
        let (graph, _) = definition::parse(text).unwrap();
        let object = |value: serde_json::Value| -> Object { value.as_object().unwrap().clone() };
        let start = |vars: serde_json::Value| StartFrom {
            node: "a".to_owned(),
            state: GraphState {
                vars: object(vars).into(),
                ..GraphState::default()
            },
            left: None,
            then: None,
            extent: Extent::Rest,
        };
        let mut taken = start(json!({"kept": "old", "none": null, "gone": 7}));
        let added = complete(Some(&mut taken), &graph).unwrap();
        let expected = json!({"kept": "old", "none": null, "gone": 7, "added": [1], "more": 2});
        assert_eq!(taken.state.vars.to_value(), expected);
        assert!(
            added.starts_with("`state.added`, `state.more`: "),
            "{added}"
        );
        assert_eq!(complete(Some(&mut taken), &graph), None);
        assert_eq!(complete(None, &graph), None);
    }
}
