//! The task of a run: by its kind, all data of this kind, and none of another.
//!
//! In its stored and shown form a task is fields of the [`Spec`](super::Spec): `kind`, with `graph` and `seed`,
//! `thread`, or `process`.

use std::sync::Arc;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

use super::graph::UnfinishedWork;
use super::process::ProcessSpec;
use super::{graph, thread};
use crate::id::Name;

/// The kind of work of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunKind {
    /// A managed task walks a state graph.
    Graph,
    /// A model works on a directive, turn by turn.
    Thread,
    /// One tool call.
    Tool,
    /// A managed process.
    Process,
}

impl RunKind {
    /// The name used on the wire and in `--json`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Graph => "graph",
            Self::Thread => "thread",
            Self::Tool => "tool",
            Self::Process => "process",
        }
    }
}

/// The task of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "TaskFields", into = "TaskFields")]
pub enum Task {
    Graph(GraphTask),
    /// The graph is unreadable: the run failed in the commit that created it, for the run that called it.
    Unreadable,
    /// A model works on a directive.
    Thread(ThreadSource),
    Tool,
    Process(Arc<ProcessSpec>),
}

impl Task {
    /// Makes a task of that kind without further data.
    #[cfg(test)]
    pub(crate) fn of(kind: RunKind) -> Self {
        match kind {
            RunKind::Graph => Self::Graph(GraphTask::default()),
            RunKind::Thread => Self::Thread(ThreadSource::default()),
            RunKind::Tool => Self::Tool,
            RunKind::Process => Self::Process(Arc::default()),
        }
    }

    pub const fn kind(&self) -> RunKind {
        match self {
            Self::Graph(_) | Self::Unreadable => RunKind::Graph,
            Self::Thread(_) => RunKind::Thread,
            Self::Tool => RunKind::Tool,
            Self::Process(_) => RunKind::Process,
        }
    }
}

/// A graph, and the start of its walk.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct GraphTask {
    pub source: GraphSource,
    /// The start, if it is not the start node with an empty state.
    pub start_from: Option<Arc<StartFrom>>,
}

/// The graph of a run: the verified text, so that an edit of the file never changes a run that has started.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GraphSource {
    /// Text of the graph file, as it was verified.
    pub text: Arc<str>,
    /// `category` of the file.
    pub category: String,
    /// `version` of the file.
    pub version: String,
    /// Number of its nodes.
    pub nodes: u32,
    /// JSON text of the configuration of the run, fixed at its start and shared by the runs that start under it. Empty
    /// in old records: the shipped one.
    #[serde(default)]
    pub policy: Arc<str>,
    /// SHA-256, in hex, of the configuration that may change the results of its tools.
    #[serde(default)]
    pub config_hash: String,
}

/// The start of a run that does not begin at the start node.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StartFrom {
    /// The first node.
    pub node: String,
    /// The state at the start.
    #[serde(rename = "progress")]
    pub state: graph::GraphState,
    /// The work that an earlier run left of that node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub left: Option<UnfinishedWork>,
    /// The node that follows the last repair.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub then: Option<Name>,
    pub extent: Extent,
}

/// The extent of a run from its first node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Extent {
    /// To the end of the graph.
    Rest,
    /// Over one node.
    OneNode,
    /// Over the nodes that failed in the run it continues, and the last node of that run. Successful nodes are not
    /// repeated.
    Repairs,
    /// To the end of the graph, from the first node that failed, whole or in some of its items, and after which the run
    /// it continues went on.
    FromFailed,
}

/// The directive of a thread, fixed so that an edit of a file never changes a thread that has started.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ThreadSource {
    /// Text of the directive file, as it was verified.
    pub text: Arc<str>,
    /// JSON text of all that was fixed at the start: the directive merged with those it extends, the model, the tools
    /// that it may call.
    pub contract: Arc<str>,
    /// State of the thread that this one continues; `None` for a fresh one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub carried: Option<Arc<thread::ThreadState>>,
}

/// The fields of a spec that form a task.
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
    #[serde(default, skip_serializing_if = "Option::is_none")]
    process: Option<Arc<ProcessSpec>>,
}

/// Reads it through a `Value`: from the buffer of flattened fields serde cannot read a map with numeric keys.
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
        let mut fields = Self {
            kind,
            start_from: None,
            graph: None,
            thread: None,
            process: None,
        };
        match task {
            Task::Graph(GraphTask { source, start_from }) => {
                fields.graph = Some(source);
                fields.start_from = start_from;
            }
            Task::Thread(source) => fields.thread = Some(source),
            Task::Process(spec) => fields.process = Some(spec),
            Task::Unreadable | Task::Tool => {}
        }
        fields
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
            process,
        } = fields;
        match (kind, graph, start_from, thread, process) {
            (RunKind::Graph, Some(source), start_from, None, None) => {
                Ok(Self::Graph(GraphTask { source, start_from }))
            }
            (RunKind::Graph, None, None, None, None) => Ok(Self::Unreadable),
            (RunKind::Thread, None, None, Some(source), None) => Ok(Self::Thread(source)),
            (RunKind::Tool, None, None, None, None) => Ok(Self::Tool),
            (RunKind::Process, None, None, None, Some(spec)) => Ok(Self::Process(spec)),
            (RunKind::Graph | RunKind::Thread | RunKind::Tool | RunKind::Process, ..) => Err(
                "`graph` and `seed` go with the kind `graph`, `thread` and `process` with the kind of that name",
            ),
        }
    }
}
