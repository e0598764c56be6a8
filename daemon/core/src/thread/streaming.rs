//! A streaming model: its signals, and the result of its call.

use std::sync::Arc;

use crate::clock::Timestamp;
use crate::conversation::Message;
use crate::ledger::Usage;
use crate::machine::CallOutcome;
use crate::model::event::{
    BudgetSettled, CognitionOut, CognitionReasoning, ErrorClassified, RetrySucceeded, Warning,
};
use crate::model::thread::{At, Class, MessagePart, Turn};
use crate::model::{Because, Event, Failure, OpenCall};
use crate::provider::failure::Charge;
use crate::provider::stream::Ended;
use crate::provider::{Received, assemble};

use super::live::ThreadMachine;
use super::model_stream::{CallFailure, ModelSignal, reasoning};

impl ThreadMachine {
    pub(super) fn apply_signal(&mut self, now: Timestamp, heard: ModelSignal) -> Vec<Event> {
        let At::Calling(turn) = self.state().at.clone() else {
            // The run was suspended meanwhile, and the call is settled.
            return Vec::new();
        };
        match heard {
            ModelSignal::Part(part) => {
                if let Some(speaking) = &mut self.live.partial {
                    speaking.parts.push(Arc::new(MessagePart {
                        block: part.block,
                        raw: part.raw,
                    }));
                }
                Vec::new()
            }
            ModelSignal::Call(call) => {
                if let Some(speaking) = &mut self.live.partial {
                    speaking.ask(call);
                }
                Vec::new()
            }
            ModelSignal::Complete { ended, request_id } => {
                self.complete(now, &turn, *ended, request_id)
            }
            ModelSignal::Failed(failure) => self.broken(now, &turn, &failure),
            ModelSignal::Stopped(received) => {
                let mut events = Vec::new();
                self.settle_cut(now, &mut events, &turn, &received, Because::Stopped);
                events
            }
        }
    }

    fn complete(
        &mut self,
        now: Timestamp,
        turn: &Turn,
        ended: Ended,
        request_id: Option<String>,
    ) -> Vec<Event> {
        let mut events = Vec::new();
        let thoughts = reasoning(&ended.blocks);
        if !thoughts.is_empty() {
            let thought = CognitionReasoning {
                turn: turn.number,
                text: thoughts,
            };
            self.record(now, &mut events, thought);
        }
        let usage = ended
            .usage
            .and_then(|tokens| self.contract().model.prices.entry(&tokens));
        let message = Message::Assistant {
            origin: self.contract().model.origin(),
            blocks: ended.blocks,
            raw: ended.raw,
            stop: Some(ended.stop),
            partial: false,
        };
        self.record_message(now, &mut events, turn, message, usage, request_id);
        let unknown = usage.is_none().then_some(
            "the provider did not say all of what the call used; it is charged at what was held for it",
        );
        let unknown = unknown.map(str::to_owned);
        for message in ended.warnings.into_iter().chain(unknown) {
            let node = None;
            self.record(now, &mut events, Warning { node, message });
        }
        self.settle(now, &mut events, usage, Because::Usage);
        if turn.attempt > 1 {
            let succeeded = RetrySucceeded {
                turn: turn.number,
                attempts: turn.attempt,
            };
            self.record(now, &mut events, succeeded);
        }
        let bad = self
            .live
            .partial
            .as_mut()
            .map(|speaking| std::mem::take(&mut speaking.bad));
        for (id, refused) in bad.into_iter().flatten() {
            self.refuse(now, &mut events, &id, refused.code, &refused.problem);
        }
        events
    }

    /// Handles an answer without a complete message. The recorded parts up to started calls are a message all the same.
    fn broken(&mut self, now: Timestamp, turn: &Turn, failed: &CallFailure) -> Vec<Event> {
        let mut events = Vec::new();
        if turn.calls.is_empty() {
            self.classified(now, &mut events, turn, failed);
        } else {
            self.record_partial(now, &mut events, turn);
        }
        match failed.charge {
            Charge::Nothing => {
                let nothing = Usage {
                    calls: 1,
                    ..Usage::default()
                };
                self.settle(now, &mut events, Some(nothing), Because::Refused);
            }
            Charge::Known => {
                self.settle_cut(now, &mut events, turn, &failed.received, Because::Cut);
            }
            Charge::Hold => self.settle(now, &mut events, None, Because::Cut),
        }
        events
    }

    /// Settles the model call in flight when the thread pauses, if no further signal came.
    pub(super) fn settle_stopped(&mut self, now: Timestamp, events: &mut Vec<Event>) {
        if let At::Calling(_) = &self.state().at {
            self.settle(now, events, None, Because::Stopped);
        }
    }

    /// Settles the open call, whose answer broke off, at its known usage.
    fn settle_cut(
        &mut self,
        now: Timestamp,
        events: &mut Vec<Event>,
        turn: &Turn,
        received: &Received,
        because: Because,
    ) {
        let Some(OpenCall { call, amount }) = self.run.open_call else {
            return;
        };
        let model = &self.contract().model;
        let Some(known) = model.known_cost(received, turn.input, amount) else {
            return self.settle(now, events, None, because);
        };
        let settled = BudgetSettled {
            call,
            amount,
            usage: known.usage,
            estimated: known.estimated,
            because,
        };
        self.record(now, events, settled);
    }

    pub(super) fn classified(
        &mut self,
        now: Timestamp,
        events: &mut Vec<Event>,
        turn: &Turn,
        failed: &CallFailure,
    ) {
        let classified = ErrorClassified {
            turn: turn.number,
            attempt: turn.attempt,
            error: failed.failure.clone(),
            classification: failed.class,
            pause_ms: failed.pause_ms,
        };
        self.record(now, events, classified);
    }

    /// Makes the message from the parts up to the calls that have started.
    pub(super) fn record_partial(&mut self, now: Timestamp, events: &mut Vec<Event>, turn: &Turn) {
        let model = &self.contract().model;
        let raw = assemble(model.api, turn.parts.iter().map(|part| part.raw.as_str()));
        let message = Message::Assistant {
            origin: model.origin(),
            blocks: turn.parts.iter().map(|part| part.block.clone()).collect(),
            raw,
            stop: None,
            partial: true,
        };
        self.record_message(now, events, turn, message, None, None);
    }

    fn record_message(
        &mut self,
        now: Timestamp,
        events: &mut Vec<Event>,
        turn: &Turn,
        message: Message,
        usage: Option<Usage>,
        request_id: Option<String>,
    ) {
        let said = CognitionOut {
            turn: turn.number,
            attempt: turn.attempt,
            text: message.plain_text(),
            message: Arc::new(message),
            usage,
            request_id,
        };
        self.record(now, events, said);
    }

    /// Settles the open call: at `usage`, or at the held amount.
    fn settle(
        &mut self,
        now: Timestamp,
        events: &mut Vec<Event>,
        usage: Option<Usage>,
        because: Because,
    ) {
        let Some(OpenCall { call, amount }) = self.run.open_call else {
            return;
        };
        let held = Usage {
            money: amount,
            calls: 1,
            turns: u32::from(because == Because::Usage),
            ..Usage::default()
        };
        let settled = BudgetSettled {
            call,
            amount,
            usage: usage.unwrap_or(held),
            estimated: usage.is_none(),
            because,
        };
        self.record(now, events, settled);
    }

    /// Handles the end of the model call. Its result came as a signal before; without one it broke off.
    pub(super) fn conclude_turn(&mut self, now: Timestamp, outcome: &CallOutcome) -> Vec<Event> {
        let events = match self.state().at.clone() {
            At::Calling(turn) => {
                let cut = || Failure {
                    retryable: true,
                    ..Failure::permanent("cut", "the answer was cut off")
                };
                let failed = CallFailure {
                    failure: outcome.failure.clone().unwrap_or_else(cut),
                    class: Class::Transient,
                    charge: Charge::Hold,
                    received: Received::default(),
                    pause_ms: 0,
                };
                self.broken(now, &turn, &failed)
            }
            At::Composing | At::Before(_) | At::Acting(_) | At::Failed(_) => Vec::new(),
        };
        self.live.partial = None;
        events
    }
}
