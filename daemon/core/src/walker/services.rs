//! Managed processes of a graph: services, and waits for a process.
//!
//! A service is started by an attempt of its node, like any action. **Order.** In each life of a drive, the services of
//! completed nodes are up before the first step begins or is repeated, unless the run is to stop. At the end of the run
//! they are stopped after the last hook and before the terminal event. The handle of a service, and the position of the
//! last wait in the output of a process, are in the record.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use super::failure::Repeat;
use super::{Turn, Walker};
use crate::clock::Timestamp;
use crate::definition::roots::{PROCESS_WAIT, SERVICE};
use crate::definition::{Node, Work, duration};
use crate::id::{Name, RunId};
use crate::model::event::{GraphEnding, ProcessWaited, ServiceStarted};
use crate::model::graph::{At, Step};
use crate::model::{Event, Failure, Object, Outcome, Ports, StepStatus};

/// Default of `for` of a wait for a process.
const WAIT: Duration = Duration::from_mins(10);
/// Value of `since` for the first line of the attempt in flight.
const FIRST_LINE: &str = "attempt";

/// A request about the services of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ServiceQuery {
    /// Start those that are not up, by node, and wait until all are ready.
    Restore(Vec<(Name, RunId)>),
    /// Stop all of them.
    Stop(Vec<RunId>),
}

/// The answer to a [`ServiceQuery`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ServiceAnswer {
    Restored {
        /// Handles of those that were started.
        started: Vec<(Name, RunId)>,
        /// The first node whose service is not ready, and the reason.
        lost: Option<(Name, String)>,
    },
    /// Names of processes that have not ended.
    Stopped { left: Vec<String> },
}

/// The present state of a service.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ServiceFacts {
    pub ports: Ports,
    pub running: bool,
    pub ready: bool,
}

/// Reads the present state of services.
#[derive(Clone)]
pub struct ServiceSource(Arc<ReadFacts>);

type ReadFacts = dyn Fn(&RunId) -> Option<ServiceFacts> + Send + Sync;

impl ServiceSource {
    /// Wraps `read`, which must neither wait nor act.
    pub fn new(read: impl Fn(&RunId) -> Option<ServiceFacts> + Send + Sync + 'static) -> Self {
        Self(Arc::new(read))
    }
}

impl Default for ServiceSource {
    fn default() -> Self {
        Self::new(|_handle| None)
    }
}

impl fmt::Debug for ServiceSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ServiceSource")
    }
}

/// Progress with the services of a run, in this life of its drive.
#[derive(Debug, Clone, Default)]
pub(super) struct ServiceProgress {
    /// True once those of completed nodes are up, or were not needed.
    are_up: bool,
    are_stopped: bool,
    /// The failure of the next step because a service is not up.
    lost: Option<Failure>,
}

impl Walker {
    /// Returns the value of the name `services`.
    pub(super) fn services(&self) -> Value {
        let of_run = self.walk().services.iter();
        let service = |(node, handle): (&Name, &RunId)| {
            let ServiceFacts {
                ports,
                running,
                ready,
            } = (self.service_source.0)(handle).unwrap_or_default();
            let facts =
                json!({"handle": handle, "ports": ports, "running": running, "ready": ready});
            (node.to_string(), facts)
        };
        Value::Object(of_run.map(service).collect())
    }

    /// Requests the services of completed nodes before the first step of this life; `None` to continue.
    pub(super) fn restore_services(&mut self) -> Option<Turn> {
        let has_step = match &self.walk().at {
            At::Between { next, .. } => next.is_some(),
            At::Step(_) | At::Failed { .. } | At::Backoff { .. } => true,
            At::New | At::Ending { .. } => false,
        };
        if self.service_progress.are_up || !has_step || self.run.cancel.is_some() {
            return None;
        }
        let services = self.walk().services.iter();
        let services: Vec<_> = services
            .map(|(node, handle)| (Arc::clone(node), handle.clone()))
            .collect();
        if services.is_empty() {
            self.service_progress.are_up = true;
            return None;
        }
        Some(Turn::Query(Box::new(ServiceQuery::Restore(services))))
    }

    /// Requests the end of the services before the end of the run; `None` if there are none.
    pub(super) fn stop_services(
        &mut self,
        now: Timestamp,
        outcome: &Outcome,
        events: &mut Vec<Event>,
    ) -> Option<Turn> {
        if self.service_progress.are_stopped || self.walk().services.is_empty() {
            return None;
        }
        if matches!(self.walk().at, At::Ending { .. }) {
            let handles = self.walk().services.values().cloned().collect();
            return Some(Turn::Query(Box::new(ServiceQuery::Stop(handles))));
        }
        // After a crash the run continues with its end, and not with its next step.
        let outcome = Arc::new(outcome.clone());
        self.record(now, GraphEnding { outcome }.into(), events);
        Some(Turn::Again)
    }

    pub(super) fn take_answer(
        &mut self,
        now: Timestamp,
        answer: ServiceAnswer,
        events: &mut Vec<Event>,
    ) {
        match answer {
            ServiceAnswer::Restored { started, lost } => {
                self.service_progress.are_up = true;
                for (node, handle) in started {
                    let node = node.to_string();
                    self.record(now, ServiceStarted { node, handle }.into(), events);
                }
                self.service_progress.lost = lost.map(|(node, why)| {
                    let text = format!("the service of the node `{node}` is not up: {why}");
                    Failure::permanent("service_lost", text).decided()
                });
            }
            ServiceAnswer::Stopped { left } => {
                self.service_progress.are_stopped = true;
                for name in left {
                    self.notes
                        .push(format!("the service `{name}` has not ended"));
                }
            }
        }
    }

    /// Fails `step` if a service is not up; returns true if so.
    pub(super) fn fail_without_service(
        &mut self,
        now: Timestamp,
        step: &Step,
        events: &mut Vec<Event>,
    ) -> bool {
        let Some(failure) = self.service_progress.lost.take() else {
            return false;
        };
        self.fail(now, step, failure, &Arc::default(), Repeat::Useless, events);
        true
    }

    /// Completes the parameters of a node about a process.
    pub(super) fn complete_params(&self, node: &Node, params: &mut Object) -> Result<(), Failure> {
        match &node.work {
            Work::Service(_) if self.run.spec.is_single_step() => {
                let text = "a service ends with its run, so it is not a run of one step";
                Err(Failure::permanent("not_supported", text).decided())
            }
            Work::ProcessWait(_) => {
                let most = match params.get("timeout") {
                    None => WAIT,
                    Some(value) => duration(value).map_err(|problem| {
                        Failure::permanent("invalid_wait", format!("`for` {problem}")).decided()
                    })?,
                };
                params.insert("timeout".into(), json!(most.as_secs_f64()));
                if params.get("for") == Some(&json!("line")) {
                    let handle = params.get("handle_id").and_then(Value::as_str);
                    let handle = handle.and_then(|handle| RunId::new(handle).ok());
                    let position = handle.and_then(|handle| self.walk().positions.get(&handle));
                    let since = position.map_or(FIRST_LINE, |position| position);
                    params.insert("since".into(), json!(since));
                }
                Ok(())
            }
            Work::Service(_)
            | Work::Action(_)
            | Work::Foreach(_)
            | Work::Gate
            | Work::Return { .. }
            | Work::Fail(_)
            | Work::Wait(_)
            | Work::Approval(_)
            | Work::Parallel(_) => Ok(()),
        }
    }

    /// Records what the successful attempt of a node about a process came to; returns the result of the node, and the
    /// status of its step. `None` for another node.
    pub(super) fn conclude_process(
        &mut self,
        now: Timestamp,
        node: &Node,
        result: &Value,
        events: &mut Vec<Event>,
    ) -> Option<(Arc<Value>, StepStatus)> {
        let text = |key: &str| result.get(key).and_then(Value::as_str);
        let handle = text("handle_id").and_then(|handle| RunId::new(handle).ok());
        let (keys, status): (&[&str], _) = match &node.work {
            Work::Service(_) => {
                if let Some(handle) = handle.clone() {
                    let node = node.name.clone();
                    self.record(now, ServiceStarted { node, handle }.into(), events);
                }
                (&SERVICE, StepStatus::Service)
            }
            Work::ProcessWait(action) => {
                let cursor = text("cursor").map(str::to_owned);
                if let Some((handle, cursor)) = handle.clone().zip(cursor) {
                    self.record(now, ProcessWaited { handle, cursor }.into(), events);
                }
                let keys = match action.params.get("for").and_then(Value::as_str) {
                    Some("line") => &PROCESS_WAIT[..4],
                    Some("exit") => &PROCESS_WAIT[4..7],
                    _ => &PROCESS_WAIT[7..],
                };
                (keys, StepStatus::Wait)
            }
            Work::Action(_)
            | Work::Foreach(_)
            | Work::Gate
            | Work::Return { .. }
            | Work::Fail(_)
            | Work::Wait(_)
            | Work::Approval(_)
            | Work::Parallel(_) => return None,
        };
        let mut kept = Object::new();
        for key in keys {
            let value = match *key {
                "handle" => json!(handle),
                key => result.get(key).cloned().unwrap_or_default(),
            };
            kept.insert((*key).to_owned(), value);
        }
        Some((Arc::new(Value::Object(kept)), status))
    }
}
