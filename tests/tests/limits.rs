//! Limits of the child runs of a graph: number and depth.

use rye_tests::World;
use serde_json::Value;

const LEAF: &str = "start: out\nnodes:\n  out: {type: return, output: leaf}";

/// Calls `id` once for each of three items, in parallel.
fn three(id: &str) -> String {
    format!(
        "start: each\nnodes:\n  each:\n    type: foreach\n    over: [1, 2, 3]\n    parallel: true\n    on_item_error: collect\n    \
         action: {{item_id: {id}}}\n    next: out\n  out: {{type: return}}"
    )
}

/// Calls `t/leaf` twice, one after the other.
const TWICE: &str = "start: first\nnodes:\n  first: {action: {item_id: t/leaf}, next: second}\n  \
    second: {action: {item_id: t/leaf}, next: out}\n  out: {type: return}";

fn limited(limits: &str) -> String {
    format!("permissions: [\"rye.execute.tool.*\"]\nlimits: {limits}")
}

fn world() -> World {
    let world = World::new();
    world.graph("t/leaf", LEAF);
    world
}

/// Runs `words` to the end. Returns the number of child runs, and the codes and texts of failures.
fn ran(world: &World, words: &str) -> (Value, String) {
    let record = world.ryectl(words).run().json();
    let told = format!("{} {}", record["error"], record["errors"]);
    (record["spawn_count"].clone(), told)
}

#[test]
fn a_graph_starts_as_many_child_runs_as_it_may_and_the_others_fail() {
    let world = world();
    world.graph_with("t/three", &limited("{spawns: 2}"), &three("t/leaf"));
    let record = world.ryectl("run t/three --json").run().code(1).json();
    assert_eq!(record["status"], "completed_with_errors", "{record}");
    assert_eq!(record["spawn_count"], 2);
    let errors = record["errors"].to_string();
    assert!(errors.contains("at most 2 child runs"), "{errors}");
    // A limit of the caller overrides that of the graph.
    let (count, told) = ran(&world, "run t/three --limit spawns=3 --json");
    assert_eq!(count, 3, "{told}");
    let (count, told) = ran(&world, "run t/three --limit spawns=0 --json");
    assert_eq!(count, 0, "{told}");
}

#[test]
fn a_child_run_starts_no_more_than_its_parent_may() {
    let world = world();
    world.graph_with("t/middle", &limited("{spawns: 9}"), &three("t/leaf"));
    let top = "start: call\nnodes:\n  call: {action: {item_id: t/middle}, next: out}\n  out: {type: return}";
    world.graph_with("t/top", &limited("{spawns: 1}"), top);
    let top = world.ryectl("run t/top --json").run().json();
    let children = world.ryectl("ps --all --json").ok().json();
    let mut runs = children.as_array().unwrap().iter();
    let middle = runs.find(|run| run["item_id"] == "t/middle").unwrap();
    assert_eq!(
        (&top["spawn_count"], &middle["spawn_count"]),
        (&1.into(), &1.into()),
        "{top} {children}"
    );
}

#[test]
fn continuation_keeps_remaining_spawn_limit() {
    let world = world();
    world.graph_with("t/twice", &limited("{spawns: 1}"), TWICE);
    let failed = world.ryectl("run t/twice --json").run().code(1).json();
    assert_eq!(failed["error"]["code"], "spawns_exceeded", "{failed}");
    assert_eq!(failed["error"]["node"], "second");
    let run = failed["run_id"].as_str().unwrap();
    let again = world.ryectl("resume --json").arg(run).run().code(1).json();
    assert_eq!(again["error"]["code"], "spawns_exceeded", "{again}");
    assert_eq!(
        (&again["spawn_count"], &again["error"]["node"]),
        (&1.into(), &"second".into())
    );
}

#[test]
fn graph_limits_depth_of_child_runs() {
    let world = world();
    world.graph_with("t/flat", &limited("{depth: 0}"), TWICE);
    let failed = world.ryectl("run t/flat --json").run().code(1).json();
    assert_eq!(failed["error"]["code"], "depth_exceeded", "{failed}");
    // Below another run, the graph gets at most the remaining depth of that run.
    world.graph_with("t/deep", &limited("{depth: 9}"), TWICE);
    let top = "start: call\nnodes:\n  call: {action: {item_id: t/deep}, next: out}\n  out: {type: return}";
    world.graph_with("t/top", &limited("{depth: 1}"), top);
    let failed = world.ryectl("run t/top --json").run().code(1).json();
    assert_eq!(failed["spawn_count"], 1, "{failed}");
    let told = failed["error"].to_string();
    assert!(told.contains("too deep"), "{told}");
}

#[test]
fn a_tree_has_as_many_live_runs_as_the_daemon_allows() {
    let world = world();
    let calls = |id: &str| {
        format!(
            "start: call\nnodes:\n  call: {{action: {{item_id: {id}}}, next: out}}\n  out: {{type: return}}"
        )
    };
    world.graph_with("t/middle", &limited("{}"), &calls("t/leaf"));
    world.graph_with("t/top", &limited("{}"), &calls("t/middle"));
    let daemon = world.start("limits: {tree_runs: 2}");
    let (_, told) = ran(&world, "run t/top --json");
    assert!(
        told.contains("2 runs of one tree") && told.contains("limits.tree_runs"),
        "{told}"
    );
    // The limit counts each tree separately, and only live runs.
    let _ran = world.ryectl("run t/middle").ok();
    let _ran = world.ryectl("run t/middle").ok();
    let _stopped = world.ryectl("daemon stop").ok();
    drop(daemon);
    let _daemon = world.start("limits: {tree_runs: 3}");
    let _ran = world.ryectl("run t/top").ok();
}
