//! Nodes and their work.

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

#[derive(Debug, Clone)]
pub struct Node {
    pub name: String,
    pub work: Work,
    /// State keys with their templates, in the order of the file; later ones see the values of earlier ones.
    pub assign: Vec<(String, Value)>,
    /// The successor after success.
    pub next: Next,
    /// The successor if its action fails.
    pub on_error: Option<String>,
    /// The meaning of a second execution.
    pub effect: Effect,
    /// Tries after a failure, before any hook is called.
    pub retry: Option<Retry>,
    /// Time limit of one try of its action (of one item, in a foreach).
    pub timeout: Option<Duration>,
    pub caching: Caching,
    /// Names of environment variables that must be set before a run begins.
    pub env_requires: Vec<String>,
}

/// The use of earlier results of the same action.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Caching {
    /// The action is carried out every time.
    #[default]
    Off,
    /// A result of the same graph, node, action and policy is taken from the cache.
    On,
}

/// The work of a node.
#[derive(Debug, Clone, PartialEq)]
pub enum Work {
    Action(Action),
    /// An item is used for each value of a list.
    Foreach(Foreach),
    /// No work: the node assigns state and chooses an edge.
    Gate,
    Return {
        /// Template of the output; an empty object if there is none.
        output: Option<Value>,
    },
    /// The graph ends as failed.
    Fail(Fail),
    /// The node waits for a time.
    Wait(Pause),
    /// The node puts a question to a person.
    Approval(ApprovalRequest),
    /// Several items are used concurrently.
    Parallel(Parallel),
    /// A managed process is started, and ends with the run.
    Service(Action),
    /// The node waits for a managed process.
    ProcessWait(Action),
}

impl Work {
    /// Returns the item use of an action or foreach node; for all uses see [`Work::actions`].
    pub const fn action(&self) -> Option<&Action> {
        match self {
            Self::Action(action) | Self::Service(action) | Self::ProcessWait(action) => {
                Some(action)
            }
            Self::Foreach(foreach) => Some(&foreach.action),
            Self::Gate
            | Self::Return { .. }
            | Self::Fail(_)
            | Self::Wait(_)
            | Self::Approval(_)
            | Self::Parallel(_) => None,
        }
    }

    /// Returns every use of an item.
    pub fn actions(&self) -> impl Iterator<Item = &Action> {
        let branches = match self {
            Self::Parallel(parallel) => parallel.branches.as_slice(),
            Self::Action(_)
            | Self::Foreach(_)
            | Self::Gate
            | Self::Return { .. }
            | Self::Fail(_)
            | Self::Wait(_)
            | Self::Approval(_)
            | Self::Service(_)
            | Self::ProcessWait(_) => &[],
        };
        let branches = branches.iter().map(|(_, action)| action);
        self.action().into_iter().chain(branches)
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct Action {
    pub primary: Primary,
    /// Its type; an id that evaluates to one with a type (`tool:a/b`) must agree.
    pub kind: ItemKind,
    /// Template of its id, without type.
    pub id: String,
    /// Template of the parameters, an object.
    pub params: Value,
}

impl Action {
    /// True if it concerns items that it does not name.
    pub fn is_of_many(&self) -> bool {
        of_many(self.primary)
            .is_some_and(|(tool, key)| self.id == tool && self.params.get(key).is_some())
    }

    /// Returns the item it uses, whatever the state is; `None` if a template decides, or the id is invalid.
    pub fn named(&self) -> Option<ItemRef> {
        if !expr::references(&self.id.as_str().into(), &|_| true).is_empty() {
            return None;
        }
        let item = ItemRef::parse(&self.id, self.kind).ok()?;
        Some(item.canonical())
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct Foreach {
    /// Template of the list.
    pub over: Value,
    /// The name of a value inside the action, also below `state`.
    pub variable: String,
    /// The action for each value.
    pub action: Action,
    /// The state key that receives the results, in the order of the list.
    pub collect: Option<String>,
    /// Template of the collected value of an item; its whole result if there is none.
    pub collect_value: Option<Value>,
    pub order: ItemOrder,
    /// The consequence of a failed item for the node.
    pub on_item_error: OnItemError,
}

/// A failure that the author of the graph declares.
#[derive(Debug, Clone, PartialEq)]
pub struct Fail {
    pub message: Value,
    /// For programs.
    pub code: Option<String>,
    /// Template of the output of the failed graph.
    pub output: Option<Value>,
}

/// Duration or end of a wait.
#[derive(Debug, Clone, PartialEq)]
pub enum Pause {
    /// For a duration: a template of seconds, or of a text like `1h30m`.
    For(Value),
    /// Until a time: a template of RFC 3339.
    Until(Value),
}

/// A question to a person. It expires after the `timeout` of its node.
#[derive(Debug, Clone, PartialEq)]
pub struct ApprovalRequest {
    /// Template of the question.
    pub message: Value,
    /// JSON schema of an answer.
    pub schema: Option<Arc<Value>>,
}

/// Independent uses of items.
#[derive(Debug, Clone, PartialEq)]
pub struct Parallel {
    /// By name, in the order of the file.
    pub branches: Vec<(Name, Action)>,
    /// Limit of concurrent branches, if the node sets one.
    pub at_once: Option<NonZeroU32>,
    /// The consequence of a failed branch for the node.
    pub on_item_error: OnItemError,
}

/// Execution order of the items of a foreach.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ItemOrder {
    Sequential,
    Parallel {
        /// Limit of concurrent items, if the node sets one.
        at_once: Option<NonZeroU32>,
    },
}

/// The consequence of a failed item for its foreach.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnItemError {
    /// No further item starts, and the node fails.
    #[default]
    Fail,
    /// Its error is collected in place of its result, and the others continue.
    Collect,
}

/// The successor of a node.
#[derive(Debug, Clone)]
pub enum Next {
    /// The graph returns.
    End,
    Always(String),
    /// The first edge whose condition holds; if none holds, the graph returns.
    Edges(Vec<Edge>),
}

#[derive(Debug, Clone)]
pub struct Edge {
    pub to: String,
    /// `None` holds always.
    pub when: Option<Condition>,
}

impl Edge {
    /// True if its condition holds in every state.
    pub fn always(&self) -> bool {
        self.when.as_ref().is_none_or(Condition::always_holds)
    }
}
