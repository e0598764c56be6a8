//! What a run has done so far, and what events add to it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::attempt::attempt_name;
use super::{
    Event, FailedAttempt, Failure, GraphEvent, HookRound, InFlight, ItemResult, Items, Object,
    RunEvent, Slot, SuppressedError, ToolEvent,
};
use crate::id::RunId;
use crate::model::Effect;

/// What a run has done so far.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Progress {
    /// The state of a graph, `inputs` included: always a JSON object.
    pub state: Value,
    /// Steps taken.
    pub steps: u32,
    /// How often each node was completed.
    pub visits: BTreeMap<String, u32>,
    /// Errors the graph went on after.
    pub suppressed: Vec<SuppressedError>,
    /// What the return node returned.
    pub output: Option<Value>,
    /// A tool run's result; also kept when it failed.
    pub result: Option<Value>,
    /// Retries of each node since it was entered by an edge.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub retries: BTreeMap<String, u32>,
    /// A limit of steps that replaces that of the spec.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_steps: Option<u32>,
    /// Items of the foreach node in hand.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub items: Option<Items>,
    /// The failed attempt in hand.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed: Option<FailedAttempt>,
    /// Hooks being asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hooks: Option<HookRound>,
    /// Items of the foreach node at which the run ended; the run that goes on repeats none that succeeded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unfinished: Option<Items>,
    /// Attempts that must not happen twice and may have happened although their step is not done, by the names of
    /// [`Run::uncertain`](super::Run::uncertain): what the end of the run cut off, and what failed after it had begun.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unknown: Vec<String>,
    /// The run that carries out, or last carried out, the action of the node in hand; a further try goes on with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub below: Option<RunId>,
    /// Where the walk stood when the run ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stood_at: Option<String>,
    /// The last step that was done: its node and what followed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_step: Option<LastStep>,
}

/// The last step that was done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LastStep {
    /// Its node.
    pub node: String,
    /// The node that followed.
    pub next_node: Option<String>,
    /// Why it failed, wherever that led.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<Failure>,
}

impl Default for Progress {
    fn default() -> Self {
        Self {
            state: Value::Object(Object::new()),
            steps: 0,
            visits: BTreeMap::new(),
            suppressed: Vec::new(),
            output: None,
            result: None,
            retries: BTreeMap::new(),
            max_steps: None,
            items: None,
            failed: None,
            hooks: None,
            unfinished: None,
            unknown: Vec::new(),
            below: None,
            stood_at: None,
            last_step: None,
        }
    }
}

impl Progress {
    /// What a run takes over that goes on where this one ended.
    #[must_use]
    pub fn inherited(&self) -> Self {
        let items = self.unfinished.clone().map(Items::left);
        let suppressed = self.suppressed.iter();
        Self {
            items,
            // Items of the step that was cut off are tried again.
            suppressed: suppressed
                .filter(|error| error.step <= self.steps)
                .cloned()
                .collect(),
            unfinished: None,
            unknown: Vec::new(),
            failed: None,
            hooks: None,
            output: None,
            max_steps: None,
            stood_at: None,
            last_step: None,
            ..self.clone()
        }
    }

    /// Shows the retries in the state, where templates and hooks read them.
    fn show_retries(&mut self) {
        let retries = json!(self.retries);
        self.set("_retries", retries);
    }

    /// Sets one key of the state.
    pub fn set(&mut self, key: &str, value: Value) {
        if let Value::Object(state) = &mut self.state {
            state.insert(key.to_owned(), value);
        }
    }
}

impl Progress {
    /// Takes in one event that the run's phase allows.
    #[expect(clippy::too_many_lines, reason = "one row for each event")]
    pub(super) fn take_in(&mut self, event: &Event) {
        match event {
            Event::Run(RunEvent::StepStarted {
                step, items, child, ..
            }) => self.begin_step(*step, *items, child.as_ref()),
            Event::Graph(GraphEvent::StepFailed {
                error,
                result,
                classification,
                repeatable,
                spent,
                ..
            }) => {
                self.hooks = None;
                self.failed = Some(FailedAttempt {
                    error: error.clone(),
                    result: result.clone(),
                    classification: classification.clone(),
                    repeatable: *repeatable,
                    spent: *spent,
                });
            }
            Event::Graph(GraphEvent::RetryScheduled { node, retries, .. }) => {
                self.hooks = None;
                self.failed = None;
                self.retries.insert(node.clone(), *retries);
                self.show_retries();
            }
            Event::Graph(GraphEvent::ForeachCompleted { step, node, .. }) => {
                self.order_item_errors(*step, node);
            }
            Event::Graph(GraphEvent::ItemStarted { .. } | GraphEvent::ItemCompleted { .. }) => {
                self.take_in_item(event);
            }
            Event::Run(
                RunEvent::HooksBegun { .. }
                | RunEvent::HookStarted { .. }
                | RunEvent::HookCompleted { .. },
            ) => {
                self.take_in_hook(event);
            }
            Event::Run(RunEvent::ProcessStarted { slot, process, .. }) => {
                if let Some(work) = self.attempt(*slot) {
                    work.process = Some(process.clone());
                }
            }
            Event::Run(RunEvent::UncertainAnswered { slot, verdict, .. }) => {
                if let Some(work) = self.attempt(*slot) {
                    work.verdict = Some(*verdict);
                }
            }
            Event::Graph(GraphEvent::LimitExtended { max_steps, .. }) => {
                self.hooks = None;
                self.max_steps = Some(*max_steps);
            }
            Event::Graph(GraphEvent::StepCompleted { .. }) => self.take_in_step(event),
            Event::Run(RunEvent::RunSuspended(why)) => {
                if let Some(failure) = &why.failure {
                    let error = json!({"node": failure.node, "error": failure.message});
                    self.set("_last_error", error);
                }
                // The round that asked for it has had its will; any other goes on later.
                if self.hooks.as_ref().is_some_and(|round| round.asked(why)) {
                    self.hooks = None;
                }
            }
            Event::Tool(ToolEvent::ToolCompleted { result, .. }) => {
                self.result = Some(result.clone());
            }
            Event::Graph(
                GraphEvent::GraphEnding { .. }
                | GraphEvent::GraphCompleted { .. }
                | GraphEvent::GraphError { .. }
                | GraphEvent::GraphCancelled { .. },
            )
            | Event::Run(RunEvent::RunKilled { .. }) => self.clear_step(),
            Event::Run(
                RunEvent::RunCreated(_)
                | RunEvent::RunStarted { .. }
                | RunEvent::Emitted { .. }
                | RunEvent::Warning { .. }
                | RunEvent::CancelRequested { .. }
                | RunEvent::RunResumed { .. },
            )
            | Event::Graph(GraphEvent::GraphStarted { .. })
            | Event::Tool(ToolEvent::ToolCancelled { .. }) => {}
        }
    }

    /// The attempt in flight of an item or a hook; that of the node's own action is part of the phase.
    fn attempt(&mut self, slot: Slot) -> Option<&mut InFlight> {
        match slot {
            Slot::Action => None,
            Slot::Item(item) => self.items.as_mut()?.running.get_mut(&item),
            Slot::Hook(_) => self.hooks.as_mut()?.running.as_mut(),
        }
    }

    /// What failed of the step in hand, at `node`, and must not happen twice although it may have happened.
    pub(super) fn spent(&self, node: &str) -> Vec<String> {
        match (&self.items, &self.failed) {
            (Some(items), _) => items
                .spent()
                .map(|item| attempt_name(node, Slot::Item(item)))
                .collect(),
            (None, Some(failed)) if failed.spent => vec![attempt_name(node, Slot::Action)],
            (None, Some(_) | None) => Vec::new(),
        }
    }

    /// What was in hand is not gone on with; what became of items is kept for the run that may go on.
    fn clear_step(&mut self) {
        self.unfinished = self.items.take().or(self.unfinished.take());
        self.failed = None;
        self.hooks = None;
    }

    fn begin_step(&mut self, step: u32, items: Option<u32>, child: Option<&RunId>) {
        self.hooks = None;
        self.failed = None;
        self.below = child.cloned().or(self.below.take());
        match (items, &mut self.items) {
            (Some(count), Some(items)) if items.count() == count => {
                items.reopen();
                // Items that are tried again are no longer errors the graph went on after.
                self.suppressed.retain(|error| error.step != step);
            }
            (Some(count), slot) => *slot = Some(Items::new(count)),
            (None, slot) => *slot = None,
        }
    }

    fn take_in_item(&mut self, event: &Event) {
        let Some(items) = &mut self.items else { return };
        if let Event::Graph(GraphEvent::ItemStarted {
            item,
            attempt,
            effect,
            key,
            child,
            ..
        }) = event
        {
            items.next = items.next.max(item + 1);
            items
                .below
                .extend(child.clone().map(|child| (*item, child)));
            let work = InFlight::new(*attempt, *effect).announced(key, child.as_ref());
            items.running.insert(*item, work);
        }
        if let Event::Graph(GraphEvent::ItemCompleted {
            item,
            node,
            step,
            result,
            collected,
            error,
            never_began,
            cut_off,
            suppressed,
            ..
        }) = event
        {
            items.next = items.next.max(item + 1);
            let done = ItemResult {
                value: collected.as_ref().unwrap_or(result).clone(),
                error: error.clone(),
                never_began: *never_began,
                cut_off: *cut_off,
                spent: false,
                attempt: 0,
            };
            items.end(*item, done);
            if let (true, Some(error)) = (*suppressed, error) {
                self.suppressed.push(item_error(*step, node, *item, error));
            }
        }
    }

    /// Errors of items are recorded as they occur, and reported in the order of the items.
    fn order_item_errors(&mut self, step: u32, node: &str) {
        let Some(items) = &self.items else { return };
        self.suppressed.retain(|error| error.step != step);
        let failed = items.failures();
        let failed = failed.map(|(item, _, error)| item_error(step, node, item, error));
        self.suppressed.extend(failed);
    }

    fn take_in_hook(&mut self, event: &Event) {
        if let Event::Run(RunEvent::HooksBegun {
            event,
            hooks,
            context,
            now,
        }) = event
        {
            self.hooks = Some(HookRound {
                event: event.clone(),
                waiting: hooks.iter().copied().collect(),
                context: context.clone(),
                now: *now,
                answer: None,
                by: None,
                running: None,
            });
        }
        let Some(round) = &mut self.hooks else { return };
        if let Event::Run(RunEvent::HookStarted {
            attempt,
            key,
            child,
            ..
        }) = event
        {
            let work = InFlight::new(*attempt, Effect::Idempotent);
            round.running = Some(work.announced(key, child.as_ref()));
        }
        if let Event::Run(RunEvent::HookCompleted { control, hook, .. }) = event {
            round.waiting.pop_front();
            round.running = None;
            if let (None, Some(control)) = (&round.answer, control) {
                round.answer = Some(control.clone());
                round.by = Some(hook.clone());
            }
        }
    }

    fn take_in_step(&mut self, event: &Event) {
        let Event::Graph(GraphEvent::StepCompleted {
            step,
            node,
            next_node,
            assigned,
            error,
            suppressed,
            output,
            ..
        }) = event
        else {
            return;
        };
        // A visit that ended the run is taken again by the run that goes on from it, under the same key.
        let ended_the_run = error.is_some() && !suppressed && next_node.is_none();
        if ended_the_run {
            self.unknown = self.spent(node);
        }
        self.clear_step();
        self.steps = *step;
        if !ended_the_run {
            self.unfinished = None;
            self.below = None;
            *self.visits.entry(node.clone()).or_default() += 1;
        }
        for (key, value) in assigned {
            self.set(key, value.clone());
        }
        if let (true, Some(error)) = (*suppressed, error) {
            self.suppressed.push(SuppressedError {
                step: *step,
                node: node.clone(),
                error: error.message.clone(),
            });
        }
        // The count of retries begins anew where an edge leads.
        if let Some(next) = next_node
            && self.retries.remove(next).is_some()
        {
            self.show_retries();
        }
        if let Some(output) = output {
            self.output = Some(output.clone());
        }
        self.last_step = Some(LastStep {
            node: node.clone(),
            next_node: next_node.clone(),
            error: error.clone(),
        });
    }
}

fn item_error(step: u32, node: &str, item: u32, error: &Failure) -> SuppressedError {
    SuppressedError {
        step,
        node: node.to_owned(),
        error: format!("item {item}: {}", error.message),
    }
}
