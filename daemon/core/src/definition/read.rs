//! The reader of graph files, and its knowledge of the file so far.

use serde_json::Value;

use super::roots::Scope;
pub(super) use crate::declared::At;
use crate::declared::{self, is_variable};
use crate::expr::Patterns;
use crate::model::Object;

pub(super) type Reader<'d> = declared::Reader<'d, Context<'d>>;

/// State of the reading of a graph file.
#[derive(Default)]
pub(crate) struct Context<'d> {
    /// Remaining budget of its patterns.
    pub(super) patterns: Patterns,
    /// The names that templates and conditions can read here.
    pub(super) scope: Scope<'d>,
    /// All nodes by name, broken ones included.
    pub(super) names: Option<&'d Object>,
}

impl<'d> Reader<'d> {
    pub(crate) fn config(&self, key: &str) -> Option<At<'d>> {
        self.root().child("config")?.child(key)
    }

    /// Reads the name of a node, and checks that the node exists.
    pub(crate) fn target(&mut self, at: &At<'d>) -> Option<String> {
        let Value::String(name) = at.value else {
            self.wrong_type(at, "the name of a node");
            return None;
        };
        let names = self.context.names?;
        if names.contains_key(name) {
            return Some(name.clone());
        }
        let hint = match self.nearest(name, names.keys().map(String::as_str)) {
            Some(near) => format!(" (did you mean `{near}`?)"),
            None if at.key() == "on_error" && (name == "fail" || name == "continue") => {
                format!("; the mode `{name}` belongs into `config.on_error`")
            }
            None => String::new(),
        };
        let message = format!("`{}` names no node: `{name}`{hint}", at.key());
        self.error("unknown_node", at, message);
        None
    }

    /// Reads the names of environment variables below `env_requires`: a list, or a single name.
    pub(crate) fn env_requires(&mut self, at: &At<'d>) -> Vec<String> {
        let Some(at) = at.given("env_requires") else {
            return Vec::new();
        };
        let entries = match at.value {
            Value::String(_) => Some(vec![at.clone()]),
            Value::Array(_) => self.entries(&at, "a list of names"),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => {
                self.wrong_type(&at, "the name of an environment variable or a list of them");
                None
            }
        };
        let mut names = Vec::new();
        for entry in entries.unwrap_or_default() {
            match entry.value.as_str() {
                Some(name) if is_variable(name) => names.push(name.to_owned()),
                Some(name) => {
                    let message = format!(
                        "{name:?} is not the name of an environment variable: letters, digits and `_`, like API_URL"
                    );
                    self.error("bad_name", &entry, message);
                }
                None => self.wrong_type(&entry, "the name of an environment variable"),
            }
        }
        names
    }
}
