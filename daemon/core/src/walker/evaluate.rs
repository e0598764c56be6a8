//! Templates of a node: its action, its assignments, its edges.

use serde_json::{Value, json};

use super::{Walker, interpolation_failure};
use crate::bounds::{self, MANY_BYTES, MOST_BYTES};
use crate::clock::Timestamp;
use crate::definition::{Action, Edge, Next, Node};
use crate::error::with_sources;
use crate::expr::{self, Names};
use crate::id::ItemRef;
use crate::model::{Failure, Object, Run};

/// Where templates may look.
pub(super) struct View<'a> {
    state: &'a Value,
    inputs: Option<&'a Value>,
    result: Option<&'a Value>,
    item: Option<(&'a str, &'a Value)>,
    now: Value,
    epoch_ms: Value,
}

impl<'a> View<'a> {
    pub(super) fn new(run: &'a Run, result: Option<&'a Value>, now: Timestamp) -> Self {
        let state = &run.progress.state;
        Self {
            state,
            inputs: state.get("inputs"),
            result,
            item: None,
            now: json!(now.to_string()),
            epoch_ms: json!(now.ms()),
        }
    }

    /// The view of a foreach item: `state` with the loop variable in it, which also stands alone.
    pub(super) fn item(
        state: &'a Value,
        variable: &'a str,
        item: &'a Value,
        now: Timestamp,
    ) -> Self {
        Self {
            state,
            inputs: state.get("inputs"),
            result: None,
            item: Some((variable, item)),
            now: json!(now.to_string()),
            epoch_ms: json!(now.ms()),
        }
    }

    pub(super) fn names(&self) -> Names<'_> {
        let mut names = vec![
            ("state", self.state),
            ("_now", &self.now),
            ("_timestamp", &self.epoch_ms),
        ];
        names.extend(self.inputs.map(|inputs| ("inputs", inputs)));
        names.extend(self.result.map(|result| ("result", result)));
        names.extend(self.item);
        Names::new(names)
    }
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

impl Walker {
    /// Evaluates the templates of a node's action.
    pub(super) fn resolve(
        &mut self,
        action: &Action,
        now: Timestamp,
    ) -> Result<(ItemRef, Object), Failure> {
        let view = View::new(&self.run, None, now);
        resolve(action, &view.names(), &mut self.notes)
    }

    /// What a return node returns.
    pub(super) fn output(
        &mut self,
        template: Option<&Value>,
        now: Timestamp,
    ) -> Result<Value, Failure> {
        let Some(template) = template else {
            return Ok(json!({}));
        };
        let view = View::new(&self.run, None, now);
        expr::interpolate(template, &view.names(), &mut self.notes)
            .map_err(|error| interpolation_failure(&error))
    }

    /// Evaluates `assign` in written order, each line seeing the ones before it and `assigned`, to which it adds.
    pub(super) fn assign(
        &mut self,
        node: &Node,
        result: Option<&Value>,
        now: Timestamp,
        mut assigned: Object,
    ) -> Result<Object, Failure> {
        let mut undo = Vec::new();
        for (key, value) in &assigned {
            undo.push((key.clone(), self.run.progress.state.get(key).cloned()));
            self.run.progress.set(key, value.clone());
        }
        if !assigned.is_empty()
            && let Err(failure) = self.weigh_state()
        {
            self.restore(undo);
            return Err(failure);
        }
        for (key, template) in &node.assign {
            let value = {
                let view = View::new(&self.run, result, now);
                expr::interpolate(template, &view.names(), &mut self.notes)
            };
            match value {
                Ok(value) => {
                    undo.push((key.clone(), self.run.progress.state.get(key).cloned()));
                    self.run.progress.set(key, value.clone());
                    assigned.insert(key.clone(), value);
                }
                Err(error) => {
                    self.restore(undo);
                    return Err(interpolation_failure(&error));
                }
            }
            if let Err(failure) = self.weigh_state() {
                self.restore(undo);
                return Err(failure);
            }
        }
        Ok(assigned)
    }

    /// The state is kept in memory and copied for templates; it is no place for data without end.
    fn weigh_state(&mut self) -> Result<(), Failure> {
        match bounds::within(&self.run.progress.state, usize::MAX, MOST_BYTES) {
            Ok(bytes) if bytes > MANY_BYTES => {
                let text =
                    "the state is larger than 1 MiB; keep large data in files and pass their paths";
                self.notes.push(text.to_owned());
                Ok(())
            }
            Ok(_) => Ok(()),
            Err(excess) => {
                let text = format!(
                    "the state would be {excess}; keep large data in files and pass their paths"
                );
                Err(Failure::permanent("state_too_large", text))
            }
        }
    }

    fn restore(&mut self, undo: Vec<(String, Option<Value>)>) {
        let Value::Object(state) = &mut self.run.progress.state else {
            return;
        };
        for (key, old) in undo.into_iter().rev() {
            match old {
                Some(old) => drop(state.insert(key, old)),
                None => drop(state.shift_remove(&key)),
            }
        }
    }

    /// The node that follows: the first edge whose condition holds; none is an implicit return.
    pub(super) fn edge(
        &mut self,
        node: &Node,
        result: Option<&Value>,
        now: Timestamp,
    ) -> Option<String> {
        let edges = match &node.next {
            Next::End => return None,
            Next::Always(to) => return Some(to.clone()),
            Next::Edges(edges) => edges,
        };
        let nothing = json!({});
        let view = View::new(&self.run, Some(result.unwrap_or(&nothing)), now);
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
