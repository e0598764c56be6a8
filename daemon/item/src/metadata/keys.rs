//! The closed list of keys of a tool, and their positions in a file.

use rye_core::declared::is_free;
use rye_core::expr::nearest;
use rye_core::yaml;
use serde_json::{Map, Value, json};

use super::{Error, MOST_RESULT, Unread, document};

/// Keys that are read, in every notation.
pub(super) const READ: [&str; 19] = [
    "version",
    "tool_type",
    "executor_id",
    "category",
    "name",
    "description",
    "effect",
    "config_schema",
    "input_schema",
    "env_config",
    "config",
    "config_resolve",
    "inputs",
    "outputs",
    "child_constraints",
    "env_requires",
    "anchor",
    "verify_deps",
    "result_limit",
];

/// Keys for people.
const INFORMATIVE: [&str; 6] = [
    "author",
    "tags",
    "title",
    "license",
    "references",
    "created_at",
];

/// Known keys that this release does not implement.
const LATER: [&str; 3] = ["permissions", "isolation", "resources"];

/// Keys by which the original decided how to start an item.
const IGNORED: [&str; 4] = [
    "execution_owner",
    "native_async",
    "native_resume",
    "tool_id",
];

/// JSON Schema of a tool written as YAML, for editors. It accepts everything that the reader of tools accepts, and
/// more.
pub(super) fn schema() -> Value {
    let (text, object, names) = (json!("string"), json!("object"), json!("array"));
    let of = |key: &str| match key {
        "version" | "tool_type" | "executor_id" | "category" | "name" | "description" => {
            Some(&text)
        }
        "config_schema" | "input_schema" | "env_config" | "config" | "child_constraints"
        | "anchor" | "verify_deps" => Some(&object),
        "inputs" | "outputs" | "env_requires" => Some(&names),
        _ => None,
    };
    let property = |key: &'static str| {
        let mut schema = match (key, of(key)) {
            ("effect", _) => json!({"enum": ["pure", "idempotent", "at_most_once", null]}),
            ("result_limit", _) => {
                json!({"type": ["integer", "null"], "minimum": 1, "maximum": MOST_RESULT})
            }
            (_, Some(kind)) => json!({"type": [kind, "null"]}),
            (_, None) => json!({}),
        };
        schema["description"] = json!(about(key));
        (key.to_owned(), schema)
    };
    let keys = READ.into_iter().chain(INFORMATIVE).chain(IGNORED);
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "A tool of Rye",
        "type": "object",
        "properties": keys.map(property).collect::<Map<_, _>>(),
        "patternProperties": {"^x-": true},
        "additionalProperties": false,
        "required": ["version", "tool_type", "category"],
    })
}

/// Description of a key.
fn about(key: &str) -> &'static str {
    match key {
        "version" => "Three numbers, in quotes: \"1.0.0\".",
        "tool_type" => "Such as python, bash, http, mcp; a graph has a schema of its own.",
        "executor_id" => "The runtime or primitive that runs it, such as rye/core/runtimes/bash.",
        "category" => "The folder of the file below `.ai/tools`.",
        "name" => "The file without its ending.",
        "description" => "What the tool does: people and models read it.",
        "effect" => "What a second execution means: pure, idempotent or at_most_once.",
        "config_schema" => "A JSON Schema of its parameters, with their defaults.",
        "input_schema" => "The schema of the parameters of a tool of another server.",
        "env_config" => "Interpreter and environment.",
        "config" => "Settings, merged along the chain; the tool wins over its runtime.",
        "config_resolve" => "The configuration it is given: {path, mode}, or a list of these.",
        "inputs" => "What an executor takes.",
        "outputs" => "What it hands to its executor.",
        "child_constraints" => "Which versions an executor runs: {min_version, max_version}.",
        "env_requires" => "Variables without which it does not start.",
        "anchor" => "How the files of a tool of several are found.",
        "verify_deps" => "Which of its files have to be verified.",
        "result_limit" => "Most bytes of its result that a model is told whole.",
        _ if IGNORED.contains(&key) => "Of the original; nothing here depends on it.",
        _ => "For people.",
    }
}

/// Fields of a tool by their YAML names, with their positions.
#[derive(Debug)]
pub(super) struct Fields {
    pub(super) values: Map<String, Value>,
    places: Places,
}

#[derive(Debug)]
enum Places {
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
            places: Places::Lines(Vec::new()),
        }
    }

    /// Reads the fields of a YAML text. `above` is the number of lines above it in its file.
    pub(super) fn of_yaml(text: &str, above: usize) -> Result<Self, Error> {
        let (document, values) = document(text, above)?;
        Ok(Self {
            values,
            places: Places::Yaml(above, document),
        })
    }

    /// Adds a field from `line`; the last one of a name wins.
    pub(super) fn put(&mut self, field: &str, value: Value, line: usize) {
        self.values.insert(field.to_owned(), value);
        if let Places::Lines(lines) = &mut self.places {
            lines.push((field.to_owned(), line));
        }
    }

    /// Line of the value at the JSON pointer, or of its nearest ancestor with a known position.
    pub(super) fn line(&self, pointer: &str) -> Option<usize> {
        match &self.places {
            Places::Yaml(above, document) => Some(above + document.key_position(pointer).line),
            Places::Lines(lines) => {
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
        keys.filter(|key| IGNORED.contains(&key.as_str()))
            .cloned()
            .collect()
    }

    /// Keys whose requested behaviour is missing.
    pub(super) fn unread(&self) -> Vec<Unread> {
        let is_read = |key: &str| {
            READ.contains(&key)
                || INFORMATIVE.contains(&key)
                || IGNORED.contains(&key)
                || is_free(key)
        };
        let unread = self.values.keys().filter(|key| !is_read(key));
        unread
            .map(|key| {
                let mut pointer = String::new();
                yaml::push_segment(&mut pointer, key);
                let is_known = LATER.contains(&key.as_str());
                let known = READ.into_iter().chain(INFORMATIVE).chain(LATER);
                Unread {
                    key: key.clone(),
                    line: self.line(&pointer),
                    is_known,
                    near: if is_known { None } else { nearest(key, known) },
                }
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reference_lists_the_keys_of_tool_files() {
        let known = READ.into_iter().chain(INFORMATIVE);
        let known = known.chain(LATER).chain(IGNORED);
        rye_pages::Table::read("docs/reference.md", "tool file").assert_lists(known);
    }
}
