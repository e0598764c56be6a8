//! The transitions of a walk.
//!
//! Each function takes one event. `false` and `None` mean that it is impossible in this state, and then nothing has
//! changed.

use std::sync::Arc;

use serde_json::{Value, json};

use super::WorkState;
use crate::clock::Timestamp;
use crate::id::{Name, RunId};
use crate::model::attempt::{Attempt, Effect, Slot};
use crate::model::event::{
    Event, GraphCancelled, GraphCompleted, GraphError, GraphEvent, GraphStarted, ProcessWaited,
    RetryScheduled, ServiceStarted, StepCompleted, StepFailed, StepStarted, StepWaiting,
};
use crate::model::graph::{
    At, Due, FailedAttempt, GraphState, Idle, LastStep, Step, StepWork, SuppressedError, Unrepaired,
};
use crate::model::life::Outcome;
use crate::model::limits::Raised;
use crate::model::round::Round;
use crate::model::spec::Spec;
use crate::model::suspension::Suspension;

impl WorkState for GraphState {
    fn held(&self) -> usize {
        let failed = self
            .unrepaired
            .iter()
            .filter_map(|failed| failed.left.items.as_ref());
        let items = self.at.items().into_iter().chain(failed);
        self.vars.bytes() + items.map(|items| items.bytes).sum::<usize>()
    }

    fn attempts(&self) -> Box<dyn Iterator<Item = &Attempt> + '_> {
        Box::new(self.in_flight())
    }

    fn attempt_mut(&mut self, step: u32, slot: Slot) -> Option<&mut Attempt> {
        if let Slot::Hook(_) = slot {
            return self.at.round_mut()?.as_mut()?.running.as_mut();
        }
        let At::Step(here) = &mut self.at else {
            return None;
        };
        match (&mut here.work, slot) {
            _ if here.number != step => None,
            (StepWork::Action(attempt), Slot::Main) => Some(attempt),
            (StepWork::Items(items), Slot::Part(item)) => {
                Arc::make_mut(&mut items.running).get_mut(&item)
            }
            (
                StepWork::Action(_)
                | StepWork::Items(_)
                | StepWork::NeverStarted(_)
                | StepWork::Waits(_),
                _,
            ) => None,
        }
    }

    fn child(&self, slot: Slot) -> Option<&RunId> {
        match slot {
            Slot::Main => self.at.child(),
            Slot::Part(item) => self.at.items()?.child(item),
            Slot::Hook(_) => {
                let running = self.at.round()?.running.as_ref();
                running
                    .filter(|attempt| attempt.id.slot == slot)?
                    .child
                    .as_ref()
            }
        }
    }

    fn round_mut(&mut self) -> Option<&mut Option<Round>> {
        self.at.round_mut()
    }

    fn suspend(&mut self, at: Timestamp, why: &Suspension) {
        self.at.suspend(at);
        if let Some(failure) = &why.failure {
            self.vars.set("_last_error", failure.in_state());
        }
        // The round that requested it is done; any other resumes later.
        if let Some(round) = self.at.round_mut()
            && round
                .as_ref()
                .is_some_and(|round| round.requests_suspension(why))
        {
            *round = None;
        }
    }

    fn end(&mut self) {
        // A child run that carries out a hook ends after this run: its unknown attempts are found through the round.
        if let Some(round) = self.at.round_mut() {
            round.take_if(|round| round.child().is_none());
        }
    }

    fn start_step(&mut self, at: Timestamp, started: &StepStarted) -> bool {
        let number = started.step;
        if !self.begins(number, &started.node, started.attempt) {
            return false;
        }
        if started.effect == Effect::AtMostOnce {
            self.note_once(&started.node);
        }
        let work = match started.items {
            None => StepWork::Action(started.attempt(at).repeating(self.at.action())),
            Some(count) => StepWork::Items(self.open_items(number, count, &started.branches)),
        };
        self.at = At::Step(Step {
            number,
            node: started.node.as_str().into(),
            visit: started.visit,
            now: started.now,
            attempt: started.attempt,
            child: started.child.clone().or_else(|| self.at.child().cloned()),
            work,
            idle: self.at.idle(number),
        });
        true
    }

    fn resume(&mut self, at: Timestamp, raised: &Raised) {
        self.at.resume(at);
        self.max_steps = raised.max_steps.or(self.max_steps);
    }

    fn location<'a>(&'a self, _spec: &'a Spec) -> Option<&'a str> {
        self.at.node()
    }

    fn last_location<'a>(&'a self, _spec: &'a Spec) -> Option<&'a str> {
        self.stood().node()
    }

    fn step(&self) -> Option<u32> {
        self.at.step().map(|step| step.number)
    }

    fn result(&self) -> Option<&Arc<Value>> {
        self.output.as_ref()
    }

    fn ending(&self, outcome: Outcome, elapsed_ms: u64) -> Option<Event> {
        let (status, steps) = (outcome.status(), self.steps);
        Some(match outcome {
            Outcome::Completed { output } | Outcome::CompletedWithErrors { output } => {
                GraphCompleted {
                    status,
                    steps,
                    elapsed_ms,
                    output,
                }
                .into()
            }
            Outcome::Error { error } => GraphError {
                error,
                steps,
                elapsed_ms,
            }
            .into(),
            Outcome::Cancelled { cause } => GraphCancelled {
                cause,
                steps,
                elapsed_ms,
            }
            .into(),
            Outcome::Killed { .. } => return None,
        })
    }
}

impl GraphState {
    /// Returns the state of a run that has just been accepted.
    pub fn create(spec: &Spec) -> Self {
        let mut state = match spec.start_from() {
            Some(start) => start.state.clone(),
            None => Self::default(),
        };
        state.vars.set("inputs", Value::Object(spec.inputs.clone()));
        state
    }

    /// True if this try of a step can begin here.
    fn begins(&self, number: u32, node: &str, attempt: u32) -> bool {
        match &self.at {
            At::Between { next, .. } => next.as_deref() == Some(node),
            At::Step(step) | At::Backoff { step, .. } => {
                (number, node, attempt) == (step.number, &*step.node, step.attempt + 1)
            }
            At::New | At::Failed { .. } | At::Ending { .. } => false,
        }
    }

    fn wait(&mut self, waiting: &StepWaiting) -> bool {
        let begins = self.begins(waiting.step, &waiting.node, waiting.attempt);
        if begins {
            self.at = At::Step(Step {
                number: waiting.step,
                node: waiting.node.as_str().into(),
                visit: waiting.visit,
                now: waiting.now,
                attempt: waiting.attempt,
                child: None,
                work: StepWork::Waits(waiting.waits.clone()),
                idle: self.at.idle(waiting.step),
            });
        }
        begins
    }

    /// The only transition of the walk.
    pub(super) fn apply(&mut self, at: Timestamp, spec: &Spec, event: &GraphEvent) -> bool {
        match event {
            GraphEvent::GraphStarted(started) => self.begin(spec, started),
            GraphEvent::StepFailed(failed) => self.fail(failed),
            GraphEvent::RetryScheduled(scheduled) => match scheduled.item {
                None => self.back_off(at, scheduled),
                Some(item) => self.retry_item(at, item, scheduled),
            },
            GraphEvent::ItemStarted(started) => self.start_item(at, started),
            GraphEvent::ItemCompleted(completed) => self.complete_item(completed),
            GraphEvent::ForeachCompleted(end) => self.complete_items(end.step, &end.node),
            GraphEvent::ParallelCompleted(end) => self.complete_items(end.step, &end.node),
            GraphEvent::StepWaiting(waiting) => self.wait(waiting),
            GraphEvent::ServiceStarted(started) => self.note_service(started),
            GraphEvent::ProcessWaited(waited) => self.note_wait(waited),
            GraphEvent::LimitExtended(extended) => self.extend(extended.max_steps),
            GraphEvent::StepCompleted(completed) => self.complete_step(spec, completed),
            GraphEvent::GraphEnding(ending) => self.ask_about_end(&ending.outcome),
            GraphEvent::GraphCompleted(_)
            | GraphEvent::GraphError(_)
            | GraphEvent::GraphCancelled(_) => true,
        }
    }

    fn begin(&mut self, spec: &Spec, started: &GraphStarted) -> bool {
        let At::New = self.at else { return false };
        self.vars = started.state.clone();
        self.vars.set("inputs", Value::Object(spec.inputs.clone()));
        let start = spec.start_from();
        self.at = At::Between {
            next: Some(started.start_node.as_str().into()),
            left: start.and_then(|start| start.left.clone()),
            round: None,
        };
        true
    }

    fn note_service(&mut self, started: &ServiceStarted) -> bool {
        let node = started.node.as_str().into();
        Arc::make_mut(&mut self.services).insert(node, started.handle.clone());
        true
    }

    fn note_wait(&mut self, waited: &ProcessWaited) -> bool {
        let positions = Arc::make_mut(&mut self.positions);
        positions.insert(waited.handle.clone(), waited.cursor.as_str().into());
        true
    }

    fn extend(&mut self, max_steps: u32) -> bool {
        let At::Between {
            next: Some(_),
            round,
            ..
        } = &mut self.at
        else {
            return false;
        };
        *round = None;
        self.max_steps = Some(max_steps);
        true
    }

    fn ask_about_end(&mut self, outcome: &Arc<Outcome>) -> bool {
        if let At::Ending { .. } = self.at {
            return false;
        }
        self.end();
        let stood = Arc::new(std::mem::take(&mut self.at));
        self.at = At::Ending {
            outcome: Arc::clone(outcome),
            stood,
            round: None,
        };
        true
    }

    /// Copies the retries into the state, for templates and hooks.
    fn show_retries(&mut self) {
        let retries = json!(self.retries);
        self.vars.set("_retries", retries);
    }

    fn fail(&mut self, failed: &StepFailed) -> bool {
        let (number, node) = (failed.step, failed.node.as_str());
        let step = match &mut self.at {
            At::Between { next, left, .. } if next.as_deref() == Some(node) => {
                let left = left.take().unwrap_or_default();
                Step {
                    number,
                    node: node.into(),
                    visit: failed.visit,
                    now: failed.now,
                    attempt: failed.attempt,
                    child: left.child,
                    work: StepWork::NeverStarted(left.items),
                    idle: Idle::default(),
                }
            }
            At::Step(step) | At::Backoff { step, .. }
                if (step.number, &*step.node) == (number, node) =>
            {
                step.clone()
            }
            At::New
            | At::Between { .. }
            | At::Step(_)
            | At::Failed { .. }
            | At::Backoff { .. }
            | At::Ending { .. } => return false,
        };
        let failure = FailedAttempt {
            error: failed.error.clone(),
            result: Arc::clone(&failed.result),
            classification: failed.classification.clone(),
            repeatable: failed.repeatable,
            unknown: failed.unknown,
        };
        self.at = At::Failed {
            step,
            failure: Arc::new(failure),
            round: None,
        };
        true
    }

    fn back_off(&mut self, at: Timestamp, scheduled: &RetryScheduled) -> bool {
        let step = match &self.at {
            At::Failed { step, .. } if *step.node == *scheduled.node => step.clone(),
            At::New
            | At::Between { .. }
            | At::Step(_)
            | At::Failed { .. }
            | At::Backoff { .. }
            | At::Ending { .. } => return false,
        };
        let retries = Arc::make_mut(&mut self.retries);
        retries.insert(Arc::clone(&step.node), scheduled.retries);
        self.show_retries();
        self.at = At::Backoff {
            step,
            due: Due::of(at, scheduled.due),
        };
        true
    }

    fn complete_step(&mut self, spec: &Spec, completed: &StepCompleted) -> bool {
        let StepCompleted {
            step: number,
            node,
            next_node,
            assigned,
            error,
            suppressed,
            output,
            ..
        } = completed;
        let is_here = self.at.node() == Some(node);
        if !is_here || self.at.step().is_some_and(|step| step.number != *number) {
            return false;
        }
        // A visit that ended the run is taken again by the run that continues it, under the same key.
        let ended_the_run = error.is_some() && !suppressed && next_node.is_none();
        let mut left = ended_the_run.then(|| self.at.left());
        if !ended_the_run {
            self.note_failure(spec, *number, node, *suppressed && error.is_some());
        }
        if let (Some(start), Some(next)) = (spec.repairs(), next_node) {
            let repair = self.next_repair(start.state.steps, None);
            let repair = repair.filter(|repair| *repair.node == **next);
            left = repair.map(|repair| repair.left.clone().reopened());
        }
        self.steps = *number;
        if !ended_the_run {
            *Arc::make_mut(&mut self.visits)
                .entry(node.as_str().into())
                .or_default() += 1;
        }
        self.vars.extend(assigned);
        if let (true, Some(error)) = (*suppressed, error) {
            self.suppressed.push(SuppressedError {
                step: *number,
                node: node.clone(),
                error: error.message.clone(),
            });
        }
        // The count of retries starts anew after an edge.
        if let Some(next) = next_node
            && self.retries.contains_key(next.as_str())
        {
            Arc::make_mut(&mut self.retries).remove(next.as_str());
            self.show_retries();
        }
        if let Some(output) = output {
            self.output = Some(Arc::clone(output));
        }
        self.last = Some(Arc::new(LastStep {
            node: node.clone(),
            next_node: next_node.clone(),
            error: error.clone(),
        }));
        self.at = At::Between {
            next: next_node.as_deref().map(Name::from),
            left,
            round: None,
        };
        true
    }
}

impl GraphState {
    /// Records an at-most-once attempt at `node`: no run walks on from an earlier failure any more, because it would
    /// repeat that attempt.
    pub(super) fn note_once(&mut self, node: &str) {
        for failed in &mut self.unrepaired {
            if *failed.node != *node && failed.once_since.iter().all(|known| **known != *node) {
                Arc::make_mut(failed).once_since.push(node.into());
            }
        }
    }

    /// Records the failure of the step `number`, whole or in some of its items, so that it can be repaired; removes the
    /// earlier failure of its node.
    fn note_failure(&mut self, spec: &Spec, number: u32, node: &str, whole: bool) {
        let in_part = self.at.items().is_some_and(|items| items.failed > 0);
        let failed = (whole || in_part).then(|| Unrepaired {
            step: number,
            node: node.into(),
            left: self.at.left(),
            once_since: Vec::new(),
        });
        if let Some(start) = spec.repairs() {
            // An error that this step repaired counts no longer.
            let before = self.unrepaired.iter().find(|failed| *failed.node == *node);
            let before = before.map(|failed| failed.step);
            if let Some(step) = before.filter(|step| *step <= start.state.steps) {
                self.suppressed = self.suppressed_but(|error| error.step != step);
            }
        }
        self.unrepaired.retain(|failed| *failed.node != *node);
        self.unrepaired.extend(failed.map(Arc::new));
    }
}
