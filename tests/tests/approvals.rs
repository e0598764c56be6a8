//! Runs that wait for people and for times, branch, or fail because their graph says so.

use rye_tests::{World, until};
use serde_json::json;

const SHIP: &str = r#"start: plan
nodes:
  plan:
    action: {item_id: rye/bash, params: {command: "echo planned >>ran; echo v7"}}
    assign: {version: "${result.stdout}"}
    next: ask
  ask:
    type: approval
    message: "Ship ${state.version}?"
    schema: {type: object, properties: {replicas: {type: integer}}, required: [replicas]}
    assign: {replicas: "${result.answer.replicas}", by: "${result.by}"}
    on_error: stop
    next: ship
  ship:
    action: {item_id: rye/bash, params: {command: "echo shipped >>ran"}}
    next: done
  stop: {type: fail, message: "not shipped: ${state._last_error.error}", code: not_shipped}
  done: {type: return, output: {replicas: "${state.replicas}", by: "${state.by}"}}"#;

#[test]
fn an_approval_is_asked_shown_and_answered_after_a_restart_of_the_daemon() {
    let world = World::new();
    world.graph("t/ship", SHIP);
    let daemon = world.start("");
    let run = world.ryectl("run t/ship --detach").ok().line();
    let record = world.settled(&run);
    assert_eq!(record["suspend"]["reason"], "approval", "{record}");
    let asked = &record["approvals"][0];
    assert_eq!(asked["kind"], "node", "{asked}");
    assert_eq!(asked["node"], "ask", "{asked}");
    assert_eq!(asked["expires_at"], json!(null), "{asked}");
    let _get = world
        .ryectl("get")
        .arg(&run)
        .ok()
        .prints(&["asks", "Ship v7"]);
    daemon.kill();
    drop(daemon);
    let _daemon = world.start("");
    let listed = world.ryectl("approvals --json").ok().json();
    assert_eq!(listed[0]["run_id"], run.as_str(), "{listed}");
    assert_eq!(listed[0]["schema"]["required"], json!(["replicas"]));
    let _table = world.ryectl("approvals").ok().prints(&["Ship v7", "ask"]);
    // `resume` without an answer is refused, and so is an answer that violates the schema. The question remains open.
    let _resumed = world
        .ryectl("resume")
        .arg(&run)
        .run()
        .code(5)
        .stderr_contains(&["ryectl approve", "ryectl deny"]);
    let _wrong = world
        .ryectl("approve")
        .arg(&run)
        .arg("--answer")
        .arg(r#"{"replicas": "many"}"#)
        .run()
        .code(2)
        .stderr_contains(&["replicas"]);
    let _none = world.ryectl("approve").arg(&run).run().code(2);
    assert_eq!(world.read("ran"), "planned\n");
    let _approved = world
        .ryectl("approve")
        .arg(&run)
        .arg("--answer")
        .arg(r#"{"replicas": 3}"#)
        .arg("--comment=go")
        .ok();
    let ended = until("the end of the run", || {
        let record = world.record(&run);
        (record["status"] == "completed").then_some(record)
    });
    assert_eq!(ended["output"]["replicas"], 3, "{ended}");
    assert!(ended["output"]["by"].as_str().unwrap().starts_with("uid:"));
    assert_eq!(world.read("ran"), "planned\nshipped\n");
    let _twice = world.ryectl("deny").arg(&run).run().code(5);
    let events = world.ryectl("events --json").arg(&run).ok().json_lines();
    let answered = events
        .iter()
        .find(|event| event["event_type"] == "approval_answered")
        .unwrap();
    assert_eq!(answered["payload"]["comment"], "go", "{answered}");
    assert_eq!(world.ryectl("approvals --json").ok().json(), json!([]));
}

#[test]
fn denied_or_expired_approval_fails_its_node() {
    let world = World::new();
    world.graph("t/ship", SHIP);
    let run = world.ryectl("run t/ship --detach").ok().line();
    world.settled(&run);
    let _denied = world.ryectl("deny --comment friday").arg(&run).ok();
    let record = until("the end of the run", || {
        let record = world.record(&run);
        (record["status"] == "error").then_some(record)
    });
    assert_eq!(record["error"]["code"], "not_shipped", "{record}");
    assert_eq!(record["error"]["class"], "graph_failed", "{record}");
    let message = record["error"]["message"].as_str().unwrap();
    assert!(
        message.starts_with("not shipped: denied by uid:"),
        "{message}"
    );
    assert!(message.ends_with(": friday"), "{message}");
    world.graph(
        "t/late",
        "start: ask\nnodes:\n  ask: {type: approval, message: \"Now?\", timeout: 0.2}",
    );
    let run = world.ryectl("run t/late --detach").ok().line();
    let record = until("the question to be too old", || {
        let record = world.record(&run);
        (record["status"] == "error").then_some(record)
    });
    assert_eq!(record["error"]["code"], "approval_timeout", "{record}");
}

#[test]
fn branches_and_waits_survive_a_daemon_that_dies() {
    let world = World::new();
    world.graph(
        "t/both",
        r#"start: checks
nodes:
  checks:
    type: parallel
    branches:
      lint: {item_id: rye/bash, params: {command: "echo lint >>ran; echo clean"}}
      test: {item_id: rye/bash, params: {command: "echo test >>ran; touch in; until [ -e go ]; do sleep 0.01; done; echo passed"}}
    assign: {lint: "${result.lint.stdout}", test: "${result.test.stdout}"}
    next: rest
  rest: {type: wait, for: "0.2s", next: done}
  done: {type: return, output: {lint: "${state.lint}", test: "${state.test}"}}"#,
    );
    let daemon = world.start("");
    let run = world.ryectl("run t/both --detach").ok().line();
    until("the branches", || {
        let events = world.ryectl("events --json").arg(&run).ok().json_lines();
        let ended = events
            .iter()
            .filter(|event| event["event_type"] == "item_completed")
            .count();
        (ended == 1 && world.project().join("in").exists()).then_some(())
    });
    daemon.kill_both();
    drop(daemon);
    world.write("go", "");
    let _daemon = world.start("");
    let record = until("the end of the run", || {
        let record = world.record(&run);
        (record["status"] == "completed").then_some(record)
    });
    assert_eq!(
        record["output"],
        json!({"lint": "clean\n", "test": "passed\n"})
    );
    // The branch that had ended is not repeated; the one that was cut off is.
    assert_eq!(world.read("ran").matches("lint").count(), 1);
    let steps = world.ryectl("steps --json").arg(&run).ok().json();
    let statuses: Vec<&str> = steps
        .as_array()
        .unwrap()
        .iter()
        .map(|step| step["status"].as_str().unwrap())
        .collect();
    assert_eq!(statuses, ["parallel", "wait", "return"]);
    let logged = world
        .ryectl("logs --node checks --item lint")
        .arg(&run)
        .ok();
    assert_eq!(logged.stdout(), "clean\n");
    let _drawn = world
        .ryectl("graph show t/both --run")
        .arg(&run)
        .ok()
        .prints(&["lint: rye/bash", "wait for 0.2s"]);
}

#[test]
fn wait_elapses_without_daemon_and_does_not_restart() {
    let world = World::new();
    world.graph(
        "t/rests",
        "start: rest\nnodes:\n  rest: {type: wait, for: 1.5, next: done}\n  done: {type: return, output: 1}",
    );
    let daemon = world.start("");
    let run = world.ryectl("run t/rests --detach").ok().line();
    let waiting = |status: &str| {
        let steps = world.ryectl("steps --json").arg(&run).ok().json();
        (steps[0]["status"] == status).then_some(steps)
    };
    until("the wait", || waiting("waiting"));
    daemon.kill_both();
    drop(daemon);
    let _daemon = world.start("");
    let steps = until("the end of the wait", || waiting("wait"));
    assert!(steps[0]["elapsed_ms"].as_u64() >= Some(1400), "{steps}");
    until("the end of the run", || {
        (world.record(&run)["status"] == "completed").then_some(())
    });
    let events = world.ryectl("events --json").arg(&run).ok().json_lines();
    let begun = events
        .iter()
        .filter(|event| event["event_type"] == "step_waiting");
    assert_eq!(begun.count(), 1, "{events:#?}");
}

#[test]
fn an_answer_that_was_accepted_is_not_lost_with_the_daemon() {
    let world = World::new();
    world.graph("t/ship", SHIP);
    let daemon = world.start("");
    let run = world.ryectl("run t/ship --detach").ok().line();
    world.settled(&run);
    let _approved = world
        .ryectl("approve")
        .arg(&run)
        .arg("--answer")
        .arg(r#"{"replicas": 3}"#)
        .ok();
    daemon.kill_both();
    drop(daemon);
    let _daemon = world.start("");
    let ended = until("the end of the run", || {
        let record = world.record(&run);
        (record["status"] == "completed").then_some(record)
    });
    assert_eq!(ended["output"]["replicas"], 3, "{ended}");
    let events = world.ryectl("events --json").arg(&run).ok().json_lines();
    let count = |kind: &str| {
        let of_kind = events.iter().filter(|event| event["event_type"] == kind);
        of_kind.count()
    };
    assert_eq!(
        (count("approval_requested"), count("approval_answered")),
        (1, 1)
    );
}

#[test]
fn invalid_approval_wait_and_branch_nodes_are_positioned_errors() {
    let world = World::new();
    world.graph(
        "t/wrong",
        r"start: ask
nodes:
  ask:
    action: {item_id: rye/agent/threads/internal/control, params: {action: suspend}}
    next: rest
  rest: {type: wait, for: soon, next: b}
  b: {type: parallel, branches: {}}",
    );
    let found = world
        .ryectl("graph validate t/wrong --json")
        .run()
        .code(1)
        .json();
    let codes: Vec<&str> = found["errors"]
        .as_array()
        .unwrap()
        .iter()
        .map(|finding| finding["code"].as_str().unwrap())
        .collect();
    assert_eq!(
        codes,
        ["control_at_node", "wrong_type", "wrong_type"],
        "{found}"
    );
    assert!(
        found["errors"][0]["message"]
            .as_str()
            .unwrap()
            .contains("type: approval")
    );
}
