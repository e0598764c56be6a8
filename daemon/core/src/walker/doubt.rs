//! Attempts whose outcome nobody knows, for the person who finds out: what each calls, under which key, since when.

use serde_json::Value;

use super::evaluate::{View, resolve, value_of, values};
use super::items::Parts;
use crate::clock::Timestamp;
use crate::definition::{Graph, Work};
use crate::id::{ItemRef, Name};
use crate::model::{Object, Run, Slot};

/// An attempt whose outcome nobody knows.
#[derive(Debug, Clone, PartialEq)]
pub struct InDoubt {
    /// What people call it.
    pub name: String,
    /// Its idempotency key.
    pub key: Name,
    /// When its step began.
    pub since: Option<Timestamp>,
    /// What it calls, and with what; none if that cannot be told any more.
    pub call: Option<(ItemRef, Object)>,
}

/// The attempts of `run` whose outcome nobody knows; `graph` is the graph it walks, if it walks one.
pub fn in_doubt(graph: Option<&Graph>, run: &Run) -> Vec<InDoubt> {
    let uncertain = run.uncertain().into_iter();
    let found = uncertain.map(|(name, id)| {
        let attempt = run.attempts().find(|attempt| attempt.id == id);
        let step = run.graph().and_then(|walk| walk.at.step());
        InDoubt {
            name,
            key: attempt
                .map(|attempt| Name::clone(&attempt.key))
                .unwrap_or_default(),
            since: step.map(|step| step.now),
            call: graph.and_then(|graph| call(graph, run, id.slot)),
        }
    });
    found.collect()
}

/// What the attempt `slot` of the step at hand calls: its templates mean the same as when it began.
fn call(graph: &Graph, run: &Run, slot: Slot) -> Option<(ItemRef, Object)> {
    let walk = run.graph()?;
    let step = walk.at.step()?;
    let node = graph.nodes.get(&step.node)?;
    let mut vars = walk.vars.clone();
    let mut notes = Vec::new();
    match (slot, &node.work) {
        (Slot::Main, Work::Action(action)) => {
            let view = View::new(&vars, None, step.now);
            resolve(action, &view.names(), &mut notes).ok()
        }
        (Slot::Part(item), Work::Foreach(foreach)) => {
            let list = values(foreach, &vars, step, &mut notes).ok()?;
            let value: &Value = value_of(&list, item).ok()?;
            vars.set(&foreach.variable, value.clone());
            let view = View::item(&vars, &foreach.variable, value, step.now);
            resolve(&foreach.action, &view.names(), &mut notes).ok()
        }
        (Slot::Part(item), work @ Work::Parallel(_)) => {
            let view = View::new(&vars, None, step.now);
            resolve(Parts::of(work)?.action(item)?, &view.names(), &mut notes).ok()
        }
        _ => None,
    }
}
