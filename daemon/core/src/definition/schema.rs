//! A JSON Schema of graph files, for editors: they complete keys, show what a key is for, and mark what is no graph before anybody
//! validates it.
//!
//! The keys are those of [`keys`]: a test holds each list against the schema. It is looser than the parser, which knows nodes by name,
//! templates and conditions; **never** stricter, so that no editor marks what runs.

use serde_json::{Map, Value, json};

use super::hook::HookEvent;
use super::node;
use crate::expr::{COMBINATORS, OPS};
use crate::id::ItemKind;

/// The schema of a graph file.
pub fn schema() -> Value {
    let mut file = map(file_keys(), &["version", "tool_type", "category", "config"]);
    let members = [
        (
            "$schema",
            json!("https://json-schema.org/draft/2020-12/schema"),
        ),
        ("title", json!("A graph of Rye")),
        (
            "$defs",
            json!({
                "config": map(config_keys(), &["start", "nodes"]),
                "node": map(node_keys(), &[]),
                "edge": map(edge_keys(), &["to"]),
                "action": map(action_keys(), &[]),
                "hook": map(hook_keys(), &["event", "action"]),
                "hook_action": map(hook_action_keys(), &[]),
                "retry": map(retry_keys(), &[]),
                "condition": map(condition_keys(), &[]),
            }),
        ),
    ];
    if let Value::Object(file) = &mut file {
        file.extend(members.map(|(key, value)| (key.to_owned(), value)));
    }
    file
}

type Keys = Vec<(&'static str, Value)>;

/// A map with these keys and no others, but for those that are free.
fn map(keys: Keys, required: &[&str]) -> Value {
    let properties = keys.into_iter().map(|(key, of)| (key.to_owned(), of));
    json!({
        "type": "object",
        "properties": properties.collect::<Map<_, _>>(),
        "patternProperties": {"^x-": true},
        "additionalProperties": false,
        "required": required,
    })
}

/// What one of `types` is; null is as good as none.
fn of(types: &[&str], about: &str) -> Value {
    let types: Vec<&str> = types.iter().copied().chain(["null"]).collect();
    json!({"type": types, "description": about})
}

fn text(about: &str) -> Value {
    json!({"type": "string", "description": about})
}

fn flag(about: &str) -> Value {
    of(&["boolean"], about)
}

fn number(least: u32, about: &str) -> Value {
    json!({"type": ["integer", "null"], "minimum": least, "description": about})
}

fn time(about: &str) -> Value {
    of(&["number", "string"], about)
}

fn any(about: &str) -> Value {
    json!({"description": about})
}

fn word<'w>(words: impl IntoIterator<Item = &'w str>, about: &str) -> Value {
    let words = words.into_iter().map(Value::from).chain([Value::Null]);
    json!({"enum": words.collect::<Vec<_>>(), "description": about})
}

fn texts(about: &str) -> Value {
    json!({"type": "array", "items": {"type": "string"}, "description": about})
}

fn names(about: &str) -> Value {
    json!({"type": ["string", "array", "null"], "items": {"type": "string"}, "description": about})
}

fn def(name: &str) -> Value {
    json!({"$ref": format!("#/$defs/{name}")})
}

/// What `name` is, or null.
fn or_null(name: &str, about: &str) -> Value {
    json!({"anyOf": [def(name), {"type": "null"}], "description": about})
}

fn file_keys() -> Keys {
    vec![
        ("version", text("Three numbers, in quotes: \"1.0.0\".")),
        ("tool_type", json!({"const": "graph"})),
        ("executor_id", text("rye/core/runtimes/state-graph/runtime")),
        (
            "category",
            text("The folder of the file below `.ai/tools`."),
        ),
        ("name", text("The file without its ending.")),
        ("description", text("What the graph is for.")),
        ("author", text("Who wrote it.")),
        ("tags", texts("What else it is about.")),
        ("title", text("What it is called, for people.")),
        ("license", text("For people.")),
        ("references", any("For people.")),
        ("created_at", any("For people.")),
        (
            "permissions",
            texts(
                "What its actions may do, such as rye.execute.tool.rye.bash; everything else is refused.",
            ),
        ),
        (
            "env_requires",
            names("Variables without which it does not start."),
        ),
        (
            "config_schema",
            of(
                &["object"],
                "A JSON Schema of its inputs, with their defaults.",
            ),
        ),
        (
            "limits",
            of(
                &["object"],
                "`spend`, `spawns` and `depth` of the run; `turns`, `tokens` and `duration` of each thread that it starts.",
            ),
        ),
        ("config", def("config")),
        (
            "tool_id",
            any("Of the original; nothing here depends on it."),
        ),
        (
            "execution_owner",
            any("Of the original; nothing here depends on it."),
        ),
        (
            "native_async",
            any("Of the original; nothing here depends on it."),
        ),
        (
            "native_resume",
            any("Of the original; nothing here depends on it."),
        ),
    ]
}

fn config_keys() -> Keys {
    let nodes = json!({"type": "object", "minProperties": 1, "additionalProperties": def("node"), "description": "The nodes by their names."});
    let hooks = json!({"type": ["array", "null"], "items": def("hook"), "description": "What is done, or answered, at events of the run."});
    vec![
        ("start", text("The first node.")),
        ("nodes", nodes),
        (
            "max_steps",
            number(0, "After how many steps the run ends; 100 unless set."),
        ),
        (
            "on_error",
            word(
                ["fail", "continue"],
                "Whether a failed node without an error edge ends the run.",
            ),
        ),
        ("hooks", hooks),
        (
            "state",
            json!({"type": "object", "description": "The state that a run begins with, literally."}),
        ),
        (
            "timeout",
            time("How long the run may take: seconds, or 90s, 1h30m."),
        ),
        (
            "recovery",
            word(
                ["resume", "suspend"],
                "What becomes of a run after the daemon was gone.",
            ),
        ),
        (
            "durability",
            word(
                ["strict", "relaxed"],
                "Whether each step is on disk before the next one begins.",
            ),
        ),
        (
            "max_concurrency",
            number(1, "How many items of one node may be in flight."),
        ),
    ]
}

fn node_keys() -> Keys {
    let next = json!({"anyOf": [{"type": ["string", "null"]}, {"type": "array", "items": def("edge")}], "description": "The next node, or edges, of which the first counts that holds."});
    let retry = json!({"anyOf": [{"type": ["integer", "null"], "minimum": 0}, def("retry")], "description": "How often a failed action is tried again; 0 never."});
    let branches = json!({"type": ["object", "null"], "minProperties": 1, "additionalProperties": def("action"), "description": "Of `parallel`: the actions by their names."});
    let mut keys = vec![
        ("type", word(node::TYPES, "None for a node with an action.")),
        ("action", or_null("action", "The item that it uses.")),
        (
            "assign",
            of(
                &["object"],
                "Keys of the state, and templates such as ${result.stdout}.",
            ),
        ),
        ("next", next),
        (
            "on_error",
            of(&["string"], "The node that a failure leads to."),
        ),
        (
            "over",
            any("Of `foreach`: the list, such as ${state.files}."),
        ),
        (
            "as",
            of(
                &["string"],
                "Of `foreach`: what an item is called; `item` unless set.",
            ),
        ),
        (
            "collect",
            of(
                &["string"],
                "Of `foreach`: the key of the state that gets the results.",
            ),
        ),
        (
            "collect_value",
            any("Of `foreach`: what is collected of an item, a template."),
        ),
        ("parallel", flag("Of `foreach`: several items at once.")),
        (
            "max_concurrency",
            number(1, "How many items or branches at once."),
        ),
        (
            "on_item_error",
            word(
                ["fail", "collect"],
                "Whether a failed item or branch fails the node.",
            ),
        ),
        ("retry", retry),
        ("branches", branches),
    ];
    keys.extend(node_values());
    keys
}

/// Those that are a value and no structure of their own.
fn node_values() -> Keys {
    vec![
        (
            "env_requires",
            names("Variables without which the node fails."),
        ),
        (
            "cache_result",
            flag("Whether an equal call takes the result of the one before."),
        ),
        (
            "timeout",
            time("How long it may take: seconds, or 90s, 1h30m."),
        ),
        (
            "effect",
            word(
                ["idempotent", "pure", "at_most_once"],
                "What a second execution means.",
            ),
        ),
        (
            "output",
            any("Of `return` and `fail`: what the run comes to, a template."),
        ),
        (
            "message",
            of(&["string"], "Of `fail`: why. Of `approval`: what is asked."),
        ),
        ("code", of(&["string"], "Of `fail`: a word for programs.")),
        ("schema", any("Of `approval`: a JSON Schema of the answer.")),
        ("for", time("Of `wait`: how long.")),
        ("until", of(&["string"], "Of `wait`: until when, RFC 3339.")),
        ("comment", text("For people.")),
        ("description", text("For people.")),
    ]
}

fn edge_keys() -> Keys {
    vec![
        ("to", text("The next node.")),
        (
            "when",
            or_null("condition", "What has to hold; nothing means always."),
        ),
    ]
}

fn action_keys() -> Keys {
    let kinds = || {
        word(
            ItemKind::ALL.map(ItemKind::as_str),
            "The type of the item; a tool unless set.",
        )
    };
    vec![
        (
            "primary",
            any("execute, fetch or sign; execute unless set."),
        ),
        ("item_type", kinds()),
        ("kind", kinds()),
        ("item_id", of(&["string"], "The item, such as rye/bash.")),
        ("params", any("What it is called with: templates.")),
    ]
}

fn hook_keys() -> Keys {
    vec![
        ("id", of(&["string"], "Its name in logs.")),
        (
            "event",
            json!({"enum": HookEvent::ALL.map(HookEvent::as_str), "description": "When it is asked."}),
        ),
        (
            "condition",
            or_null("condition", "What has to hold; nothing means always."),
        ),
        ("action", def("hook_action")),
        ("layer", number(1, "1 in a graph.")),
        ("description", of(&["string"], "For people.")),
    ]
}

fn hook_action_keys() -> Keys {
    let mut keys = action_keys();
    keys.push(("retry", flag("Tries the failed node again.")));
    keys.push(("max_retries", number(0, "How often.")));
    keys
}

fn retry_keys() -> Keys {
    vec![
        ("max", number(0, "Most tries after the first.")),
        ("max_retries", number(0, "As `max`.")),
        (
            "backoff",
            word(["none", "fixed", "exponential"], "How the pauses grow."),
        ),
        ("delay", time("A fixed pause.")),
        ("base", time("The first of growing pauses.")),
        ("max_delay", time("The longest of growing pauses.")),
    ]
}

fn condition_keys() -> Keys {
    let op = || word(OPS.into_iter().chain(["neq"]), "How they are compared.");
    let [all, both, not] = COMBINATORS;
    let several = json!({"type": "array", "items": def("condition")});
    vec![
        ("path", text("The value, such as state.n.")),
        ("op", op()),
        ("operator", op()),
        ("value", any("What it is compared with, literally.")),
        (
            "value_path",
            text("The other value that it is compared with."),
        ),
        (all, several.clone()),
        (both, several),
        (not, def("condition")),
    ]
}

#[cfg(test)]
pub(super) mod tests;
