//! Nodes about managed processes: a `service`, and a `wait` with a `process`. Both use the tool of managed processes.

use serde_json::{Value, json};

use super::read::{At, Reader};
use super::waiting::duration;
use super::work::Action;
use crate::capability::Primary;
use crate::id::ItemKind;
use crate::model::{Object, ProcessSpec};

/// The tool that both kinds of nodes use, and whose permission they need.
const PROCESS_TOOL: &str = "rye/agent/threads/managed_subprocess";

/// Keys of a service, which are parameters of the tool.
pub(super) const SERVICE_KEYS: [&str; 16] = [
    "command",
    "args",
    "cwd",
    "env",
    "name",
    "ports",
    "ready",
    "ready_pattern",
    "ready_port",
    "ready_timeout",
    "healthy",
    "restart",
    "max_restarts",
    "grace",
    "isolation",
    "resources",
];

fn use_of_tool(params: Object) -> Action {
    Action {
        primary: Primary::Execute,
        kind: ItemKind::Tool,
        id: PROCESS_TOOL.to_owned(),
        params: Value::Object(params),
    }
}

impl<'d> Reader<'d> {
    /// Reads the keys of a service.
    pub(super) fn service(&mut self, node: &At<'d>) -> Option<Action> {
        self.required_text(node, "command", "it is what the service runs")?;
        let mut params = Object::new();
        params.insert("action".into(), json!("start"));
        params.insert("must_be_ready".into(), json!(true));
        params.insert("restart".into(), json!("on-failure"));
        for key in SERVICE_KEYS {
            if let Some(at) = node.given(key) {
                self.template(&at);
                params.insert(key.to_owned(), at.value.clone());
            }
        }
        if !params.contains_key("name") {
            let name = node.key();
            if !ProcessSpec::is_name(&name) {
                let message = format!(
                    "{name:?} is no name for a process: give the node a `name` of A-Z a-z 0-9 . _ -"
                );
                self.error("bad_name", node.named(), message);
                return None;
            }
            params.insert("name".into(), json!(name));
        }
        Some(use_of_tool(params))
    }

    /// Reads the keys of a node that waits for a process.
    pub(super) fn process_wait(&mut self, node: &At<'d>) -> Option<Action> {
        self.required_text(node, "process", "it is the handle of the process")?;
        let mut params = Object::new();
        params.insert("action".into(), json!("wait"));
        let mut copy = |reader: &mut Self, key: &str, param: &str| {
            let at = node.given(key)?;
            reader.template(&at);
            params.insert(param.to_owned(), at.value.clone());
            Some(at)
        };
        copy(self, "process", "handle_id");
        let line = copy(self, "line", "pattern").is_some();
        if let Some(at) = copy(self, "for", "timeout")
            && self.is_literal(at.value)
            && let Err(problem) = duration(at.value)
        {
            self.error("wrong_type", &at, format!("`for` {problem}"));
        }
        let ready = self.switch(node, "ready").unwrap_or(false);
        let exit = self.switch(node, "exit").unwrap_or(false);
        let what = match (line, ready, exit) {
            (true, false, false) => "line",
            (false, true, false) => "ready",
            (false, false, true) => "exit",
            _ => {
                let message = "a wait for a process has exactly one of `line`, `ready: true` and `exit: true`";
                self.error("conflict", node.named(), message);
                return None;
            }
        };
        params.insert("for".into(), json!(what));
        Some(use_of_tool(params))
    }
}
