//! Permissions of a run.

use rye_proto::v1::{self, RunStatus};
use serde_json::json;

use super::ask;
use super::scripted::{Daemon, RUN, Script, run};

/// Serves a run with these layers.
fn layered(layers: &[(&str, &[&str])]) -> Daemon {
    let layers = layers.iter().map(|(source, patterns)| v1::CapabilityLayer {
        source: (*source).to_owned(),
        patterns: patterns.iter().map(ToString::to_string).collect(),
    });
    Daemon::serve(Script {
        run: v1::Run {
            layers: layers.collect(),
            ..run(RunStatus::Completed)
        }
        .into(),
        ..Script::default()
    })
}

fn narrowed() -> Daemon {
    layered(&[
        ("uid:7", &["rye.*"]),
        (
            "permissions of tool:x/g",
            &["rye.execute.tool.rye.*", "rye.fetch.*"],
        ),
    ])
}

#[tokio::test(flavor = "multi_thread")]
async fn run_layers_are_shown_with_their_source() {
    let daemon = narrowed();
    let ended = ask(&daemon, &["get", RUN, "--capabilities"]).await;
    let text = "uid:7\n  rye.*\npermissions of tool:x/g\n  rye.execute.tool.rye.*\n  rye.fetch.*\n";
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(0), text));
    let ended = ask(&daemon, &["get", RUN, "--capabilities", "--json"]).await;
    assert_eq!(
        ended.json(),
        json!([
            {"source": "uid:7", "patterns": ["rye.*"]},
            {"source": "permissions of tool:x/g", "patterns": ["rye.execute.tool.rye.*", "rye.fetch.*"]},
        ])
    );
    let ended = ask(&daemon, &["get", "gone", "--capabilities"]).await;
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(3), ""));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_action_is_allowed_if_every_layer_allows_it() {
    let daemon = narrowed();
    for action in [
        "tool:rye/bash",
        "rye.execute.tool.rye/bash",
        "rye.load.knowledge.a",
    ] {
        let ended = ask(&daemon, &["can", RUN, action]).await;
        assert_eq!(
            (ended.code, ended.stderr.as_str()),
            (Some(0), ""),
            "{action}"
        );
        assert!(
            ended.stdout.starts_with("allowed: rye."),
            "{}",
            ended.stdout
        );
    }
    let ended = ask(&daemon, &["can", RUN, "tool:rye/bash", "--json"]).await;
    assert_eq!(
        ended.stdout.split_whitespace().collect::<String>(),
        format!(
            r#"{{"run_id":"{RUN}","action":"rye.execute.tool.rye.bash","allowed":true,"refused_by":null,"risk":{{"permission":"rye.execute.tool.rye.bash","class":"elevated","policy":"acknowledge_required"}}}}"#
        )
    );
    let ended = ask(&daemon, &["can", RUN, "tool:a/b"]).await;
    let told = "refused: rye.execute.tool.a.b is not covered by permissions of tool:x/g \
                (rye.execute.tool.rye.*, rye.fetch.*)\nrisk: elevated (acknowledge_required)\n";
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(4), told));
    let ended = ask(&daemon, &["can", RUN, "tool:a/b", "--json"]).await;
    assert_eq!(ended.code, Some(4));
    assert_eq!(ended.json()["allowed"], false);
    assert_eq!(
        ended.json()["refused_by"]["source"],
        "permissions of tool:x/g"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_without_layers_may_do_nothing() {
    let daemon = layered(&[]);
    let ended = ask(&daemon, &["can", RUN, "tool:rye/bash", "--json"]).await;
    assert_eq!(ended.code, Some(4));
    assert_eq!(ended.json()["refused_by"], json!(null));
    assert_eq!(ended.json()["allowed"], false);
    let ended = ask(&daemon, &["get", RUN, "--capabilities", "--json"]).await;
    assert_eq!(ended.json(), json!([]));
}

#[tokio::test(flavor = "multi_thread")]
async fn can_refuses_invalid_action_without_request() {
    let daemon = narrowed();
    let ended = ask(&daemon, &["can", RUN, "rye.execute.tool.*"]).await;
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(2), ""));
    assert!(ended.stderr.contains("name one action"), "{}", ended.stderr);
    assert_eq!(daemon.requests(), Vec::<String>::new());
    let ended = ask(&daemon, &["can", "gone", "tool:a"]).await;
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(3), ""));
}
