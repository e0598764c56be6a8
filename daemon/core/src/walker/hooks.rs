//! Rounds of hooks: the hooks that are called about an event, and the effect of their answer.
//!
//! **Order.** The graph's own hooks (layer 1), then the configured ones (2 and 3), each list as written. All hooks
//! whose condition holds when the round begins are called, one after the other; the first answer of layers 1 and 2
//! counts. A hook that fails is a warning.

use std::fmt;
use std::sync::Arc;

use serde_json::{Value, json};

use super::evaluate::{View, resolve};
use super::{Turn, Walker, interpolation_failure};
use crate::clock::Timestamp;
use crate::definition::{Action, Hook, HookAction, HookEvent};
use crate::expr::{self, Names};
use crate::id::ItemRef;
use crate::ledger::Cost;
use crate::machine::{Call, CallOutcome};
use crate::model::event::{HookCompleted, HooksBegun, LimitExtended};
use crate::model::graph::At;
use crate::model::{
    ApprovalKind, Control, Event, Failure, Object, Outcome, Slot, SuspendReason, Suspension,
};

/// Hooks of this layer report; their answers are ignored.
const REPORTING_LAYER: u8 = 3;

/// Source of the cost of a run and all runs below it so far. It is read when hooks are called, and the value is
/// recorded with their round, so that a replay does not read it.
#[derive(Clone)]
pub struct CostSource(Arc<dyn Fn() -> Cost + Send + Sync>);

impl CostSource {
    /// Wraps `read`, which must neither wait nor act.
    pub fn new(read: impl Fn() -> Cost + Send + Sync + 'static) -> Self {
        Self(Arc::new(read))
    }
}

impl Default for CostSource {
    fn default() -> Self {
        Self::new(Cost::default)
    }
}

impl fmt::Debug for CostSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("CostSource").field(&(self.0)()).finish()
    }
}

/// The result of calling a hook.
enum HookOutcome {
    /// It answered, perhaps without a control answer.
    Answered(Option<Control>),
    /// Its action must be carried out.
    Calls(Box<Call>),
}

impl Walker {
    /// Makes the context of an event: `entries`, and the number of completed steps if they have no `step_count`. The
    /// state is added at each read.
    pub(super) fn context<const N: usize>(&self, entries: [(&str, Value); N]) -> Object {
        let mut context: Object = entries
            .into_iter()
            .map(|(key, value)| (key.to_owned(), value))
            .collect();
        context
            .entry("step_count")
            .or_insert_with(|| json!(self.walk().steps));
        context
    }

    /// Returns the step that the current round concerns: the failed one, else the last completed one.
    fn step_in_question(&self) -> u32 {
        match &self.walk().at {
            At::Failed { step, .. } => step.number,
            At::New | At::Between { .. } | At::Step(_) | At::Backoff { .. } | At::Ending { .. } => {
                self.walk().steps
            }
        }
    }

    fn all_hooks(&self) -> impl Iterator<Item = (u32, &Hook)> {
        (0..).zip(self.graph.hooks.iter().chain(self.policy.hooks()))
    }

    /// Returns the hook at `index` of the list.
    pub(super) fn hook(&self, index: u32) -> Option<&Hook> {
        self.all_hooks()
            .find(|(at, _)| *at == index)
            .map(|(_, hook)| hook)
    }

    /// True if there is any hook of `event`.
    pub(super) fn has_hooks(&self, event: HookEvent) -> bool {
        self.all_hooks().any(|(_, hook)| hook.event == event)
    }

    /// Returns the event of the current round.
    pub(super) fn hook_event(&self) -> String {
        let round = self.walk().at.round();
        round
            .map(|round| round.event.to_string())
            .unwrap_or_default()
    }

    /// Begins to call the hooks of `event` whose condition holds; `false` if there are none.
    pub(super) fn open_round(
        &mut self,
        now: Timestamp,
        event: HookEvent,
        mut context: Object,
        events: &mut Vec<Event>,
    ) -> bool {
        if !self.has_hooks(event) {
            return false;
        }
        let cost = (self.cost.0)().numbers();
        context.insert("cost".to_owned(), Value::Object(cost));
        // If the node sets its number of tries, hooks that would only retry it are not called.
        let bounded =
            matches!(&self.walk().at, At::Failed { step, .. } if self.bounds_retries(&step.node));
        let mut notes = Vec::new();
        let hooks: Vec<u32> = {
            let view = View::new(&self.walk().vars, None, now).with_services(self.services());
            let mut names = view.names();
            for (key, value) in &context {
                names = names.with(key, value);
            }
            self.all_hooks()
                .filter(|(_, hook)| hook.event == event && !(bounded && hook.only_retries()))
                .filter(|(_, hook)| {
                    let condition = hook.condition.as_ref();
                    condition.is_none_or(|condition| condition.holds(&names, &mut notes))
                })
                .map(|(index, _)| index)
                .collect()
        };
        self.notes.append(&mut notes);
        if hooks.is_empty() {
            return false;
        }
        let begun = Event::from(HooksBegun {
            event: event.as_str().to_owned(),
            hooks,
            context: Arc::new(context),
            now,
        });
        self.record(now, begun, events);
        true
    }

    /// Continues the current round, or acts on its answer. `None` if there is none, or it has no effect.
    pub(super) fn ask_hooks(&mut self, now: Timestamp, events: &mut Vec<Event>) -> Option<Turn> {
        let round = self.walk().at.round()?;
        let Some(index) = round.waiting.front().copied() else {
            return self.act(now, events);
        };
        if self.running.contains_key(&Slot::Hook(index)) {
            return Some(self.rest());
        }
        if self.stopped.remove(&index) {
            let failure = Failure::permanent("stopped", "it was stopped together with the run");
            self.hook_done(now, index, None, Some(failure), 0, events);
            return Some(Turn::Again);
        }
        let ending = matches!(self.walk().at, At::Ending { .. });
        if !ending && let Some(turn) = self.stop_if_requested(now, events) {
            return Some(turn);
        }
        if let Some(child) = self.suspended.remove(&Slot::Hook(index)) {
            return Some(self.suspend_for_child(now, child, events));
        }
        Some(self.ask(now, index, events))
    }

    fn ask(&mut self, now: Timestamp, index: u32, events: &mut Vec<Event>) -> Turn {
        let Some(hook) = self.hook(index).cloned() else {
            let failure = Failure::permanent("hook_gone", "the hook is no longer configured");
            self.hook_done(now, index, None, Some(failure), 0, events);
            return Turn::Again;
        };
        let mut notes = Vec::new();
        let asked = match &hook.action {
            HookAction::Control(template) => self
                .in_round(|names| expr::interpolate(template, names, &mut notes))
                .map_err(|error| interpolation_failure(&error))
                .and_then(|answer| control(&answer))
                .map(HookOutcome::Answered),
            HookAction::Call(action) => self
                .in_round(|names| resolve(action, names, &mut notes))
                .map(|target| {
                    HookOutcome::Calls(Box::new(self.hook_call(index, &hook, action, target)))
                }),
        };
        self.notes.append(&mut notes);
        match asked {
            Ok(HookOutcome::Calls(call)) => return Turn::Call(call),
            Ok(HookOutcome::Answered(control)) => {
                self.hook_done(now, index, control, None, 0, events);
            }
            Err(failure) => self.hook_done(now, index, None, Some(failure), 0, events),
        }
        Turn::Again
    }

    /// Calls `look` with the names that the hooks of the current round see.
    fn in_round<R>(&self, look: impl FnOnce(&Names<'_>) -> R) -> R {
        let round = self.walk().at.round();
        let now = round.map_or(self.run.updated_at, |round| round.now);
        let view = View::new(&self.walk().vars, None, now).with_services(self.services());
        let mut names = view.names();
        for (key, value) in round.into_iter().flat_map(|round| &*round.context) {
            names = names.with(key, value);
        }
        look(&names)
    }

    fn hook_call(
        &self,
        index: u32,
        hook: &Hook,
        action: &Action,
        (item, params): (ItemRef, Object),
    ) -> Call {
        let round = self.walk().at.round();
        let running = round.and_then(|round| round.running.as_ref());
        // Keys count completed steps: those of hooks in existing logs stay the same.
        let completed = self.walk().steps;
        let node = self.run.current_node().unwrap_or_default();
        let name = format!("{}/{}/{}", hook.event.as_str(), hook.layer, hook.id);
        let tries = running.map_or(0, |attempt| attempt.id.number);
        let attached = running.and_then(|attempt| attempt.child.clone());
        let now = round.map_or(self.run.updated_at, |round| round.now);
        Call {
            step: self.step_in_question(),
            node: node.to_owned(),
            visit: completed,
            attempt: if attached.is_some() { tries } else { tries + 1 },
            primary: action.primary,
            key: self.key(node, completed, None, Some(&name)),
            authority: hook.authority,
            attached,
            ..Call::new(Slot::Hook(index), item, params, now)
        }
    }

    pub(super) fn conclude_hook(
        &mut self,
        now: Timestamp,
        index: u32,
        answer: &CallOutcome,
        elapsed_ms: u64,
        events: &mut Vec<Event>,
    ) {
        let (control, failure) = match &answer.failure {
            Some(failure) => (None, Some(failure.clone())),
            None => match control(&answer.result) {
                Ok(control) => (control, None),
                Err(failure) => (None, Some(failure)),
            },
        };
        self.hook_done(now, index, control, failure, elapsed_ms, events);
    }

    fn hook_done(
        &mut self,
        now: Timestamp,
        index: u32,
        control: Option<Control>,
        error: Option<Failure>,
        elapsed_ms: u64,
        events: &mut Vec<Event>,
    ) {
        let hook = self.hook(index);
        let id = hook.map(|hook| hook.id.clone()).unwrap_or_default();
        let reports = hook.is_some_and(|hook| hook.layer == REPORTING_LAYER);
        if let Some(error) = &error {
            self.notes
                .push(format!("hook `{id}` failed: {}", error.message));
        }
        let event = Event::from(HookCompleted {
            step: self.step_in_question(),
            event: self.hook_event(),
            hook: id,
            index,
            elapsed_ms,
            control: control.filter(|_| !reports),
            error,
        });
        self.record(now, event, events);
    }

    /// Acts on the answer of a round in which every hook has answered.
    fn act(&mut self, now: Timestamp, events: &mut Vec<Event>) -> Option<Turn> {
        let round = self.walk().at.round()?;
        let event = HookEvent::parse(&round.event)?;
        let answer = round
            .answer
            .clone()
            .map(|(control, by)| (control, by.to_string()));
        match event {
            HookEvent::GraphStarted | HookEvent::AfterStep => self.act_on_step(now, answer, events),
            HookEvent::Limit => Some(self.act_on_limit(now, answer, events)),
            HookEvent::Error => {
                let step = self.walk().at.step()?.clone();
                Some(self.act_on_failure(now, &step, answer, events))
            }
            HookEvent::GraphCompleted => None,
        }
    }

    /// Between two nodes a hook may end or suspend the run; any other answer has no effect.
    fn act_on_step(
        &mut self,
        now: Timestamp,
        answer: Option<(Control, String)>,
        events: &mut Vec<Event>,
    ) -> Option<Turn> {
        let (control, by) = answer?;
        match control {
            Control::Fail { error } => {
                let error = stopped_by(&by, "hook_failed", error);
                let error = self.at_node(error);
                Some(self.finish(now, Outcome::Error { error }, events))
            }
            Control::Abort => {
                let error = self.at_node(stopped_by(&by, "aborted", None));
                Some(self.finish(now, Outcome::Error { error }, events))
            }
            Control::Suspend { .. } | Control::Escalate => {
                let why = Suspension::new(control.suspends(HookEvent::AfterStep.as_str())?);
                let message = control.message();
                Some(self.suspend_by_hook(now, why, message, ApprovalKind::Node, events))
            }
            Control::Retry { .. } | Control::Continue { .. } | Control::Skip => None,
        }
    }

    fn act_on_limit(
        &mut self,
        now: Timestamp,
        answer: Option<(Control, String)>,
        events: &mut Vec<Event>,
    ) -> Turn {
        let (steps, max) = (self.walk().steps, self.max_steps());
        let (control, by) = answer.unwrap_or((Control::Abort, String::new()));
        match control {
            Control::Continue { additional_steps } if additional_steps > 0 => {
                let event = Event::from(LimitExtended {
                    max_steps: max.saturating_add(additional_steps),
                    by,
                });
                self.record(now, event, events);
                Turn::Again
            }
            Control::Escalate => {
                let why = Suspension {
                    code: Some("max_steps_exceeded".into()),
                    current: Some(steps.to_string()),
                    max: Some(max.to_string()),
                    ..Suspension::new(SuspendReason::Limit)
                };
                self.suspend(now, why, events)
            }
            Control::Suspend { reason, message } => {
                let why = Suspension::new(reason.unwrap_or(SuspendReason::User));
                self.suspend_by_hook(now, why, message, ApprovalKind::Limit, events)
            }
            Control::Fail { error } => {
                let mut failure = self.limit_failure();
                failure.message = error.unwrap_or(failure.message);
                let error = self.at_node(failure);
                self.finish(now, Outcome::Error { error }, events)
            }
            Control::Retry { .. } | Control::Abort | Control::Continue { .. } | Control::Skip => {
                let error = self.at_node(self.limit_failure());
                self.finish(now, Outcome::Error { error }, events)
            }
        }
    }
}

/// Reads the control answer in the result of a hook's action, if there is one; for a graph, in the graph's output.
fn control(result: &Value) -> Result<Option<Control>, Failure> {
    let answer = match (result.get("graph_run_id"), result.get("output")) {
        (Some(_), Some(output)) => output,
        (Some(_) | None, _) => result,
    };
    Control::parse(answer).map_err(|problem| Failure::permanent("bad_control", problem))
}

fn stopped_by(hook: &str, code: &str, message: Option<String>) -> Failure {
    let message = message.unwrap_or_else(|| format!("stopped by the hook `{hook}`"));
    Failure::permanent(code, message)
}
