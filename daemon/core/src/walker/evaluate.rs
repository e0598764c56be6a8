//! Templates of a node: its action, its assignments, its edges; and the values that those of an attempt in doubt had.

use serde_json::{Value, json};

use std::sync::Arc;

use super::items::Parts;
use super::{Walker, interpolation_failure};
use crate::bounds::{Excess, MANY_BYTES, MOST_BYTES};
use crate::clock::Timestamp;
use crate::definition::roots::SERVICES;
use crate::definition::{Action, Edge, Foreach, Graph, Next, Node, Work};
use crate::error::with_sources;
use crate::expr::{self, Bound, Names, Vars, parse_json};
use crate::id::ItemRef;
use crate::machine::{self, InDoubt};
use crate::memory::Memory;
use crate::model::graph::Step;
use crate::model::{Failure, Object, Run, Slot};

/// The values that templates may read.
pub(super) struct View<'a> {
    vars: &'a Vars,
    result: Option<&'a Value>,
    item: Option<(&'a str, &'a Value)>,
    services: Value,
    now: Value,
    epoch_ms: Value,
}

impl<'a> View<'a> {
    pub(super) fn new(vars: &'a Vars, result: Option<&'a Value>, now: Timestamp) -> Self {
        Self {
            vars,
            result,
            item: None,
            services: json!({}),
            now: json!(now.to_string()),
            epoch_ms: json!(now.ms()),
        }
    }

    /// Makes the view of a foreach item: `vars` with the loop variable in it, which is also a name of its own.
    pub(super) fn item(vars: &'a Vars, variable: &'a str, item: &'a Value, now: Timestamp) -> Self {
        Self {
            item: Some((variable, item)),
            ..Self::new(vars, None, now)
        }
    }

    /// Sets the value of the name `services`.
    pub(super) fn with_services(self, services: Value) -> Self {
        Self { services, ..self }
    }

    /// Adds a result to the view.
    pub(super) fn with_result(self, result: &'a Value) -> Self {
        Self {
            result: Some(result),
            ..self
        }
    }

    pub(super) fn names(&self) -> Names<'_> {
        let fixed: [(&str, Bound<'_>); 3] = [
            ("state", self.vars.into()),
            ("_now", (&self.now).into()),
            ("_timestamp", (&self.epoch_ms).into()),
        ];
        let inputs = self.vars.get("inputs").unwrap_or(&Value::Null);
        let result = self.result.map(|result| ("result", result));
        let more = [("inputs", inputs)]
            .into_iter()
            .chain(result)
            .chain(self.item)
            // A variable of this name comes first.
            .chain([(SERVICES, &self.services)]);
        more.fold(Names::new(fixed), |names, (name, value)| {
            names.with(name, value)
        })
    }
}

/// A state with the assignments of a step, and those assignments by themselves.
pub(super) struct Assigned {
    pub(super) vars: Vars,
    pub(super) delta: Vars,
}

impl Assigned {
    pub(super) fn nothing(vars: &Vars) -> Self {
        Self {
            vars: vars.clone(),
            delta: Vars::default(),
        }
    }

    pub(super) fn set(&mut self, key: &str, value: impl Into<Arc<Value>>) {
        let value = value.into();
        self.vars.set(key, Arc::clone(&value));
        self.delta.set(key, value);
    }
}

/// Refuses a state that takes too much memory: it is no place for unbounded data.
fn check_size(vars: &Vars, notes: &mut Vec<String>) -> Result<(), Failure> {
    if vars.bytes() > MOST_BYTES {
        let text = format!(
            "the state would be {}; keep large data in files and pass their paths",
            Excess::Bytes
        );
        return Err(Failure::permanent("state_too_large", text));
    }
    if vars.bytes() > MANY_BYTES {
        let text = "the state takes more than 1 MiB of memory; keep large data in files and pass their paths";
        notes.push(text.to_owned());
    }
    Ok(())
}

/// Makes the failure of a run when all runs together use the whole memory.
pub(super) fn memory_exceeded(memory: &Memory) -> Failure {
    let text = format!(
        "the values of all runs together may take {} MiB of memory (`limits.memory_mb`), and what comes to be here does not \
         fit beside the others; keep large data in files and pass their paths, or resume when other runs have ended",
        memory.most() >> 20
    );
    Failure::permanent("memory_exceeded", text)
}

/// Evaluates the templates of an action.
pub(super) fn resolve(
    action: &Action,
    names: &Names<'_>,
    notes: &mut Vec<String>,
) -> Result<(ItemRef, Object), Failure> {
    let id = expr::interpolate(&Value::String(action.id.clone()), names, notes)
        .map_err(|error| interpolation_failure(&error))?;
    let params = expr::interpolate(&action.params, names, notes)
        .map_err(|error| interpolation_failure(&error))?;
    let Value::String(id) = id else {
        let text = format!(
            "item_id `{}` resolved to {id}, which is not an item id",
            action.id
        );
        return Err(Failure::permanent("invalid_item_id", text));
    };
    let item = ItemRef::parse(&id, action.kind)
        .map_err(|error| Failure::permanent("invalid_item_id", with_sources(&error)))?;
    let Value::Object(params) = expr::strip_nulls(params) else {
        let text = "params did not resolve to a map";
        return Err(Failure::permanent("invalid_params", text));
    };
    Ok((item, params))
}

/// Returns the values over which a foreach node iterates.
pub(super) fn values(
    foreach: &Foreach,
    vars: &Vars,
    step: &Step,
    services: Value,
    notes: &mut Vec<String>,
) -> Result<Vec<Value>, Failure> {
    let over = {
        let view = View::new(vars, None, step.now).with_services(services);
        expr::interpolate(&foreach.over, &view.names(), notes)
            .map_err(|error| interpolation_failure(&error))?
    };
    if over.is_null() {
        notes.push(format!(
            "node `{}`: `over` is null, so there are no items",
            step.node
        ));
    }
    list(over)
}

/// Returns the items of `over`: a list, the text of a JSON list, or nothing.
fn list(over: Value) -> Result<Vec<Value>, Failure> {
    let not_a_list = |what: &str| {
        let text = format!("`over` is {what}; a foreach node goes over a list");
        Failure::permanent("over_not_a_list", text)
    };
    match over {
        Value::Null => Ok(Vec::new()),
        Value::Array(list) => Ok(list),
        Value::String(text) => match parse_json(&text) {
            Ok(Value::Array(list)) => Ok(list),
            Ok(_) | Err(_) => Err(not_a_list("a text that is not a JSON list")),
        },
        Value::Bool(_) => Err(not_a_list("a boolean")),
        Value::Number(_) => Err(not_a_list("a number")),
        Value::Object(_) => Err(not_a_list("a map")),
    }
}

/// Returns the value of an item.
pub(super) fn value_of(list: &[Value], item: u32) -> Result<&Value, Failure> {
    let value = usize::try_from(item).ok().and_then(|item| list.get(item));
    value.ok_or_else(lost)
}

pub(super) fn lost() -> Failure {
    Failure::permanent("item_gone", "the list of the node changed under it")
}

impl Walker {
    /// Evaluates the templates of a node's action.
    pub(super) fn resolve(
        &mut self,
        action: &Action,
        now: Timestamp,
    ) -> Result<(ItemRef, Object), Failure> {
        let vars = self.walk().vars.clone();
        let view = View::new(&vars, None, now).with_services(self.services());
        resolve(action, &view.names(), &mut self.notes)
    }

    /// Returns the output of a return node.
    pub(super) fn output(
        &mut self,
        template: Option<&Value>,
        now: Timestamp,
    ) -> Result<Value, Failure> {
        let Some(template) = template else {
            return Ok(json!({}));
        };
        let vars = self.walk().vars.clone();
        let view = View::new(&vars, None, now).with_services(self.services());
        expr::interpolate(template, &view.names(), &mut self.notes)
            .map_err(|error| interpolation_failure(&error))
    }

    /// Evaluates `assign` in written order. Each line sees the ones before it and `collected`, to which it adds.
    pub(super) fn assign(
        &mut self,
        node: &Node,
        result: Option<&Value>,
        now: Timestamp,
        collected: Vars,
    ) -> Result<Assigned, Failure> {
        let mut assigned = Assigned::nothing(&self.walk().vars);
        if collected.is_empty() && node.assign.is_empty() {
            return Ok(assigned);
        }
        assigned.vars.extend(&collected);
        assigned.delta = collected;
        check_size(&assigned.vars, &mut self.notes)?;
        let services = self.services();
        for (key, template) in &node.assign {
            let value = {
                let view = View::new(&assigned.vars, result, now).with_services(services.clone());
                expr::interpolate(template, &view.names(), &mut self.notes)
                    .map_err(|error| interpolation_failure(&error))?
            };
            assigned.set(key, value);
            check_size(&assigned.vars, &mut self.notes)?;
        }
        self.take_memory(&assigned)?;
        Ok(assigned)
    }

    /// Charges the memory by which the state grows, until the record does.
    fn take_memory(&mut self, assigned: &Assigned) -> Result<(), Failure> {
        self.assigned += assigned.delta.bytes();
        let more = assigned.vars.bytes();
        let more = more.saturating_sub(self.walk().vars.bytes());
        if more == 0 {
            return Ok(());
        }
        match self.memory.take(more) {
            Some(charge) => {
                self.charges.push(Arc::new(charge));
                Ok(())
            }
            None => Err(memory_exceeded(&self.memory)),
        }
    }

    /// Returns the node that follows in the state `vars`: the first edge whose condition holds; `None` is an implicit
    /// return.
    pub(super) fn edge(
        &mut self,
        node: &Node,
        vars: &Vars,
        result: Option<&Value>,
        now: Timestamp,
    ) -> Option<String> {
        if let Some(start) = self.run.spec.repairs() {
            let base = start.state.steps;
            let next = self.walk().next_repair(base, Some(&node.name));
            let next = next.map(|failed| &failed.node).or(start.then.as_ref());
            return next
                .filter(|next| ***next != *node.name)
                .map(ToString::to_string);
        }
        let edges = match &node.next {
            Next::End => return None,
            Next::Always(to) => return Some(to.clone()),
            Next::Edges(edges) => edges,
        };
        let nothing = json!({});
        let view = View::new(vars, Some(result.unwrap_or(&nothing)), now);
        let view = view.with_services(self.services());
        let names = view.names();
        let notes = &mut self.notes;
        let open =
            |Edge { when, .. }: &&Edge| when.as_ref().is_none_or(|when| when.holds(&names, notes));
        let found = edges.iter().find(open).map(|edge| edge.to.clone());
        if found.is_none() {
            self.notes
                .push("the condition of no edge holds, so the run ends here".to_owned());
        }
        found
    }
}

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
