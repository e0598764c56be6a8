//! What the runs, and the tools they call, may ask of the owner of all runs.
//!
//! The supervisor owns every run and stands above the drivers; they reach it through [`Runs`]. [`Runs::nest`] narrows
//! what a child run may do by the layers of its parent. The verbs on other runs check nothing: who calls them on behalf of
//! somebody asks [`reach`] before.

pub mod reach;

use std::fmt;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use rye_core::error::{ErrorKind, Kinded, with_sources};
use rye_core::id::{ItemRef, Name, RunId};
use rye_core::ledger::{AccountId, Cost, Denied, Meter, MeterId};
use rye_core::model::{
    ApprovalAnswer, Failure, Kill, Killed, Object, Raised, Run, RunKind, Spec, Verdict,
};
use rye_core::money::Usd;
use rye_core::thread::ThreadOrder;
use serde_json::{Value, json};

use rye_journal::{AccountRow, Filter, Summary};

/// Parameters of an action on a graph that say how the graph runs, and what a caller who starts a run at the top says instead.
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

/// Whether a parameter of an action on a graph says how the graph runs.
pub fn is_control(name: &str) -> bool {
    CONTROL.iter().any(|(word, _)| *word == name)
}

/// What a caller who does not wait for a graph run or a thread gets of it.
pub fn launched(run: &Run) -> Value {
    let (id, item) = match run.spec.kind() {
        RunKind::Graph | RunKind::Tool => ("graph_run_id", "graph_id"),
        RunKind::Thread => ("thread_id", "directive"),
    };
    json!({
        "success": true,
        id: run.id,
        item: run.spec.item.id,
        "status": "running",
        "pid": std::process::id(),
    })
}

/// The owner of all runs, as drivers and native tools see it.
pub trait Runs: fmt::Debug + Send + Sync {
    /// Fixes everything about a run that an action of `order.parent` asks for; nothing is committed yet.
    fn nest<'a>(&'a self, order: Nest<'a>) -> BoxFuture<'a, Result<Nested, Failure>>;

    /// Gives a run that was created in a commit of its parent its own task. If the daemon stops in between, its next life
    /// does so.
    fn launch(&self, run: RunId) -> BoxFuture<'_, ()>;

    /// The record of a run, once it has ended or is suspended; a run suspended on ENOSPC resumes by itself and is waited
    /// for.
    fn settled(&self, run: RunId) -> BoxFuture<'_, Result<Arc<Run>, Refusal>>;

    /// The record of a run as it is now.
    fn get(&self, run: RunId) -> BoxFuture<'_, Result<Arc<Run>, Refusal>>;

    /// All runs that pass, newest first.
    fn list(&self, filter: Filter) -> BoxFuture<'_, Result<Vec<Summary>, Refusal>>;

    /// The steps a run has taken, as `steps --json` prints them.
    fn steps(&self, run: RunId) -> BoxFuture<'_, Result<Vec<Value>, Refusal>>;

    /// The run that `run` was continued by, and so on to the last one; `run` itself if it was not.
    fn newest(&self, run: RunId) -> BoxFuture<'_, Result<Arc<Run>, Refusal>>;

    /// Whether this ended run, or a child run that it waited for, left at-most-once attempts of unknown outcome.
    fn has_unknown(&self, run: Arc<Run>) -> BoxFuture<'_, bool>;

    /// Asks a run and its child runs to stop.
    fn cancel(&self, run: RunId, cause: String) -> BoxFuture<'_, Result<Arc<Run>, Refusal>>;

    /// Ends a run and its child runs by force; answers when they are over, with what had to be ended in all of them.
    fn kill(&self, run: RunId, asked: Kill) -> BoxFuture<'_, Result<(Arc<Run>, Killed), Refusal>>;

    /// Appends an event of a tool's own making to the run that called it.
    fn emit(&self, run: RunId, name: String, content: Value) -> BoxFuture<'_, Result<(), Refusal>>;

    /// Resumes a suspended run, or makes a run that continues where an ended one failed; answers with the one that runs.
    fn resume(&self, run: RunId, request: Resume) -> BoxFuture<'_, Result<Arc<Run>, Refusal>>;

    /// What the chain of a run and all below it have cost so far.
    fn cost(&self, run: Arc<Run>) -> BoxFuture<'_, Result<Cost, Refusal>>;

    /// The account of a run and those above it, up to the root of its tree.
    fn budget_path(&self, run: Arc<Run>) -> BoxFuture<'_, Result<Vec<AccountView>, Refusal>>;

    /// The account of a run and all below it, each behind the one that it draws on, with how many lie above it.
    fn budget_tree(&self, run: Arc<Run>)
    -> BoxFuture<'_, Result<Vec<(u32, AccountView)>, Refusal>>;

    /// Whether a child run of `run` that reserves `share` would be paid for now. Nothing is reserved.
    fn affords(&self, run: &Run, share: Usd) -> Result<(), Denied>;
}

/// An account as people see it.
#[derive(Debug, Clone)]
pub struct AccountView {
    /// Its name.
    pub id: AccountId,
    /// The newest of the runs that have it.
    pub run: RunId,
    /// What is stored of it.
    pub row: AccountRow,
    /// What it and all below it have spent.
    pub cost: Cost,
}

/// What the node spends in a day or a month, as people see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MeterView {
    /// Its name.
    pub id: MeterId,
    /// What counts in it.
    pub meter: Meter,
    /// The most that may be spent there, if it is in force.
    pub limit: Option<Usd>,
}

/// How far an account is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AccountState {
    /// Its chain of runs is not over.
    Open,
    /// Its chain is over, and accounts below it are not closed.
    Ended,
    /// It is over with all below it.
    Closed,
}

impl AccountState {
    /// The word used on the wire and in answers of tools.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Ended => "ended",
            Self::Closed => "closed",
        }
    }
}

impl AccountView {
    /// How far it is over.
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

/// A run that an action of another run asks for.
#[derive(Debug)]
pub struct Nest<'a> {
    /// The run that asks.
    pub parent: &'a Run,
    /// What it asks for.
    pub wanted: Wanted,
    /// The idempotency key of the step, from which those of the new run derive.
    pub key: &'a str,
    /// The ended run of an earlier try of the step, to be continued.
    pub continues: Option<Arc<Run>>,
}

/// What an action comes to that a run of its own carries out.
#[derive(Debug, Clone)]
pub enum Wanted {
    /// A graph.
    Graph {
        /// Which.
        item: ItemRef,
        /// The parameters of the action, control parameters included.
        params: Object,
    },
    /// A thread.
    Thread(Box<ThreadOrder>),
}

impl Wanted {
    /// The item that runs.
    pub const fn item(&self) -> &ItemRef {
        match self {
            Self::Graph { item, .. } => item,
            Self::Thread(order) => &order.directive,
        }
    }
}

/// What came of asking for a run.
#[derive(Debug)]
pub enum Nested {
    /// A run to be created in the commit that starts the step.
    Create {
        /// Its id.
        run: RunId,
        /// Everything that is fixed about it.
        spec: Arc<Spec>,
        /// Why it fails at once, if it does.
        fault: Option<Failure>,
        /// What its people should know.
        warnings: Vec<String>,
    },
    /// No run: the answer was at hand (`validate: true`).
    Answer(Value),
}

/// How a suspended or ended run is to be resumed.
#[derive(Debug, Clone, Default)]
pub struct Resume {
    /// Who asks.
    pub by: String,
    /// The new limits of what it does.
    pub raised: Raised,
    /// The new absolute limit of what it may spend, itself and all below it.
    pub spend: Option<Usd>,
    /// What became of attempts whose outcome nobody knew: the item as the suspension names it, or its position, or `*`.
    pub verdicts: Vec<(String, Verdict)>,
    /// What the one attempt came to that is done.
    pub result: Option<Arc<Value>>,
    /// What becomes of the question that it is suspended for, if it is.
    pub approval: Option<Settled>,
    /// What the model of the run, which is a thread then, is told first.
    pub message: Option<String>,
    /// Whether a graph is continued with the text that it has on record, whatever the item says by now.
    pub same_text: bool,
    /// What the caller may do; a run that continues an ended one gets this as a further layer.
    pub layers: Vec<rye_core::capability::Layer>,
    /// The account of the caller, if it is a run that acts for itself: what it continues draws on it, or on what lies below it.
    pub within: Option<AccountId>,
}

impl Resume {
    /// Whether it brings nothing that the run has to take in.
    pub fn asks_nothing(&self) -> bool {
        self.raised == Raised::default()
            && self.spend.is_none()
            && self.verdicts.is_empty()
            && self.approval.is_none()
            && self.message.is_none()
    }
}

/// What becomes of a question that a run is suspended for.
#[derive(Debug, Clone, PartialEq)]
pub enum Settled {
    /// A person answered.
    Answered(ApprovalAnswer),
    /// Nobody answered the question of this name, and the time is over.
    Expired(Name),
}

/// Why the owner of all runs did not do what it was asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// What kind of refusal.
    pub kind: ErrorKind,
    /// For people.
    pub message: String,
}

impl Refusal {
    /// As the failure of an action on an item: it is not carried out.
    pub fn of_item(self) -> Failure {
        self.into_failure(["item_not_found", "invalid_action", "item_refused"])
    }

    /// As the failure of an action on a run, which stays as it is.
    pub fn of_run(self) -> Failure {
        self.into_failure(["run_not_found", "invalid_params", "permission_denied"])
    }

    /// As the failure of an action on a file of the project.
    pub fn of_file(self) -> Failure {
        self.into_failure(["file_not_found", "invalid_params", "permission_denied"])
    }

    /// The failure; what a missing, a malformed and a forbidden subject are called differs.
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
