//! Nodes, and what is done at them.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use super::backoff::Retry;
use super::shared::of_many;
use serde_json::Value;

use crate::capability::Primary;
use crate::expr::{self, Condition};
use crate::id::{ItemKind, ItemRef, Name};
use crate::model::Effect;

/// One node.
#[derive(Debug, Clone)]
pub struct Node {
    /// Its name.
    pub name: String,
    /// What is done at it.
    pub work: Work,
    /// State keys and the templates they get, in the order they are written; later ones see earlier ones.
    pub assign: Vec<(String, Value)>,
    /// Where to continue.
    pub next: Next,
    /// Where to continue if its action fails.
    pub on_error: Option<String>,
    /// What running it a second time would mean.
    pub effect: Effect,
    /// Tries after a failure, before any hook is asked.
    pub retry: Option<Retry>,
    /// How long one try of its action (of one item, in a foreach) may take.
    pub timeout: Option<Duration>,
    /// Whether an earlier result of the same action will do.
    pub caching: Caching,
    /// Names of environment variables that must be set before a run begins.
    pub env_requires: Vec<String>,
}

/// Whether an earlier result of the same action will do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Caching {
    /// The action is carried out every time.
    #[default]
    Off,
    /// A result of the same graph, node, action and policy is taken from the cache.
    On,
}

/// What is done at a node.
#[derive(Debug, Clone, PartialEq)]
pub enum Work {
    /// An item is used.
    Action(Action),
    /// An item is used for each value of a list.
    Foreach(Foreach),
    /// Nothing: it assigns and chooses an edge.
    Gate,
    /// The graph ends.
    Return {
        /// The template of what it returns; an empty object if there is none.
        output: Option<Value>,
    },
    /// The graph ends, and has failed.
    Fail(Fail),
    /// Nothing, until a time is over.
    Wait(Pause),
    /// A person is asked.
    Approval(ApprovalRequest),
    /// Several items are used side by side.
    Parallel(Parallel),
}

impl Work {
    /// The use of an item, if there is one and no other.
    pub const fn action(&self) -> Option<&Action> {
        match self {
            Self::Action(action) => Some(action),
            Self::Foreach(foreach) => Some(&foreach.action),
            Self::Gate
            | Self::Return { .. }
            | Self::Fail(_)
            | Self::Wait(_)
            | Self::Approval(_)
            | Self::Parallel(_) => None,
        }
    }

    /// Every use of an item.
    pub fn actions(&self) -> impl Iterator<Item = &Action> {
        let branches = match self {
            Self::Parallel(parallel) => parallel.branches.as_slice(),
            Self::Action(_)
            | Self::Foreach(_)
            | Self::Gate
            | Self::Return { .. }
            | Self::Fail(_)
            | Self::Wait(_)
            | Self::Approval(_) => &[],
        };
        let branches = branches.iter().map(|(_, action)| action);
        self.action().into_iter().chain(branches)
    }
}

/// The use of an item.
#[derive(Debug, Clone, PartialEq)]
pub struct Action {
    /// What is done to it.
    pub primary: Primary,
    /// Its type; an id that turns out to carry a type (`tool:a/b`) must agree.
    pub kind: ItemKind,
    /// The template of its id, without type.
    pub id: String,
    /// The template of the parameters, an object.
    pub params: Value,
}

impl Action {
    /// Whether it is about items that it does not name.
    pub fn is_of_many(&self) -> bool {
        of_many(self.primary)
            .is_some_and(|(tool, key)| self.id == tool && self.params.get(key).is_some())
    }

    /// The item it uses, whatever the state is; `None` if a template decides, or the id is none.
    pub fn named(&self) -> Option<ItemRef> {
        if !expr::references(&self.id.as_str().into(), &|_| true).is_empty() {
            return None;
        }
        let item = ItemRef::parse(&self.id, self.kind).ok()?;
        Some(item.canonical())
    }
}

/// The use of an item for each value of a list.
#[derive(Debug, Clone, PartialEq)]
pub struct Foreach {
    /// The template of the list.
    pub over: Value,
    /// The name a value has inside the action, also below `state`.
    pub variable: String,
    /// What is done with each value.
    pub action: Action,
    /// The state key that receives the results, in the order of the list.
    pub collect: Option<String>,
    /// The template of what is collected of an item; its whole result if there is none.
    pub collect_value: Option<Value>,
    /// How the values take turns.
    pub order: ItemOrder,
    /// What a failed item means for the node.
    pub on_item_error: OnItemError,
}

/// A failure that the author of the graph declares.
#[derive(Debug, Clone, PartialEq)]
pub struct Fail {
    /// The template of what went wrong.
    pub message: Value,
    /// Its code, for programs.
    pub code: Option<String>,
    /// The template of what the graph returns all the same.
    pub output: Option<Value>,
}

/// How long a node waits.
#[derive(Debug, Clone, PartialEq)]
pub enum Pause {
    /// For a duration: a template of seconds, or of a text like `1h30m`.
    For(Value),
    /// Until a time: a template of RFC 3339.
    Until(Value),
}

/// A question to a person. How long it may be answered is the `timeout` of its node.
#[derive(Debug, Clone, PartialEq)]
pub struct ApprovalRequest {
    /// The template of what is asked.
    pub message: Value,
    /// JSON schema of what an answer may hold.
    pub schema: Option<Arc<Value>>,
}

/// Uses of items that know nothing of each other.
#[derive(Debug, Clone, PartialEq)]
pub struct Parallel {
    /// By name, in the order of the file.
    pub branches: Vec<(Name, Action)>,
    /// Most at once, if the node says.
    pub at_once: Option<NonZeroU32>,
    /// What a failed branch means for the node.
    pub on_item_error: OnItemError,
}

/// How the items of a foreach take turns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ItemOrder {
    /// One after the other.
    Sequential,
    /// Side by side.
    Parallel {
        /// Most items at once, if the node says.
        at_once: Option<NonZeroU32>,
    },
}

/// What a failed item means for its foreach.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnItemError {
    /// No further item starts, and the node fails.
    #[default]
    Fail,
    /// Its error is collected in its place, and the others continue.
    Collect,
}

/// Where a node leads.
#[derive(Debug, Clone)]
pub enum Next {
    /// Nowhere: the graph returns.
    End,
    /// To this node.
    Always(String),
    /// Along the first edge that holds; if none does, the graph returns.
    Edges(Vec<Edge>),
}

/// One way on.
#[derive(Debug, Clone)]
pub struct Edge {
    /// The node it leads to.
    pub to: String,
    /// When it may be taken; `None` always.
    pub when: Option<Condition>,
}

impl Edge {
    /// Whether it may be taken whatever the state is.
    pub fn always(&self) -> bool {
        self.when.as_ref().is_none_or(Condition::always_holds)
    }
}
