//! The interface of runs, and of the tools they call, to the owner of all runs.
//!
//! The supervisor owns every run; drivers use it through [`Runs`]. [`Runs::nest`] narrows the authority of a child run
//! by the layers of its parent. Methods on other runs check nothing: a caller that acts for a user or a run checks with
//! [`reach`] first.

mod process;
pub mod reach;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use rye_core::error::{ErrorKind, Kinded, with_sources};
use rye_core::id::{ItemRef, Name, RunId};
use rye_core::ledger::{AccountId, Cost, Denied, Meter, MeterId};
use rye_core::model::{
    ApprovalAnswer, Callback, Failure, Kill, Killed, LogCursor, Object, Raised, Run, RunKind, Spec,
    Verdict, WatchRule,
};
use rye_core::money::Usd;
use rye_core::thread::ThreadOrder;
use serde_json::{Value, json};

pub use self::process::{ProcessOwner, ProcessStart};
use crate::stop::CancelMode;
use rye_journal::{AccountRow, Filter, Summary};

/// Parameters of an action on a graph that control how it runs, with what a user who starts a run uses instead.
pub const CONTROL: [(&str, &str); 10] = [
    ("async", "--detach"),
    ("validate", "ryectl graph validate"),
    ("node", "ryectl graph step --node"),
    ("inject_state", "ryectl graph step --state"),
    ("capabilities", "--cap"),
    ("depth", "--limit depth=N"),
    ("max_steps", "--limit steps=N"),
    ("resume", "--resume RUN"),
    ("graph_run_id", "--resume RUN"),
    ("resume_run_id", "--resume RUN"),
];

pub fn is_control(name: &str) -> bool {
    CONTROL.iter().any(|(word, _)| *word == name)
}

/// The result of an action that starts a graph run or a thread without waiting for it.
pub fn launched(run: &Run) -> Value {
    let (id, item) = match run.spec.kind() {
        RunKind::Graph | RunKind::Tool | RunKind::Process => ("graph_run_id", "graph_id"),
        RunKind::Thread => ("thread_id", "directive"),
    };
    json!({
        "success": true,
        "run_id": run.id,
        id: run.id,
        item: run.spec.item.id,
        "status": "running",
        "pid": std::process::id(),
    })
}

/// The owner of all runs, as drivers and native tools use it.
pub trait Runs: fmt::Debug + Send + Sync {
    /// Admits a run for an action of `order.parent` and fixes its spec; commits nothing.
    fn nest<'a>(&'a self, order: Nest<'a>) -> BoxFuture<'a, Result<Nested, Failure>>;

    /// Starts the task of a run that was created in a commit of its parent. If the daemon stops in between, the next
    /// start does so.
    fn launch(&self, run: RunId) -> BoxFuture<'_, ()>;

    /// Returns the record once the run has ended or is suspended. A run suspended on ENOSPC resumes by itself and is
    /// waited for.
    fn settled(&self, run: RunId) -> BoxFuture<'_, Result<Arc<Run>, Refusal>>;

    /// Returns the current record of a run.
    fn get(&self, run: RunId) -> BoxFuture<'_, Result<Arc<Run>, Refusal>>;

    /// Returns all runs that pass `filter`, newest first.
    fn list(&self, filter: Filter) -> BoxFuture<'_, Result<Vec<Summary>, Refusal>>;

    /// Returns the steps of a run, as `steps --json` prints them.
    fn steps(&self, run: RunId) -> BoxFuture<'_, Result<Vec<Value>, Refusal>>;

    /// Returns the last run of the chain of continuations of `run`, or `run` itself.
    fn newest(&self, run: RunId) -> BoxFuture<'_, Result<Arc<Run>, Refusal>>;

    /// True if this ended run, or a child run that it waited for, left at-most-once attempts of unknown outcome.
    fn has_unknown(&self, run: Arc<Run>) -> BoxFuture<'_, bool>;

    /// Requests a run and its child runs to stop, in the given mode.
    fn cancel(
        &self,
        run: RunId,
        cause: String,
        mode: CancelMode,
    ) -> BoxFuture<'_, Result<Arc<Run>, Refusal>>;

    /// Ends a run and its child runs by force; returns when all have ended, with the processes that were killed.
    fn kill(&self, run: RunId, asked: Kill) -> BoxFuture<'_, Result<(Arc<Run>, Killed), Refusal>>;

    /// Starts a managed process. Returns true if a live one of the same name and owner exists, which is returned.
    fn start_process(
        &self,
        request: ProcessStart,
    ) -> BoxFuture<'_, Result<(Arc<Run>, bool), Refusal>>;

    /// Stops the attempt in flight of a managed process, and starts another one.
    fn restart_process(&self, run: RunId, by: String) -> BoxFuture<'_, Result<Arc<Run>, Refusal>>;

    /// Returns the record of a managed process when it is ready, has ended, or was not ready in time.
    fn process_started(&self, run: RunId) -> BoxFuture<'_, Result<Arc<Run>, Refusal>>;

    /// Returns the record of a managed process when it is ready or has ended, or after `most`.
    fn process_ready(&self, run: RunId, most: Duration)
    -> BoxFuture<'_, Result<Arc<Run>, Refusal>>;

    /// Adds rules to a managed process, or begins those with the same ids anew, for the lines after `from`.
    fn watch_process(
        &self,
        run: RunId,
        rules: Vec<WatchRule>,
        from: LogCursor,
    ) -> BoxFuture<'_, Result<Arc<Run>, Refusal>>;

    /// Resolves when a message about lines of a managed process waits for the thread that owns it.
    fn lines_queued(&self, process: RunId) -> BoxFuture<'_, Result<(), Refusal>>;

    /// Appends an event that a tool made to the run that called it.
    fn emit(&self, run: RunId, name: String, content: Value) -> BoxFuture<'_, Result<(), Refusal>>;

    /// Resumes a suspended run, or continues an ended one in a new run; returns the run that now runs.
    fn resume(&self, run: RunId, request: Resume) -> BoxFuture<'_, Result<Arc<Run>, Refusal>>;

    /// Returns the cost so far of the chain of a run and of all descendants.
    fn cost(&self, run: Arc<Run>) -> BoxFuture<'_, Result<Cost, Refusal>>;

    /// Returns the account of a run and those above it, up to the root of its tree.
    fn budget_path(&self, run: Arc<Run>) -> BoxFuture<'_, Result<Vec<AccountView>, Refusal>>;

    /// Returns the account of a run and all below it, each after its parent, with its depth.
    fn budget_tree(&self, run: Arc<Run>)
    -> BoxFuture<'_, Result<Vec<(u32, AccountView)>, Refusal>>;

    /// Checks that a child run of `run` that reserves `share` could be paid now; reserves nothing.
    fn affords(&self, run: &Run, share: Usd) -> Result<(), Denied>;
}

/// An account, as shown to users.
#[derive(Debug, Clone)]
pub struct AccountView {
    pub id: AccountId,
    /// The newest of the runs that use the account.
    pub run: RunId,
    pub row: AccountRow,
    /// Spending of the account and all below it.
    pub cost: Cost,
}

/// Spending of the node in a day or a month, as shown to users.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MeterView {
    pub id: MeterId,
    pub meter: Meter,
    /// The spend limit, if one is in force.
    pub limit: Option<Usd>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AccountState {
    /// The chain of runs has not ended.
    Open,
    /// The chain of runs has ended, and an account below is not closed.
    Ended,
    /// The chain of runs has ended, and all accounts below are closed.
    Closed,
}

impl AccountState {
    /// The word used on the wire and in results of tools.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Ended => "ended",
            Self::Closed => "closed",
        }
    }
}

impl AccountView {
    pub fn state(&self) -> AccountState {
        if self.row.closed {
            AccountState::Closed
        } else if self.row.account.ended {
            AccountState::Ended
        } else {
            AccountState::Open
        }
    }
}

/// The order of a run by an action of another run.
#[derive(Debug)]
pub struct Nest<'a> {
    /// The run that orders.
    pub parent: &'a Run,
    pub child: ChildRequest,
    /// Idempotency key of the step. The keys of the new run derive from it.
    pub key: &'a str,
    /// Name of the attempt, such as `fan[3]`; `None` for a call of a thread.
    pub attempt: Option<String>,
    /// The ended run of an earlier attempt of the step, which the new one continues.
    pub continues: Option<Arc<Run>>,
    /// Set if a program of the parent orders it.
    pub callback: Option<NestedCallback>,
}

/// A child run that a program of its parent orders.
#[derive(Debug, Clone)]
pub struct NestedCallback {
    pub callback: Callback,
    /// Start key of a run that other tries of the attempt share.
    pub start_key: Option<String>,
}

/// The item that a child run executes.
#[derive(Debug, Clone)]
pub enum ChildRequest {
    Graph {
        item: ItemRef,
        /// Parameters of the action, including [`CONTROL`] parameters.
        params: Object,
    },
    Thread(Box<ThreadOrder>),
    /// A tool that a program of the parent calls.
    Tool {
        item: ItemRef,
        params: Object,
    },
}

impl ChildRequest {
    pub const fn item(&self) -> &ItemRef {
        match self {
            Self::Graph { item, .. } | Self::Tool { item, .. } => item,
            Self::Thread(order) => &order.directive,
        }
    }
}

/// Result of [`Runs::nest`].
#[derive(Debug)]
pub enum Nested {
    /// A run to be created in the commit that starts the step.
    Create {
        run: RunId,
        spec: Arc<Spec>,
        /// Reason for which the run fails as soon as it is created.
        fault: Option<Failure>,
        /// Warnings for the users of the run.
        warnings: Vec<String>,
    },
    /// The result without a run (`validate: true`).
    Answer(Value),
}

/// A request to resume a suspended run or to continue an ended one.
#[derive(Debug, Clone, Default)]
pub struct Resume {
    /// Name of the caller.
    pub by: String,
    /// New limits other than money.
    pub raised: Raised,
    /// New absolute spend limit of the run and all below it.
    pub spend: Option<Usd>,
    /// Verdicts on attempts of unknown outcome. The key is the item as the suspension names it, or its position, or
    /// `*`.
    pub verdicts: Vec<(String, Verdict)>,
    /// Result of the one attempt with the verdict `done`.
    pub result: Option<Arc<Value>>,
    /// Settlement of the question that the run is suspended for.
    pub approval: Option<Settled>,
    /// Message to the model of a thread, sent first.
    pub message: Option<String>,
    /// True if a graph continues with the recorded text even if the item has changed.
    pub same_text: bool,
    /// True if a graph begins again at the first node that failed and after which it went on.
    pub failed: bool,
    /// Authority of the caller. A run that continues an ended one gets it as further layers.
    pub layers: Vec<rye_core::capability::Layer>,
    /// Account of a caller that is a run. A continuation draws on this account or on one below it.
    pub caller_account: Option<AccountId>,
}

impl Resume {
    /// True if the request changes nothing about the run.
    pub fn is_empty(&self) -> bool {
        self.raised == Raised::default()
            && self.spend.is_none()
            && self.verdicts.is_empty()
            && self.approval.is_none()
            && self.message.is_none()
    }
}

/// Settlement of a question that a run is suspended for.
#[derive(Debug, Clone, PartialEq)]
pub enum Settled {
    Answered(ApprovalAnswer),
    /// The deadline of the question with this name has passed without an answer.
    Expired(Name),
}

/// The reason for which the owner of all runs refused a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    pub kind: ErrorKind,
    pub message: String,
}

impl Refusal {
    /// The failure of an action on an item, which was not run.
    pub fn of_item(self) -> Failure {
        self.into_failure(["item_not_found", "invalid_action", "item_refused"])
    }

    /// The failure of an action on a run, which is unchanged.
    pub fn of_run(self) -> Failure {
        self.into_failure(["run_not_found", "invalid_params", "permission_denied"])
    }

    /// The failure of an action on a file of the project.
    pub fn of_file(self) -> Failure {
        self.into_failure(["file_not_found", "invalid_params", "permission_denied"])
    }

    /// Takes the codes for a missing, a malformed and a forbidden subject.
    fn into_failure(self, [missing, malformed, forbidden]: [&str; 3]) -> Failure {
        let (code, retryable) = match self.kind {
            ErrorKind::NotFound => (missing, false),
            ErrorKind::Invalid => (malformed, false),
            ErrorKind::Precondition | ErrorKind::Exists => ("precondition_failed", false),
            ErrorKind::Denied => (forbidden, false),
            ErrorKind::Exhausted => ("resource_exhausted", true),
            ErrorKind::Unavailable => ("unavailable", true),
            ErrorKind::DataLoss | ErrorKind::Bug => ("internal", false),
        };
        Failure {
            retryable,
            ..Failure::permanent(code, self.message)
        }
    }
}

impl<E: Kinded + 'static> From<&E> for Refusal {
    fn from(error: &E) -> Self {
        Self {
            kind: error.kind(),
            message: with_sources(error),
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Refusal {}

impl Kinded for Refusal {
    fn kind(&self) -> ErrorKind {
        self.kind
    }
}
