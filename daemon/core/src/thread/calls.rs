//! The tool calls of a message: their start, and the answers that the model receives.

use std::sync::Arc;

use crate::capability::Primary;
use crate::clock::{Tick, Timestamp};
use crate::conversation::Stop;
use crate::directive::CallStart;
use crate::id::{ItemRef, RunId};
use crate::machine::{Call, CallOutcome, Move, asks, expired, idempotency_key};
use crate::model::ThreadEvent;
use crate::model::event::ToolCallResult;
use crate::model::event::ToolCallStart;
use crate::model::thread::{At, CallAt, MOST_ARTIFACTS, ReturnStatus, ToolCall, Turn};
use crate::model::{Attempt, Effect, Event, Failure, Object, Slot, SuspendReason, Suspension};

use super::contract::Target;
use super::live::ThreadMachine;
use super::query::ThreadQuery;
use super::results::{Artifact, once_more};

/// A call that may start.
#[derive(Debug, Clone)]
struct Candidate {
    position: u32,
    primary: Primary,
    item: ItemRef,
    params: Object,
}

/// A call of the current turn, with the facts that matter for the others.
struct Known<'a> {
    position: u32,
    name: &'a str,
    input: &'a Object,
    has_started: bool,
    is_over: bool,
    /// True if a child run carries it out, which is independent of all others.
    by_a_run: bool,
}

impl ThreadMachine {
    /// Handles a streaming answer: calls that are complete start meanwhile.
    pub(super) fn calling(&mut self, now: Tick, turn: &Turn) -> Move<ThreadQuery> {
        let Some(speaking) = &self.live.partial else {
            return Move::Note(self.take_up(now.at, turn));
        };
        let waits = self.contract().model.start == CallStart::Message;
        if waits || self.is_to_rest() || self.is_late() {
            return Move::Wait(Vec::new(), None);
        }
        let known = speaking.calls.iter().map(|asked| {
            let call = turn.call(asked.position);
            Known {
                position: asked.position,
                name: &asked.name,
                input: &asked.input,
                has_started: call.is_some(),
                is_over: call.is_some_and(|call| matches!(call.at, CallAt::Done(_))),
                by_a_run: call.is_some_and(is_by_a_run),
            }
        });
        let spec = &self.run.spec;
        let is_early = |primary, item: &ItemRef| {
            self.effect(item) != Some(Effect::AtMostOnce) && !asks(spec, primary, item)
        };
        match self.candidate(turn.number, known, is_early) {
            Some(candidate) => {
                let call = self.tool_call(now, turn, candidate, 1, None);
                Move::Call(Vec::new(), Box::new(call))
            }
            None => Move::Wait(Vec::new(), None),
        }
    }

    /// Handles a complete message until all of its calls are answered.
    pub(super) fn run_calls(&mut self, now: Tick, turn: &Turn) -> Move<ThreadQuery> {
        let events = self.answer_immediately(now.at, turn);
        if !events.is_empty() {
            return Move::Note(events);
        }
        if let Some(asked) = self.run.approvals.unanswered_in(turn.number) {
            let expired = expired(&asked.approval);
            return if self.is_busy() {
                Move::Wait(Vec::new(), None)
            } else {
                Move::End(self.fail(now.at, expired))
            };
        }
        if let Some(query) = self.to_read(turn) {
            return Move::Query(Vec::new(), Box::new(query));
        }
        if let Some(next) = self.take_up_calls(now, turn) {
            return next;
        }
        if !self.is_to_rest() {
            let known = turn.calls.iter().map(|call| Known {
                position: call.position,
                name: &call.name,
                input: &call.input,
                has_started: !matches!(call.at, CallAt::Ready),
                is_over: matches!(call.at, CallAt::Done(_)),
                by_a_run: is_by_a_run(call),
            });
            if let Some(candidate) = self.candidate(turn.number, known, |_, _| true) {
                let call = self.tool_call(now, turn, candidate, 1, None);
                return Move::Call(Vec::new(), Box::new(call));
            }
        }
        if self.is_busy() {
            return Move::Wait(Vec::new(), None);
        }
        if let Some(child) = self.live.waits_for.take() {
            return self.suspend(now.at, Suspension::for_child(child));
        }
        let uncertain = self.run.uncertain();
        if !uncertain.is_empty() {
            let why = Suspension {
                uncertain: uncertain.into_iter().map(|(name, _)| name).collect(),
                ..Suspension::new(SuspendReason::Uncertain)
            };
            return self.suspend(now.at, why);
        }
        if self.run.approvals.await_in(turn.number) {
            return self.suspend(now.at, Suspension::new(SuspendReason::Approval));
        }
        let is_over = turn
            .calls
            .iter()
            .all(|call| matches!(call.at, CallAt::Done(_)));
        match self.held.take() {
            Some(why) if !is_over => self.suspend(now.at, why),
            held => {
                self.held = held;
                self.close_turn(now.at, turn)
            }
        }
    }

    /// Returns for each call of the turn in how many messages in a row the model has made it.
    pub(super) fn repeats(&self, turn: &Turn) -> Vec<u32> {
        let mut repeated = self.state().repeated.message();
        let count = |call: &ToolCall| repeated.count(&call.name, &call.input);
        turn.calls.iter().map(count).collect()
    }

    /// True if a call with that count in a row is refused.
    fn is_repeated(&self, times: u32) -> bool {
        let most = self.terms.contract.repeated_calls;
        most > 0 && times >= most
    }

    /// True if the thread must be suspended before it begins anything more.
    const fn is_to_rest(&self) -> bool {
        self.held.is_some() || self.live.waits_for.is_some()
    }

    /// Returns the first call that may start. Calls of one item follow each other, unless the item is pure or a child
    /// run carries them out; all others run concurrently. A call that waits for an answer delays no other.
    fn candidate<'a>(
        &self,
        turn: u32,
        calls: impl Iterator<Item = Known<'a>>,
        may_start: impl Fn(Primary, &ItemRef) -> bool,
    ) -> Option<Candidate> {
        let most = self.contract().model.max_parallel;
        if self.live.running.len() >= usize::try_from(most).unwrap_or(usize::MAX) {
            return None;
        }
        let mut open: Vec<ItemRef> = Vec::new();
        let mut repeated = self.state().repeated.message();
        for call in calls {
            if self.is_repeated(repeated.count(call.name, call.input)) {
                continue;
            }
            let Some(candidate) = self.to_execute(call.position, call.name, call.input) else {
                continue;
            };
            let slot = Slot::Part(call.position);
            if call.is_over || self.run.approvals.awaits(turn, slot) {
                continue;
            }
            let item = &candidate.item;
            let is_pure = self.effect(item) == Some(Effect::Pure);
            let is_free = is_pure || !open.contains(item);
            if !call.has_started && is_free && may_start(candidate.primary, item) {
                return Some(candidate);
            }
            if !call.by_a_run {
                open.push(candidate.item);
            }
        }
        None
    }

    /// Returns the action of a call; `None` if it is answered without an action.
    fn to_execute(&self, position: u32, name: &str, input: &Object) -> Option<Candidate> {
        match self.contract().target(name, input) {
            Target::Execute {
                primary,
                item,
                params,
            } => Some(Candidate {
                position,
                primary,
                item,
                params,
            }),
            Target::Return | Target::Read(_) | Target::Refused { .. } => None,
        }
    }

    /// Returns the first requested part of a long result.
    fn to_read(&self, turn: &Turn) -> Option<ThreadQuery> {
        let mut ready = turn
            .calls
            .iter()
            .filter(|call| matches!(call.at, CallAt::Ready));
        ready.find_map(
            |call| match self.contract().target(&call.name, &call.input) {
                Target::Read(reading) => Some(ThreadQuery::Read(call.position, reading)),
                Target::Execute { .. } | Target::Return | Target::Refused { .. } => None,
            },
        )
    }

    /// Answers a read of a part of a long result.
    pub(super) fn have_read(
        &mut self,
        now: Timestamp,
        position: u32,
        found: Result<String, Failure>,
    ) -> Vec<Event> {
        let mut events = Vec::new();
        let call = self.state().turn().and_then(|turn| turn.call(position));
        let Some(id) = call.map(|call| call.id.clone()) else {
            return events;
        };
        match found {
            Ok(part) => self.answer(now, &mut events, &id, part, None),
            Err(failure) => self.refuse(now, &mut events, &id, &failure.code, &failure.message),
        }
        events
    }

    /// Makes the call of a tool, with the same key in every life of the daemon.
    fn tool_call(
        &self,
        now: Tick,
        turn: &Turn,
        candidate: Candidate,
        attempt: u32,
        attached: Option<RunId>,
    ) -> Call {
        let Candidate {
            position,
            primary,
            item,
            params,
        } = candidate;
        let scope = self.run.spec.effect_scope();
        let place = format!("turn/{}.{}", turn.number, turn.attempt);
        let declared = match primary {
            Primary::Execute => self.contract().effect(&item),
            // Reading changes nothing, and signing twice has the same result.
            Primary::Fetch | Primary::Sign => Some(Effect::Idempotent),
        };
        Call {
            primary,
            step: turn.number,
            node: item.id.as_str().to_owned(),
            attempt,
            key: idempotency_key(scope, &place, 0, Some(&position.into()), None),
            effect: declared.unwrap_or_default(),
            undeclared: declared.is_none(),
            attached,
            ..Call::new(Slot::Part(position), item, params, now.at)
        }
    }

    /// Makes another attempt of `call`, which was in flight as `before`: the effect known then still applies.
    pub(super) fn call_again(
        &self,
        now: Tick,
        turn: &Turn,
        call: &ToolCall,
        before: &Attempt,
        child: Option<RunId>,
    ) -> Option<Call> {
        let candidate = self.to_execute(call.position, &call.name, &call.input)?;
        Some(Call {
            effect: before.effect,
            undeclared: false,
            ..self.tool_call(now, turn, candidate, before.id.number + 1, child)
        })
    }

    /// Returns a call that the model has requested and that is not recorded yet, as the model is still streaming.
    fn unrecorded(&self, now: Tick, position: u32) -> Option<Call> {
        let turn = self.state().turn()?;
        if turn.call(position).is_some() {
            return None;
        }
        let mut asked = self.live.partial.iter().flat_map(|said| &said.calls);
        let asked = asked.find(|asked| asked.position == position)?;
        let candidate = self.to_execute(position, &asked.name, &asked.input)?;
        Some(self.tool_call(now, turn, candidate, 1, None))
    }

    pub(super) fn start_tool(
        &mut self,
        now: Tick,
        call: &Call,
        position: u32,
        child: Option<RunId>,
    ) -> Vec<Event> {
        let turn = self.state().turn().expect("a call starts within a turn");
        let asked = self
            .live
            .partial
            .iter()
            .flat_map(|speaking| &speaking.calls);
        let asked = asked.clone().find(|asked| asked.position == position);
        let known = turn.call(position);
        let (call_id, tool, input) = match (known, asked) {
            (Some(call), _) => (call.id.clone(), call.name.clone(), Arc::clone(&call.input)),
            (None, Some(asked)) => (
                asked.id.clone(),
                asked.name.clone(),
                Arc::clone(&asked.input),
            ),
            (None, None) => unreachable!("a call that starts was asked for"),
        };
        let unlogged = match (&self.live.partial, asked, &turn.said) {
            (Some(speaking), Some(asked), None) => {
                let logged = turn.parts.len().min(asked.parts);
                speaking.parts[logged..asked.parts].to_vec()
            }
            (_, _, _) => Vec::new(),
        };
        let started = ToolCallStart {
            turn: call.step,
            position,
            call_id,
            tool,
            item: call.item.to_string(),
            input,
            attempt: call.attempt,
            effect: call.effect,
            undeclared: child.is_none() && call.undeclared,
            key: call.key.clone(),
            child,
            parts: unlogged,
        };
        let mut events = Vec::new();
        self.record(
            now.at,
            &mut events,
            ThreadEvent::ToolCallStart(Box::new(started)),
        );
        self.live.running.insert(position, now.up);
        self.live.result_texts.insert(position, call.result_text);
        events
    }

    pub(super) fn conclude_tool(
        &mut self,
        now: Tick,
        position: u32,
        outcome: &CallOutcome,
    ) -> Vec<Event> {
        let mut events = Vec::new();
        // Refused while the model streams: the call is started first, for only a start records the parts up to it.
        if let Some(call) = self.unrecorded(now, position) {
            events = self.start_tool(now, &call, position, None);
        }
        let since = self.live.running.remove(&position);
        let duration = since.map(|since| now.up.since(since)).unwrap_or_default();
        let turn = self.state().turn();
        let call = turn.and_then(|turn| turn.call(position));
        let Some((turn, call)) = turn.zip(call) else {
            return events;
        };
        let text = self.live.result_texts.get(&position).copied();
        let shown = self
            .contract()
            .shown(turn, outcome, text.unwrap_or_default());
        let is_known = |artifact: &&Artifact| self.state().artifacts.holds(&artifact.name);
        let known = shown.artifact.as_ref().filter(is_known);
        let text = known.map_or(shown.text, once_more);
        let result = ToolCallResult {
            turn: turn.number,
            position,
            call_id: call.id.clone(),
            is_error: outcome.failure.is_some(),
            code: outcome.failure.as_ref().map(|failure| failure.code.clone()),
            artifact: shown.artifact.map(|artifact| artifact.name),
            output: text,
            duration_ms: u64::try_from(duration.as_millis()).unwrap_or(u64::MAX),
        };
        self.record(now.at, &mut events, result);
        events
    }

    /// Answers the calls that were cut off by the end of the thread that this one continues: none of them is carried
    /// out any more.
    fn close_cut(&mut self, now: Timestamp, events: &mut Vec<Event>, turn: &Turn) {
        for call in &turn.calls {
            let text = match &call.at {
                CallAt::Done(_) => continue,
                CallAt::Ready => {
                    "your work was ended before this call began; make it again if it is still needed".to_owned()
                }
                CallAt::Running { attempt, .. } => {
                    let by = attempt.child.as_ref();
                    let by = by.map_or_else(String::new, |run| format!(", which the run `{run}` carried out"));
                    format!(
                        "your work was ended during this call{by}; whether it took effect is unknown: check before you repeat it"
                    )
                }
            };
            self.refuse(now, events, &call.id, "interrupted", &text);
        }
    }

    /// Answers calls that need no action: those that cannot be carried out, and the return of the outputs.
    fn answer_immediately(&mut self, now: Timestamp, turn: &Turn) -> Vec<Event> {
        let mut events = Vec::new();
        if turn.is_cut {
            self.close_cut(now, &mut events, turn);
            return events;
        }
        let is_refusal = is_refusal(turn);
        let repeats = self.repeats(turn);
        let calls = turn.calls.iter().zip(&repeats);
        for (call, times) in calls.filter(|(call, _)| matches!(call.at, CallAt::Ready)) {
            if is_refusal {
                let text = "the model refused to answer, so its calls are not carried out";
                self.refuse(now, &mut events, &call.id, "refused", text);
                continue;
            }
            if self.is_repeated(*times) {
                let text = format!(
                    "you have made this very call {times} times in a row, and it is not carried out again; do something else"
                );
                self.refuse(now, &mut events, &call.id, "repeated_calls", &text);
                continue;
            }
            match self.contract().target(&call.name, &call.input) {
                Target::Execute { .. } if self.is_late() => {
                    let text = "the time of the thread was over before this call began";
                    self.refuse(now, &mut events, &call.id, "timeout", text);
                }
                Target::Execute { .. } => {}
                Target::Read(reading) if self.state().artifacts.holds(&reading.artifact) => {}
                Target::Read(_) => {
                    let text = format!(
                        "this thread got no result of that name, or {MOST_ARTIFACTS} others since"
                    );
                    self.refuse(now, &mut events, &call.id, "unknown_artifact", &text);
                }
                Target::Return => self.return_outputs(now, &mut events, &call.id, &call.input),
                Target::Refused { code, message } => {
                    self.refuse(now, &mut events, &call.id, code, &message);
                }
            }
        }
        events
    }

    fn return_outputs(
        &mut self,
        now: Timestamp,
        events: &mut Vec<Event>,
        id: &str,
        outputs: &Object,
    ) {
        let Some(returns) = &self.terms.returns else {
            return self.refuse(now, events, id, "unknown_tool", "nothing is to be returned");
        };
        if self.state().returned.is_some() {
            return self.refuse(
                now,
                events,
                id,
                "returned",
                "the outputs were returned already",
            );
        }
        match returns.check(outputs) {
            Err(problem) => self.refuse(now, events, id, "invalid_outputs", &problem),
            Ok(returned) => {
                let text = match returned.status {
                    ReturnStatus::Success => "the outputs are accepted",
                    ReturnStatus::Error => "the error is noted",
                };
                self.record(
                    now,
                    events,
                    ThreadEvent::DirectiveReturn(Arc::new(returned)),
                );
                self.answer(now, events, id, text.to_owned(), None);
            }
        }
    }

    /// Answers the call `id` with an error; it was not carried out.
    pub(super) fn refuse(
        &mut self,
        now: Timestamp,
        events: &mut Vec<Event>,
        id: &str,
        code: &str,
        problem: &str,
    ) {
        self.answer(now, events, id, problem.to_owned(), Some(code));
    }

    pub(super) fn answer(
        &mut self,
        now: Timestamp,
        events: &mut Vec<Event>,
        id: &str,
        output: String,
        error: Option<&str>,
    ) {
        let turn = self.state().turn();
        let called = turn.and_then(|turn| turn.calls.iter().find(|call| call.id == id));
        let Some((turn, call)) = turn.zip(called) else {
            return;
        };
        let result = ToolCallResult {
            turn: turn.number,
            position: call.position,
            call_id: id.to_owned(),
            output,
            is_error: error.is_some(),
            code: error.map(str::to_owned),
            artifact: None,
            duration_ms: 0,
        };
        self.record(now, events, result);
    }

    /// Returns the current turn when every call of it has ended.
    pub(super) fn acted(&self) -> Option<Box<Turn>> {
        match &self.state().at {
            At::Acting(turn) => Some(turn.clone()),
            At::Composing | At::Before(_) | At::Calling(_) | At::Failed(_) => None,
        }
    }
}

const fn is_by_a_run(call: &ToolCall) -> bool {
    match &call.at {
        CallAt::Running { attempt, .. } => attempt.child.is_some(),
        CallAt::Ready | CallAt::Done(_) => false,
    }
}

/// True if the model refused to answer.
pub(super) fn is_refusal(turn: &Turn) -> bool {
    turn.stop() == Some(Stop::Refusal)
}
