//! The properties of a run that are fixed when it is accepted.

use serde::{Deserialize, Serialize};

use super::approval::ApprovalRule;
use super::budget::Budget;
use super::directory::DirectoryIdentity;
use super::limits::{Limits, is_zero};
use super::parent_end::{ChildTerms, ParentEnd};
use super::process::ProcessSpec;
use super::task::{Extent, GraphSource, RunKind, StartFrom, Task, ThreadSource};
use super::thread;
use crate::capability::Layer;
use crate::expr::Object;
use crate::id::{ItemRef, RunId};

/// The part of a run that must be on disk before the next effect starts: the output rule,
/// `daemon/docs/log-and-recovery.md`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Durability {
    /// Every step is synced before the next effect starts.
    #[default]
    Strict,
    /// Steps are written in order but not waited for; a power cut may lose the last ones.
    Relaxed,
}

/// The handling of a live run when the daemon starts again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Recovery {
    /// It resumes by itself.
    #[default]
    Resume,
    /// It is suspended with the reason `restart`.
    Suspend,
}

/// The start of a run by a program of its parent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Callback {
    /// True if the program named a key, so that other tries of its attempt share the run.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub keyed: bool,
    /// Number of the try whose program started it, from 1.
    pub attempt: u32,
    /// Hash over item and parameters.
    pub call: String,
    /// Number of the call in its step, from 0, if the program repeats its calls in order.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ordinal: Option<u32>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Spec {
    pub item: ItemRef,
    #[serde(flatten)]
    pub task: Task,
    /// The directory in which tools run: the project root, or the caller's directory if there is no project.
    pub project: String,
    /// The `.ai` directory (or its replacement in the state directory) that receives the run's files.
    pub files: String,
    /// The requester, as `uid:1000`.
    pub principal: String,
    /// The run that started this one.
    pub parent: Option<RunId>,
    /// Name of the attempt of a graph that this run carries out, such as `fan[3]`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent_attempt: Option<String>,
    /// Set if a program of the parent started it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub callback: Option<Callback>,
    /// Identity of the project directory when the run was accepted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub directory: Option<DirectoryIdentity>,
    /// Number of ancestors.
    #[serde(default)]
    pub depth: u32,
    /// The consequence of the end of its parent.
    #[serde(default, skip_serializing_if = "ParentEnd::waits")]
    pub parent_end: ParentEnd,
    /// Terms of the runs that it starts.
    #[serde(default, skip_serializing_if = "ChildTerms::are_usual")]
    pub children: ChildTerms,
    /// The idempotency key of the step that started it. Its own keys derive from that key, so that they are the same
    /// when the step is tried again with another run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub effect_scope: Option<String>,
    /// The first run of its chain of continuations; this run itself for a fresh one.
    pub chain_root: RunId,
    /// The ended run that this one continues.
    pub continuation_of: Option<RunId>,
    /// Number of child runs that the chain had started before this run.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub spawned: u32,
    /// Limits given by the caller.
    pub limits: Limits,
    /// The account that pays for it.
    pub budget: Budget,
    /// Permission layers: every one must allow an action.
    pub layers: Vec<Layer>,
    /// Calls of the run and of those below it that need the approval of a person.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub approvals: Vec<ApprovalRule>,
    pub durability: Durability,
    pub recovery: Recovery,
    /// Inputs, or a tool's parameters, with defaults applied.
    pub inputs: Object,
    /// SHA-256 of the verified item.
    pub content_hash: String,
    /// The caller's key: a second start with the same key is the same run.
    pub start_key: Option<String>,
    /// SHA-256 of the requested inputs, if there is a key: the key is refused with other inputs. Older records have
    /// none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_digest: Option<String>,
}

impl Spec {
    /// Makes a run of `item` without principal, project and permissions; the caller sets all else.
    pub fn new(task: Task, item: ItemRef, chain_root: RunId, budget: Budget) -> Self {
        Self {
            item,
            task,
            project: String::new(),
            files: String::new(),
            principal: String::new(),
            parent: None,
            parent_attempt: None,
            callback: None,
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
            approvals: Vec::new(),
            durability: Durability::Strict,
            recovery: Recovery::Resume,
            inputs: Object::new(),
            content_hash: String::new(),
            start_key: None,
            start_digest: None,
        }
    }

    /// Returns the base from which idempotency keys of the run derive.
    pub fn effect_scope(&self) -> &str {
        self.effect_scope
            .as_deref()
            .unwrap_or(self.chain_root.as_str())
    }

    pub const fn kind(&self) -> RunKind {
        self.task.kind()
    }

    /// Returns the graph of a graph run.
    pub const fn graph(&self) -> Option<&GraphSource> {
        match &self.task {
            Task::Graph(task) => Some(&task.source),
            Task::Unreadable | Task::Thread(_) | Task::Tool | Task::Process(_) => None,
        }
    }

    /// Returns the limits with which the run starts, that of its account included.
    pub fn limits_at_start(&self) -> Limits {
        Limits {
            spend: self.budget.limit(),
            ..self.limits.clone()
        }
    }

    /// Returns the directive of a thread.
    pub const fn thread(&self) -> Option<&ThreadSource> {
        match &self.task {
            Task::Thread(source) => Some(source),
            Task::Graph(_) | Task::Unreadable | Task::Tool | Task::Process(_) => None,
        }
    }

    /// Returns the command of a managed process.
    pub fn process(&self) -> Option<&ProcessSpec> {
        match &self.task {
            Task::Process(spec) => Some(spec),
            Task::Graph(_) | Task::Unreadable | Task::Thread(_) | Task::Tool => None,
        }
    }

    /// Returns the state of the thread that this one continues.
    pub(crate) fn carried(&self) -> Option<&thread::ThreadState> {
        self.thread()?.carried.as_deref()
    }

    /// Returns the start of its walk, if that is not the start node.
    pub fn start_from(&self) -> Option<&StartFrom> {
        match &self.task {
            Task::Graph(task) => task.start_from.as_deref(),
            Task::Unreadable | Task::Thread(_) | Task::Tool | Task::Process(_) => None,
        }
    }

    pub fn is_single_step(&self) -> bool {
        let start = self.start_from();
        start.is_some_and(|start| start.extent == Extent::OneNode)
    }

    /// Returns its start if it walks on from the first failure of the run it continues.
    pub fn from_failed(&self) -> Option<&StartFrom> {
        let start = self.start_from();
        start.filter(|start| start.extent == Extent::FromFailed)
    }

    /// Returns its start if it repeats only the failures of the run it continues.
    pub fn repairs(&self) -> Option<&StartFrom> {
        let start = self.start_from();
        start.filter(|start| start.extent == Extent::Repairs)
    }
}
