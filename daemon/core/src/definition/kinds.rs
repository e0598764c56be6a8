//! Types of inputs and state, as far as a file states them, and conditions that cannot hold with them.

use std::collections::{BTreeSet, HashMap};

use serde_json::Value;

use super::actor::Actor;
use super::graph::Graph;
use super::read::Reader;
use super::segments::segments;
use super::work::{Next, Work};
use crate::expr::{Condition, Kind, Known, kind_of_template};

/// Types that nodes and the initial state assign to a key; `None` if the type of some assigned value is unknown.
type States<'g> = HashMap<&'g str, Option<BTreeSet<Kind>>>;

/// Warns of conditions that have the same result in every run.
pub(super) fn check(reader: &mut Reader<'_>, graph: &Graph) {
    let states = states(graph);
    let known = |path: &str| known(graph, &states, path);
    reader.each_actor(graph, |reader, at, actor| {
        let mut check = |below: &str, condition: &Option<Condition>| {
            let misfits = condition
                .as_ref()
                .map(|condition| condition.misfits(&known));
            reader.adopt(
                "impossible_condition",
                at.at(below),
                misfits.unwrap_or_default(),
            );
        };
        match actor {
            Actor::Node(_, node) => {
                if let Next::Edges(edges) = &node.next {
                    for (index, edge) in edges.iter().enumerate() {
                        check(&format!("/next/{index}/when"), &edge.when);
                    }
                }
            }
            Actor::Hook(_, hook) => check("/condition", &hook.condition),
        }
    });
}

/// Returns the types of the keys of the state.
fn states(graph: &Graph) -> States<'_> {
    let mut states = States::new();
    let mut note = |key, kind: Option<Kind>| {
        let kinds = states.entry(key).or_insert_with(|| Some(BTreeSet::new()));
        match (kinds.as_mut(), kind) {
            (Some(known), Some(kind)) => drop(known.insert(kind)),
            (Some(_), None) => *kinds = None,
            (None, _) => {}
        }
    };
    for (key, value) in &graph.state {
        note(key.as_str(), Some(Kind::of(value)));
    }
    for node in &graph.nodes {
        for (key, template) in &node.assign {
            note(key, kind_of_template(template));
        }
        if let Work::Foreach(foreach) = &node.work {
            note(&foreach.variable, None);
            if let Some(key) = &foreach.collect {
                note(key, Some(Kind::List));
            }
        }
    }
    states
}

/// Returns the known types and values at `path`.
fn known<'g>(graph: &'g Graph, states: &States<'_>, path: &str) -> Option<Known<'g>> {
    let all: Vec<&str> = segments(path).collect();
    match all.as_slice() {
        ["inputs", below @ ..] | ["state", "inputs", below @ ..] if !below.is_empty() => {
            of_schema(graph.inputs.schema()?, below)
        }
        ["state", key] => states.get(key)?.clone().map(only),
        ["_now"] => Some(only(BTreeSet::from([Kind::Text]))),
        ["_timestamp"] => Some(only(BTreeSet::from([Kind::Number]))),
        _ => None,
    }
}

fn only<'v>(kinds: BTreeSet<Kind>) -> Known<'v> {
    Known {
        kinds,
        choices: None,
    }
}

/// Returns the types and values that a JSON schema declares at a path below it.
fn of_schema<'g>(schema: &'g Value, path: &[&str]) -> Option<Known<'g>> {
    let declared = path
        .iter()
        .try_fold(schema, |schema, key| schema.get("properties")?.get(*key))?;
    let choices = declared.get("enum").and_then(Value::as_array);
    if let Some(choices) = choices {
        return Some(Known {
            kinds: choices.iter().map(Kind::of).collect(),
            choices: Some(choices),
        });
    }
    let names: Vec<&str> = match declared.get("type")? {
        Value::String(one) => vec![one],
        Value::Array(list) => list.iter().filter_map(Value::as_str).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => return None,
    };
    let kinds = names.into_iter().map(|name| match name {
        "null" => Some(Kind::Null),
        "boolean" => Some(Kind::Bool),
        "integer" | "number" => Some(Kind::Number),
        "string" => Some(Kind::Text),
        "array" => Some(Kind::List),
        "object" => Some(Kind::Map),
        _ => None,
    });
    Some(only(kinds.collect::<Option<_>>()?))
}
