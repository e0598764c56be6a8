//! Attempts of unknown outcome, for the person who finds out: item and parameters, idempotency key and start of each.
//!
//! All are named. Their calls are reported within [`MOST_SHOWN`] bytes: a node may have thousands of items in flight,
//! and each may get a large part of the state.

use std::collections::HashMap;

use serde_json::Value;

use super::evaluate::{View, resolve, value_of, values};
use super::items::Parts;
use crate::bounds;
use crate::clock::Timestamp;
use crate::definition::{Graph, Node, Work};
use crate::expr::Vars;
use crate::id::{ItemRef, Name, RunId};
use crate::model::graph::Step;
use crate::model::{AttemptId, Object, Run, Slot};

/// Limit of the approximate memory of the reported parameters of a run's attempts, in bytes.
const MOST_SHOWN: usize = 1 << 20;

/// An attempt of unknown outcome.
#[derive(Debug, Clone, PartialEq)]
pub struct InDoubt {
    /// The name for people.
    pub name: String,
    /// Its idempotency key; empty if it is not recorded any more.
    pub key: Name,
    /// Start of its step.
    pub since: Option<Timestamp>,
    /// The child run to which it belongs, if it is not of the run itself.
    pub run: Option<RunId>,
    /// Its item and parameters; `None` if they are not known any more, or too large.
    pub call: Option<(ItemRef, Object)>,
}

/// Returns the attempts of unknown outcome of `run`; `graph` is the graph of a graph run.
pub fn in_doubt(graph: Option<&Graph>, run: &Run) -> Vec<InDoubt> {
    let keys: HashMap<AttemptId, &Name> = run
        .attempts()
        .map(|attempt| (attempt.id, &attempt.key))
        .collect();
    let since = run.graph().and_then(|walk| walk.at.step());
    let since = since.map(|step| step.now);
    let mut calls = graph.and_then(|graph| Calls::of(graph, run));
    let uncertain = run.uncertain().into_iter();
    let found = uncertain.map(|(name, id)| InDoubt {
        name,
        key: keys.get(&id).copied().cloned().unwrap_or_default(),
        since,
        run: None,
        call: calls.as_mut().and_then(|calls| calls.next(id.slot)),
    });
    found.collect()
}

/// The calls of the attempts of a step.
struct Calls<'a> {
    node: &'a Node,
    step: &'a Step,
    vars: Vars,
    /// The items of a foreach node, once one was requested.
    list: Option<Vec<Value>>,
    /// Bytes that may still be reported.
    left: usize,
}

impl<'a> Calls<'a> {
    /// Makes those of the step at which `run` is.
    fn of(graph: &'a Graph, run: &'a Run) -> Option<Self> {
        let walk = run.graph()?;
        let step = walk.at.step()?;
        Some(Self {
            node: graph.nodes.get(&step.node)?,
            step,
            vars: walk.vars.clone(),
            list: None,
            left: MOST_SHOWN,
        })
    }

    /// Returns the call of the attempt `slot`, if it is known; after one that was too large, no further one is
    /// reported.
    fn next(&mut self, slot: Slot) -> Option<(ItemRef, Object)> {
        if self.left == 0 {
            return None;
        }
        let (item, params) = self.call(slot)?;
        let taken: usize = params.values().map(bounds::size).sum();
        self.left = self.left.saturating_sub(taken);
        (self.left > 0).then_some((item, params))
    }

    /// Returns the call of the attempt `slot`: its templates have the same values as at its start.
    fn call(&mut self, slot: Slot) -> Option<(ItemRef, Object)> {
        let (node, step, mut notes) = (self.node, self.step, Vec::new());
        match (slot, &node.work) {
            (Slot::Main, Work::Action(action)) => {
                let view = View::new(&self.vars, None, step.now);
                resolve(action, &view.names(), &mut notes).ok()
            }
            (Slot::Part(item), Work::Foreach(foreach)) => {
                if self.list.is_none() {
                    self.list = values(foreach, &self.vars, step, &mut notes)
                        .ok()
                        .or(Some(Vec::new()));
                }
                let value = value_of(self.list.as_ref()?, item).ok()?;
                self.vars.set(&foreach.variable, value.clone());
                let view = View::item(&self.vars, &foreach.variable, value, step.now);
                resolve(&foreach.action, &view.names(), &mut notes).ok()
            }
            (Slot::Part(item), work @ Work::Parallel(_)) => {
                let view = View::new(&self.vars, None, step.now);
                resolve(Parts::of(work)?.action(item)?, &view.names(), &mut notes).ok()
            }
            _ => None,
        }
    }
}
