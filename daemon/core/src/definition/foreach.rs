//! A foreach node: its list, its variable and the order of its items.

use std::num::NonZeroU32;

use serde_json::Value;

use super::keys;
use super::read::{At, Reader};
use super::roots::Roots;
use super::work::{Foreach, ItemOrder, OnItemError};
use crate::declared::{brief, is_inert};
use crate::expr;

/// The variable of a foreach that names none.
const DEFAULT_VARIABLE: &str = "item";
/// Names that have another meaning wherever the variable could be read.
const TAKEN: [&str; 5] = ["state", "inputs", "result", "_now", "_timestamp"];
/// Parameters with which a tool returned before its work was done.
const ASYNC: [&str; 2] = ["async", "async_exec"];

impl<'d> Reader<'d> {
    /// Reads the keys of a foreach; `None` after an error that leaves a part of it without a value.
    pub(super) fn foreach(&mut self, at: &At<'d>) -> Option<Foreach> {
        let over = self.over(at);
        let variable = self.variable(at);
        let collect = self.collect(at);
        let of_items = |result| {
            variable.map(|variable| Roots {
                variable: Some(variable),
                result,
                event: None,
            })
        };
        let collect_value = self.among(of_items(true), None, |reader| {
            reader.collect_value(at, collect.is_some())
        });
        let order = self.order(at);
        let modes = &[
            ("fail", OnItemError::Fail),
            ("collect", OnItemError::Collect),
        ];
        let on_item_error = self.word(at, "on_item_error", modes);
        let action = at.given("action");
        if action.is_none() {
            let message = "the foreach has no `action`: it says what is done with each item";
            self.error("missing_action", at.named(), message);
        }
        let action = action.and_then(|action| {
            self.async_params(&action);
            self.among(of_items(false), None, |reader| {
                reader.action(&action, &keys::FOREACH_ACTION)
            })
        });
        Some(Foreach {
            over: over?,
            variable: variable?.to_owned(),
            action: action?,
            collect,
            collect_value,
            order,
            on_item_error: on_item_error?,
        })
    }

    /// Reads the template of the list. A value that can never be a list is an error here, not at run time.
    fn over(&mut self, node: &At<'d>) -> Option<Value> {
        let Some(at) = node.given("over") else {
            let message = "the foreach has no `over`: it names the list, like \"${state.files}\"";
            self.error("missing_key", node.named(), message);
            return None;
        };
        self.template(&at);
        let is_list = match at.value {
            Value::Array(_) => true,
            Value::String(text) => {
                !self.is_literal(at.value)
                    || expr::parse_json(text).is_ok_and(|value| value.is_array())
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => false,
        };
        if !is_list {
            let message = format!(
                "`over` must be a list or lead to one, like \"${{state.files}}\", not `{}`",
                brief(at.value)
            );
            self.error("wrong_type", &at, message);
        }
        is_list.then(|| at.value.clone())
    }

    fn variable(&mut self, node: &At<'d>) -> Option<&'d str> {
        let Some(at) = node.given("as") else {
            return Some(DEFAULT_VARIABLE);
        };
        let name = self.text(node, "as")?;
        if TAKEN.contains(&name) {
            let message = format!("the variable cannot be called `{name}`: that name is taken");
            self.error("bad_name", &at, message);
            return None;
        }
        if !expr::is_name(name) {
            let message = format!("no path can read a variable called {name:?}");
            self.error("bad_name", &at, message);
            return None;
        }
        Some(name)
    }

    fn collect(&mut self, node: &At<'d>) -> Option<String> {
        let at = node.given("collect")?;
        let key = self.text(node, "collect")?;
        self.state_key(&at, key);
        Some(key.to_owned())
    }

    /// Reads the template of the collected value of an item.
    fn collect_value(&mut self, node: &At<'d>, collects: bool) -> Option<Value> {
        let at = node.given("collect_value")?;
        self.template(&at);
        if !collects {
            let message = "`collect_value` says what `collect` holds of each item: name a key of the state by `collect`";
            self.warn("no_effect", at.named(), message);
        }
        Some(at.value.clone())
    }

    fn order(&mut self, node: &At<'d>) -> ItemOrder {
        let at_once = self.whole(node, "max_concurrency", 1);
        if self.switch(node, "parallel") == Some(true) {
            return ItemOrder::Parallel {
                at_once: at_once.and_then(NonZeroU32::new),
            };
        }
        if at_once.is_some() {
            let message = "`max_concurrency` bounds a parallel foreach: write `parallel: true`";
            self.warn("no_effect", node.at("/max_concurrency").named(), message);
        }
        ItemOrder::Sequential
    }

    /// Refuses parameters for asynchronous calls: an item ends when its action ends, and a key of the node makes items
    /// concurrent.
    fn async_params(&mut self, action: &At<'d>) {
        let Some(params) = action.child("params") else {
            return;
        };
        for key in ASYNC {
            if let Some(at) = params.child(key).filter(|at| !is_inert(at.value)) {
                let message = format!(
                    "`{key}` in the action of a foreach: write `parallel: true` at the node instead"
                );
                self.error("async_item", at.named(), message);
            }
        }
    }
}
