//! `thread run`, `thread validate`, `thread show` and `models`, and following threads.

use std::sync::Mutex;

use rye_proto::v1::{self, RunStatus};
use serde_json::json;

use super::ask;
use super::scripted::{Daemon, RUN, Script, event, run};

/// Scripts a thread that called one tool, reported its result, and ended with `status`.
fn script(status: RunStatus, output: &str) -> Script {
    let call = json!({"turn": 1, "position": 0, "call_id": "a", "tool": "rye_execute", "item": "tool:rye/bash", "input": {},
                      "attempt": 1, "effect": "idempotent", "key": "k"});
    let result = json!({"turn": 1, "position": 0, "call_id": "a", "output": "3", "is_error": false, "duration_ms": 400});
    let origin = json!({"provider": "p", "model": "m"});
    let message = json!({"role": "assistant", "origin": origin, "blocks": []});
    let said =
        json!({"turn": 1, "attempt": 1, "text": "I count them.\nOne moment.", "message": message});
    let end = if status == RunStatus::Completed {
        ("thread_completed", json!({"output": {}, "elapsed_ms": 9}))
    } else {
        let error = json!({"message": "it was refused", "code": "refused", "retryable": false});
        ("thread_error", json!({"error": error, "elapsed_ms": 9}))
    };
    let error = (status != RunStatus::Completed).then(|| v1::RunError {
        message: "it was refused".to_owned(),
        code: "refused".to_owned(),
        ..v1::RunError::default()
    });
    let record = v1::Run {
        item: Some(v1::ItemRef {
            r#type: v1::ItemType::Directive.into(),
            id: "x/count".to_owned(),
        }),
        kind: v1::RunKind::Thread.into(),
        state_json: String::new(),
        output_json: output.to_owned(),
        cost: Some(v1::Cost {
            turns: 2,
            input_tokens: 1200,
            output_tokens: 300,
            spend: "0.021500000".to_owned(),
            ..v1::Cost::default()
        }),
        error,
        ..run(status)
    };
    Script {
        run: Mutex::new(record),
        events: vec![
            event(1, "cognition_out", &said),
            event(2, "tool_call_start", &call),
            event(3, "tool_call_result", &result),
            event(4, end.0, &end.1),
        ],
        ..Script::default()
    }
}

/// Warning of the scripted daemon at each start.
const WARNING: &str = "warning: the input `z` is not declared\n";
/// Lines that are shown while the thread runs.
const PROGRESS: &str = "I count them.\nOne moment.\n[thread:x/count] turn 1 rye/bash ✓ 0.4s\n";

#[tokio::test(flavor = "multi_thread")]
async fn thread_stdout_has_outputs_and_stderr_progress_and_cost() {
    let outputs = r#"{"words":3,"summary":"Three words."}"#;
    for (verb, output, shown) in [
        ("thread run x/count", outputs, outputs),
        ("run directive:x/count", outputs, outputs),
        (
            "thread run x/count",
            r#""As text.\nTwo lines.""#,
            "As text.\nTwo lines.",
        ),
    ] {
        let daemon = Daemon::serve(script(RunStatus::Completed, output));
        let line = format!("{verb} -i path=a --model fast --limit turns=3 --limit duration=2m");
        let ended = ask(&daemon, &line.split(' ').collect::<Vec<_>>()).await;
        assert_eq!(ended.code, Some(0), "{}", ended.stderr);
        assert_eq!(ended.stdout, format!("{shown}\n"));
        let shown = ended.stderr.strip_prefix(WARNING).unwrap();
        let shown = shown.strip_prefix(&format!("run {RUN}\n")).unwrap();
        assert!(shown.starts_with(PROGRESS), "{}", ended.stderr);
        let cost = "cost: 0.0215 USD, turns 2, tokens 1200 in, 300 out\n";
        assert!(ended.stderr.ends_with(cost), "{}", ended.stderr);
        let request = daemon.script.started.lock().unwrap().clone().unwrap();
        let item = request.item.unwrap();
        assert_eq!(item.r#type, i32::from(v1::ItemType::Directive));
        assert_eq!((&*request.model, &*request.provider), ("fast", ""));
        let limits = request.limits.unwrap();
        assert_eq!((limits.turns, limits.duration_ms), (Some(3), Some(120_000)));
        assert_eq!(request.text_inputs["path"], "a");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thread_that_failed_prints_nothing_and_json_prints_the_record() {
    let daemon = Daemon::serve(script(RunStatus::Error, ""));
    let ended = ask(&daemon, &["thread", "run", "x/count"]).await;
    assert_eq!((ended.code, &*ended.stdout), (Some(1), ""));
    assert!(
        ended.stderr.contains("error: it was refused"),
        "{}",
        ended.stderr
    );
    let daemon = Daemon::serve(script(RunStatus::Completed, r#"{"words":3}"#));
    let ended = ask(&daemon, &["thread", "run", "x/count", "--json", "--quiet"]).await;
    let record = ended.json();
    assert_eq!(
        (&record["kind"], &record["run_id"]),
        (&json!("thread"), &json!(RUN))
    );
    let (outputs, others) = (&record["outputs"], (&record["output"], &record["result"]));
    assert_eq!(
        (outputs, others),
        (&json!({"words": 3}), (&json!(null), &json!(null)))
    );
    assert_eq!(ended.stderr, WARNING, "nothing else is told");
    let daemon = Daemon::serve(script(RunStatus::Completed, ""));
    let ended = ask(&daemon, &["thread", "run", "x/count", "--detach"]).await;
    assert_eq!((ended.code, ended.stdout), (Some(0), format!("{RUN}\n")));
}

#[tokio::test(flavor = "multi_thread")]
async fn thread_validate_reports_findings_without_nodes() {
    let report = v1::ValidateResponse {
        success: false,
        errors: vec![v1::Finding {
            code: "unknown_element".to_owned(),
            message: "there is none".to_owned(),
            line: 7,
            column: 1,
            ..v1::Finding::default()
        }],
        path: "/p/count.md".to_owned(),
        ..v1::ValidateResponse::default()
    };
    let script = Script {
        report,
        ..script(RunStatus::Completed, "")
    };
    let daemon = Daemon::serve(script);
    let ended = ask(&daemon, &["thread", "validate", "x/count"]).await;
    assert_eq!(ended.code, Some(1));
    let line = "/p/count.md:7:1: there is none [unknown_element]\n";
    assert_eq!(ended.stdout, line);
    assert_eq!(ended.stderr, "/p/count.md: 1 error\n");
}

/// Makes a delta of the model's text before the event `before`.
fn text_delta(before: u64, kind: v1::DeltaKind, text: &str) -> (u64, v1::Delta) {
    let delta = v1::Delta {
        run_id: RUN.to_owned(),
        turn: 1,
        attempt: 1,
        kind: kind.into(),
        text: text.to_owned(),
        ..v1::Delta::default()
    };
    (before, delta)
}

#[tokio::test(flavor = "multi_thread")]
async fn streamed_text_is_not_printed_again() {
    let deltas = vec![
        text_delta(1, v1::DeltaKind::Thinking, "Hm."),
        text_delta(1, v1::DeltaKind::Text, "I count "),
        text_delta(1, v1::DeltaKind::CallArgs, "{}"),
        text_delta(1, v1::DeltaKind::Text, "them.\nOne"),
    ];
    let script = || Script {
        deltas: deltas.clone(),
        ..script(RunStatus::Completed, "")
    };
    let daemon = Daemon::serve(script());
    for line in ["thread run x/count", &format!("attach {RUN}")] {
        let ended = ask(&daemon, &line.split(' ').collect::<Vec<_>>()).await;
        assert_eq!(ended.code, Some(0), "{}", ended.stderr);
        let shown = ended.stderr.strip_prefix(WARNING);
        let shown = shown.unwrap_or(&ended.stderr);
        let shown = shown.strip_prefix(&format!("run {RUN}\n")).unwrap();
        assert!(shown.starts_with(PROGRESS), "{}", ended.stderr);
    }
    let quiet = ask(&daemon, &["attach", RUN, "--quiet"]).await;
    assert!(!quiet.stderr.contains("One moment"), "{}", quiet.stderr);
}

#[tokio::test(flavor = "multi_thread")]
async fn retracted_text_is_noted_and_next_text_is_whole() {
    let deltas = vec![
        text_delta(1, v1::DeltaKind::Text, "I guess"),
        text_delta(1, v1::DeltaKind::Reset, ""),
    ];
    let script = Script {
        deltas,
        ..script(RunStatus::Completed, "")
    };
    let daemon = Daemon::serve(script);
    let ended = ask(&daemon, &["thread", "run", "x/count"]).await;
    let shown = ended.stderr.strip_prefix(WARNING).unwrap();
    let shown = shown.strip_prefix(&format!("run {RUN}\n")).unwrap();
    let broke_off = "[thread:x/count] turn 1 the answer broke off";
    let expected = format!("I guess\n{broke_off}\n{PROGRESS}");
    assert!(shown.starts_with(&expected), "{shown}");
}

#[tokio::test(flavor = "multi_thread")]
async fn deltas_are_objects_of_the_stream_in_json_and_text_on_stderr() {
    let deltas = vec![
        text_delta(2, v1::DeltaKind::Text, "Hel"),
        text_delta(2, v1::DeltaKind::Text, "lo"),
    ];
    let script = Script {
        deltas,
        ..script(RunStatus::Completed, "")
    };
    let daemon = Daemon::serve(script);
    let ended = ask(&daemon, &["events", RUN, "--follow", "--deltas", "--json"]).await;
    let lines: Vec<serde_json::Value> = ended
        .stdout
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let delta = json!({"delta": {"run_id": RUN, "turn": 1, "attempt": 1, "kind": "text", "position": 0, "text": "Hel",
                                 "left_out": 0}});
    assert_eq!(lines[1], delta);
    assert_eq!(lines.len(), 6);
    let ended = ask(&daemon, &["events", RUN, "--follow", "--deltas"]).await;
    assert_eq!(ended.stderr, "Hello\n");
    assert_eq!(ended.stdout.lines().count(), 4);
    let ended = ask(&daemon, &["events", RUN, "--follow", "--json"]).await;
    assert_eq!(ended.stdout.lines().count(), 4, "only who asks is told");
    let ended = ask(&daemon, &["events", RUN, "--deltas"]).await;
    assert_eq!(ended.code, Some(2));
}

/// Makes a model with prices.
fn model(id: &str, input: &str) -> v1::Model {
    v1::Model {
        id: id.to_owned(),
        window: 200_000,
        max_output: 64_000,
        tools: true,
        prices: vec![v1::ModelPrice {
            input: input.to_owned(),
            cache_read: "0.100000000".to_owned(),
            cache_write: "1.250000000".to_owned(),
            output: "5.000000000".to_owned(),
            ..v1::ModelPrice::default()
        }],
        ..v1::Model::default()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn models_are_listed_with_what_is_missing_to_use_them() {
    let models = v1::ModelsResponse {
        providers: vec![
            v1::Provider {
                name: "here".to_owned(),
                api: "anthropic".to_owned(),
                as_of: "2026-11-20".to_owned(),
                models: vec![model("good", "2.000000000")],
                ..v1::Provider::default()
            },
            v1::Provider {
                name: "there".to_owned(),
                lacks: "the secret KEY: set it".to_owned(),
                models: vec![model("other", "0.125000000")],
                ..v1::Provider::default()
            },
        ],
        tiers: vec![v1::ModelTier {
            name: "fast".to_owned(),
            models: vec!["here/good".to_owned()],
        }],
        default_tier: "fast".to_owned(),
        warnings: vec!["the prices of `there` are old".to_owned()],
        ..v1::ModelsResponse::default()
    };
    let script = Script {
        models,
        ..script(RunStatus::Completed, "")
    };
    let daemon = Daemon::serve(script);
    let shown = ask(&daemon, &["models"]).await;
    let lines: Vec<Vec<&str>> = shown
        .stdout
        .lines()
        .map(|line| line.split_whitespace().collect())
        .collect();
    assert_eq!(
        lines[1],
        ["here/good", "-", "fast", "200000", "2.00", "5.00", "usable"]
    );
    assert_eq!(
        lines[2],
        [
            "there/other",
            "-",
            "-",
            "200000",
            "0.125",
            "5.00",
            "no",
            "key"
        ]
    );
    let told = "there needs the secret KEY: set it\nwarning: the prices of `there` are old\n";
    assert_eq!(shown.stderr, told);
    let json = ask(&daemon, &["models", "--json"]).await.json();
    assert_eq!(json["providers"][0]["usable"], true);
    assert_eq!(json["providers"][1]["lacks"], "the secret KEY: set it");
    assert_eq!(json["tiers"], json!({"fast": ["here/good"]}));
    assert_eq!(
        json["providers"][0]["models"][0]["prices"][0]["input"],
        "2.000000000"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn thread_show_prints_preview() {
    let preview = v1::PreviewResponse {
        system: "You count.".to_owned(),
        message: "Count it.".to_owned(),
        provider: "here".to_owned(),
        model: Some(model("good", "2.000000000")),
        limits: Some(v1::Limits {
            turns: Some(25),
            spend: Some("1.000000000".to_owned()),
            duration_ms: Some(1_800_000),
            ..v1::Limits::default()
        }),
        tools: vec![v1::OfferedTool {
            name: "rye_execute".to_owned(),
            schema_json: "{}".to_owned(),
            ..v1::OfferedTool::default()
        }],
        input_tokens: 300,
        max_output: 16_384,
        hold: "0.165200000".to_owned(),
        warnings: vec!["`{input:x}` stays".to_owned()],
        ..v1::PreviewResponse::default()
    };
    let script = Script {
        preview,
        ..script(RunStatus::Completed, "")
    };
    let daemon = Daemon::serve(script);
    let shown = ask(&daemon, &["thread", "show", "x/count", "-i", "path=a"]).await;
    for part in [
        "here/good",
        "2.00 in, 5.00 out",
        "turns 25, spend 1.00 USD, duration 30m00s",
        "about 300 tokens in, at most 16384 out; 0.1652 USD are held for it",
        "── system prompt ──\nYou count.",
        "── first message ──\nCount it.",
    ] {
        assert!(shown.stdout.contains(part), "`{part}`: {}", shown.stdout);
    }
    assert_eq!(shown.stderr, "warning: `{input:x}` stays\n");
    let seen = daemon.script.requests.lock().unwrap().clone();
    assert_eq!(seen.last().unwrap(), "preview {\"path\": \"a\"}");
    let json = ask(&daemon, &["thread", "show", "x/count", "--json"])
        .await
        .json();
    assert_eq!(json["first_call"]["hold"], "0.165200000");
    assert_eq!(
        (&json["limits"]["turns"], &json["too_small"]),
        (&json!(25), &json!(null))
    );
}
