//! Closed lists of keys.

/// The keys of one kind of map in a graph file.
pub(crate) struct Keys {
    /// What the map is, with its article.
    pub(crate) what: &'static str,
    /// Keys that are read.
    pub(crate) known: &'static [&'static str],
    /// Keys people write that belong elsewhere or nowhere, and what to do instead.
    pub(crate) misplaced: &'static [(&'static str, &'static str)],
}

pub(crate) const FILE: Keys = Keys {
    what: "a graph file",
    known: &[
        "version",
        "tool_type",
        "executor_id",
        "category",
        "name",
        "description",
        "author",
        "tags",
        "title",
        "license",
        "references",
        "created_at",
        "permissions",
        "env_requires",
        "config_schema",
        "limits",
        "config",
        "tool_id",
        "execution_owner",
        "native_async",
        "native_resume",
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

/// Keys of a file by which the original decided how to start it.
pub(super) const IGNORED: [&str; 4] = [
    "tool_id",
    "execution_owner",
    "native_async",
    "native_resume",
];

pub(super) const CONFIG: Keys = Keys {
    what: "`config`",
    known: &[
        "start",
        "nodes",
        "max_steps",
        "on_error",
        "hooks",
        "state",
        "timeout",
        "recovery",
        "durability",
        "max_concurrency",
    ],
    misplaced: &[
        ("env_requires", "it belongs at the top of the file"),
        ("permissions", "it belongs at the top of the file"),
        ("config_schema", "it belongs at the top of the file"),
        ("limits", "it belongs at the top of the file"),
    ],
};

pub(super) const NODE: Keys = Keys {
    what: "a node",
    known: &[
        "type",
        "action",
        "assign",
        "next",
        "on_error",
        "over",
        "as",
        "collect",
        "collect_value",
        "parallel",
        "max_concurrency",
        "on_item_error",
        "env_requires",
        "cache_result",
        "timeout",
        "retry",
        "effect",
        "output",
        "message",
        "code",
        "schema",
        "for",
        "until",
        "branches",
        "comment",
        "description",
    ],
    misplaced: &[
        ("remote", "nodes run on this machine; there is no fleet yet"),
        ("params", "it belongs below `action`"),
        ("item_id", "it belongs below `action`"),
        ("hooks", "it belongs below `config`"),
        ("max_retries", "a node has `retry: N`"),
        ("edges", "a node calls them `next`"),
    ],
};

pub(super) const EDGE: Keys = Keys {
    what: "an edge",
    known: &["to", "when"],
    misplaced: &[
        ("condition", "an edge calls it `when`"),
        ("target", "an edge calls it `to`"),
    ],
};

pub(super) const ACTION: Keys = Keys {
    what: "an action",
    known: &["primary", "item_type", "kind", "item_id", "params"],
    misplaced: &[
        ("retry", "it belongs to the node"),
        ("max_retries", "a node has `retry: N`"),
        ("timeout", "it belongs to the node"),
        ("async", "a step ends when its action ends"),
    ],
};

pub(super) const FOREACH_ACTION: Keys = Keys {
    what: "the action of a foreach",
    known: ACTION.known,
    misplaced: &[
        ("retry", "it belongs to the node"),
        ("max_retries", "a node has `retry: N`"),
        ("timeout", "it belongs to the node"),
        ("async", "write `parallel: true` at the node"),
        ("async_exec", "write `parallel: true` at the node"),
    ],
};

pub(super) const HOOK: Keys = Keys {
    what: "a hook",
    known: &["id", "event", "condition", "action", "layer", "description"],
    misplaced: &[
        ("when", "a hook calls it `condition`"),
        ("name", "a hook calls it `id`"),
        ("retry", "it belongs below `action`"),
        ("max_retries", "it belongs below `action`"),
    ],
};

pub(super) const HOOK_ACTION: Keys = Keys {
    what: "the action of a hook",
    known: &[
        "primary",
        "item_type",
        "kind",
        "item_id",
        "params",
        "retry",
        "max_retries",
    ],
    misplaced: &[("action", "it belongs below `params`")],
};

pub(super) const RETRY: Keys = Keys {
    what: "`retry`",
    known: &[
        "max",
        "max_retries",
        "backoff",
        "delay",
        "base",
        "max_delay",
    ],
    misplaced: &[],
};
