//! The events that a thread accepts in each state.

use super::*;
use crate::model::thread::At;

fn read(name: &str, payload: &Value) -> Event {
    Event::read(name, &payload.to_string()).unwrap()
}

fn call(position: u32, id: &str, parts: &Value) -> Event {
    let payload = json!({
        "turn": 1, "position": position, "call_id": id, "tool": "rye_execute", "item": "tool:t/a", "input": {},
        "attempt": 1, "effect": "idempotent", "key": "k", "child": null, "parts": parts,
    });
    read("tool_call_start", &payload)
}

fn result(position: u32, id: &str) -> Event {
    let payload = json!({
        "turn": 1, "position": position, "call_id": id, "output": "o", "is_error": false, "duration_ms": 1,
    });
    read("tool_call_result", &payload)
}

fn said() -> Event {
    let call = |id: &str| json!({"type": "call", "id": id, "name": "rye_execute", "input": {}});
    let message = json!({
        "role": "assistant", "origin": {"provider": "p", "model": "m"}, "blocks": [call("a"), call("b")], "stop": "calls",
    });
    let payload = json!({"turn": 1, "attempt": 1, "text": "", "message": message});
    read("cognition_out", &payload)
}

/// A higher limit is requested.
fn asked() -> Event {
    let payload =
        json!({"limit_code": "c", "current_value": "1", "current_max": "1", "proposed_max": "2"});
    read("limit_escalation_requested", &payload)
}

/// A message to the thread is queued, and its model receives it.
fn message() -> [(&'static str, Event); 2] {
    let queued = json!({"text": "m", "by": "me"});
    let heard = json!({"turn": 1, "source": "message", "text": "m"});
    [
        ("queued", read("message_queued", &queued)),
        ("heard", read("cognition_in", &heard)),
    ]
}

fn digest() -> String {
    "0".repeat(64)
}

fn failure() -> Value {
    json!({"code": "c", "message": "m", "retryable": false})
}

/// Builds events from words, names and payloads; each event gets its word as key.
fn worded(events: &[(&'static str, &str, Value)]) -> Vec<(&'static str, Event)> {
    events
        .iter()
        .map(|(word, name, payload)| (*word, read(name, payload)))
        .collect()
}

/// A thread starts, and receives its first texts.
fn beginnings() -> Vec<(&'static str, Event)> {
    let directive = json!({"kind": "directive", "id": "t/d"});
    worded(&[
        (
            "started",
            "thread_started",
            json!({"directive": directive, "provider": "p", "model": "m"}),
        ),
        ("system", "system_prompt", json!({"text": "t"})),
        (
            "composed",
            "prompt_composed",
            json!({"head": digest(), "tools": [], "bytes": 1}),
        ),
        (
            "told",
            "cognition_in",
            json!({"turn": 1, "source": "nudge", "text": "t"}),
        ),
    ])
}

/// The model is called, with or without success.
fn turns() -> Vec<(&'static str, Event)> {
    let turn = json!({"turn": 1, "attempt": 1, "now": Timestamp::from_ms(3), "input_tokens": 1, "max_output": 1024});
    let failed = json!({
        "turn": 1, "attempt": 1, "error": failure(), "classification": "transient", "pause_ms": 5,
    });
    let due = Timestamp::from_ms(9);
    worded(&[
        ("turn", "step_start", turn),
        (
            "thought",
            "cognition_reasoning",
            json!({"turn": 1, "text": "t"}),
        ),
        (
            "finished",
            "step_finish",
            json!({
                "turn": 1, "head": digest(), "tokens": 1, "calls": 2, "duration_ms": 1,
            }),
        ),
        ("failed", "error_classified", failed),
        (
            "retry",
            "turn_retry_scheduled",
            json!({"turn": 1, "attempt": 2, "due": due}),
        ),
        (
            "waiting",
            "turn_waiting",
            json!({"turn": 1, "attempt": 1, "waits": "provider", "until": due}),
        ),
        (
            "reseeded",
            "context_reseeded",
            json!({
                "turn": 1, "reason": "reasoning_rejected", "root": digest(), "bytes": 9,
                "tokens_before": 9, "tokens_after": 4, "kept_turns": 1,
            }),
        ),
        (
            "succeeded",
            "retry_succeeded",
            json!({"turn": 1, "attempts": 2}),
        ),
    ])
}

/// A thread returns and ends.
fn ends() -> Vec<(&'static str, Event)> {
    worded(&[
        (
            "returned",
            "directive_return",
            json!({"status": "success", "outputs": {}}),
        ),
        (
            "completed",
            "thread_completed",
            json!({"output": "o", "elapsed_ms": 1}),
        ),
        (
            "error",
            "thread_error",
            json!({"error": failure(), "elapsed_ms": 1}),
        ),
        (
            "cancelled",
            "thread_cancelled",
            json!({"cause": "c", "elapsed_ms": 1}),
        ),
    ])
}

/// Every event of a thread, under a unique name.
pub(super) fn events() -> Vec<(&'static str, Event)> {
    let part = json!([{"block": {"type": "text", "text": "t"}, "raw": "{}"}]);
    let mut all = [beginnings(), turns(), ends()].concat();
    all.extend(message());
    all.extend([("said", said()), ("asked", asked())]);
    all.push(("call", call(0, "a", &part)));
    all.push(("result", result(0, "a")));
    all
}

fn of(words: &[&str]) -> Run {
    let mut run = running(RunKind::Thread);
    let all = events();
    for word in words {
        let event = all.iter().find(|(name, _)| name == word).unwrap();
        take(&mut run, std::slice::from_ref(&event.1));
    }
    run
}

#[test]
fn thread_accepts_exactly_the_events_of_its_state() {
    const ALWAYS: &str = "completed error cancelled queued";
    let cases: [(&str, Run, &str); 10] = [
        ("created", fresh(RunKind::Thread), ""),
        ("composing", of(&[]), "started system told composed"),
        ("before", of(&["composed"]), "told turn asked waiting"),
        (
            "calling",
            of(&["composed", "turn"]),
            "thought succeeded said call failed returned",
        ),
        (
            "calling, a call under way",
            of(&["composed", "turn", "call"]),
            "thought succeeded said call result returned",
        ),
        (
            "acting",
            of(&["composed", "turn", "said"]),
            "thought succeeded call result returned",
        ),
        ("failed", of(&["composed", "turn", "failed"]), "retry"),
        (
            "returned",
            of(&["composed", "turn", "said", "returned"]),
            "thought succeeded call result",
        ),
        (
            "backoff",
            of(&["composed", "turn", "failed", "retry"]),
            "told asked",
        ),
        (
            "before, what was said is told",
            of(&["composed", "queued", "heard"]),
            "told turn asked waiting",
        ),
    ];
    for (place, run, own) in cases {
        let own = own
            .split_whitespace()
            .chain(ALWAYS.split_whitespace())
            .collect();
        assert_eq!(taken(&run), own, "{place}");
    }
}

/// The events of a thread that `run` accepts.
fn taken(run: &Run) -> BTreeSet<&'static str> {
    let events = events().into_iter().filter(|(word, event)| {
        let mut next = run.clone();
        let taken = next.apply(Timestamp::from_ms(20), event).is_ok();
        assert!(
            taken || next == *run,
            "{word}: it is refused and changes something"
        );
        taken
    });
    events.map(|(word, _)| word).collect()
}

#[test]
fn nothing_begins_or_completes_over_a_message_that_waits() {
    let waits = of(&["composed", "queued"]);
    let own = [
        "told",
        "heard",
        "queued",
        "error",
        "cancelled",
        "asked",
        "waiting",
    ];
    assert_eq!(taken(&waits), own.into());
    let acting = of(&["composed", "turn", "queued", "said"]);
    let own = "thought succeeded call result returned queued error cancelled";
    assert_eq!(taken(&acting), own.split_whitespace().collect());
    let returned = of(&["composed", "turn", "queued", "said", "returned"]);
    assert!(taken(&returned).contains("completed"));
}

#[test]
fn a_turn_is_over_when_every_call_has_an_answer() {
    let mut run = of(&["composed", "turn", "said", "result"]);
    let finished = events().into_iter().find(|(word, _)| *word == "finished");
    let (_, finished) = finished.unwrap();
    assert!(run.apply(Timestamp::from_ms(20), &finished).is_err());
    take(&mut run, &[result(1, "b"), finished]);
    let at = &run.thread().unwrap().at;
    assert!(
        matches!(at, At::Before(before) if before.turn == 2),
        "{at:?}"
    );
}

#[test]
fn a_call_keeps_its_place_when_the_message_is_complete() {
    let run = of(&["composed", "turn", "call", "said"]);
    let turn = run.thread().unwrap().turn().unwrap();
    let calls: Vec<_> = turn
        .calls
        .iter()
        .map(|call| (&*call.id, call.position))
        .collect();
    assert_eq!(calls, [("a", 0), ("b", 1)]);
    let attempts: Vec<_> = run.attempts().map(|attempt| attempt.id.slot).collect();
    assert_eq!(attempts, [Slot::Part(0)]);
}
