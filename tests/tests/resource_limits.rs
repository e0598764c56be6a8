//! Limits on memory, processes and processors of tools. Few hosts have the controllers of cgroup version 2 for them, so
//! most of these tests show what happens without: the warning, or the refusal. What is written to a cgroup, and
//! read from it, is tested in `daemon/process/src/controllers.rs` with directories that stand for cgroups.

use rye_tests::World;
use serde_json::{Value, json};

/// Writes and signs a shell tool with that line of metadata.
fn tool(world: &World, id: &str, line: &str) {
    let text = format!(
        "# ---\n# version: \"1.0.0\"\n# tool_type: bash\n# executor_id: rye/core/runtimes/bash/file\n# category: t\n# description: A tool of the tests.\n# {line}\n# ---\necho ran\n"
    );
    world.tool(&format!("{id}.sh"), &text);
}

/// Payloads of the events `name` of the last run.
fn payloads(world: &World, name: &str) -> Vec<Value> {
    let events = world.ryectl("events --json @last").ok().json_lines();
    let mut named = events;
    named.retain(|event| event["event_type"] == name);
    named
        .into_iter()
        .map(|event| event["payload"].clone())
        .collect()
}

/// Limits that the host does not enforce.
fn unenforced(world: &World) -> Vec<&'static str> {
    let info = world.info();
    let enforced = info["limits_enforced"].as_array().cloned();
    let enforced = enforced.unwrap_or_default();
    let mut all = vec!["memory", "pids", "cpu"];
    all.retain(|one| !enforced.contains(&json!(one)));
    let missing = info["limits_missing"].as_str().unwrap_or_default();
    assert_eq!(missing.is_empty(), all.is_empty(), "{info}");
    all
}

const LIMITS: &str = "resources: {memory: 1GiB, pids: 500, cpu: 1.5}";

#[test]
fn limits_that_the_host_does_not_enforce_are_one_warning_by_name() {
    let world = World::new();
    tool(&world, "t/limited", LIMITS);
    tool(&world, "t/free", "x-note: 1");
    let _daemon = world.start("");
    let missing = unenforced(&world);
    let traced = world
        .ryectl("execute tool t/limited --trace --json")
        .ok()
        .json();
    let steps = traced["trace"].as_array().unwrap();
    let plan = steps.iter().find(|step| step["step"] == "plan").unwrap();
    let requested = json!({"memory": 1_u64 << 30, "pids": 500, "cpu": 1.5});
    assert_eq!(plan["resources"], requested);
    let started = payloads(&world, "process_started").remove(0);
    for (key, limit) in requested.as_object().unwrap() {
        let expected = (!missing.contains(&key.as_str())).then_some(limit);
        assert_eq!(started["resources"].get(key), expected, "{started}");
    }
    let warnings = payloads(&world, "warning");
    assert_eq!(warnings.len(), usize::from(!missing.is_empty()));
    for warning in warnings {
        let text = warning["message"].as_str().unwrap();
        for name in &missing {
            assert!(text.contains(&format!("`{name}`")), "{name}: {text}");
        }
    }
    let _free = world.ryectl("execute tool t/free").ok();
    assert!(payloads(&world, "warning").is_empty());
}

#[test]
fn default_limits_count_where_a_tool_has_none() {
    let world = World::new();
    tool(&world, "t/own", "resources: {pids: 100}");
    tool(&world, "t/free", "x-note: 1");
    let _daemon = world.start("resources: {default: {pids: 50, cpu: 2}}");
    for (id, expected) in [
        ("t/own", json!({"pids": 100, "cpu": 2.0})),
        ("t/free", json!({"pids": 50, "cpu": 2.0})),
    ] {
        let traced = world.ryectl("execute tool --trace --json").arg(id).ok();
        let steps = traced.json()["trace"].clone();
        let mut steps = steps.as_array().unwrap().iter();
        let plan = steps.find(|step| step["step"] == "plan").unwrap();
        assert_eq!(plan["resources"], expected, "{id}");
    }
}

#[test]
fn required_limits_that_the_host_does_not_enforce_are_refused() {
    let world = World::new();
    tool(&world, "t/limited", "resources: {pids: 500}");
    world.graph(
        "t/graph",
        "start: a\nnodes:\n  a: {action: {item_id: t/limited}, next: done}\n  done: {type: return}\n",
    );
    // Without cgroups no host enforces them.
    let _daemon = world.start("resources: {required: true}\ncontainment: {cgroup: off}");
    assert_eq!(unenforced(&world), ["memory", "pids", "cpu"]);
    let refused = world.ryectl("execute tool t/limited").run().code(5);
    let _refused = refused.stderr_contains(&["does not enforce the limits `pids`"]);
    let refused = world.ryectl("proc start --memory 1GiB -- sleep 60").run();
    let _refused = refused
        .code(5)
        .stderr_contains(&["does not enforce the limits `memory`"]);
    let failed = world.ryectl("run t/graph --json").run().code(1).json();
    assert!(
        failed.to_string().contains("limits_unavailable"),
        "{failed}"
    );
    let handle = world.ryectl("proc start -- sleep 60").ok().line();
    let _stopped = world.ryectl("proc stop").arg(&handle).ok();
}

#[test]
fn wrong_limit_is_refused_by_its_key() {
    let world = World::new();
    let _daemon = world.start("");
    for (flag, key) in [
        ("--memory 2GB", "`resources.memory`"),
        ("--pids 0", "`resources.pids`"),
        ("--cpu 0", "`resources.cpu`"),
    ] {
        let wrong = world.ryectl(&format!("proc start {flag} -- true")).run();
        let _wrong = wrong.code(2).stderr_contains(&[key]);
    }
    world.write(
        ".ai/tools/t/wrong.yaml",
        "version: \"1.0.0\"\ntool_type: bash\nexecutor_id: rye/core/runtimes/bash\ncategory: t\nresources: {memory: 1}\nconfig: {script: 'true'}\n",
    );
    let refused = world.ryectl("sign tool:t/wrong").run();
    let _refused = refused
        .code(1)
        .stderr_contains(&["`resources.memory` is a size"]);
}

#[test]
fn managed_process_of_each_kind_takes_limits() {
    let world = World::new();
    world.graph(
        "t/serve",
        "start: web\nnodes:\n  web: {type: service, command: sleep 60, resources: {pids: 10}, next: done}\n  done: {type: return}\n",
    );
    let _daemon = world.start("");
    let missing = unenforced(&world);
    for survive in ["", "--survive"] {
        let start = format!("proc start --pids 10 {survive} -- sleep 60");
        let handle = world.ryectl(&start).ok().line();
        let events = world.ryectl("events --json").arg(&handle).ok().json_lines();
        let of = |name: &str| {
            events
                .iter()
                .filter(|event| event["event_type"] == name)
                .count()
        };
        let created = events
            .iter()
            .find(|event| event["event_type"] == "run_created");
        let spec = &created.unwrap()["payload"]["process"]["resources"];
        assert_eq!(*spec, json!({"pids": 10}), "{survive}");
        assert_eq!(
            of("warning"),
            usize::from(missing.contains(&"pids")),
            "{survive}"
        );
        let _stopped = world.ryectl("proc stop").arg(&handle).ok();
    }
    let _served = world.ryectl("run t/serve").ok();
}
