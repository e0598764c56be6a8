//! The transitions of a managed process.

use std::sync::Arc;

use super::WorkState;
use crate::clock::Timestamp;
use crate::model::attempt::{Attempt, AttemptId, Effect, Slot};
use crate::model::event::{Event, ProcessEnded, ProcessEvent, ProcessLaunched};
use crate::model::life::Outcome;
use crate::model::process::{ProcessStage, ProcessState, RequestedRestart, RestartReason};
use crate::model::process_end::ProcessEnd;
use crate::model::process_watch::ProcessWatch;
use crate::model::spec::Spec;

impl ProcessState {
    /// Returns the initial state of a process of `spec`.
    pub(super) fn create(spec: &Spec) -> Self {
        let rules = spec.process().map(|process| &*process.watch);
        Self {
            watch: ProcessWatch::new(rules.unwrap_or_default()),
            ..Self::default()
        }
    }

    /// The only transition of the work. Returns `false` and changes nothing if `event` is impossible in this state.
    pub(super) fn apply(&mut self, at: Timestamp, event: &ProcessEvent) -> bool {
        match event {
            ProcessEvent::ProcessLaunched(launched) => return self.launch(at, launched),
            ProcessEvent::ProcessReady(ready) => {
                let ProcessStage::Starting(attempt) = &self.stage else {
                    return false;
                };
                if attempt.id.number != ready.attempt {
                    return false;
                }
                let attempt = attempt.clone();
                self.stage = ProcessStage::Up { attempt, since: at };
                self.unready = None;
                if self.requested == RequestedRestart::Starting {
                    self.requested = RequestedRestart::None;
                }
            }
            ProcessEvent::ProcessUnready(unready) => {
                let is_starting = matches!(&self.stage, ProcessStage::Starting(attempt) if attempt.id.number == unready.attempt);
                if !is_starting {
                    return false;
                }
                self.unready = Some(Arc::new(unready.why.clone()));
                if self.requested == RequestedRestart::Starting {
                    self.requested = RequestedRestart::None;
                }
            }
            ProcessEvent::ProcessRestartRequested(_) => {
                if self.stage == ProcessStage::Over {
                    return false;
                }
                if self.requested == RequestedRestart::None {
                    self.requested = RequestedRestart::Stopping;
                }
            }
            ProcessEvent::ProcessFrozen(frozen) => return self.set_frozen(frozen.attempt, true),
            ProcessEvent::ProcessThawed(thawed) => return self.set_frozen(thawed.attempt, false),
            ProcessEvent::ProcessRestartScheduled(scheduled) => {
                if self.attempt().is_none() || scheduled.attempt != self.attempts + 1 {
                    return false;
                }
                self.stage = ProcessStage::Paused { due: scheduled.due };
                self.failures = scheduled.failures;
                self.is_frozen = false;
                self.unready = None;
                if scheduled.because == RestartReason::PortForeign {
                    self.has_moved = true;
                    self.ports.clear();
                }
                if self.requested == RequestedRestart::Starting {
                    // Those who wait for the requested attempt learn that it has failed.
                    self.requested = RequestedRestart::None;
                }
            }
            ProcessEvent::ProcessWatched(watched) => return self.watch.record(watched),
            ProcessEvent::ProcessWatchChanged(changed) => return self.watch.change(changed),
            ProcessEvent::ProcessEnded(ended) => {
                if let Some(end) = &ended.end {
                    self.last_end = Some(Arc::new(end.clone()));
                }
                WorkState::end(self);
            }
        }
        true
    }

    fn set_frozen(&mut self, number: u32, frozen: bool) -> bool {
        let attempt = self.attempt().filter(|attempt| attempt.id.number == number);
        if attempt.is_none() || self.is_frozen == frozen {
            return false;
        }
        self.is_frozen = frozen;
        true
    }

    fn launch(&mut self, at: Timestamp, launched: &ProcessLaunched) -> bool {
        let follows = match self.stage {
            ProcessStage::New | ProcessStage::Paused { .. } => {
                launched.attempt == self.attempts + 1
            }
            ProcessStage::Starting(_) | ProcessStage::Up { .. } | ProcessStage::Over => false,
        };
        if !follows {
            return false;
        }
        let id = AttemptId {
            step: launched.attempt,
            slot: Slot::Main,
            number: launched.attempt,
        };
        self.attempts = launched.attempt;
        self.ports.clone_from(&launched.ports);
        self.stage = ProcessStage::Starting(Attempt {
            key: launched.key.as_str().into(),
            ..Attempt::new(id, Effect::Idempotent, at)
        });
        if self.requested == RequestedRestart::Stopping {
            self.requested = RequestedRestart::Starting;
        }
        true
    }
}

impl WorkState for ProcessState {
    fn attempts(&self) -> Box<dyn Iterator<Item = &Attempt> + '_> {
        Box::new(self.attempt().into_iter())
    }

    fn attempt_mut(&mut self, step: u32, slot: Slot) -> Option<&mut Attempt> {
        match &mut self.stage {
            ProcessStage::Starting(attempt) | ProcessStage::Up { attempt, .. }
                if (attempt.id.step, attempt.id.slot) == (step, slot) =>
            {
                Some(attempt)
            }
            ProcessStage::Starting(_)
            | ProcessStage::Up { .. }
            | ProcessStage::New
            | ProcessStage::Paused { .. }
            | ProcessStage::Over => None,
        }
    }

    fn exited(&mut self, end: &ProcessEnd) {
        self.last_end = Some(Arc::new(end.clone()));
    }

    fn location<'a>(&'a self, spec: &'a Spec) -> Option<&'a str> {
        let spec = spec.process()?;
        self.attempt().map(|_| spec.name.as_str())
    }

    fn step(&self) -> Option<u32> {
        self.attempt().map(|attempt| attempt.id.step)
    }

    fn end(&mut self) {
        self.stage = ProcessStage::Over;
        self.requested = RequestedRestart::None;
        self.is_frozen = false;
    }

    fn ending(&self, outcome: Outcome, elapsed_ms: u64) -> Option<Event> {
        let (error, cancelled) = match outcome {
            Outcome::Completed { .. } | Outcome::CompletedWithErrors { .. } => (None, None),
            Outcome::Error { error } => (Some(error), None),
            Outcome::Cancelled { cause } => (None, Some(cause)),
            Outcome::Killed { .. } => return None,
        };
        let ended = ProcessEnded {
            restarts: self.restarts(),
            end: self.last_end.as_deref().cloned(),
            error,
            cancelled,
            elapsed_ms,
        };
        Some(ended.into())
    }
}
