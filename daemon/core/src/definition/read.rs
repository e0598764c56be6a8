//! The reader: values of a document with their places, and what is found on the way.

use std::collections::HashSet;

use serde_json::Value;

use super::keys::{self, Keys};
use super::{Finding, Graph, Inputs, Nodes, OnError, Severity, flow};
use crate::capability;
use crate::expr::{self, kind_of, nearest};
use crate::model::{Durability, Object, Recovery};
use crate::seal::{canonical, sha256_hex};
use crate::yaml::{Document, Fault, Position, push_segment};

/// A value of the document and the JSON pointer to it.
#[derive(Debug, Clone)]
pub(super) struct At<'d> {
    pub(super) value: &'d Value,
    pub(super) pointer: String,
}

impl At<'_> {
    /// The value below `key`, if there is one.
    pub(super) fn child(&self, key: &str) -> Option<Self> {
        let value = match self.value {
            Value::Object(map) => map.get(key)?,
            Value::Array(list) => list.get(key.parse::<usize>().ok()?)?,
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => return None,
        };
        let mut pointer = self.pointer.clone();
        push_segment(&mut pointer, key);
        Some(Self { value, pointer })
    }

    /// The last step of the pointer, as people know it.
    fn key(&self) -> String {
        let last = self.pointer.rsplit('/').next().unwrap_or_default();
        last.replace("~1", "/").replace("~0", "~")
    }
}

pub(super) struct Reader<'d> {
    document: &'d Document,
    findings: Vec<Finding>,
    /// The node being read.
    pub(super) node: Option<String>,
    /// Names of all nodes, also of those that turn out to be broken.
    names: HashSet<&'d str>,
}

impl<'d> Reader<'d> {
    pub(super) fn new(document: &'d Document) -> Self {
        let mut reader = Self {
            document,
            findings: Vec::new(),
            node: None,
            names: HashSet::new(),
        };
        for Fault {
            message,
            line,
            column,
        } in document.warnings.clone()
        {
            reader.say(
                Severity::Warning,
                "yaml_1_1",
                Position { line, column },
                message,
            );
        }
        reader
    }

    /// What was found, in the order of the text.
    pub(super) fn finish(mut self) -> Vec<Finding> {
        self.findings.sort_by_key(|f| (f.line, f.column));
        self.findings
    }

    fn say(
        &mut self,
        severity: Severity,
        code: &'static str,
        position: Position,
        message: impl Into<String>,
    ) {
        self.findings.push(Finding {
            code,
            message: message.into(),
            node: self.node.clone(),
            line: position.line,
            column: position.column,
            severity,
        });
    }

    /// An error at a value.
    pub(super) fn error(&mut self, code: &'static str, at: &At<'d>, message: impl Into<String>) {
        let position = self.document.position(&at.pointer);
        self.say(Severity::Error, code, position, message);
    }

    /// An error at the key that leads to a value.
    pub(super) fn key_error(
        &mut self,
        code: &'static str,
        at: &At<'d>,
        message: impl Into<String>,
    ) {
        let position = self.document.key_position(&at.pointer);
        self.say(Severity::Error, code, position, message);
    }

    /// A warning at a value.
    pub(super) fn warn(&mut self, code: &'static str, at: &At<'d>, message: impl Into<String>) {
        let position = self.document.position(&at.pointer);
        self.say(Severity::Warning, code, position, message);
    }

    /// A warning at the key that leads to a value.
    pub(super) fn key_warn(&mut self, code: &'static str, at: &At<'d>, message: impl Into<String>) {
        let position = self.document.key_position(&at.pointer);
        self.say(Severity::Warning, code, position, message);
    }

    /// Takes over what the expression language found below `at`.
    pub(super) fn adopt(&mut self, code: &'static str, at: &At<'d>, faults: Vec<expr::Fault>) {
        for fault in faults {
            let pointer = format!("{}{}", at.pointer, fault.at);
            let position = self.document.position(&pointer);
            self.say(fault.severity, code, position, fault.message);
        }
    }

    /// Checks the texts of a template.
    pub(super) fn template(&mut self, at: &At<'d>) {
        self.adopt("bad_template", at, expr::check(at.value));
    }

    pub(super) fn wrong_type(&mut self, at: &At<'d>, wanted: &str) {
        let message = format!("`{}` must be {wanted}, not {}", at.key(), kind_of(at.value));
        self.error("wrong_type", at, message);
    }

    pub(super) fn not_supported(&mut self, at: &At<'d>, what: &str) {
        let message = format!("{what} is not supported by this release yet");
        self.key_error("not_supported", at, message);
    }

    /// Holds the keys of a map against their closed list.
    pub(super) fn check_keys(&mut self, at: &At<'d>, map: &'d Object, keys: &Keys) {
        for key in map.keys() {
            let Some(child) = at.child(key) else { continue };
            if key.starts_with("x-") || keys.known.contains(&key.as_str()) {
                continue;
            }
            if keys.later.contains(&key.as_str()) {
                if !is_inert(child.value) {
                    self.not_supported(&child, &format!("`{key}` of {}", keys.what));
                }
                continue;
            }
            let misplaced = keys.misplaced.iter().find(|(known, _)| known == key);
            let hint = match (misplaced, nearest(key, keys.all())) {
                (Some((_, instead)), _) => format!(": {instead}"),
                (None, Some(near)) => format!(" (did you mean `{near}`?)"),
                (None, None) => String::new(),
            };
            let all: Vec<&str> = keys.all().collect();
            self.key_error(
                "unknown_key",
                &child,
                format!(
                    "{} has no key `{key}`{hint}; its keys are {}, and x-…",
                    keys.what,
                    all.join(", ")
                ),
            );
        }
    }

    /// `at` as a map with its keys checked.
    pub(super) fn map(&mut self, at: &At<'d>, keys: &Keys) -> Option<&'d Object> {
        let Value::Object(map) = at.value else {
            self.wrong_type(at, "a map");
            return None;
        };
        self.check_keys(at, map, keys);
        Some(map)
    }

    /// The text below `key`, if there is one.
    pub(super) fn text(&mut self, at: &At<'d>, key: &str) -> Option<&'d str> {
        let child = at.child(key)?;
        match child.value {
            Value::String(text) => Some(text),
            Value::Number(number) => {
                let message = format!("`{key}` must be a text: write \"{number}\", in quotes");
                self.error("wrong_type", &child, message);
                None
            }
            Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => {
                self.wrong_type(&child, "a text");
                None
            }
        }
    }

    /// The text below `key`; an error if there is none.
    pub(super) fn required_text(&mut self, at: &At<'d>, key: &str, why: &str) -> Option<&'d str> {
        if at.child(key).is_none() {
            self.error("missing_key", at, format!("`{key}` is missing: {why}"));
        }
        self.text(at, key)
    }

    /// The value that the word below `key` stands for; the first of the words if there is none.
    pub(super) fn word<T: Copy>(
        &mut self,
        at: &At<'d>,
        key: &str,
        words: &[(&str, T)],
    ) -> Option<T> {
        let (_, default) = *words.first()?;
        let Some(child) = at.child(key) else {
            return Some(default);
        };
        let found = child
            .value
            .as_str()
            .and_then(|text| words.iter().find(|(word, _)| *word == text));
        if found.is_none() {
            let all: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
            let message = format!(
                "`{key}` must be one of {}, not `{}`",
                all.join(", "),
                brief(child.value)
            );
            self.error("unknown_value", &child, message);
        }
        found.map(|(_, value)| *value)
    }

    /// The name of a node at `at`, checked to be one.
    pub(super) fn target(&mut self, at: &At<'d>) -> Option<String> {
        let Value::String(name) = at.value else {
            self.wrong_type(at, "the name of a node");
            return None;
        };
        if self.names.contains(name.as_str()) {
            return Some(name.clone());
        }
        let mut names: Vec<&str> = self.names.iter().copied().collect();
        names.sort_unstable();
        let hint = match nearest(name, names) {
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

    /// Reads the whole file; `None` after an error that leaves a part without a value.
    pub(super) fn graph(&mut self) -> Option<Graph> {
        let root = At {
            value: &self.document.value,
            pointer: String::new(),
        };
        if !root.value.is_object() {
            self.error("wrong_type", &root, "a graph file is a map of keys");
            return None;
        }
        self.map(&root, &keys::FILE)?;
        self.labels(&root);
        let version = self.required_text(&root, "version", "write version: \"1.0.0\"");
        let category = self.required_text(
            &root,
            "category",
            "it is the directory of the file below `.ai/tools`",
        );
        let permissions = self.permissions(&root);
        let inputs = self.inputs(&root);
        let Some(config) = root.child("config") else {
            self.error(
                "missing_key",
                &root,
                "`config` is missing: it holds `start` and `nodes`",
            );
            return None;
        };
        self.map(&config, &keys::CONFIG)?;
        let max_steps = self.max_steps(&config);
        let state = self.initial_state(&config);
        let modes = &[("fail", OnError::Fail), ("continue", OnError::Continue)];
        let on_error = self.word(&config, "on_error", modes);
        let recoveries = &[("resume", Recovery::Resume), ("suspend", Recovery::Suspend)];
        let recovery = self.stated(&config, "recovery", recoveries);
        let durabilities = &[
            ("strict", Durability::Strict),
            ("relaxed", Durability::Relaxed),
        ];
        let durability = self.stated(&config, "durability", durabilities);
        let nodes = self.nodes(&config);
        let start = self.start(&config);
        let graph = Graph {
            version: version?.to_owned(),
            category: category?.to_owned(),
            name: self.text(&root, "name").map(ToOwned::to_owned),
            description: self
                .text(&root, "description")
                .map(ToOwned::to_owned)
                .unwrap_or_default(),
            permissions,
            inputs: inputs?,
            start: start?,
            nodes: nodes?,
            max_steps,
            on_error: on_error?,
            state: state?,
            recovery,
            durability,
            env_requires: Vec::new(),
            hooks: Vec::new(),
            timeout: None,
            max_concurrency: None,
            digest: sha256_hex(canonical(config.value)),
        };
        flow::check(self, &graph, &config);
        Some(graph)
    }

    /// Keys that only say what the file is.
    fn labels(&mut self, root: &At<'d>) {
        match self.required_text(root, "tool_type", "write tool_type: graph") {
            Some("graph") | None => {}
            Some(other) => {
                if let Some(at) = root.child("tool_type") {
                    let message = format!("`tool_type` of a graph is `graph`, not `{other}`");
                    self.error("unknown_value", &at, message);
                }
            }
        }
        for key in ["executor_id", "author"] {
            self.text(root, key);
        }
        if let Some(tags) = root.child("tags") {
            self.texts(&tags);
        }
        if let Some(limits) = root.child("limits") {
            self.key_warn(
                "no_effect",
                &limits,
                "`limits` binds threads; a graph run has `config.max_steps`",
            );
        }
    }

    /// The texts of a list.
    fn texts(&mut self, at: &At<'d>) -> Option<Vec<&'d str>> {
        let Value::Array(list) = at.value else {
            self.wrong_type(at, "a list of texts");
            return None;
        };
        let mut texts = Vec::with_capacity(list.len());
        for index in 0..list.len() {
            texts.push(self.text(at, &index.to_string()));
        }
        texts.into_iter().collect()
    }

    /// The declared patterns; `None` if there are none, or after an error.
    fn permissions(&mut self, root: &At<'d>) -> Option<Vec<String>> {
        let at = root.child("permissions")?;
        let patterns = self.texts(&at)?;
        let mut normalised = Vec::with_capacity(patterns.len());
        for (index, pattern) in patterns.into_iter().enumerate() {
            let entry = at.child(&index.to_string()).unwrap_or_else(|| at.clone());
            let now = capability::normalise(pattern);
            if now != pattern {
                let message = format!("`{pattern}` is read as `{now}`");
                self.warn("old_spelling", &entry, message);
            }
            if !now.starts_with("rye.") && !now.starts_with(['*', '[', '?']) {
                let message = format!(
                    "`{pattern}` allows nothing: patterns look like rye.execute.tool.rye.bash"
                );
                self.warn("no_effect", &entry, message);
            }
            normalised.push(now);
        }
        Some(normalised)
    }

    fn inputs(&mut self, root: &At<'d>) -> Option<Inputs> {
        let Some(at) = root.child("config_schema") else {
            return Some(Inputs::default());
        };
        if !at.value.is_object() {
            self.wrong_type(&at, "a JSON schema, a map");
            return None;
        }
        let inputs = Inputs::new(at.value)
            .map_err(|(below, message)| {
                let at = At {
                    value: at.value,
                    pointer: format!("{}{below}", at.pointer),
                };
                self.error("bad_schema", &at, message);
            })
            .ok()?;
        for (key, message) in inputs.bad_defaults() {
            let default = at
                .child("properties")
                .and_then(|properties| properties.child(&key))
                .and_then(|property| property.child("default"));
            let message = format!("the default of input `{key}` breaks its own schema: {message}");
            self.error(
                "bad_schema",
                &default.unwrap_or_else(|| at.clone()),
                message,
            );
        }
        Some(inputs)
    }

    /// A word of a closed list, if the key is there.
    fn stated<T: Copy + Default>(
        &mut self,
        config: &At<'d>,
        key: &'static str,
        words: &[(&str, T)],
    ) -> Option<T> {
        config.child(key)?;
        self.word(config, key, words)
    }

    fn max_steps(&mut self, config: &At<'d>) -> Option<u32> {
        let at = config.child("max_steps")?;
        let steps = at
            .value
            .as_u64()
            .and_then(|steps| u32::try_from(steps).ok());
        if steps.is_none() {
            let message = format!(
                "`max_steps` must be a whole number from 0 to {}, not `{}`",
                u32::MAX,
                brief(at.value)
            );
            self.error("wrong_type", &at, message);
        }
        steps
    }

    fn initial_state(&mut self, config: &At<'d>) -> Option<Object> {
        let Some(at) = config.child("state") else {
            return Some(Object::new());
        };
        let Value::Object(state) = at.value else {
            self.wrong_type(&at, "a map");
            return None;
        };
        if let Some(inputs) = at.child("inputs") {
            self.key_error(
                "bad_assign",
                &inputs,
                "`state.inputs` holds the inputs of the run; give defaults in `config_schema`",
            );
        }
        Some(state.clone())
    }

    fn nodes(&mut self, config: &At<'d>) -> Option<Nodes> {
        let Some(at) = config.child("nodes") else {
            self.error(
                "missing_key",
                config,
                "`nodes` is missing: a graph needs at least one node",
            );
            return None;
        };
        let Value::Object(map) = at.value else {
            self.wrong_type(&at, "a map of nodes by name");
            return None;
        };
        if map.is_empty() {
            self.error(
                "missing_key",
                &at,
                "`nodes` is empty: a graph needs at least one node",
            );
        }
        self.names = map.keys().map(String::as_str).collect();
        let mut nodes = Vec::with_capacity(map.len());
        for name in map.keys() {
            if let Some(at) = at.child(name) {
                self.node = Some(name.clone());
                nodes.push(self.read_node(name, &at));
                self.node = None;
            }
        }
        nodes.into_iter().collect()
    }

    fn start(&mut self, config: &At<'d>) -> Option<String> {
        let at = config.child("start");
        if at.is_none() {
            self.error(
                "missing_key",
                config,
                "`start` is missing: it names the first node",
            );
        }
        self.target(&at?)
    }
}

/// Whether a value of a key that is not supported asks for nothing.
fn is_inert(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::Array(list) => list.is_empty(),
        Value::Bool(true) | Value::Number(_) | Value::String(_) | Value::Object(_) => false,
    }
}

/// A value as it may stand inside a message.
pub(super) fn brief(value: &Value) -> String {
    let text = match value {
        Value::String(text) => text.clone(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => {
            value.to_string()
        }
    };
    shorten(&text)
}

/// The first 200 characters.
pub(super) fn shorten(text: &str) -> String {
    match text.char_indices().nth(200) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}
