//! One node: its type, its assignments and its edges.

use serde_json::Value;

use super::keys;
use super::read::{At, Reader, brief};
use super::{Caching, Edge, Next, Node, Work};
use crate::expr::{Condition, nearest};
use crate::model::{Effect, Object};

const TYPES: [&str; 3] = ["return", "gate", "foreach"];

impl<'d> Reader<'d> {
    /// Reads a node; `None` after an error that leaves a part of it without a value.
    pub(super) fn read_node(&mut self, name: &str, at: &At<'d>) -> Option<Node> {
        if let Some(kind) = at.child("type").filter(|kind| kind.value == "foreach") {
            // One error for the node; each of its keys would only repeat it.
            self.not_supported(&kind, "`type: foreach`");
            return None;
        }
        let map = self.map(at, &keys::NODE)?;
        if name.is_empty() || name.chars().any(char::is_control) {
            self.key_error(
                "bad_name",
                at,
                format!(
                    "{name:?} is not a name for a node: it is empty or holds a control character"
                ),
            );
        }
        for key in ["comment", "description"] {
            self.text(at, key);
        }
        let effect = self.effect(at);
        let work = self.work(at, map);
        let ends = matches!(work, Some(Work::Return { .. }));
        self.unused_keys(at, ends);
        if ends {
            return Some(Node {
                name: name.to_owned(),
                work: work?,
                assign: Vec::new(),
                next: Next::End,
                on_error: None,
                effect: effect?,
                retry: None,
                timeout: None,
                caching: Caching::Off,
                env_requires: Vec::new(),
            });
        }
        let assign = self.assign(at);
        let next = self.next(at);
        let on_error = match at.child("on_error").filter(|at| !at.value.is_null()) {
            Some(at) => self.target(&at).map(Some),
            None => Some(None),
        };
        Some(Node {
            name: name.to_owned(),
            work: work?,
            assign: assign?,
            next: next?,
            on_error: on_error?,
            effect: effect?,
            retry: None,
            timeout: None,
            caching: Caching::Off,
            env_requires: Vec::new(),
        })
    }

    fn unused_keys(&mut self, at: &At<'d>, ends: bool) {
        let unused: &[&str] = if ends {
            &["action", "assign", "next", "on_error"]
        } else {
            &["output"]
        };
        for key in unused {
            if let Some(child) = at.child(key) {
                let message = if ends {
                    format!("`{key}` has no effect on a return node")
                } else {
                    "`output` has an effect on a return node only".to_owned()
                };
                self.key_warn("no_effect", &child, message);
            }
        }
    }

    fn effect(&mut self, at: &At<'d>) -> Option<Effect> {
        if let Some(child) = at.child("effect")
            && child.value == "at_most_once"
        {
            self.not_supported(&child, "`effect: at_most_once`");
            return None;
        }
        let words = &[("idempotent", Effect::Idempotent), ("pure", Effect::Pure)];
        self.word(at, "effect", words)
    }

    fn work(&mut self, at: &At<'d>, map: &'d Object) -> Option<Work> {
        let action = at.child("action").filter(|at| !at.value.is_null());
        let Some(kind) = at.child("type").filter(|at| !at.value.is_null()) else {
            return match action {
                Some(action) => self.action(&action).map(Work::Action),
                None if map.contains_key("assign") || map.contains_key("next") => Some(Work::Gate),
                None => {
                    self.key_error(
                        "missing_action",
                        at,
                        "the node does nothing: give it an `action`, `assign`, `next` or `type: return`",
                    );
                    None
                }
            };
        };
        match kind.value.as_str() {
            Some("return") => {
                let output = at.child("output").filter(|at| !at.value.is_null());
                if let Some(output) = &output {
                    self.template(output);
                }
                Some(Work::Return {
                    output: output.map(|at| at.value.clone()),
                })
            }
            Some("gate") => {
                if let Some(action) = action {
                    self.key_warn("no_effect", &action, "a gate runs no `action`");
                }
                Some(Work::Gate)
            }
            other => {
                let hint = other
                    .and_then(|other| nearest(other, TYPES))
                    .map_or_else(String::new, |near| format!(" (did you mean `{near}`?)"));
                let message = format!(
                    "unknown node type `{}`{hint}; there are {}, and no `type` for a node with an action",
                    brief(kind.value),
                    TYPES.join(", ")
                );
                self.error("unknown_type", &kind, message);
                None
            }
        }
    }

    fn assign(&mut self, node: &At<'d>) -> Option<Vec<(String, Value)>> {
        let Some(at) = node.child("assign").filter(|at| !at.value.is_null()) else {
            return Some(Vec::new());
        };
        let Value::Object(map) = at.value else {
            self.wrong_type(&at, "a map of state keys and templates");
            return None;
        };
        for key in map.keys() {
            let Some(entry) = at.child(key) else { continue };
            self.template(&entry);
            if key == "inputs" {
                let message = "`inputs` cannot be assigned: the inputs of a run never change";
                self.key_error("bad_assign", &entry, message);
            } else if key.contains(['.', '[']) {
                let message =
                    format!("`{key}` is one key with a dot or bracket in it; no path can read it");
                self.key_warn("bad_assign", &entry, message);
            }
        }
        Some(map.clone().into_iter().collect())
    }

    fn next(&mut self, node: &At<'d>) -> Option<Next> {
        let Some(at) = node.child("next") else {
            return Some(Next::End);
        };
        match at.value {
            Value::Null => Some(Next::End),
            Value::String(_) => self.target(&at).map(Next::Always),
            Value::Array(list) => {
                let mut edges = Vec::with_capacity(list.len());
                for index in 0..list.len() {
                    if let Some(entry) = at.child(&index.to_string()) {
                        edges.push(self.edge(&entry));
                    }
                }
                let edges = edges.into_iter().collect::<Option<Vec<Edge>>>()?;
                self.dead_edges(&at, &edges);
                Some(Next::Edges(edges))
            }
            Value::Bool(_) | Value::Number(_) | Value::Object(_) => {
                self.wrong_type(&at, "the name of a node or a list of edges {to, when}");
                None
            }
        }
    }

    fn edge(&mut self, at: &At<'d>) -> Option<Edge> {
        if !at.value.is_object() {
            let message = format!(
                "an edge is a map: write {{to: {}}}",
                at.value.as_str().unwrap_or("NODE")
            );
            self.error("wrong_type", at, message);
            return None;
        }
        self.map(at, &keys::EDGE)?;
        let to = at.child("to").and_then(|to| self.target(&to));
        if at.child("to").is_none() {
            self.error(
                "missing_key",
                at,
                "the edge has no `to`: it names the next node",
            );
        }
        let when = match at.child("when").filter(|at| !at.value.is_null()) {
            None => Some(None),
            Some(when) => match Condition::parse(when.value) {
                Ok((condition, warnings)) => {
                    self.adopt("bad_condition", &when, warnings);
                    Some(Some(condition))
                }
                Err(faults) => {
                    self.adopt("bad_condition", &when, faults);
                    None
                }
            },
        };
        Some(Edge {
            to: to?,
            when: when?,
        })
    }

    fn dead_edges(&mut self, at: &At<'d>, edges: &[Edge]) {
        let first_sure = edges.iter().position(|edge| edge.when.is_none());
        if let Some(dead) = first_sure
            .filter(|sure| sure + 1 < edges.len())
            .and_then(|sure| at.child(&(sure + 1).to_string()))
        {
            self.warn(
                "no_effect",
                &dead,
                "the edge before has no `when`: this one is never taken",
            );
        }
    }
}
