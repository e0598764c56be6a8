//! The walker: the pure machine that decides what a graph run does next.
//!
//! **Owns** a copy of the run's record, which it advances by the very events it hands out. **Never** acts, waits or
//! reads a clock: the driver (`ryed::graph`) commits the events, carries out the [`Call`] and tells the outcome.
//!
//! ```text
//!          next(now)                       conclude(now, answer)
//! driver ───────────► Move::Call ─effect─► ───────────────────────► events ─┐
//!    ▲      │                                                              │ committed with the
//!    │      ├───────► Move::Note  (pure steps; ask again)                  │ events of the next move
//!    │      └───────► Move::End   (the terminal event is among the events) │
//!    └─────────────────────────────────────────────────────────────────────┘
//! ```
//!
//! **Order.** Every attempted node costs a step, a repeated attempt does not. Cancellation and the step limit are
//! looked at before each node. A walker made from a record with a step in flight repeats that step first, with the
//! same `_now` and the same idempotency key. **Failure.** A template that cannot be evaluated is the failure of its
//! node, so `on_error` applies to it as to any other.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::capability::Primary;
use crate::clock::Timestamp;
use crate::definition::{Action, DEFAULT_MAX_STEPS, Edge, Graph, Next, Node, OnError, Work};
use crate::error::chain;
use crate::expr::{self, Names};
use crate::id::ItemRef;
use crate::model::{
    Activity, Event, Failure, Object, Phase, Run, Status, StepInFlight, StepStatus,
};
use crate::seal::sha256_hex;

/// Steps without an effect that are walked before the driver is asked whether to go on.
const NOTE_STEPS: usize = 64;

/// An action to carry out.
#[derive(Debug, Clone, PartialEq)]
pub struct Call {
    /// Number of the step.
    pub step: u32,
    /// The node.
    pub node: String,
    /// Try of this step, from 1.
    pub attempt: u32,
    /// What is done.
    pub primary: Primary,
    /// To what.
    pub item: ItemRef,
    /// With which parameters; keys whose value is null are gone.
    pub params: Object,
    /// The same over crashes and repeats of this step.
    pub key: String,
}

/// What an action came to.
#[derive(Debug, Clone, PartialEq)]
pub struct Answer {
    /// The unwrapped result: what `${result…}` sees.
    pub result: Value,
    /// Why it failed, if it did.
    pub failure: Option<Failure>,
}

/// What the driver is to do.
#[derive(Debug, Clone, PartialEq)]
pub enum Move {
    /// Write these down and ask again.
    Note(Vec<Event>),
    /// Write these down, make them durable, carry out the call, and [`Walker::conclude`].
    Call(Vec<Event>, Box<Call>),
    /// Write these down; the run is over.
    End(Vec<Event>),
}

/// One graph run being walked.
#[derive(Debug)]
pub struct Walker {
    graph: Arc<Graph>,
    run: Run,
    notes: Vec<String>,
}

/// Where a node's templates may look.
struct View<'a> {
    run: &'a Run,
    result: Option<&'a Value>,
    now: Value,
    epoch_ms: Value,
}

impl<'a> View<'a> {
    fn new(run: &'a Run, result: Option<&'a Value>, now: Timestamp) -> Self {
        Self {
            run,
            result,
            now: json!(now.to_string()),
            epoch_ms: json!(now.ms()),
        }
    }

    fn names(&self) -> Names<'_> {
        let state = &self.run.progress.state;
        let mut names = vec![
            ("state", state),
            ("_now", &self.now),
            ("_timestamp", &self.epoch_ms),
        ];
        names.extend(state.get("inputs").map(|inputs| ("inputs", inputs)));
        names.extend(self.result.map(|result| ("result", result)));
        Names::new(names)
    }
}

impl Walker {
    /// A walker for `run`, which may be fresh or taken up after a restart.
    pub fn new(graph: Arc<Graph>, run: Run) -> Self {
        Self {
            graph,
            run,
            notes: Vec::new(),
        }
    }

    /// The record as this walker sees it.
    pub fn run(&self) -> &Run {
        &self.run
    }

    /// Things the author of the graph should know (values resolved to null and the like), since the last call.
    pub fn take_notes(&mut self) -> Vec<String> {
        std::mem::take(&mut self.notes)
    }

    /// Takes in an event that was committed by somebody else: the start of the run, a request to cancel it.
    pub fn observe(&mut self, at: Timestamp, event: &Event) -> Result<(), crate::model::Illegal> {
        self.run.apply(at, event)
    }

    /// The next move.
    pub fn next(&mut self, now: Timestamp) -> Move {
        let mut events = Vec::new();
        loop {
            let Phase::Running { at } = &self.run.phase else {
                return Move::End(events);
            };
            match at.clone() {
                Activity::Idle => self.begin(now, &mut events),
                Activity::InStep(step) => {
                    if let Some(end) = self.refused(now) {
                        return self.end(now, events, end);
                    }
                    match self.repeat(now, &step, &mut events) {
                        Ok(call) => return Move::Call(events, Box::new(call)),
                        Err(failure) => self.fail(now, failure, None, &mut events),
                    }
                }
                Activity::Before { node } => {
                    if let Some(end) = self.refused(now) {
                        return self.end(now, events, end);
                    }
                    if let Some(call) = self.enter(now, &node, &mut events) {
                        return Move::Call(events, Box::new(call));
                    }
                }
                Activity::Leaving => {
                    let end = self.completed(now);
                    return self.end(now, events, end);
                }
            }
            if events.len() >= NOTE_STEPS {
                return Move::Note(events);
            }
        }
    }

    /// Takes in what the call of the step in flight came to. The events belong into one commit with the next move's.
    pub fn conclude(&mut self, now: Timestamp, answer: &Answer) -> Vec<Event> {
        let mut events = Vec::new();
        match &answer.failure {
            Some(failure) => self.fail(now, failure.clone(), Some(&answer.result), &mut events),
            None => self.succeed(now, &answer.result, &mut events),
        }
        events
    }

    fn begin(&mut self, now: Timestamp, events: &mut Vec<Event>) {
        let event = Event::GraphStarted {
            graph_id: self.run.birth.item.id.to_string(),
            graph_run_id: self.run.id.clone(),
            start_node: self.graph.start.clone(),
            state: self.graph.state.clone(),
        };
        self.record(now, event, events);
    }

    /// The end that stands before any further node, if there is one.
    fn refused(&self, now: Timestamp) -> Option<Event> {
        let (steps, elapsed_ms) = (self.run.progress.steps, self.elapsed(now));
        if let Some(cause) = &self.run.cancel {
            return Some(Event::GraphCancelled {
                cause: cause.clone(),
                steps,
                elapsed_ms,
            });
        }
        let max = self
            .run
            .birth
            .limits
            .steps
            .or(self.graph.max_steps)
            .unwrap_or(DEFAULT_MAX_STEPS);
        let repeats = matches!(
            &self.run.phase,
            Phase::Running {
                at: Activity::InStep(_)
            }
        );
        (steps >= max && !repeats).then(|| {
            let text = format!(
                "the graph took {steps} steps, its limit (max_steps {max}); raise it in the graph or by `--limit steps=N`"
            );
            Event::GraphError { error: Failure::permanent("max_steps_exceeded", text), steps, elapsed_ms }
        })
    }

    /// Attempts `name`: an action becomes a call, anything else is walked on the spot.
    fn enter(&mut self, now: Timestamp, name: &str, events: &mut Vec<Event>) -> Option<Call> {
        let graph = Arc::clone(&self.graph);
        let Some(node) = graph.nodes.get(name) else {
            let failure =
                Failure::permanent("node_not_found", format!("the graph has no node `{name}`"));
            let event = self.failed_run(now, failure.at(name));
            self.record(now, event, events);
            return None;
        };
        match &node.work {
            Work::Action(action) => {
                let step = StepInFlight {
                    step: self.run.progress.steps + 1,
                    node: name.to_owned(),
                    visit: self.visits(name),
                    attempt: 1,
                    now,
                    process: None,
                };
                match self.call(now, node, action, &step, events) {
                    Ok(call) => return Some(call),
                    Err(failure) => self.fail(now, failure, None, events),
                }
            }
            Work::Foreach(_) => {
                let failure = Failure::permanent("not_supported", "foreach is not supported yet");
                self.fail(now, failure, None, events);
            }
            Work::Gate => self.pass(now, node, events),
            Work::Return { output } => self.leave(now, node, output.as_ref(), events),
        }
        None
    }

    /// Repeats the step that was in flight when the daemon went down.
    fn repeat(
        &mut self,
        now: Timestamp,
        was: &StepInFlight,
        events: &mut Vec<Event>,
    ) -> Result<Call, Failure> {
        let graph = Arc::clone(&self.graph);
        let node = graph.nodes.get(&was.node);
        let Some((node, Work::Action(action))) = node.map(|node| (node, &node.work)) else {
            return Err(Failure::permanent(
                "node_not_found",
                format!("the graph has no action `{}`", was.node),
            ));
        };
        let again = StepInFlight {
            attempt: was.attempt + 1,
            process: None,
            ..was.clone()
        };
        self.call(now, node, action, &again, events)
    }

    fn call(
        &mut self,
        now: Timestamp,
        node: &Node,
        action: &Action,
        step: &StepInFlight,
        events: &mut Vec<Event>,
    ) -> Result<Call, Failure> {
        let (item, params) = self.resolve(action, step.now)?;
        let key = idempotency_key(self.run.birth.chain_root.as_str(), &step.node, step.visit);
        let started = Event::StepStarted {
            step: step.step,
            node: step.node.clone(),
            visit: step.visit,
            attempt: step.attempt,
            action_id: item.to_string(),
            effect: node.effect,
            key: key.clone(),
            now: step.now,
        };
        self.record(now, started, events);
        Ok(Call {
            step: step.step,
            node: step.node.clone(),
            attempt: step.attempt,
            primary: action.primary,
            item,
            params,
            key,
        })
    }

    /// Evaluates an action's templates.
    fn resolve(&mut self, action: &Action, now: Timestamp) -> Result<(ItemRef, Object), Failure> {
        let view = View::new(&self.run, None, now);
        let names = view.names();
        let broken = |error: &expr::Error| Failure::permanent("interpolation_failed", chain(error));
        let id = expr::interpolate(&Value::String(action.id.clone()), &names, &mut self.notes)
            .map_err(|e| broken(&e))?;
        let params =
            expr::interpolate(&action.params, &names, &mut self.notes).map_err(|e| broken(&e))?;
        let Value::String(id) = id else {
            let text = format!(
                "item_id `{}` resolved to {id}, which is not an item id",
                action.id
            );
            return Err(Failure::permanent("invalid_item_id", text));
        };
        let item = ItemRef::parse(&id, action.kind)
            .map_err(|error| Failure::permanent("invalid_item_id", chain(&error)))?;
        let Value::Object(params) = expr::strip_nulls(params) else {
            let text = "params did not resolve to a map";
            return Err(Failure::permanent("invalid_params", text));
        };
        Ok((item, params))
    }

    fn succeed(&mut self, now: Timestamp, result: &Value, events: &mut Vec<Event>) {
        let graph = Arc::clone(&self.graph);
        let Some((step, node)) = self.in_flight(&graph) else {
            return;
        };
        let evaluated = self
            .assign(node, Some(result), step.now)
            .map(|assigned| (assigned, self.edge(node, Some(result), step.now)));
        match evaluated {
            Ok((assigned, next_node)) => {
                let done = Self::done(now, &step, StepStatus::Ok, assigned, next_node);
                self.record(now, done, events);
            }
            Err(failure) => self.fail(now, failure, Some(result), events),
        }
    }

    /// A gate: assign, then choose an edge.
    fn pass(&mut self, now: Timestamp, node: &Node, events: &mut Vec<Event>) {
        let step = self.pure_step(node, now);
        match self.assign(node, None, now) {
            Ok(assigned) => {
                let next_node = self.edge(node, None, now);
                let done = Self::done(now, &step, StepStatus::Gate, assigned, next_node);
                self.record(now, done, events);
            }
            Err(failure) => self.fail(now, failure, None, events),
        }
    }

    fn leave(
        &mut self,
        now: Timestamp,
        node: &Node,
        template: Option<&Value>,
        events: &mut Vec<Event>,
    ) {
        let step = self.pure_step(node, now);
        let view = View::new(&self.run, None, now);
        let output = template
            .map(|template| expr::interpolate(template, &view.names(), &mut self.notes))
            .transpose()
            .map_err(|error| Failure::permanent("interpolation_failed", chain(&error)));
        match output {
            Ok(output) => {
                let mut done = Self::done(now, &step, StepStatus::Return, Object::new(), None);
                if let Event::StepCompleted { output: slot, .. } = &mut done {
                    *slot = Some(output.unwrap_or_else(|| json!({})));
                }
                self.record(now, done, events);
            }
            Err(failure) => self.fail(now, failure, None, events),
        }
    }

    /// The failure of the node at hand: its error edge, else the graph's policy.
    fn fail(
        &mut self,
        now: Timestamp,
        failure: Failure,
        result: Option<&Value>,
        events: &mut Vec<Event>,
    ) {
        let graph = Arc::clone(&self.graph);
        let Some((step, node)) = self.at_hand(&graph, now) else {
            return;
        };
        let failure = failure.at(&node.name);
        let last_error = json!({"node": node.name, "error": failure.message});
        self.run.progress.set("_last_error", last_error.clone());
        let (next_node, suppressed) = match (&node.on_error, graph.on_error) {
            (Some(recovery), _) => (Some(recovery.clone()), false),
            (None, OnError::Fail) => (None, false),
            (None, OnError::Continue) => (self.edge(node, result, step.now), true),
        };
        let ends = next_node.is_none() && !suppressed;
        let assigned = Object::from_iter([("_last_error".to_owned(), last_error)]);
        let mut done = Self::done(now, &step, StepStatus::Error, assigned, next_node);
        if let Event::StepCompleted {
            error,
            suppressed: slot,
            ..
        } = &mut done
        {
            *error = Some(failure.clone());
            *slot = suppressed;
        }
        self.record(now, done, events);
        if ends {
            let event = self.failed_run(now, failure);
            self.record(now, event, events);
        }
    }

    /// Evaluates `assign` in written order, each line seeing the ones before it.
    fn assign(
        &mut self,
        node: &Node,
        result: Option<&Value>,
        now: Timestamp,
    ) -> Result<Object, Failure> {
        let mut assigned = Object::new();
        let mut undo = Vec::new();
        for (key, template) in &node.assign {
            let value = {
                let view = View::new(&self.run, result, now);
                expr::interpolate(template, &view.names(), &mut self.notes)
            };
            match value {
                Ok(value) => {
                    undo.push((key, self.run.progress.state.get(key).cloned()));
                    self.run.progress.set(key, value.clone());
                    assigned.insert(key.clone(), value);
                }
                Err(error) => {
                    self.restore(undo);
                    return Err(Failure::permanent("interpolation_failed", chain(&error)));
                }
            }
        }
        Ok(assigned)
    }

    fn restore(&mut self, undo: Vec<(&String, Option<Value>)>) {
        let Value::Object(state) = &mut self.run.progress.state else {
            return;
        };
        for (key, old) in undo.into_iter().rev() {
            match old {
                Some(old) => drop(state.insert(key.clone(), old)),
                None => drop(state.shift_remove(key)),
            }
        }
    }

    /// The node that follows: the first edge whose condition holds; none is an implicit return.
    fn edge(&mut self, node: &Node, result: Option<&Value>, now: Timestamp) -> Option<String> {
        let nothing = json!({});
        let view = View::new(&self.run, Some(result.unwrap_or(&nothing)), now);
        let names = view.names();
        let notes = &mut self.notes;
        match &node.next {
            Next::End => None,
            Next::Always(to) => Some(to.clone()),
            Next::Edges(edges) => edges
                .iter()
                .find(|Edge { when, .. }| {
                    when.as_ref().is_none_or(|when| when.holds(&names, notes))
                })
                .map(|edge| edge.to.clone()),
        }
    }

    fn completed(&self, now: Timestamp) -> Event {
        let progress = &self.run.progress;
        Event::GraphCompleted {
            status: if progress.suppressed.is_empty() {
                Status::Completed
            } else {
                Status::CompletedWithErrors
            },
            steps: progress.steps,
            elapsed_ms: self.elapsed(now),
            output: progress.output.clone().unwrap_or_else(|| json!({})),
        }
    }

    fn failed_run(&self, now: Timestamp, error: Failure) -> Event {
        Event::GraphError {
            error,
            steps: self.run.progress.steps,
            elapsed_ms: self.elapsed(now),
        }
    }

    fn done(
        now: Timestamp,
        step: &StepInFlight,
        status: StepStatus,
        assigned: Object,
        next_node: Option<String>,
    ) -> Event {
        Event::StepCompleted {
            step: step.step,
            node: step.node.clone(),
            status,
            elapsed_ms: now.ms_since(step.now),
            next_node,
            assigned,
            error: None,
            suppressed: false,
            output: None,
        }
    }

    fn pure_step(&self, node: &Node, now: Timestamp) -> StepInFlight {
        StepInFlight {
            step: self.run.progress.steps + 1,
            node: node.name.clone(),
            visit: self.visits(&node.name),
            attempt: 1,
            now,
            process: None,
        }
    }

    fn in_flight<'g>(&self, graph: &'g Graph) -> Option<(StepInFlight, &'g Node)> {
        let Phase::Running {
            at: Activity::InStep(step),
        } = &self.run.phase
        else {
            return None;
        };
        graph.nodes.get(&step.node).map(|node| (step.clone(), node))
    }

    /// The step in flight, or the node about to be attempted.
    fn at_hand<'g>(&self, graph: &'g Graph, now: Timestamp) -> Option<(StepInFlight, &'g Node)> {
        if let Phase::Running {
            at: Activity::Before { node },
        } = &self.run.phase
        {
            let node = graph.nodes.get(node)?;
            return Some((self.pure_step(node, now), node));
        }
        self.in_flight(graph)
    }

    fn visits(&self, node: &str) -> u32 {
        self.run.progress.visits.get(node).copied().unwrap_or(0)
    }

    fn elapsed(&self, now: Timestamp) -> u64 {
        now.ms_since(self.run.created_at)
    }

    fn end(&mut self, now: Timestamp, mut events: Vec<Event>, end: Event) -> Move {
        self.record(now, end, &mut events);
        Move::End(events)
    }

    /// Advances the walker's own record by `event` and hands it out.
    fn record(&mut self, now: Timestamp, event: Event, events: &mut Vec<Event>) {
        self.run
            .apply(now, &event)
            .expect("the walker only emits events its own phase allows");
        events.push(event);
    }
}

/// `RYE_IDEMPOTENCY_KEY`: the same for every try of one visit of a node, over crashes and continuations (design §5).
pub fn idempotency_key(chain_root: &str, node: &str, visit: u32) -> String {
    let text = json!(["rye-idempotency-key/1", chain_root, node, visit, null, null]).to_string();
    sha256_hex(text.as_bytes())
}

#[cfg(test)]
mod tests;
