//! The only transition of a thread's work.

use std::sync::Arc;

use serde_json::Value;

use super::WorkState;
use crate::clock::Timestamp;
use crate::conversation::{Block, Digest, Message, Source};
use crate::id::RunId;
use crate::model::attempt::{Attempt, AttemptId, Slot};
use crate::model::event::{
    CognitionOut, ErrorClassified, Event, PromptComposed, StepStart, ThreadCancelled,
    ThreadCompleted, ThreadError, ThreadEvent, ToolCallResult, ToolCallStart, TurnWaiting,
};
use crate::model::life::Outcome;
use crate::model::limits::Raised;
use crate::model::spec::Spec;
use crate::model::suspension::Suspension;
use crate::model::thread::{
    Answered, At, CallAt, Class, Context, DeliveredText, Failed, MOST_RESULT_CHARS, NextTurn,
    ThreadLimits, ThreadState, ToolCall, Turn, TurnWait,
};

/// Shorter waits are not shown, in milliseconds.
const SHORT_WAIT_MS: u64 = 1000;

impl Turn {
    /// Enters the calls of a message, in its order; calls that were known before keep their positions.
    fn enter_calls(&mut self, message: &Message) {
        let mut known = std::mem::take(&mut self.calls);
        let mut next = known
            .iter()
            .map(|call| call.position + 1)
            .max()
            .unwrap_or(0);
        for block in message.blocks() {
            let Block::Call { id, name, input } = block else {
                continue;
            };
            if let Some(place) = known.iter().position(|call| call.id == *id) {
                self.calls.push(known.remove(place));
                continue;
            }
            self.calls.push(ToolCall {
                position: next,
                id: id.clone(),
                name: name.clone(),
                input: Arc::new(input.clone()),
                at: CallAt::Ready,
            });
            next += 1;
        }
    }

    /// Starts a call, or starts it again; `false` if it has ended.
    fn start_call(&mut self, now: Timestamp, started: &ToolCallStart) -> bool {
        let id = AttemptId {
            step: self.number,
            slot: Slot::Part(started.position),
            number: started.attempt,
        };
        let attempt = Attempt {
            key: started.key.as_str().into(),
            child: started.child.clone(),
            ..Attempt::new(id, started.effect, now)
        };
        let known = self.call(started.position);
        let at = CallAt::Running {
            attempt: attempt.repeating(known.and_then(ToolCall::attempt)),
            undeclared: started.undeclared,
        };
        if let Some(call) = self.call_mut(started.position) {
            if matches!(call.at, CallAt::Done(_)) || call.id != started.call_id {
                return false;
            }
            call.at = at;
            return true;
        }
        if self.said.is_some() {
            return false;
        }
        self.parts.extend(started.parts.iter().cloned());
        self.calls.push(ToolCall {
            position: started.position,
            id: started.call_id.clone(),
            name: started.tool.clone(),
            input: Arc::clone(&started.input),
            at,
        });
        true
    }
}

impl WorkState for ThreadState {
    fn attempts(&self) -> Box<dyn Iterator<Item = &Attempt> + '_> {
        let calls = self.turn().into_iter().flat_map(|turn| &turn.calls);
        Box::new(calls.filter_map(ToolCall::attempt))
    }

    fn attempt_mut(&mut self, step: u32, slot: Slot) -> Option<&mut Attempt> {
        let Slot::Part(position) = slot else {
            return None;
        };
        let turn = self.turn_mut().filter(|turn| turn.number == step)?;
        match &mut turn.call_mut(position)?.at {
            CallAt::Running { attempt, .. } => Some(attempt),
            CallAt::Ready | CallAt::Done(_) => None,
        }
    }

    fn child(&self, slot: Slot) -> Option<&RunId> {
        self.attempts()
            .find(|attempt| attempt.id.slot == slot)
            .and_then(|attempt| attempt.child.as_ref())
    }

    fn location<'a>(&'a self, spec: &'a Spec) -> Option<&'a str> {
        self.turn().map(|_| spec.item.id.as_str())
    }

    fn step(&self) -> Option<u32> {
        self.turn().map(|turn| turn.number)
    }

    fn ending(&self, outcome: Outcome, elapsed_ms: u64) -> Option<Event> {
        Some(match outcome {
            Outcome::Completed { output } | Outcome::CompletedWithErrors { output } => {
                ThreadCompleted { output, elapsed_ms }.into()
            }
            Outcome::Error { error } => ThreadError { error, elapsed_ms }.into(),
            Outcome::Cancelled { cause } => ThreadCancelled { cause, elapsed_ms }.into(),
            Outcome::Killed { .. } => return None,
        })
    }

    fn result(&self) -> Option<&Arc<Value>> {
        self.result.as_ref()
    }

    /// The time of a suspension does not count.
    fn suspend(&mut self, at: Timestamp, _why: &Suspension) {
        self.count_time(at);
        if let At::Before(next) = &mut self.at {
            next.waiting = None;
        }
    }

    /// Resuming a thread after a failure requests another try.
    fn resume(&mut self, at: Timestamp, raised: &Raised) {
        self.limits.raise(raised);
        self.escalated = None;
        if let Some(turn) = self.turn_mut() {
            turn.since = at;
        }
        if let At::Failed(failed) = &self.at {
            let next = NextTurn {
                retries: 0,
                ..failed.next.clone()
            };
            self.at = At::Before(Box::new(next));
        }
    }
}

impl ThreadState {
    /// Returns the initial state of a thread of `spec`.
    pub(super) fn create(spec: &Spec) -> Self {
        Self {
            at: At::Composing,
            limits: ThreadLimits {
                turns: spec.limits.turns,
                tokens: spec.limits.tokens,
                duration_ms: spec.limits.duration_ms,
            },
            ..spec.carried().cloned().unwrap_or_default()
        }
    }

    /// Starts the thread: at its prompt, or at the state of the thread that it continues.
    fn start(&mut self, at: Timestamp, spec: &Spec) -> bool {
        if self.at != At::Composing {
            return false;
        }
        if let Some(carried) = spec.carried() {
            self.at = carried.at.clone();
        }
        if let Some(turn) = self.turn_mut() {
            turn.since = at;
        }
        true
    }

    /// The only transition of a thread's work. Returns `false` and changes nothing if the event is impossible in this
    /// state.
    pub(super) fn apply(&mut self, at: Timestamp, spec: &Spec, event: &ThreadEvent) -> bool {
        match event {
            ThreadEvent::ThreadStarted(_) => self.start(at, spec),
            ThreadEvent::SystemPrompt(_) => self.at == At::Composing,
            ThreadEvent::PromptComposed(composed) => self.compose(composed),
            ThreadEvent::CognitionIn(received) => self.deliver(received.source, &received.text),
            ThreadEvent::MessageQueued(message) => match &message.lines {
                Some(lines) => self.queue.push_lines(lines),
                None => self.queue.push(&message.text),
            },
            ThreadEvent::StepStart(start) => self.begin(start),
            ThreadEvent::CognitionReasoning(_) | ThreadEvent::RetrySucceeded(_) => {
                self.turn().is_some()
            }
            ThreadEvent::CognitionOut(said) => self.complete_message(said),
            ThreadEvent::ToolCallStart(started) => self
                .turn_mut()
                .is_some_and(|turn| turn.start_call(at, started)),
            ThreadEvent::ToolCallResult(result) => self.answer(result),
            ThreadEvent::DirectiveReturn(returned) => {
                if self.turn().is_none() || self.returned.is_some() {
                    return false;
                }
                self.returned = Some(Arc::clone(returned));
                true
            }
            ThreadEvent::StepFinish(finish) => self.finish(at, &finish.head),
            ThreadEvent::ErrorClassified(classified) => self.fail(at, classified),
            ThreadEvent::LimitEscalationRequested(requested) => {
                let is_ahead = matches!(self.at, At::Before(_));
                if is_ahead {
                    self.escalated = Some(requested.proposed_max.as_str().into());
                }
                is_ahead
            }
            ThreadEvent::TurnRetryScheduled(scheduled) => self.back_off(scheduled.due),
            ThreadEvent::TurnWaiting(waiting) => self.delay(waiting),
            ThreadEvent::ContextReseeded(reseeded) => self.reseed(&reseeded.root, reseeded.bytes),
            // A message that arrives before the end is delivered, unless the outputs are there already.
            ThreadEvent::ThreadCompleted(_)
                if !self.queue.is_empty() && self.returned.is_none() =>
            {
                false
            }
            ThreadEvent::ThreadCompleted(completed) => {
                self.result = Some(Arc::clone(&completed.output));
                self.unfinished = None;
                true
            }
            ThreadEvent::ThreadError(_) => {
                let returned = self.returned.as_ref();
                self.result = returned.map(|returned| Arc::new(returned.outputs.clone().into()));
                true
            }
            ThreadEvent::ThreadCancelled(_) => true,
        }
    }

    fn compose(&mut self, composed: &PromptComposed) -> bool {
        if self.at != At::Composing {
            return false;
        }
        (self.root, self.head) = (Some(composed.head), Some(composed.head));
        self.context.new_bytes = composed.bytes;
        self.at = At::Before(Box::new(NextTurn::turn(1)));
        true
    }

    fn back_off(&mut self, due: Timestamp) -> bool {
        let At::Failed(failed) = &mut self.at else {
            return false;
        };
        let is_long = failed.pause_ms >= SHORT_WAIT_MS;
        let next = NextTurn {
            due: Some(due),
            waiting: is_long.then_some(TurnWait::for_provider(Some(due))),
            ..failed.next.clone()
        };
        self.at = At::Before(Box::new(next));
        true
    }

    fn delay(&mut self, delayed: &TurnWaiting) -> bool {
        let At::Before(next) = &mut self.at else {
            return false;
        };
        let is_next = (next.turn, next.attempt) == (delayed.turn, delayed.attempt);
        if is_next {
            next.waiting = Some(delayed.waiting);
        }
        is_next
    }

    /// Adds a text that the model receives before the next turn. Texts of the prompt come with the prompt.
    fn deliver(&mut self, source: Source, text: &str) -> bool {
        match &mut self.at {
            At::Composing => source != Source::Message,
            At::Before(before) => {
                if source == Source::Message && !self.queue.take(text) {
                    return false;
                }
                match source {
                    Source::Nudge => {
                        self.nudges += 1;
                        self.unfinished = None;
                    }
                    Source::Continuation => self.lengths += 1,
                    Source::Directive
                    | Source::Message
                    | Source::Hook
                    | Source::Summary
                    | Source::Tools => {}
                }
                self.context.add(text.len());
                let text = text.to_owned();
                before.texts.push(DeliveredText { source, text });
                true
            }
            At::Calling(_) | At::Acting(_) | At::Failed(_) => false,
        }
    }

    /// Begins a turn: the model is called after all texts were delivered.
    fn begin(&mut self, start: &StepStart) -> bool {
        let At::Before(before) = &mut self.at else {
            return false;
        };
        let is_next = (before.turn, before.attempt) == (start.turn, start.attempt);
        if !is_next || !self.queue.is_empty() {
            return false;
        }
        let turn = Turn {
            number: start.turn,
            attempt: start.attempt,
            retries: before.retries,
            now: start.now,
            since: start.now,
            texts: std::mem::take(&mut before.texts),
            input: start.input_tokens,
            max_output: start.max_output,
            parts: Vec::new(),
            said: None,
            calls: Vec::new(),
            is_cut: false,
        };
        self.at = At::Calling(Box::new(turn));
        true
    }

    fn complete_message(&mut self, said: &CognitionOut) -> bool {
        let message = &said.message;
        let At::Calling(turn) = &mut self.at else {
            return false;
        };
        if turn.number != said.turn {
            return false;
        }
        turn.enter_calls(message);
        turn.parts = Vec::new();
        turn.said = Some(Arc::clone(message));
        Arc::make_mut(&mut self.recent).record_text(&said.text);
        self.used.turns += 1;
        if let Some(usage) = &said.usage {
            let counted = [usage.input, usage.cache_write, usage.output];
            self.used.count(&counted);
            self.context = Context {
                reported: counted
                    .iter()
                    .fold(usage.cache_read, |sum, part| sum.saturating_add(*part)),
                new_bytes: 0,
            };
        } else {
            // Usage was not reported: a token is no shorter than a byte.
            self.context.add(message.bytes());
            let said = u64::try_from(message.bytes()).unwrap_or(u64::MAX);
            self.used.count(&[turn.input, said]);
        }
        let turn = turn.clone();
        self.at = At::Acting(turn);
        true
    }

    fn answer(&mut self, result: &ToolCallResult) -> bool {
        let turn = self.turn_mut();
        let call = turn.and_then(|turn| turn.call_mut(result.position));
        let Some(call) = call.filter(|call| !matches!(call.at, CallAt::Done(_))) else {
            return false;
        };
        call.at = CallAt::Done(Arc::new(Answered {
            content: result.output.clone(),
            is_error: result.is_error,
        }));
        let name = call.name.clone();
        Arc::make_mut(&mut self.recent).answer(&name, &result.output, result.is_error);
        self.context.add(result.output.len());
        if let Some(name) = &result.artifact {
            self.artifacts.add(name);
        }
        true
    }

    fn finish(&mut self, at: Timestamp, head: &Digest) -> bool {
        let At::Acting(turn) = &self.at else {
            return false;
        };
        let is_over = |call: &ToolCall| matches!(call.at, CallAt::Done(_));
        if !turn.calls.iter().all(is_over) {
            return false;
        }
        let next = NextTurn::turn(turn.number + 1);
        if self.returned.is_some() {
            // One character more than is reported shows that the text was cut.
            let text = self
                .whole_text(turn)
                .chars()
                .take(MOST_RESULT_CHARS + 1)
                .collect::<String>();
            self.closing_text = (!text.trim().is_empty()).then(|| text.into());
        }
        self.is_cut_short = turn.is_unfinished();
        self.unfinished = turn.is_unfinished().then(|| self.whole_text(turn).into());
        let mut repeated = self.repeated.message();
        for call in &turn.calls {
            repeated.count(&call.name, &call.input);
            if let CallAt::Done(answered) = &call.at
                && !answered.is_error
            {
                repeated.add_result(&answered.content);
            }
        }
        self.repeated = repeated.end();
        self.count_time(at);
        self.head = Some(*head);
        self.at = At::Before(Box::new(next));
        true
    }

    /// Restates the conversation; the texts that the model receives first in the turn follow it.
    fn reseed(&mut self, root: &Digest, bytes: u64) -> bool {
        let At::Failed(failed) = &self.at else {
            return false;
        };
        if !self.may_be_reseeded() {
            return false;
        }
        let next = failed.next.clone();
        self.context = Context {
            reported: 0,
            new_bytes: bytes,
        };
        for told in &next.texts {
            self.context.add(told.text.len());
        }
        (self.root, self.head) = (Some(*root), Some(*root));
        self.reseeded = true;
        self.at = At::Before(Box::new(next));
        true
    }

    fn fail(&mut self, at: Timestamp, classified: &ErrorClassified) -> bool {
        let At::Calling(turn) = &self.at else {
            return false;
        };
        if !turn.calls.is_empty() {
            return false;
        }
        let failed = Failed {
            next: turn.again(classified.classification != Class::Interrupted),
            failure: classified.error.clone(),
            class: classified.classification,
            pause_ms: classified.pause_ms,
        };
        Arc::make_mut(&mut self.recent).fail(&classified.error);
        self.count_time(at);
        self.at = At::Failed(Box::new(failed));
        true
    }
}
