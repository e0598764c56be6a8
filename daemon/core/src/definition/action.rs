//! The action of a node.

use serde_json::Value;

use super::actor::Actor;
use super::graph::Graph;
use super::hook::CONTROL;
use super::read::{At, Reader};
use super::shared::of_many;
use super::work::{Action, Work};
use crate::capability::Primary;
use crate::declared::Keys;
use crate::id::{ItemId, ItemKind, ItemRef};
use crate::model::Object;

/// The tool whose `command` is read by a shell.
const SHELL: &str = "rye/bash";

/// Returns [`of_many`] if the action names no item and gives the parameter by which items are found.
fn open(primary: Primary, action: &At<'_>) -> Option<(&'static str, &'static str)> {
    let params = action.given("params")?;
    let (tool, key) = of_many(primary).filter(|(_, key)| params.given(key).is_some())?;
    let id = action.given("item_id").and_then(|at| at.value.as_str());
    // An action that names the tool itself depends on its parameters, as if it named nothing.
    let is_named = id.is_some_and(|id| id.strip_prefix("tool:").unwrap_or(id) == tool);
    (!is_named).then_some((tool, key))
}

impl<'d> Reader<'d> {
    /// Reads an action; `None` after an error that leaves a part of it without a value.
    pub(super) fn action(&mut self, at: &At<'d>, keys: &Keys) -> Option<Action> {
        self.map(at, keys)?;
        let primary = self.primary(at)?;
        let params = self.params(at);
        if let Some((tool, key)) = open(primary, at) {
            return self.of_many(at, primary, params?, tool, key);
        }
        let item = self.item(at, primary);
        let (kind, id) = item?;
        let named = ItemRef::parse(&id, kind).ok().map(|item| item.canonical());
        let named = named.as_ref().map(|item| item.id.as_str());
        if named == Some(SHELL) {
            self.pasted_template(at);
        }
        if named == Some(CONTROL) && self.node.is_some() {
            self.control_as_node(at);
            return None;
        }
        Some(Action {
            primary,
            kind,
            id,
            params: params?,
        })
    }

    /// Reads a search, or a signature of many items. It names no item: its tool finds the items.
    fn of_many(
        &mut self,
        action: &At<'d>,
        primary: Primary,
        params: Value,
        tool: &str,
        key: &str,
    ) -> Option<Action> {
        if let Some(at) = action.given("item_id") {
            let message =
                format!("`item_id` and `params.{key}` do not go together: name one item, or many");
            self.error("unknown_value", &at, message);
            return None;
        }
        let mut params = params;
        for key in ["item_type", "kind"] {
            if let Some(word) = self.text(action, key) {
                let kind = self.kind(&action.child(key)?, word, primary)?;
                params["item_type"] = Value::from(kind.as_str());
            }
        }
        Some(Action {
            primary,
            kind: ItemKind::Tool,
            id: tool.to_owned(),
            params,
        })
    }

    /// Visits every action of `graph`, which was read before, at its position in the file.
    pub(super) fn each_action(
        &mut self,
        graph: &Graph,
        mut visit: impl FnMut(&mut Self, &At<'d>, &Action),
    ) {
        self.each_actor(graph, |reader, at, actor| {
            let place = at.child("action").unwrap_or_else(|| at.clone());
            let (action, work) = match actor {
                Actor::Node(_, node) => (node.work.action(), Some(&node.work)),
                Actor::Hook(_, hook) => (hook.action.call(), None),
            };
            if let Some(action) = action {
                visit(reader, &place, action);
            }
            if let Some(Work::Parallel(parallel)) = work
                && let Some(branches) = at.child("branches")
            {
                for (name, action) in &parallel.branches {
                    let place = branches.child(name).unwrap_or_else(|| branches.clone());
                    visit(reader, &place, action);
                }
            }
        });
    }

    /// Visits every node and hook of `graph`, which was read before, at its position in the file.
    pub(super) fn each_actor<'g>(
        &mut self,
        graph: &'g Graph,
        mut visit: impl FnMut(&mut Self, &At<'d>, Actor<'g>),
    ) {
        let nodes = self.config("nodes");
        for (index, node) in graph.nodes.iter().enumerate() {
            if !self.has_time() {
                return;
            }
            if let Some(at) = nodes.as_ref().and_then(|nodes| nodes.child(&node.name)) {
                self.node = Some(node.name.clone());
                visit(self, &at, Actor::Node(index, node));
                self.node = None;
            }
        }
        let hooks = self.config("hooks");
        for (index, hook) in graph.hooks.iter().enumerate() {
            let place = index.to_string();
            if let Some(at) = hooks.as_ref().and_then(|hooks| hooks.child(&place)) {
                visit(self, &at, Actor::Hook(index, hook));
            }
        }
    }

    fn primary(&mut self, action: &At<'d>) -> Option<Primary> {
        if let Some(at) = action.child("primary")
            && let Some(word @ ("search" | "load")) = at.value.as_str()
        {
            let message = format!("`primary: {word}` is read as `fetch`");
            self.warn("old_spelling", &at, message);
            return Some(Primary::Fetch);
        }
        let words = &[
            ("execute", Primary::Execute),
            ("fetch", Primary::Fetch),
            ("sign", Primary::Sign),
        ];
        self.word(action, "primary", words)
    }

    /// Reads the type and the template of the id, in either form.
    fn item(&mut self, action: &At<'d>, primary: Primary) -> Option<(ItemKind, String)> {
        let text = self.required_text(action, "item_id", "it names the item to use")?;
        let at = action.child("item_id")?;
        self.template(&at);
        let (prefix, id) = match text.split_once(':') {
            Some((prefix, id)) if !prefix.contains('{') => (Some(prefix), id),
            Some(_) | None => (None, text),
        };
        if self.is_literal(at.value)
            && let Err(error) = ItemId::new(id)
        {
            self.error("bad_item_id", &at, error.to_string());
        }
        let mut kinds = Vec::new();
        if let Some(prefix) = prefix {
            kinds.push(self.kind(&at, prefix, primary)?);
        }
        for key in ["item_type", "kind"] {
            if let Some(word) = self.text(action, key) {
                kinds.push(self.kind(&action.child(key)?, word, primary)?);
            }
        }
        if kinds.windows(2).any(|pair| pair[0] != pair[1]) {
            let message = "`item_id`, `item_type` and `kind` name different types";
            self.error("unknown_value", &at, message);
            return None;
        }
        Some((
            kinds.first().copied().unwrap_or(ItemKind::Tool),
            id.to_owned(),
        ))
    }

    fn kind(&mut self, at: &At<'d>, word: &str, primary: Primary) -> Option<ItemKind> {
        match word.parse() {
            Ok(other @ (ItemKind::Knowledge | ItemKind::Config)) if primary == Primary::Execute => {
                let message = format!("a {other} is not executed; `primary: fetch` reads it");
                self.error("unknown_value", at, message);
                None
            }
            Ok(kind) => Some(kind),
            Err(error) => {
                self.error("unknown_value", at, error.to_string());
                None
            }
        }
    }

    fn params(&mut self, action: &At<'d>) -> Option<Value> {
        let Some(at) = action.given("params") else {
            return Some(Value::Object(Object::new()));
        };
        if !at.value.is_object() {
            self.wrong_type(&at, "a map");
            return None;
        }
        self.template(&at);
        Some(at.value.clone())
    }

    /// Reports the tool that answers hooks at a node, where it has no effect, and names the node type that was meant.
    fn control_as_node(&mut self, action: &At<'d>) {
        let asked = action.child("params");
        let asked = asked.and_then(|params| params.child("action"));
        let meant = match asked.as_ref().and_then(|asked| asked.value.as_str()) {
            Some("suspend" | "escalate") => "a node that asks a person has `type: approval`",
            Some("fail" | "abort") => "a node that fails the run is `type: fail`",
            Some("retry") => "a node that is tried again has `retry`",
            Some("continue" | "skip") => "a node that continues after a failure has `on_error`",
            Some(_) | None => "there are the node types `approval` and `fail`",
        };
        let message = format!("`{CONTROL}` answers hooks and does nothing at a node: {meant}");
        self.error("control_at_node", action.at("/item_id"), message);
    }

    /// Warns of values pasted into a command line: the shell interprets whatever they contain.
    fn pasted_template(&mut self, action: &At<'d>) {
        let command = action
            .child("params")
            .and_then(|params| params.child("command"));
        if let Some(command) = command
            && !self.is_literal(command.value)
        {
            self.warn(
                "pasted_template",
                &command,
                "the shell reads what is pasted into `command`; pass data by `env` or `args` instead",
            );
        }
    }
}
