//! Closed lists of keys.

/// The keys of one kind of map in a graph file.
pub(super) struct Keys {
    /// What the map is, with its article.
    pub(super) what: &'static str,
    /// Keys that are read.
    pub(super) known: &'static [&'static str],
    /// Keys of the language that this release does not run.
    pub(super) later: &'static [&'static str],
    /// Keys people write that belong elsewhere or nowhere, and what to do instead.
    pub(super) misplaced: &'static [(&'static str, &'static str)],
}

impl Keys {
    /// All keys one may write.
    pub(super) fn all(&self) -> impl Iterator<Item = &'static str> {
        self.known.iter().chain(self.later).copied()
    }
}

pub(super) const FILE: Keys = Keys {
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
        "permissions",
        "config_schema",
        "limits",
        "config",
    ],
    later: &["env_requires"],
    misplaced: &[
        ("start", "it belongs below `config`"),
        ("nodes", "it belongs below `config`"),
        ("max_steps", "it belongs below `config`"),
        ("hooks", "it belongs below `config`"),
        ("on_error", "it belongs below `config`"),
        ("state", "it belongs below `config`"),
    ],
};

pub(super) const CONFIG: Keys = Keys {
    what: "`config`",
    known: &[
        "start",
        "nodes",
        "max_steps",
        "on_error",
        "state",
        "recovery",
        "durability",
    ],
    later: &["hooks", "timeout", "max_concurrency"],
    misplaced: &[
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
        "effect",
        "output",
        "comment",
        "description",
    ],
    later: &[
        "over",
        "as",
        "collect",
        "parallel",
        "max_concurrency",
        "on_item_error",
        "env_requires",
        "cache_result",
        "timeout",
        "retry",
    ],
    misplaced: &[
        ("remote", "nodes run on this machine; there is no fleet yet"),
        ("params", "it belongs below `action`"),
        ("item_id", "it belongs below `action`"),
    ],
};

pub(super) const EDGE: Keys = Keys {
    what: "an edge",
    known: &["to", "when"],
    later: &[],
    misplaced: &[
        ("condition", "an edge calls it `when`"),
        ("target", "an edge calls it `to`"),
    ],
};

pub(super) const ACTION: Keys = Keys {
    what: "an action",
    known: &["primary", "item_type", "kind", "item_id", "params"],
    later: &[],
    misplaced: &[
        ("retry", "it belongs into the action of a hook"),
        ("max_retries", "it belongs into the action of a hook"),
        ("async", "a step ends when its action ends"),
    ],
};
