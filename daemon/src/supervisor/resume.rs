//! Suspending and resuming runs.
//!
//! A suspended run resumes under its own id. A run that ended without success is continued by a new run, which takes
//! over state, steps and inputs, and has the old one as `continuation_of`. After a run that completed with errors, the
//! new run repeats only what failed. The start key `continues:<id>` makes it unique, however many callers request it at
//! once. A step that used a child run continues that child run in the same way ([`crate::children`]). An at-most-once
//! attempt of unknown outcome, here or in a child run, is repeated only if the request says so
//! ([`Supervisor::unknown`]).
//!
//! **Order.** A run is resumed in one commit with the suspended child runs that it waits for. Then its suspended
//! ancestors are resumed one by one. If a suspended run is ended instead, the runs that wait for it resume with that
//! result.
//!
//! **Races.** A run may end, or be resumed, while its parent is about to be suspended. The request checks the parent
//! afterwards, and the parent checks the run after its own suspension; so does the next start of the daemon. A run may
//! be requested to suspend while it has no task, just after a resume or before recovery. The request is registered
//! first and then looks for a task to notify; a task registers first and then looks for such a request.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, MutexGuard, PoisonError};

use rye_core::access::Caller;
use rye_core::capability::Layer;
use rye_core::id::{Epoch, RunId};
use rye_core::model::event::{BudgetRaised, RunResumed, UncertainAnswered};
use rye_core::model::{Event, Life, Outcome, Raised, Run, RunKind, Status, SuspendReason, Verdict};
use rye_core::printable::shell_word;

use super::approvals;
use super::error::Error;
use super::graph_params::brings_other_inputs;
use super::handle::{CONTINUES, Supervisor};
use super::message::{self, queue_message};
use super::raises::{
    check_account, check_raise, check_spend, is_short, limits_of_continuation, part_of,
    too_little_above,
};
use super::request::{Hold, Start, StartAt};
use super::unknown::check_answers;
use crate::exhausted::Exhausted;
use crate::port::{Resume, Settled, reach};
use rye_journal::{Change, KeyOwner, RefusalReason, Refused, Summary};

/// A registered request to suspend; removed on drop, when its caller is gone.
struct SuspendRequest<'a> {
    supervisor: &'a Supervisor,
    hold: Hold,
}

impl Drop for SuspendRequest<'_> {
    fn drop(&mut self) {
        let mut holds = self.supervisor.holds();
        if let Some(place) = holds.iter().position(|hold| *hold == self.hold) {
            holds.swap_remove(place);
        }
    }
}

impl Supervisor {
    /// Requests a run to suspend before its next attempt; returns when it is suspended or has ended.
    pub async fn suspend(&self, id: &RunId) -> Result<Arc<Run>, Error> {
        let run = self.live_run(id, "suspended").await?;
        if run.spec.kind() == RunKind::Process {
            let problem = "a managed process cannot be suspended; `ryectl proc stop` stops it";
            return Err(Error::Unfit {
                run: id.clone(),
                problem: problem.to_owned(),
            });
        }
        if run.suspension().is_some() {
            return Ok(run);
        }
        let _held = self.hold(&run);
        self.journal().rested(id, run.seq).await?;
        self.run_of(id).await
    }

    /// Registers a request to suspend `run`, and notifies its task if there is one.
    fn hold(&self, run: &Run) -> SuspendRequest<'_> {
        let hold = (run.id.clone(), run.seq);
        self.holds().push(hold.clone());
        if let Some(stop) = self.live().get(&run.id) {
            stop.hold();
        }
        SuspendRequest {
            supervisor: self,
            hold,
        }
    }

    /// True if a caller waits for `run`, whose task begins now, to be suspended. A request from before the last resume
    /// does not count.
    pub(super) fn is_to_suspend(&self, run: &Run) -> bool {
        let holds = self.holds();
        holds
            .iter()
            .any(|(id, since)| *id == run.id && *since >= run.seq)
    }

    fn holds(&self) -> MutexGuard<'_, Vec<Hold>> {
        // Every use is one insert, remove or read, so a panic elsewhere leaves the list valid.
        let holds = self.shared.holds.lock();
        holds.unwrap_or_else(PoisonError::into_inner)
    }

    /// Resumes or continues `id` instead of starting a new run for `request`. The run keeps its inputs and its
    /// authority; limits of the request replace its own.
    pub async fn start_again(&self, id: &RunId, request: Start) -> Result<Arc<Run>, Error> {
        self.run_to_take_over(id, &request).await?;
        let changed = [
            (request.capabilities.is_some(), "capabilities"),
            (request.durability.is_some(), "durability"),
        ];
        if let Some((_, what)) = changed.into_iter().find(|(given, _)| *given) {
            let message = format!("run `{id}` keeps its {what} when it is resumed; leave it out");
            return Err(Error::Params { message });
        }
        let resume = Resume {
            by: request.caller.source.clone(),
            raised: Raised::of(&request.limits),
            spend: request.limits.spend,
            verdicts: Vec::new(),
            result: None,
            approval: None,
            message: None,
            same_text: false,
            failed: false,
            layers: vec![request.caller],
            caller_account: None,
        };
        self.resume(id, resume).await
    }

    /// Returns the run `id`, whose inputs and state a run of `request` takes over. Fails unless both have the same item
    /// and the request brings no other inputs.
    pub(super) async fn run_to_take_over(
        &self,
        id: &RunId,
        request: &Start,
    ) -> Result<Arc<Run>, Error> {
        let caller = Caller::User(&request.caller);
        let run = reach::actionable(&*self.runs(), caller, id).await?;
        if run.spec.item != request.item.canonical() {
            return Err(Error::Unfit {
                run: id.clone(),
                problem: format!("it runs `{}`, not `{}`", run.spec.item, request.item),
            });
        }
        if brings_other_inputs(request, &run) {
            let message = format!("the inputs are those of run `{id}`; leave out others");
            return Err(Error::Params { message });
        }
        Ok(run)
    }

    /// Resumes a suspended run, or continues one that ended without success; returns the run that now runs.
    pub async fn resume(&self, id: &RunId, request: Resume) -> Result<Arc<Run>, Error> {
        let (this, id) = (self.clone(), id.clone());
        let work = async move { this.resume_with_children(&id, request).await };
        self.run_to_end(work).await
    }

    async fn resume_with_children(&self, id: &RunId, request: Resume) -> Result<Arc<Run>, Error> {
        check_result(id, &request)?;
        let run = self.newest(id).await?;
        if request.approval.is_some() && (run.id != *id || !approvals::waits_for_answer(&run)) {
            // It was continued or has ended since. The question is closed, and an answer cannot resume the run.
            return Err(approvals::nothing_open(&run));
        }
        if run.id != *id && request.is_empty() && !should_continue(&run) {
            // Already resumed: return that run, whatever its progress.
            return Ok(run);
        }
        if run.status().is_terminal() && run.spec.is_single_step() {
            return Err(Error::Unfit {
                run: run.id.clone(),
                problem: "it was one step of a graph and has ended; take the step again".into(),
            });
        }
        if let Some(text) = &request.message {
            message::check(&run, text)?;
        }
        if request.failed && !run.status().is_terminal() {
            return Err(Error::Unfit {
                run: run.id.clone(),
                problem: "--failed goes with a graph that has ended; without it, it is resumed"
                    .into(),
            });
        }
        match &run.life {
            Life::Suspended(why) if why.reason == SuspendReason::Storage => Err(Error::Unfit {
                run: run.id.clone(),
                problem: format!(
                    "it waits for {}, and resumes by itself",
                    why.code
                        .as_deref()
                        .and_then(Exhausted::of_code)
                        .map_or("space to write", Exhausted::description)
                ),
            }),
            Life::Suspended(_) => self.resume_suspended(run, request).await,
            Life::Ended(outcome) => match &**outcome {
                Outcome::Error { .. } | Outcome::Cancelled { .. } | Outcome::Killed { .. } => {
                    self.continue_ended(run, request).await
                }
                Outcome::CompletedWithErrors { .. } if run.is_repairable() => {
                    self.continue_ended(run, request).await
                }
                Outcome::Completed { .. } if request.message.is_some() => {
                    self.continue_ended(run, request).await
                }
                Outcome::Completed { .. } if run.thread().is_some() => Err(Error::Unfit {
                    run: run.id.clone(),
                    problem: format!(
                        "it has completed; to continue its conversation, say something to it: ryectl resume {} --message TEXT",
                        run.id
                    ),
                }),
                Outcome::Completed { .. } | Outcome::CompletedWithErrors { .. } => {
                    Err(Error::Over {
                        run: run.id.clone(),
                        status: run.status(),
                        wanted: "resumed",
                    })
                }
            },
            Life::Created | Life::Running => Err(Error::NotSuspended {
                run: run.id.clone(),
                status: run.status(),
            }),
        }
    }

    /// Returns the last run of the chain of continuations of `id`, or the run itself.
    pub async fn newest(&self, id: &RunId) -> Result<Arc<Run>, Error> {
        let mut run = self.run_of(id).await?;
        while let Some(next) = self.continued_by(&Summary::of(&run)).await? {
            run = self.run_of(&next).await?;
        }
        Ok(run)
    }

    pub async fn continued_by(&self, run: &Summary) -> Result<Option<RunId>, Error> {
        match (run.status, run.kind) {
            (Status::Error | Status::Cancelled | Status::Killed, _)
            | (Status::CompletedWithErrors, RunKind::Graph)
            | (Status::Completed, RunKind::Thread) => {
                let key = continuation_key(&run.id);
                let owner = self.journal().by_start_key(&run.principal, &key).await?;
                Ok(owner.and_then(|owner| match owner {
                    KeyOwner::Run(run) => Some(run),
                    KeyOwner::Removed(..) => None,
                }))
            }
            (
                Status::Created
                | Status::Running
                | Status::Suspended
                | Status::Completed
                | Status::CompletedWithErrors,
                _,
            ) => Ok(None),
        }
    }

    async fn continue_ended(&self, run: Arc<Run>, request: Resume) -> Result<Arc<Run>, Error> {
        check_answers(
            &run,
            &self.unknown_of_continuation(&run, request.failed).await?,
            &request,
        )?;
        check_raise(&run, &request.raised)?;
        check_spend(&run, &request)?;
        // The authority is in the layers; this is only the name of the caller.
        let caller = Layer {
            source: request.by.clone(),
            patterns: Vec::new(),
        };
        let start = Start {
            item: run.spec.item.clone(),
            directory: PathBuf::from(&run.spec.project),
            inputs: run.spec.inputs.clone(),
            text_inputs: BTreeMap::new(),
            capabilities: None,
            limits: limits_of_continuation(&run, &request),
            model: None,
            provider: None,
            durability: Some(run.spec.durability),
            start_key: Some(continuation_key(&run.id)),
            caller,
            start_at: StartAt::Continue {
                run: Arc::clone(&run),
                layers: request.layers,
                message: request.message,
                same_text: request.same_text,
                failed: request.failed,
                within: request.caller_account,
            },
            lineage: None,
        };
        let started = self.admit_and_launch(start, None).await?;
        self.run_of(&started.run).await
    }

    async fn resume_suspended(
        &self,
        run: Arc<Run>,
        mut request: Resume,
    ) -> Result<Arc<Run>, Error> {
        let message = request.message.as_ref();
        let said = message.map(|text| queue_message(&run, text, &request.by));
        let said = said.transpose()?;
        let below = self.suspended_children(&run).await?;
        // Verdicts apply to the named run, or to the leaf that it waits for.
        let leaf = run.suspension().and_then(|why| why.child.as_ref());
        let leaf = leaf.and_then(|leaf| below.iter().find(|run| run.id == *leaf));
        let target = Arc::clone(leaf.unwrap_or(&run));
        check_account(&run, &target, &request)?;
        // After a denial no attempt is repeated.
        let retries = !matches!(&request.approval, Some(Settled::Answered(said)) if !said.approved);
        let unknown = if retries {
            self.unknown_of_retry(&target).await?
        } else {
            Vec::new()
        };
        if !unknown.is_empty() {
            check_answers(&target, &unknown, &request)?;
            request.verdicts.clear();
        }
        let mut changes: Vec<_> = said.into_iter().collect();
        let mut line = Vec::new();
        for suspended in below.iter().chain([&run]) {
            let part = part_of(&request, suspended, &run, &target);
            let is_asked = !part.is_empty() || suspended.id == target.id;
            // A run on the way with uncertain attempts stays suspended until they are answered.
            if suspended.id != target.id {
                let unknown = self.unknown_of_retry(suspended).await?;
                if !unknown.is_empty() {
                    if is_asked {
                        check_answers(suspended, &unknown, &part)?;
                    }
                    continue;
                }
            }
            match resume_changes(suspended, &part, self.shared.services.epoch) {
                Ok(more) => changes.extend(more),
                Err(error) if is_asked => return Err(error),
                Err(_) => continue,
            }
            line.push(suspended.id.clone());
        }
        let ticket = match self.journal().commit(changes).await {
            Ok(committed) => committed.ticket,
            Err(rye_journal::Error::Refused(Refused {
                run,
                why: RefusalReason::Illegal(_),
                ..
            })) => {
                let now = self.run_of(&run).await?;
                return Err(Error::NotSuspended {
                    run: now.id.clone(),
                    status: now.status(),
                });
            }
            Err(rye_journal::Error::Refused(refused)) if is_short(&refused) => {
                return Err(too_little_above(&run, &refused, request.spend));
            }
            Err(error) => return Err(error.into()),
        };
        self.journal().published(ticket).await?;
        for id in line {
            let run = self.run_of(&id).await?;
            self.launch_created(run).await?;
        }
        self.release_parent(&run.id).await?;
        self.run_of(&run.id).await
    }

    /// Resumes the parent that is suspended for `id`, and its ancestors in turn, if `id` is no longer suspended.
    pub(super) async fn release_parent(&self, id: &RunId) -> Result<(), Error> {
        match waiting_parent(&*self.run_of(id).await?) {
            Some(parent) => self.release(&parent).await,
            None => Ok(()),
        }
    }

    /// Resumes `id` if it is suspended for a run that is no longer suspended, then the runs that are suspended for `id`
    /// in turn.
    pub(super) async fn release(&self, id: &RunId) -> Result<(), Error> {
        let mut next = Some(id.clone());
        while let Some(id) = next {
            let run = self.run_of(&id).await?;
            if !self.waits_for_resumed(&run).await? {
                return Ok(());
            }
            let changes = resume_changes(&run, &Resume::default(), self.shared.services.epoch)?;
            match self.journal().commit(changes).await {
                Ok(committed) => self.journal().published(committed.ticket).await?,
                // Another caller resumed it and checks its ancestors; or it has ended, or is about to.
                Err(rye_journal::Error::Refused(Refused {
                    why:
                        RefusalReason::Illegal(_) | RefusalReason::NotLive | RefusalReason::Stopping(_),
                    ..
                })) => {
                    return Ok(());
                }
                Err(error) => return Err(error.into()),
            }
            let run = self.run_of(&id).await?;
            next = waiting_parent(&run);
            self.launch_created(run).await?;
        }
        Ok(())
    }

    /// Returns the child runs for which `run` is suspended: those of its attempts in flight, and the one for which a
    /// program was ended.
    async fn waited_for(&self, run: &Run) -> Result<Vec<RunId>, Error> {
        let mut found = children(run);
        let leaf = run.suspension().and_then(|why| why.child.clone());
        let mut next = leaf.filter(|_| is_suspended_for_child(run));
        while let Some(id) = next {
            let child = self.run_of(&id).await?;
            if child.spec.parent.as_ref() == Some(&run.id) {
                if !found.contains(&id) {
                    found.push(id);
                }
                break;
            }
            next = child.spec.parent.clone();
        }
        Ok(found)
    }

    /// True if `run` is suspended for a run that was resumed or has ended.
    async fn waits_for_resumed(&self, run: &Run) -> Result<bool, Error> {
        for child in self.waited_for(run).await? {
            if !is_suspended(&*self.run_of(&child).await?) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Returns the suspended runs that `run` waits for, deepest first.
    async fn suspended_children(&self, run: &Run) -> Result<Vec<Arc<Run>>, Error> {
        let mut found = Vec::new();
        let mut open = self.waited_for(run).await?;
        while let Some(id) = open.pop() {
            let child = self.run_of(&id).await?;
            if is_suspended(&child) && child.spec.parent_end.waits() {
                open.extend(self.waited_for(&child).await?);
                found.push(child);
            }
        }
        found.reverse();
        Ok(found)
    }
}

/// Returns the events that resume a suspended run.
fn resume_changes(run: &Run, request: &Resume, epoch: Epoch) -> Result<Vec<Change>, Error> {
    check_raise(run, &request.raised)?;
    let mut events = verdicts(run, request)?;
    events.extend(approvals::settled(run, request.approval.as_ref())?);
    events.extend(request.spend.map(|to| {
        Event::from(BudgetRaised {
            account: run.spec.budget.account.clone(),
            to,
            by: request.by.clone(),
        })
    }));
    events.push(Event::from(RunResumed {
        epoch,
        raised: request.raised,
    }));
    let changes = events
        .into_iter()
        .map(|event| Change::event(&run.id, event));
    Ok(changes.collect())
}

/// True if `run` cannot complete without a request to resume it.
fn should_continue(run: &Run) -> bool {
    match run.status() {
        Status::Suspended | Status::Error | Status::Cancelled | Status::Killed => true,
        Status::CompletedWithErrors => run.is_repairable(),
        Status::Created | Status::Running | Status::Completed => false,
    }
}

/// Refuses a result unless the only verdict is `done` for one named attempt.
fn check_result(id: &RunId, request: &Resume) -> Result<(), Error> {
    let is_one = matches!(request.verdicts.as_slice(), [(name, Verdict::Done)] if name != "*");
    if request.result.is_none() || is_one {
        return Ok(());
    }
    Err(Error::Params {
        message: format!(
            "run `{id}`: a result goes with exactly one answer, which names its attempt: --uncertain ITEM=done"
        ),
    })
}

/// Returns the parent of `run` if it waits for `run`.
fn waiting_parent(run: &Run) -> Option<RunId> {
    run.spec
        .parent
        .clone()
        .filter(|_| run.spec.parent_end.waits())
}

/// True if `run` is suspended and does not resume by itself.
fn is_suspended(run: &Run) -> bool {
    run.suspension()
        .is_some_and(|why| why.reason != SuspendReason::Storage)
}

fn is_suspended_for_child(run: &Run) -> bool {
    run.suspension()
        .is_some_and(|why| why.reason == SuspendReason::Child)
}

/// Returns the child runs of the attempts in flight of `run`, if it is suspended for one of them.
fn children(run: &Run) -> Vec<RunId> {
    if !is_suspended_for_child(run) {
        return Vec::new();
    }
    let children = run.attempts().filter_map(|attempt| attempt.child.clone());
    children.collect()
}

/// The start key of the only run that continues `id`.
pub(super) fn continuation_key(id: &RunId) -> String {
    format!("{CONTINUES}{id}")
}

/// Returns the events that answer the uncertain attempts of `run`. Fails if a verdict matches no attempt, or an attempt
/// has none.
fn verdicts(run: &Run, request: &Resume) -> Result<Vec<Event>, Error> {
    let unfit = |problem: String| Error::Unfit {
        run: run.id.clone(),
        problem,
    };
    let Some(why) = run.suspension() else {
        return Ok(Vec::new());
    };
    let mut open = match why.reason {
        SuspendReason::Uncertain => run.uncertain(),
        SuspendReason::Limit
        | SuspendReason::Budget
        | SuspendReason::Error
        | SuspendReason::Approval
        | SuspendReason::Restart
        | SuspendReason::Storage
        | SuspendReason::Child
        | SuspendReason::CrashLoop
        | SuspendReason::User => Vec::new(),
    };
    let mut events = Vec::new();
    for (name, verdict) in &request.verdicts {
        let (meant, rest): (Vec<_>, Vec<_>) = open.into_iter().partition(|(known, attempt)| {
            name == "*" || known == name || attempt.slot.to_string() == *name
        });
        if meant.is_empty() {
            let known: Vec<_> = rest.iter().map(|(name, _)| name.as_str()).collect();
            let known = if known.is_empty() {
                "nothing".to_owned()
            } else {
                known.join(", ")
            };
            return Err(unfit(format!("`{name}` is not uncertain; {known} is")));
        }
        open = rest;
        events.extend(meant.into_iter().map(|(_, attempt)| {
            Event::from(UncertainAnswered {
                step: attempt.step,
                slot: attempt.slot,
                verdict: *verdict,
                result: request.result.clone(),
                by: request.by.clone(),
            })
        }));
    }
    if let Some((name, _)) = open.first() {
        let words = [Verdict::Retry, Verdict::Done, Verdict::Fail].map(Verdict::as_str);
        return Err(unfit(format!(
            "it is unknown whether `{name}` took effect; decide it: --uncertain {}",
            shell_word(&format!("{name}={}", words.join("|")))
        )));
    }
    Ok(events)
}
