//! Inputs that templates and conditions read, but the schema does not declare.

use std::collections::HashSet;

use super::graph::Graph;
use super::paths::{Read, Reads};
use super::read::{At, Reader};
use super::segments::segments;
use crate::expr::did_you_mean;
use crate::model::Object;

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

/// Warns of inputs the schema does not declare.
pub(super) fn check(reader: &mut Reader<'_>, graph: &Graph, reads: &Reads) {
    let Some(declared) = declared(graph) else {
        return;
    };
    required(reader, declared);
    reader.each_actor(graph, |reader, at, actor| {
        check_reads(reader, at, reads.of_actor(&actor), declared);
    });
}

/// Warns of inputs that are required and not declared.
fn required(reader: &mut Reader<'_>, declared: &Object) {
    let schema = reader.root().child("config_schema");
    let required = schema.and_then(|schema| schema.child("required"));
    let Some(required) = required else {
        return;
    };
    for (index, name) in required.value.as_array().into_iter().flatten().enumerate() {
        if let Some(name) = name.as_str().filter(|name| !declared.contains_key(*name)) {
            let hint = did_you_mean(reader.nearest(name, declared.keys().map(String::as_str)));
            let message = format!(
                "`required` names `{name}`, which is not among the `properties`{hint}: no type is checked"
            );
            reader.warn(
                "undeclared_input",
                required.at(&format!("/{index}")),
                message,
            );
        }
    }
}

/// Returns the properties of a schema that names all inputs.
fn declared(graph: &Graph) -> Option<&Object> {
    let schema = graph.inputs.schema()?;
    if OPEN.iter().any(|key| schema.get(key).is_some()) {
        return None;
    }
    schema.get("properties")?.as_object()
}

fn check_reads<'d>(reader: &mut Reader<'d>, at: &At<'d>, reads: &[Read], declared: &Object) {
    let mut warned = HashSet::new();
    for read in reads {
        let Some(input) = input(&read.path).filter(|input| !declared.contains_key(*input)) else {
            continue;
        };
        if warned.insert(&read.path) {
            let hint = reader
                .nearest(input, declared.keys().map(String::as_str))
                .map_or_else(String::new, |near| {
                    format!(" (did you mean inputs.{near}?)")
                });
            let message =
                format!("reads inputs.{input}, which `config_schema` does not declare{hint}");
            reader.warn("undeclared_input", at.at(&read.at), message);
        }
    }
}

/// Returns `name` of `inputs.name…` and `state.inputs.name…`.
fn input(path: &str) -> Option<&str> {
    let mut segments = segments(path);
    match (segments.next()?, segments.next()?) {
        ("inputs", name) => Some(name),
        ("state", "inputs") => segments.next(),
        _ => None,
    }
}
