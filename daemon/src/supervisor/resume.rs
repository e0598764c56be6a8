//! Parking runs, and letting them go on.
//!
//! A parked run goes on under its own id. One that ended without success is continued by a new run, which takes over state,
//! steps and inputs and names the old one as `continuation_of`; the start key `continues:<id>` makes it the only one, however many
//! ask at once. **Order.** Whoever waits for a parked run below goes on together with it: the run that is resumed, its parked
//! ancestors that wait for it, and the parked leaf it waits for itself.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use rye_core::capability::Layer;
use rye_core::id::RunId;
use rye_core::model::{
    Effect, Event, InFlight, Limits, Outcome, Phase, Run, Slot, SuspendReason, Verdict,
};

use super::{Beginning, Error, Start, Supervisor};
use crate::chain;
use crate::journal::{self, Change};
use crate::port::Resume;

impl Supervisor {
    /// Asks a run to park before its next attempt; resolves when it has parked or ended.
    pub async fn suspend(&self, id: &RunId) -> Result<Arc<Run>, Error> {
        let run = self.live_run(id, "suspended").await?;
        if let Phase::Suspended { .. } = run.phase {
            return Ok(run);
        }
        let stop = self.live().get(id).cloned();
        if let Some(stop) = stop {
            stop.hold();
        }
        self.settled(id).await?;
        self.run_of(id).await
    }

    /// Goes on with `id` instead of the fresh run that `request` asks for. The run keeps its inputs and its authority; a
    /// limit replaces its own.
    pub async fn start_again(&self, id: &RunId, request: Start) -> Result<Arc<Run>, Error> {
        self.run_to_take_over(id, &request).await?;
        let changed = [
            (request.capabilities.is_some(), "capabilities"),
            (request.durability.is_some(), "durability"),
            (request.limits.depth.is_some(), "limit of depth"),
        ];
        if let Some((_, what)) = changed.into_iter().find(|(given, _)| *given) {
            let message = format!("run `{id}` keeps its {what} when it goes on; leave it out");
            return Err(Error::Params { message });
        }
        let resume = Resume {
            by: request.caller.source.clone(),
            max_steps: request.limits.steps,
            verdicts: Vec::new(),
            layers: vec![request.caller],
        };
        self.resume(id, resume).await
    }

    /// The run whose inputs and state a run that `request` asks for takes over: one of the same item, and the request brings
    /// no inputs of its own.
    pub(super) async fn run_to_take_over(
        &self,
        id: &RunId,
        request: &Start,
    ) -> Result<Arc<Run>, Error> {
        let run = self.run_of(id).await?;
        if run.birth.item != chain::canonical(&request.item) {
            return Err(Error::Unfit {
                run: id.clone(),
                problem: format!("it runs `{}`, not `{}`", run.birth.item, request.item),
            });
        }
        if !request.inputs.is_empty() || !request.text_inputs.is_empty() {
            let message = format!("the inputs are those of run `{id}`; leave out others");
            return Err(Error::Params { message });
        }
        Ok(run)
    }

    /// Lets a parked run go on, or continues one that ended without success; answers with the one that runs.
    pub async fn resume(&self, id: &RunId, request: Resume) -> Result<Arc<Run>, Error> {
        let run = self.newest(id).await?;
        if run.status().is_terminal() && run.birth.is_single_step() {
            return Err(Error::Unfit {
                run: run.id.clone(),
                problem: "it was one step of a graph and has ended; take the step again".into(),
            });
        }
        match &run.phase {
            Phase::Suspended { .. } => self.let_go_on(run, request).await,
            Phase::Ended { outcome } => match outcome {
                Outcome::Error { .. } | Outcome::Cancelled { .. } | Outcome::Killed { .. } => {
                    self.continue_ended(run, request).await
                }
                Outcome::Completed { .. } | Outcome::CompletedWithErrors { .. } => {
                    Err(Error::Over {
                        run: run.id.clone(),
                        status: run.status(),
                        wanted: "resumed",
                    })
                }
            },
            Phase::Created | Phase::Running { .. } => Err(Error::NotParked {
                run: run.id.clone(),
                status: run.status(),
            }),
        }
    }

    /// The run that `id` was continued by, and so on to the last one; the run itself if it was not.
    pub async fn newest(&self, id: &RunId) -> Result<Arc<Run>, Error> {
        let mut run = self.run_of(id).await?;
        while let Some(next) = self.continued_by(&run).await? {
            run = self.run_of(&next).await?;
        }
        Ok(run)
    }

    /// The run that continues `run`.
    pub async fn continued_by(&self, run: &Run) -> Result<Option<RunId>, Error> {
        if !run.status().is_terminal() {
            return Ok(None);
        }
        let found = self
            .journal()
            .by_start_key(&run.birth.principal, &continuation_key(&run.id))
            .await?;
        Ok(found)
    }

    async fn continue_ended(&self, run: Arc<Run>, request: Resume) -> Result<Arc<Run>, Error> {
        if !request.verdicts.is_empty() {
            return Err(Error::Unfit {
                run: run.id.clone(),
                problem: "it has ended, so nothing about it is uncertain".into(),
            });
        }
        let source = request.by.clone();
        let caller = request.layers.into_iter().next().unwrap_or(Layer {
            source,
            patterns: Vec::new(),
        });
        let start = Start {
            item: run.birth.item.clone(),
            directory: PathBuf::from(&run.birth.project),
            inputs: run.birth.inputs.clone(),
            text_inputs: BTreeMap::new(),
            capabilities: None,
            limits: Limits {
                steps: request.max_steps,
                ..run.birth.limits.clone()
            },
            durability: Some(run.birth.durability),
            start_key: Some(continuation_key(&run.id)),
            caller,
            beginning: Beginning::Continue(Arc::clone(&run)),
            lineage: None,
        };
        let started = self.start(start).await?;
        self.run_of(&started.run).await
    }

    async fn let_go_on(&self, run: Arc<Run>, request: Resume) -> Result<Arc<Run>, Error> {
        let mut line = vec![Arc::clone(&run)];
        // Whoever waits for it above …
        while let Some(parent) = self.parked_above(&line[0]).await? {
            line.insert(0, parent);
        }
        // … and the parked runs it waits for below, each behind the one that waits.
        let mut at = line.len() - 1;
        while let Some(waiting) = line.get(at).map(Arc::clone) {
            for (_, work) in waiting.in_flight() {
                let Some(child) = &work.child else { continue };
                let child = self.run_of(child).await?;
                if matches!(child.phase, Phase::Suspended { .. }) && !child.birth.detached {
                    line.push(child);
                }
            }
            at += 1;
        }
        let (verdicts, raise) = (
            meant_for(&line, SuspendReason::Uncertain),
            meant_for(&line, SuspendReason::Limit),
        );
        // The leaves first: nobody waits for a run that has not been woken.
        for parked in line.iter().rev() {
            let is = |meant: &Option<RunId>| *meant.as_ref().unwrap_or(&run.id) == parked.id;
            let own = Resume {
                by: request.by.clone(),
                max_steps: request.max_steps.filter(|_| is(&raise)),
                verdicts: if is(&verdicts) {
                    request.verdicts.clone()
                } else {
                    Vec::new()
                },
                layers: Vec::new(),
            };
            self.wake(parked, &own).await?;
        }
        self.run_of(&run.id).await
    }

    /// A parked run below ended by somebody's word: whoever is parked for it goes on, and finds out.
    pub(super) async fn wake_above(&self, run: &Run) -> Result<(), Error> {
        let mut below = Arc::new(run.clone());
        while let Some(parent) = self.parked_above(&below).await? {
            self.wake(&parent, &Resume::default()).await?;
            below = parent;
        }
        Ok(())
    }

    async fn parked_above(&self, run: &Run) -> Result<Option<Arc<Run>>, Error> {
        let Some(parent) = run.birth.parent.as_ref().filter(|_| !run.birth.detached) else {
            return Ok(None);
        };
        let parent = self.run_of(parent).await?;
        let waits = matches!(
            &parent.phase,
            Phase::Suspended { why, .. } if why.reason == SuspendReason::Child
        );
        Ok(waits.then_some(parent))
    }

    /// Commits that one parked run goes on, and gives it a task.
    async fn wake(&self, run: &Arc<Run>, request: &Resume) -> Result<(), Error> {
        let mut events = verdicts(run, request)?;
        events.push(Event::RunResumed {
            epoch: self.shared.epoch,
            max_steps: request.max_steps,
        });
        let changes = events
            .into_iter()
            .map(|event| Change::event(&run.id, event))
            .collect();
        let ticket = match self.shared.journal.commit(changes).await {
            Ok(ticket) => ticket,
            Err(journal::Error::Illegal { .. }) => {
                let now = self.run_of(&run.id).await?;
                return Err(Error::NotParked {
                    run: now.id.clone(),
                    status: now.status(),
                });
            }
            Err(error) => return Err(error.into()),
        };
        self.shared.journal.published(ticket).await?;
        let run = self.run_of(&run.id).await?;
        self.launch_created(run).await
    }
}

/// The key under which the one run that continues `id` is found.
fn continuation_key(id: &RunId) -> String {
    format!("continues:{id}")
}

/// The run of `line` that is parked for `reason`; the last one, which is the deepest.
fn meant_for(line: &[Arc<Run>], reason: SuspendReason) -> Option<RunId> {
    let parked = line
        .iter()
        .rev()
        .find(|run| matches!(&run.phase, Phase::Suspended { why, .. } if why.reason == reason));
    parked.map(|run| run.id.clone())
}

/// The answers to what is uncertain about `run`, as events. Each answer must mean something, and each open question must be
/// answered.
fn verdicts(run: &Run, request: &Resume) -> Result<Vec<Event>, Error> {
    let unfit = |problem: String| Error::Unfit {
        run: run.id.clone(),
        problem,
    };
    let Phase::Suspended { why, at } = &run.phase else {
        return Ok(Vec::new());
    };
    let mut open: Vec<(String, Slot)> = match (why.reason, at.step()) {
        (SuspendReason::Uncertain, Some(step)) => run
            .in_flight()
            .filter(|(_, work)| is_open(work))
            .map(|(slot, _)| match slot {
                Slot::Item(item) => (format!("{}[{item}]", step.node), slot),
                Slot::Action | Slot::Hook(_) => (step.node.clone(), slot),
            })
            .collect(),
        _ => Vec::new(),
    };
    let step = at.step().map_or(0, |step| step.step);
    let mut events = Vec::new();
    for (name, verdict) in &request.verdicts {
        let (meant, rest): (Vec<_>, Vec<_>) = open
            .into_iter()
            .partition(|(known, slot)| name == "*" || known == name || slot.to_string() == *name);
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
        events.extend(meant.into_iter().map(|(_, slot)| Event::UncertainAnswered {
            step,
            slot,
            verdict: *verdict,
            by: request.by.clone(),
        }));
    }
    if let Some((name, _)) = open.first() {
        let words = [Verdict::Retry, Verdict::Done, Verdict::Fail].map(Verdict::as_str);
        return Err(unfit(format!(
            "nobody knows whether `{name}` took effect; say so: --uncertain '{name}={}'",
            words.join("|")
        )));
    }
    Ok(events)
}

fn is_open(work: &InFlight) -> bool {
    work.verdict.is_none() && work.effect == Effect::AtMostOnce
}
