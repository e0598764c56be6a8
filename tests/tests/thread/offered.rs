//! Tools that are offered to a model by name, and long results that it can read again.

use rye_core::seal::sha256_hex;
use rye_tests::World;
use rye_tests::binaries::clone_root;
use rye_tests::model_server::ModelServer;
use serde_json::{Value, json};

use super::{payloads, start};

/// Permits all items of the tests.
const TEAM: &str = "<permissions><execute><tool>t/*</tool></execute></permissions>";

/// Returns the names of the tools in the first request.
fn offered(server: &ModelServer) -> Vec<String> {
    let requests = server.requests();
    let tools = requests[0].body["tools"].as_array().cloned();
    let name = |tool: &Value| tool["name"].as_str().unwrap_or_default().to_owned();
    tools.unwrap_or_default().iter().map(name).collect()
}

fn completed(world: &World, run: &str) {
    let record = world.settled(run);
    assert_eq!(record["status"], "completed", "{record}");
}

#[test]
fn a_model_calls_tools_and_graphs_by_names_of_their_own() {
    let server = ModelServer::start(
        "
- when: {turn: 1}
  reply: {calls: [{name: t_doubles, input: {n: 4}}, {name: t_says, input: {n: 3}}]}
- when: {turn: 2, tool_result: 'twice 4'}
  reply: {text: Done.}
",
    );
    let world = World::with_models(&server);
    world.python("t/doubles", "return f\"twice {params['n']}\"");
    world.python("t/internal/hidden", "return 1");
    world.write(".ai/tools/t/unsigned.py", "__category__ = \"t\"\n");
    let head = "permissions: [rye.execute.tool.t.*]\nconfig_schema:\n  type: object\n  properties: {n: {type: integer}}\n";
    let says = "start: out\nnodes:\n  out: {type: return, output: \"got ${inputs.n}\"}";
    world.graph_with("t/says", head, says);
    world.directive("t/asks", TEAM, "", "Call them.");
    let _daemon = world.start("");
    let out = world.ryectl("run --detach directive:t/asks").ok();
    let run = out.line();
    completed(&world, &run);
    assert_eq!(
        offered(&server),
        ["read_artifact", "rye_execute", "t_doubles", "t_says"]
    );
    let tools = &server.requests()[0].body["tools"];
    let graph = tools
        .as_array()
        .unwrap()
        .iter()
        .find(|tool| tool["name"] == "t_says");
    let graph = graph.unwrap();
    assert_eq!(graph["description"], "A graph of the tests.");
    assert_eq!(
        graph["input_schema"]["properties"]["n"],
        json!({"type": "integer"})
    );
    let told = payloads(&world, &run, "tool_call_result");
    assert_eq!(told.len(), 2);
    assert!(
        told.iter().all(|told| told["is_error"] == false),
        "{told:?}"
    );
    let warned = out.stderr();
    assert!(
        warned.contains("`t/unsigned`") && warned.contains("ryectl verify"),
        "{warned}"
    );
}

#[test]
fn ungrantable_permissions_are_reported_at_start() {
    let server = ModelServer::start("[{when: {turn: 1}, reply: {text: Done.}}]");
    let world = World::with_models(&server);
    world.python("t/a", "return 1");
    world.directive("t/asks", TEAM, "", "Call it.");
    let _daemon = world.start("");
    let out = world
        .ryectl("thread run t/asks --cap rye.execute.tool.u.*")
        .ok();
    let told = out.stderr();
    assert!(told.contains("rye.execute.tool.t.*"), "{told}");
    assert!(told.contains("the caller's capabilities"), "{told}");
    assert_eq!(offered(&server), ["read_artifact", "rye_execute"]);
}

#[test]
fn item_that_excludes_models_is_in_no_tool_list_and_is_refused() {
    let server = ModelServer::start(
        "
- when: {turn: 1}
  reply: {calls: [{name: rye_execute, input: {item_id: t/inner, parameters: {}}}]}
- when: {turn: 2, tool_result: caller_not_allowed}
  reply: {text: Done.}
",
    );
    let world = World::with_models(&server);
    world.python("t/open", "return 1");
    let head = "permissions: []\ncallers: [graph, person]";
    world.graph_with("t/inner", head, "start: out\nnodes:\n  out: {type: return}");
    world.directive("t/asks", TEAM, "", "Call it.");
    let _daemon = world.start("");
    let run = start(&world, "t/asks");
    completed(&world, &run);
    assert_eq!(offered(&server), ["read_artifact", "rye_execute", "t_open"]);
    let told = payloads(&world, &run, "tool_call_result");
    assert_eq!(told[0]["code"], "caller_not_allowed", "{told:?}");
    let warnings = payloads(&world, &run, "warning");
    let text = "does not accept calls by models";
    let is_told = |payload: &Value| payload["message"].to_string().contains(text);
    assert!(warnings.iter().any(is_told), "{warnings:?}");
}

#[test]
fn long_result_is_readable_in_parts_by_its_thread_only() {
    let long: Vec<String> = (0..4000).map(|number| format!("ä{number:04}")).collect();
    let long = long.concat();
    let name = sha256_hex(&long);
    let server = ModelServer::start(&format!(
        "
- when: {{directive: reads, turn: 1}}
  reply: {{calls: [{{name: t_long, input: {{}}}}]}}
- when: {{directive: reads, turn: 2, tool_result: {name}}}
  reply: {{calls: [{{name: read_artifact, input: {{artifact: '{name}', offset: 4990, limit: 5}}}}]}}
- when: {{directive: reads, turn: 3, tool_result: ä0998}}
  reply: {{text: Done.}}
- when: {{directive: guesses, turn: 1}}
  reply: {{calls: [{{name: read_artifact, input: {{artifact: '{name}'}}}}]}}
- when: {{directive: guesses, turn: 2, tool_result: got no result}}
  reply: {{text: Done.}}
"
    ));
    let world = World::with_models(&server);
    world.python("t/long", "return ''.join(f'ä{n:04d}' for n in range(4000))");
    world.directive("t/reads", TEAM, "", "Read.");
    world.directive("t/guesses", TEAM, "", "Guess.");
    let _daemon = world.start("");
    let run = start(&world, "t/reads");
    completed(&world, &run);
    let told = payloads(&world, &run, "tool_call_result");
    assert_eq!(told[0]["artifact"], name.as_str());
    let expected = "ä0998\n[characters 4990 to 4995 of 20000: read on with offset 4995]\n";
    assert_eq!(told[1]["output"], expected);
    assert_eq!(told[1]["artifact"], Value::Null);
    let other = start(&world, "t/guesses");
    completed(&world, &other);
    let told = payloads(&world, &other, "tool_call_result");
    assert_eq!(told[0]["code"], "unknown_artifact", "{told:?}");
}

#[test]
fn the_example_of_file_tools_reads_a_file_and_corrects_a_line() {
    let script = clone_root().join("tests/data/models/proofread.yaml");
    let server = ModelServer::start(&std::fs::read_to_string(script).unwrap());
    let world = World::with_models(&server);
    let (before, after) = ("see teh dog", "see the dog");
    let story = format!("The cat sat on the mat.\nIt did not {before}.\nBoth slept.\n");
    world.write("story.txt", &story);
    let _daemon = world.start("");
    let out = world
        .ryectl("thread run rye/examples/proofread -i path=story.txt")
        .ok();
    let printed: Value = serde_json::from_str(&out.stdout()).unwrap();
    assert_eq!(printed, json!({"corrected": 1}));
    assert_eq!(world.read("story.txt"), story.replace(before, after));
    assert!(!out.stderr().contains("warning"), "{}", out.stderr());
}
