//! The only transition of a thread's work.

use std::sync::Arc;

use super::{
    Answered, At, Before, CallAt, Class, Context, Failed, Started, State, ThreadEvent, Told,
    ToolCall, Turn,
};
use crate::clock::Timestamp;
use crate::conversation::{Block, Digest, Message, Source, Stop};
use crate::model::{Attempt, AttemptId, Slot, Spec};

impl Turn {
    pub(super) fn call_mut(&mut self, position: u32) -> Option<&mut ToolCall> {
        self.calls.iter_mut().find(|call| call.position == position)
    }

    /// Why the model stopped; `None` if it has not, or was cut off.
    pub(crate) fn stop(&self) -> Option<Stop> {
        match self.said.as_deref() {
            Some(Message::Assistant { stop, .. }) => *stop,
            Some(Message::User { .. }) | None => None,
        }
    }

    /// Whether its message is a part of an answer that the next turn continues.
    fn is_unfinished(&self) -> bool {
        self.calls.is_empty() && matches!(self.stop(), Some(Stop::Length | Stop::Pause))
    }

    /// The turn as it would be tried again.
    pub(super) fn again(&self, failed: bool) -> Before {
        Before {
            turn: self.number,
            attempt: self.attempt + 1,
            retries: self.retries.saturating_add(u8::from(failed)),
            texts: self.texts.clone(),
            due: None,
        }
    }

    /// Takes in the calls of a message, which are in its order from then on; those that were known before keep their places.
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

    /// A call starts, or starts again; `false` if it has ended.
    fn start_call(&mut self, now: Timestamp, started: &Started) -> bool {
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

impl State {
    /// The only transition of a thread's work; `false` if it cannot happen here, and then nothing has changed.
    pub(in crate::model) fn apply(
        &mut self,
        at: Timestamp,
        spec: &Spec,
        event: &ThreadEvent,
    ) -> bool {
        match event {
            ThreadEvent::ThreadStarted { .. } => self.start(at, spec),
            ThreadEvent::SystemPrompt { .. } => self.at == At::Composing,
            ThreadEvent::PromptComposed { head, bytes, .. } => {
                if self.at != At::Composing {
                    return false;
                }
                (self.root, self.head) = (Some(*head), Some(*head));
                self.context.new_bytes = *bytes;
                self.at = At::Before(Box::new(Before::turn(1)));
                true
            }
            ThreadEvent::CognitionIn { source, text, .. } => self.tell(*source, text),
            ThreadEvent::MessageQueued { text, .. } => self.queue.push(text),
            ThreadEvent::StepStart { .. } => self.begin(event),
            ThreadEvent::CognitionReasoning { .. } | ThreadEvent::RetrySucceeded { .. } => {
                self.turn().is_some()
            }
            ThreadEvent::CognitionOut { .. } => self.say(event),
            ThreadEvent::ToolCallStart(started) => self
                .turn_mut()
                .is_some_and(|turn| turn.start_call(at, started)),
            ThreadEvent::ToolCallResult { .. } => self.answer(event),
            ThreadEvent::DirectiveReturn(returned) => {
                if self.turn().is_none() || self.returned.is_some() {
                    return false;
                }
                self.returned = Some(Arc::clone(returned));
                true
            }
            ThreadEvent::StepFinish { head, .. } => self.finish(at, head),
            ThreadEvent::ErrorClassified { .. } => self.fail(at, event),
            ThreadEvent::LimitEscalationRequested { proposed_max, .. } => {
                let is_ahead = matches!(self.at, At::Before(_));
                if is_ahead {
                    self.escalated = Some(proposed_max.as_str().into());
                }
                is_ahead
            }
            ThreadEvent::TurnRetryScheduled { due, .. } => {
                let At::Failed(failed) = &mut self.at else {
                    return false;
                };
                let next = Before {
                    due: Some(*due),
                    ..failed.next.clone()
                };
                self.at = At::Before(Box::new(next));
                true
            }
            ThreadEvent::ContextReseeded { root, bytes, .. } => self.reseed(root, *bytes),
            // Who says something before the end is heard, unless the outputs are there already.
            ThreadEvent::ThreadCompleted { .. }
                if !self.queue.is_empty() && self.returned.is_none() =>
            {
                false
            }
            ThreadEvent::ThreadCompleted { output, .. } => {
                self.result = Some(Arc::clone(output));
                self.unfinished = None;
                true
            }
            ThreadEvent::ThreadError { .. } => {
                let returned = self.returned.as_ref();
                self.result = returned.map(|returned| Arc::new(returned.outputs.clone().into()));
                true
            }
            ThreadEvent::ThreadCancelled { .. } => true,
        }
    }

    /// The model is to receive something before the next turn; what the prompt says comes with the prompt.
    fn tell(&mut self, source: Source, text: &str) -> bool {
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
                before.texts.push(Told { source, text });
                true
            }
            At::Calling(_) | At::Acting(_) | At::Failed(_) => false,
        }
    }

    /// The model is called, behind all that was said to it.
    fn begin(&mut self, event: &ThreadEvent) -> bool {
        if !self.queue.is_empty() {
            return false;
        }
        let (
            At::Before(before),
            ThreadEvent::StepStart {
                turn,
                attempt,
                now,
                input_tokens,
                max_output,
            },
        ) = (&mut self.at, event)
        else {
            return false;
        };
        if (before.turn, before.attempt) != (*turn, *attempt) {
            return false;
        }
        let turn = Turn {
            number: *turn,
            attempt: *attempt,
            retries: before.retries,
            now: *now,
            since: *now,
            texts: std::mem::take(&mut before.texts),
            input: *input_tokens,
            max_output: *max_output,
            parts: Vec::new(),
            said: None,
            calls: Vec::new(),
            is_cut: false,
        };
        self.at = At::Calling(Box::new(turn));
        true
    }

    fn say(&mut self, event: &ThreadEvent) -> bool {
        let (
            At::Calling(turn),
            ThreadEvent::CognitionOut {
                turn: number,
                text,
                message,
                usage,
                ..
            },
        ) = (&mut self.at, event)
        else {
            return false;
        };
        if turn.number != *number {
            return false;
        }
        turn.enter_calls(message);
        turn.parts = Vec::new();
        turn.said = Some(Arc::clone(message));
        Arc::make_mut(&mut self.recent).say(text);
        self.used.turns += 1;
        if let Some(usage) = usage {
            let counted = [usage.input, usage.cache_write, usage.output];
            self.used.count(&counted);
            self.context = Context {
                reported: counted
                    .iter()
                    .fold(usage.cache_read, |sum, part| sum.saturating_add(*part)),
                new_bytes: 0,
            };
        } else {
            // Nobody said: a token is no shorter than a byte.
            self.context.add(message.bytes());
            let said = u64::try_from(message.bytes()).unwrap_or(u64::MAX);
            self.used.count(&[turn.input, said]);
        }
        let turn = turn.clone();
        self.at = At::Acting(turn);
        true
    }

    fn answer(&mut self, event: &ThreadEvent) -> bool {
        let ThreadEvent::ToolCallResult {
            position,
            output,
            is_error,
            artifact,
            ..
        } = event
        else {
            return false;
        };
        let call = self.turn_mut().and_then(|turn| turn.call_mut(*position));
        let Some(call) = call.filter(|call| !matches!(call.at, CallAt::Done(_))) else {
            return false;
        };
        call.at = CallAt::Done(Arc::new(Answered {
            content: output.clone(),
            is_error: *is_error,
        }));
        let name = call.name.clone();
        Arc::make_mut(&mut self.recent).answer(&name, output, *is_error);
        self.context.add(output.len());
        if let Some(name) = artifact {
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
        let next = Before::turn(turn.number + 1);
        self.is_cut_short = turn.is_unfinished();
        self.unfinished = turn.is_unfinished().then(|| self.whole_text(turn).into());
        for call in &turn.calls {
            self.repeated.count(&call.name, &call.input);
        }
        self.count_time(at);
        self.head = Some(*head);
        self.at = At::Before(Box::new(next));
        true
    }

    /// The conversation is restated; what the model receives first in the turn stays behind it.
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

    fn fail(&mut self, at: Timestamp, event: &ThreadEvent) -> bool {
        let (
            At::Calling(turn),
            ThreadEvent::ErrorClassified {
                error,
                classification,
                pause_ms,
                ..
            },
        ) = (&self.at, event)
        else {
            return false;
        };
        if !turn.calls.is_empty() {
            return false;
        }
        let failed = Failed {
            next: turn.again(*classification != Class::Interrupted),
            failure: error.clone(),
            class: *classification,
            pause_ms: *pause_ms,
        };
        Arc::make_mut(&mut self.recent).fail(error);
        self.count_time(at);
        self.at = At::Failed(Box::new(failed));
        true
    }
}
