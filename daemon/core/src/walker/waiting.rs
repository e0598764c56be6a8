//! Nodes without an action: they wait for a time or an answer, or end the run as failed. Also hooks that put a question
//! to a person.
//!
//! A node with a question suspends its run in the commit that puts it; the answer is in the commit that resumes the
//! run. **Times.** A wait for a duration is measured by the clock for delays, like pauses between tries. A wait until a
//! time checks the wall clock, which may be set, at least every minute. The walker does not decide if an answer is too
//! late: it acts once the expiry is recorded.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use super::evaluate::View;
use super::failure::Repeat;
use super::step::Done;
use super::{Turn, Walker, interpolation_failure};
use crate::clock::Timestamp;
use crate::definition::{ApprovalRequest, Fail, Node, Pause, duration, time};
use crate::expr::{self, Vars, text_of};
use crate::model::event::StepWaiting;
use crate::model::graph::{Due, Step, Waits};
use crate::model::{
    Approval, ApprovalKind, Event, Failure, GRAPH_FAILED, Outcome, RunEvent, StepStatus,
    SuspendReason, Suspension,
};

/// The code of a question that expired without an answer.
const TOO_LATE: &str = "approval_timeout";
/// Interval between two checks of the wall clock.
const LOOK: Duration = Duration::from_mins(1);
/// The question of a hook that names none.
const UNSAID: &str = "a hook of the graph asks whether the run may continue";

impl Walker {
    /// Evaluates a template in the current state.
    fn render(&mut self, template: &Value, now: Timestamp) -> Result<Value, Failure> {
        let vars = self.walk().vars.clone();
        let view = View::new(&vars, None, now).with_services(self.services());
        expr::interpolate(template, &view.names(), &mut self.notes)
            .map_err(|error| interpolation_failure(&error))
    }

    /// Ends the run as failed at a `fail` node.
    pub(super) fn end_in_failure(
        &mut self,
        now: Timestamp,
        fail: &Fail,
        step: &Step,
        events: &mut Vec<Event>,
    ) {
        let said = self.render(&fail.message, step.now).and_then(|message| {
            let output = fail.output.as_ref();
            let output = output
                .map(|output| self.render(output, step.now))
                .transpose();
            Ok((text_of(&message), output?))
        });
        let (message, output) = match said {
            Ok(said) => said,
            Err(failure) => {
                return self.fail(now, step, failure, &Arc::default(), Repeat::Useless, events);
            }
        };
        let code = fail.code.as_deref().unwrap_or(GRAPH_FAILED);
        let error = Failure {
            class: Some(GRAPH_FAILED.into()),
            ..Failure::permanent(code, message).decided().at(&step.node)
        };
        let done = Done {
            error: Some(error.clone()),
            output: output.map(Arc::new),
            ..Done::new(StepStatus::Error, Vars::default(), None)
        };
        self.record(now, done.event(now, step), events);
        let _ended = self.finish(now, Outcome::Error { error }, events);
    }

    /// Begins the wait of a `wait` node.
    pub(super) fn begin_wait(
        &mut self,
        now: Timestamp,
        pause: &Pause,
        step: &Step,
        events: &mut Vec<Event>,
    ) {
        let (key, template) = match pause {
            Pause::For(template) => ("for", template),
            Pause::Until(template) => ("until", template),
        };
        let said = self.render(template, step.now).and_then(|value| {
            let read = match pause {
                Pause::For(_) => duration(&value).map(|long| Waits::Until {
                    at: now.plus(long),
                    delay_ms: Some(u64::try_from(long.as_millis()).unwrap_or(u64::MAX)),
                }),
                Pause::Until(_) => time(&value).map(|at| Waits::Until { at, delay_ms: None }),
            };
            read.map_err(|problem| {
                Failure::permanent("invalid_wait", format!("`{key}` {problem}")).decided()
            })
        });
        match said {
            Ok(waits) => self.wait(now, step, waits, events),
            Err(failure) => {
                self.fail(now, step, failure, &Arc::default(), Repeat::Useless, events);
            }
        }
    }

    fn wait(&mut self, now: Timestamp, step: &Step, waits: Waits, events: &mut Vec<Event>) {
        let event = Event::from(StepWaiting {
            step: step.number,
            node: step.node.to_string(),
            visit: step.visit,
            attempt: step.attempt,
            now: step.now,
            waits,
        });
        self.record(now, event, events);
    }

    /// Continues or ends the wait of a step for a time.
    pub(super) fn wait_on(
        &mut self,
        now: Timestamp,
        node: &Node,
        step: &Step,
        (at, delay_ms): (Timestamp, Option<u64>),
        events: &mut Vec<Event>,
    ) -> Turn {
        if let Some(turn) = self.stop_if_requested(now, events) {
            return turn;
        }
        let until = if let Some(delay_ms) = delay_ms {
            self.retry_at(now, step, &Due { at, delay_ms })
        } else {
            let left = Duration::from_millis(at.ms_since(now));
            self.up.plus(left.min(LOOK))
        };
        if self.up < until {
            let deadline = self.deadline;
            return Turn::Wait(Some(deadline.map_or(until, |deadline| until.min(deadline))));
        }
        self.complete_node(now, node, step, StepStatus::Wait, None, events);
        Turn::Again
    }

    /// Completes a node without an action.
    fn complete_node(
        &mut self,
        now: Timestamp,
        node: &Node,
        step: &Step,
        status: StepStatus,
        result: Option<&Arc<Value>>,
        events: &mut Vec<Event>,
    ) {
        let told = result.map(|result| &**result);
        match self.assign(node, told, step.now, Vars::default()) {
            Ok(assigned) => {
                let next_node = self.edge(node, &assigned.vars, told, step.now);
                let done = Done {
                    result: result.cloned(),
                    ..Done::new(status, assigned.delta, next_node)
                };
                self.step_done(now, step, done, told, events);
            }
            Err(failure) => {
                let result = result.cloned().unwrap_or_default();
                self.fail(now, step, failure, &result, Repeat::Useless, events);
            }
        }
    }

    /// Puts the question of an approval node to a person.
    pub(super) fn ask_person(
        &mut self,
        now: Timestamp,
        node: &Node,
        ask: &ApprovalRequest,
        step: &Step,
        events: &mut Vec<Event>,
    ) {
        let message = match self.render(&ask.message, step.now) {
            Ok(message) => text_of(&message),
            Err(failure) => {
                return self.fail(now, step, failure, &Arc::default(), Repeat::Useless, events);
            }
        };
        self.wait(now, step, Waits::Answer, events);
        let approval = Approval {
            schema: ask.schema.clone(),
            step: Some(step.number),
            expires_at: node.timeout.map(|timeout| now.plus(timeout)),
            ..self.question(now, ApprovalKind::Node, &message)
        };
        self.record(now, RunEvent::ApprovalRequested(approval).into(), events);
    }

    /// Makes a question of this run, without limits on its answer.
    fn question(&self, now: Timestamp, kind: ApprovalKind, message: &str) -> Approval {
        // The event of the question is the next one, after the notes that are not emitted yet.
        Approval {
            node: self.run.current_node().map(str::to_owned),
            ..Approval::new(&self.run.id, self.run.seq.next(), now, kind, message)
        }
    }

    /// Handles a step that waits for an answer.
    pub(super) fn await_answer(
        &mut self,
        now: Timestamp,
        node: &Node,
        step: &Step,
        events: &mut Vec<Event>,
    ) -> Turn {
        let asked = self.run.approvals.of_step(step.number).cloned();
        let (answer, expired) = match asked {
            Some(asked) => (asked.answer, asked.expired),
            None => (None, true),
        };
        let Some((answer, at)) = answer else {
            if expired {
                let text = "no one answered in the time that `timeout` of the node allows";
                let failure = Failure::permanent(TOO_LATE, text).decided();
                self.fail(now, step, failure, &Arc::default(), Repeat::Useless, events);
                return Turn::Again;
            }
            if let Some(turn) = self.stop_if_requested(now, events) {
                return turn;
            }
            return self.suspend(now, Suspension::new(SuspendReason::Approval), events);
        };
        let result = Arc::new(json!({
            "approved": answer.approved,
            "answer": answer.answer,
            "comment": answer.comment,
            "by": answer.by,
            "at": at.to_string(),
        }));
        if answer.approved {
            self.complete_node(now, node, step, StepStatus::Approval, Some(&result), events);
        } else {
            self.fail(now, step, answer.denial(), &result, Repeat::Useless, events);
        }
        Turn::Again
    }

    /// Waits for the answer about a call that is next: suspends the run, unless something is in flight.
    pub(super) fn wait_for_answer(&mut self, now: Timestamp, events: &mut Vec<Event>) -> Turn {
        if !self.running.is_empty() {
            return self.rest();
        }
        self.suspend(now, Suspension::new(SuspendReason::Approval), events)
    }

    /// Suspends the run for `why` at the request of a hook; for an approval, a question is put to a person.
    pub(super) fn suspend_by_hook(
        &mut self,
        now: Timestamp,
        why: Suspension,
        message: Option<String>,
        kind: ApprovalKind,
        events: &mut Vec<Event>,
    ) -> Turn {
        if why.reason == SuspendReason::Approval {
            let message = message.unwrap_or_else(|| UNSAID.to_owned());
            let approval = self.question(now, kind, &message);
            self.record(now, RunEvent::ApprovalRequested(approval).into(), events);
        }
        self.suspend(now, why, events)
    }

    /// Handles the denial of a hook's question: the run ends, or the failure that the question concerned becomes final.
    pub(super) fn handle_denial(
        &mut self,
        now: Timestamp,
        events: &mut Vec<Event>,
    ) -> Option<Turn> {
        let (_, answer) = self.run.approvals.of_hook()?;
        if answer.approved {
            return None;
        }
        let denial = answer.denial();
        if let Some(turn) = self.keep_failure(now, events) {
            return Some(turn);
        }
        let error = self.at_node(denial);
        Some(self.finish(now, Outcome::Error { error }, events))
    }

    /// Returns the person who granted more steps, if there is one.
    pub(super) fn granted_steps(&self) -> Option<String> {
        let (asked, answer) = self.run.approvals.of_hook()?;
        let granted = answer.approved && asked.kind == ApprovalKind::Limit;
        granted.then(|| answer.by.clone())
    }
}
