//! State of a followed run, folded from its events and deltas.
//!
//! **Owns** the state that a renderer needs between two events: the present step, the progress of its items, the failed
//! items, and how much of a model's text was shown. [`View::take`] and [`View::apply_delta`] change it and return the change.
//! **Never** makes text for people, waits, or reads a clock. A renderer does, for lines, a screen, or a page.
//! **Order.** Events arrive in the order of the stream. Events that this client does not know are ignored.

mod model_text;
mod update;

use std::collections::{HashMap, HashSet};

use rye_core::clock::Timestamp;
use rye_core::conversation::Source;
use rye_core::id::RunId;
use rye_core::model::event::{
    CognitionIn, ItemCompleted, RetryScheduled, StepCompleted, ToolCallResult, Warning,
};
use rye_core::model::thread::TurnWait;
use rye_core::model::{Event, GraphEvent, RunEvent, StepStatus, ThreadEvent};
use rye_core::money::Usd;
use rye_core::thread::ShellCommand;
use rye_proto::v1::{self, ItemCount};

use self::model_text::{ShownText, TextChange};
pub use self::update::{StepEnd, ViewUpdate};

/// Most failed items that are kept; further ones are only counted.
const MOST_FAILED: usize = 20;

/// State of a followed run.
#[derive(Debug)]
pub struct View {
    /// Id of the item that runs.
    pub item: String,
    /// Number of nodes of a graph, else 0.
    pub nodes: u32,
    /// Present step or turn, if there is one.
    pub current: Option<CurrentStep>,
    /// First failed items that were not tried again, at most 20.
    pub failed: Vec<FailedItem>,
    /// Number of further failed items.
    pub more_failed: usize,
    /// Last text of the model, complete.
    pub last_text: Option<String>,
    /// Names of the branches of the present step.
    branches: Vec<String>,
    /// Items of the present step that pause before another try.
    retrying: HashSet<u32>,
    /// State keys seen so far; only new ones are shown.
    known: HashSet<String>,
    /// Error of the failed try that the next retry reports.
    why: Option<String>,
    /// Money that the model calls of a thread have cost so far.
    pub spend: Usd,
    /// A thread's calls in flight, by call id.
    calls: HashMap<String, CallInFlight>,
    shown_text: ShownText,
}

/// A step or a turn that has begun and not ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CurrentStep {
    /// Number of the step, or of the turn.
    pub number: u32,
    /// Node of the step, or item of a call of the turn; empty while the model is called.
    pub name: String,
    /// Start time, if it is known.
    pub since: Option<Timestamp>,
    /// True if nothing executes: the step waits for a time or a person.
    pub waits: bool,
    /// The wait of a turn before its model is called.
    pub waiting: Option<TurnWait>,
    /// Progress of its items, if it has any.
    pub items: Option<ItemCount>,
    /// Number of items whose results come from an earlier run.
    pub cached: u32,
}

/// A call of a thread.
#[derive(Debug)]
struct CallInFlight {
    item: String,
    command: Option<ShellCommand>,
}

/// A failed item of a foreach or parallel step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FailedItem {
    /// Number of the step.
    pub step: u32,
    pub node: String,
    /// Position from 0, or name of the branch.
    pub item: String,
    /// Beginning of the item's value.
    pub about: Option<String>,
    pub error: String,
}

/// A child run that executes an attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Child {
    pub run_id: RunId,
    /// Name of the attempt for people: `build`, `build[3]`.
    pub label: String,
}

impl View {
    /// Makes the view of a run of `item`. `nodes` is the number of nodes of a graph, else 0.
    pub fn new(item: &str, nodes: u32) -> Self {
        Self {
            item: item.to_owned(),
            nodes,
            current: None,
            failed: Vec::new(),
            more_failed: 0,
            last_text: None,
            branches: Vec::new(),
            retrying: HashSet::new(),
            known: HashSet::new(),
            why: None,
            spend: Usd::ZERO,
            calls: HashMap::new(),
            shown_text: ShownText::default(),
        }
    }

    /// Adds state keys that are not shown as new.
    pub fn know<'k>(&mut self, keys: impl Iterator<Item = &'k String>) {
        self.known.extend(keys.cloned());
    }

    /// Applies `event`, which happened at `at`. Returns the change, if there is one.
    pub fn take(&mut self, event: &Event, at: Option<Timestamp>) -> Option<ViewUpdate> {
        match event {
            Event::Run(event) => self.of_run(event),
            Event::Graph(event) => self.of_graph(event, at),
            Event::Thread(event) => self.of_thread(event, at),
            Event::Tool(_) | Event::Process(_) => None,
        }
    }

    /// Applies a delta of the model's text. Returns the change, if there is one.
    pub fn apply_delta(&mut self, delta: &v1::Delta) -> Option<ViewUpdate> {
        Some(match self.shown_text.apply(delta)? {
            TextChange::More(text) => ViewUpdate::More(text),
            TextChange::TakenBack(turn) => ViewUpdate::Retracted { turn },
        })
    }

    fn of_run(&mut self, event: &RunEvent) -> Option<ViewUpdate> {
        if let RunEvent::Warning(Warning { node, message }) = event {
            return Some(ViewUpdate::Warning {
                node: node.clone(),
                message: message.clone(),
            });
        }
        if let RunEvent::BudgetSettled(settled) = event {
            // A sum that overflows is no longer shown exactly, and no run spends that much.
            self.spend = self
                .spend
                .checked_add(settled.usage.money)
                .unwrap_or(self.spend);
            return None;
        }
        let RunEvent::StepStarted(started) = event else {
            return None;
        };
        let (step, node) = (started.step, started.node.as_str());
        self.branches = started.branches.iter().map(ToString::to_string).collect();
        self.retrying.clear();
        // Another try: failed items are tried again.
        self.failed.retain(|failed| failed.step != step);
        self.current = Some(CurrentStep {
            items: started.items.map(|total| ItemCount {
                total,
                ..ItemCount::default()
            }),
            ..CurrentStep::of(step, node, Some(started.now))
        });
        Some(child_of(started.child.as_ref(), node).unwrap_or(ViewUpdate::CurrentChanged))
    }

    fn of_graph(&mut self, event: &GraphEvent, at: Option<Timestamp>) -> Option<ViewUpdate> {
        match event {
            GraphEvent::GraphStarted(started) => {
                self.known.extend(started.state.names().map(str::to_owned));
                None
            }
            GraphEvent::StepFailed(failed) => {
                self.why = Some(failed.error.message.clone());
                None
            }
            GraphEvent::StepWaiting(waiting) => {
                self.current = Some(CurrentStep {
                    waits: true,
                    ..CurrentStep::of(waiting.step, &waiting.node, Some(waiting.now))
                });
                Some(ViewUpdate::CurrentChanged)
            }
            GraphEvent::ItemStarted(started) => {
                let name = format!("{}[{}]", started.node, started.item);
                let child = child_of(started.child.as_ref(), &name);
                let paused = self.retrying.remove(&started.item);
                self.count_retrying();
                child.or_else(|| paused.then_some(ViewUpdate::CurrentChanged))
            }
            GraphEvent::ItemCompleted(completed) => Some(self.item_ended(completed)),
            GraphEvent::ForeachCompleted(end) => self.items_ended(end.items, end.failed),
            GraphEvent::ParallelCompleted(end) => self.items_ended(end.branches, end.failed),
            GraphEvent::RetryScheduled(retry) => Some(self.retry_scheduled(retry, at)),
            GraphEvent::StepCompleted(completed) => Some(self.step_ended(completed)),
            GraphEvent::ServiceStarted(_)
            | GraphEvent::ProcessWaited(_)
            | GraphEvent::LimitExtended(_)
            | GraphEvent::GraphEnding(_)
            | GraphEvent::GraphCompleted(_)
            | GraphEvent::GraphError(_)
            | GraphEvent::GraphCancelled(_) => None,
        }
    }

    /// Notes that a failed step, or an item of it, is tried again. Items without a name are only counted: there may be
    /// thousands.
    fn retry_scheduled(&mut self, retry: &RetryScheduled, at: Option<Timestamp>) -> ViewUpdate {
        let mut node = retry.node.clone();
        let mut why = self.why.take();
        if let Some(item) = retry.item {
            self.retrying.insert(item);
            self.count_retrying();
            let Some(branch) = self.branch(item) else {
                return ViewUpdate::CurrentChanged;
            };
            node = format!("{node}[{branch}]");
            why = retry.error.as_ref().map(|error| error.message.clone());
        }
        ViewUpdate::Retry {
            step: retry.step,
            node,
            why,
            retries: retry.retries,
            wait_ms: at.map_or(0, |at| retry.due.ms_since(at)),
            by: retry.by.clone(),
        }
    }

    fn branch(&self, item: u32) -> Option<&String> {
        self.branches.get(usize::try_from(item).ok()?)
    }

    fn count_retrying(&mut self) {
        let hand = self.current.as_mut();
        if let Some(items) = hand.and_then(|hand| hand.items.as_mut()) {
            items.retrying = u32::try_from(self.retrying.len()).unwrap_or(u32::MAX);
        }
    }

    fn item_ended(&mut self, completed: &ItemCompleted) -> ViewUpdate {
        if let Some(hand) = &mut self.current
            && let Some(items) = &mut hand.items
        {
            items.ended += 1;
            items.failed += u32::from(completed.error.is_some());
            hand.cached += u32::from(completed.status == StepStatus::Cached);
        }
        if self.retrying.remove(&completed.item) {
            self.count_retrying();
        }
        if let Some(error) = &completed.error {
            let item = completed.item;
            let branch = self.branch(item);
            self.item_failed(FailedItem {
                step: completed.step,
                node: completed.node.clone(),
                item: branch.cloned().unwrap_or_else(|| item.to_string()),
                about: completed.about.clone(),
                error: error.message.clone(),
            });
        }
        ViewUpdate::CurrentChanged
    }

    fn items_ended(&mut self, total: u32, failed: u32) -> Option<ViewUpdate> {
        if let Some(hand) = &mut self.current {
            hand.items = Some(ItemCount {
                total,
                ended: total,
                failed,
                retrying: 0,
            });
        }
        None
    }

    fn step_ended(&mut self, completed: &StepCompleted) -> ViewUpdate {
        let new = completed.assigned.names();
        let new = new.filter(|key| self.known.insert((*key).to_owned()));
        let new_keys = new.map(str::to_owned).collect();
        let hand = self.current.take();
        let hand = hand.filter(|hand| hand.number == completed.step);
        let error = completed.error.as_ref();
        ViewUpdate::Step(StepEnd {
            step: completed.step,
            node: completed.node.clone(),
            status: completed.status,
            elapsed_ms: completed.elapsed_ms,
            new_keys,
            error: error.map(|error| error.message.clone()),
            cached: hand.as_ref().map_or(0, |hand| hand.cached),
            items: hand.and_then(|hand| hand.items),
        })
    }

    fn item_failed(&mut self, failed: FailedItem) {
        if self.failed.len() < MOST_FAILED {
            self.failed.push(failed);
        } else {
            self.more_failed += 1;
        }
    }

    fn of_thread(&mut self, event: &ThreadEvent, at: Option<Timestamp>) -> Option<ViewUpdate> {
        if let ThreadEvent::StepStart(start) = event {
            self.current = Some(CurrentStep::of(start.turn, "", at));
            return Some(ViewUpdate::CurrentChanged);
        }
        if let ThreadEvent::CognitionIn(CognitionIn {
            turn,
            source: Source::Message,
            text,
        }) = event
        {
            return Some(ViewUpdate::UserMessage {
                turn: *turn,
                text: text.clone(),
            });
        }
        if let ThreadEvent::CognitionOut(said) = event {
            let trimmed = said.text.trim();
            self.last_text = Some(trimmed.to_owned());
            return match self.shown_text.rest(said.turn, said.attempt, &said.text) {
                Some(rest) => Some(ViewUpdate::Rest(rest)),
                None if trimmed.is_empty() => None,
                None => Some(ViewUpdate::ModelMessage(trimmed.to_owned())),
            };
        }
        if let ThreadEvent::ErrorClassified(failed) = event {
            return Some(ViewUpdate::TurnFailed {
                turn: failed.turn,
                error: failed.error.message.clone(),
                pause_ms: failed.pause_ms,
            });
        }
        if let ThreadEvent::TurnRetryScheduled(retry) = event {
            // The failure of the call was shown with the pause.
            let waiting = TurnWait::for_provider(Some(retry.due));
            let is_long = at.is_none_or(|at| retry.due > at);
            self.current = is_long.then(|| CurrentStep::waiting(retry.turn, waiting, at));
            return Some(ViewUpdate::CurrentChanged);
        }
        if let ThreadEvent::TurnWaiting(delayed) = event {
            let (turn, waiting) = (delayed.turn, delayed.waiting);
            self.current = Some(CurrentStep::waiting(turn, waiting, at));
            return Some(ViewUpdate::TurnWaiting { turn, waiting });
        }
        if let ThreadEvent::ToolCallStart(call) = event {
            let item = call.item.rsplit_once(':');
            let item = item.map_or(call.item.as_str(), |(_, id)| id);
            let in_flight = CallInFlight {
                item: item.to_owned(),
                command: ShellCommand::of(item, &call.input),
            };
            self.calls.insert(call.call_id.clone(), in_flight);
            self.current = Some(CurrentStep::of(call.turn, item, at));
            return Some(child_of(call.child.as_ref(), item).unwrap_or(ViewUpdate::CurrentChanged));
        }
        if let ThreadEvent::ToolCallResult(result) = event {
            return self.call_ended(result);
        }
        None
    }

    fn call_ended(&mut self, result: &ToolCallResult) -> Option<ViewUpdate> {
        // A call that was answered before it began has no item: a refusal, or the outputs, which are shown at the end.
        let call = self.calls.remove(&result.call_id);
        if call.is_none() && !result.is_error {
            return None;
        }
        let (item, command) = match call {
            Some(call) => (Some(call.item), call.command),
            None => (None, None),
        };
        let command = command.map(|command| command.ended(&result.output));
        if self.calls.is_empty() {
            self.current = None;
        }
        Some(ViewUpdate::Call {
            turn: result.turn,
            item,
            elapsed_ms: result.duration_ms,
            error: result.is_error.then(|| result.output.clone()),
            command,
        })
    }
}

impl CurrentStep {
    /// A turn that waits since then.
    fn waiting(turn: u32, waiting: TurnWait, since: Option<Timestamp>) -> Self {
        Self {
            waiting: Some(waiting),
            ..Self::of(turn, "", since)
        }
    }

    fn of(number: u32, name: &str, since: Option<Timestamp>) -> Self {
        Self {
            number,
            name: name.to_owned(),
            since,
            waits: false,
            waiting: None,
            items: None,
            cached: 0,
        }
    }
}

fn child_of(child: Option<&RunId>, label: &str) -> Option<ViewUpdate> {
    let run_id = child?.clone();
    Some(ViewUpdate::Child(Child {
        run_id,
        label: label.to_owned(),
    }))
}

#[cfg(test)]
mod tests {
    use rye_core::ledger::Usage;
    use serde_json::{Value, json};

    use super::*;

    fn event(event_type: &str, payload: &Value) -> Event {
        Event::read(event_type, &payload.to_string()).unwrap()
    }

    fn take(view: &mut View, event_type: &str, payload: &Value) -> Option<ViewUpdate> {
        view.take(&event(event_type, payload), Some(Timestamp::from_ms(1_500)))
    }

    fn started(items: &Value) -> Value {
        json!({"step": 2, "node": "each", "visit": 0, "attempt": 1, "action_id": "foreach", "effect": "idempotent", "key": "k",
               "now": 1_000, "items": items})
    }

    fn item(position: u32, error: &Value) -> Value {
        json!({"step": 2, "node": "each", "item": position, "status": "ok", "elapsed_ms": 3, "result": null, "error": error,
               "about": "b.csv"})
    }

    #[test]
    fn a_foreach_counts_its_items_and_keeps_those_that_failed_by_what_they_are() {
        let mut view = View::new("t/g", 3);
        assert_eq!(
            take(&mut view, "step_started", &started(&json!(3))),
            Some(ViewUpdate::CurrentChanged)
        );
        let error = json!({"message": "no rows", "code": "tool_failed", "retryable": false});
        take(&mut view, "item_completed", &item(0, &Value::Null));
        take(&mut view, "item_completed", &item(1, &error));
        let hand = view.current.clone().unwrap();
        assert_eq!(
            (hand.number, hand.name.as_str(), hand.since),
            (2, "each", Some(Timestamp::from_ms(1_000)))
        );
        assert_eq!(
            hand.items,
            Some(ItemCount {
                total: 3,
                ended: 2,
                failed: 1,
                retrying: 0,
            })
        );
        let failed: Vec<_> = view
            .failed
            .iter()
            .map(|failed| (failed.item.as_str(), failed.about.as_deref()))
            .collect();
        assert_eq!(failed, [("1", Some("b.csv"))]);
        // Another try discards failed items.
        take(&mut view, "step_started", &started(&json!(3)));
        assert!(view.failed.is_empty());
    }

    #[test]
    fn step_news_has_each_new_key_once() {
        let mut view = View::new("t/g", 3);
        let state =
            json!({"graph_id": "g", "graph_run_id": "r", "start_node": "n", "state": {"old": 0}});
        assert_eq!(take(&mut view, "graph_started", &state), None);
        let ended = json!({"step": 1, "node": "n", "status": "ok", "elapsed_ms": 8, "next_node": null, "assigned": {"old": 1, "a": 2}});
        for new in [vec!["a".to_owned()], Vec::new()] {
            let Some(ViewUpdate::Step(step)) = take(&mut view, "step_completed", &ended) else {
                panic!("no end of a step");
            };
            assert_eq!(step.new_keys, new);
        }
    }

    #[test]
    fn a_child_run_is_news_with_its_label() {
        let mut view = View::new("t/g", 3);
        let begun = json!({"step": 2, "node": "each", "item": 1, "attempt": 1, "action_id": "tool:t/c", "effect": "idempotent",
                           "key": "k", "child": "t-c-1-a"});
        let child = Child {
            run_id: RunId::new("t-c-1-a").unwrap(),
            label: "each[1]".to_owned(),
        };
        assert_eq!(
            take(&mut view, "item_started", &begun),
            Some(ViewUpdate::Child(child))
        );
    }

    #[test]
    fn a_shell_call_has_its_command_and_spend_adds_up() {
        let mut view = View::new("t/count", 0);
        let call = json!({"turn": 1, "position": 0, "call_id": "a", "tool": "rye_execute", "item": "tool:rye/bash",
                          "input": {"command": "pytest -q"}, "attempt": 1, "effect": "idempotent", "key": "k"});
        take(&mut view, "tool_call_start", &call);
        let result = json!({"turn": 1, "position": 0, "call_id": "a", "output": "exit code 0\n--- stdout\n1 passed\n",
                            "is_error": false, "duration_ms": 4});
        let Some(ViewUpdate::Call {
            command: Some(command),
            ..
        }) = take(&mut view, "tool_call_result", &result)
        else {
            panic!("no command");
        };
        assert_eq!(
            (command.line.as_str(), command.last),
            ("pytest -q", vec!["1 passed".to_owned()])
        );
        for (call, total) in [(1, 2), (2, 4)] {
            let money = Usd::from_nanos(2);
            let usage = Usage {
                money,
                ..Usage::default()
            };
            let settled = json!({"call": call, "amount": money, "usage": usage, "estimated": false, "because": "usage"});
            take(&mut view, "budget_settled", &settled);
            assert_eq!(view.spend, Usd::from_nanos(total), "{call}");
        }
    }

    #[test]
    fn calls_of_a_thread_end_in_any_order() {
        let mut view = View::new("t/count", 0);
        let call = |id: &str| {
            json!({"turn": 3, "position": 0, "call_id": id, "tool": "rye_execute", "item": "tool:rye/bash", "input": {},
                   "attempt": 1, "effect": "idempotent", "key": "k"})
        };
        for id in ["a", "b"] {
            assert_eq!(
                take(&mut view, "tool_call_start", &call(id)),
                Some(ViewUpdate::CurrentChanged)
            );
        }
        for (id, is_error, item) in [
            ("b", true, Some("rye/bash")),
            ("a", false, Some("rye/bash")),
            ("c", true, None),
        ] {
            let result = json!({"turn": 3, "position": 0, "call_id": id, "output": "no", "is_error": is_error, "duration_ms": 400});
            let news = ViewUpdate::Call {
                turn: 3,
                item: item.map(str::to_owned),
                elapsed_ms: 400,
                error: is_error.then(|| "no".to_owned()),
                command: None,
            };
            assert_eq!(
                take(&mut view, "tool_call_result", &result),
                Some(news),
                "{id}"
            );
        }
        assert_eq!(view.current, None);
    }
}
