//! The stored form of runs in every state.
//!
//! A change of the form fails here. Before the first release `UPDATE_FIXTURES=1` writes the files again, and each
//! changed line is reviewed. After it, the changed form gets a new version in `stored`, and the old files stay and are
//! still read.

use std::fs;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use rye_core::clock::Timestamp;
use rye_core::id::{Epoch, Lsn, Seq};
use rye_core::ledger::{Account, AccountId, CallNo, Hold, Meter, MeterId, Metered, Rows, Usage};
use rye_core::model::{
    Event, Extent, GraphTask, HealthCheck, HttpProbe, PortChoice, PortRef, Probe, ProcessSpec,
    Readiness, RestartPolicy, Run, Spec, StartFrom, Task, ThreadSource,
};
use rye_core::money::Usd;
use rye_core::state::Closed;
use rye_core::transcript::Head;
use serde_json::{Value, json};

use crate::base::{BaseHead, Span, Stored};
use crate::record::stored;
use crate::testing::*;

pub(super) fn event(name: &str, payload: &Value) -> Event {
    Event::read(name, &payload.to_string()).unwrap()
}

fn at(number: i64) -> Timestamp {
    Timestamp::from_ms(1_700_000_000_000 + number)
}

fn spec(task: Task) -> Spec {
    Spec {
        task,
        project: "/p".into(),
        files: "/p/.ai".into(),
        ..Rig::new().spec(&id("run-a"))
    }
}

pub(super) fn walked(start_from: Option<StartFrom>) -> Task {
    Task::Graph(GraphTask {
        source: graph(),
        start_from: start_from.map(Arc::new),
    })
}

fn thread_task() -> Task {
    Task::Thread(ThreadSource {
        carried: None,
        text: "# D".into(),
        contract: "{}".into(),
    })
}

fn process_task() -> Task {
    Task::Process(Arc::new(ProcessSpec {
        name: "server".into(),
        command: "serve".into(),
        args: Some(vec!["--port".into(), "1".into()]),
        cwd: Some("web".into()),
        env: [("A".to_owned(), "b".to_owned())].into(),
        ready: Readiness::Pattern("listening".into()),
        ready_timeout_ms: 30_000,
        restart: RestartPolicy::OnFailure,
        max_restarts: 5,
        grace_ms: 5_000,
        survive: false,
        ports: [
            ("http".to_owned(), PortChoice::Auto),
            ("admin".to_owned(), PortChoice::Fixed(9000)),
        ]
        .into(),
        healthy: Some(HealthCheck {
            probe: Probe::Http(HttpProbe {
                path: "/health".into(),
                port: PortRef::Named("http".into()),
                status: vec![200],
            }),
            every_ms: 10_000,
            timeout_ms: 2_000,
            failures: 3,
        }),
        isolation: None,
        mcp: None,
        watch: Vec::new(),
        resources: rye_core::model::Resources::default(),
    }))
}

/// The record of a managed process with these events after its start.
fn managed(events: &[Event]) -> Stored {
    run(process_task(), &[&[owned()], events].concat())
}

fn launched() -> Event {
    let ports = json!({"admin": 9000, "http": 20_000});
    event(
        "process_launched",
        &json!({"attempt": 1, "key": "k", "ports": ports}),
    )
}

fn process_ready() -> Event {
    let ready = json!({"attempt": 1, "by": "pattern", "after_ms": 7});
    event("process_ready", &ready)
}

fn process_unready() -> Event {
    let why = json!({"code": "port_foreign", "port": 9000, "pid": 8, "comm": "x"});
    event("process_unready", &json!({"attempt": 1, "why": why}))
}

fn watch_changed() -> Event {
    let rules = [
        json!({"id": "errors", "match": "^E", "max_per_minute": 60}),
        json!({"id": "done", "match": "done", "once": true, "max_per_minute": 1}),
    ];
    event(
        "process_watch_changed",
        &json!({"rules": rules, "from": "0.0"}),
    )
}

fn watched() -> Event {
    let minute = json!({"from": at(5), "matched": 3});
    event(
        "process_watched",
        &json!({
            "rule": "errors", "from": "0.0", "to": "1.90", "lines": 1, "matched": 3, "suppressed": 3, "minute": minute,
        }),
    )
}

fn process_frozen() -> Event {
    event("process_frozen", &json!({"attempt": 1, "by": "uid:0"}))
}

fn restart_asked() -> Event {
    event("process_restart_requested", &json!({"by": "uid:0"}))
}

fn process_end() -> Value {
    json!({
        "exit_code": 1, "cause": "exited", "wall_ms": 3, "cpu_ms": 2, "stdout_bytes": 1, "stderr_bytes": 0,
    })
}

fn exited() -> Event {
    event("process_exited", &json!({"step": 1, "end": process_end()}))
}

fn rescheduled() -> Event {
    let payload =
        json!({"attempt": 2, "because": "failed", "failures": 1, "due": at(9), "error": failure()});
    event("process_restart_scheduled", &payload)
}

fn process_ended() -> Event {
    let payload = json!({"restarts": 0, "end": process_end(), "error": failure(), "elapsed_ms": 4});
    event("process_ended", &payload)
}

/// The record of a run with these events.
pub(super) fn run(task: Task, events: &[Event]) -> Stored {
    record(spec(task), events)
}

fn record(spec: Spec, events: &[Event]) -> Stored {
    let mut run = Run::create(id("run-a"), at(0), Arc::new(spec));
    for (event, number) in events.iter().zip(1..) {
        run.apply(at(number), event).unwrap();
    }
    let head = Head {
        seq: run.seq,
        bytes: 7,
        ..Head::default()
    };
    let run = Arc::new(run);
    Stored {
        run,
        head,
        closed: Closed::default(),
        spans: Vec::new(),
    }
}

pub(super) fn owned() -> Event {
    event("run_started", &json!({"epoch": 1}))
}

/// The record of a graph run with these events after its start.
fn walk(events: &[Event]) -> Stored {
    let state = json!({"graph_id": "demo/graph", "graph_run_id": "run-a", "start_node": "n", "state": {"a": 1}});
    let start = [owned(), event("graph_started", &state)];
    run(walked(None), &[&start, events].concat())
}

fn step(items: Option<u32>) -> Event {
    let payload = json!({
        "step": 1, "node": "n", "visit": 0, "attempt": 1, "action_id": "tool:x", "effect": "at_most_once",
        "key": "k", "now": at(2), "items": items, "child": "run-b", "node_input_hash": "h",
    });
    event("step_started", &payload)
}

fn service() -> Event {
    event("service_started", &json!({"node": "a", "handle": "p-1-a"}))
}

fn waited() -> Event {
    event(
        "process_waited",
        &json!({"handle": "p-1-a", "cursor": "1.5"}),
    )
}

fn process() -> Event {
    let process = json!({"pid": 7, "start_time": 8, "boot_id": "boot"});
    event("process_started", &json!({"step": 1, "process": process}))
}

fn item(number: u32) -> Event {
    let payload = json!({
        "step": 1, "node": "n", "item": number, "attempt": 1, "action_id": "tool:x", "effect": "idempotent", "key": "ki",
    });
    event("item_started", &payload)
}

fn item_done(number: u32, error: &Value) -> Event {
    let payload = json!({
        "step": 1, "node": "n", "item": number, "status": "error", "elapsed_ms": 1, "result": {"i": number},
        "error": error, "suppressed": !error.is_null(),
    });
    event("item_completed", &payload)
}

fn failure() -> Value {
    json!({"code": "c", "message": "m", "node": "n", "retryable": true})
}

fn failed() -> Event {
    let payload = json!({
        "step": 1, "node": "n", "visit": 0, "attempt": 1, "now": at(2), "error": failure(), "result": {"a": 1},
        "classification": {"category": "transient"}, "repeatable": true,
    });
    event("step_failed", &payload)
}

fn hooks() -> Event {
    let payload =
        json!({"event": "error", "hooks": [0, 1], "context": {"node": "n"}, "now": at(3)});
    event("hooks_begun", &payload)
}

/// A node waits until a time, or for an answer.
fn waits(what: &str) -> Event {
    let waits = match what {
        "until" => json!({"until": {"at": at(60_000), "delay_ms": 60_000}}),
        what => json!(what),
    };
    event(
        "step_waiting",
        &json!({"step": 1, "node": "n", "visit": 0, "attempt": 1, "now": at(0), "waits": waits}),
    )
}

fn asks() -> Event {
    event(
        "approval_requested",
        &json!({"id": "a4", "kind": "node", "message": "Go on?", "schema": {"type": "object"}, "node": "n", "step": 1,
                "created_at": at(0), "expires_at": at(60_000)}),
    )
}

fn retry() -> Event {
    let payload =
        json!({"step": 1, "node": "n", "attempt": 2, "retries": 1, "due": at(9), "by": "node"});
    event("retry_scheduled", &payload)
}

/// A failed item is tried again.
fn item_retry(number: u32) -> Event {
    let payload = json!({
        "step": 1, "node": "n", "item": number, "attempt": 2, "retries": 1, "due": at(9), "by": "node", "error": failure(),
    });
    event("retry_scheduled", &payload)
}

fn ending() -> Event {
    let outcome = json!({"status": "error", "error": failure()});
    event("graph_ending", &json!({"outcome": outcome}))
}

fn done() -> Event {
    let payload = json!({
        "step": 1, "node": "n", "status": "ok", "elapsed_ms": 1, "next_node": "m", "assigned": {"a": 2},
        "action_id": "tool:x", "result": {"r": 1},
    });
    event("step_completed", &payload)
}

fn end() -> Event {
    let payload =
        json!({"status": "completed", "steps": 1, "elapsed_ms": 5, "output": {"done": true}});
    event("graph_completed", &payload)
}

fn call() -> [Event; 3] {
    [owned(), step(None), process()]
}

fn answered() -> Event {
    event(
        "tool_completed",
        &json!({"result": {"r": 1}, "elapsed_ms": 4}),
    )
}

fn suspended() -> Event {
    event(
        "run_suspended",
        &json!({"reason": "limit", "code": "steps", "current": "1", "max": "1"}),
    )
}

/// The record of a run that continues one whose step had failed.
fn continues() -> Stored {
    let before = walk(&[step(None), failed()]).run;
    let start_from = StartFrom {
        node: "n".into(),
        state: before.graph().unwrap().clone(),
        left: None,
        then: None,
        extent: Extent::Rest,
    };
    let spec = Spec {
        continuation_of: Some(id("run-0")),
        spawned: before.spawn_count,
        ..spec(walked(Some(start_from)))
    };
    record(spec, &[owned()])
}

/// The record of a thread with these events after its prompt.
fn thread(events: &[Event]) -> Stored {
    let composed = json!({"head": "0".repeat(64), "tools": ["rye_execute"], "bytes": 100});
    let start = [owned(), event("prompt_composed", &composed)];
    run(thread_task(), &[&start, events].concat())
}

fn nudged() -> Event {
    event(
        "cognition_in",
        &json!({"turn": 1, "source": "nudge", "text": "Return it."}),
    )
}

fn lines_queued() -> Event {
    event(
        "message_queued",
        &json!({
            "text": "", "by": "the process web-1-a", "id": "0123456789abcdef", "process": "web-1-a", "rule": "errors",
            "lines": ["Error: <b>"], "more": 2, "suppressed": 3,
        }),
    )
}

fn message_queued() -> Event {
    event(
        "message_queued",
        &json!({"text": "Be quick.", "by": "uid:0"}),
    )
}

fn turn() -> [Event; 2] {
    let begun =
        json!({"turn": 1, "attempt": 1, "now": at(4), "input_tokens": 40, "max_output": 4096});
    let held =
        json!({"call": 1, "amount": "0.010000000", "model": "m", "input": 40, "max_output": 4096});
    [event("step_start", &begun), event("budget_held", &held)]
}

fn call_started(position: u32) -> Event {
    let id = format!("c{position}");
    let input = json!({"item_id": "rye/bash"});
    let block = json!({"type": "call", "id": id, "name": "rye_execute", "input": input});
    let payload = json!({
        "turn": 1, "position": position, "call_id": id, "tool": "rye_execute", "item": "tool:rye/bash", "input": input,
        "attempt": 1, "effect": "idempotent", "undeclared": true, "key": "k", "parts": [{"block": block, "raw": "{}"}],
    });
    event("tool_call_start", &payload)
}

fn model_answered() -> [Event; 2] {
    let call = |id: &str| json!({"type": "call", "id": id, "name": "rye_execute", "input": {"item_id": "rye/bash"}});
    let message = json!({
        "role": "assistant", "origin": {"provider": "p", "model": "m"}, "raw": "[]", "stop": "calls",
        "blocks": [{"type": "text", "text": "Look."}, call("c0"), call("c1"), call("c2")],
    });
    let usage = json!({"money": "0.000100000", "calls": 1, "turns": 1, "input": 100, "output": 10});
    let out = json!({
        "turn": 1, "attempt": 1, "text": "Look.", "message": message, "usage": usage, "request_id": "r",
    });
    let settled = json!({
        "call": 1, "amount": "0.010000000", "usage": usage, "estimated": false, "because": "usage",
    });
    [
        event("cognition_out", &out),
        event("budget_settled", &settled),
    ]
}

fn call_ended() -> Event {
    let payload = json!({
        "turn": 1, "position": 0, "call_id": "c0", "output": "done", "is_error": false, "duration_ms": 3,
    });
    event("tool_call_result", &payload)
}

fn model_failed() -> Event {
    let payload = json!({
        "turn": 1, "attempt": 1, "error": failure(), "classification": "rate_limited", "pause_ms": 100,
    });
    event("error_classified", &payload)
}

/// The record of a thread that returned its outputs.
fn thread_ended() -> Stored {
    let returned = json!({"status": "success", "outputs": {"words": 4}});
    let end = [
        event("directive_return", &returned),
        event(
            "thread_completed",
            &json!({"output": {"words": 4}, "elapsed_ms": 9}),
        ),
    ];
    thread(&[&turn()[..], &model_answered(), &end].concat())
}

/// A run in every state.
fn records() -> Vec<(&'static str, Stored)> {
    let null = Value::Null;
    let items = [step(Some(3)), item(0), item(1), item_done(0, &null)];
    let retrying = [&items[..], &[item_retry(1), item(2)]].concat();
    let some_failed = [&items[..], &[item_done(1, &failure()), item(2)]].concat();
    vec![
        ("graph_created", run(walked(None), &[])),
        ("graph_new", run(walked(None), &[owned()])),
        ("graph_continues", continues()),
        ("graph_between", walk(&[step(None), done()])),
        ("graph_service", walk(&[step(None), service(), waited()])),
        ("graph_step", walk(&[step(None), process()])),
        ("graph_foreach", walk(&some_failed)),
        ("graph_item_backoff", walk(&retrying)),
        ("graph_failed", walk(&[step(None), failed()])),
        ("graph_hooks", walk(&[step(None), failed(), hooks()])),
        ("graph_backoff", walk(&[step(None), failed(), retry()])),
        ("graph_waiting", walk(&[waits("until")])),
        (
            "graph_asking",
            walk(&[waits("answer"), asks(), suspended()]),
        ),
        ("graph_ending", walk(&[step(None), failed(), ending()])),
        ("graph_suspended", walk(&[step(None), done(), suspended()])),
        ("graph_ended", walk(&[step(None), done(), end()])),
        ("thread_composing", run(thread_task(), &[owned()])),
        (
            "thread_before",
            thread(&[nudged(), message_queued(), lines_queued()]),
        ),
        (
            "thread_calling",
            thread(&[&[nudged()][..], &turn(), &[call_started(0)]].concat()),
        ),
        (
            "thread_acting",
            thread(
                &[
                    &turn()[..],
                    &[call_started(0), call_started(1)],
                    &model_answered(),
                    &[call_ended()],
                ]
                .concat(),
            ),
        ),
        (
            "thread_failed",
            thread(&[&turn()[..], &[model_failed()]].concat()),
        ),
        (
            "thread_backoff",
            thread(
                &[
                    &turn()[..],
                    &[
                        model_failed(),
                        event(
                            "turn_retry_scheduled",
                            &json!({"turn": 1, "attempt": 2, "due": at(9)}),
                        ),
                    ],
                ]
                .concat(),
            ),
        ),
        (
            "thread_waiting",
            thread(&[event(
                "turn_waiting",
                &json!({"turn": 1, "attempt": 1, "waits": "provider", "until": at(9)}),
            )]),
        ),
        ("thread_ended", thread_ended()),
        ("tool_calling", run(Task::Tool, &call())),
        (
            "tool_ended",
            run(Task::Tool, &[&call()[..], &[answered()]].concat()),
        ),
    ]
}

fn processes() -> Vec<(&'static str, Stored)> {
    vec![
        ("process_new", run(process_task(), &[owned()])),
        ("process_starting", managed(&[launched(), process()])),
        ("process_unready", managed(&[launched(), process_unready()])),
        ("process_frozen", managed(&[launched(), process_frozen()])),
        (
            "process_up",
            managed(&[launched(), process(), process_ready(), restart_asked()]),
        ),
        (
            "process_watching",
            managed(&[watch_changed(), launched(), watched()]),
        ),
        (
            "process_paused",
            managed(&[launched(), exited(), rescheduled()]),
        ),
        (
            "process_ended",
            managed(&[launched(), exited(), process_ended()]),
        ),
    ]
}

/// Asserts that `written` is the content of the file, and that the file is decoded to `record`.
fn assert_form<T: serde::de::DeserializeOwned + std::fmt::Debug>(
    name: &str,
    record: &T,
    written: &[u8],
) {
    let directory = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/data/stored");
    let path = directory.join(name).with_extension("json");
    let document: Value = serde_json::from_slice(written).unwrap();
    let mut text = serde_json::to_string_pretty(&document).unwrap();
    text.push('\n');
    if std::env::var_os("UPDATE_FIXTURES").is_some() {
        fs::create_dir_all(&directory).unwrap();
        fs::write(&path, &text).unwrap();
    }
    let known = fs::read_to_string(&path).unwrap();
    assert!(known == text, "the form of `{name}` has changed: {text}");
    let read: T = stored::read(known.as_bytes()).unwrap();
    assert_eq!(format!("{read:?}"), format!("{record:?}"), "{name}");
}

/// An account with every stored field set.
fn account() -> Account {
    let usage = |nanos| Usage {
        money: Usd::from_nanos(nanos),
        calls: 2,
        turns: 1,
        input: 30,
        output: 4,
        cache_read: 5,
        cache_write: 6,
        reasoning: 3,
    };
    Account {
        parent: Some(AccountId(id("run-0"))),
        limit: Some(Usd::from_nanos(1_000_000_000)),
        own: usage(250_000_000),
        estimated: Usd::from_nanos(1),
        closed: usage(100_000_000),
        closed_estimated: Usd::from_nanos(2),
        hold: Some(Hold {
            call: CallNo(3),
            amount: Usd::from_nanos(50_000_000),
            meters: vec![Metered {
                id: MeterId("day/2026-11-22".to_owned()),
                limit: Usd::from_nanos(2_000_000_000),
            }],
        }),
        calls: CallNo(3),
        below: 1,
        open: Usd::from_nanos(10_000_000),
        open_floor: Usd::from_nanos(5_000_000),
        ended: true,
    }
}

fn meter() -> Meter {
    Meter {
        spent: Usd::from_nanos(350_000_000),
        held: Usd::from_nanos(50_000_000),
    }
}

#[test]
fn an_ended_run_is_stored_with_the_accounts_its_end_closed() {
    let mut record = run(Task::Tool, &[]);
    record.closed = [(AccountId(id("run-a")), account())].into();
    let span = |first, lsn| Span {
        first: Seq(first),
        lsn: Lsn(lsn),
    };
    record.spans = vec![span(1, 7), span(3, 900)];
    assert_form("closes_accounts", &record, &stored::write(&record).unwrap());
}

#[test]
fn stored_records_match_fixtures() {
    for (name, record) in records().into_iter().chain(processes()) {
        assert_form(name, &record, &stored::write(&record).unwrap());
    }
    let base = BaseHead {
        lsn: Lsn(9),
        epoch: Epoch(3),
        history: Some((1, 4096)),
        runs: 1,
        ledger: Rows {
            open: [(AccountId(id("run-a")), account())].into(),
            meters: [(MeterId("day/2026-11-22".to_owned()), meter())].into(),
            ..Rows::default()
        },
    };
    assert_form("base", &base, &stored::write(&base).unwrap());
}

#[test]
fn later_record_version_is_unsupported_not_damage() {
    for later in [r#"{"v":2}"#, r#"{"v":2,"record":7,"more":[1]}"#] {
        let error = stored::read::<Stored>(later.as_bytes()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::Unsupported);
        assert!(error.to_string().contains("form 2"), "{error}");
    }
    for damaged in ["", "{}", r#"{"v":1}"#, r#"{"v":1,"record":{}}"#] {
        let error = stored::read::<Stored>(damaged.as_bytes()).unwrap_err();
        assert_ne!(error.kind(), io::ErrorKind::Unsupported, "{damaged}");
    }
}
