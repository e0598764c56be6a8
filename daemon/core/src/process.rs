//! The machine of a managed process: attempts, their readiness, and the pauses between them.
//!
//! **Order.** One attempt is in flight at a time. An attempt that was in flight when the daemon went down is never
//! repeated: its process is gone, and another attempt follows, or the run ends as `interrupted`. A process that survives
//! the daemon is followed again in the same attempt, before anything else happens to it. **Restarts.** An attempt
//! that fails is followed by another one if the policy says so, after a pause that doubles with each failure in a row. An
//! attempt that was up for [`STABLE`] ends the row.

mod attempt_ports;
mod line_pattern;
mod slots;
mod view;

mod probes;
mod watch;
mod watch_request;

mod request;

use std::sync::Arc;
use std::time::Duration;

use crate::cas::InputHashes;
use crate::clock::{Tick, Timestamp, Uptime};
use crate::id::RunId;
use crate::machine::{Call, CallOutcome, Certainty, Machine, Move, idempotency_key};
use crate::model::event::{ProcessLaunched, ProcessReady, ProcessRestartScheduled};
use crate::model::{
    Event, Failure, Life, Outcome, Ports, ProcessSpec, ProcessStage, ProcessState, ReadySign,
    RequestedRestart, RestartPolicy, RestartReason, Run, RunEvent, Slot, Work,
};

pub use self::attempt_ports::{AttemptPorts, PORT_FOREIGN, PortQuery};
pub use self::line_pattern::LinePattern;
pub use self::probes::{HealthRequest, HttpRequest, Period, PortValue, ReadyRequest};
pub use self::request::ProcessRequest;
pub use self::slots::{fill_port_slots, port_variable};
pub use self::view::{ProcessStatus, ProcessView};
pub use self::watch::{LineSearch, WatchEvents};
pub use self::watch_request::{WatchRequest, watch_rules};

/// Time after which an attempt that is ready ends a row of failures.
pub const STABLE: Duration = Duration::from_secs(30);
/// Pause after the first failure of a row; each further one doubles it.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// Report of an attempt that is ready.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ready {
    pub by: ReadySign,
    /// Time since its start.
    pub after: Duration,
}

#[derive(Debug, Clone)]
pub struct ProcessMachine {
    run: Arc<Run>,
    /// True while an attempt of this life of the daemon is in flight.
    is_running: bool,
    /// Number of the attempt that a shim keeps, or kept to its end.
    kept: Option<u32>,
    /// Number of the last attempt that this life of the daemon has followed.
    followed: u32,
    /// End of the current pause.
    pause_ends: Option<Uptime>,
    /// Ports of the next attempt, once they are chosen.
    ports: Option<Ports>,
}

impl ProcessMachine {
    /// Makes a machine for `run`, which may be fresh or recovered after a restart. `kept` is the number of the attempt
    /// that a shim keeps, or kept to its end.
    pub const fn new(run: Arc<Run>, kept: Option<u32>) -> Self {
        Self {
            run,
            is_running: false,
            kept,
            followed: 0,
            pause_ends: None,
            ports: None,
        }
    }

    /// Returns the number of an attempt in flight that survives the daemon, and that this life of the daemon has not
    /// followed.
    fn unfollowed(&self) -> Option<u32> {
        let (_, state) = self.parts()?;
        let number = state.attempt()?.id.number;
        (self.kept == Some(number) && self.followed != number).then_some(number)
    }

    /// Returns the ports of the attempt in flight.
    fn ports_in_flight(&self) -> AttemptPorts {
        let ports = self.parts().map(|(spec, state)| AttemptPorts {
            numbers: state.ports.clone(),
            can_move: !state.has_moved && !spec.auto_ports().is_empty(),
        });
        ports.unwrap_or_default()
    }

    /// Returns the command and the state; `None` for a run of another kind.
    fn parts(&self) -> Option<(&ProcessSpec, &ProcessState)> {
        match &self.run.work {
            Work::Process(state) => Some((self.run.spec.process()?, state)),
            Work::Graph(_) | Work::Thread(_) | Work::Tool(_) => None,
        }
    }

    fn record(&mut self, now: Timestamp, event: Event) -> Event {
        Arc::make_mut(&mut self.run)
            .apply(now, &event)
            .expect("the machine only emits events its own place allows");
        event
    }

    /// Returns the call that carries out the attempt `number`.
    fn call(&self, now: Timestamp, number: u32, ports: &AttemptPorts) -> Call {
        let spec = &self.run.spec;
        let node = spec.process().map_or("", |process| &process.name);
        Call {
            step: number,
            node: node.to_owned(),
            attempt: number,
            key: idempotency_key(spec.effect_scope(), node, 0, None, None),
            ..Call::new(Slot::Main, spec.item.clone(), ports.params(), now)
        }
    }

    /// Returns the move that starts the attempt `number`: its call, or the choice of its ports before.
    fn begin(&self, now: Timestamp, number: u32) -> Option<Move<PortQuery>> {
        let (spec, state) = self.parts()?;
        let auto = spec.auto_ports();
        let numbers = match &self.ports {
            Some(chosen) => chosen.clone(),
            None if auto.is_empty() => spec.fixed_ports(),
            None => {
                let mut preferred = state.ports.clone();
                preferred.retain(|name, _| auto.contains(name));
                let query = PortQuery { auto, preferred };
                return Some(Move::Query(Vec::new(), Box::new(query)));
            }
        };
        let can_move = !state.has_moved && !auto.is_empty();
        let ports = AttemptPorts { numbers, can_move };
        let call = self.call(now, number, &ports);
        Some(Move::Call(Vec::new(), Box::new(call)))
    }

    /// Returns the event by which the attempt after the one in flight is scheduled.
    fn schedule(
        &mut self,
        now: Tick,
        because: RestartReason,
        failures: u32,
        error: Option<Failure>,
    ) -> Option<Event> {
        let (_, state) = self.parts()?;
        let pause = match because {
            RestartReason::Failed => pause(failures),
            RestartReason::Interrupted | RestartReason::Requested | RestartReason::PortForeign => {
                Duration::ZERO
            }
        };
        let scheduled = ProcessRestartScheduled {
            attempt: state.attempts + 1,
            because,
            failures,
            due: now.at.plus(pause),
            error,
        };
        self.pause_ends = Some(now.up.plus(pause));
        Some(self.record(now.at, scheduled.into()))
    }

    /// Returns the event that follows from an attempt which the end of the daemon cut off.
    fn after_interruption(&mut self, now: Tick) -> Option<Event> {
        let (spec, state) = self.parts()?;
        let (policy, failures) = (spec.restart, state.failures);
        if state.requested == RequestedRestart::Stopping {
            self.schedule(now, RestartReason::Requested, 0, None)
        } else if policy == RestartPolicy::OnFailure {
            self.schedule(now, RestartReason::Interrupted, failures, None)
        } else {
            let ended = self.run.end_by_failure(now.at, interrupted());
            Some(self.record(now.at, ended))
        }
    }

    /// Returns the next move of a process without an attempt in flight in this life of the daemon.
    fn advance(&mut self, now: Tick) -> Option<Move<PortQuery>> {
        let (_, state) = self.parts()?;
        let (next, is_requested) = (
            state.attempts + 1,
            state.requested == RequestedRestart::Stopping,
        );
        Some(match &state.stage {
            ProcessStage::New => self.begin(now.at, next)?,
            ProcessStage::Starting(_) | ProcessStage::Up { .. } => {
                Move::Note(vec![self.after_interruption(now)?])
            }
            ProcessStage::Paused { due } => {
                // Across a restart of the daemon the wall clock decides.
                let left = Duration::from_millis(due.ms_since(now.at)).min(LONGEST_PAUSE);
                let ends = *self.pause_ends.get_or_insert(now.up.plus(left));
                if is_requested || ends <= now.up {
                    self.begin(now.at, next)?
                } else {
                    Move::Wait(Vec::new(), Some(ends))
                }
            }
            ProcessStage::Over => Move::End(Vec::new()),
        })
    }

    /// Returns the event that follows from the end of an attempt by itself.
    fn after_end(&mut self, now: Tick, outcome: &CallOutcome) -> Option<Event> {
        let (spec, state) = self.parts()?;
        let was_stable = state
            .ready_since()
            .is_some_and(|since| u128::from(now.at.ms_since(since)) >= STABLE.as_millis());
        let failures = if was_stable { 1 } else { state.failures + 1 };
        let is_requested = state.requested == RequestedRestart::Stopping;
        let may_restart = spec.restart == RestartPolicy::OnFailure
            && outcome.certainty != Certainty::NeverStarted
            && failures <= spec.max_restarts;
        let has_lost_port = |error: &Failure| error.code == PORT_FOREIGN && !state.has_moved;
        match &outcome.failure {
            _ if is_requested => self.schedule(now, RestartReason::Requested, 0, None),
            Some(error) if has_lost_port(error) => {
                let error = Some(error.clone());
                self.schedule(now, RestartReason::PortForeign, failures, error)
            }
            Some(error) if may_restart => {
                let error = Some(error.clone());
                self.schedule(now, RestartReason::Failed, failures, error)
            }
            failed => {
                let end = match failed {
                    Some(error) => Outcome::Error {
                        error: error.clone(),
                    },
                    None => Outcome::Completed {
                        output: Arc::default(),
                    },
                };
                let event = self.run.ending(now.at, end);
                Some(self.record(now.at, event))
            }
        }
    }
}

/// Returns the pause after that many failures in a row.
fn pause(failures: u32) -> Duration {
    let doubled = 2_u32.saturating_pow(failures.saturating_sub(1));
    FIRST_PAUSE.saturating_mul(doubled).min(LONGEST_PAUSE)
}

fn interrupted() -> Failure {
    let text = "the daemon went down, and the process with it; `restart: on-failure` starts it again after that";
    Failure {
        retryable: true,
        ..Failure::permanent("interrupted", text)
    }
}

impl Machine for ProcessMachine {
    type Signal = Ready;
    type Query = PortQuery;
    type Answer = Result<Ports, Failure>;

    fn run(&self) -> &Arc<Run> {
        &self.run
    }

    fn rebase(&mut self, run: Arc<Run>) {
        self.run = run;
    }

    fn next(&mut self, now: Tick) -> Move<PortQuery> {
        match &self.run.life {
            Life::Running => {}
            Life::Suspended(_) => return Move::Suspended(Vec::new()),
            Life::Created | Life::Ended(_) => return Move::End(Vec::new()),
        }
        if self.is_running {
            return Move::Wait(Vec::new(), None);
        }
        if let Some(number) = self.unfollowed() {
            let call = self.call(now.at, number, &self.ports_in_flight());
            return Move::Call(Vec::new(), Box::new(call));
        }
        if let Some(cause) = &self.run.cancel {
            let event = self.run.end_by_cancel(now.at, cause);
            return Move::End(vec![self.record(now.at, event)]);
        }
        self.advance(now).unwrap_or(Move::End(Vec::new()))
    }

    fn note(&mut self, now: Tick, event: RunEvent) -> Vec<Event> {
        vec![self.record(now.at, event.into())]
    }

    fn start(
        &mut self,
        now: Tick,
        call: &Call,
        _child: Option<RunId>,
        _hashes: InputHashes,
    ) -> Vec<Event> {
        let is_known = self.unfollowed() == Some(call.attempt);
        self.is_running = true;
        self.followed = call.attempt;
        self.pause_ends = None;
        self.ports = None;
        if is_known {
            return Vec::new();
        }
        let launched = ProcessLaunched {
            attempt: call.attempt,
            key: call.key.clone(),
            ports: AttemptPorts::of(&call.params).numbers,
        };
        vec![self.record(now.at, launched.into())]
    }

    fn conclude(&mut self, now: Tick, _slot: Slot, outcome: &CallOutcome) -> Vec<Event> {
        self.is_running = false;
        if let Some(end) = outcome.process.as_deref()
            && let Work::Process(state) = &mut Arc::make_mut(&mut self.run).work
        {
            // The record has it by the `process_exited` of the attempt, which this copy may lack.
            state.last_end = Some(Arc::new(end.clone()));
        }
        self.after_end(now, outcome).into_iter().collect()
    }

    fn on_signal(&mut self, now: Tick, _slot: Slot, ready: Ready) -> Vec<Event> {
        let starting = self.parts().and_then(|(_, state)| match &state.stage {
            ProcessStage::Starting(attempt) => Some(attempt.id.number),
            ProcessStage::New
            | ProcessStage::Up { .. }
            | ProcessStage::Paused { .. }
            | ProcessStage::Over => None,
        });
        let Some(attempt) = starting.filter(|_| self.run.life == Life::Running) else {
            return Vec::new();
        };
        let ready = ProcessReady {
            attempt,
            by: ready.by,
            after_ms: u64::try_from(ready.after.as_millis()).unwrap_or(u64::MAX),
        };
        vec![self.record(now.at, ready.into())]
    }

    fn answered(&mut self, now: Tick, answer: Result<Ports, Failure>) -> Vec<Event> {
        match answer {
            Ok(chosen) => {
                let fixed = self.parts().map(|(spec, _)| spec.fixed_ports());
                self.ports = Some(fixed.into_iter().flatten().chain(chosen).collect());
                Vec::new()
            }
            Err(failure) => {
                let ended = self.run.end_by_failure(now.at, failure);
                vec![self.record(now.at, ended)]
            }
        }
    }

    fn useless(&self) -> Vec<Slot> {
        let is_requested = self
            .parts()
            .is_some_and(|(_, state)| state.requested == RequestedRestart::Stopping);
        let useless = (self.is_running && is_requested).then_some(Slot::Main);
        useless.into_iter().collect()
    }

    fn stopped(&mut self, now: Tick, _slot: Slot) -> Vec<Event> {
        self.is_running = false;
        let scheduled = self.schedule(now, RestartReason::Requested, 0, None);
        scheduled.into_iter().collect()
    }

    fn abandon(&mut self, _slot: Slot) {
        self.is_running = false;
    }
}

#[cfg(test)]
mod tests;
