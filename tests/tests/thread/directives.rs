//! Directives that graphs and models start: child threads.

use rye_tests::model_server::ModelServer;
use rye_tests::{World, until};
use serde_json::{Value, json};

use super::children::{child, completed, first_result};
use super::{account, payloads, start};

/// Permits starting all directives of the tests, by each of the tools, and waiting for them.
const STARTS: &str = "<model tier=\"general\"/><permissions><execute><directive>t/*</directive>\
                      <tool>rye/agent/threads/*</tool></execute></permissions>";
/// Takes a number and returns one.
const NUMBERS: &str = "<inputs><input name=\"n\" type=\"integer\" required=\"true\">A number</input></inputs>\
                       <outputs><output name=\"words\" type=\"integer\" required=\"true\">How many</output></outputs>";

/// The model of `t/below` returns its outputs in its first turn.
const RETURNS: &str = "
- when: {directive: below}
  reply:
    calls: [{name: directive_return, input: {words: 4}}]
    usage: {input: 1000, output: 100}
";

/// The model of `t/above` calls `input` in its first turn, and ends once it gets `result`.
fn above(input: &str, result: &str) -> String {
    format!(
        "
- when: {{directive: above, turn: 1}}
  reply: {{calls: [{{name: rye_execute, input: {input}}}], usage: {{input: 100, output: 10}}}}
- when: {{directive: above, turn: 2, tool_result: '{result}'}}
  reply: {{text: Done., usage: {{input: 100, output: 10}}}}
"
    )
}

fn world(server: &ModelServer) -> World {
    let world = World::with_models(server);
    world.directive("t/above", STARTS, "", "Ask the one below.");
    world.directive("t/below", "", NUMBERS, "Count {input:n} words.");
    world
}

/// Writes a graph of one node that may start directives.
fn graph(world: &World, id: &str, action: &str, more: &str) {
    let config = format!(
        "start: ask\nnodes:\n  ask:\n    action: {action}\n    \
         assign: {{words: \"${{result.outputs.words}}\", spend: \"${{result.cost.spend}}\"}}\n    next: out\n{more}  \
         out: {{type: return, output: {{words: \"${{state.words}}\", spend: \"${{state.spend}}\"}}}}"
    );
    world.graph_with(id, "permissions: [\"rye.execute.*\"]", &config);
}

fn children(world: &World, run: &str) -> Vec<Value> {
    let tree = world.ryectl("tree --json").arg(run).ok().json();
    let below = tree[0]["children"].as_array().cloned();
    below.unwrap_or_default()
}

#[test]
fn a_directive_that_a_model_executes_is_a_thread_below_its_own() {
    let call = "{item_type: directive, item_id: t/below, parameters: {n: 3}}";
    let server = ModelServer::start(&format!("{RETURNS}{}", above(call, "\"words\":4")));
    let world = world(&server);
    let _daemon = world.start("");
    let thread = start(&world, "t/above");
    completed(&world, &thread);
    let child = child(&world, &thread);
    let record = world.record(&child);
    assert_eq!(
        (&record["parent_id"], &record["kind"]),
        (&json!(thread), &json!("thread")),
        "{record}"
    );
    let told: Value =
        serde_json::from_str(first_result(&world, &thread)["output"].as_str().unwrap()).unwrap();
    assert_eq!(told["outputs"], json!({"words": 4}));
    assert_eq!(
        (&told["thread_id"], &told["directive"]),
        (&json!(child), &json!("t/below"))
    );
    assert_eq!(
        (&told["success"], &told["cost"]["spend"]),
        (&json!(true), &json!(0.003)),
        "{told}"
    );
    let path = world.ryectl("budget show --json").arg(&child).ok().json();
    assert_eq!(path["path"].as_array().unwrap().len(), 2, "{path}");
    assert_eq!(
        account(&world, &thread)["actual"],
        "0.003600000",
        "both are paid for by the root"
    );
}

#[test]
fn a_node_of_a_graph_starts_a_thread_and_assigns_what_it_returned() {
    let server = ModelServer::start(RETURNS);
    let world = world(&server);
    graph(
        &world,
        "t/node",
        "{primary: execute, item_type: directive, item_id: t/below, params: {n: 3}}",
        "",
    );
    let tool = "{item_id: rye/agent/threads/thread_directive, params: {directive_id: t/below, inputs: {n: 3}}}";
    graph(&world, "t/tool", tool, "");
    let _daemon = world.start("");
    for graph in ["t/node", "t/tool"] {
        let _sound = world.ryectl("graph validate").arg(graph).ok();
        let out = world.ryectl("run --json").arg(graph).ok().json();
        assert_eq!(out["output"], json!({"words": 4, "spend": 0.003}), "{out}");
        let below = children(&world, out["run_id"].as_str().unwrap());
        assert_eq!(
            below.len(),
            1,
            "a child run, and no call that blocks: {below:?}"
        );
    }
}

#[test]
fn unstartable_directive_fails_its_node_without_run() {
    let server = ModelServer::start("[{when: {directive: never}, reply: {text: Done.}}]");
    let world = world(&server);
    let tool = "item_id: rye/agent/threads/thread_directive";
    let table = [
        (
            "{item_type: directive, item_id: t/nobody}",
            "item_not_found",
            "t/nobody",
        ),
        (
            "{item_type: directive, item_id: t/below, params: {n: many}}",
            "input_validation_failed",
            "n",
        ),
        (
            "{item_type: directive, item_id: t/below, params: {n: 1, model: none-of-that-name}}",
            "model_unusable",
            "none-of-that-name",
        ),
        (
            &format!(
                "{{{tool}, params: {{directive: t/below, inputs: {{n: 1}}, parent_thread_id: x}}}}"
            ),
            "input_validation_failed",
            "parent_thread_id",
        ),
        (
            &format!("{{{tool}, params: {{directive: t/below, inputs: {{n: 1}}, _token: x}}}}"),
            "input_validation_failed",
            "_token",
        ),
        (
            &format!(
                "{{{tool}, params: {{directive: t/below, inputs: {{n: 1}}, limit_overrides: {{spend: 5}}}}}}"
            ),
            "hierarchical_budget_exceeded",
            "5.000000000",
        ),
    ];
    for (at, (action, _, _)) in table.iter().enumerate() {
        graph(&world, &format!("t/g{at}"), action, "");
    }
    let _daemon = world.start("");
    for (at, (action, code, words)) in table.iter().enumerate() {
        let run = world.start_run(&format!("t/g{at}"));
        let record = world.settled(&run);
        assert_eq!(record["status"], "error", "{action}: {record}");
        let error = record["error"].to_string();
        assert!(error.contains(words), "{action}: {error}");
        let failed = payloads(&world, &run, "step_failed");
        assert_eq!(failed[0]["error"]["code"], *code, "{action}: {failed:?}");
        assert_eq!(failed.len(), 1, "nothing is tried again: {action}");
        assert_eq!(children(&world, &run), Vec::<Value>::new(), "{action}");
    }
    assert!(server.requests().is_empty());
}

#[test]
fn starting_thread_by_tool_needs_permission_for_tool_and_directive() {
    let server = ModelServer::start("[{when: {directive: never}, reply: {text: Done.}}]");
    let world = world(&server);
    let action = "start: a\nnodes:\n  a: {action: {item_id: rye/agent/threads/thread_directive, params: {directive: t/below, inputs: {n: 1}}}}";
    let lacks = [
        (
            "t/no-directive",
            "rye.execute.tool.*",
            "rye.execute.directive.t.below",
        ),
        (
            "t/no-tool",
            "rye.execute.directive.*",
            "rye.execute.tool.rye.agent.threads.thread_directive",
        ),
    ];
    for (graph, permission, _) in lacks {
        world.graph_with(graph, &format!("permissions: [\"{permission}\"]"), action);
    }
    let _daemon = world.start("");
    for (graph, _, lacking) in lacks {
        let run = world.start_run(graph);
        let record = world.settled(&run);
        assert!(record["error"].to_string().contains(lacking), "{record}");
        assert_eq!(children(&world, &run), Vec::<Value>::new());
    }
}

#[test]
fn failed_thread_restarts_only_with_node_retry() {
    let fails = "
- when: {directive: below}
  reply:
    calls: [{name: directive_return, input: {status: error, error_detail: 'connection refused, try again: 503'}}]
    usage: {input: 1000, output: 100}
";
    let server = ModelServer::start(fails);
    let world = world(&server);
    let action = "{item_type: directive, item_id: t/below, params: {n: 3}}";
    graph(&world, "t/once", action, "");
    graph(&world, "t/twice", &format!("{action}\n    retry: 1"), "");
    let _daemon = world.start("");
    for (graph, times) in [("t/once", 1), ("t/twice", 2)] {
        let run = world.start_run(graph);
        let record = world.settled(&run);
        assert!(
            record["error"].to_string().contains("connection refused"),
            "{record}"
        );
        let below = children(&world, &run);
        assert_eq!(below.len(), times, "{graph}: {below:?}");
        let failed = payloads(&world, &run, "step_failed");
        assert_eq!(failed[0]["error"]["code"], "directive_error", "{failed:?}");
        assert_eq!(
            failed[0]["classification"]["category"], "permanent",
            "{failed:?}"
        );
    }
}

#[test]
fn suspended_thread_suspends_its_waiter_and_both_resume() {
    let call = "{item_type: directive, item_id: t/below, parameters: {n: 3}, limit_overrides: {spend: 0.000001}}";
    let server = ModelServer::start(&format!("{RETURNS}{}", above(call, "words")));
    let world = world(&server);
    let _daemon = world.start("");
    let thread = start(&world, "t/above");
    let record = world.settled(&thread);
    let below = child(&world, &thread);
    assert_eq!(
        (&record["suspend"]["reason"], &record["suspend"]["child"]),
        (&json!("child"), &json!(below)),
        "{record}"
    );
    let _resumed = world
        .ryectl("resume --detach --raise spend=0.50")
        .arg(&below)
        .ok();
    until("the thread to be over", || {
        (world.record(&thread)["status"] == "completed").then_some(())
    });
    assert_eq!(world.record(&below)["status"], "completed");
}

#[test]
fn thread_short_of_ancestor_money_resumes_when_all_ancestors_are_raised() {
    let server = ModelServer::start(RETURNS);
    let world = world(&server);
    let below = "{item_type: directive, item_id: t/below, params: {n: 3}}";
    graph(&world, "t/middle", below, "");
    let middle = "{item_id: t/middle, params: {}}";
    let top = format!(
        "start: ask\nnodes:\n  ask: {{action: {middle}, next: out}}\n  out: {{type: return, output: 7}}"
    );
    world.graph_with("t/top", "permissions: [\"rye.execute.*\"]", &top);
    let _daemon = world.start("");
    let out = world.ryectl("run --detach t/top --limit spend=0.000001");
    let top = out.ok().line();
    let record = world.settled(&top);
    let only = |run: &str| {
        children(&world, run)[0]["run_id"]
            .as_str()
            .map(str::to_owned)
    };
    let middle = only(&top).unwrap();
    let thread = only(&middle).unwrap();
    assert_eq!(record["suspend"]["child"], thread.as_str(), "{record}");
    let why = &world.record(&thread)["suspend"];
    assert_eq!(
        (&why["reason"], &why["code"]),
        (&json!("budget"), &json!("hierarchical_budget_exceeded")),
        "{why}"
    );
    let why = &world.record(&thread)["error"];
    assert!(
        why.to_string().contains(&top),
        "it says who lacks it: {why}"
    );
    assert!(server.requests().is_empty());
    // More money, but not enough in the parent account: then no parent is raised, and no run resumes into an error.
    let raise = |more: &str| world.ryectl("budget raise --json").arg(&thread).words(more);
    let _short = raise("--spend 0.50").run().code(5).stderr_contains(&[&top]);
    let raised = raise("--spend 0.50 --through").ok().json();
    let told = |place: usize| {
        let row = &raised[place];
        (row["run_id"].clone(), row["max"].clone())
    };
    assert_eq!(told(0), (json!(top), json!("0.500000000")), "{raised}");
    assert_eq!(told(1), (json!(thread), json!("0.500000000")), "{raised}");
    let _resumed = world.ryectl("resume --detach").arg(&top).ok();
    until("the tree to be over", || {
        (world.record(&top)["status"] == "completed").then_some(())
    });
    for run in [&middle, &thread] {
        assert_eq!(world.record(run)["status"], "completed", "{run}");
    }
    assert_eq!(account(&world, &top)["actual"], "0.003000000");
}

#[test]
fn thread_reattaches_to_child_thread_after_crash() {
    let call = "{item_type: directive, item_id: t/below, parameters: {n: 3}}";
    let below = "
- when: {directive: below}
  reply: {slow_headers: gate, calls: [{name: directive_return, input: {words: 4}}], usage: {input: 10, output: 1}}
";
    let server = ModelServer::start(&format!("{below}{}", above(call, "words")));
    let world = world(&server);
    let daemon = world.start("");
    let thread = start(&world, "t/above");
    server.wait_for(|requests| requests.len() == 2);
    let before = child(&world, &thread);
    daemon.kill_both();
    let _status = daemon.ended();
    let _daemon = world.start("");
    server.release("gate");
    completed(&world, &thread);
    let started = payloads(&world, &thread, "tool_call_start");
    assert!(
        started
            .iter()
            .all(|start| start["child"] == before.as_str()),
        "{started:?}"
    );
    assert_eq!(children(&world, &thread).len(), 1);
}

/// The model of `t/above` starts `count` threads in its first turn. In the second it waits for them by their ids.
fn starts(count: usize) -> String {
    let start = "{name: rye_execute, input: {item_type: directive, item_id: t/below, parameters: {n: 1}, async: true}}";
    let calls = vec![start; count].join(", ");
    format!(
        "\n- when: {{directive: above, turn: 1}}\n  reply: {{calls: [{calls}], usage: {{input: 10, output: 1}}}}\n"
    )
}

#[test]
fn a_thread_has_no_more_children_at_once_than_the_configuration_allows() {
    let below = "
- when: {directive: below}
  reply: {slow_headers: gate, calls: [{name: directive_return, input: {words: 4}}]}
";
    let rest = "- when: {directive: above, turn: 2}\n  reply: {text: Done.}\n";
    let server = ModelServer::start(&format!("{below}{}{rest}", starts(3)));
    let world = world(&server);
    let own = "version: \"1.0.0\"\ncategory: agent\nname: resilience\nconcurrency: {max_concurrent_children: 2}\n";
    let path = world.write(".ai/config/agent/resilience.yaml", own);
    let _signed = world.ryectl("sign").arg(path).ok();
    let _daemon = world.start("");
    let thread = start(&world, "t/above");
    completed(&world, &thread);
    let told = payloads(&world, &thread, "tool_call_result");
    let codes: Vec<&Value> = told.iter().map(|told| &told["code"]).collect();
    let refused = codes
        .iter()
        .filter(|code| **code == "too_many_children")
        .count();
    assert_eq!((told.len(), refused), (3, 1), "{told:?}");
    let below = children(&world, &thread);
    assert_eq!(below.len(), 2, "{below:?}");
    server.release("gate");
    for run in below {
        completed(&world, run["run_id"].as_str().unwrap());
    }
}

#[test]
fn a_thread_begins_in_no_larger_tree_than_the_configuration_allows() {
    let below = "- when: {directive: below}\n  reply: {slow_headers: gate, text: Never.}\n";
    let rest = "- when: {directive: above, turn: 2}\n  reply: {text: Done.}\n";
    let server = ModelServer::start(&format!("{below}{}{rest}", starts(3)));
    let world = world(&server);
    let own = "version: \"1.0.0\"\ncategory: agent\nname: resilience\nconcurrency: {max_total_threads: 2}\n";
    let path = world.write(".ai/config/agent/resilience.yaml", own);
    let _signed = world.ryectl("sign").arg(path).ok();
    let _daemon = world.start("");
    let thread = start(&world, "t/above");
    completed(&world, &thread);
    let told = payloads(&world, &thread, "tool_call_result");
    let full = told
        .iter()
        .filter(|told| told["code"] == "resource_exhausted");
    let texts: Vec<String> = full.map(Value::to_string).collect();
    assert_eq!((told.len(), texts.len()), (3, 2), "{told:?}");
    assert!(texts[0].contains("max_total_threads"), "{texts:?}");
    assert_eq!(children(&world, &thread).len(), 1);
}

#[test]
fn cancelled_thread_cancels_unawaited_children() {
    let below = "- when: {directive: below}\n  reply: {slow_headers: gate, text: Never.}\n";
    let rest = "- when: {directive: above, turn: 2}\n  reply: {slow_headers: gate, text: Never.}\n";
    let server = ModelServer::start(&format!("{below}{}{rest}", starts(2)));
    let world = world(&server);
    let _daemon = world.start("");
    let thread = start(&world, "t/above");
    server.wait_for(|requests| requests.len() == 4);
    let _asked = world.ryectl("cancel").arg(&thread).ok();
    assert_eq!(world.settled(&thread)["status"], "cancelled");
    for run in children(&world, &thread) {
        let record = world.settled(run["run_id"].as_str().unwrap());
        assert_eq!(record["status"], "cancelled", "{record}");
    }
    assert_eq!(account(&world, &thread)["held"], "0.000000000");
}

#[test]
fn directive_check_reports_startability_without_run() {
    let server = ModelServer::start("[{when: {directive: never}, reply: {text: Done.}}]");
    let world = world(&server);
    let checks = |n: &str| {
        format!(
            "start: a\nnodes:\n  a:\n    action:\n      item_id: rye/agent/threads/thread_tool\n      \
             params: {{directive_name: t/below, directive_inputs: {{n: {n}}}, execute_directive: false}}\n    \
             assign: {{status: \"${{result.status}}\"}}\n    next: out\n  out: {{type: return, output: \"${{state.status}}\"}}"
        )
    };
    let head = "permissions: [\"rye.execute.*\"]";
    world.graph_with("t/sound", head, &checks("1"));
    world.graph_with("t/unsound", head, &checks("many"));
    let _daemon = world.start("");
    let out = world.ryectl("run --json t/sound").ok().json();
    assert_eq!(out["output"], "validated", "{out}");
    let run = world.start_run("t/unsound");
    let _failed = world.settled(&run);
    let failed = payloads(&world, &run, "step_failed");
    assert_eq!(
        failed[0]["error"]["code"], "input_validation_failed",
        "{failed:?}"
    );
    assert!(server.requests().is_empty());
}

#[test]
fn resume_thread_doubles_limit_or_sets_named_value() {
    let turns = "
- when: {turn: 3}
  reply: {text: Done.}
- when: {directive: limited}
  reply: {calls: [{name: rye_execute, input: {item_id: rye/bash, parameters: {command: 'true'}}}]}
";
    let server = ModelServer::start(turns);
    let world = World::with_models(&server);
    let metadata =
        "<limits turns=\"1\"/><permissions><execute><tool>rye/bash</tool></execute></permissions>";
    world.directive("t/limited", metadata, "", "Work.");
    let _daemon = world.start("");
    let run = start(&world, "t/limited");
    let resume = |params: &Value| {
        let out = world.ryectl("execute tool rye/agent/threads/resume_thread --json --params -");
        out.stdin(params.to_string()).ok().json()["data"].clone()
    };
    assert_eq!(world.settled(&run)["suspend"]["code"], "turns_exceeded");
    let told = resume(&json!({"thread_id": run, "action": "bump_and_resume"}));
    assert_eq!(
        (&told["success"], &told["new_thread_id"]),
        (&json!(true), &json!(run)),
        "{told}"
    );
    until("the second turn", || {
        let suspended = world.record(&run)["status"] == "suspended";
        (suspended && payloads(&world, &run, "step_finish").len() == 2).then_some(())
    });
    let named = json!({
        "thread_id": run, "action": "bump_and_resume", "new_limits": {"turns": 9}, "message": "Go on.",
    });
    let _told = resume(&named);
    completed(&world, &run);
    assert_eq!(
        payloads(&world, &run, "cognition_in").last().unwrap()["text"],
        "Go on."
    );
}
