//! Questions of runs to people: their answers, and their timeouts.
//!
//! **Order.** An answer and the resumption of its run are one commit. So after a crash the run either waits or has its
//! answer. **Races.** The first of two answers counts; the second is refused because no question is open. Timeouts are
//! checked every half second, together with cancel files. An answer before the check counts. **Times.** The open time
//! is measured by the monotonic clock from the first check of the question. After a restart the wall clock determines
//! the remaining time, which is at most the whole timeout.

use std::collections::HashMap;
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::Duration;

use rye_core::error::with_sources;
use rye_core::id::RunId;
use rye_core::model::{
    Approval, ApprovalAnswer, Event, Expired, OnExpiry, Run, RunEvent, SuspendReason, Verdict,
};

use super::error::Error;
use super::handle::Supervisor;
use super::request::Deadlines;
use crate::port::{Resume, Settled};
use rye_host::task;
use rye_journal::{Change, RefusalReason, Refused};

impl Supervisor {
    /// Answers a question of the run `id`, and resumes a run that is suspended for it. `asked` is the id of the
    /// question; `None` means the only open one. `verdicts` permit the repetition of at-most-once attempts of unknown
    /// outcome.
    pub async fn answer(
        &self,
        id: &RunId,
        asked: Option<&str>,
        answer: ApprovalAnswer,
        verdicts: Vec<(String, Verdict)>,
    ) -> Result<Arc<Run>, Error> {
        let run = self.live_run(id, "answered").await?;
        let approval = open(&run, asked)?.clone();
        let unfit = |problem: String| Error::Params {
            message: format!("run `{id}`: {problem}"),
        };
        let answer = ApprovalAnswer {
            id: Arc::clone(&approval.id),
            ..answer
        };
        if answer.approved {
            let said = answer.answer.clone();
            let check = move || approval.check(said.as_deref());
            task::blocking("check an answer", check)
                .await
                .map_err(unfit)?;
        }
        if waits_for_answer(&run) {
            let resume = Resume {
                by: answer.by.clone(),
                verdicts,
                approval: Some(Settled::Answered(answer)),
                ..Resume::default()
            };
            return self.resume(id, resume).await;
        }
        if let Some((name, _)) = verdicts.first() {
            return Err(unfit(format!("`{name}` is not uncertain")));
        }
        // It is suspended for another reason, or still has attempts in flight.
        let event = RunEvent::ApprovalAnswered(answer).into();
        match self.journal().commit(vec![Change::event(id, event)]).await {
            Ok(committed) => self.journal().published(committed.ticket).await?,
            Err(rye_journal::Error::Refused(Refused {
                why: RefusalReason::Illegal(_),
                ..
            })) => return Err(nothing_open(&run)),
            Err(error) => return Err(error.into()),
        }
        self.run_of(id).await
    }

    /// Resumes the runs whose questions have timed out. `live` contains all live runs.
    pub(super) async fn expire_approvals(&self, live: &[Arc<Run>]) {
        let (now, up) = (self.journal().now(), self.services().clock.up());
        let epoch = self.services().epoch;
        let mut late = Vec::new();
        {
            let mut deadlines = self.deadlines();
            let mut known = HashMap::with_capacity(deadlines.len());
            for run in live {
                for asked in run.approvals.requested() {
                    let keeps = asked.approval.on_expiry == OnExpiry::Keep;
                    let Some(until) = asked.approval.expires_at.filter(|_| !keeps) else {
                        continue;
                    };
                    let key = (run.id.clone(), Arc::clone(&asked.approval.id));
                    let deadline = deadlines.get(&key).copied().unwrap_or_else(|| {
                        let whole = until.ms_since(asked.approval.created_at);
                        // A question of this life of the daemon has just been opened.
                        let left = if asked.epoch == epoch {
                            whole
                        } else {
                            until.ms_since(now).min(whole)
                        };
                        up.plus(Duration::from_millis(left))
                    });
                    if deadline <= up && waits_for_answer(run) {
                        late.push(key.clone());
                    }
                    known.insert(key, deadline);
                }
            }
            *deadlines = known;
        }
        for (run, asked) in late {
            let resume = Resume {
                by: "the time limit of its question".to_owned(),
                approval: Some(Settled::Expired(asked)),
                ..Resume::default()
            };
            if let Err(error) = self.resume(&run, resume).await {
                tracing::info!(%run, error = %with_sources(&error), "a question that nobody answered stays open");
            }
        }
    }

    fn deadlines(&self) -> MutexGuard<'_, Deadlines> {
        // Each use inserts one entry or replaces the whole table.
        let deadlines = self.shared.deadlines.lock();
        deadlines.unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the open question of `run` with the id `asked`.
fn open<'r>(run: &'r Run, asked: Option<&str>) -> Result<&'r Approval, Error> {
    let mut open = run.open_approvals();
    let named = |approval: &&Approval| asked.is_none_or(|asked| *approval.id == *asked);
    let mut fitting = run.open_approvals().filter(named);
    let found = fitting.next();
    if fitting.next().is_some() {
        let ids: Vec<&str> = open.map(|approval| &*approval.id).collect();
        return Err(Error::Unfit {
            run: run.id.clone(),
            problem: format!("it asks several things; name one: {}", ids.join(", ")),
        });
    }
    match (found, asked, open.next()) {
        (Some(approval), _, _) => Ok(approval),
        (None, Some(asked), Some(other)) => Err(Error::Unfit {
            run: run.id.clone(),
            problem: format!("it does not ask `{asked}`; `{}` is open", other.id),
        }),
        (None, _, _) => Err(nothing_open(run)),
    }
}

/// True if `run` is suspended until its question is answered.
pub(super) fn waits_for_answer(run: &Run) -> bool {
    run.suspension().map(|why| why.reason) == Some(SuspendReason::Approval)
}

pub(super) fn nothing_open(run: &Run) -> Error {
    let child = run.suspension().and_then(|why| why.child.as_ref());
    let problem = match child {
        Some(child) => {
            format!("it asks nothing itself; it waits for the child run `{child}`: answer that one")
        }
        None => {
            "it asks nothing that is open: it may have been answered, or the time is over".into()
        }
    };
    Error::Unfit {
        run: run.id.clone(),
        problem,
    }
}

/// Returns the events that settle the question for which `run` is suspended. Without a settlement, such a run is not
/// resumed.
pub(super) fn settled(run: &Run, settled: Option<&Settled>) -> Result<Vec<Event>, Error> {
    let asks = waits_for_answer(run) && run.open_approvals().next().is_some();
    match settled {
        Some(Settled::Answered(answer)) => {
            Ok(vec![RunEvent::ApprovalAnswered(answer.clone()).into()])
        }
        None if asks => Err(Error::Unfit {
            run: run.id.clone(),
            problem: format!(
                "it waits for an answer: `ryectl approve {id}` or `ryectl deny {id}` gives one",
                id = run.id
            ),
        }),
        Some(Settled::Expired(id)) => {
            let id = Arc::clone(id);
            Ok(vec![RunEvent::ApprovalExpired(Expired { id }).into()])
        }
        None => Ok(Vec::new()),
    }
}

#[cfg(test)]
mod tests;
