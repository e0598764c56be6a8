//! The key `callers`: kinds of callers that an item accepts.

use rye_tests::World;
use serde_json::Value;

/// A tool that says hello to `callers`.
fn tool(world: &World, name: &str, callers: &str) {
    let text = format!(
        "version: \"1.0.0\"\ntool_type: bash\nexecutor_id: rye/core/runtimes/bash\ncategory: t\nname: {name}\n\
         description: \"A tool of the tests.\"\ncallers: {callers}\nconfig: {{script: \"echo hello\"}}\n"
    );
    world.tool(&format!("t/{name}.yaml"), &text);
}

/// A graph that calls `item`.
fn caller_of(world: &World, name: &str, item: &str) {
    let step = format!(
        "start: a\nnodes:\n  a: {{action: {{item_id: {item}}}, next: done}}\n  done: {{type: return}}"
    );
    let head = "permissions: [\"rye.execute.*\"]";
    world.graph_with(&format!("t/{name}"), head, &step);
}

#[test]
fn person_is_refused_unless_the_item_accepts_people() {
    let world = World::new();
    tool(&world, "inner", "[graph]");
    tool(&world, "open", "[graph, person]");
    caller_of(&world, "outer", "t/inner");
    let head = "permissions: []\ncallers: [graph]";
    world.graph_with("t/part", head, "start: out\nnodes:\n  out: {type: return}");
    world.directive("t/asks", "<callers>graph</callers>", "", "Say hello.");
    let _daemon = world.start("");
    for words in [
        "run t/inner",
        "execute tool t/inner",
        "execute tool t/inner --dry-run",
        "run t/part",
        "thread run t/asks",
    ] {
        let refused = world.ryectl(words).run().code(4);
        let _named = refused.stderr_contains(&["does not accept calls by people", "`callers`"]);
    }
    let refused = world.ryectl("run --json t/inner").run().code(4).json();
    assert_eq!(
        refused["error"]["reason"], "caller_not_allowed",
        "{refused}"
    );
    let _ran = world.ryectl("run t/open").ok();
    let _ran = world.ryectl("run t/outer").ok();
}

#[test]
fn graph_is_refused_unless_the_item_accepts_graphs() {
    let world = World::new();
    tool(&world, "mine", "[person]");
    caller_of(&world, "calls-tool", "t/mine");
    let head = "permissions: []\ncallers: [model, code, person]";
    world.graph_with("t/part", head, "start: out\nnodes:\n  out: {type: return}");
    caller_of(&world, "calls-graph", "t/part");
    world.directive("t/asks", "<callers>person</callers>", "", "Say hello.");
    caller_of(&world, "calls-directive", "directive:t/asks");
    let _daemon = world.start("");
    for name in ["calls-tool", "calls-graph", "calls-directive"] {
        let run = world.start_run(&format!("t/{name}"));
        let record = world.settled(&run);
        let error = &record["error"];
        assert_eq!(
            (&error["code"], &error["node"]),
            (&"caller_not_allowed".into(), &"a".into()),
            "{record}"
        );
        let events = world.ryectl("events --json").arg(&run).ok().json_lines();
        let is_told = |event: &Value| {
            let text = event["payload"]["message"].as_str().unwrap_or_default();
            event["event_type"] == "warning" && text.contains("does not accept calls by graphs")
        };
        assert!(events.iter().any(is_told), "{name}: {events:?}");
    }
}
