//! The closed list of keys of a tool, and their positions in a file.

use rye_core::callers::Callers;
use rye_core::declared::types::{any, list, object, optional_text, word};
use rye_core::declared::{Key, Keys, unknown_keys};
use rye_core::expr::nearest;
use rye_core::model::Isolation;
use rye_core::yaml;
use serde_json::{Map, Value, json};

use super::{Error, MOST_RESULT, Unread, document};

/// Keys by which the original decided how to start an item.
const IGNORED: [&str; 5] = [
    "execution_owner",
    "native_async",
    "native_resume",
    "requires",
    "tool_id",
];

/// Keys that the original's discovery writes into the file of a server, without effect.
const IGNORED_OF_SERVERS: [&str; 1] = ["cache"];

/// Keys that are read, in every notation.
#[rustfmt::skip]
pub(super) const TOOL: Keys = Keys {
    required: &[("version", ""), ("tool_type", ""), ("category", "")],
    ..Keys::new("a tool", &[
        Key(&["version"], optional_text, "Three numbers, in quotes: \"1.0.0\"."),
        Key(&["tool_type"], optional_text, "Such as python, bash, http, mcp; a graph has a schema of its own."),
        Key(&["executor_id"], optional_text, "The runtime or primitive that runs it, such as rye/core/runtimes/bash."),
        Key(&["category"], optional_text, "The folder of the file below `.ai/tools`."),
        Key(&["name"], optional_text, "The file without its ending."),
        Key(&["description"], optional_text, "What the tool does: people and models read it."),
        Key(&["effect"], || word(["pure", "idempotent", "at_most_once"]), "What a second execution means: pure, idempotent or at_most_once."),
        Key(&["callers"], Callers::schema, "Who may call it: model, code, graph, person; all of them unless set."),
        Key(&["output"], || word(["text", "json", "auto"]), "What its process prints: text, one JSON document, or auto: JSON if it is an object or a list."),
        Key(&["permissions"], list, "What its program may call through the daemon, as patterns such as rye.execute.tool.team.*; an empty list forbids calls."),
        Key(&["replay"], || word(["ordered"]), "ordered: its program has no effects but its calls, and makes the same calls in the same order each time."),
        Key(&["isolation"], || word(Isolation::ALL.map(Isolation::as_str)), "What its processes may reach: none, scoped, sandbox; scoped unless set."),
        Key(&["resources"], object, "Limits of its processes: {memory, pids, cpu}, such as {memory: 2GiB, pids: 500, cpu: 1.5}."),
        Key(&["config_schema"], object, "A JSON Schema of its parameters, with their defaults."),
        Key(&["input_schema"], object, "The schema of the parameters of a tool of another server."),
        Key(&["env_config"], object, "Interpreter and environment."),
        Key(&["config"], object, "Settings, merged along the chain; the tool wins over its runtime."),
        Key(&["config_resolve"], any, "The configuration it is given: {path, mode}, or a list of these."),
        Key(&["inputs"], list, "What an executor takes."),
        Key(&["outputs"], list, "What it hands to its executor."),
        Key(&["child_constraints"], object, "Which versions an executor runs: {min_version, max_version}."),
        Key(&["env_requires"], list, "Variables without which it does not start."),
        Key(&["anchor"], object, "How the files of a tool of several are found."),
        Key(&["verify_deps"], object, "Which of its files have to be verified."),
        Key(&["result_limit"], || json!({"type": ["integer", "null"], "minimum": 1, "maximum": MOST_RESULT}), "Most bytes of its result that a model gets whole."),
        Key(&["author", "tags", "title", "license", "references", "created_at"], any, "For people."),
        Key(&IGNORED, any, "Of the original; nothing here depends on it."),
    ])
};

/// Returns the JSON Schema of a tool written as YAML, for editors. It accepts everything that the reader of tools
/// accepts, and more.
pub(super) fn schema() -> Value {
    TOOL.schema_of_file("A tool of Rye")
}

/// Fields of a tool by their YAML names, with their positions.
#[derive(Debug)]
pub(super) struct Fields {
    pub(super) values: Map<String, Value>,
    positions: FieldPositions,
}

#[derive(Debug)]
enum FieldPositions {
    /// Line of each field.
    Lines(Vec<(String, usize)>),
    /// Number of lines above a YAML text, and that text.
    Yaml(usize, yaml::Document),
}

impl Fields {
    /// Makes an empty set of fields for a notation that records one line for each.
    pub(super) fn new() -> Self {
        Self {
            values: Map::new(),
            positions: FieldPositions::Lines(Vec::new()),
        }
    }

    /// Reads the fields of a YAML text. `above` is the number of lines above it in its file.
    pub(super) fn of_yaml(text: &str, above: usize) -> Result<Self, Error> {
        let (document, values) = document(text, above)?;
        Ok(Self {
            values,
            positions: FieldPositions::Yaml(above, document),
        })
    }

    /// Adds a field from `line`; the last one of a name wins.
    pub(super) fn put(&mut self, field: &str, value: Value, line: usize) {
        self.values.insert(field.to_owned(), value);
        if let FieldPositions::Lines(lines) = &mut self.positions {
            lines.push((field.to_owned(), line));
        }
    }

    /// Line of the value at the JSON pointer, or of its nearest ancestor with a known position.
    pub(super) fn line(&self, pointer: &str) -> Option<usize> {
        match &self.positions {
            FieldPositions::Yaml(above, document) => {
                Some(above + document.key_position(pointer).line)
            }
            FieldPositions::Lines(lines) => {
                let field = pointer.split('/').nth(1)?;
                let mut last = lines.iter().rev();
                last.find(|(known, _)| known == field)
                    .map(|(_, line)| *line)
            }
        }
    }

    /// Keys of the original that have no effect.
    pub(super) fn ignored(&self) -> Vec<String> {
        let keys = self.values.keys();
        let inert = [&IGNORED, self.inert_of_type()].concat();
        let mut ignored: Vec<String> = keys
            .filter(|key| inert.contains(&key.as_str()))
            .cloned()
            .collect();
        if self
            .values
            .get("verify_deps")
            .is_some_and(|deps| deps.get("recursive").is_some())
        {
            ignored.push("verify_deps.recursive".to_owned());
        }
        ignored
    }

    /// Keys without effect in a file of this type only.
    fn inert_of_type(&self) -> &'static [&'static str] {
        let is_server = self
            .values
            .get("tool_type")
            .is_some_and(|kind| kind == "mcp_server");
        if is_server { &IGNORED_OF_SERVERS } else { &[] }
    }

    /// Keys whose requested behaviour is missing.
    pub(super) fn unread(&self) -> Vec<Unread> {
        let inert = self.inert_of_type().iter().copied();
        let unread = unknown_keys(&self.values, TOOL.known().chain(inert));
        unread
            .map(|key| {
                let mut pointer = String::new();
                yaml::push_segment(&mut pointer, key);
                let known = TOOL.known().filter(|known| !IGNORED.contains(known));
                Unread {
                    key: key.to_owned(),
                    line: self.line(&pointer),
                    suggestion: nearest(key, known),
                }
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reference_lists_tool_file_keys() {
        let known = TOOL.known();
        rye_pages::Table::read("docs/reference.md", "tool file").assert_lists(known);
    }
}
