//! Threads that continue the conversation of an ended one.

use super::stage::{Met, ended, execute, result};
use super::*;
use crate::model::ThreadEvent;
use crate::model::event::{CognitionIn, RunKilled};
use crate::model::thread::{Class, ThreadLimits};
use crate::model::{KillReceipt, Raised, Task, ThreadSource, Unraised, Work};
use crate::provider::failure::Charge;

fn stage() -> Stage {
    Stage::new(terms(&directive("<execute>*</execute>", "")), |_| {})
}

/// A thread that continues `old` from its end, with `message` first.
fn continued(old: &Stage, message: Option<&str>) -> Stage {
    let mut carried = old.run().carried().expect("it has ended");
    if let Some(text) = message {
        assert!(carried.queue.push(text));
    }
    begun_with(old, carried)
}

/// A thread that begins with `carried`, which `old` left.
fn begun_with(old: &Stage, carried: ThreadState) -> Stage {
    let mut stage = Stage::new(Arc::clone(&old.terms), |spec| {
        spec.continuation_of = Some(old.run().id.clone());
        spec.task = Task::Thread(ThreadSource {
            carried: Some(Arc::new(carried)),
            ..ThreadSource::default()
        });
    });
    stage.now = old.now;
    stage.conversation.clone_from(&old.conversation);
    stage
}

fn kill(stage: &mut Stage) {
    let killed = RunKilled {
        cause: "me".to_owned(),
        receipt: KillReceipt::default(),
    };
    let run = stage.run().clone();
    for event in run.with_settlement(killed.into()) {
        stage.others(event);
    }
}

/// Returns the texts that the model receives before it is called, in order.
fn texts_for_model(stage: &Stage) -> Vec<(Source, String)> {
    let told = stage.log.iter().filter_map(|event| match event {
        Event::Thread(ThreadEvent::CognitionIn(CognitionIn { source, text, .. })) => {
            Some((*source, text.clone()))
        }
        Event::Run(_) | Event::Graph(_) | Event::Thread(_) | Event::Tool(_) | Event::Process(_) => {
            None
        }
    });
    told.collect()
}

fn failed(class: Class) -> ModelSignal {
    ModelSignal::Failed(Box::new(CallFailure {
        failure: Failure::permanent("invalid_request_error", "no"),
        class,
        charge: Charge::Nothing,
        received: Received::default(),
        pause_ms: 0,
    }))
}

#[test]
fn failed_model_call_is_retried_after_earlier_turns() {
    let mut old = stage();
    old.play();
    old.say(message_signals(
        "",
        &[("c1", "rye_execute", execute("t/a", 1))],
    ));
    old.play();
    old.end(0, &result(json!("done")));
    assert_eq!(old.play(), Met::Model);
    old.say(vec![failed(Class::Permanent)]);
    assert_eq!(old.play(), Met::Rests);
    assert_eq!(old.run().status(), Status::Error);

    let mut new = continued(&old, None);
    assert_eq!(new.play(), Met::Model);
    assert_eq!(new.names()[0], "run_started");
    assert_eq!(texts_for_model(&new), [], "nothing has to be said to it");
    let turn = new.run().thread().unwrap().turn().unwrap();
    assert_eq!((turn.number, turn.attempt), (2, 2));
    new.say(message_signals("Done.", &[]));
    assert_eq!(new.play(), Met::Rests);
    assert_eq!(new.run().status(), Status::Completed);
    assert_eq!(
        new.call_results().len(),
        1,
        "the call of the first turn stands once"
    );
    assert_eq!(new.run().thread().unwrap().used.turns, 2);
    assert!(new.begun.is_empty());
    new.assert_replay();
}

#[test]
fn calls_that_had_not_ended_are_answered_and_never_made() {
    let mut old = stage();
    old.play();
    let calls = [
        ("c1", "rye_execute", execute("t/a", 1)),
        ("c2", "rye_execute", execute("t/graph", 2)),
        ("c3", "rye_execute", execute("t/b", 3)),
        ("c4", "rye_execute", execute("t/b", 4)),
    ];
    old.say(message_signals("I work.", &calls));
    old.play();
    old.end(0, &result(json!("one")));
    assert_eq!(old.running.len(), 2, "one of t/b waits for the other");
    kill(&mut old);

    let mut new = continued(&old, Some("Go on."));
    assert_eq!(new.play(), Met::Model);
    assert!(new.begun.is_empty(), "{:?}", new.begun);
    let answers = new.call_results();
    assert_eq!(answers[0].1, "one");
    for (at, part) in [
        (
            1,
            "the run `t-graph-1-aaaaaaaaaa` carried out; whether it took effect is unknown",
        ),
        (2, "whether it took effect is unknown"),
        (3, "before this call began"),
    ] {
        assert!(answers[at].1.contains(part), "{answers:?}");
    }
    assert_eq!(
        texts_for_model(&new),
        [(Source::Message, "Go on.".to_owned())]
    );
    new.assert_replay();
}

#[test]
fn killed_turn_keeps_parts_of_started_calls() {
    let mut old = stage();
    old.play();
    let mut heard = message_signals("I work.", &[("c1", "rye_execute", execute("t/a", 1))]);
    heard.pop();
    for heard in heard {
        old.signal(heard);
    }
    assert_eq!(old.play(), Met::Waits);
    assert_eq!(old.running.len(), 1);
    kill(&mut old);

    let mut new = continued(&old, None);
    assert_eq!(new.play(), Met::Model);
    assert!(new.begun.is_empty());
    assert!(
        new.call_results()[0].1.contains("unknown"),
        "{:?}",
        new.call_results()
    );
    let turn = new.run().thread().unwrap().turn().unwrap();
    assert_eq!(turn.number, 2);
    new.assert_replay();
}

#[test]
fn continuation_prompts_model_or_delivers_message() {
    let mut old = stage();
    old.play();
    old.say(message_signals("Done.", &[]));
    assert_eq!(old.play(), Met::Rests);
    assert_eq!(old.run().status(), Status::Completed);
    for (message, source) in [
        (None, Source::Continuation),
        (Some("And the tests?"), Source::Message),
    ] {
        let mut new = continued(&old, message);
        assert_eq!(new.play(), Met::Model);
        let told = texts_for_model(&new);
        assert_eq!((told.len(), told[0].0), (1, source), "{told:?}");
        new.say(message_signals("Those too.", &[]));
        assert_eq!(new.play(), Met::Rests);
        assert_eq!(new.run().status(), Status::Completed);
        new.assert_replay();
    }
}

#[test]
fn refusal_is_dropped_from_continuation() {
    let mut old = stage();
    old.play();
    let text = Block::Text {
        text: "No.".to_owned(),
    };
    old.say(vec![ended(vec![text], Stop::Refusal)]);
    assert_eq!(old.play(), Met::Rests);
    assert_eq!(old.run().failure().unwrap().code, "refused");
    let mut new = continued(&old, Some("Please."));
    assert_eq!(new.play(), Met::Model);
    assert_eq!(new.run().thread().unwrap().turn().unwrap().number, 1);
    new.say(message_signals("Well.", &[]));
    new.play();
    assert_eq!(new.run().status(), Status::Completed);
    new.assert_replay();
}

#[test]
fn unstarted_thread_is_composed_again() {
    let mut old = stage();
    kill(&mut old);
    let mut new = continued(&old, Some("Be quick."));
    assert_eq!(new.play(), Met::Model);
    assert!(new.conversation.is_some());
    assert_eq!(
        texts_for_model(&new).len(),
        2,
        "the directive, and what somebody says"
    );
    new.assert_replay();
}

#[test]
fn thread_can_continue_after_every_finished_turn() {
    let mut old = stage();
    old.play();
    let mut said = vec![old.conversation.clone()];
    for turn in 1..=3 {
        let id = format!("c{turn}");
        old.say(message_signals(
            "",
            &[(&id, "rye_execute", execute("t/a", turn))],
        ));
        old.play();
        old.end(0, &result(json!(format!("result {turn}"))));
        assert_eq!(old.play(), Met::Model);
        said.push(old.conversation.clone());
    }
    old.say(message_signals("Done.", &[]));
    assert_eq!(old.play(), Met::Rests);
    said.push(old.conversation.clone());

    let mut record = old.first.clone();
    let mut finished = 0;
    for event in old.log.clone() {
        record.apply(old.now.at, &event).unwrap();
        if event.name() != "step_finish" {
            continue;
        }
        finished += 1;
        let carried = record.carried_from_turn().expect("a turn is finished");
        assert_eq!(carried.head, said[finished].as_ref().map(|said| said.head));
        let mut new = begun_with(&old, carried);
        new.conversation.clone_from(&said[finished]);
        assert_eq!(new.play(), Met::Model);
        let state = new.run().thread().unwrap();
        let turn = u32::try_from(finished).unwrap();
        assert_eq!(
            (state.used.turns, state.turn().unwrap().number),
            (turn, turn + 1)
        );
        let results: Vec<String> = new
            .call_results()
            .into_iter()
            .map(|(_, text)| text)
            .collect();
        let before: Vec<String> = (1..=turn.min(3))
            .map(|turn| format!("result {turn}"))
            .collect();
        assert_eq!(results, before);
        let told: Vec<Source> = texts_for_model(&new)
            .into_iter()
            .map(|(source, _)| source)
            .collect();
        assert_eq!(told, [Source::Continuation]);
        new.say(message_signals("Otherwise.", &[]));
        assert_eq!(new.play(), Met::Rests);
        assert_eq!(new.run().status(), Status::Completed);
        new.assert_replay();
    }
    assert_eq!(finished, 4);
    assert!(old.first.carried_from_turn().is_none());
    let mut speaking = stage();
    speaking.play();
    assert!(speaking.run().carried_from_turn().is_none());
}

#[test]
fn thread_ended_at_limit_continues_with_higher_limit_only() {
    let mut old = stage();
    old.play();
    old.say(message_signals(
        "",
        &[("c1", "rye_execute", execute("t/a", 1))],
    ));
    old.play();
    old.end(0, &result(json!("done")));
    old.play();
    kill(&mut old);
    let mut run = old.run().clone();
    let Work::Thread(state) = &mut run.work else {
        panic!("it is a thread");
    };
    state.limits = ThreadLimits {
        turns: Some(1),
        ..ThreadLimits::default()
    };
    state.at = At::Before(Box::new(crate::model::thread::NextTurn::turn(2)));
    let raise = |turns| Raised {
        max_turns: turns,
        ..Raised::default()
    };
    for turns in [None, Some(1)] {
        let refused = run.check_raise(&raise(turns)).unwrap_err();
        assert!(matches!(refused, Unraised::TooLow { .. }), "{refused}");
    }
    run.check_raise(&raise(Some(2))).unwrap();
}
