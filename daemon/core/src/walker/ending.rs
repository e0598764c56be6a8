//! Ends and pauses: requests to stop, limits, the terminal event, suspension.

use std::sync::Arc;

use serde_json::{Value, json};

use super::{Turn, Walker};
use crate::clock::Timestamp;
use crate::definition::{DEFAULT_MAX_STEPS, HookEvent};
use crate::id::RunId;
use crate::model::event::{GraphEnding, LimitExtended};
use crate::model::{
    DEFAULT_EXTENSION, Event, Failure, Outcome, RunEvent, SuspendReason, Suspension,
};

impl Walker {
    /// Handles a cancel, a deadline or a suspend request before any further attempt; `None` to continue.
    pub(super) fn stop_if_requested(
        &mut self,
        now: Timestamp,
        events: &mut Vec<Event>,
    ) -> Option<Turn> {
        let stops = self.run.cancel.is_some() || self.is_overdue() || self.held.is_some();
        if !stops {
            return None;
        }
        if !self.running.is_empty() {
            return Some(self.rest());
        }
        if let Some(cause) = self.run.cancel.clone() {
            return Some(self.finish(now, Outcome::Cancelled { cause }, events));
        }
        if self.is_overdue() {
            let seconds = self.graph.timeout.unwrap_or_default().as_secs_f64();
            let text = format!("the run took longer than `config.timeout` allows ({seconds} s)");
            let error = Failure::permanent("duration_exceeded", text);
            let error = self.at_node(error);
            return Some(self.finish(now, Outcome::Error { error }, events));
        }
        let why = self.held.take()?;
        Some(self.suspend(now, why, events))
    }

    pub(super) fn is_overdue(&self) -> bool {
        self.deadline.is_some_and(|deadline| self.up >= deadline)
    }

    /// Returns the limit of the steps of the run.
    pub(super) fn max_steps(&self) -> u32 {
        let limit = self.walk().max_steps.or(self.run.spec.limits.steps);
        limit.or(self.graph.max_steps).unwrap_or(DEFAULT_MAX_STEPS)
    }

    pub(super) fn at_limit(&mut self, now: Timestamp, node: &str, events: &mut Vec<Event>) -> Turn {
        let (steps, max) = (self.walk().steps, self.max_steps());
        if let Some(by) = self.granted_steps() {
            let max_steps = max.saturating_add(DEFAULT_EXTENSION);
            let event = Event::from(LimitExtended { max_steps, by });
            self.record(now, event, events);
            return Turn::Again;
        }
        let context = self.context([
            ("limit_code", json!("max_steps_exceeded")),
            ("current_value", json!(steps)),
            ("current_max", json!(max)),
        ]);
        if self.open_round(now, HookEvent::Limit, context, events) {
            return Turn::Again;
        }
        let error = self.limit_failure().at(node);
        self.finish(now, Outcome::Error { error }, events)
    }

    pub(super) fn limit_failure(&self) -> Failure {
        let (steps, max) = (self.walk().steps, self.max_steps());
        let text = format!(
            "the graph took {steps} steps, its limit (max_steps {max}); raise it in the graph, by `--limit steps=N` of `run`, or by `--raise steps=N` of `resume`"
        );
        Failure::permanent("max_steps_exceeded", text)
    }

    pub(super) fn completed(&self) -> Outcome {
        let walk = self.walk();
        let output = walk.output.clone().unwrap_or_else(|| Arc::new(json!({})));
        if walk.suppressed.is_empty() {
            Outcome::Completed { output }
        } else {
            Outcome::CompletedWithErrors { output }
        }
    }

    /// Ends the walk: calls the hooks of `graph_completed`, or ends the run immediately.
    pub(super) fn finish(
        &mut self,
        now: Timestamp,
        outcome: Outcome,
        events: &mut Vec<Event>,
    ) -> Turn {
        if self.has_hooks(HookEvent::GraphCompleted) && !self.run.spec.is_single_step() {
            let error = match &outcome {
                Outcome::Error { error } => json!(error.message),
                Outcome::Completed { .. }
                | Outcome::CompletedWithErrors { .. }
                | Outcome::Cancelled { .. }
                | Outcome::Killed { .. } => Value::Null,
            };
            let context = self.context([
                ("graph_id", json!(self.run.spec.item.id)),
                ("steps", json!(self.walk().steps)),
                ("status", json!(outcome.status())),
                ("error", error),
            ]);
            self.record(
                now,
                Event::from(GraphEnding {
                    outcome: Arc::new(outcome.clone()),
                }),
                events,
            );
            if self.open_round(now, HookEvent::GraphCompleted, context, events) {
                return Turn::Again;
            }
        }
        self.end(now, outcome, events)
    }

    pub(super) fn end(
        &mut self,
        now: Timestamp,
        outcome: Outcome,
        events: &mut Vec<Event>,
    ) -> Turn {
        if let Some(turn) = self.stop_services(now, &outcome, events) {
            return turn;
        }
        let event = self.run.ending(now, outcome);
        self.record(now, event, events);
        Turn::Again
    }

    pub(super) fn suspend(
        &mut self,
        now: Timestamp,
        why: Suspension,
        events: &mut Vec<Event>,
    ) -> Turn {
        let why = why.at(self.run.current_node());
        self.record(now, Event::Run(RunEvent::RunSuspended(why)), events);
        Turn::Again
    }

    pub(super) fn suspend_for_child(
        &mut self,
        now: Timestamp,
        child: RunId,
        events: &mut Vec<Event>,
    ) -> Turn {
        self.suspend(now, Suspension::for_child(child), events)
    }

    pub(super) fn suspend_uncertain(
        &mut self,
        now: Timestamp,
        uncertain: Vec<String>,
        events: &mut Vec<Event>,
    ) -> Turn {
        let why = Suspension {
            uncertain,
            ..Suspension::new(SuspendReason::Uncertain)
        };
        self.suspend(now, why, events)
    }

    /// Sets the current node in `failure`.
    pub(super) fn at_node(&self, failure: Failure) -> Failure {
        match self.run.current_node() {
            Some(node) => failure.at(node),
            None => failure,
        }
    }
}
