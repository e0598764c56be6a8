//! Runs and their events.
//!
//! **Owns** the record of a run ([`Run`]: its [`Life`], the same for every kind, and its [`Work`]), the closed
//! vocabulary of facts about it ([`Event`]) and the only transition ([`Run::apply`]). **Never** decides what to do
//! next: the machines and the supervisor do. An event is a fact that has been decided.
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
//! **Failure.** An event that the run cannot take in its state is [`Illegal`]; nothing of its commit is applied.

mod attempt;
mod budget;
mod chunks;
mod directory;
mod failure;
mod isolation;
mod kill;
mod limits;
mod log_cursor;
mod resources;

mod approval;
mod process_end;
mod process_probe;
mod process_watch;
mod suspension;

mod control;
mod life;

mod parent_end;
mod round;

pub mod graph;
pub mod process;
pub mod thread;
pub mod tool;

mod task;

mod spec;

pub mod event;

mod approvals;
mod work;

mod run;

mod death;
mod failed_part;
mod raised;
mod report;

pub use self::approval::{
    Approval, ApprovalAnswer, ApprovalKind, ApprovalRule, DENIED, Expired, OnExpiry,
};
pub use self::approvals::{Approvals, Requested};
pub(crate) use self::attempt::attempt_name;
pub use self::attempt::{Attempt, AttemptId, Effect, ProcessIdentity, Slot, Unknown, Verdict};
pub use self::budget::{Because, Budget, Funding, OpenCall};
pub use self::chunks::Chunks;
pub use self::control::{Control, DEFAULT_EXTENSION, DEFAULT_RETRIES};
pub use self::death::{Death, FAULT_WINDOW, MOST_FAULTS, MOST_SUSPICIONS};
pub use self::directory::DirectoryIdentity;
pub use self::event::{
    Event, Facets, GraphEvent, ProcessEvent, RunEvent, Syncing, ThreadEvent, ToolEvent, Unreadable,
    While,
};
pub use self::failure::{DIVERGED, Failure, GRAPH_FAILED, Printed};
pub use self::graph::{StepStatus, SuppressedError, UnfinishedWork};
pub use self::isolation::Isolation;
pub use self::kill::{AdoptedProcess, EndedProcess, Kill, KillReceipt, Killed};
pub use self::life::{Illegal, Life, Outcome, Status};
pub use self::limits::{Below, Limits, MOST_DEPTH, Raisable, Raised, proposed};
pub use self::log_cursor::LogCursor;
pub use self::parent_end::{ChildTerms, Fate, ParentEnd, Waits};
pub use self::process::{
    McpSession, ProcessSpec, ProcessStage, ProcessState, Readiness, ReadySign, RequestedRestart,
    RestartPolicy, RestartReason,
};
pub use self::process_end::{EndCause, ProcessEnd};
pub use self::process_probe::{
    HealthCheck, HttpProbe, PortChoice, PortRef, Ports, Probe, Unready, UnreadyCode,
};
pub use self::process_watch::{
    MOST_WATCH_RULES, ProcessWatch, WatchMinute, WatchRule, WatchStatus, WatchedRule,
};
pub use self::raised::Unraised;
pub use self::resources::{Resource, Resources};
pub use self::round::Round;
pub use self::run::Run;
pub use self::spec::{Callback, Durability, Recovery, Spec};
pub use self::suspension::{SuspendReason, Suspension};
pub use self::task::{Extent, GraphSource, GraphTask, RunKind, StartFrom, Task, ThreadSource};
pub use self::work::Work;
pub use crate::expr::Object;

#[cfg(test)]
mod tests;
