//! Limits: the handling of a thread that reaches one, repeated calls, and the end of its time.

use super::stage::{Met, execute, result};
use super::*;
use crate::ledger::{AccountId, Denied, LimitId, Shortfall};
use crate::model::ThreadEvent;
use crate::model::event::{LimitEscalationRequested, RunResumed};
use crate::model::thread::{Class, TurnWait};
use crate::model::{Failure, Outcome, Raised, SuspendReason};
use crate::provider::failure::Charge;

const ALL: &str = "<execute><tool>t/*</tool></execute>";

/// A thread under these terms.
fn under(change: impl FnOnce(&mut Contract), limit: impl FnOnce(&mut Spec)) -> Stage {
    let mut terms = Arc::into_inner(terms(&directive(ALL, ""))).unwrap();
    change(&mut terms.contract);
    Stage::new(Arc::new(terms), limit)
}

/// The one call of a turn.
fn call(id: &str, item: &str, number: u32) -> Vec<ModelSignal> {
    message_signals("", &[(id, "rye_execute", execute(item, number))])
}

fn error_code(stage: &Stage) -> Option<&str> {
    match stage.run().outcome() {
        Some(Outcome::Error { error }) => Some(&error.code),
        Some(_) | None => None,
    }
}

/// The requests for a higher limit: the limit, usage, maximum, proposal.
fn requests(stage: &Stage) -> Vec<[String; 4]> {
    let asked = stage.log.iter().filter_map(|event| match event {
        Event::Thread(ThreadEvent::LimitEscalationRequested(LimitEscalationRequested {
            limit_code,
            current_value,
            current_max,
            proposed_max,
        })) => Some([limit_code, current_value, current_max, proposed_max].map(String::clone)),
        Event::Run(_) | Event::Graph(_) | Event::Thread(_) | Event::Tool(_) | Event::Process(_) => {
            None
        }
    });
    asked.collect()
}

#[test]
fn contract_decides_thread_at_limit() {
    for (on_exceed, status, asked) in [
        (OnExceed::Escalate, Status::Suspended, 1),
        (OnExceed::Suspend, Status::Suspended, 0),
        (OnExceed::Fail, Status::Error, 0),
    ] {
        let limit = |spec: &mut Spec| spec.limits.turns = Some(1);
        let mut stage = under(|contract| contract.on_exceed = on_exceed, limit);
        stage.play();
        stage.say(call("c1", "t/a", 1));
        stage.play();
        stage.end(0, &result(json!(1)));
        assert_eq!(stage.play(), Met::Rests);
        assert_eq!(stage.run().status(), status);
        let code = stage.run().suspension().and_then(|why| why.code.as_deref());
        assert_eq!(error_code(&stage).or(code), Some("turns_exceeded"));
        assert_eq!(requests(&stage).len(), asked);
        stage.assert_replay();
    }
}

#[test]
fn requested_limit_resumes_thread() {
    let limit = |spec: &mut Spec| spec.limits.tokens = Some(2000);
    let mut stage = under(|_| {}, limit);
    for number in 0..40 {
        if stage.play() == Met::Rests {
            break;
        }
        let id = format!("c{number}");
        stage.say(call(&id, "t/a", number));
        stage.play();
        stage.end(0, &result(json!(number)));
    }
    let asked = requests(&stage);
    assert_eq!(asked.len(), 1);
    let [code, _, max, proposed] = &asked[0];
    assert_eq!(
        (&**code, &**max, &**proposed),
        ("tokens_exceeded", "2000", "4000")
    );
    let names = stage.names();
    let last = &names[names.len() - 2..];
    assert_eq!(last, ["limit_escalation_requested", "run_suspended"]);
    stage.others(RunResumed {
        epoch: Epoch::default(),
        raised: Raised {
            max_tokens: proposed.parse().ok(),
            ..Raised::default()
        },
    });
    assert_eq!(stage.play(), Met::Model);
}

#[test]
fn missing_money_is_requested() {
    let mut stage = under(|_| {}, |_| {});
    stage.money = Usd::parse("0.000001").ok();
    assert_eq!(stage.play(), Met::Rests);
    let asked = requests(&stage);
    assert_eq!(asked[0][0], "spend_exceeded");
    assert_eq!(asked[0][3], "0.000002000");
}

#[test]
fn requested_money_fits_ancestors() {
    // The limit that the accounts above allow, and the proposal.
    let table = [
        (None, Some("0.000002000")),
        (Some("0.000003"), Some("0.000002000")),
        (Some("0.0000015"), Some("0.000001500")),
        (Some("0.000001"), None),
    ];
    for (bearable, expected) in table {
        let mut stage = under(|_| {}, |_| {});
        stage.money = Usd::parse("0.000001").ok();
        stage.bearable = bearable.and_then(|most| Usd::parse(most).ok());
        assert_eq!(stage.play(), Met::Rests);
        let asked: Vec<String> = requests(&stage)
            .into_iter()
            .map(|[.., most]| most)
            .collect();
        assert_eq!(asked.first().map(String::as_str), expected, "{bearable:?}");
        let escalated = stage.run().thread().unwrap().escalated.clone();
        assert_eq!(
            escalated.as_deref(),
            expected,
            "the record holds what is asked for"
        );
        let why = stage.run().suspension().unwrap();
        assert_eq!(why.code.as_deref(), Some("spend_exceeded"));
        stage.assert_replay();
    }
}

#[test]
fn repeated_call_is_refused_then_ends_thread() {
    let mut stage = under(|contract| contract.repeated_calls = 3, |_| {});
    stage.play();
    for number in 1..=6 {
        let id = format!("c{number}");
        stage.say(call(&id, "t/a", 7));
        let mut met = stage.play();
        if number < 3 {
            stage.end(0, &result(json!("same")));
            met = stage.play();
        } else {
            let (_, told) = stage.call_results().pop().unwrap();
            assert!(told.contains(&format!("{number} times in a row")), "{told}");
        }
        assert_eq!(met == Met::Rests, number == 6, "{number}");
    }
    assert_eq!(error_code(&stage), Some("repeated_calls"));
    assert_eq!(
        stage.begun.len(),
        2,
        "the third and all behind it are not carried out"
    );
    stage.assert_replay();
}

#[test]
fn calls_that_differ_and_equal_calls_of_one_message_are_no_repetition() {
    let mut stage = under(|contract| contract.repeated_calls = 3, |_| {});
    stage.play();
    for number in 0..8 {
        let id = format!("c{number}");
        stage.say(call(&id, "t/a", number % 2));
        stage.play();
        stage.end(0, &result(json!(number)));
        assert_eq!(stage.play(), Met::Model);
    }
    let same = execute("t/b", 1);
    let ids = ["d1", "d2", "d3", "d4"];
    let calls = ids.map(|id| (id, "rye_execute", same.clone()));
    let begun = stage.begun.len();
    stage.say(message_signals("", &calls));
    for number in 1..=4 {
        stage.play();
        assert_eq!(stage.begun.len(), begun + number);
        stage.end(0, &result(json!(1)));
    }
    assert_eq!(stage.play(), Met::Model);
    stage.assert_replay();
}

#[test]
fn poll_whose_result_changes_is_no_repetition() {
    for (is_same, ends) in [(false, false), (true, true)] {
        let mut stage = under(|contract| contract.repeated_calls = 3, |_| {});
        stage.play();
        for number in 1..=8 {
            let id = format!("c{number}");
            stage.say(call(&id, "t/status", 7));
            if stage.play() == Met::Waits {
                let done = if is_same { 0 } else { number };
                stage.end(0, &result(json!(format!("{done} of 8"))));
                stage.play();
            }
        }
        let ended = (
            error_code(&stage) == Some("repeated_calls"),
            stage.begun.len(),
        );
        assert_eq!(ended, (ends, if ends { 2 } else { 8 }));
        stage.assert_replay();
    }
}

#[test]
fn repetition_is_unlimited_by_default() {
    let mut stage = under(|contract| contract.repeated_calls = 0, |_| {});
    stage.play();
    for number in 0..20 {
        let id = format!("c{number}");
        stage.say(call(&id, "t/a", 7));
        stage.play();
        stage.end(0, &result(json!(number)));
        assert_eq!(stage.play(), Met::Model);
    }
    assert_eq!(stage.begun.len(), 20);
}

const MINUTE: u64 = 60_000;

fn for_a_minute() -> Stage {
    under(|_| {}, |spec| spec.limits.duration_ms = Some(MINUTE))
}

fn left(stage: &Stage) -> u128 {
    stage.machine.time_left().unwrap().as_millis()
}

#[test]
fn only_the_time_in_turns_counts() {
    let mut stage = for_a_minute();
    stage.pass(5 * MINUTE);
    assert_eq!(stage.play(), Met::Model);
    assert_eq!(left(&stage), 60_060, "nothing had begun");
    stage.pass(10_000);
    stage.say(vec![ModelSignal::Failed(Box::new(CallFailure {
        failure: Failure::permanent("overloaded_error", "busy"),
        class: Class::Transient,
        charge: Charge::Nothing,
        received: Received::default(),
        pause_ms: 2 * MINUTE,
    }))]);
    assert_eq!(stage.play(), Met::Model, "a pause is no time of it");
    assert_eq!(left(&stage), 50_050);
    stage.pass(5_000);
    stage.say(call("c1", "t/a", 1));
    stage.play();
    assert_eq!(left(&stage), 45_050);
    stage
        .machine
        .suspend_for(Slot::Part(0), RunId::new("t-graph-1-aaaaaaaaaa").unwrap());
    stage.running.clear();
    assert_eq!(stage.play(), Met::Rests);
    stage.pass(5 * MINUTE);
    stage.others(RunEvent::resumed(Epoch::default()));
    stage.machine = ThreadMachine::new(Arc::clone(&stage.terms), Arc::new(stage.run().clone()));
    stage.play();
    assert_eq!(left(&stage), 45_045, "nor is a suspension");
    stage.assert_replay();
}

#[test]
fn a_model_that_is_cut_at_the_end_of_the_time_is_not_called_again() {
    let mut stage = for_a_minute();
    stage.play();
    stage.pass(MINUTE);
    stage.say(vec![ModelSignal::Failed(Box::new(CallFailure {
        failure: Failure::permanent("timeout", "cut"),
        class: Class::Interrupted,
        charge: Charge::Known,
        received: Received::default(),
        pause_ms: 0,
    }))]);
    assert_eq!(stage.play(), Met::Rests);
    let why = stage.run().suspension().unwrap();
    assert_eq!(
        (why.reason, why.code.as_deref()),
        (SuspendReason::Limit, Some("duration_exceeded"))
    );
    assert_eq!(stage.run().open_call, None);
    assert_eq!(requests(&stage)[0][3], "120000");
    stage.assert_replay();
}

#[test]
fn calls_after_deadline_are_answered_without_execution() {
    let mut stage = for_a_minute();
    stage.play();
    let calls = [
        ("c1", "rye_execute", execute("t/a", 1)),
        ("c2", "rye_execute", execute("t/a", 2)),
    ];
    stage.say(message_signals("", &calls));
    stage.play();
    stage.pass(MINUTE + 100);
    let timeout = CallOutcome {
        failure: Some(Failure::permanent("timeout", "timed out")),
        ..result(json!(null))
    };
    stage.end(0, &timeout);
    assert_eq!(stage.play(), Met::Rests);
    assert_eq!(stage.begun.len(), 1);
    let told = stage.call_results();
    assert!(told[1].1.contains("was over before"), "{told:?}");
    let code = stage.run().suspension().and_then(|why| why.code.as_deref());
    assert_eq!(code, Some("duration_exceeded"));
    stage.assert_replay();
}

fn told(stage: &Stage) -> Option<TurnWait> {
    stage.run().waiting().copied()
}

#[test]
fn waits_before_a_turn_are_in_the_record_until_it_begins() {
    let mut stage = under(|_| {}, |_| {});
    assert_eq!(stage.play(), Met::Model);
    let failed = |pause_ms| {
        vec![ModelSignal::Failed(Box::new(CallFailure {
            failure: Failure::permanent("overloaded_error", "busy"),
            class: Class::Transient,
            charge: Charge::Nothing,
            received: Received::default(),
            pause_ms,
        }))]
    };
    // A short pause is not shown.
    for (pause, shown) in [(999, false), (1000, true)] {
        stage.say(failed(pause));
        let Move::Note(events) = stage.machine.next(stage.now) else {
            panic!("no further try");
        };
        stage.log.extend(events);
        let until = stage.now.at.plus(Duration::from_millis(pause));
        let wait = shown.then_some(TurnWait::for_provider(Some(until)));
        assert_eq!(told(&stage), wait);
        assert_eq!(stage.play(), Met::Model);
        assert_eq!(told(&stage), None);
    }
    stage.say(failed(0));
    let Move::Note(events) = stage.machine.next(stage.now) else {
        panic!("no further try");
    };
    stage.log.extend(events);
    let begun = stage.log.len();
    let wait = TurnWait::for_provider(None);
    // An equal wait is recorded once.
    for _ in 0..2 {
        let events = stage.machine.answered(stage.now, ThreadAnswer::Waits(wait));
        stage.log.extend(events);
        assert_eq!(told(&stage), Some(wait));
    }
    let until = TurnWait::for_provider(Some(stage.now.at));
    let events = stage
        .machine
        .answered(stage.now, ThreadAnswer::Waits(until));
    stage.log.extend(events);
    assert_eq!(told(&stage), Some(until));
    assert_eq!(stage.log.len(), begun + 2);
    assert_eq!(stage.play(), Met::Model);
    assert_eq!(told(&stage), None);
    stage.assert_replay();
}

#[test]
fn suspended_thread_waits_for_no_provider() {
    let mut stage = under(|_| {}, |_| {});
    assert_eq!(stage.play(), Met::Model);
    stage.say(call("c1", "t/a", 1));
    stage.play();
    stage.end(0, &result(json!(1)));
    while !matches!(stage.run().thread().unwrap().at, At::Before(_)) {
        match stage.machine.next(stage.now) {
            Move::Note(events) => stage.log.extend(events),
            Move::Query(_, query) => {
                let answer = stage.answer(*query);
                let events = stage.machine.answered(stage.now, answer);
                stage.log.extend(events);
            }
            other @ (Move::Call(..) | Move::Wait(..) | Move::Suspended(_) | Move::End(_)) => {
                panic!("{other:?}")
            }
        }
    }
    let wait = TurnWait::for_provider(None);
    let events = stage.machine.answered(stage.now, ThreadAnswer::Waits(wait));
    stage.log.extend(events);
    stage.machine.hold(Suspension::new(SuspendReason::User));
    assert_eq!(stage.play(), Met::Rests);
    stage.others(RunEvent::resumed(Epoch::default()));
    assert_eq!(told(&stage), None);
    stage.assert_replay();
}

/// Plays until the model is to be called, and refuses the hold of the call as an account above would.
fn refuse_hold(stage: &mut Stage) {
    let above = AccountId(RunId::new("t-above-1-aaaaaaaaaa").unwrap());
    let denied = Denied::Short(Shortfall {
        requested: Usd::ZERO,
        at: LimitId::Account(above),
        limit: Usd::ZERO,
        used: Usd::ZERO,
        wait: false,
    });
    loop {
        match stage.machine.next(stage.now) {
            Move::Note(events) => stage.log.extend(events),
            Move::Query(_, query) => {
                let answer = stage.answer(*query);
                let events = stage.machine.answered(stage.now, answer);
                stage.log.extend(events);
            }
            Move::Call(_, call) => {
                let why = RefusalReason::Budget(denied);
                stage.machine.refused(stage.now, &call, &why);
                return;
            }
            other @ (Move::Wait(..) | Move::Suspended(_) | Move::End(_)) => panic!("{other:?}"),
        }
    }
}

#[test]
fn call_whose_hold_is_refused_takes_the_shorter_answer_that_is_left() {
    for (left, expected) in [("0.002", Met::Model), ("0.005", Met::Rests)] {
        let mut stage = under(|_| {}, |_| {});
        stage.money = Usd::parse("0.005").ok();
        refuse_hold(&mut stage);
        // Others have spent what they held.
        stage.money = Usd::parse(left).ok();
        assert_eq!(stage.play(), expected, "{left}");
        let held = stage.run().open_call.map(|open| open.amount);
        assert_eq!(held.is_some(), expected == Met::Model);
        assert!(held.is_none_or(|held| held <= stage.money.unwrap()));
        let why = stage.run().suspension().map(|why| why.reason);
        let budget = (expected == Met::Rests).then_some(SuspendReason::Budget);
        assert_eq!(why, budget, "{left}");
        stage.assert_replay();
    }
}
