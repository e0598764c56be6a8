//! Runs and what happens to them.
//!
//! **Owns** the record of a run ([`Run`]: its [`Life`], the same for every kind, and its [`Work`]), the closed vocabulary of
//! facts about it ([`Event`]) and the only transition ([`Run::apply`]). **Never** decides what to do next: that is the
//! machines' and the supervisor's work; an event is a fact that has been decided.
//!
//! ```text
//!            RunStarted            step events              terminal event
//! Created ───────────────► Running ──────────┐ ───────────────────────────► Ended
//!    │                     ▲  │  ▲           │                                ▲
//!    │          RunResumed │  │  └───────────┘                                │
//!    │                     │  ▼ RunSuspended                                  │
//!    │                  Suspended ────────────────────────────────────────────┤
//!    └────────────────────────────────────────────────────────────────────────┘
//! ```
//!
//! **Order.** Events of a run are applied one after the other under the journal's lock; each gets the next
//! [`Seq`](crate::id::Seq).
//! **Failure.** An event that the run cannot take where it stands is [`Illegal`]; nothing of its commit is applied.

mod approval;
mod attempt;
mod budget;
mod chunks;
mod control;
mod death;
mod directory;
mod event;
mod failure;
pub mod graph;
mod kill;
mod life;
mod parent_end;
mod raised;
mod report;
mod round;
mod run;
mod task;
pub mod thread;
pub mod tool;
mod work;

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::capability::Layer;
use crate::id::{ItemRef, RunId};
use crate::ledger::AccountId;
use crate::money::Usd;

pub use self::approval::{Approval, ApprovalAnswer, ApprovalKind, Approvals, Expired, Requested};
pub(crate) use self::attempt::attempt_name;
pub use self::attempt::{Attempt, AttemptId, Slot, Unknown, Verdict};
pub use self::budget::{Because, Budget, Funding, OpenCall};
pub use self::chunks::Chunks;
pub use self::control::{Control, DEFAULT_EXTENSION, DEFAULT_RETRIES};
pub use self::death::{Death, FAULTS_WITHIN, MOST_FAULTS, MOST_SUSPICIONS};
pub use self::directory::DirectoryIdentity;
pub use self::event::{Event, Facets, RunEvent, Syncing, Unreadable, While};
pub use self::failure::{Failure, Printed};
pub use self::graph::{GraphEvent, Left};
pub use self::kill::{EndedProcess, Kill, KillReceipt, Killed};
pub use self::life::{Illegal, Life, Status};
pub use self::parent_end::{ChildTerms, Fate, ParentEnd, Waits};
pub use self::raised::{Below, MOST_DEPTH, Raisable, Raised, Unraised, proposed};
pub use self::round::Round;
pub use self::run::Run;
pub use self::task::{Extent, GraphSource, GraphTask, StartFrom, Task, ThreadSource};
pub use self::thread::ThreadEvent;
pub use self::tool::ToolEvent;
pub use self::work::Work;
pub use crate::expr::Object;

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

/// What running a step a second time would mean.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Effect {
    /// A repeat with the same idempotency key does no harm: the step in flight at a crash runs again.
    #[default]
    Idempotent,
    /// No effect at all.
    Pure,
    /// At most once: it is repeated only if it provably did not begin.
    AtMostOnce,
}

/// Limits of one run; `None` means the default of the graph or the daemon.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// Most steps a graph run may take.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub steps: Option<u32>,
    /// How many levels of child runs it may have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub depth: Option<u32>,
    /// How many child runs its chain may start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spawns: Option<u32>,
    /// How many turns a thread may take.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turns: Option<u32>,
    /// How many tokens the turns of a thread may use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens: Option<u64>,
    /// How long the turns of a thread may take together, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration_ms: Option<u64>,
    /// The most it may spend, itself and all below it. What is in force is the limit of its account.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spend: Option<Usd>,
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

/// Whether a count is left out of what is stored.
#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde asks for this form"
)]
const fn is_zero(number: &u32) -> bool {
    *number == 0
}

/// A process, so named that another one with the same pid is never mistaken for it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ProcessIdentity {
    /// Process id, also its group and session.
    pub pid: i32,
    /// Field 22 of `/proc/<pid>/stat`: clock ticks between boot and start.
    pub start_time: u64,
    /// `/proc/sys/kernel/random/boot_id` of the boot it belongs to.
    pub boot_id: String,
}

/// A node's error after which the graph continued, as it declares.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SuppressedError {
    /// Number of the step.
    pub step: u32,
    /// The node.
    pub node: String,
    /// Its message.
    pub error: String,
}

/// How a step ended, as `steps --json` names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StepStatus {
    /// An action succeeded.
    Ok,
    /// An action failed.
    Error,
    /// A return node ended the graph.
    Return,
    /// A gate assigned and chose an edge.
    Gate,
    /// The items of a foreach node are done.
    Foreach,
    /// The branches of a parallel node are done.
    Parallel,
    /// A time is over.
    Wait,
    /// A person approved.
    Approval,
    /// The result of an earlier run was used.
    Cached,
    /// Nobody knew what became of its action, and somebody declared it done.
    Declared,
}

impl StepStatus {
    /// The name used on the wire and in `--json`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Error => "error",
            Self::Return => "return",
            Self::Gate => "gate",
            Self::Foreach => "foreach",
            Self::Parallel => "parallel",
            Self::Wait => "wait",
            Self::Approval => "approval",
            Self::Cached => "cached",
            Self::Declared => "declared",
        }
    }
}

/// Why a run is suspended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SuspendReason {
    /// It reached a limit that may be raised.
    Limit,
    /// Its budget is used up.
    Budget,
    /// A node failed, and somebody is to look at it.
    Error,
    /// Somebody is to approve what comes next.
    Approval,
    /// The daemon restarted and the run asked not to be resumed by itself.
    Restart,
    /// An at-most-once step was in flight when the daemon went down, or its answer never came.
    Uncertain,
    /// The disk that holds the log is full.
    Storage,
    /// The child run it waits for is suspended.
    Child,
    /// Resuming it brought the daemon down three times.
    CrashLoop,
    /// Somebody asked.
    User,
}

impl SuspendReason {
    /// Every reason.
    pub const ALL: [Self; 10] = [
        Self::Limit,
        Self::Budget,
        Self::Error,
        Self::Approval,
        Self::Restart,
        Self::Uncertain,
        Self::Storage,
        Self::Child,
        Self::CrashLoop,
        Self::User,
    ];

    /// The name used on the wire and in `--json`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Limit => "limit",
            Self::Budget => "budget",
            Self::Error => "error",
            Self::Approval => "approval",
            Self::Restart => "restart",
            Self::Uncertain => "uncertain",
            Self::Storage => "storage",
            Self::Child => "child",
            Self::CrashLoop => "crash_loop",
            Self::User => "user",
        }
    }

    /// The reason a hook may name; the error lists those.
    fn asked(word: &str) -> Result<Self, String> {
        const OPEN: [SuspendReason; 5] = [
            SuspendReason::Limit,
            SuspendReason::Budget,
            SuspendReason::Error,
            SuspendReason::Approval,
            SuspendReason::User,
        ];
        let found = OPEN.into_iter().find(|reason| reason.as_str() == word);
        found.ok_or_else(|| {
            let words: Vec<_> = OPEN.iter().map(|reason| reason.as_str()).collect();
            format!(
                "`suspend_reason` is one of {}, not {word:?}",
                words.join(", ")
            )
        })
    }
}

/// A suspended run: why, and what it waits for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Suspension {
    /// The reason.
    pub reason: SuspendReason,
    /// A code for programs, where the reason has several.
    pub code: Option<String>,
    /// The node before which it was suspended.
    pub node: Option<String>,
    /// How much is used of the limit it reached.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub current: Option<String>,
    /// That limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max: Option<String>,
    /// The account that has too little, for the reason `budget`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub account: Option<AccountId>,
    /// The suspended child run that it waits for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub child: Option<RunId>,
    /// At-most-once attempts that may have executed: node names, with the item's position where there is one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub uncertain: Vec<String>,
    /// The failure behind which it was suspended, for the person who is asked about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<Box<Failure>>,
}

impl Suspension {
    /// Suspended for `reason`.
    pub const fn new(reason: SuspendReason) -> Self {
        Self {
            reason,
            code: None,
            node: None,
            current: None,
            max: None,
            account: None,
            child: None,
            uncertain: Vec::new(),
            failure: None,
        }
    }

    /// The same, before `node`.
    #[must_use]
    pub fn at(mut self, node: Option<&str>) -> Self {
        self.node = node.map(str::to_owned);
        self
    }
}

/// What a run came to.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "status", rename_all = "snake_case")]
pub enum Outcome {
    /// It did what it was to do. `output` is the return node's template, or a tool's result.
    Completed {
        /// What it returned.
        output: Arc<Value>,
    },
    /// It got to its end, with errors suppressed on the way.
    CompletedWithErrors {
        /// What it returned.
        output: Arc<Value>,
    },
    /// It failed.
    Error {
        /// Why.
        error: Failure,
    },
    /// It was asked to stop, and did.
    Cancelled {
        /// Who or what asked.
        cause: String,
    },
    /// It was ended by force.
    Killed {
        /// Who or what asked; empty in old records.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        cause: String,
        /// What was ended.
        receipt: KillReceipt,
    },
}

impl Outcome {
    /// Its name, as users see it.
    pub const fn status(&self) -> Status {
        match self {
            Self::Completed { .. } => Status::Completed,
            Self::CompletedWithErrors { .. } => Status::CompletedWithErrors,
            Self::Error { .. } => Status::Error,
            Self::Cancelled { .. } => Status::Cancelled,
            Self::Killed { .. } => Status::Killed,
        }
    }
}

#[cfg(test)]
mod tests;
