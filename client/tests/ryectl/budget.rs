//! Verbs of budgets, and the costs and children of runs.

use rye_proto::v1::{self, RunStatus};
use serde_json::json;
use tonic::Status;

use super::scripted::{Daemon, RUN, Script, run};
use super::{ask, good};

#[tokio::test(flavor = "multi_thread")]
async fn a_budget_is_shown_on_its_way_up_and_as_a_tree() {
    let daemon = Daemon::serve(good());
    let ended = ask(&daemon, &["budget", "show", RUN]).await;
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""));
    assert!(
        ended
            .stdout
            .ends_with("\n\nrun above refuses first: 0.50 USD remaining\n"),
        "{}",
        ended.stdout
    );
    let shown = ask(&daemon, &["budget", "show", RUN, "--json"])
        .await
        .json();
    assert_eq!(shown["path"][0]["max"], json!(null));
    assert_eq!(shown["path"][1]["remaining"], "0.500000000");
    assert_eq!(shown["meters"], json!([]));
    let ended = ask(&daemon, &["budget", "tree", RUN]).await;
    assert!(ended.stdout.contains("\n  below "), "{}", ended.stdout);
    let shown = ask(&daemon, &["budget", "tree", RUN, "--json"])
        .await
        .json();
    assert_eq!(shown["run_id"], RUN);
    assert_eq!(shown["children"][0]["run_id"], "below");
    assert_eq!(shown["children"][0]["children"], json!([]));
}

#[tokio::test(flavor = "multi_thread")]
async fn budget_raise_prints_old_limit_and_sends_decimals() {
    let daemon = Daemon::serve(good());
    let ended = ask(
        &daemon,
        &["budget", "raise", RUN, "--spend", "2.5", "--through"],
    )
    .await;
    assert_eq!(
        (ended.code, ended.stdout),
        (
            Some(0),
            format!(
                "above: from 1.00 to 2.50 USD, of which 0.50 remain\n\
                 {RUN}: to 2.50 USD, of which 0.50 remain\n"
            )
        )
    );
    let request = daemon.script.raised.lock().unwrap().clone().unwrap();
    assert_eq!(
        (request.run_id.as_str(), request.spend.as_str()),
        (RUN, "2.500000000")
    );
    assert!(request.through);
    let ended = ask(&daemon, &["budget", "raise", RUN, "--spend", "3", "--json"])
        .await
        .json();
    assert_eq!(ended[0]["run_id"], "above");
    assert_eq!(ended[1]["max"], "3.000000000");
    assert!(
        !daemon
            .script
            .raised
            .lock()
            .unwrap()
            .clone()
            .unwrap()
            .through
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn budget_refusal_has_its_exit_code() {
    let words = "run `above` may spend 1.000000000 USD";
    let daemon = Daemon::serve(Script {
        refusal: Some(Status::failed_precondition(words)).into(),
        ..good()
    });
    let ended = ask(&daemon, &["budget", "raise", RUN, "--spend", "2"]).await;
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(5), ""));
    assert_eq!(ended.stderr, format!("error: {words}\n"));
    for verb in [
        &["budget", "show", "gone"][..],
        &["budget", "tree", "gone"],
        &["budget", "raise", "gone", "--spend", "1"],
    ] {
        let ended = ask(&daemon, verb).await;
        assert_eq!((ended.code, ended.stdout.as_str()), (Some(3), ""));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn record_text_has_cost_only_if_any() {
    let daemon = Daemon::serve(good());
    let ended = ask(&daemon, &["get", RUN]).await;
    assert!(!ended.stdout.contains("cost"), "{}", ended.stdout);
    let daemon = Daemon::serve(Script {
        run: v1::Run {
            cost: Some(v1::Cost {
                turns: 3,
                input_tokens: 1200,
                output_tokens: 300,
                reasoning_tokens: 100,
                spend: "0.021500000".to_owned(),
                estimated: true,
                ..v1::Cost::default()
            }),
            ..run(RunStatus::Completed)
        }
        .into(),
        ..Script::default()
    });
    let ended = ask(&daemon, &["get", RUN]).await;
    let line = "cost          0.0215 USD, partly an estimate, turns 3, tokens 1200 in, 300 out\n";
    assert!(ended.stdout.contains(line), "{}", ended.stdout);
    let record = ask(&daemon, &["get", RUN, "--json"]).await.json();
    assert_eq!(
        record["cost"].to_string(),
        concat!(
            r#"{"turns":3,"input_tokens":1200,"output_tokens":300,"cache_read_tokens":0,"cache_write_tokens":0,"#,
            r#""reasoning_tokens":100,"spend":"0.021500000","estimated":true}"#
        )
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn record_text_has_child_runs_only_if_any() {
    let daemon = Daemon::serve(good());
    let ended = ask(&daemon, &["get", RUN]).await;
    assert!(!ended.stdout.contains("child runs"), "{}", ended.stdout);
    let daemon = Daemon::serve(Script {
        run: v1::Run {
            spawn_count: 3,
            ..run(RunStatus::Completed)
        }
        .into(),
        ..Script::default()
    });
    let ended = ask(&daemon, &["get", RUN]).await;
    assert!(
        ended.stdout.contains("\nchild runs    3\n"),
        "{}",
        ended.stdout
    );
    let record = ask(&daemon, &["get", RUN, "--json"]).await.json();
    assert_eq!(record["spawn_count"], 3);
}
