//! Names that templates and conditions start at, and inputs they ask for.

use std::collections::HashSet;

use serde_json::Value;

use super::action::Actor;
use super::paths::{Part, Read, Reads, segments};
use super::read::{At, Reader};
use super::{Graph, Work};

/// Names there are everywhere.
pub(super) const EVERYWHERE: [&str; 4] = ["state", "inputs", "_now", "_timestamp"];
/// Keys of a schema that can allow inputs beyond `properties`.
const OPEN: [&str; 7] = [
    "$ref",
    "allOf",
    "anyOf",
    "oneOf",
    "if",
    "patternProperties",
    "dependentSchemas",
];

/// Warns of names that do not exist where they are read, and of inputs the schema does not declare.
pub(super) fn check(reader: &mut Reader<'_>, graph: &Graph, reads: &Reads) {
    let declared = declared(graph);
    required(reader, declared);
    reader.each_actor(graph, |reader, at, actor| {
        let has_result = match actor {
            Actor::Node(_, node) => match node.work {
                Work::Action(_) | Work::Foreach(_) | Work::Approval(_) | Work::Parallel(_) => true,
                Work::Gate | Work::Return { .. } | Work::Fail(_) | Work::Wait(_) => false,
            },
            Actor::Hook(..) => true,
        };
        check_reads(reader, at, reads.of_actor(&actor), has_result, declared);
    });
}

/// Warns of inputs that are required and not declared.
fn required(reader: &mut Reader<'_>, declared: Option<&serde_json::Map<String, Value>>) {
    let schema = reader.root().child("config_schema");
    let required = schema.and_then(|schema| schema.child("required"));
    let (Some(required), Some(declared)) = (required, declared) else {
        return;
    };
    for (index, name) in required.value.as_array().into_iter().flatten().enumerate() {
        if let Some(name) = name.as_str().filter(|name| !declared.contains_key(*name)) {
            let hint = reader
                .nearest(name, declared.keys().map(String::as_str))
                .map_or_else(String::new, |near| format!(" (did you mean `{near}`?)"));
            let message = format!(
                "`required` names `{name}`, which is not among the `properties`{hint}: no type is checked"
            );
            reader.warn_below("undeclared_input", &required, &format!("/{index}"), message);
        }
    }
}

/// The properties of a schema that names all inputs.
fn declared(graph: &Graph) -> Option<&serde_json::Map<String, Value>> {
    let schema = graph.inputs.schema()?;
    if OPEN.iter().any(|key| schema.get(key).is_some()) {
        return None;
    }
    schema.get("properties")?.as_object()
}

fn check_reads<'d>(
    reader: &mut Reader<'d>,
    at: &At<'d>,
    reads: &[Read],
    has_result: bool,
    declared: Option<&serde_json::Map<String, Value>>,
) {
    let mut warned = HashSet::new();
    for read in reads {
        let known = names(read.part, has_result);
        let root = read.root();
        if !known.contains(&root) {
            if warned.insert(root) {
                let message = unknown(reader, read, &known);
                reader.warn_below("unknown_name", at, &read.at, message);
            }
        } else if let (Some(input), Some(declared)) = (input(&read.path), declared)
            && !declared.contains_key(input)
            && warned.insert(&read.path)
        {
            let hint = reader
                .nearest(input, declared.keys().map(String::as_str))
                .map_or_else(String::new, |near| {
                    format!(" (did you mean inputs.{near}?)")
                });
            let message =
                format!("reads inputs.{input}, which `config_schema` does not declare{hint}");
            reader.warn_below("undeclared_input", at, &read.at, message);
        }
    }
}

/// The names there are in a part of a node.
fn names(part: Part, has_result: bool) -> Vec<&'static str> {
    let mut names = EVERYWHERE.to_vec();
    match part {
        Part::Assign | Part::Next if has_result => names.push("result"),
        Part::Over | Part::Action | Part::Assign | Part::Next | Part::Output => {}
        Part::Hook(event) => names.extend(event.names()),
    }
    names
}

fn unknown(reader: &mut Reader<'_>, read: &Read, known: &[&str]) -> String {
    let path = &read.path;
    match (read.root(), read.part) {
        ("result", Part::Action | Part::Over) => format!(
            "reads {path}, but `result` is there only in `assign` and `next` of the node; assign what later nodes need"
        ),
        ("result", Part::Assign | Part::Next | Part::Output) => {
            format!("reads {path}, but this node runs nothing and has no `result`")
        }
        (root, part) => {
            let event = match part {
                Part::Hook(event) => format!(" at the event `{}`", event.as_str()),
                Part::Over | Part::Action | Part::Assign | Part::Next | Part::Output => {
                    String::new()
                }
            };
            let hint = reader
                .nearest(root, known.iter().copied())
                .map_or_else(String::new, |near| format!(" (did you mean `{near}`?)"));
            format!(
                "reads {path}, but there is no `{root}` here{event}{hint}; there are {}",
                known.join(", ")
            )
        }
    }
}

/// `name` of `inputs.name…` and `state.inputs.name…`.
fn input(path: &str) -> Option<&str> {
    let mut segments = segments(path);
    match (segments.next()?, segments.next()?) {
        ("inputs", name) => Some(name),
        ("state", "inputs") => segments.next(),
        _ => None,
    }
}
