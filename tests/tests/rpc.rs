//! The contract `rye.v1` from the view of other clients.

use std::io::{BufRead as _, BufReader};
use std::time::Duration;

use hyper_util::rt::TokioIo;
use rye_proto::v1;
use rye_proto::v1::items_client::ItemsClient;
use rye_proto::v1::runs_client::RunsClient;
use rye_tests::until::PATIENCE;
use rye_tests::{World, until};
use tokio::net::UnixStream;
use tokio_stream::StreamExt as _;
use tonic::Code;
use tonic::transport::{Channel, Endpoint};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;
use tonic_reflection::pb::v1::ServerReflectionRequest;
use tonic_reflection::pb::v1::server_reflection_client::ServerReflectionClient;
use tonic_reflection::pb::v1::server_reflection_request::MessageRequest;
use tonic_reflection::pb::v1::server_reflection_response::MessageResponse;
use tonic_reflection::pb::v1alpha;

/// The reflection service under its older name.
mod older {
    pub(super) use tonic_reflection::pb::v1alpha::server_reflection_client::ServerReflectionClient;
    pub(super) use tonic_reflection::pb::v1alpha::server_reflection_request::MessageRequest;
    pub(super) use tonic_reflection::pb::v1alpha::server_reflection_response::MessageResponse;
}

/// Makes a channel to the daemon of `world`.
pub(crate) fn channel(world: &World) -> Channel {
    let socket = world.socket();
    Endpoint::from_static("http://ryed").connect_with_connector_lazy(tower::service_fn(move |_| {
        let socket = socket.clone();
        async move { UnixStream::connect(socket).await.map(TokioIo::new) }
    }))
}

pub(crate) fn start_request(world: &World, item: &str) -> v1::StartRequest {
    v1::StartRequest {
        item: Some(v1::ItemRef {
            r#type: v1::ItemType::Tool.into(),
            id: item.to_owned(),
        }),
        project: world.project().display().to_string(),
        ..v1::StartRequest::default()
    }
}

#[tokio::test]
async fn health_reports_each_service() {
    let world = World::new();
    let _daemon = world.start("");
    let mut health = HealthClient::new(channel(&world));
    for service in [
        "",
        "rye.v1.Runs",
        "rye.v1.Items",
        "rye.v1.Objects",
        "rye.v1.Processes",
        "rye.v1.Node",
    ] {
        let request = HealthCheckRequest {
            service: service.to_owned(),
        };
        let answer = health.check(request).await.unwrap().into_inner();
        assert_eq!(answer.status(), ServingStatus::Serving, "{service}");
    }
}

#[tokio::test]
async fn reflection_lists_the_services() {
    let world = World::new();
    let _daemon = world.start("");
    let mut reflection = ServerReflectionClient::new(channel(&world));
    let request = ServerReflectionRequest {
        host: String::new(),
        message_request: Some(MessageRequest::ListServices(String::new())),
    };
    let mut answers = reflection
        .server_reflection_info(tokio_stream::once(request))
        .await
        .unwrap()
        .into_inner();
    let answer = answers.next().await.unwrap().unwrap();
    let Some(MessageResponse::ListServicesResponse(list)) = answer.message_response else {
        panic!("not a list of services: {answer:?}");
    };
    let names: Vec<String> = list
        .service
        .into_iter()
        .map(|service| service.name)
        .collect();
    for service in [
        "rye.v1.Runs",
        "rye.v1.Items",
        "rye.v1.Objects",
        "rye.v1.Processes",
        "rye.v1.Node",
        "grpc.health.v1.Health",
    ] {
        assert!(names.iter().any(|name| name == service), "{names:?}");
    }
}

/// Clients of other languages use the older name of the service.
#[tokio::test]
async fn reflection_answers_by_its_older_name_too() {
    let world = World::new();
    let _daemon = world.start("");
    let mut reflection = older::ServerReflectionClient::new(channel(&world));
    let request = v1alpha::ServerReflectionRequest {
        host: String::new(),
        message_request: Some(older::MessageRequest::FileContainingSymbol(
            "rye.v1.Runs".to_owned(),
        )),
    };
    let asked = reflection.server_reflection_info(tokio_stream::once(request));
    let mut answers = asked.await.unwrap().into_inner();
    let answer = answers.next().await.unwrap().unwrap();
    let Some(older::MessageResponse::FileDescriptorResponse(files)) = answer.message_response
    else {
        panic!("not a file of the contract: {answer:?}");
    };
    assert!(!files.file_descriptor_proto.is_empty());
}

#[tokio::test]
async fn malformed_requests_are_refused_with_a_reason() {
    let world = World::new();
    let _daemon = world.start("");
    let mut runs = RunsClient::new(channel(&world));
    let good = start_request(&world, "rye/core/echo");
    for (name, bad) in [
        (
            "no item",
            v1::StartRequest {
                item: None,
                ..good.clone()
            },
        ),
        ("an id that leaves", start_request(&world, "../echo")),
        (
            "a relative project",
            v1::StartRequest {
                project: "project".to_owned(),
                ..good.clone()
            },
        ),
        (
            "inputs that are no JSON",
            v1::StartRequest {
                inputs_json: "{".to_owned(),
                ..good.clone()
            },
        ),
        (
            "inputs that are no object",
            v1::StartRequest {
                inputs_json: "[]".to_owned(),
                ..good.clone()
            },
        ),
    ] {
        let status = runs.start(bad).await.unwrap_err();
        assert_eq!(status.code(), Code::InvalidArgument, "{name}: {status}");
        assert!(
            status.metadata().contains_key("rye-reason"),
            "{name}: {status:?}"
        );
    }
    let missing = runs
        .start(start_request(&world, "no/such"))
        .await
        .unwrap_err();
    assert_eq!(missing.code(), Code::NotFound);
    let bad = v1::StreamRequest {
        run_id: "no-such-1-aaaaaaaaaa".to_owned(),
        ..v1::StreamRequest::default()
    };
    assert_eq!(runs.stream(bad).await.unwrap_err().code(), Code::NotFound);
}

#[tokio::test]
async fn cancel_reason_is_recorded_after_caller_identity() {
    let world = World::new();
    let _daemon = world.start("");
    world.graph(
        "t/waits",
        "start: a\nnodes:\n  a:\n    action: {item_id: rye/bash, params: {command: \"sleep 600\"}}\n    next: b\n  b: {type: return}",
    );
    let run_id = world.start_run("t/waits");
    let mut runs = RunsClient::new(channel(&world));
    let asked = |reason: &str| v1::CancelRequest {
        run_id: run_id.clone(),
        reason: reason.to_owned(),
    };
    let long = runs.cancel(asked(&"x".repeat(1001))).await.unwrap_err();
    assert_eq!(long.code(), Code::InvalidArgument, "{long}");
    let _accepted = runs.cancel(asked("uid:12345 says so")).await.unwrap();
    let events = world.ryectl("events --json").arg(&run_id).ok();
    let events = events.json_lines();
    let mut asked = events
        .iter()
        .filter(|event| event["event_type"] == "cancel_requested");
    let me = nix::unistd::geteuid();
    assert_eq!(
        asked.next().unwrap()["payload"]["cause"],
        format!("uid:{me}: uid:12345 says so")
    );
    assert_eq!(asked.next(), None);
}

#[tokio::test]
async fn a_message_over_the_limit_is_refused_and_the_daemon_lives() {
    let world = World::new();
    let _daemon = world.start("");
    let mut runs = RunsClient::new(channel(&world)).max_encoding_message_size(64 << 20);
    let inputs_json = format!("{{\"text\":\"{}\"}}", "x".repeat(17 << 20));
    let status = runs
        .start(v1::StartRequest {
            inputs_json,
            ..start_request(&world, "rye/core/echo")
        })
        .await
        .unwrap_err();
    assert_ne!(status.code(), Code::Ok);
    assert_eq!(world.info()["live_runs"], 0);
}

#[test]
fn disconnect_in_stream_affects_no_other_client() {
    let world = World::new();
    world.graph(
        "t/gate",
        "start: a\nnodes:\n  a:\n    action: {item_id: rye/bash, params: {command: \"until [ -e go ]; do sleep 0.01; done\"}}\n    next: done\n  done: {type: return}",
    );
    let daemon = world.start("");
    let connections = || {
        let open = std::fs::read_dir(format!("/proc/{}/fd", daemon.pid())).unwrap();
        let targets = open.filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok());
        targets
            .filter(|target| target.to_string_lossy().starts_with("socket:"))
            .count()
    };
    let run = world.start_run("t/gate");
    let before = connections();
    for _ in 0..10 {
        let mut follower = world.ryectl("events --follow --json").arg(&run).spawn();
        let mut first = String::new();
        BufReader::new(follower.stdout.take().unwrap())
            .read_line(&mut first)
            .unwrap();
        assert!(first.contains("run_created"), "{first}");
        follower.kill().unwrap();
        follower.wait().unwrap();
    }
    until("the connections to be given back", || {
        (connections() <= before).then_some(())
    });
    world.write("go", "");
    assert_eq!(world.settled(&run)["status"], "completed");
}

/// Callers that disconnect at any time between the request to start and its answer.
#[tokio::test]
async fn disconnect_during_start_leaves_no_undriven_run() {
    let world = World::new();
    world.graph(
        "t/echo",
        "start: a\nnodes:\n  a: {action: {item_id: rye/core/echo}, next: done}\n  done: {type: return}",
    );
    let _first = world.ryectl("run t/echo").ok();
    for moment in 0..60 {
        let mut runs = RunsClient::new(channel(&world));
        let request = start_request(&world, "t/echo");
        let patience = Duration::from_micros(200 * moment);
        if let Ok(answered) = tokio::time::timeout(patience, runs.start(request)).await {
            answered.unwrap();
        }
    }
    let listed = || world.ryectl("ps --all --json").ok().json();
    until("every run that was created to end", || {
        let all = listed();
        let ended = all
            .as_array()
            .unwrap()
            .iter()
            .all(|run| run["status"] == "completed");
        ended.then_some(())
    });
}

#[tokio::test]
async fn cursor_continues_after_its_event() {
    let world = World::new();
    world.graph("t/echo", "start: a\nnodes:\n  a: {action: {item_id: rye/core/echo}, next: done}\n  done: {type: return}");
    let ran = || {
        let record = world.ryectl("run t/echo --json").ok().json();
        record["run_id"].as_str().unwrap().to_owned()
    };
    let (run, other) = (ran(), ran());
    let mut runs = RunsClient::new(channel(&world));
    let mut all = Vec::new();
    let whole = v1::StreamRequest {
        run_id: run.clone(),
        ..v1::StreamRequest::default()
    };
    let mut events = runs.stream(whole).await.unwrap().into_inner();
    while let Some(answer) = events.message().await.unwrap() {
        all.extend(answer.event);
    }
    assert!(
        all.iter().zip(1..).all(|(event, seq)| event.seq == seq),
        "{all:?}"
    );
    for event in &all {
        let rest = v1::StreamRequest {
            run_id: run.clone(),
            cursor: event.cursor.clone(),
            follow: true,
            // A client that also requests deltas misses no event.
            deltas: event.seq % 2 == 0,
            ..v1::StreamRequest::default()
        };
        let mut events = runs.stream(rest).await.unwrap().into_inner();
        let mut next = event.seq + 1;
        while let Some(answer) = events.message().await.unwrap() {
            assert_eq!(answer.event.unwrap().seq, next);
            next += 1;
        }
        assert_eq!(next, all.last().unwrap().seq + 1);
    }
    let foreign = all[0].cursor.clone();
    for (run_id, cursor) in [(&run, "forged"), (&run, "1.2"), (&other, foreign.as_str())] {
        let forged = v1::StreamRequest {
            run_id: run_id.clone(),
            cursor: cursor.to_owned(),
            ..v1::StreamRequest::default()
        };
        let refused = runs.stream(forged).await.unwrap_err();
        assert_eq!(refused.code(), Code::InvalidArgument, "{cursor}");
        assert!(refused.message().contains(run_id), "{refused}");
    }
    let idle = v1::StreamRequest {
        run_id: run,
        deltas: true,
        ..v1::StreamRequest::default()
    };
    let refused = runs.stream(idle).await.unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArgument, "{refused}");
}

#[tokio::test]
async fn idempotency_key_has_at_most_255_bytes_and_no_continuation_prefix() {
    let world = World::new();
    let _daemon = world.start("");
    let mut runs = RunsClient::new(channel(&world));
    let keyed = |key: String| v1::StartRequest {
        idempotency_key: key,
        ..start_request(&world, "rye/core/echo")
    };
    for key in ["continues:x-1-aaaaaaaaaa".to_owned(), "k".repeat(256)] {
        let refused = runs.start(keyed(key)).await.unwrap_err();
        assert_eq!(refused.code(), Code::InvalidArgument, "{refused}");
        assert!(refused.message().contains("idempotency_key"), "{refused}");
    }
    let _started = runs.start(keyed("k".repeat(255))).await.unwrap();
}

#[tokio::test]
async fn an_idempotency_key_belongs_to_one_item_and_its_inputs() {
    let world = World::new();
    let _daemon = world.start("");
    let text = "start: a\nnodes:\n  a: {type: return}";
    world.graph("t/one", text);
    world.graph("t/other", text);
    let mut runs = RunsClient::new(channel(&world));
    let keyed = |key: &str, item: &str, inputs: &str| v1::StartRequest {
        idempotency_key: key.to_owned(),
        inputs_json: inputs.to_owned(),
        ..start_request(&world, item)
    };
    for item in ["t/one", "rye/core/echo"] {
        let first = keyed(item, item, r#"{"a": 1, "b": 2}"#);
        let first = runs.start(first).await.unwrap().into_inner();
        let same = keyed(item, item, r#"{"b": 2, "a": 1}"#);
        let same = runs.start(same).await.unwrap().into_inner();
        assert_eq!((&same.run_id, same.existed), (&first.run_id, true));
        let texts = v1::StartRequest {
            text_inputs: [("c".to_owned(), "3".to_owned())].into(),
            ..keyed(item, item, r#"{"a": 1, "b": 2}"#)
        };
        let limited = v1::StartRequest {
            limits: Some(v1::Limits {
                spawns: Some(3),
                ..v1::Limits::default()
            }),
            ..keyed(item, item, r#"{"a": 1, "b": 2}"#)
        };
        for (request, what) in [
            (keyed(item, item, r#"{"a": 1}"#), "other inputs"),
            (texts, "other inputs"),
            (limited, "other inputs or options"),
            (
                keyed(item, "t/other", r#"{"a": 1, "b": 2}"#),
                "another item",
            ),
        ] {
            let refused = runs.start(request).await.unwrap_err();
            assert_eq!(refused.code(), Code::FailedPrecondition, "{refused}");
            let text = refused.message();
            assert!(
                text.contains(&first.run_id) && text.contains(what),
                "{text}"
            );
        }
    }
    for round in 0..20 {
        let mut other = runs.clone();
        let key = format!("race-{round}");
        let (one, two) = tokio::join!(
            runs.start(keyed(&key, "t/one", r#"{"n": 1}"#)),
            other.start(keyed(&key, "t/one", r#"{"n": 2}"#)),
        );
        let refused = [one.err(), two.err()].into_iter().flatten();
        let refused: Vec<_> = refused.map(|status| status.code()).collect();
        assert_eq!(refused, [Code::FailedPrecondition]);
    }
}

/// Fails immediately, and waits for its next try: the run is active, and no process is.
const WAITS: &str = "start: a\nnodes:\n  a:\n    action: {item_id: rye/bash, params: {command: \"[ -e ok ]\"}}\n    \
    retry: {max: 9, backoff: fixed, delay: 3600}\n    next: b\n  b: {type: return}";

/// Requests the suspension of `run`. Returns its record after it.
async fn suspended(world: &World, run: &str) -> v1::Run {
    let mut runs = RunsClient::new(channel(world));
    let request = v1::SuspendRequest {
        run_id: run.to_owned(),
    };
    let asked = tokio::time::timeout(PATIENCE, runs.suspend(request));
    let answer = asked.await.expect("it is suspended").unwrap().into_inner();
    let record = answer.run.unwrap();
    assert_eq!(record.suspend.as_ref().unwrap().reason, "user");
    record
}

#[tokio::test]
async fn a_run_that_waits_to_be_recovered_after_a_restart_counts_and_can_be_suspended() {
    const RUNS: usize = 200;
    let world = World::new();
    world.graph("t/waits", WAITS);
    let daemon = world.start("");
    let mut runs = RunsClient::new(channel(&world));
    let mut newest = String::new();
    for _ in 0..RUNS {
        let started = runs.start(start_request(&world, "t/waits")).await.unwrap();
        newest = started.into_inner().run_id;
    }
    daemon.kill_both();
    let _status = daemon.ended();
    let daemon = world.start("");
    let _suspended = suspended(&world, &newest).await;
    assert_eq!(world.info()["live_runs"], RUNS - 1);
    daemon.kill_both();
    let _status = daemon.ended();
}

#[tokio::test]
async fn a_run_that_was_just_resumed_can_be_suspended() {
    let world = World::new();
    world.graph("t/waits", WAITS);
    let run_id = world.start_run("t/waits");
    let mut runs = RunsClient::new(channel(&world));
    for _ in 0..30 {
        let _suspended = suspended(&world, &run_id).await;
        let request = v1::ResumeRequest {
            run_id: run_id.clone(),
            ..v1::ResumeRequest::default()
        };
        let _on = runs.resume(request).await.unwrap();
    }
}

#[tokio::test]
async fn a_number_that_is_no_value_of_an_enum_is_refused_by_name() {
    let world = World::new();
    let _daemon = world.start("");
    world.graph("t/done", "start: a\nnodes:\n  a: {type: return}");
    let mut runs = RunsClient::new(channel(&world));
    let good = start_request(&world, "t/done");
    let refused = |status: tonic::Status, field: &str, number: &str| {
        assert_eq!(status.code(), Code::InvalidArgument, "{status}");
        let message = status.message();
        assert!(message.contains(&format!("`{field}`")), "{message}");
        assert!(message.contains(number), "{message}");
    };
    for number in [99, -5] {
        let mut bad = good.clone();
        bad.item.as_mut().unwrap().r#type = number;
        let status = runs.start(bad).await.unwrap_err();
        refused(status, "item.type", &number.to_string());
    }
    let mut bad = good.clone();
    bad.durability = 77;
    refused(runs.start(bad).await.unwrap_err(), "durability", "77");
    let bad = v1::ShowRequest {
        item: good.item.clone(),
        project: good.project.clone(),
        format: 99,
        ..v1::ShowRequest::default()
    };
    refused(runs.show(bad).await.unwrap_err(), "format", "99");
    let bad = v1::ListRequest {
        statuses: vec![v1::RunStatus::Running.into(), 99],
        ..v1::ListRequest::default()
    };
    refused(runs.list(bad).await.unwrap_err(), "statuses", "99");
    let bad = v1::ResumeRequest {
        run_id: "r".to_owned(),
        answers: vec![v1::UncertainAnswer {
            item: "a".to_owned(),
            verdict: 12,
        }],
        ..v1::ResumeRequest::default()
    };
    refused(runs.resume(bad).await.unwrap_err(), "answers.verdict", "12");
    assert_eq!(
        world.ryectl("ps --all --json").ok().json(),
        serde_json::json!([])
    );
}

#[tokio::test]
async fn lossy_json_is_refused_over_grpc() {
    let world = World::new();
    let _daemon = world.start("");
    let mut runs = RunsClient::new(channel(&world));
    for (text, told) in [
        (r#"{"a": 1, "a": 2}"#, "`a` occurs twice"),
        (r#"{"a": [{"b": 1, "b": 2}]}"#, "`b` occurs twice"),
        (r#"{"a": 99999999999999999999999}"#, "does not fit 64 bits"),
    ] {
        let start = v1::StartRequest {
            inputs_json: text.to_owned(),
            ..start_request(&world, "rye/core/echo")
        };
        let execute = v1::ExecuteRequest {
            item: start.item.clone(),
            project: start.project.clone(),
            params_json: text.to_owned(),
            trace: false,
            dry_run: false,
            idempotency_key: String::new(),
        };
        let step = v1::StepRequest {
            item: start.item.clone(),
            project: start.project.clone(),
            node: "a".to_owned(),
            inject_state_json: text.to_owned(),
            ..v1::StepRequest::default()
        };
        let mut items = ItemsClient::new(channel(&world));
        for status in [
            runs.start(start).await.unwrap_err(),
            items.execute(execute).await.unwrap_err(),
            runs.step(step).await.unwrap_err(),
        ] {
            assert_eq!(status.code(), Code::InvalidArgument, "{status}");
            assert!(status.message().contains(told), "{status}");
        }
    }
}

#[tokio::test]
async fn a_refusal_always_fits_the_headers_it_travels_in() {
    let world = World::new();
    let _daemon = world.start("");
    let mut runs = RunsClient::new(channel(&world));
    let long = "日本 ".repeat(100_000);
    let status = runs.start(start_request(&world, &long)).await.unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument);
    assert!(status.message().len() < 4096, "{}", status.message().len());
    assert!(status.metadata().contains_key("rye-reason"));
    let elsewhere = v1::StartRequest {
        project: format!("/{long}"),
        ..start_request(&world, "rye/core/echo")
    };
    let status = runs.start(elsewhere).await.unwrap_err();
    assert_ne!(status.code(), Code::Internal, "{status}");
    let token = v1::ListRequest {
        page_token: long,
        ..v1::ListRequest::default()
    };
    let status = runs.list(token).await.unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument);

    let nodes = (0..2000).map(|node| format!("  n{node}: {{teapot: 1, next: nowhere{node}}}"));
    let nodes = nodes.collect::<Vec<_>>().join("\n");
    world.graph("t/broken", &format!("start: n0\nnodes:\n{nodes}"));
    let request = v1::ShowRequest {
        item: start_request(&world, "t/broken").item,
        project: world.project().display().to_string(),
        ..v1::ShowRequest::default()
    };
    let status = runs.show(request).await.unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument, "{status}");
    let message = status.message();
    assert!(message.contains("teapot"), "{message}");
    let last = message.lines().last().unwrap();
    assert!(
        last.starts_with("and ") && last.ends_with(" more"),
        "{message}"
    );
}

#[tokio::test]
async fn daemon_signs_items_only_if_caller_may_sign_all() {
    let world = World::new();
    for name in ["one", "two"] {
        let text = format!(
            "version: \"1.0.0\"\ntool_type: bash\nexecutor_id: rye/core/runtimes/bash\ncategory: made\nname: {name}\nconfig: {{script: \"echo 7\"}}\n"
        );
        world.write(&format!(".ai/tools/made/{name}.yaml"), text);
    }
    world.write(
        ".ai/tools/made/bad.yaml",
        "version: \"1\"\ncategory: made\nname: bad\n",
    );
    let _daemon = world.start("");
    let mut items = ItemsClient::new(channel(&world));
    let request = |item_id: &str| v1::SignRequest {
        project: world.project().display().to_string(),
        item_type: v1::ItemType::Tool.into(),
        item_id: item_id.to_owned(),
        ..v1::SignRequest::default()
    };
    let answer = items.sign(request("made/one")).await.unwrap().into_inner();
    let answer: serde_json::Value = serde_json::from_str(&answer.result_json).unwrap();
    assert_eq!(answer["status"], "signed", "{answer}");
    assert_eq!(
        answer["signature"]["pubkey_fp"],
        world.info()["node_fingerprint"]
    );
    let _runs = world.ryectl("execute tool made/one").ok();
    let of_pattern = v1::SignRequest {
        glob: "made/*".to_owned(),
        ..request("")
    };
    let answer = items.sign(of_pattern.clone()).await.unwrap().into_inner();
    let answer: serde_json::Value = serde_json::from_str(&answer.result_json).unwrap();
    assert_eq!(answer["status"], "completed_with_errors", "{answer}");
    assert_eq!(
        answer["signed"],
        serde_json::json!(["made/one", "made/two"])
    );
    assert_eq!(answer["failed"][0]["item"], "made/bad");
    for (request, code, told) in [
        (request("made/none"), Code::NotFound, "made/none"),
        (
            request("../secret"),
            Code::InvalidArgument,
            "name of an item",
        ),
        (
            request(""),
            Code::InvalidArgument,
            "`item_id`, or by `glob`",
        ),
        (
            v1::SignRequest {
                item_type: 0,
                ..request("made/one")
            },
            Code::InvalidArgument,
            "item_type",
        ),
        (
            v1::SignRequest {
                source: "system".to_owned(),
                ..request("made/one")
            },
            Code::InvalidArgument,
            "`source`",
        ),
        (request("made/bad"), Code::InvalidArgument, "three numbers"),
    ] {
        let status = items.sign(request).await.unwrap_err();
        assert_eq!(status.code(), code, "{status}");
        assert!(status.message().contains(told), "{status}");
    }
}
