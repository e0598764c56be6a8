//! What is fixed about a run when it is accepted.

use serde::{Deserialize, Serialize};

use super::budget::Budget;
use super::directory::DirectoryIdentity;
use super::limits::{Limits, is_zero};
use super::parent_end::{ChildTerms, ParentEnd};
use super::task::{Extent, GraphSource, RunKind, StartFrom, Task, ThreadSource};
use super::thread;
use crate::capability::Layer;
use crate::expr::Object;
use crate::id::{ItemRef, RunId};

/// How much of a run must be on disk before the next effect starts: the output rule, `daemon/docs/log-and-recovery.md`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Durability {
    /// Every step is synced before the next effect starts.
    #[default]
    Strict,
    /// Steps are written in order but not waited for; a power cut may take back the last ones.
    Relaxed,
}

/// What happens to a live run when the daemon starts again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Recovery {
    /// It resumes by itself.
    #[default]
    Resume,
    /// It is suspended with the reason `restart`.
    Suspend,
}

/// Everything about a run that is fixed when it is accepted.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Spec {
    /// The item that runs.
    pub item: ItemRef,
    /// What it is to do.
    #[serde(flatten)]
    pub task: Task,
    /// The directory tools run in: the project root, or the caller's directory where there is no project.
    pub project: String,
    /// The `.ai` directory (or its stand-in in the state directory) that receives the run's files.
    pub files: String,
    /// Who asked, as `uid:1000`.
    pub principal: String,
    /// The run that started this one.
    pub parent: Option<RunId>,
    /// Which directory the project was when the run was accepted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub directory: Option<DirectoryIdentity>,
    /// How many ancestors it has.
    #[serde(default)]
    pub depth: u32,
    /// What the end of its parent means for it.
    #[serde(default, skip_serializing_if = "ParentEnd::waits")]
    pub parent_end: ParentEnd,
    /// What is fixed about the runs that it starts.
    #[serde(default, skip_serializing_if = "ChildTerms::are_usual")]
    pub children: ChildTerms,
    /// The idempotency key of the step that started it: its own keys derive from that one, so that they are the same
    /// when the step is tried again with another run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub effect_scope: Option<String>,
    /// The first run of its chain of continuations; this run itself for a fresh one.
    pub chain_root: RunId,
    /// The ended run this one continues.
    pub continuation_of: Option<RunId>,
    /// How many child runs the chain had started before this run.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub spawned: u32,
    /// Limits given by the caller.
    pub limits: Limits,
    /// The account that pays for it.
    pub budget: Budget,
    /// What the run may do: every layer must allow an action.
    pub layers: Vec<Layer>,
    /// When a step counts as done.
    pub durability: Durability,
    /// What a restart of the daemon does to it.
    pub recovery: Recovery,
    /// Inputs, or a tool's parameters, with defaults applied.
    pub inputs: Object,
    /// SHA-256 of the verified item.
    pub content_hash: String,
    /// The caller's key: a second start with the same key is the same run.
    pub start_key: Option<String>,
    /// SHA-256 of the inputs as they were asked for, beside a key: with others the key is refused. Older records have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_digest: Option<String>,
}

impl Spec {
    /// A run of `item` that nobody owns, that belongs to no project and may do nothing: what it is beyond that is to be said.
    pub fn new(task: Task, item: ItemRef, chain_root: RunId, budget: Budget) -> Self {
        Self {
            item,
            task,
            project: String::new(),
            files: String::new(),
            principal: String::new(),
            parent: None,
            directory: None,
            depth: 0,
            parent_end: ParentEnd::Wait,
            children: ChildTerms::default(),
            effect_scope: None,
            budget,
            chain_root,
            continuation_of: None,
            spawned: 0,
            limits: Limits::default(),
            layers: Vec::new(),
            durability: Durability::Strict,
            recovery: Recovery::Resume,
            inputs: Object::new(),
            content_hash: String::new(),
            start_key: None,
            start_digest: None,
        }
    }

    /// What idempotency keys of the run derive from.
    pub fn effect_scope(&self) -> &str {
        self.effect_scope
            .as_deref()
            .unwrap_or(self.chain_root.as_str())
    }

    /// What carries it out.
    pub const fn kind(&self) -> RunKind {
        self.task.kind()
    }

    /// The graph that it walks, if it walks one.
    pub const fn graph(&self) -> Option<&GraphSource> {
        match &self.task {
            Task::Graph(task) => Some(&task.source),
            Task::Unreadable | Task::Thread(_) | Task::Tool => None,
        }
    }

    /// The directive that it works on, if it is a thread.
    pub const fn thread(&self) -> Option<&ThreadSource> {
        match &self.task {
            Task::Thread(source) => Some(source),
            Task::Graph(_) | Task::Unreadable | Task::Tool => None,
        }
    }

    /// Where the thread stood that this one continues.
    pub(crate) fn carried(&self) -> Option<&thread::ThreadState> {
        self.thread()?.carried.as_deref()
    }

    /// Where its walk begins, if not at the beginning.
    pub fn start_from(&self) -> Option<&StartFrom> {
        match &self.task {
            Task::Graph(task) => task.start_from.as_deref(),
            Task::Unreadable | Task::Thread(_) | Task::Tool => None,
        }
    }

    /// Whether the run ends after one node.
    pub fn is_single_step(&self) -> bool {
        let start = self.start_from();
        start.is_some_and(|start| start.extent == Extent::OneNode)
    }

    /// Where it begins, if it repeats only what failed in the run it continues.
    pub fn repairs(&self) -> Option<&StartFrom> {
        let start = self.start_from();
        start.filter(|start| start.extent == Extent::Repairs)
    }
}
