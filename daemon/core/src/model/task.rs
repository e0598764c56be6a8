//! What a run is to do: by its kind, all that this kind needs, and nothing that belongs to another one.
//!
//! In what is stored and shown it is fields of the [`Spec`](super::Spec): `kind`, and beside it `graph` and `seed`, or `thread`.

use std::sync::Arc;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

use super::graph::UnfinishedWork;
use super::{graph, thread};
use crate::id::Name;

/// What carries a run out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunKind {
    /// A managed task walks a state graph.
    Graph,
    /// A model works on a directive, turn by turn.
    Thread,
    /// One tool call.
    Tool,
}

impl RunKind {
    /// The name used on the wire and in `--json`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Graph => "graph",
            Self::Thread => "thread",
            Self::Tool => "tool",
        }
    }
}

/// What a run is to do.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "TaskFields", into = "TaskFields")]
pub enum Task {
    /// It walks a graph.
    Graph(GraphTask),
    /// It cannot walk a graph that nobody can read: it failed in the commit that created it, for the run that called it.
    Unreadable,
    /// A model works on a directive.
    Thread(ThreadSource),
    /// It makes the one call of its item.
    Tool,
}

impl Task {
    /// One of that kind, of which nothing else is known.
    #[cfg(test)]
    pub(crate) fn of(kind: RunKind) -> Self {
        match kind {
            RunKind::Graph => Self::Graph(GraphTask::default()),
            RunKind::Thread => Self::Thread(ThreadSource::default()),
            RunKind::Tool => Self::Tool,
        }
    }

    /// What carries it out.
    pub const fn kind(&self) -> RunKind {
        match self {
            Self::Graph(_) | Self::Unreadable => RunKind::Graph,
            Self::Thread(_) => RunKind::Thread,
            Self::Tool => RunKind::Tool,
        }
    }
}

/// A graph, and where its walk begins.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct GraphTask {
    /// The graph.
    pub source: GraphSource,
    /// Where it begins, if not at the start node with an empty state.
    pub start_from: Option<Arc<StartFrom>>,
}

/// What a graph run walks: the verified text, so that an edit of the file never changes a run that has started.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GraphSource {
    /// The text of the graph file as it was verified.
    pub text: Arc<str>,
    /// `category` of the file.
    pub category: String,
    /// `version` of the file.
    pub version: String,
    /// Number of its nodes.
    pub nodes: u32,
    /// JSON text of the configuration it runs under, fixed at its start and shared by the runs that start under it; empty in old
    /// records: what is shipped.
    #[serde(default)]
    pub policy: Arc<str>,
    /// SHA-256, in hex, of the configuration that may change what its tools come to.
    #[serde(default)]
    pub config_hash: String,
}

/// Where a run begins that does not begin at the beginning.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StartFrom {
    /// The first node.
    pub node: String,
    /// What was done before.
    #[serde(rename = "progress")]
    pub state: graph::GraphState,
    /// What an earlier run left of that node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub left: Option<UnfinishedWork>,
    /// The node that follows the last repair.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub then: Option<Name>,
    /// How far it goes.
    pub extent: Extent,
}

/// How far a run goes from its first node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Extent {
    /// To the end of the graph.
    Rest,
    /// Over one node.
    OneNode,
    /// Over the nodes that failed in the run it continues, and the one with which that ended: what went well is not done again.
    Repairs,
}

/// What a thread works on, so that an edit of a file never changes a thread that has started.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ThreadSource {
    /// The text of the directive file as it was verified.
    pub text: Arc<str>,
    /// JSON text of all that was fixed at the start: the directive laid over those it extends, the model, the tools that it may
    /// call.
    pub contract: Arc<str>,
    /// Where the thread stood that this one continues; `None` for one that begins.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub carried: Option<Arc<thread::ThreadState>>,
}

/// The fields of a spec that a task is.
#[derive(Serialize, Deserialize)]
struct TaskFields {
    kind: RunKind,
    #[serde(
        rename = "seed",
        default,
        deserialize_with = "start_from",
        skip_serializing_if = "Option::is_none"
    )]
    start_from: Option<Arc<StartFrom>>,
    graph: Option<GraphSource>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    thread: Option<ThreadSource>,
}

/// Reads it by way of a value: of what serde has put aside, as it does with flattened fields, it reads no map whose keys are numbers.
fn start_from<'de, D>(deserializer: D) -> Result<Option<Arc<StartFrom>>, D::Error>
where
    D: Deserializer<'de>,
{
    let value = Option::<Value>::deserialize(deserializer)?;
    let start = value.map(Arc::<StartFrom>::deserialize);
    start.transpose().map_err(D::Error::custom)
}

impl From<Task> for TaskFields {
    fn from(task: Task) -> Self {
        let kind = task.kind();
        let (graph, start_from, thread) = match task {
            Task::Graph(GraphTask { source, start_from }) => (Some(source), start_from, None),
            Task::Thread(source) => (None, None, Some(source)),
            Task::Unreadable | Task::Tool => (None, None, None),
        };
        Self {
            kind,
            start_from,
            graph,
            thread,
        }
    }
}

impl TryFrom<TaskFields> for Task {
    type Error = &'static str;

    fn try_from(fields: TaskFields) -> Result<Self, Self::Error> {
        let TaskFields {
            kind,
            start_from,
            graph,
            thread,
        } = fields;
        match (kind, graph, start_from, thread) {
            (RunKind::Graph, Some(source), start_from, None) => {
                Ok(Self::Graph(GraphTask { source, start_from }))
            }
            (RunKind::Graph, None, None, None) => Ok(Self::Unreadable),
            (RunKind::Thread, None, None, Some(source)) => Ok(Self::Thread(source)),
            (RunKind::Tool, None, None, None) => Ok(Self::Tool),
            (RunKind::Graph | RunKind::Thread | RunKind::Tool, _, _, _) => Err(
                "`graph` and `seed` go with the kind `graph`, and `thread` with the kind `thread`",
            ),
        }
    }
}
