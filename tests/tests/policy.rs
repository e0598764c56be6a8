//! Configuration that decides how runs behave: without a valid signature nothing starts.

use rye_core::id::ItemKind;
use rye_tests::World;
use serde_json::Value;

const HOOKS: &str = ".ai/config/agent/hook_conditions.yaml";

/// A configuration file without changes.
fn config(name: &str, body: &str) -> String {
    format!("version: \"1.0.0\"\ncategory: agent\nname: {name}\n{body}\n")
}

fn gate(world: &World) {
    world.graph(
        "cfg/gate",
        "start: done\nnodes:\n  done: {type: return, output: 1}",
    );
}

#[test]
fn configuration_that_is_not_signed_or_was_changed_starts_nothing() {
    let world = World::new();
    gate(&world);
    let refused = |told: &str| {
        let out = world.ryectl("run cfg/gate").run().code(4);
        let _told = out.stderr_contains(&[told, HOOKS, "ryectl sign config:agent/hook_conditions"]);
    };
    let path = world.write(HOOKS, config("hook_conditions", "builtin_hooks: null"));
    refused("is not signed");
    let verdict = |exit| {
        let out = world
            .ryectl("verify --json config:agent/hook_conditions")
            .run()
            .code(exit);
        out.json()[0]["verdict"].clone()
    };
    assert_eq!(verdict(1), "unsigned");
    let _signed = world.ryectl("sign config:agent/hook_conditions").ok();
    assert_eq!(verdict(0), "full");
    let _run = world.ryectl("run cfg/gate").ok();
    let text = world.read(HOOKS);
    world.write(HOOKS, text.replace("null", "[]"));
    refused("was changed after");
    let tool = "execute tool rye/core/echo --params {}";
    let _refused = world
        .ryectl(tool)
        .run()
        .code(4)
        .stderr_contains(&["was changed after"]);
    std::fs::remove_file(path).unwrap();
    let _run = world.ryectl("run cfg/gate").ok();
    let _run = world.ryectl(tool).ok();
    let runs = world.ryectl("ps --all --json").ok().json();
    let graphs = runs.as_array().unwrap().iter();
    let graphs = graphs.filter(|run| run["kind"] == "graph").count();
    assert_eq!(graphs, 2, "what was refused made no run: {runs}");
}

#[test]
fn configuration_of_the_user_counts_in_every_project() {
    let world = World::new();
    gate(&world);
    let path = world.home().join(".ai/config/agent/resilience.yaml");
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(&path, config("resilience", "retry: {max_retries: many}")).unwrap();
    let _refused = world
        .ryectl("run cfg/gate")
        .run()
        .code(4)
        .stderr_contains(&["is not signed"]);
    world.sign_unchecked(ItemKind::Config, &path);
    let out = world.ryectl("run cfg/gate").run().code(2);
    let _told = out.stderr_contains(&["retry.max_retries", "config:agent/resilience"]);
}

#[test]
fn invalid_configuration_names_entry_and_space() {
    let world = World::new();
    gate(&world);
    for (name, body, told) in [
        (
            "error_classification",
            "patterns:\n  - {id: mine, category: x, match: {path: error.message, op: regex, value: \"(\"}}",
            ["`mine` of the project space", "`match/value`"],
        ),
        (
            "hook_conditions",
            "builtin_hooks:\n  - {id: mine, event: after_stp, action: {retry: true}}",
            ["`mine` of the project space", "after_stp"],
        ),
        (
            "hook_conditions",
            "builtin_hooks:\n  - {id: mine, event: error, action: {retry: true}, _space: system}",
            ["`_space` is reserved", "/builtin_hooks/0"],
        ),
    ] {
        let path = world.write(&format!(".ai/config/agent/{name}.yaml"), config(name, body));
        let refused = world.ryectl("sign").arg(&path).run().code(1);
        let _told = refused.stderr_contains(&told);
        world.sign_unchecked(ItemKind::Config, &path);
        let out = world
            .ryectl("run cfg/gate")
            .run()
            .code(2)
            .stderr_contains(&told);
        let _told = out.stderr_contains(&[format!("config:agent/{name}").as_str()]);
        std::fs::remove_file(path).unwrap();
    }
    let runs = world.ryectl("ps --all --json").ok().json();
    assert_eq!(runs, Value::Array(Vec::new()));
}
