//! The short form of a run, for lists.

use rye_core::clock::Timestamp;
use rye_core::id::{ItemRef, RunId};
use rye_core::ledger::AccountId;
use rye_core::model::{Run, RunKind, Status};
use serde::{Deserialize, Serialize};

/// A run in a list.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// Its id.
    pub id: RunId,
    /// What runs.
    pub item: ItemRef,
    /// What carries it out.
    pub kind: RunKind,
    /// Where it stands.
    pub status: Status,
    /// Its project.
    pub project: String,
    /// Who asked.
    pub principal: String,
    /// The run that started it.
    pub parent: Option<RunId>,
    /// How many ancestors it has.
    pub depth: u32,
    /// Whether its parent does not wait for it.
    pub detached: bool,
    /// The run it continues.
    pub continuation_of: Option<RunId>,
    /// When it was accepted.
    pub created_at: Timestamp,
    /// When it began.
    pub started_at: Option<Timestamp>,
    /// Time of its last event.
    pub updated_at: Timestamp,
    /// When it ended.
    pub ended_at: Option<Timestamp>,
    /// Steps taken.
    pub steps: u32,
    /// The account of its chain.
    pub account: AccountId,
    /// How many child runs its chain has started.
    #[serde(default)]
    pub spawn_count: u32,
    /// Who asked it to stop, and why, if that was accepted.
    #[serde(default)]
    pub cancel: Option<String>,
    /// When.
    #[serde(default)]
    pub cancelled_at: Option<Timestamp>,
}

impl Summary {
    /// The short form of a record.
    pub fn of(run: &Run) -> Self {
        Self {
            id: run.id.clone(),
            item: run.spec.item.clone(),
            kind: run.spec.kind(),
            status: run.status(),
            project: run.spec.project.clone(),
            principal: run.spec.principal.clone(),
            parent: run.spec.parent.clone(),
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
        }
    }
}
