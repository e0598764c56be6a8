//! Before a turn: limits, funds, and the size of the call.

use crate::capability::Primary;
use crate::clock::{Tick, Timestamp};
use crate::conversation::Source;
use crate::id::ItemKind;
use crate::ledger::{Denied, LimitId, Shortfall};
use crate::machine::{Call, Move, idempotency_key};
use crate::model::event::Reason;
use crate::model::event::{
    BudgetHeld, CognitionIn, ContextReseeded, StepStart, TurnRetryScheduled, TurnWaiting,
};
use crate::model::thread::{At, Class, Failed, NextTurn, Reached, TurnWait};
use crate::model::{Effect, Event, Failure, Object, RunEvent, Slot, SuspendReason, Suspension};
use crate::policy::OnExceed;
use crate::provider::{CallContext, Size, TooSmall};

use super::exceeded::Exceeded;
use super::live::{ThreadMachine, Unpaid};
use super::model_stream::PartialMessage;
use super::query::{Reseeded, ThreadQuery};

impl ThreadMachine {
    pub(super) fn begin_turn(&mut self, now: Tick, before: &NextTurn) -> Move<ThreadQuery> {
        if let Some(why) = self.held.take() {
            return self.suspend(now.at, why);
        }
        if let Some(due) = before.due {
            let pause = std::time::Duration::from_millis(due.ms_since(now.at));
            let due = *self.live.due.get_or_insert(now.up.plus(pause));
            if now.up < due {
                return Move::Wait(Vec::new(), Some(due));
            }
        }
        if let Some(reached) = self.limit_reached() {
            return self.exceed(now.at, reached);
        }
        if !self.state().queue.is_empty() {
            return Move::Note(self.deliver_queued(now.at, before.turn));
        }
        if self.live.funds.is_none() {
            return Move::Query(Vec::new(), Box::new(ThreadQuery::Funds));
        }
        let unpaid = self.live.unpaid.as_ref();
        let reached = match self.size() {
            Ok(size) => match unpaid.filter(|unpaid| size.hold >= unpaid.hold) {
                Some(unpaid) => Exceeded::of(unpaid.why.clone()),
                // Others have spent what they held: less is left, which buys a shorter answer.
                None => return Move::Call(Vec::new(), Box::new(self.model_call(now, before))),
            },
            Err(small) => self.too_small(small),
        };
        (self.live.funds, self.live.unpaid) = (None, None);
        self.exceed(now.at, reached)
    }

    /// Records that the hold of the next call was refused for good. The funds are queried again.
    pub(super) fn unpaid(&mut self, denied: &Denied) {
        let why = unpaid(denied);
        let size = self.size().ok();
        self.live.unpaid = size.map(|size| Unpaid {
            hold: size.hold,
            why,
        });
        self.live.funds = None;
    }

    /// Records that the next turn waits, unless it is known.
    pub(super) fn waits(&mut self, now: Timestamp, waiting: TurnWait) -> Vec<Event> {
        let mut events = Vec::new();
        if let At::Before(next) = &self.state().at
            && next.waiting != Some(waiting)
        {
            let delayed = TurnWaiting {
                turn: next.turn,
                attempt: next.attempt,
                waiting,
            };
            self.record(now, &mut events, delayed);
        }
        events
    }

    /// Delivers the queued messages to the model, in the order in which they came.
    fn deliver_queued(&mut self, now: Timestamp, turn: u32) -> Vec<Event> {
        let mut events = Vec::new();
        let queue = self.state().queue.clone();
        for text in queue.texts() {
            let told = CognitionIn {
                turn,
                source: Source::Message,
                text: text.into_owned(),
            };
            self.record(now, &mut events, told);
        }
        events
    }

    /// Returns the limit of the chain that leaves nothing for another turn.
    fn limit_reached(&self) -> Option<Exceeded> {
        let Reached { limit, used, max } = self.state().limit_reached()?;
        Some(Exceeded::number(limit.code(), used, max))
    }

    /// Handles a limit that leaves nothing for another turn, as the contract requires.
    fn exceed(&mut self, now: Timestamp, reached: Exceeded) -> Move<ThreadQuery> {
        let mut events = Vec::new();
        match self.contract().on_exceed {
            OnExceed::Fail => return Move::End(self.fail(now, reached.failure())),
            OnExceed::Suspend => {}
            OnExceed::Escalate => {
                if let Some(request) = reached.request() {
                    self.record(now, &mut events, request);
                }
            }
        }
        self.held = None;
        self.rest(now, &mut events, RunEvent::RunSuspended(reached.why).into());
        Move::Suspended(events)
    }

    /// Returns the size of the next call, given the known funds.
    fn size(&self) -> Result<Size, TooSmall> {
        let state = self.state();
        let left = self
            .live
            .funds
            .as_ref()
            .and_then(|funds| funds.left.as_ref());
        self.contract().model.size(&CallContext {
            reported: state.context.reported,
            new_bytes: usize::try_from(state.context.new_bytes).unwrap_or(usize::MAX),
            tokens_left: state
                .limits
                .tokens
                .map(|most| most.saturating_sub(state.used.tokens)),
            money_left: left.map(|left| left.amount),
        })
    }

    fn too_small(&self, small: TooSmall) -> Exceeded {
        let left = self
            .live
            .funds
            .as_ref()
            .and_then(|funds| funds.left.as_ref());
        match (small, left) {
            (TooSmall::Tokens { least, .. }, _) => {
                let (used, limits) = (self.state().used.tokens, self.state().limits);
                let max = limits.tokens.unwrap_or_default();
                Exceeded::tokens(used, max, least.into())
            }
            (TooSmall::Money { .. }, Some(left))
                if left.account == self.run.spec.budget.account =>
            {
                Exceeded::money("spend_exceeded", left)
            }
            (TooSmall::Money { .. }, Some(left)) => {
                let text = format!("the account `{}` has too little: {small}", left.account);
                let failure = Failure::permanent("hierarchical_budget_exceeded", text);
                Exceeded::of(Suspension {
                    current: Some(left.used.to_string()),
                    max: Some(left.limit.to_string()),
                    account: Some(left.account.clone()),
                    ..because_of(SuspendReason::Budget, failure)
                })
            }
            (TooSmall::Money { .. } | TooSmall::Cost, _) => {
                let failure = Failure::permanent("spend_exceeded", small.to_string());
                Exceeded::of(because_of(SuspendReason::Limit, failure))
            }
        }
    }

    /// Makes the model call. It is paid for, so nothing is sent before its announcement is durable.
    fn model_call(&self, now: Tick, before: &NextTurn) -> Call {
        let spec = &self.run.spec;
        let place = format!("turn/{}.{}", before.turn, before.attempt);
        Call {
            step: before.turn,
            attempt: before.attempt,
            primary: Primary::Execute,
            key: idempotency_key(spec.effect_scope(), &place, 0, None, None),
            effect: Effect::AtMostOnce,
            ..Call::new(Slot::Main, spec.item.clone(), Object::new(), now.at)
        }
    }

    pub(super) fn start_turn(&mut self, now: Tick, call: &Call) -> Vec<Event> {
        debug_assert_eq!(call.item.kind, ItemKind::Directive);
        let size = self.size().expect("the call was offered because it fits");
        let funds = self.live.funds.take().expect("what may be spent is known");
        let mut events = Vec::new();
        let start = StepStart {
            turn: call.step,
            attempt: call.attempt,
            now: call.now,
            input_tokens: size.input,
            max_output: size.max_output,
        };
        self.record(now.at, &mut events, start);
        let held = BudgetHeld {
            call: funds.next,
            amount: size.hold,
            model: self.contract().model.id.clone(),
            input: size.input,
            max_output: size.max_output.into(),
            meters: funds.meters,
        };
        self.record(now.at, &mut events, held);
        (self.live.due, self.live.unpaid) = (None, None);
        self.live.partial = Some(PartialMessage::default());
        events
    }

    /// Handles a failed model call: another try, a suspension for a person to decide, or the end.
    pub(super) fn failed(&mut self, now: Timestamp, failed: &Failed) -> Move<ThreadQuery> {
        let tries_left = failed.next.retries <= self.contract().max_retries;
        let is_short = failed.pause_ms <= super::model_stream::LONGEST_PAUSE_MS;
        match failed.class {
            Class::Interrupted => self.try_again(now, failed, now),
            Class::Transient | Class::RateLimited if tries_left && is_short => {
                let pause = std::time::Duration::from_millis(failed.pause_ms);
                self.try_again(now, failed, now.plus(pause))
            }
            Class::Transient | Class::RateLimited | Class::Quota => {
                let why = because_of(SuspendReason::Error, failed.failure.clone());
                self.suspend(now, why)
            }
            Class::Reasoning if self.state().may_be_reseeded() => {
                Move::Query(Vec::new(), Box::new(ThreadQuery::Reseed))
            }
            Class::Context | Class::Reasoning | Class::Permanent => {
                Move::End(self.fail(now, failed.failure.clone()))
            }
        }
    }

    /// The conversation was restated: the turn is tried again immediately.
    pub(super) fn reseeded(&mut self, now: Timestamp, reseeded: &Reseeded) -> Vec<Event> {
        let At::Failed(failed) = &self.state().at else {
            return Vec::new();
        };
        let (turn, context) = (failed.next.turn, self.state().context);
        let bytes = u64::try_from(reseeded.bytes).unwrap_or(u64::MAX);
        let token_size = self.contract().model.token_size;
        let tokens = |bytes| token_size.tokens(usize::try_from(bytes).unwrap_or(usize::MAX));
        let told = ContextReseeded {
            turn,
            reason: Reason::ReasoningRejected,
            root: reseeded.root,
            bytes,
            tokens_before: context.reported.saturating_add(tokens(context.new_bytes)),
            tokens_after: tokens(bytes),
            kept_turns: reseeded.turns,
        };
        let mut events = Vec::new();
        self.record(now, &mut events, told);
        events
    }

    fn try_again(&mut self, now: Timestamp, failed: &Failed, due: Timestamp) -> Move<ThreadQuery> {
        let mut events = Vec::new();
        let scheduled = TurnRetryScheduled {
            turn: failed.next.turn,
            attempt: failed.next.attempt,
            due,
        };
        self.record(now, &mut events, scheduled);
        Move::Note(events)
    }
}

/// Makes the suspension for a call that the ledger did not grant.
fn unpaid(denied: &Denied) -> Suspension {
    let failure = Failure::permanent("hierarchical_budget_exceeded", denied.to_string());
    let why = because_of(SuspendReason::Budget, failure);
    match denied {
        Denied::Short(Shortfall {
            at: LimitId::Account(account),
            limit,
            used,
            ..
        }) => Suspension {
            current: Some(used.to_string()),
            max: Some(limit.to_string()),
            account: Some(account.clone()),
            ..why
        },
        Denied::Short(_) | Denied::Misuse(_) => why,
    }
}

/// Makes the suspension because of `failure`.
pub(super) fn because_of(reason: SuspendReason, failure: Failure) -> Suspension {
    Suspension {
        code: Some(failure.code.clone()),
        failure: Some(Box::new(failure)),
        ..Suspension::new(reason)
    }
}
