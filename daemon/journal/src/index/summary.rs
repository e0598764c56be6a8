//! The short form of a run, for lists.

use rye_core::clock::Timestamp;
use rye_core::id::{ItemRef, RunId};
use rye_core::ledger::AccountId;
use rye_core::model::thread::TurnWait;
use rye_core::model::{Run, RunKind, Status};
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    pub id: RunId,
    /// The item that is executed.
    pub item: ItemRef,
    pub kind: RunKind,
    pub status: Status,
    pub project: String,
    /// Principal that started it.
    pub principal: String,
    /// The run that started it.
    pub parent: Option<RunId>,
    /// Name of the attempt of its parent that it carries out.
    #[serde(default)]
    pub parent_attempt: Option<String>,
    /// Number of its ancestors.
    pub depth: u32,
    /// True if its parent does not wait for it.
    pub detached: bool,
    /// The run that it continues.
    pub continuation_of: Option<RunId>,
    /// Time when it was accepted.
    pub created_at: Timestamp,
    /// Time when it began.
    pub started_at: Option<Timestamp>,
    /// Time of its last event.
    pub updated_at: Timestamp,
    pub ended_at: Option<Timestamp>,
    /// Number of steps taken.
    pub steps: u32,
    /// Account of its chain of continuations.
    pub account: AccountId,
    /// Number of child runs that its chain has started.
    #[serde(default)]
    pub spawn_count: u32,
    /// Requester and reason of an accepted cancel request.
    #[serde(default)]
    pub cancel: Option<String>,
    /// Time of the accepted cancel request.
    #[serde(default)]
    pub cancelled_at: Option<Timestamp>,
    /// The wait that delays the next turn of a thread; none of a run that has ended.
    #[serde(skip)]
    pub waiting: Option<TurnWait>,
}

impl Summary {
    pub fn of(run: &Run) -> Self {
        Self {
            id: run.id.clone(),
            item: run.spec.item.clone(),
            kind: run.spec.kind(),
            status: run.status(),
            project: run.spec.project.clone(),
            principal: run.spec.principal.clone(),
            parent: run.spec.parent.clone(),
            parent_attempt: run.spec.parent_attempt.clone(),
            depth: run.spec.depth,
            detached: !run.spec.parent_end.waits(),
            continuation_of: run.spec.continuation_of.clone(),
            created_at: run.created_at,
            started_at: run.started_at,
            updated_at: run.updated_at,
            ended_at: run.ended_at,
            steps: run.steps(),
            account: run.spec.budget.account.clone(),
            spawn_count: run.spawn_count,
            cancel: run.cancel.clone(),
            cancelled_at: run.cancelled_at,
            waiting: run.waiting().copied(),
        }
    }
}
