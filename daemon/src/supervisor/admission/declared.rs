//! The layer that a graph declares for its own runs.
//!
//! **Order.** It is the last layer of a run. A continuation has the layer of its own text of the graph, not that of the
//! recorded text.

use std::sync::Arc;

use rye_core::capability::Layer;
use rye_core::definition::{self, Graph};
use rye_core::id::ItemRef;
use rye_core::model::{Run, Spec};

use super::StartAt;

/// Returns the continued run, and its recorded text of the graph.
pub(super) fn recorded(start_at: &StartAt) -> Option<(&Run, &Arc<str>)> {
    let StartAt::Continue { run, .. } = start_at else {
        return None;
    };
    let graph = run.spec.graph()?;
    Some((run, &graph.text))
}

/// Removes the layer that the continued run had from its own graph, because the present graph declares another. The
/// `layers` begin with those of the continued run. A graph run that declares a layer has it last.
pub(super) fn replace(layers: &mut Vec<Layer>, start_at: &StartAt) {
    let Some((run, text)) = recorded(start_at) else {
        return;
    };
    let declares = || definition::parse(text).is_ok_and(|(graph, _)| graph.permissions.is_some());
    let own = run.spec.layers.len().checked_sub(1);
    let own = own.filter(|last| layers[*last].source == own_source(&run.spec.item) && declares());
    if let Some(own) = own {
        layers.remove(own);
    }
}

/// Source name of the layer that `item` declares for its own runs.
fn own_source(item: &ItemRef) -> String {
    format!("permissions of {item}")
}

/// Adds the graph's `permissions` as a layer of the run. A graph without any runs only with capabilities of the caller.
pub(super) fn declare(
    spec: &mut Spec,
    graph: &Graph,
    caller_named: bool,
) -> Result<(), &'static str> {
    match &graph.permissions {
        Some(patterns) => {
            spec.layers.push(Layer {
                source: own_source(&spec.item),
                patterns: patterns.clone(),
            });
            Ok(())
        }
        None if caller_named => Ok(()),
        None => Err(
            "the graph declares no `permissions`; list the capabilities it needs, such as \
             `permissions: [rye.execute.tool.rye.bash]`, or start it with `--cap`",
        ),
    }
}
