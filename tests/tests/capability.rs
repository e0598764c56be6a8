//! Permissions only narrow: those of the caller, then `--cap`, then the declaration of the graph.

use rye_tests::World;
use serde_json::{Value, json};

const STEP: &str = "start: a\nnodes:\n  a: {action: {item_id: rye/core/echo, params: {n: 1}}, assign: {n: \"${result.n}\"}, next: done}\n  done: {type: return, output: \"${state.n}\"}";

fn denied(world: &World, words: &str) {
    let out = world.ryectl(words).arg("--json").run().code(1).json();
    let error = &out["error"];
    assert_eq!(
        (&error["code"], &error["node"]),
        (&"permission_denied".into(), &"a".into())
    );
    let message = error["message"].as_str().unwrap();
    assert!(
        message.contains("rye.execute.tool.rye.core.echo"),
        "{message}"
    );
}

#[test]
fn a_graph_may_do_what_it_declares_and_nothing_else() {
    let world = World::new();
    for (declared, allowed) in [
        ("[\"rye.execute.tool.rye.core.echo\"]", true),
        ("[\"rye.execute.tool.rye.*\"]", true),
        ("[\"rye.*\"]", true),
        ("[\"rye.execute.tool.rye.core.ech\"]", false),
        ("[\"rye.fetch.*\"]", false),
        ("[]", false),
    ] {
        world.graph_with("t/echo", &format!("permissions: {declared}"), STEP);
        if allowed {
            let _ran = world.ryectl("run t/echo").ok();
        } else {
            denied(&world, "run t/echo");
        }
    }
}

#[test]
fn a_denial_is_a_warning_with_the_action_the_caller_and_the_layer_that_refuses() {
    let world = World::new();
    let head = "permissions: [\"rye.fetch.*\"]";
    let twice = STEP.replace("next: done", "on_error: b").replace(
        "  done:",
        "  b: {action: {item_id: rye/core/echo, params: {n: 2}}}\n  done:",
    );
    world.graph_with("t/echo", head, &twice);
    let out = world.ryectl("run t/echo --json").run().code(1);
    let run = out.json()["run_id"].as_str().unwrap().to_owned();
    let warnings: Vec<_> = world
        .ryectl("events --json")
        .arg(&run)
        .ok()
        .stdout()
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap())
        .filter(|event| event["event_type"] == "warning")
        .map(|event| event["payload"].clone())
        .collect();
    let record = world.ryectl("get --capabilities").arg(&run).ok().stdout();
    let caller = record
        .split_whitespace()
        .find(|word| word.starts_with("uid:"));
    let caller = caller.expect("the layer of the caller");
    let message = format!(
        "permission denied: `rye.execute.tool.rye.core.echo` is not covered by permissions of tool:t/echo (rye.fetch.*); \
         asked for by {caller}"
    );
    let told = |node: &str| json!({"node": node, "message": message});
    assert_eq!(warnings, [told("a"), told("b")]);
}

#[test]
fn the_callers_capabilities_narrow_and_never_widen() {
    let world = World::new();
    world.graph_with(
        "t/echo",
        "permissions: [\"rye.execute.tool.rye.core.echo\"]",
        STEP,
    );
    let _ran = world.ryectl("run t/echo --cap rye.execute.*").ok();
    denied(&world, "run t/echo --cap rye.execute.tool.other");
    world.graph_with("t/echo", "permissions: [\"rye.execute.tool.other\"]", STEP);
    denied(&world, "run t/echo --cap rye.*");
}

#[test]
fn a_graph_without_a_declaration_runs_only_with_capabilities_from_the_caller() {
    let world = World::new();
    world.graph_with("t/echo", "", STEP);
    let out = world.ryectl("run t/echo").run().code(2);
    let _told = out.stderr_contains(&["permissions", "--cap"]);
    let _ran = world
        .ryectl("run t/echo --cap rye.execute.tool.rye.core.echo")
        .ok();
    denied(&world, "run t/echo --cap rye.execute.tool.other");
}

#[test]
fn an_alias_is_checked_as_what_it_stands_for() {
    let world = World::new();
    let step = "start: a\nnodes:\n  a: {action: {item_id: rye/bash/bash, params: {command: \"true\"}}, next: done}\n  done: {type: return}";
    world.graph_with(
        "t/alias",
        "permissions: [\"rye.execute.tool.rye.bash.bash\"]",
        step,
    );
    let out = world.ryectl("run --json t/alias").run().code(1);
    assert_eq!(out.json()["error"]["code"], "permission_denied");
    world.graph_with(
        "t/alias",
        "permissions: [\"rye.execute.tool.rye.bash\"]",
        step,
    );
    let _ran = world.ryectl("run t/alias").ok();
}

#[test]
fn templated_item_id_stays_within_permissions() {
    let world = World::new();
    let step = "start: a\nnodes:\n  a: {action: {item_id: \"rye/core/${inputs.tool}\", params: {command: \"touch pwned\"}}, next: done}\n  done: {type: return}";
    world.graph_with(
        "t/dynamic",
        "permissions: [\"rye.execute.tool.rye.core.*\"]",
        step,
    );
    let _ran = world.ryectl("run t/dynamic -i tool=echo").ok();
    let out = world
        .ryectl("run --json t/dynamic -i tool=../bash")
        .run()
        .code(1);
    assert_eq!(out.json()["error"]["code"], "invalid_item_id");
    assert!(!world.project().join("pwned").exists());
}

#[test]
fn edited_run_files_grant_no_permission() {
    let world = World::new();
    world.graph_with("t/echo", "permissions: []\nlimits: {spend: 0.10}", STEP);
    let out = world.ryectl("run t/echo --json").run().code(1);
    let run = out.json()["run_id"].as_str().unwrap().to_owned();
    let thread = format!(".ai/state/threads/{run}/thread.json");
    let mut forged = world.thread_file(&run, "error");
    forged["capabilities"] = json!([{"source": "forged", "patterns": ["rye.*"]}]);
    forged["limits"] = json!({"spend": "100.000000000", "spawns": 100});
    let _written = world.write(&thread, forged.to_string());
    let out = world.ryectl("resume --json").arg(&run).run().code(1);
    assert_eq!(out.json()["error"]["code"], "permission_denied");
    let next = out.json()["run_id"].as_str().unwrap().to_owned();
    assert_ne!(next, run);
    let shown = world.ryectl("budget show --json").arg(&next).ok().json();
    assert_eq!(shown["path"][0]["max"], "0.100000000");
}

#[test]
fn can_reports_risk_from_user_config_only() {
    let world = World::new();
    world.graph_with(
        "t/echo",
        "permissions: [\"rye.execute.tool.rye.core.echo\"]",
        STEP,
    );
    let _daemon = world.start("");
    let run = world.start_run("t/echo");
    let _record = world.settled(&run);
    let can = |action: &str| world.ryectl("can --json").words(&format!("{run} {action}"));
    let risk = |class: &str, policy: &str| (class.to_owned(), policy.to_owned());
    let told = |answer: &Value| {
        let text = |key: &str| answer["risk"][key].as_str().unwrap_or_default().to_owned();
        (text("class"), text("policy"))
    };
    let allowed = can("tool:rye/core/echo").run().code(0).json();
    assert_eq!(told(&allowed), risk("write", "allow"), "{allowed}");
    let refused = can("tool:rye/bash").run().code(4).json();
    assert_eq!(refused["allowed"], false);
    assert_eq!(told(&refused), risk("elevated", "acknowledge_required"));
    let safe = can("rye.fetch.tool.rye.bash").run().json();
    assert_eq!(told(&safe), risk("safe", "allow"));
    let text = world
        .ryectl("can")
        .words(&format!("{run} tool:rye/bash"))
        .run();
    assert!(
        text.stdout()
            .contains("risk: elevated (acknowledge_required)")
    );
    // A risk file that is unsigned has no effect; the layers still decide.
    let config = world.home().join(".ai/config/agent");
    std::fs::create_dir_all(&config).unwrap();
    std::fs::write(
        config.join("capability_risk.yaml"),
        "version: \"1.0.0\"\ncategory: agent\nname: capability_risk\nrisks: []\n",
    )
    .unwrap();
    let unknown = can("tool:rye/core/echo").run().code(0);
    assert!(
        unknown.stderr().contains("config:agent/capability_risk"),
        "{}",
        unknown.stderr()
    );
    let unknown = unknown.json();
    assert_eq!(
        (&unknown["allowed"], &unknown["risk"]),
        (&true.into(), &Value::Null)
    );
}
