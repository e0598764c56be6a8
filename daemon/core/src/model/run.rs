//! The record of a run.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::attempt::attempt_name;
use super::{
    Activity, Effect, Event, Failure, GraphEvent, Illegal, InFlight, Items, Outcome, Phase,
    Progress, RunEvent, RunKind, Slot, Spec, Status, ToolEvent, Verdict,
};
use crate::clock::Timestamp;
use crate::id::{Epoch, RunId, Seq};

/// The record of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// Its id.
    pub id: RunId,
    /// What is fixed about it.
    pub spec: Arc<Spec>,
    /// When it was accepted.
    pub created_at: Timestamp,
    /// When a task first owned it.
    pub started_at: Option<Timestamp>,
    /// When it last began to run, or to run again after it was parked.
    #[serde(default)]
    pub active_since: Option<Timestamp>,
    /// Time of its last event.
    pub updated_at: Timestamp,
    /// When it ended.
    pub ended_at: Option<Timestamp>,
    /// Its last event.
    pub seq: Seq,
    /// The daemon's life that owns it.
    pub epoch: Epoch,
    /// How often a restart of the daemon took it up since its last completed step or item, and since the daemon last stopped in
    /// good order.
    pub revivals: u32,
    /// Who asked it to stop, if somebody did.
    pub cancel: Option<String>,
    /// Where it stands.
    pub phase: Phase,
    /// What it has done.
    pub progress: Progress,
}

impl Run {
    /// The record right after `run_created`.
    pub fn create(id: RunId, at: Timestamp, spec: Arc<Spec>) -> Self {
        let mut progress = spec
            .seed
            .as_ref()
            .map(|seed| seed.progress.clone())
            .unwrap_or_default();
        if spec.kind == RunKind::Graph {
            progress.set("inputs", Value::Object(spec.inputs.clone()));
        }
        Self {
            id,
            spec,
            created_at: at,
            started_at: None,
            active_since: None,
            updated_at: at,
            ended_at: None,
            seq: Seq(1),
            epoch: Epoch::default(),
            revivals: 0,
            cancel: None,
            phase: Phase::Created,
            progress,
        }
    }

    /// The status users see.
    pub fn status(&self) -> Status {
        self.phase.status()
    }

    /// Every attempt in flight: the action of the node, items, the action of a hook.
    pub fn in_flight(&self) -> impl Iterator<Item = (Slot, &InFlight)> {
        let action = match self.phase.activity() {
            Some(Activity::InStep(step)) if self.progress.items.is_none() => {
                Some((Slot::Action, &step.work))
            }
            Some(
                Activity::InStep(_)
                | Activity::Idle
                | Activity::Before { .. }
                | Activity::Failed(_)
                | Activity::Waiting { .. }
                | Activity::Leaving
                | Activity::Ending { .. },
            )
            | None => None,
        };
        let items = self.progress.items.iter().flat_map(|items| &items.running);
        let hook = self.progress.hooks.as_ref().and_then(|round| {
            let index = round.waiting.front()?;
            Some((Slot::Hook(*index), round.running.as_ref()?))
        });
        action
            .into_iter()
            .chain(items.map(|(item, work)| (Slot::Item(*item), work)))
            .chain(hook)
    }

    /// Attempts in flight that must not happen twice and about which nobody has said what became of them: the node, with the
    /// position where it is an item (`fan[3]`).
    pub fn uncertain(&self) -> Vec<(String, Slot)> {
        self.once(|work| work.verdict.is_none() && work.child.is_none())
    }

    /// The names of attempts that must not happen twice and may have happened although their step is not done: those in
    /// flight of which nobody has said that they did not happen (an end of the run cuts them off), the ones that runs below
    /// carry out included, and those that failed after they had begun.
    pub fn unknown(&self) -> Vec<String> {
        let mut names = self.progress.unknown.clone();
        let in_flight = self.once(|work| work.verdict != Some(Verdict::Retry));
        names.extend(in_flight.into_iter().map(|(name, _)| name));
        let here = self.phase.activity().and_then(Activity::node);
        names.extend(here.into_iter().flat_map(|node| self.progress.spent(node)));
        names
    }

    /// The attempts in flight that must not happen twice and are `wanted`.
    fn once(&self, wanted: impl Fn(&InFlight) -> bool) -> Vec<(String, Slot)> {
        let Some(step) = self.phase.activity().and_then(Activity::step) else {
            return Vec::new();
        };
        self.in_flight()
            .filter(|(_, work)| work.effect == Effect::AtMostOnce && wanted(work))
            .map(|(slot, _)| (attempt_name(&step.node, slot), slot))
            .collect()
    }

    /// Whether it is parked behind a failure about which nobody is to be asked any more: letting it go on is another try.
    pub fn is_parked_before_another_try(&self) -> bool {
        let behind_a_failure = matches!(
            &self.phase,
            Phase::Suspended {
                at: Activity::Failed(_),
                ..
            }
        );
        behind_a_failure && self.progress.hooks.is_none()
    }

    /// The node at which a run that goes on where this one ended begins: the one that failed, or the one it stood at.
    pub fn resumption_node(&self) -> Option<&str> {
        let failed = match &self.phase {
            Phase::Ended {
                outcome: Outcome::Error { error },
            } => error.node.as_deref(),
            Phase::Ended { .. }
            | Phase::Created
            | Phase::Running { .. }
            | Phase::Suspended { .. } => None,
        };
        failed.or(self.progress.stood_at.as_deref())
    }

    /// The runs below that carried out what is not done of the step at which the run stands or ended, by the names of
    /// [`Run::uncertain`]. Another try of the step goes on with them.
    pub fn unfinished_below(&self) -> Vec<(String, &RunId)> {
        let here = self.phase.activity().and_then(Activity::node);
        let node = here.or(self.resumption_node()).unwrap_or_default();
        let progress = &self.progress;
        let items = progress.items.as_ref().or(progress.unfinished.as_ref());
        let items = items.into_iter().flat_map(Items::unfinished_below);
        let items = items.map(|(item, run)| (Slot::Item(item), run));
        let action = progress.below.iter().map(|run| (Slot::Action, run));
        action
            .chain(items)
            .map(|(slot, run)| (attempt_name(node, slot), run))
            .collect()
    }

    /// The event by which it fails with `error` at `now`, wherever it stands.
    pub fn end_by_failure(&self, now: Timestamp, error: Failure) -> Event {
        let elapsed_ms = now.ms_since(self.created_at);
        match self.spec.kind {
            RunKind::Graph => Event::Graph(GraphEvent::GraphError {
                error,
                steps: self.progress.steps,
                elapsed_ms,
            }),
            RunKind::Tool => Event::Tool(ToolEvent::ToolCompleted {
                result: Value::Null,
                error: Some(error),
                elapsed_ms,
            }),
        }
    }

    /// The event by which it is cancelled at `now`, wherever it stands.
    pub fn end_by_cancel(&self, now: Timestamp, cause: &str) -> Event {
        let cause = cause.to_owned();
        match self.spec.kind {
            RunKind::Graph => Event::Graph(GraphEvent::GraphCancelled {
                cause,
                steps: self.progress.steps,
                elapsed_ms: now.ms_since(self.created_at),
            }),
            RunKind::Tool => Event::Tool(ToolEvent::ToolCancelled { cause }),
        }
    }

    /// Why it did not succeed, or behind which failure it is parked.
    pub fn failure(&self) -> Option<Failure> {
        let stopped = |code: &str, message: String| Failure {
            node: self.progress.stood_at.clone(),
            ..Failure::permanent(code, message)
        };
        match &self.phase {
            Phase::Ended { outcome } => match outcome {
                Outcome::Completed { .. } | Outcome::CompletedWithErrors { .. } => None,
                Outcome::Error { error } => Some(error.clone()),
                Outcome::Cancelled { cause } => {
                    Some(stopped("cancelled", format!("cancelled by {cause}")))
                }
                Outcome::Killed { cause, .. } if cause.is_empty() => {
                    Some(stopped("killed", "killed".to_owned()))
                }
                Outcome::Killed { cause, .. } => {
                    Some(stopped("killed", format!("killed by {cause}")))
                }
            },
            Phase::Suspended { why, .. } => why.failure.as_deref().cloned(),
            Phase::Created | Phase::Running { .. } => None,
        }
    }

    /// The result document of a run, the same shape for every outcome. For a graph run it is what `${result}` of a
    /// nested run would be; for a tool run `output` is the tool's result.
    pub fn result(&self) -> Value {
        let progress = &self.progress;
        let status = self.status();
        let success = status.is_success();
        let mut document = json!({"success": success, "status": status.as_str()});
        let output = match &self.phase {
            Phase::Ended { outcome } => match outcome {
                Outcome::Completed { output } | Outcome::CompletedWithErrors { output } => {
                    Some(output)
                }
                Outcome::Error { .. } => progress.result.as_ref(),
                Outcome::Cancelled { .. } | Outcome::Killed { .. } => None,
            },
            Phase::Created | Phase::Running { .. } | Phase::Suspended { .. } => None,
        };
        // A step that could not be taken has no place to begin at, only its mark.
        if self.spec.is_single_step() || self.id.is_single_step() {
            return self.single_step(success);
        }
        document["output"] = output.cloned().unwrap_or_else(|| json!({}));
        match self.spec.kind {
            RunKind::Graph => {
                document["state"] = progress.state.clone();
                document["steps"] = json!(progress.steps);
                document["graph_run_id"] = json!(self.id);
            }
            RunKind::Tool => document["run_id"] = json!(self.id),
        }
        if let Some(error) = self.failure() {
            document["error"] = json!(error.message);
            document["code"] = json!(error.code);
            document["node"] = json!(error.node);
        }
        if !progress.suppressed.is_empty() {
            document["errors_suppressed"] = json!(progress.suppressed.len());
            document["errors"] = json!(progress.suppressed);
        }
        document
    }

    /// The result of a run over one node: always this shape, a node that failed included (design §8).
    fn single_step(&self, success: bool) -> Value {
        let last = self.progress.last_step.as_ref();
        let failed = match &self.phase {
            Phase::Ended {
                outcome: Outcome::Error { error },
            } => Some(error),
            Phase::Ended { .. }
            | Phase::Created
            | Phase::Running { .. }
            | Phase::Suspended { .. } => last.and_then(|last| last.error.as_ref()),
        };
        let mut document = json!({
            "success": success && failed.is_none(),
            "state": self.progress.state,
            "executed_node": last.map(|last| &last.node),
            "next_node": last.and_then(|last| last.next_node.as_ref()),
            "step_count": self.progress.steps,
        });
        if let Some(error) = failed {
            document["error"] = json!(error.message);
            document["code"] = json!(error.code);
        }
        document
    }

    /// Takes in `event`, which becomes its last one.
    pub fn apply(&mut self, at: Timestamp, event: &Event) -> Result<(), Illegal> {
        let phase = self.phase.next(event)?;
        self.enter(phase, at, event);
        Ok(())
    }

    /// Takes in an event whose phase was computed by [`Phase::next`]; cannot fail, so that a commit of several
    /// events is checked whole before any of it is applied.
    pub fn enter(&mut self, phase: Phase, at: Timestamp, event: &Event) {
        // The walk is over with the first of these; where it stood is known only now.
        let was_over = matches!(self.phase.activity(), Some(Activity::Ending { .. }));
        let has_ended = phase.status().is_terminal();
        if !was_over && (has_ended || matches!(event, Event::Graph(GraphEvent::GraphEnding { .. })))
        {
            let node = self.phase.activity().and_then(Activity::node);
            self.progress.stood_at = node.map(str::to_owned);
            self.progress.unknown = self.unknown();
        }
        self.phase = phase;
        self.seq = self.seq.next();
        self.updated_at = at;
        if has_ended {
            self.ended_at = Some(at);
        }
        match event {
            Event::Run(RunEvent::RunStarted { epoch }) => {
                if self.started_at.is_some() {
                    self.revivals += 1;
                }
                self.started_at.get_or_insert(at);
                self.active_since.get_or_insert(at);
                self.epoch = *epoch;
            }
            Event::Run(RunEvent::RunResumed { epoch, max_steps }) => {
                self.started_at.get_or_insert(at);
                self.active_since = Some(at);
                self.epoch = *epoch;
                self.revivals = 0;
                self.progress.max_steps = max_steps.or(self.progress.max_steps);
            }
            Event::Graph(GraphEvent::GraphStarted { state, .. }) => {
                self.progress.state = Value::Object(state.clone());
                self.progress
                    .set("inputs", Value::Object(self.spec.inputs.clone()));
            }
            // Something ended: whatever brings the daemon down, it is not the first thing the run does.
            Event::Graph(
                GraphEvent::StepCompleted { .. }
                | GraphEvent::StepFailed { .. }
                | GraphEvent::ItemCompleted { .. },
            )
            | Event::Run(RunEvent::HookCompleted { .. }) => self.revivals = 0,
            Event::Run(RunEvent::CancelRequested { cause }) => {
                self.cancel.get_or_insert_with(|| cause.clone());
            }
            Event::Run(
                RunEvent::RunCreated(_)
                | RunEvent::StepStarted { .. }
                | RunEvent::ProcessStarted { .. }
                | RunEvent::HooksBegun { .. }
                | RunEvent::HookStarted { .. }
                | RunEvent::UncertainAnswered { .. }
                | RunEvent::Emitted { .. }
                | RunEvent::Warning { .. }
                | RunEvent::RunSuspended(_)
                | RunEvent::RunKilled { .. },
            )
            | Event::Graph(
                GraphEvent::RetryScheduled { .. }
                | GraphEvent::ItemStarted { .. }
                | GraphEvent::ForeachCompleted { .. }
                | GraphEvent::LimitExtended { .. }
                | GraphEvent::GraphEnding { .. }
                | GraphEvent::GraphCompleted { .. }
                | GraphEvent::GraphError { .. }
                | GraphEvent::GraphCancelled { .. },
            )
            | Event::Tool(ToolEvent::ToolCompleted { .. } | ToolEvent::ToolCancelled { .. }) => {}
        }
        self.progress.take_in(event);
    }
}
