//! The loop of turns, case by case.

use super::charged::settled;
use super::stage::{Met, ended, execute, result};
use super::*;
use crate::conversation::Digest;
use crate::model::ThreadEvent;
use crate::model::event::{
    BudgetHeld, BudgetSettled, CancelRequested, ContextReseeded, UncertainAnswered, Warning,
};
use crate::model::thread::{Class, ReturnStatus};
use crate::model::{Because, Failure, Outcome, SuspendReason};
use crate::provider::failure::Charge;

const ALL: &str = "<execute><tool>t/*</tool></execute>";
const WORDS: &str = "<output name=\"words\" type=\"integer\" required=\"true\">How many</output>";

fn stage(permissions: &str, outputs: &str) -> Stage {
    Stage::new(terms(&directive(permissions, outputs)), |_| {})
}

fn failed(class: Class, charge: Charge, pause_ms: u64) -> ModelSignal {
    ModelSignal::Failed(Box::new(CallFailure {
        failure: Failure::permanent("overloaded_error", "too many"),
        class,
        charge,
        received: Received::default(),
        pause_ms,
    }))
}

fn output(stage: &Stage) -> Value {
    match stage.run().outcome() {
        Some(Outcome::Completed { output }) => Value::clone(output),
        other => panic!("{other:?}\n{:?}", stage.names()),
    }
}

fn error_code(stage: &Stage) -> &str {
    match stage.run().outcome() {
        Some(Outcome::Error { error }) => &error.code,
        other => panic!("{other:?}\n{:?}", stage.names()),
    }
}

/// A text, and a call of each of two tools.
fn two_calls() -> Vec<ModelSignal> {
    let calls = [
        ("c1", "rye_execute", execute("t/a", 1)),
        ("c2", "rye_execute", execute("t/b", 2)),
    ];
    message_signals("Looking.", &calls)
}

#[test]
fn a_text_without_calls_is_the_result() {
    let mut stage = stage(ALL, "");
    assert_eq!(stage.play(), Met::Model);
    stage.say(message_signals("Done.", &[]));
    assert_eq!(stage.play(), Met::Rests);
    assert_eq!(output(&stage), json!("Done."));
    let expected = [
        "step_start",
        "budget_held",
        "cognition_out",
        "budget_settled",
        "step_finish",
        "thread_completed",
    ];
    assert_eq!(stage.names(), expected);
    stage.assert_replay();
}

#[test]
fn calls_start_while_streaming_and_report_in_message_order() {
    let mut stage = stage(ALL, "");
    stage.play();
    let mut heard = two_calls().into_iter();
    stage.signal(heard.next().unwrap());
    stage.signal(heard.next().unwrap());
    assert_eq!(stage.play(), Met::Waits);
    assert_eq!(
        stage.begun.len(),
        1,
        "the first call runs before the second is complete"
    );
    stage.signal(heard.next().unwrap());
    assert_eq!(stage.play(), Met::Waits);
    assert_eq!(stage.running.len(), 2);
    stage.end(1, &result(json!("second")));
    stage.signal(heard.next().unwrap());
    stage.over();
    assert_eq!(stage.play(), Met::Waits);
    stage.end(0, &result(json!("first")));
    assert_eq!(stage.play(), Met::Model);
    let told = [
        ("c1".into(), "first".into()),
        ("c2".into(), "second".into()),
    ];
    assert_eq!(stage.call_results(), told);
    stage.assert_replay();
}

#[test]
fn calls_of_one_item_follow_each_other_unless_it_is_pure() {
    let permissions =
        "<execute><tool>t/a</tool></execute><execute effect=\"pure\"><tool>t/p</tool></execute>";
    let mut stage = stage(permissions, "");
    stage.play();
    let calls = [
        ("c1", "rye_execute", execute("t/a", 1)),
        ("c2", "rye_execute", execute("t/p", 2)),
        ("c3", "rye_execute", execute("t/a", 3)),
        ("c4", "rye_execute", execute("t/p", 4)),
    ];
    stage.say(message_signals("", &calls));
    stage.play();
    let running = |stage: &Stage| {
        let numbers = stage.running.iter().map(|call| call.params["n"].clone());
        numbers.collect::<Vec<_>>()
    };
    assert_eq!(running(&stage), [json!(1), json!(2), json!(4)]);
    stage.end(0, &result(json!(1)));
    stage.play();
    assert_eq!(running(&stage), [json!(2), json!(4), json!(3)]);
}

#[test]
fn valid_outputs_end_thread_and_invalid_ones_are_reported() {
    let mut stage = stage(ALL, WORDS);
    stage.play();
    stage.say(message_signals(
        "",
        &[("c1", "directive_return", json!({"words": "many"}))],
    ));
    assert_eq!(stage.play(), Met::Model);
    assert!(
        stage.call_results()[0].1.contains("words"),
        "{:?}",
        stage.call_results()
    );
    stage.say(message_signals(
        "",
        &[("c2", "directive_return", json!({"words": 0}))],
    ));
    assert_eq!(stage.play(), Met::Rests);
    assert_eq!(output(&stage), json!({"words": 0}), "0 is a value");
    assert_eq!(
        stage
            .run()
            .thread()
            .unwrap()
            .returned
            .as_ref()
            .unwrap()
            .status,
        ReturnStatus::Success
    );
    stage.assert_replay();
}

#[test]
fn model_may_fail_by_outputs() {
    let mut stage = stage(ALL, WORDS);
    stage.play();
    let input = json!({"status": "error", "error_detail": "no such file"});
    stage.say(message_signals("", &[("c1", "directive_return", input)]));
    stage.play();
    assert_eq!(error_code(&stage), "directive_error");
}

#[test]
fn missing_outputs_are_requested_twice() {
    let mut stage = stage(ALL, WORDS);
    for _ in 0..3 {
        assert_eq!(stage.play(), Met::Model);
        stage.say(message_signals("All is well.", &[]));
    }
    assert_eq!(stage.play(), Met::Rests);
    assert_eq!(error_code(&stage), "outputs_missing");
    let nudges = stage
        .names()
        .iter()
        .filter(|name| **name == "cognition_in")
        .count();
    assert_eq!(nudges, 2);
    stage.assert_replay();
}

/// Delivers `text` as the answer of the model, with that stop reason.
fn say(stage: &mut Stage, text: &str, stop: Stop) {
    assert_eq!(stage.play(), Met::Model, "{text}");
    let text = text.to_owned();
    stage.say(vec![ended(vec![Block::Text { text }], stop)]);
}

fn warns_of_cut(stage: &Stage) -> bool {
    stage.log.iter().any(|event| match event {
        Event::Run(RunEvent::Warning(Warning { message, .. })) => message.contains("incomplete"),
        Event::Run(_) | Event::Graph(_) | Event::Thread(_) | Event::Tool(_) | Event::Process(_) => {
            false
        }
    })
}

#[test]
fn an_answer_that_is_too_long_is_continued_three_times_and_all_its_pieces_are_the_result() {
    for (last, is_cut) in [(Stop::Length, true), (Stop::End, false)] {
        let mut stage = stage(ALL, "");
        for (piece, stop) in [
            ("one tw", Stop::Length),
            ("o thr", Stop::Length),
            ("", Stop::Length),
            ("ee", last),
        ] {
            // The pieces so far survive a crash.
            stage.play();
            stage.crash();
            say(&mut stage, piece, stop);
        }
        assert_eq!(stage.play(), Met::Rests);
        assert_eq!(output(&stage), json!("one two three"));
        let result = stage.run().result();
        assert_eq!(result["success"], true);
        assert_eq!(result.get("truncated"), is_cut.then_some(&json!(true)));
        assert_eq!(warns_of_cut(&stage), is_cut);
        assert_eq!(stage.run().thread().unwrap().unfinished, None);
        stage.assert_replay();
    }
}

#[test]
fn a_text_before_calls_or_a_reminder_is_no_piece_of_the_result() {
    let mut with_call = stage(ALL, "");
    say(&mut with_call, "I will lo", Stop::Length);
    with_call.play();
    with_call.say(message_signals("ok.", &[("c1", "launch", json!({}))]));
    say(&mut with_call, "Done.", Stop::End);
    with_call.play();
    assert_eq!(output(&with_call), json!("Done."));
    let words = "<output name=\"words\" type=\"integer\">How many</output>";
    let mut reminded = stage(ALL, words);
    for piece in ["a", "b", "c", "d"] {
        say(&mut reminded, piece, Stop::Length);
    }
    say(&mut reminded, "There are n", Stop::Length);
    say(&mut reminded, "There are none.", Stop::End);
    reminded.play();
    assert_eq!(output(&reminded), json!("There are none."));
}

#[test]
fn an_answer_is_not_continued_beyond_its_bound() {
    let mut stage = stage(ALL, "");
    say(&mut stage, &"é".repeat(1 << 20), Stop::Length);
    say(&mut stage, &"é".repeat(1 << 20), Stop::Pause);
    assert_eq!(stage.play(), Met::Rests, "4 MiB are enough");
    assert_eq!(output(&stage).as_str().map(str::len), Some(4 << 20));
    assert_eq!(stage.run().result()["truncated"], true);
    assert!(warns_of_cut(&stage));
    stage.assert_replay();
}

#[test]
fn complete_answer_is_not_reported_truncated() {
    let mut stage = stage(ALL, "");
    stage.play();
    stage.say(vec![ended(Vec::new(), Stop::Length)]);
    stage.play();
    stage.say(message_signals("Done.", &[]));
    stage.play();
    assert_eq!(stage.run().result().get("truncated"), None);
}

#[test]
fn failed_thread_reports_last_text_and_failure() {
    let mut stage = stage(ALL, "");
    stage.play();
    stage.say(vec![failed(Class::Transient, Charge::Nothing, 1)]);
    stage.play();
    stage.say(message_signals(
        "I look.",
        &[("c1", "rye_execute", execute("t/a", 1))],
    ));
    stage.play();
    stage.end(0, &result(json!("found")));
    stage.play();
    stage.say(vec![failed(Class::Permanent, Charge::Nothing, 0)]);
    stage.play();
    let told = stage.run().result();
    let context = json!({
        "last_text": "I look.",
        "recent_results": [{"tool": "rye_execute", "output": "found", "is_error": false}],
    });
    assert_eq!(told["error_context"], context);
    let error = json!({"code": "overloaded_error", "message": "too many"});
    assert_eq!(told["recent_llm_errors"], json!([error, error]));
    let mut fine = Stage::new(terms(&directive(ALL, "")), |_| {});
    fine.play();
    fine.say(message_signals("Done.", &[]));
    fine.play();
    assert_eq!(fine.run().result().get("error_context"), None);
}

#[test]
fn repeated_long_result_is_referenced() {
    let mut stage = stage(ALL, "");
    let long = "x".repeat(20_000);
    let mut told = Vec::new();
    for number in 0..2 {
        stage.play();
        let id = format!("c{number}");
        stage.say(message_signals(
            "",
            &[(&id, "rye_execute", execute("t/a", number))],
        ));
        stage.play();
        stage.end(0, &result(json!(long)));
        stage.play();
        let (_, text) = stage.call_results().pop().unwrap();
        told.push(text);
    }
    let name = Digest::of(&long);
    assert!(
        told[0].contains(&format!("\"artifact\": \"{name}\"")),
        "{}",
        told[0]
    );
    let again: Value = serde_json::from_str(&told[1]).unwrap();
    assert!(again["_same"].is_string());
    assert_eq!(again["_artifact"], json!(name));
    assert_eq!(again["_bytes"], 20_000);
    stage.assert_replay();
}

#[test]
fn directive_reads_inline_and_graph_gets_settings() {
    let contract = &terms(&directive("*", "")).contract;
    let target = |input: Value| contract.target("rye_execute", input.as_object().unwrap());
    let executes = |item: &str, params: Value| Target::Execute {
        primary: crate::capability::Primary::Execute,
        item: ItemRef::parse(item, crate::id::ItemKind::Tool).unwrap(),
        params: params.as_object().cloned().unwrap(),
    };
    let fork = json!({"item_type": "directive", "item_id": "t/d", "parameters": {"a": 1}, "thread": "fork"});
    assert_eq!(
        target(fork),
        executes("directive:t/d", json!({"inputs": {"a": 1}}))
    );
    let inline =
        json!({"item_type": "directive", "item_id": "t/d", "parameters": {}, "thread": "inline"});
    let read = Target::Execute {
        primary: crate::capability::Primary::Fetch,
        item: ItemRef::parse("rye/core/fetch", crate::id::ItemKind::Tool).unwrap(),
        params: Object::from_iter([
            ("item_type".to_owned(), json!("directive")),
            ("item_id".to_owned(), json!("t/d")),
        ]),
    };
    assert_eq!(target(inline), read);
    let graph = json!({"item_id": "t/graph", "async": true, "limit_overrides": {"steps": 5, "depth": 1}, "parameters": {"a": 1}});
    let params = json!({"a": 1, "async": true, "max_steps": 5, "depth": 1});
    assert_eq!(target(graph), executes("t/graph", params));
    for (input, told) in [
        (
            json!({"item_id": "t/a", "model": "fast"}),
            "`model` is for directives",
        ),
        (
            json!({"item_id": "t/a", "thread": "inline"}),
            "`thread` is for directives",
        ),
        (
            json!({"item_id": "t/a", "async": true, "parameters": {"async": false}}),
            "given twice",
        ),
        (
            json!({"item_id": "t/a", "limit_overrides": {"turns": 1}}),
            "`steps` and `depth`",
        ),
        (
            json!({"item_id": "t/a", "limit_overrides": 7}),
            "must be an object",
        ),
        (
            json!({"item_id": "t/a", "asinc": true}),
            "did you mean `async`?",
        ),
        (
            json!({"item_id": "directive:t/d", "thread": "new"}),
            "\"fork\" or \"inline\"",
        ),
        (
            json!({"item_id": "directive:t/d", "thread": "inline", "parameters": {"a": 1}}),
            "`parameters` is for a thread of its own",
        ),
        (
            json!({"item_id": "directive:t/d", "thread": "inline", "async": true}),
            "`async` is for a thread of its own",
        ),
    ] {
        match target(input) {
            Target::Refused { code, message } => {
                assert_eq!(code, "invalid_params");
                assert!(message.contains(told), "{message}");
            }
            other @ (Target::Execute { .. } | Target::Return | Target::Read(_)) => {
                panic!("{told}: {other:?}")
            }
        }
    }
}

#[test]
fn a_refusal_ends_the_thread_and_starts_no_calls() {
    let mut stage = stage(ALL, "");
    stage.play();
    let block = Block::Call {
        id: "c1".to_owned(),
        name: "rye_execute".to_owned(),
        input: Object::from_iter([("item_id".to_owned(), json!("t/a"))]),
    };
    stage.say(vec![ended(vec![block], Stop::Refusal)]);
    stage.play();
    assert_eq!(error_code(&stage), "refused");
    assert!(stage.begun.is_empty());
}

#[test]
fn call_of_unknown_tool_is_reported_to_model() {
    let mut stage = stage(ALL, "");
    stage.play();
    let calls = [
        ("c1", "launch_rocket", json!({})),
        ("c2", "rye_execute", json!([1])),
        ("c3", "rye_execute", json!({"item_id": "../x"})),
        ("c4", "rye_execute", json!({"item_id": "t/a", "sudo": true})),
        (
            "c5",
            "rye_execute",
            json!({"item_id": "t/a", "parameters": 7}),
        ),
        ("c6", "rye_execute", json!({"item_id": "knowledge:t/d"})),
        (
            "c8",
            "rye_execute",
            json!({"item_id": "t/a", "model": "fast"}),
        ),
        (
            "c9",
            "rye_execute",
            json!({"item_id": "directive:t/d", "item_type": "tool"}),
        ),
        (
            "c7",
            "rye_execute",
            json!({"item_id": "t/internal/emitter"}),
        ),
    ];
    stage.say(message_signals("", &calls));
    assert_eq!(stage.play(), Met::Model);
    assert!(stage.begun.is_empty());
    let told = stage.call_results();
    let words = [
        "launch_rocket",
        "[1]",
        "item_id",
        "sudo",
        "parameters",
        "is no tool",
        "`model` is for directives",
        "name different types",
        "no model calls it",
    ];
    for ((_, text), word) in told.iter().zip(words) {
        assert!(text.contains(word), "{text}: {word}");
    }
    assert_eq!(told.len(), calls.len());
    stage.assert_replay();
}

#[test]
fn a_failed_call_is_tried_again_after_its_pause() {
    let mut stage = stage(ALL, "");
    stage.play();
    let began = stage.now.up;
    stage.say(vec![failed(Class::Transient, Charge::Nothing, 1500)]);
    assert_eq!(stage.play(), Met::Model);
    assert_eq!(stage.now.up.since(began).as_millis(), 1500);
    stage.say(message_signals("Done.", &[]));
    stage.play();
    assert_eq!(output(&stage), json!("Done."));
    assert!(stage.names().contains(&"retry_succeeded"));
    stage.assert_replay();
}

#[test]
fn three_failed_retries_suspend_thread() {
    let mut stage = stage(ALL, "");
    for _ in 0..4 {
        assert_eq!(stage.play(), Met::Model);
        stage.say(vec![failed(Class::RateLimited, Charge::Nothing, 10)]);
    }
    assert_eq!(stage.play(), Met::Rests);
    let why = stage.run().suspension().unwrap();
    assert_eq!(
        (why.reason, why.code.as_deref()),
        (SuspendReason::Error, Some("overloaded_error"))
    );
    assert_eq!(stage.run().open_call, None);
    stage.others(RunEvent::resumed(Epoch::default()));
    assert_eq!(stage.play(), Met::Model, "who resumes it wants another try");
    stage.assert_replay();
}

#[test]
fn failure_class_decides_next_step() {
    let suspended = |pause, class| {
        let mut stage = stage(ALL, "");
        stage.play();
        stage.say(vec![failed(class, Charge::Nothing, pause)]);
        assert_eq!(stage.play(), Met::Rests);
        stage.run().status()
    };
    assert_eq!(suspended(0, Class::Quota), Status::Suspended);
    assert_eq!(suspended(300_001, Class::RateLimited), Status::Suspended);
    assert_eq!(suspended(0, Class::Permanent), Status::Error);
    assert_eq!(suspended(0, Class::Context), Status::Error);
    let at_first = suspended(0, Class::Reasoning);
    assert_eq!(
        at_first,
        Status::Error,
        "there is no reasoning to leave out"
    );
}

#[test]
fn refused_reasoning_is_dropped_once() {
    let mut stage = stage(ALL, "");
    stage.play();
    stage.say(two_calls());
    stage.play();
    stage.end(0, &result(json!("first")));
    stage.end(0, &result(json!("second")));
    assert_eq!(stage.play(), Met::Model);
    let old = stage.run().thread().unwrap().head;
    let rejects = || vec![failed(Class::Reasoning, Charge::Nothing, 0)];
    stage.say(rejects());
    assert_eq!(stage.play(), Met::Model, "it is tried again at once");
    let thread = stage.run().thread().unwrap();
    assert_ne!(thread.head, old);
    assert_eq!(thread.head, thread.root);
    let told = stage.log.iter().find_map(|event| match event {
        Event::Thread(ThreadEvent::ContextReseeded(ContextReseeded {
            turn,
            root,
            bytes,
            kept_turns,
            tokens_after,
            ..
        })) => Some((*turn, root, *bytes, *kept_turns, *tokens_after)),
        Event::Run(_) | Event::Graph(_) | Event::Thread(_) | Event::Tool(_) | Event::Process(_) => {
            None
        }
    });
    let (turn, root, bytes, kept, after) = told.unwrap();
    assert_eq!((turn, Some(root), kept), (2, thread.root.as_ref(), 1));
    let conversation = stage.conversation.as_ref().unwrap();
    assert_eq!(bytes, u64::try_from(conversation.bytes()).unwrap());
    assert_eq!(thread.turn().unwrap().input, after);
    stage.crash();
    assert_eq!(stage.play(), Met::Model);
    stage.say(message_signals("Done.", &[]));
    stage.play();
    assert_eq!(output(&stage), json!("Done."));
    stage.assert_replay();
}

#[test]
fn reasoning_that_is_rejected_again_ends_the_thread() {
    let mut stage = stage(ALL, "");
    for turn in 1..=2 {
        assert_eq!(stage.play(), Met::Model);
        if turn == 2 {
            stage.say(vec![failed(Class::Reasoning, Charge::Nothing, 0)]);
            assert_eq!(stage.play(), Met::Model);
        }
        stage.say(message_signals(
            "",
            &[("c1", "rye_execute", execute("t/a", turn))],
        ));
        stage.play();
        stage.end(0, &result(json!(turn)));
    }
    assert_eq!(
        stage.play(),
        Met::Model,
        "there is a turn with reasoning again"
    );
    stage.say(vec![failed(Class::Reasoning, Charge::Nothing, 0)]);
    assert_eq!(stage.play(), Met::Rests);
    assert_eq!(error_code(&stage), "overloaded_error");
    stage.assert_replay();
}

fn warnings(stage: &Stage) -> Vec<&str> {
    let told = stage.log.iter().filter_map(|event| match event {
        Event::Run(RunEvent::Warning(Warning { message, .. })) => Some(message.as_str()),
        Event::Run(_) | Event::Graph(_) | Event::Thread(_) | Event::Tool(_) | Event::Process(_) => {
            None
        }
    });
    told.collect()
}

#[test]
fn odd_answer_warns_and_missing_usage_is_estimated() {
    for (has_usage, estimated) in [(true, false), (false, true)] {
        let mut stage = stage(ALL, "");
        stage.play();
        let mut heard = message_signals("Done.", &[]);
        if let Some(ModelSignal::Complete { ended, .. }) = heard.last_mut() {
            ended.warnings.push("odd".to_owned());
            ended.usage = ended.usage.filter(|_| has_usage);
        }
        stage.say(heard);
        let warnings = warnings(&stage);
        assert_eq!(warnings[0], "odd");
        let said = warnings.iter().any(|text| text.contains("did not say all"));
        assert_eq!((said, settled(&stage).1), (estimated, estimated));
        stage.assert_replay();
    }
}

#[test]
fn unreadable_call_is_answered_and_never_executed() {
    let calls = [
        ("c1", "rye_execute", json!([1])),
        ("c2", "rye_execute", execute("t/b", 2)),
    ];
    for breaks in [false, true] {
        let mut stage = stage(ALL, "");
        stage.play();
        let mut heard = message_signals("Looking.", &calls);
        let end = heard.pop().unwrap();
        for heard in heard {
            stage.signal(heard);
        }
        stage.play();
        stage.signal(if breaks {
            failed(Class::Transient, Charge::Hold, 0)
        } else {
            end
        });
        stage.over();
        stage.play();
        assert_eq!(stage.begun.len(), 1, "only the second is carried out");
        stage.end(0, &result(json!("second")));
        assert_eq!(stage.play(), Met::Model);
        assert_eq!(stage.begun.len(), 1);
        let told = stage.call_results();
        let second = ("c2".into(), "second".into());
        if breaks {
            assert_eq!(told, [second], "what broke off has not said the first");
        } else {
            assert_eq!(told, [("c1".into(), "[1]".into()), second]);
        }
        stage.assert_replay();
    }
}

#[test]
fn broken_stream_keeps_parts_of_started_calls() {
    let mut stage = stage(ALL, "");
    stage.play();
    let mut heard = two_calls().into_iter();
    stage.signal(heard.next().unwrap());
    stage.signal(heard.next().unwrap());
    stage.play();
    stage.signal(failed(Class::Transient, Charge::Known, 0));
    stage.over();
    stage.play();
    stage.end(0, &result(json!("first")));
    assert_eq!(stage.play(), Met::Model, "it is no failed try");
    assert_eq!(stage.call_results(), [("c1".into(), "first".into())]);
    let messages = &stage.conversation.as_ref().unwrap().messages;
    let said = messages.iter().find_map(|message| match message {
        Message::Assistant {
            blocks,
            partial,
            raw,
            ..
        } => Some((blocks.len(), *partial, raw.is_some())),
        Message::User { .. } => None,
    });
    assert_eq!(said, Some((2, true, true)));
    let estimated = stage.log.iter().any(|event| {
        matches!(
            event,
            Event::Run(RunEvent::BudgetSettled(BudgetSettled {
                estimated: true,
                because: Because::Cut,
                ..
            }))
        )
    });
    assert!(estimated);
    stage.assert_replay();
}

#[test]
fn limit_suspends_thread_with_use_and_limit() {
    type Limit = fn(&mut Spec);
    let cases: [(Limit, &str, &str); 3] = [
        (|spec| spec.limits.turns = Some(1), "turns_exceeded", "1"),
        (
            |spec| spec.limits.tokens = Some(110),
            "tokens_exceeded",
            "110",
        ),
        (
            |spec| spec.limits.duration_ms = Some(5000),
            "duration_exceeded",
            "5000",
        ),
    ];
    for (limit, code, max) in cases {
        let mut stage = Stage::new(terms(&directive(ALL, "")), limit);
        // The first turn fits except for the tokens, of which an answer needs more than are left.
        if stage.play() == Met::Model {
            stage.now.at = stage.now.at.plus(Duration::from_secs(6));
            stage.say(message_signals("", &[("c1", "launch", json!({}))]));
            assert_eq!(stage.play(), Met::Rests);
        }
        let why = stage.run().suspension().unwrap();
        assert_eq!(why.reason, SuspendReason::Limit);
        assert_eq!(
            (why.code.as_deref(), why.max.as_deref()),
            (Some(code), Some(max))
        );
        stage.assert_replay();
    }
}

#[test]
fn no_request_without_money_for_smallest_answer() {
    let mut stage = stage(ALL, "");
    stage.money = Some(Usd::parse("0.000001").unwrap());
    assert_eq!(stage.play(), Met::Rests);
    assert_eq!(stage.asked, 0);
    let why = stage.run().suspension().unwrap();
    assert_eq!(
        (why.reason, why.code.as_deref()),
        (SuspendReason::Limit, Some("spend_exceeded"))
    );
    // With little money the answer is shorter, and the held amount fits.
    stage.others(RunEvent::resumed(Epoch::default()));
    stage.money = Some(Usd::parse("0.003").unwrap());
    assert_eq!(stage.play(), Met::Model);
    let held = stage.log.iter().find_map(|event| match event {
        Event::Run(RunEvent::BudgetHeld(BudgetHeld {
            amount, max_output, ..
        })) => Some((*amount, *max_output)),
        Event::Run(_) | Event::Graph(_) | Event::Thread(_) | Event::Tool(_) | Event::Process(_) => {
            None
        }
    });
    let (amount, most) = held.unwrap();
    assert!(
        amount <= stage.money.unwrap() && (1024..4096).contains(&most),
        "{amount} {most}"
    );
}

#[test]
fn unavailable_model_suspends_thread() {
    let mut stage = stage(ALL, "");
    assert_eq!(stage.play(), Met::Model);
    stage.crash();
    loop {
        match stage.machine.next(stage.now) {
            Move::Note(events) => stage.log.extend(events),
            Move::Query(_, query) => {
                assert_eq!(*query, ThreadQuery::Funds);
                break;
            }
            other @ (Move::Call(..) | Move::Wait(..) | Move::Suspended(_) | Move::End(_)) => {
                panic!("{other:?}")
            }
        }
    }
    let missing = Failure::permanent("model_unusable", "there is no key");
    let events = stage
        .machine
        .answered(stage.now, ThreadAnswer::Unusable(missing));
    stage.log.extend(events);
    assert_eq!(stage.play(), Met::Rests);
    let why = stage.run().suspension().unwrap();
    assert_eq!(
        (why.reason, why.code.as_deref()),
        (SuspendReason::Error, Some("model_unusable"))
    );
    stage.others(RunEvent::resumed(Epoch::default()));
    assert_eq!(stage.play(), Met::Model, "with the key it continues");
    stage.assert_replay();
}

#[test]
fn cancel_waits_for_running_calls_and_settles() {
    let mut stage = stage(ALL, "");
    stage.play();
    stage.others(CancelRequested {
        cause: "me".to_owned(),
    });
    assert_eq!(stage.play(), Met::Waits);
    stage.machine.abandon(Slot::Main);
    assert_eq!(stage.play(), Met::Rests);
    assert_eq!(stage.run().status(), Status::Cancelled);
    assert_eq!(stage.run().open_call, None);
    stage.assert_replay();
}

#[test]
fn suspension_waits_for_end_of_turn() {
    let mut stage = stage(ALL, "");
    stage.play();
    stage.machine.hold(Suspension::new(SuspendReason::User));
    assert_eq!(stage.play(), Met::Waits);
    let calls = [("c1", "rye_execute", execute("t/a", 1))];
    stage.say(message_signals("", &calls));
    assert_eq!(stage.play(), Met::Rests, "no call starts any more");
    assert_eq!(
        stage.run().suspension().unwrap().reason,
        SuspendReason::User
    );
    stage.others(RunEvent::resumed(Epoch::default()));
    assert_eq!(stage.play(), Met::Waits);
    assert_eq!(stage.running.len(), 1);
    stage.assert_replay();
}

/// The handling of a tool call that was in flight at a crash, by its declared effect.
#[test]
fn crash_repeats_repeatable_calls_only() {
    let permissions = "<execute><tool>t/a</tool></execute>\
                       <execute effect=\"idempotent\"><tool>t/i</tool></execute>\
                       <execute effect=\"at_most_once\"><tool>t/o</tool></execute>";
    let crashed = |item: &str| {
        let mut stage = stage(permissions, "");
        stage.play();
        stage.say(message_signals(
            "",
            &[("c1", "rye_execute", execute(item, 1))],
        ));
        assert_eq!(stage.play(), Met::Waits);
        stage.crash();
        let met = stage.play();
        (stage, met)
    };
    let (stage, met) = crashed("t/a");
    assert_eq!(met, Met::Model);
    assert_eq!(stage.begun.len(), 1);
    assert!(
        stage.call_results()[0].1.contains("unknown"),
        "{:?}",
        stage.call_results()
    );
    stage.assert_replay();

    let (stage, met) = crashed("t/i");
    assert_eq!(met, Met::Waits);
    let keys: Vec<_> = stage.begun.iter().map(|call| &call.key).collect();
    assert_eq!(keys.len(), 2);
    assert_eq!(keys[0], keys[1]);
    assert_eq!(stage.begun[1].attempt, 2);
    stage.assert_replay();

    let (mut stage, met) = crashed("t/o");
    assert_eq!(met, Met::Rests);
    assert_eq!(
        stage.run().suspension().unwrap().reason,
        SuspendReason::Uncertain
    );
    let (_, id) = stage.run().uncertain().remove(0);
    stage.others(UncertainAnswered {
        step: id.step,
        slot: id.slot,
        verdict: crate::model::Verdict::Done,
        result: None,
        by: "me".to_owned(),
    });
    stage.others(RunEvent::resumed(Epoch::default()));
    assert_eq!(stage.play(), Met::Model);
    assert_eq!(stage.begun.len(), 1);
    assert_eq!(stage.call_results()[0].1, r#"{"status":"done"}"#);
    stage.assert_replay();
}

#[test]
fn a_call_of_the_model_that_was_in_flight_at_a_crash_is_made_again_and_paid() {
    let mut stage = stage(ALL, "");
    stage.play();
    stage.crash();
    assert_eq!(stage.play(), Met::Model);
    assert_eq!(stage.asked, 2);
    let settled = stage.log.iter().any(|event| {
        matches!(
            event,
            Event::Run(RunEvent::BudgetSettled(BudgetSettled {
                because: Because::Crash,
                estimated: true,
                ..
            }))
        )
    });
    assert!(settled);
    for _ in 0..5 {
        stage.crash();
        assert_eq!(stage.play(), Met::Model, "a crash is no failed try");
    }
    stage.assert_replay();
}
