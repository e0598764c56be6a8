//! Messages to threads.

use super::stage::{Met, execute, result};
use super::*;
use crate::model::ThreadEvent;
use crate::model::event::{CognitionIn, MessageQueued, RunKilled, RunResumed};
use crate::model::thread::{At, Class, MOST_MESSAGE_BYTES, MOST_QUEUED};
use crate::model::{KillReceipt, Raised};
use crate::provider::failure::Charge;

fn queued(text: &str) -> MessageQueued {
    MessageQueued {
        text: text.to_owned(),
        by: "me".to_owned(),
        lines: None,
    }
}

/// A model call fails, and is made again.
fn failed() -> ModelSignal {
    ModelSignal::Failed(Box::new(CallFailure {
        failure: Failure::permanent("overloaded_error", "too many"),
        class: Class::Transient,
        charge: Charge::Nothing,
        received: Received::default(),
        pause_ms: 10,
    }))
}

fn stage() -> Stage {
    Stage::new(terms(&directive("<execute>*</execute>", "")), |_| {})
}

/// Returns the texts that were sent to the model, in order.
fn heard(stage: &Stage) -> Vec<&str> {
    let told = stage.log.iter().filter_map(|event| match event {
        Event::Thread(ThreadEvent::CognitionIn(CognitionIn {
            source: Source::Message,
            text,
            ..
        })) => Some(text.as_str()),
        Event::Run(_) | Event::Graph(_) | Event::Thread(_) | Event::Tool(_) | Event::Process(_) => {
            None
        }
    });
    told.collect()
}

/// Returns the position of each event of that name in the log.
fn places(stage: &Stage, name: &str) -> Vec<usize> {
    let named = stage.log.iter().enumerate();
    let named = named.filter(|(_, event)| event.name() == name);
    named.map(|(at, _)| at).collect()
}

#[test]
fn messages_are_delivered_in_order_before_next_call() {
    let mut stage = stage();
    assert_eq!(stage.play(), Met::Model);
    stage.others(queued("first"));
    stage.others(queued("second"));
    assert_eq!(stage.play(), Met::Waits, "nothing is sent meanwhile");
    assert!(heard(&stage).is_empty());
    stage.say(message_signals(
        "",
        &[("c1", "rye_execute", execute("t/a", 1))],
    ));
    assert_eq!(stage.play(), Met::Waits);
    stage.others(queued("third"));
    stage.end(0, &result(json!("done")));
    assert_eq!(stage.play(), Met::Model);
    assert_eq!(heard(&stage), ["first", "second", "third"]);
    let (told, began) = (places(&stage, "cognition_in"), places(&stage, "step_start"));
    assert!(told.last() < began.last(), "{:?}", stage.names());
    let texts: Vec<_> = stage.run().thread().unwrap().turn().unwrap().texts.clone();
    assert_eq!(texts.len(), 3);
    stage.assert_replay();
}

#[test]
fn queued_message_at_end_adds_a_turn() {
    let mut stage = stage();
    stage.play();
    stage.others(queued("one more thing"));
    stage.say(message_signals("Done.", &[]));
    assert_eq!(stage.play(), Met::Model, "it is not over");
    stage.say(message_signals("That too.", &[]));
    assert_eq!(stage.play(), Met::Rests);
    assert_eq!(stage.run().status(), Status::Completed);
    assert_eq!(heard(&stage), ["one more thing"]);
    let said = stage.conversation.as_ref().unwrap().messages.iter();
    let told = said.filter(|message| {
        matches!(
            message,
            Message::User {
                source: Source::Message,
                ..
            }
        )
    });
    assert_eq!(told.count(), 1, "it is part of the conversation");
    stage.assert_replay();
}

#[test]
fn plan_without_queued_message_is_refused() {
    let mut stage = stage();
    let at = stage.now.at;
    for name in ["step_start", "thread_completed"] {
        let (mut run, known) = (stage.run().clone(), stage.log.len());
        stage.play();
        if name == "thread_completed" {
            stage.say(message_signals("Done.", &[]));
            stage.play();
        }
        let planned = stage.log[known..].iter();
        let (before, [refused, ..]) = planned.as_slice().split_at(places(&stage, name)[0] - known)
        else {
            panic!("{name} is not planned");
        };
        for event in before {
            run.apply(at, event).unwrap();
        }
        run.apply(at, &queued("wait").into()).unwrap();
        assert!(run.apply(at, refused).is_err(), "{name}");
    }
}

#[test]
fn valid_outputs_end_thread_despite_queue() {
    let output = "<output name=\"words\" type=\"integer\" required=\"true\">How many</output>";
    let mut stage = Stage::new(terms(&directive("", output)), |_| {});
    stage.play();
    stage.others(queued("too late"));
    stage.say(message_signals(
        "",
        &[("r", "directive_return", json!({"words": 4}))],
    ));
    assert_eq!(stage.play(), Met::Rests);
    assert_eq!(stage.run().status(), Status::Completed);
    assert!(heard(&stage).is_empty());
    stage.assert_replay();
}

#[test]
fn crash_neither_loses_nor_repeats_messages() {
    // Before the prompt, before the call begins, and after that.
    for crash in 0..3 {
        let mut stage = stage();
        if crash == 0 {
            stage.others(queued("hear me"));
            stage.crash();
            assert_eq!(stage.play(), Met::Model);
        } else {
            stage.play();
            stage.say(vec![failed()]);
            stage.others(queued("hear me"));
            stage.crash();
            assert_eq!(stage.play(), Met::Model);
        }
        if crash == 2 {
            stage.crash();
            assert_eq!(stage.play(), Met::Model, "the turn is tried again");
        }
        assert_eq!(heard(&stage), ["hear me"], "{crash}");
        let turn = stage.run().thread().unwrap().turn().unwrap().clone();
        assert_eq!(turn.texts.len(), 1, "{crash}: each try sends it");
        stage.say(message_signals("Done.", &[]));
        assert_eq!(stage.play(), Met::Rests);
        assert_eq!(stage.run().status(), Status::Completed);
        stage.assert_replay();
    }
}

#[test]
fn suspended_thread_receives_messages_on_resume() {
    let mut stage = Stage::new(terms(&directive("", "")), |spec| {
        spec.limits.turns = Some(1);
    });
    stage.play();
    stage.say(message_signals("", &[("c1", "nothing", json!({}))]));
    assert_eq!(stage.play(), Met::Rests);
    stage.others(queued("go on"));
    assert_eq!(stage.play(), Met::Rests);
    assert!(heard(&stage).is_empty());
    let raised = Raised {
        max_turns: Some(2),
        ..Raised::default()
    };
    let epoch = Epoch::default();
    stage.others(RunResumed { epoch, raised });
    assert_eq!(stage.play(), Met::Model);
    assert_eq!(heard(&stage), ["go on"]);
    stage.assert_replay();
}

#[test]
fn message_is_accepted_until_end_or_full_queue() {
    let mut stage = stage();
    let at = stage.now.at;
    let refuses = |run: &Run, text: &str| run.clone().apply(at, &queued(text).into()).is_err();
    let longest = "x".repeat(MOST_MESSAGE_BYTES);
    assert!(!refuses(stage.run(), &longest));
    assert!(refuses(stage.run(), &format!("{longest}x")));
    assert!(matches!(stage.run().thread().unwrap().at, At::Composing));
    for number in 0..MOST_QUEUED {
        stage.others(queued(&number.to_string()));
    }
    assert!(refuses(stage.run(), "one too many"));
    assert_eq!(stage.play(), Met::Model);
    let expected: Vec<String> = (0..MOST_QUEUED).map(|number| number.to_string()).collect();
    assert_eq!(heard(&stage), expected);
    assert!(!refuses(stage.run(), "there is room again"));
    let killed = RunKilled {
        cause: "me".to_owned(),
        receipt: KillReceipt::default(),
    };
    for event in stage.run().with_settlement(killed.into()) {
        stage.others(event);
    }
    assert!(refuses(stage.run(), "too late"));
}

#[test]
fn delivered_text_equals_message() {
    let mut stage = stage();
    stage.play();
    stage.signal(failed());
    let told = |text: &str| CognitionIn {
        turn: 1,
        source: Source::Message,
        text: text.to_owned(),
    };
    let scheduled = stage.machine.next(stage.now);
    assert!(matches!(scheduled, Move::Note(_)));
    stage.others(queued("said"));
    let mut run = stage.run().clone();
    let at = stage.now.at;
    for wrong in ["never said", ""] {
        assert!(run.apply(at, &told(wrong).into()).is_err(), "{wrong}");
    }
    run.apply(at, &told("said").into()).unwrap();
    assert!(run.apply(at, &told("said").into()).is_err(), "once");
}
