//! The tables of keys of graph files, and the JSON Schema of them for editors.
//!
//! The schema is looser than the parser, which knows nodes by name, templates and conditions. It is **never** stricter,
//! so that no editor reports a file that runs.

use serde_json::{Value, json};

use super::hook::HookEvent;
use crate::callers::Callers;
use crate::declared::types::{
    any, defined, names, object, optional_defined, optional_text, switch, text, texts, time, whole,
    word,
};
use crate::declared::{Key, Keys};
use crate::expr::{COMBINATORS, OPS};
use crate::id::ItemKind;

/// The values of a node's `type`.
pub(super) const TYPES: [&str; 8] = [
    "return", "gate", "foreach", "fail", "wait", "approval", "parallel", "service",
];

/// Keys of a file from which the original derived the way to start it.
pub(super) const IGNORED: [&str; 4] = [
    "tool_id",
    "execution_owner",
    "native_async",
    "native_resume",
];

#[rustfmt::skip]
pub(super) const FILE: Keys = Keys {
    what: "a graph file",
    keys: &[
        Key(&["version"], text, "Three numbers, in quotes: \"1.0.0\"."),
        Key(&["tool_type"], || json!({"const": "graph"}), ""),
        Key(&["executor_id"], text, "rye/core/runtimes/state-graph/runtime"),
        Key(&["category"], text, "The folder of the file below `.ai/tools`."),
        Key(&["name"], text, "The file without its ending."),
        Key(&["description"], text, "What the graph is for."),
        Key(&["author"], text, "Who wrote it."),
        Key(&["tags"], texts, "What else it is about."),
        Key(&["title"], text, "What it is called, for people."),
        Key(&["license"], text, "For people."),
        Key(&["references", "created_at"], any, "For people."),
        Key(&["permissions"], texts, "What its actions may do, such as rye.execute.tool.rye.bash; everything else is refused."),
        Key(&["callers"], Callers::schema, "Who may call it: model, code, graph, person; all of them unless set."),
        Key(&["env_requires"], names, "Variables without which it does not start."),
        Key(&["config_schema"], object, "A JSON Schema of its inputs, with their defaults."),
        Key(&["limits"], object, "`spend`, `spawns` and `depth` of the run; `turns`, `tokens` and `duration` of each thread that it starts."),
        Key(&["config"], || defined("config"), ""),
        Key(&IGNORED, any, "Of the original; nothing here depends on it."),
    ],
    required: &[
        ("tool_type", "write tool_type: graph"),
        ("version", "write version: \"1.0.0\""),
        ("category", "it is the directory of the file below `.ai/tools`"),
        ("config", "it holds `start` and `nodes`"),
    ],
    misplaced: &[
        ("start", "it belongs below `config`"),
        ("nodes", "it belongs below `config`"),
        ("max_steps", "it belongs below `config`"),
        ("hooks", "it belongs below `config`"),
        ("on_error", "it belongs below `config`"),
        ("state", "it belongs below `config`"),
    ],
};

#[rustfmt::skip]
pub(super) const CONFIG: Keys = Keys {
    what: "`config`",
    keys: &[
        Key(&["start"], text, "The first node."),
        Key(&["nodes"], || json!({"type": "object", "minProperties": 1, "additionalProperties": defined("node")}), "The nodes by their names."),
        Key(&["max_steps"], || whole(0), "After how many steps the run ends; 100 unless set."),
        Key(&["on_error"], || word(["fail", "continue"]), "Whether a failed node without an error edge ends the run."),
        Key(&["hooks"], || list_of("hook"), "What is done, or answered, at events of the run."),
        Key(&["state"], || json!({"type": "object"}), "The state that a run begins with, literally."),
        Key(&["timeout"], time, "How long the run may take: seconds, or 90s, 1h30m."),
        Key(&["recovery"], || word(["resume", "suspend"]), "What becomes of a run after the daemon was gone."),
        Key(&["durability"], || word(["strict", "relaxed"]), "Whether each step is on disk before the next one begins."),
        Key(&["max_concurrency"], || whole(1), "How many items of one node may be in flight."),
    ],
    required: &[
        ("nodes", "a graph needs at least one node"),
        ("start", "it names the first node"),
    ],
    misplaced: &[
        ("env_requires", "it belongs at the top of the file"),
        ("permissions", "it belongs at the top of the file"),
        ("config_schema", "it belongs at the top of the file"),
        ("limits", "it belongs at the top of the file"),
    ],
};

#[rustfmt::skip]
pub(super) const NODE: Keys = Keys {
    what: "a node",
    keys: &[
        Key(&["type"], || word(TYPES), "None for a node with an action."),
        Key(&["action"], || optional_defined("action"), "The item that it uses."),
        Key(&["assign"], object, "Keys of the state, and templates such as ${result.stdout}."),
        Key(&["next"], || json!({"anyOf": [optional_text(), {"type": "array", "items": defined("edge")}]}), "The next node, or edges, of which the first counts that holds."),
        Key(&["on_error"], optional_text, "The node that a failure leads to."),
        Key(&["over"], any, "Of `foreach`: the list, such as ${state.files}."),
        Key(&["as"], optional_text, "Of `foreach`: what an item is called; `item` unless set."),
        Key(&["collect"], optional_text, "Of `foreach`: the key of the state that gets the results."),
        Key(&["collect_value"], any, "Of `foreach`: what is collected of an item, a template."),
        Key(&["parallel"], switch, "Of `foreach`: several items at once."),
        Key(&["max_concurrency"], || whole(1), "How many items or branches at once."),
        Key(&["on_item_error"], || word(["fail", "collect"]), "Whether a failed item or branch fails the node."),
        Key(&["env_requires"], names, "Variables without which the node fails."),
        Key(&["cache_result"], switch, "Whether an equal call takes the result of the one before."),
        Key(&["cache"], any, "Of the original, without effect; `cache_result` has one."),
        Key(&["timeout"], time, "How long it may take: seconds, or 90s, 1h30m."),
        Key(&["retry"], || json!({"anyOf": [whole(0), defined("retry")]}), "How often a failed action is tried again; 0 never."),
        Key(&["effect"], || word(["idempotent", "pure", "at_most_once"]), "What a second execution means."),
        Key(&["output"], any, "Of `return` and `fail`: the result of the run, a template."),
        Key(&["message"], optional_text, "Of `fail`: the reason. Of `approval`: the question."),
        Key(&["code"], optional_text, "Of `fail`: a word for programs."),
        Key(&["schema"], any, "Of `approval`: a JSON Schema of the answer."),
        Key(&["for"], time, "Of `wait`: how long."),
        Key(&["until"], optional_text, "Of `wait`: until when, RFC 3339."),
        Key(&["branches"], || json!({"type": ["object", "null"], "minProperties": 1, "additionalProperties": defined("action")}), "Of `parallel`: the actions by their names."),
        Key(&["process"], optional_text, "Of `wait`: the process to wait for, such as ${services.web.handle}."),
        Key(&["line"], optional_text, "Of `wait` for a process: a regular expression that a line of its output matches."),
        Key(&["exit"], switch, "Of `wait` for a process: until it has ended."),
        Key(&["ready"], any, "Of `service`: the sign that it is ready, as of a managed process. Of `wait` for a process: true."),
        Key(&["command"], optional_text, "Of `service`: a shell command, or with `args` the program."),
        Key(&["args"], any, "Of `service`: the arguments of the program."),
        Key(&["cwd"], optional_text, "Of `service`: the working directory, in the project."),
        Key(&["env"], any, "Of `service`: variables."),
        Key(&["name"], optional_text, "Of `service`: the name of the process; the node unless set."),
        Key(&["ports"], any, "Of `service`: its ports by names: auto, or a number."),
        Key(&["ready_pattern"], optional_text, "Of `service`: it is ready when a line matches."),
        Key(&["ready_port"], any, "Of `service`: it is ready when it listens there."),
        Key(&["ready_timeout"], any, "Of `service`: most seconds until it is ready; 30 unless set."),
        Key(&["healthy"], any, "Of `service`: the test of a process that is ready."),
        Key(&["restart"], optional_text, "Of `service`: no or on-failure; on-failure unless set."),
        Key(&["max_restarts"], any, "Of `service`: failures in a row after which it starts again."),
        Key(&["grace"], any, "Of `service`: seconds between TERM and KILL when it is stopped."),
        Key(&["isolation"], optional_text, "Of `service`: what it may reach: none, scoped or sandbox; scoped unless set."),
        Key(&["resources"], any, "Of `service`: limits of its processes: {memory, pids, cpu}."),
        Key(&["comment", "description"], text, "For people."),
    ],
    required: &[],
    misplaced: &[
        ("remote", "nodes run on this machine; there is no fleet yet"),
        ("params", "it belongs below `action`"),
        ("item_id", "it belongs below `action`"),
        ("hooks", "it belongs below `config`"),
        ("max_retries", "a node has `retry: N`"),
        ("edges", "a node calls them `next`"),
    ],
};

#[rustfmt::skip]
pub(super) const EDGE: Keys = Keys {
    what: "an edge",
    keys: &[
        Key(&["to"], text, "The next node."),
        Key(&["when"], || optional_defined("condition"), "What has to hold; nothing means always."),
    ],
    required: &[("to", "it names the next node")],
    misplaced: &[
        ("condition", "an edge calls it `when`"),
        ("target", "an edge calls it `to`"),
    ],
};

const PRIMARY: Key = Key(
    &["primary"],
    any,
    "execute, fetch or sign; execute unless set.",
);
const ITEM_KIND: Key = Key(
    &["item_type", "kind"],
    || word(ItemKind::ALL.map(ItemKind::as_str)),
    "The type of the item; a tool unless set.",
);
const ITEM_ID: Key = Key(&["item_id"], optional_text, "The item, such as rye/bash.");
const PARAMS: Key = Key(&["params"], any, "What it is called with: templates.");

pub(super) const ACTION: Keys = Keys {
    what: "an action",
    keys: &[PRIMARY, ITEM_KIND, ITEM_ID, PARAMS],
    required: &[],
    misplaced: &[
        ("retry", "it belongs to the node"),
        ("max_retries", "a node has `retry: N`"),
        ("timeout", "it belongs to the node"),
        ("async", "a step ends when its action ends"),
    ],
};

pub(super) const FOREACH_ACTION: Keys = Keys {
    what: "the action of a foreach",
    misplaced: &[
        ("retry", "it belongs to the node"),
        ("max_retries", "a node has `retry: N`"),
        ("timeout", "it belongs to the node"),
        ("async", "write `parallel: true` at the node"),
        ("async_exec", "write `parallel: true` at the node"),
    ],
    ..ACTION
};

#[rustfmt::skip]
pub(super) const HOOK: Keys = Keys {
    what: "a hook",
    keys: &[
        Key(&["id"], optional_text, "Its name in logs."),
        Key(&["event"], || json!({"enum": HookEvent::ALL.map(HookEvent::as_str)}), "When it is run."),
        Key(&["condition"], || optional_defined("condition"), "What has to hold; nothing means always."),
        Key(&["action"], || defined("hook_action"), ""),
        Key(&["layer"], || whole(1), "1 in a graph."),
        Key(&["description"], optional_text, "For people."),
    ],
    required: &[
        ("event", "it is one of graph_started, after_step, error, limit, graph_completed"),
        ("action", "it says what the hook does, like {retry: true}"),
    ],
    misplaced: &[
        ("when", "a hook calls it `condition`"),
        ("name", "a hook calls it `id`"),
        ("retry", "it belongs below `action`"),
        ("max_retries", "it belongs below `action`"),
    ],
};

pub(super) const HOOK_ACTION: Keys = Keys {
    what: "the action of a hook",
    keys: &[
        PRIMARY,
        ITEM_KIND,
        ITEM_ID,
        PARAMS,
        Key(&["retry"], switch, "Tries the failed node again."),
        Key(&["max_retries"], || whole(0), "How often."),
    ],
    required: &[],
    misplaced: &[("action", "it belongs below `params`")],
};

#[rustfmt::skip]
pub(super) const RETRY: Keys = Keys::new("`retry`", &[
    Key(&["max"], || whole(0), "Most tries after the first."),
    Key(&["max_retries"], || whole(0), "As `max`."),
    Key(&["backoff"], || word(["none", "fixed", "exponential"]), "How the pauses grow."),
    Key(&["delay"], time, "A fixed pause."),
    Key(&["base"], time, "The first of growing pauses."),
    Key(&["max_delay"], time, "The longest of growing pauses."),
]);

/// Read by the expressions; a test compares the keys.
#[rustfmt::skip]
pub(super) const CONDITION: Keys = Keys::new("a condition", &[
    Key(&["path"], text, "The value, such as state.n."),
    Key(&["op", "operator"], || word(OPS.into_iter().chain(["neq"])), "How they are compared."),
    Key(&["value"], any, "What it is compared with, literally."),
    Key(&["value_path"], text, "The other value that it is compared with."),
    Key(&[COMBINATORS[0], COMBINATORS[1]], || json!({"type": "array", "items": defined("condition")}), ""),
    Key(&[COMBINATORS[2]], || defined("condition"), ""),
]);

/// Returns the schema of a list of the maps that `$defs` has under `name`, or null.
fn list_of(name: &str) -> Value {
    json!({"type": ["array", "null"], "items": defined(name)})
}

pub fn schema() -> Value {
    let mut file = FILE.schema_of_file("A graph of Rye");
    file["$defs"] = json!({
        "config": CONFIG.schema(),
        "node": NODE.schema(),
        "edge": EDGE.schema(),
        "action": ACTION.schema(),
        "hook": HOOK.schema(),
        "hook_action": HOOK_ACTION.schema(),
        "retry": RETRY.schema(),
        "condition": CONDITION.schema(),
    });
    file
}

#[cfg(test)]
pub(super) mod tests;
