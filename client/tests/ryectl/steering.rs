//! Verbs that steer runs, and verbs that show graphs.

use rye_proto::v1::{self, RunStatus};
use serde_json::{Value, json};

use super::scripted::{Daemon, RUN, Script, completed, run, two_steps};
use super::{ask, good, script};

#[tokio::test(flavor = "multi_thread")]
async fn resume_stays_with_the_run_from_where_it_resumed() {
    let daemon = Daemon::serve(good());
    let arguments = [
        "resume",
        RUN,
        "--raise",
        "steps=9",
        "--raise",
        "spend=2.5",
        "--uncertain",
        "charge[1]=done",
        "--uncertain",
        "a=b=retry",
    ];
    let ended = ask(&daemon, &arguments).await;
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    // The key `a` is already in the state, and the first step happened before.
    assert_eq!(
        ended.stderr,
        format!("run {RUN}\n[graph:x/g] step 2/2 two ✓ 1.2s (+two)\ncompleted\n")
    );
    assert_eq!(daemon.requests(), ["resume", "stream from `c2`"]);
    let request = daemon.script.resumed.lock().unwrap().clone().unwrap();
    let raise = request.raise.unwrap();
    assert_eq!(raise.steps, Some(9));
    assert_eq!(raise.spend.as_deref(), Some("2.500000000"));
    let answers: Vec<_> = request
        .answers
        .iter()
        .map(|answer| (answer.item.as_str(), answer.verdict()))
        .collect();
    assert_eq!(
        answers,
        [
            ("charge[1]", v1::Verdict::Done),
            ("a=b", v1::Verdict::Retry)
        ]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn resume_notes_continuing_run() {
    let daemon = Daemon::serve(good());
    let ended = ask(&daemon, &["resume", "x-g-0-aaaaaaaaaa", "--detach"]).await;
    assert_eq!((ended.code, ended.stdout), (Some(0), format!("{RUN}\n")));
    assert_eq!(
        ended.stderr,
        format!("x-g-0-aaaaaaaaaa has ended; {RUN} continues it\n")
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn run_takes_up_an_old_run() {
    let daemon = Daemon::serve(good());
    let ended = ask(
        &daemon,
        &[
            "run",
            "x/g",
            "--resume",
            RUN,
            "--limit",
            "depth=2",
            "--limit",
            "spend=0.25",
        ],
    )
    .await;
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    let request = daemon.script.started.lock().unwrap().clone().unwrap();
    assert_eq!(request.resume_run_id, RUN);
    let limits = request.limits.unwrap();
    assert_eq!(limits.depth, Some(2));
    assert_eq!(limits.spend.as_deref(), Some("0.250000000"));
}

#[tokio::test(flavor = "multi_thread")]
async fn suspended_run_prints_resume_commands() {
    let suspended =
        json!({"reason": "uncertain", "code": null, "node": "charge", "uncertain": ["charge"]});
    let daemon = Daemon::serve(script(RunStatus::Suspended, ("run_suspended", &suspended)));
    daemon.script.run.lock().unwrap().suspend = Some(v1::Suspension {
        reason: "uncertain".to_owned(),
        node: "charge".to_owned(),
        uncertain: vec!["charge".to_owned()],
        ..v1::Suspension::default()
    });
    let ended = ask(&daemon, &["run", "x/g"]).await;
    assert_eq!(ended.code, Some(75), "{}", ended.stderr);
    for verdict in ["done", "retry", "fail"] {
        let hint = format!(":\n  ryectl resume {RUN} --uncertain charge={verdict}\n");
        assert!(ended.stderr.contains(&hint), "{}", ended.stderr);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn waiting_run_prints_need_of_suspended_child() {
    let child = v1::Run {
        run_id: "x-c-1-aaaaaaaaaa".to_owned(),
        suspend: Some(v1::Suspension {
            reason: "limit".to_owned(),
            code: "max_steps_exceeded".to_owned(),
            current: "5".to_owned(),
            max: "5".to_owned(),
            ..v1::Suspension::default()
        }),
        ..run(RunStatus::Suspended)
    };
    let suspended = json!({"reason": "child", "code": null, "node": "two"});
    let daemon = Daemon::serve(Script {
        others: vec![child],
        ..script(RunStatus::Suspended, ("run_suspended", &suspended))
    });
    daemon.script.run.lock().unwrap().suspend = Some(v1::Suspension {
        reason: "child".to_owned(),
        child: "x-c-1-aaaaaaaaaa".to_owned(),
        ..v1::Suspension::default()
    });
    let ended = ask(&daemon, &["run", "x/g", "--quiet"]).await;
    assert_eq!(ended.code, Some(75));
    assert_eq!(
        ended.stderr,
        format!(
            "warning: the input `z` is not declared\nsuspended: child\n\
             x-c-1-aaaaaaaaaa is suspended: limit (max_steps_exceeded), 5 of 5\n\
             hint: gives it a higher limit:\n  ryectl resume {RUN} --raise steps=N\n\
             hint: ends the run:\n  ryectl cancel {RUN}\n"
        )
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn approval_hint_names_asking_child_run() {
    let child = v1::Run {
        run_id: "x-c-1-aaaaaaaaaa".to_owned(),
        suspend: Some(v1::Suspension {
            reason: "approval".to_owned(),
            ..v1::Suspension::default()
        }),
        approvals: vec![v1::Approval {
            message: "Ship?".to_owned(),
            ..v1::Approval::default()
        }],
        ..run(RunStatus::Suspended)
    };
    let suspended = json!({"reason": "child", "code": null, "node": "two"});
    let daemon = Daemon::serve(Script {
        others: vec![child],
        ..script(RunStatus::Suspended, ("run_suspended", &suspended))
    });
    daemon.script.run.lock().unwrap().suspend = Some(v1::Suspension {
        reason: "child".to_owned(),
        child: "x-c-1-aaaaaaaaaa".to_owned(),
        ..v1::Suspension::default()
    });
    let ended = ask(&daemon, &["run", "x/g", "--quiet"]).await;
    assert!(ended.stderr.contains("it asks: Ship?"), "{}", ended.stderr);
    let hint = "continues:\n  ryectl approve x-c-1-aaaaaaaaaa\n";
    assert!(ended.stderr.contains(hint), "{}", ended.stderr);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_old_suspension_does_not_end_the_watch() {
    // The run was suspended once, and has been resumed and has ended since.
    let (event_type, payload) = completed();
    let mut events = two_steps((event_type, &payload));
    let suspended = json!({"reason": "user", "code": null, "node": null});
    events[2].event_type = "run_suspended".to_owned();
    events[2].payload_json = suspended.to_string();
    let daemon = Daemon::serve(Script {
        run: run(RunStatus::Completed).into(),
        events,
        ..Script::default()
    });
    let ended = ask(&daemon, &["run", "x/g"]).await;
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    assert!(ended.stderr.contains("step 2/2"), "{}", ended.stderr);
}

#[tokio::test(flavor = "multi_thread")]
async fn suspend_exit_code_distinguishes_suspended_from_ended() {
    let daemon = Daemon::serve(good());
    let ended = ask(&daemon, &["suspend", RUN]).await;
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(5), ""));
    let daemon = Daemon::serve(Script {
        run: run(RunStatus::Suspended).into(),
        ..Script::default()
    });
    daemon.script.run.lock().unwrap().suspend = Some(v1::Suspension {
        reason: "user".to_owned(),
        ..v1::Suspension::default()
    });
    let ended = ask(&daemon, &["suspend", RUN]).await;
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    assert_eq!(ended.stdout, format!("{RUN} is suspended: user\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn step_prints_what_the_node_did() {
    let result = r#"{"success":true,"state":{"a":1},"executed_node":"one","next_node":"two","step_count":1}"#;
    let daemon = Daemon::serve(Script {
        result_json: result.to_owned(),
        ..good()
    });
    let arguments = [
        "graph",
        "step",
        "x/g",
        "--node",
        "one",
        "-i",
        "k=v",
        "--state",
        "{\"a\": 0}",
        "--json",
    ];
    let ended = ask(&daemon, &arguments).await;
    assert_eq!((ended.code, ended.stdout), (Some(0), format!("{result}\n")));
    let request = daemon.script.stepped.lock().unwrap().clone().unwrap();
    assert_eq!(
        (request.node.as_str(), request.inject_state_json.as_str()),
        ("one", "{\"a\":0}")
    );
    assert_eq!(request.text_inputs.get("k").map(String::as_str), Some("v"));
    let arguments = [
        "graph",
        "step",
        "x/g",
        "--node",
        "one",
        "--resume-from",
        RUN,
    ];
    let ended = ask(&daemon, &arguments).await;
    assert!(ended.stdout.contains("next    two\n"), "{}", ended.stdout);
    let request = daemon.script.stepped.lock().unwrap().clone().unwrap();
    assert_eq!(request.resume_from, RUN);
}

#[tokio::test(flavor = "multi_thread")]
async fn validate_prints_a_line_per_finding() {
    let finding = |code: &str, node: &str| v1::Finding {
        code: code.to_owned(),
        message: "it is wrong".to_owned(),
        node: node.to_owned(),
        line: 7,
        column: 3,
    };
    let daemon = Daemon::serve(Script {
        report: v1::ValidateResponse {
            success: false,
            errors: vec![finding("unknown_node", "n")],
            warnings: vec![finding("unused_state", "")],
            node_count: 4,
            path: "/p/g.yaml".to_owned(),
        },
        ..Script::default()
    });
    let ended = ask(&daemon, &["graph", "validate", "x/g"]).await;
    assert_eq!(ended.code, Some(1));
    assert_eq!(
        ended.stdout,
        "/p/g.yaml:7:3: n: it is wrong [unknown_node]\n/p/g.yaml:7:3: warning: it is wrong [unused_state]\n"
    );
    let ended = ask(&daemon, &["graph", "validate", "x/g", "--json"]).await;
    assert_eq!(
        ended.stdout,
        concat!(
            r#"{"success":false,"errors":[{"code":"unknown_node","message":"it is wrong","node":"n","line":7,"column":3}],"#,
            r#""warnings":[{"code":"unused_state","message":"it is wrong","node":null,"line":7,"column":3}],"node_count":4}"#,
            "\n"
        )
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn graph_show_requests_format_and_run() {
    let daemon = Daemon::serve(Script::default());
    let ended = ask(
        &daemon,
        &["graph", "show", "x/g", "--format", "dot", "--run", RUN],
    )
    .await;
    assert_eq!(
        (ended.code, ended.stdout),
        (Some(0), format!("Dot {RUN}\n"))
    );
    let ended = ask(&daemon, &["graph", "show", "x/g", "--json"]).await;
    assert_eq!(ended.json()["format"], "text");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tree_is_indented_and_nested() {
    let below = |id: &str, parent: &str| v1::Run {
        run_id: id.to_owned(),
        parent_id: parent.to_owned(),
        ..run(RunStatus::Running)
    };
    let daemon = Daemon::serve(Script {
        below: vec![below("c1", RUN), below("d", "c1"), below("c2", RUN)],
        ..good()
    });
    daemon.script.run.lock().unwrap().parent_id = "above".to_owned();
    let ended = ask(&daemon, &["tree", RUN]).await;
    let column = ended.stdout.find("STATUS").unwrap();
    let runs = ended.stdout.lines().map(|line| line[..column].trim_end());
    let runs: Vec<&str> = runs.collect();
    assert_eq!(
        runs[1..],
        [RUN, "  c1", "    d", "  c2"],
        "{}",
        ended.stdout
    );
    let ended = ask(&daemon, &["tree", RUN, "--json"]).await.json();
    assert_eq!(ended[0]["children"][0]["children"][0]["run_id"], "d");
    assert_eq!(ended[0]["children"][1]["children"], json!([]));
    let ended = ask(&daemon, &["ps", "--tree", "--all", "--json"])
        .await
        .json();
    assert_eq!(ended[0]["children"], json!([]));
}

#[tokio::test(flavor = "multi_thread")]
async fn chain_prints_oldest_run_first() {
    let link = |id: &str, before: &str, after: &str| v1::Run {
        run_id: id.to_owned(),
        continuation_of: before.to_owned(),
        continued_by: after.to_owned(),
        ..run(RunStatus::Error)
    };
    let daemon = Daemon::serve(Script {
        run: link(RUN, "old", "new").into(),
        others: vec![link("new", RUN, ""), link("old", "", RUN)],
        ..Script::default()
    });
    let ended = ask(&daemon, &["chain", RUN, "--json"]).await.json();
    let ids: Vec<&Value> = (0..3).map(|at| &ended[at]["run_id"]).collect();
    assert_eq!(ids, ["old", RUN, "new"]);
    assert_eq!(ended[1]["continued_by"], "new");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_cache_is_listed_and_dropped_and_objects_are_printed() {
    let daemon = Daemon::serve(Script::default());
    let ended = ask(&daemon, &["cache", "ls"]).await;
    assert!(
        ended.stdout.contains("k2   (not signed by this daemon)"),
        "{}",
        ended.stdout
    );
    let ended = ask(&daemon, &["cache", "ls", "--json"]).await;
    assert_eq!(
        ended.json()[0],
        json!({"key": "k1", "node": "fetch", "result_hash": "r1", "cached_at": null, "trusted": true})
    );
    let ended = ask(&daemon, &["cache", "drop", "--all", "--json"]).await;
    assert_eq!((ended.code, ended.json()), (Some(0), json!({"dropped": 2})));
    let ended = ask(&daemon, &["cache", "drop", "k1", "gone"]).await;
    assert_eq!(
        (ended.code, ended.stdout.as_str()),
        (Some(3), "dropped 1\n")
    );
    assert_eq!(
        daemon.requests(),
        ["drop [] true", "drop [\"k1\", \"gone\"] false"]
    );
    let ended = ask(&daemon, &["objects", "get", "abc"]).await;
    assert_eq!(ended.stdout, "{\"kind\":\"state\",\"hash\":\"abc\"}\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn suspend_reports_status_of_unsuspended_run() {
    for (status, told) in [
        (RunStatus::Running, "resumed since: running"),
        (RunStatus::Completed, "has ended: completed"),
    ] {
        let daemon = Daemon::serve(good());
        daemon.script.run.lock().unwrap().set_status(status);
        let ended = ask(&daemon, &["suspend", RUN]).await;
        assert_eq!((ended.code, ended.stdout.as_str()), (Some(5), ""));
        assert!(ended.stderr.contains(told), "{}", ended.stderr);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn empty_idempotency_key_is_usage_error() {
    let daemon = Daemon::serve(good());
    let ended = ask(&daemon, &["run", "x/g", "--idempotency-key", ""]).await;
    assert_eq!(ended.code, Some(2), "{}", ended.stderr);
}
