//! Effects of a second execution of a call: their source, and their consequences.

use super::stage::{Met, execute, result};
use super::*;
use crate::conversation::Digest;
use crate::model::Effect;
use crate::model::ThreadEvent;
use crate::model::event::ToolCallStart;

const ALL: &str = "<execute><tool>t/*</tool></execute>";

fn stage(permissions: &str) -> Stage {
    let mut stage = Stage::new(terms(&directive(permissions, "")), |_| {});
    stage.play();
    stage
}

/// Returns the recorded starts of calls.
fn started(stage: &Stage) -> Vec<ToolCallStart> {
    let started = stage.log.iter().filter_map(|event| match event {
        Event::Thread(ThreadEvent::ToolCallStart(started)) => Some(ToolCallStart::clone(started)),
        Event::Run(_) | Event::Graph(_) | Event::Thread(_) | Event::Tool(_) | Event::Process(_) => {
            None
        }
    });
    started.collect()
}

#[test]
fn permission_takes_precedence_over_item_effect() {
    let once = "<execute effect=\"at_most_once\"><tool>t/says-pure</tool></execute>";
    for (permissions, item, effect, undeclared) in [
        (ALL, "t/a", Effect::Idempotent, true),
        (ALL, "t/says-pure", Effect::Pure, false),
        (ALL, "t/says-once", Effect::AtMostOnce, false),
        (once, "t/says-pure", Effect::AtMostOnce, false),
    ] {
        let mut stage = stage(permissions);
        stage.say(message_signals(
            "",
            &[("c1", "rye_execute", execute(item, 1))],
        ));
        stage.play();
        let started = started(&stage);
        let found = (started[0].effect, started[0].undeclared);
        assert_eq!(found, (effect, undeclared), "{item}");
    }
}

#[test]
fn at_most_once_call_waits_for_message() {
    let mut stage = stage(ALL);
    let calls = [
        ("c1", "rye_execute", execute("t/says-once", 1)),
        ("c2", "rye_execute", execute("t/a", 2)),
    ];
    let mut heard = message_signals("", &calls).into_iter();
    stage.signal(heard.next().unwrap());
    assert_eq!(stage.play(), Met::Waits);
    assert_eq!(stage.begun, []);
    stage.signal(heard.next().unwrap());
    assert_eq!(stage.play(), Met::Waits);
    assert_eq!(stage.begun.len(), 1, "the others do not wait for it");
    stage.signal(heard.next().unwrap());
    stage.over();
    stage.play();
    assert_eq!(stage.begun.len(), 2);
}

#[test]
fn pure_calls_run_concurrently() {
    let mut stage = stage(ALL);
    let calls = [
        ("c1", "rye_execute", execute("t/says-pure", 1)),
        ("c2", "rye_execute", execute("t/says-pure", 2)),
        ("c3", "rye_execute", execute("t/says-again", 3)),
        ("c4", "rye_execute", execute("t/says-again", 4)),
    ];
    stage.say(message_signals("", &calls));
    stage.play();
    let numbers: Vec<_> = stage.running.iter().map(|call| &call.params["n"]).collect();
    assert_eq!(numbers, [1, 2, 3]);
}

#[test]
fn crash_uses_recorded_effect() {
    for (item, again) in [("t/says-again", 2), ("t/says-once", 1), ("t/a", 1)] {
        let mut stage = stage(ALL);
        stage.say(message_signals(
            "",
            &[("c1", "rye_execute", execute(item, 1))],
        ));
        stage.play();
        stage.crash();
        stage.play();
        assert_eq!(stage.begun.len(), again, "{item}");
        let is_uncertain = stage.run().status() == Status::Suspended;
        assert_eq!(is_uncertain, item == "t/says-once");
        stage.assert_replay();
    }
}

#[test]
fn a_long_result_is_read_in_parts_of_characters() {
    let mut stage = stage(ALL);
    stage.say(message_signals(
        "",
        &[("c1", "rye_execute", execute("t/a", 1))],
    ));
    stage.play();
    let text = "äöü".repeat(3000);
    let name = Digest::of(&text);
    stage.end(0, &result(json!(text)));
    stage.play();
    let reading = json!({"artifact": name, "offset": 8998, "limit": 7});
    let stranger = json!({"artifact": Digest::of("another")});
    let calls = [
        ("c2", "read_artifact", reading),
        ("c3", "read_artifact", stranger),
        (
            "c4",
            "read_artifact",
            json!({"artifact": name, "limit": 8001}),
        ),
        ("c5", "read_artifact", json!({"artifact": "x"})),
        (
            "c6",
            "read_artifact",
            json!({"artifact": name, "offset": -1}),
        ),
        ("c7", "read_artifact", json!({"artifact": name, "page": 1})),
        (
            "c8",
            "read_artifact",
            json!({"artifact": name, "offset": u64::MAX}),
        ),
        ("c9", "read_artifact", json!({"artifact": name})),
    ];
    stage.say(message_signals("", &calls));
    assert_eq!(stage.play(), Met::Model);
    let told = stage.call_results();
    let words = [
        "öü\n[characters 8998 to the end, which is at 9000]\n",
        "got no result of that name",
        "`limit`",
        "`artifact`",
        "`offset`",
        "no `page`",
        "[characters 18446744073709551615 to the end, which is at 9000]\n",
        "[characters 0 to 8000 of 9000: read on with offset 8000]\n",
    ];
    for ((id, text), word) in told[1..].iter().zip(words) {
        assert!(text.contains(word), "{id}: {text}");
    }
    assert_eq!(told.len(), 9);
    assert_eq!(stage.begun.len(), 1, "nothing is carried out");
    stage.assert_replay();
}
