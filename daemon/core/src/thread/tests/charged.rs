//! The charge of a call that broke off, by the place of the break and the parts that had arrived.

use super::stage::Met;
use super::*;
use crate::model::event::{BudgetSettled, CancelRequested};
use crate::model::thread::Class;
use crate::model::{Because, Failure};
use crate::provider::Thinking;
use crate::provider::failure::Charge;

/// The settlement of the last call: money, true if that is an estimate, and the reason.
pub(super) fn settled(stage: &Stage) -> (String, bool, Because) {
    let last = stage.log.iter().rev().find_map(|event| match event {
        Event::Run(RunEvent::BudgetSettled(BudgetSettled {
            usage,
            estimated,
            because,
            ..
        })) => Some((usage.money.to_string(), *estimated, *because)),
        Event::Run(_) | Event::Graph(_) | Event::Thread(_) | Event::Tool(_) | Event::Process(_) => {
            None
        }
    });
    last.unwrap()
}

/// The parts of the table's answers that arrived, except the size of a text. A dollar buys a million tokens of either
/// kind, and 25 bytes are estimated as ten tokens.
fn received(reported: Option<(u64, u64)>, unreported: usize) -> Received {
    let tokens = |(input, output)| Tokens {
        input,
        output,
        ..Tokens::default()
    };
    Received {
        is_answered: true,
        reported: reported.map(tokens),
        unreported,
        has_stopped: false,
    }
}

/// Like [`received`], for a model that has stopped by itself.
fn whole(reported: Option<(u64, u64)>, unreported: usize) -> Received {
    Received {
        has_stopped: true,
        ..received(reported, unreported)
    }
}

#[derive(Debug, Clone, Copy)]
enum Expected {
    /// A number of tokens.
    Exact(u64),
    /// The estimated request plus a number of tokens.
    Request(u64),
    /// A number of tokens, as an estimate.
    Estimate(u64),
    Hold,
}

fn stage_of(thinking: Option<Thinking>) -> Stage {
    let mut terms = Arc::into_inner(terms(&directive("", ""))).unwrap();
    terms.contract.model.thinking = thinking;
    let mut stage = Stage::new(Arc::new(terms), |_| {});
    assert_eq!(stage.play(), Met::Model);
    stage
}

fn assert_settled(stage: &Stage, expected: Expected, because: Because, hold: Usd, request: u64) {
    let tokens = |tokens: u64| Usd::from_nanos(tokens * 1000);
    let (money, estimated) = match expected {
        Expected::Exact(number) => (tokens(number), false),
        Expected::Request(more) => (tokens(request + more), true),
        Expected::Estimate(number) => (tokens(number), true),
        Expected::Hold => (hold, true),
    };
    assert_eq!(
        settled(stage),
        (money.to_string(), estimated, because),
        "{expected:?}"
    );
    stage.assert_replay();
}

#[test]
fn interrupted_call_is_charged_at_known_cost() {
    use Expected::{Estimate, Exact, Hold, Request};
    let effort = Some(Thinking::Effort(None));
    let no_status = Received::default();
    let table = [
        (None, no_status, Hold),
        (None, received(None, 0), Request(0)),
        (None, received(None, 25), Request(10)),
        (None, received(Some((100, 1)), 0), Estimate(101)),
        (None, whole(Some((100, 1)), 0), Exact(101)),
        (None, whole(Some((100, 1)), 25), Estimate(111)),
        (None, whole(None, 25), Request(10)),
        (None, received(Some((100, 1)), 25), Estimate(111)),
        (None, received(Some((0, 1)), 25), Request(11)),
        // An estimate is bounded by the hold; a report is not.
        (None, received(None, 1 << 20), Hold),
        (None, received(Some((100, 1)), 1 << 20), Hold),
        (None, received(Some((100, 9000)), 0), Estimate(9100)),
        (None, whole(Some((100, 9000)), 0), Exact(9100)),
        (None, received(Some((100, 9000)), 25), Estimate(9100)),
        // No price is high enough for tokens that cannot be counted.
        (None, received(Some((u64::MAX, 1)), 0), Hold),
        // A model that reasons may have used more than is visible.
        (effort.clone(), no_status, Hold),
        (effort.clone(), received(None, 0), Hold),
        (effort.clone(), received(None, 25), Hold),
        (effort.clone(), whole(Some((100, 1)), 0), Exact(101)),
        (effort, received(Some((100, 1)), 25), Estimate(111)),
    ];
    for (thinking, received, expected) in table {
        for stopped in [false, true] {
            let mut stage = stage_of(thinking.clone());
            let hold = stage.run().open_call.unwrap().amount;
            let request = stage.run().thread().unwrap().turn().unwrap().input;
            let because = if stopped {
                stage.signal(ModelSignal::Stopped(received));
                stage.others(CancelRequested {
                    cause: "me".to_owned(),
                });
                stage.machine.abandon(Slot::Main);
                assert_eq!(stage.play(), Met::Rests);
                Because::Stopped
            } else {
                stage.say(vec![failed(Charge::Known, received)]);
                Because::Cut
            };
            assert_settled(&stage, expected, because, hold, request);
        }
    }
}

#[test]
fn refused_call_is_free_and_unanswered_call_costs_hold() {
    let text = received(Some((100, 1)), 25);
    for (charge, because, is_free) in [
        (Charge::Nothing, Because::Refused, true),
        (Charge::Hold, Because::Cut, false),
    ] {
        let mut stage = stage_of(None);
        let hold = stage.run().open_call.unwrap().amount;
        stage.say(vec![failed(charge, text)]);
        let money = if is_free { Usd::ZERO } else { hold };
        assert_eq!(settled(&stage), (money.to_string(), !is_free, because));
    }
    // The task of the call is gone, and has reported nothing.
    let mut stage = stage_of(None);
    let hold = stage.run().open_call.unwrap().amount.to_string();
    stage.over();
    assert_eq!(settled(&stage), (hold.clone(), true, Because::Cut));
    let mut stage = stage_of(None);
    stage.crash();
    assert_eq!(settled(&stage), (hold, true, Because::Crash));
}

fn failed(charge: Charge, received: Received) -> ModelSignal {
    ModelSignal::Failed(Box::new(CallFailure {
        failure: Failure::permanent("overloaded_error", "too many"),
        class: Class::Transient,
        charge,
        received,
        pause_ms: 0,
    }))
}

#[test]
fn turn_without_reported_usage_counts_as_a_turn_and_a_broken_one_does_not() {
    let mut stage = Stage::new(terms(&directive("", "")), |_| {});
    let turns = |stage: &Stage| {
        let last = stage.log.iter().rev().find_map(|event| match event {
            Event::Run(RunEvent::BudgetSettled(settled)) => Some(settled),
            Event::Run(_)
            | Event::Graph(_)
            | Event::Thread(_)
            | Event::Tool(_)
            | Event::Process(_) => None,
        });
        let settled = last.unwrap();
        (settled.estimated, settled.usage.turns)
    };
    assert_eq!(stage.play(), Met::Model);
    stage.over();
    assert_eq!(turns(&stage), (true, 0));
    assert_eq!(stage.play(), Met::Model);
    let mut heard = message_signals("Done.", &[]);
    if let Some(ModelSignal::Complete { ended, .. }) = heard.last_mut() {
        ended.usage = None;
    }
    stage.say(heard);
    assert_eq!(turns(&stage), (true, 1));
    stage.assert_replay();
}
