use serde_json::{Value, json};

use crate::v1;

fn run() -> v1::Run {
    v1::Run {
        run_id: "g-1-a".to_owned(),
        item: Some(v1::ItemRef {
            r#type: v1::ItemType::Tool.into(),
            id: "x/g".to_owned(),
        }),
        kind: v1::RunKind::Graph.into(),
        status: v1::RunStatus::Completed.into(),
        project: "/p".to_owned(),
        state_json: r#"{"z":1,"a":18446744073709551615,"inputs":{}}"#.to_owned(),
        output_json: r#"{"n":1}"#.to_owned(),
        steps: 3,
        spawn_count: 4,
        started_at: Some(prost_types::Timestamp {
            seconds: 1_771_840_801,
            nanos: 234_000_000,
        }),
        ..v1::Run::default()
    }
}

#[test]
fn run_json_has_exact_fields_in_order() {
    assert_eq!(
        serde_json::to_string(&run()).unwrap(),
        concat!(
            r#"{"run_id":"g-1-a","item_id":"x/g","kind":"graph","status":"completed","parent_id":null,"#,
            r#""project":"/p","success":true,"state":{"z":1,"a":18446744073709551615,"inputs":{}},"#,
            r#""output":{"n":1},"steps":3,"outputs":null,"result":null,"error":null,"errors_suppressed":0,"#,
            r#""errors":[],"suspend":null,"cost":{"turns":0,"input_tokens":0,"output_tokens":0,"#,
            r#""cache_read_tokens":0,"cache_write_tokens":0,"reasoning_tokens":0,"spend":"0.000000000","#,
            r#""estimated":false},"spawn_count":4,"cancel":null,"started_at":"2026-02-23T10:00:01.234Z","ended_at":null,"#,
            r#""continuation_of":null,"continued_by":null,"model":null,"provider":null}"#
        )
    );
}

#[test]
fn errors_and_suspensions_name_every_field() {
    let record = v1::Run {
        status: v1::RunStatus::Suspended.into(),
        error: Some(v1::RunError {
            message: "no".to_owned(),
            code: "node_error".to_owned(),
            ..v1::RunError::default()
        }),
        errors: vec![v1::SuppressedError {
            step: 2,
            node: "n".to_owned(),
            error: "e".to_owned(),
        }],
        suspend: Some(v1::Suspension {
            reason: "restart".to_owned(),
            ..v1::Suspension::default()
        }),
        ..run()
    };
    let value = serde_json::to_value(&record).unwrap();
    assert_eq!(
        value["error"].to_string(),
        r#"{"message":"no","node":null,"code":"node_error","class":null,"retryable":false}"#
    );
    assert_eq!(
        value["suspend"].to_string(),
        r#"{"reason":"restart","code":null,"current":null,"max":null,"node":null,"child":null,"uncertain":[]}"#
    );
    assert_eq!(
        value["errors"].to_string(),
        r#"[{"step":2,"node":"n","error":"e"}]"#
    );
    assert_eq!(value["success"], Value::Null);
}

#[test]
fn limit_json_has_numbers_and_decimal_money() {
    let suspend = |current: &str, max: &str| {
        let suspend = v1::Suspension {
            current: current.to_owned(),
            max: max.to_owned(),
            ..v1::Suspension::default()
        };
        let value = serde_json::to_value(&suspend).unwrap();
        (value["current"].clone(), value["max"].clone())
    };
    assert_eq!(suspend("8", "9"), (json!(8), json!(9)));
    assert_eq!(
        suspend("0.500000000", "1.000000000"),
        (json!("0.500000000"), json!("1.000000000"))
    );
    assert_eq!(suspend("", ""), (Value::Null, Value::Null));
}

#[test]
fn malformed_json_of_the_daemon_is_named() {
    let broken = v1::Run {
        state_json: "{".to_owned(),
        ..run()
    };
    let error = serde_json::to_string(&broken).unwrap_err();
    assert!(error.to_string().contains("`state_json`"), "{error}");
}

#[test]
fn kill_receipt_json_has_exact_fields() {
    let receipt = v1::KillReceipt {
        processes: vec![v1::EndedProcess {
            pid: 7,
            comm: "sleep".to_owned(),
            signal: Some(9),
            exit: None,
        }],
        survivors: vec![],
        run_id: "r".to_owned(),
        below: vec![v1::KillReceipt {
            run_id: "c".to_owned(),
            complete: true,
            ..v1::KillReceipt::default()
        }],
        complete: false,
        adopted: vec![v1::AdoptedProcess {
            pid: 8,
            comm: "sh".to_owned(),
        }],
    };
    assert_eq!(
        serde_json::to_string(&receipt).unwrap(),
        concat!(
            r#"{"run_id":"r","processes":[{"pid":7,"comm":"sleep","signal":9,"exit":null}],"survivors":[],"#,
            r#""below":[{"run_id":"c","processes":[],"survivors":[],"below":[],"complete":true,"adopted":[]}],"#,
            r#""complete":false,"adopted":[{"pid":8,"comm":"sh"}]}"#
        )
    );
}

#[test]
fn a_budget_has_its_money_as_text_and_names_a_malformed_amount() {
    let budget = |max: Option<&str>| v1::Budget {
        run_id: "r".to_owned(),
        account: "g-1-a".to_owned(),
        max: max.map(str::to_owned),
        reserved: "1.000000000".to_owned(),
        held: "0.100000000".to_owned(),
        own: "0.020000000".to_owned(),
        actual: "0.021500000".to_owned(),
        remaining: max.map(|_| "0.878500000".to_owned()),
        overrun: "0.000000000".to_owned(),
        estimated: true,
        state: "open".to_owned(),
        used: "0.121500000".to_owned(),
        ..v1::Budget::default()
    };
    let answer = v1::GetBudgetResponse {
        path: vec![budget(Some("1.000000000"))],
        meters: vec![
            v1::Meter {
                id: "day/2026-11-22".to_owned(),
                max: Some("5.000000000".to_owned()),
                spent: "1.500000000".to_owned(),
                held: "0.100000000".to_owned(),
            },
            v1::Meter {
                id: "month/2026-11".to_owned(),
                ..v1::Meter::default()
            },
        ],
    };
    assert_eq!(
        serde_json::to_string(&answer).unwrap(),
        concat!(
            r#"{"path":[{"run_id":"r","account":"g-1-a","state":"open","max":"1.000000000","reserved":"1.000000000","#,
            r#""held":"0.100000000","own":"0.020000000","actual":"0.021500000","overrun":"0.000000000","#,
            r#""remaining":"0.878500000","estimated":true}],"meters":[{"id":"day/2026-11-22","max":"5.000000000","#,
            r#""spent":"1.500000000","held":"0.100000000"},{"id":"month/2026-11","max":null,"#,
            r#""spent":"0.000000000","held":"0.000000000"}]}"#
        )
    );
    let error = serde_json::to_string(&budget(Some("one"))).unwrap_err();
    assert!(error.to_string().contains("`max`"), "{error}");
}

#[test]
fn item_json_distinguishes_no_permissions_from_empty_ones() {
    let described = |has_permissions| v1::DescribeResponse {
        item: Some(v1::Item {
            item: run().item,
            space: "project".to_owned(),
            ..v1::Item::default()
        }),
        has_permissions,
        inputs_schema_json: r#"{"type":"object"}"#.to_owned(),
        ..v1::DescribeResponse::default()
    };
    assert_eq!(
        serde_json::to_string(&described(false)).unwrap(),
        concat!(
            r#"{"id":"tool:x/g","space":"project","path":"","verdict":"","problem":null,"fingerprint":null,"owner":null,"#,
            r#""title":null,"description":null,"version":null,"tool_type":null,"inputs":{"type":"object"},"permissions":null,"#,
            r#""executor_id":null,"effect":null,"tags":[],"shadows":[]}"#
        )
    );
    assert_eq!(
        serde_json::to_value(described(true)).unwrap()["permissions"],
        json!([])
    );
}

#[test]
fn models_are_printed_with_tiers_and_aliases_sorted_by_name() {
    let tier = |name: &str| v1::ModelTier {
        name: name.to_owned(),
        models: vec!["p/m".to_owned()],
    };
    let models = v1::ModelsResponse {
        providers: vec![v1::Provider {
            name: "p".to_owned(),
            lacks: "a key".to_owned(),
            models: vec![v1::Model {
                prices: vec![v1::ModelPrice::default()],
                ..v1::Model::default()
            }],
            ..v1::Provider::default()
        }],
        tiers: vec![tier("fast"), tier("best")],
        aliases: [("z", "a"), ("b", "c"), ("k", "l")]
            .map(|(name, of)| (name.to_owned(), of.to_owned()))
            .into(),
        ..v1::ModelsResponse::default()
    };
    assert_eq!(
        serde_json::to_string(&models).unwrap(),
        concat!(
            r#"{"providers":[{"name":"p","api":"","as_of":null,"open":false,"usable":false,"lacks":"a key","models":["#,
            r#"{"id":"","aliases":[],"window":0,"max_output":0,"tools":false,"prices":[{"until_prompt":null,"input":"","#,
            r#""cache_read":"","cache_write":"","output":""}]}]}],"tiers":{"best":["p/m"],"fast":["p/m"]},"default_tier":"","#,
            r#""aliases":{"b":"c","k":"l","z":"a"},"warnings":[]}"#
        )
    );
}

#[test]
fn preview_json_has_first_call_only_with_hold() {
    let preview = |hold: &str| v1::PreviewResponse {
        hold: hold.to_owned(),
        input_tokens: 5,
        max_output: 7,
        tools: vec![v1::OfferedTool {
            schema_json: r#"{"a":1}"#.to_owned(),
            ..v1::OfferedTool::default()
        }],
        ..v1::PreviewResponse::default()
    };
    assert_eq!(
        serde_json::to_string(&preview("0.500000000")).unwrap(),
        concat!(
            r#"{"system":null,"message":"","tools":[{"name":"","description":"","schema":{"a":1}}],"left_out":[],"#,
            r#""limits":{"turns":null,"tokens":null,"spend":null,"spawns":null,"depth":null,"duration_ms":null},"#,
            r#""provider":"","model":{"id":"","aliases":[],"window":0,"max_output":0,"tools":false,"prices":[]},"#,
            r#""first_call":{"input_tokens":5,"max_output":7,"hold":"0.500000000"},"too_small":null,"layers":[],"risks":[],"#,
            r#""warnings":[]}"#
        )
    );
    let none = serde_json::to_value(preview("")).unwrap();
    assert_eq!(none["first_call"], Value::Null);
}

#[test]
fn daemon_delta_event_and_step_json_have_exact_fields() {
    let daemon = v1::InfoResponse {
        isolation: v1::Isolation::Sandbox.into(),
        ..v1::InfoResponse::default()
    };
    assert_eq!(
        serde_json::to_string(&daemon).unwrap(),
        concat!(
            r#"{"version":"","pid":0,"parent_pid":0,"epoch":0,"started_at":null,"state_dir":"","socket":"","#,
            r#""node_fingerprint":"","isolation":"sandbox","containment":[],"containment_missing":"","live_runs":0,"storage":"","limits_enforced":[],"limits_missing":""}"#
        )
    );
    let delta = v1::Delta {
        kind: v1::DeltaKind::CallArgs.into(),
        ..v1::Delta::default()
    };
    assert_eq!(
        serde_json::to_string(&delta).unwrap(),
        r#"{"run_id":"","turn":0,"attempt":0,"kind":"call_args","position":0,"text":"","left_out":0}"#
    );
    assert_eq!(
        serde_json::to_string(&v1::Event::default()).unwrap(),
        r#"{"cursor":"","seq":0,"run_id":"","timestamp":null,"event_type":"","payload":{}}"#
    );
    let step = v1::Step {
        items: Some(v1::ItemCount::default()),
        process: Some(v1::ProcessEnd {
            exit_code: Some(3),
            ..v1::ProcessEnd::default()
        }),
        ..v1::Step::default()
    };
    assert_eq!(
        serde_json::to_string(&step).unwrap(),
        concat!(
            r#"{"step":0,"node":"","status":"","elapsed_ms":0,"cache_hit":false,"error":null,"#,
            r#""items":{"total":0,"ended":0,"failed":0,"retrying":0},"exit_code":3,"stdout_tail":"","stderr_tail":""}"#
        )
    );
    let waiting = v1::Waiting {
        waits: "provider".to_owned(),
        until: None,
    };
    assert_eq!(
        serde_json::to_string(&waiting).unwrap(),
        r#"{"waits":"provider","until":null}"#
    );
    let step = v1::Step {
        command: Some(v1::ShellCommand {
            line: "make".to_owned(),
            last: vec!["ok".to_owned()],
            more: 2,
        }),
        ..v1::Step::default()
    };
    let step = serde_json::to_value(&step).unwrap();
    assert_eq!(
        step["command"],
        json!({"line": "make", "last": ["ok"], "more": 2})
    );
    let verdict = v1::TranscriptVerdict::default();
    assert_eq!(
        serde_json::to_string(&verdict).unwrap(),
        r#"{"intact":true,"problem":null,"events":0,"checkpoints":0,"bytes":0}"#
    );
}

#[test]
fn absent_texts_and_times_of_questions_findings_and_attempts_are_null() {
    for (printed, expected) in [
        (
            serde_json::to_string(&v1::Approval::default()),
            concat!(
                r#"{"run_id":"","id":"","kind":"","message":"","schema":null,"node":null,"created_at":null,"#,
                r#""expires_at":null}"#
            ),
        ),
        (
            serde_json::to_string(&v1::UncertainAttempt::default()),
            r#"{"name":"","key":null,"started_at":null,"item":null,"params":null}"#,
        ),
        (
            serde_json::to_string(&v1::CacheEntry::default()),
            r#"{"key":"","node":null,"result_hash":null,"cached_at":null,"trusted":false}"#,
        ),
        (
            serde_json::to_string(&v1::ValidateResponse {
                errors: vec![v1::Finding::default()],
                path: "/p/g.yaml".to_owned(),
                ..v1::ValidateResponse::default()
            }),
            concat!(
                r#"{"success":false,"errors":[{"code":"","message":"","node":null,"line":0,"column":0}],"warnings":[],"#,
                r#""node_count":0}"#
            ),
        ),
        (
            serde_json::to_string(&v1::Cancel::default()),
            r#"{"reason":null,"by":"","at":null}"#,
        ),
        (
            serde_json::to_string(&v1::PermissionRisk {
                risk: "write".to_owned(),
                ..v1::PermissionRisk::default()
            }),
            r#"{"permission":"","class":"write","policy":""}"#,
        ),
    ] {
        assert_eq!(printed.unwrap(), expected);
    }
}

#[test]
fn a_thread_prints_an_object_as_outputs_and_anything_else_as_result() {
    let printed = |kind: v1::RunKind, output: &str| {
        let value = serde_json::to_value(v1::Run {
            kind: kind.into(),
            output_json: output.to_owned(),
            ..run()
        });
        let value = value.unwrap();
        ["output", "outputs", "result"].map(|name| value[name].clone())
    };
    let none = || Value::Null;
    let thread = v1::RunKind::Thread;
    assert_eq!(
        printed(thread, r#"{"n":1}"#),
        [none(), json!({"n": 1}), none()]
    );
    assert_eq!(
        printed(thread, r#""text""#),
        [none(), none(), json!("text")]
    );
    assert_eq!(
        printed(v1::RunKind::Tool, r#"{"n":1}"#),
        [json!({"n": 1}), none(), none()]
    );
}

#[test]
fn statuses_and_kinds_that_this_client_does_not_know_are_errors() {
    for (broken, name) in [
        (
            v1::Run {
                status: 99,
                ..run()
            },
            "status (99)",
        ),
        (v1::Run { kind: 99, ..run() }, "kind (99)"),
    ] {
        let error = serde_json::to_string(&broken).unwrap_err();
        assert!(error.to_string().contains(name), "{error}");
    }
}

#[test]
fn process_prints_what_scripts_read() {
    let process = v1::Process {
        handle: "web-1-a".to_owned(),
        name: "web".to_owned(),
        pid: Some(7),
        status: "running".to_owned(),
        running: true,
        uptime_ms: Some(1500),
        command: "serve".to_owned(),
        ports: [("http".to_owned(), 20_000)].into(),
        why: Some(v1::ProcessUnready {
            code: "port_foreign".to_owned(),
            port: Some(20_000),
            pid: Some(8),
            ..v1::ProcessUnready::default()
        }),
        listening: vec![v1::ProcessListener {
            port: 20_000,
            addr: "127.0.0.1".to_owned(),
            pid: 7,
        }],
        memory_bytes: Some(5),
        healthy: Some(true),
        ..v1::Process::default()
    };
    let expected = json!({
        "handle": "web-1-a", "name": "web", "owner": null, "pid": 7, "pgid": 7, "status": "running", "running": true,
        "ready": false, "uptime": 1.5, "exit_code": null, "signal": null, "cause": null, "restarts": 0,
        "started_at": null, "reason": null, "command": "serve", "args": [], "cwd": null, "survive": false,
        "server": null,
        "ports": {"http": 20000}, "listening": [{"port": 20000, "addr": "127.0.0.1", "pid": 7}],
        "why": {"code": "port_foreign", "port": 20000, "pid": 8, "comm": null, "status": null, "error": null},
        "memory_bytes": 5, "cpu_ms": null, "healthy": true,
    });
    assert_eq!(serde_json::to_value(process).unwrap(), expected);
    let line = v1::ProcessLine {
        stream: "stderr".to_owned(),
        text: "x".to_owned(),
        attempt: 1,
        cursor: "1.2".to_owned(),
        ..v1::ProcessLine::default()
    };
    let expected =
        json!({"at": null, "stream": "stderr", "text": "x", "attempt": 1, "cursor": "1.2"});
    assert_eq!(serde_json::to_value(line).unwrap(), expected);
}
