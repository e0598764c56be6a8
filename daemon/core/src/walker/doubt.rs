//! Attempts of a graph run of unknown outcome, with the values that their templates had.

use serde_json::{Value, json};

use super::evaluate::{View, resolve, value_of, values};
use super::items::Parts;
use crate::definition::{Graph, Node, Work};
use crate::expr::Vars;
use crate::id::ItemRef;
use crate::machine::{self, InDoubt};
use crate::model::graph::Step;
use crate::model::{Object, Run, Slot};

/// Returns the attempts of unknown outcome of the graph run `run`; `graph` is its graph, if that can be read.
pub fn in_doubt(graph: Option<&Graph>, run: &Run) -> Vec<InDoubt> {
    let since = run.graph().and_then(|walk| walk.at.step());
    let since = since.map(|step| step.now);
    let mut calls = graph.and_then(|graph| Calls::of(graph, run));
    let found = machine::in_doubt(run, |slot| calls.as_mut()?.call(slot));
    let found = found.into_iter().map(|doubt| InDoubt { since, ..doubt });
    found.collect()
}

/// The calls of the attempts of a step.
struct Calls<'a> {
    node: &'a Node,
    step: &'a Step,
    vars: Vars,
    /// The items of a foreach node, once one was requested.
    list: Option<Vec<Value>>,
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
        })
    }

    /// Returns the call of the attempt `slot`: its templates have the same values as at its start.
    fn call(&mut self, slot: Slot) -> Option<(ItemRef, Object)> {
        let (node, step, mut notes) = (self.node, self.step, Vec::new());
        match (slot, &node.work) {
            (
                Slot::Main,
                Work::Action(action) | Work::Service(action) | Work::ProcessWait(action),
            ) => {
                let view = View::new(&self.vars, None, step.now);
                resolve(action, &view.names(), &mut notes).ok()
            }
            (Slot::Part(item), Work::Foreach(foreach)) => {
                if self.list.is_none() {
                    self.list = values(foreach, &self.vars, step, json!({}), &mut notes)
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
