//! Items that are fetched by id, found by queries, and signed: by the command line, by graphs, and by models.

use rye_tests::World;
use rye_tests::model_server::ModelServer;
use serde_json::{Value, json};

const OUT: &str = "\n  out: {type: return, output: \"${state.got}\"}";

/// Writes the signed knowledge `team/rules` and `secret/plan` to the project.
fn know(world: &World) {
    for (category, name, body) in [
        ("team", "rules", "Never send mail on Fridays."),
        ("secret", "plan", "Send all the mail on a Friday."),
    ] {
        let text = format!(
            "```yaml\nname: {name}\ntitle: The {name}\ncategory: {category}\nversion: \"1.0.0\"\nentry_type: note\n```\n\n{body}\n"
        );
        world.write(&format!(".ai/knowledge/{category}/{name}.md"), text);
        let target = format!("knowledge:{category}/{name}");
        let _signed = world.ryectl("sign").arg(target).ok();
    }
}

fn found(answer: &Value) -> Vec<&str> {
    let results = answer["results"].as_array().unwrap();
    results
        .iter()
        .map(|result| result["id"].as_str().unwrap())
        .collect()
}

#[test]
fn the_command_prints_an_item_or_lists_what_a_query_finds() {
    let world = World::new();
    know(&world);
    let _daemon = world.start("");
    let file = world.ryectl("fetch knowledge:team/rules").ok().stdout();
    assert_eq!(file, world.read(".ai/knowledge/team/rules.md"));
    let told = world.ryectl("fetch team/rules --json").ok().json();
    assert_eq!(
        (&told["item_type"], &told["verified"]),
        (&json!("knowledge"), &json!(true))
    );
    let told = world.ryectl("fetch --json --query fridays").ok().json();
    assert_eq!(
        (found(&told), &told["total"]),
        (vec!["team/rules"], &json!(1))
    );
    let _listed = world
        .ryectl("fetch --query mail --scope knowledge.team")
        .ok()
        .prints(&["knowledge:team/rules", "verified", "The rules", "1 of 1"]);
    let _copied = world.ryectl("fetch rye/bash --copy-to project").ok();
    assert!(world.project().join(".ai/tools/rye/bash.yaml").exists());
    let _there = world
        .ryectl("fetch rye/bash --source system --copy-to project")
        .run()
        .code(5)
        .stderr_contains(&["is there already"]);
    for (words, code, told) in [
        ("fetch no/such", 3, "no/such"),
        ("fetch knowledge:no/such", 3, "no/such"),
        ("fetch --query (a", 2, "parenthesis"),
        ("fetch --query a --scope tool.a..b", 2, "scope"),
        ("fetch rye/bash --query a", 2, "cannot be used with"),
        ("fetch", 2, "required"),
    ] {
        let _refused = world
            .ryectl(words)
            .run()
            .code(code)
            .stderr_contains(&[told]);
    }
    world.write(".ai/knowledge/team/rules.md", file + "And on Mondays.\n");
    let _modified = world
        .ryectl("fetch knowledge:team/rules")
        .run()
        .code(4)
        .stderr_contains(&["was changed after"]);
}

#[test]
fn a_graph_reads_and_finds_what_it_may_fetch_and_nothing_else() {
    let world = World::new();
    know(&world);
    let reads = "start: read\nnodes:\n  read:\n    action: {primary: load, item_type: knowledge, item_id: \"${inputs.id}\"}\n    \
                 assign: {got: \"${result.metadata.title}\"}\n    next: out";
    let finds = "start: find\nnodes:\n  find:\n    action: {primary: search, params: {query: \"${inputs.words}\", item_type: knowledge}}\n    \
                 assign: {got: \"${result.total}\"}\n    next: out";
    let permissions = "permissions: [rye.fetch.knowledge.team.*]";
    world.graph_with("t/reads", permissions, &format!("{reads}{OUT}"));
    world.graph_with("t/finds", permissions, &format!("{finds}{OUT}"));
    let _daemon = world.start("");
    let read = world.ryectl("run t/reads -i id=team/rules").ok();
    assert_eq!(read.line(), "The rules");
    let run = world
        .ryectl("run --detach t/reads -i id=secret/plan")
        .ok()
        .line();
    let record = world.settled(&run);
    assert_eq!(record["error"]["code"], "permission_denied", "{record}");
    let warned = world.ryectl("events --json").arg(&run).ok().stdout();
    assert!(
        warned.contains("rye.fetch.knowledge.secret.plan"),
        "{warned}"
    );
    let found = world.ryectl("run t/finds -i words=friday*").ok();
    assert_eq!(found.json(), 1, "the plan is not counted");
    let _none = world.ryectl("run t/reads -i id=team/none").run().code(1);
}

#[test]
fn a_model_finds_and_reads_what_its_directive_may_fetch() {
    let server = ModelServer::start(
        "
- when: {directive: ask, turn: 1}
  reply:
    calls: [{name: rye_fetch, input: {query: mail}}]
    usage: {input: 900, output: 20}
- when: {directive: ask, turn: 2, tool_result: 'results 1 to 1 of 1'}
  reply:
    calls:
      - {name: rye_fetch, input: {item_type: knowledge, item_id: team/rules}}
      - {name: rye_fetch, input: {item_type: knowledge, item_id: secret/plan}}
    usage: {input: 90, output: 20, cache_read: 900}
- when: {directive: ask, turn: 3, tool_result: 'Never send mail on Fridays'}
  reply: {text: done, usage: {input: 90, output: 20, cache_read: 900}}
",
    );
    let world = World::with_models(&server);
    know(&world);
    let metadata = "<model tier=\"general\"/><permissions><fetch><knowledge>team/*</knowledge></fetch></permissions>";
    world.directive("t/ask", metadata, "", "When is mail sent?");
    let _daemon = world.start("");
    let out = world.ryectl("thread run t/ask").ok();
    assert_eq!(out.stdout().trim(), "done");
    let requests = server.requests();
    let tools = requests[0].body["tools"].as_array().unwrap();
    let names: Vec<&str> = tools
        .iter()
        .map(|tool| tool["name"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["read_artifact", "rye_fetch"]);
    let last = requests[2].body.to_string();
    assert!(last.contains("permission_denied"), "{last}");
    assert!(!last.contains("Send all the mail"), "{last}");
}

#[test]
fn the_state_of_a_graph_run_is_found_from_the_command_line_and_from_a_tool_call() {
    let world = World::new();
    let sum = "start: count\nnodes:\n  count: {assign: {word: zebrawood}, next: done}\n  done: {type: return, output: \"${state.word}\"}";
    world.graph("t/sum", sum);
    let permissions = "permissions: [rye.fetch.knowledge.graphs.*]";
    let by = |params: &str| {
        format!(
            "start: look\nnodes:\n  look:\n    action: {{item_id: rye/core/fetch, primary: fetch, params: {params}}}\n    \
             assign: {{got: \"${{result}}\"}}\n    next: out{OUT}"
        )
    };
    world.graph_with(
        "t/by-id",
        permissions,
        &by("{item_type: knowledge, item_id: \"graphs/t/sum/${inputs.run}\"}"),
    );
    world.graph_with(
        "t/by-query",
        permissions,
        &by("{query: zebrawood, scope: knowledge.graphs}"),
    );
    let _daemon = world.start("");
    let run = world.start_run("t/sum");
    assert_eq!(world.settled(&run)["output"], "zebrawood");
    let id = format!("graphs/t/sum/{run}");
    rye_tests::until("the state of the run to be written", || {
        let path = format!(".ai/knowledge/{id}.md");
        world.read(&path).contains("zebrawood").then_some(())
    });
    let file = world.ryectl("fetch").arg(format!("knowledge:{id}")).ok();
    assert!(file.stdout().contains("zebrawood"), "{}", file.stdout());
    let told = world
        .ryectl("fetch --json --query zebrawood --scope knowledge.graphs")
        .ok()
        .json();
    assert_eq!(found(&told), [id.as_str()]);
    assert_eq!(told["results"][0]["verified"], true);

    let read = world
        .ryectl("run t/by-id -i")
        .arg(format!("run={run}"))
        .ok();
    let read = &read.json();
    assert_eq!(read["item_id"], id.as_str(), "{read}");
    assert!(read["content"].as_str().unwrap().contains("zebrawood"));
    let listed = world.ryectl("run t/by-query").ok();
    let listed = &listed.json();
    assert!(found(listed).contains(&id.as_str()), "{listed}");
}

#[test]
fn a_model_signs_what_its_directive_may_sign_and_nothing_else() {
    let server = ModelServer::start(
        "
- when: {directive: ask, turn: 1}
  reply:
    calls:
      - {name: rye_sign, input: {item_type: tool, item_id: made/one}}
      - {name: rye_sign, input: {item_type: tool, item_id: other/one}}
    usage: {input: 900, output: 20}
- when: {directive: ask, turn: 2, tool_result: 'permission_denied'}
  reply: {text: done, usage: {input: 90, output: 20, cache_read: 900}}
",
    );
    let world = World::with_models(&server);
    for category in ["made", "other"] {
        let text = format!(
            "version: \"1.0.0\"\ntool_type: bash\nexecutor_id: rye/core/runtimes/bash\ncategory: {category}\nname: one\nconfig: {{script: \"echo 7\"}}\n"
        );
        world.write(&format!(".ai/tools/{category}/one.yaml"), text);
    }
    let metadata =
        "<model tier=\"general\"/><permissions><sign><tool>made/*</tool></sign></permissions>";
    world.directive("t/ask", metadata, "", "Sign it.");
    let _daemon = world.start("");
    let out = world.ryectl("thread run t/ask").ok();
    assert_eq!(out.stdout().trim(), "done");
    let _runs = world.ryectl("execute tool made/one").ok();
    let _unsigned = world.ryectl("execute tool other/one").run().code(4);
    let run = world.ryectl("ps --all --json").ok().json();
    let threads = run.as_array().unwrap().iter();
    let mut threads = threads.filter(|run| run["kind"] == "thread");
    let run = threads.next().unwrap()["run_id"]
        .as_str()
        .unwrap()
        .to_owned();
    let events = world.ryectl("events --json").arg(&run).ok().json_lines();
    let signed: Vec<_> = events
        .iter()
        .filter(|event| event["event_type"] == "item_signed")
        .map(|event| event["payload"]["item"].as_str().unwrap())
        .collect();
    assert_eq!(signed, ["tool:made/one"]);
}

#[test]
fn a_graph_signs_what_it_may_sign_and_the_run_says_so() {
    let world = World::new();
    let tool = |name: &str| {
        format!(
            "version: \"1.0.0\"\ntool_type: bash\nexecutor_id: rye/core/runtimes/bash\ncategory: made\nname: {name}\noutput: json\nconfig: {{script: \"echo 7\"}}\n"
        )
    };
    world.write(".ai/tools/made/one.yaml", tool("one"));
    let signs = "start: sign\nnodes:\n  sign:\n    action: {primary: sign, item_type: tool, item_id: \"${inputs.id}\"}\n    \
                 assign: {got: \"${result.status}\"}\n    next: run\n  run:\n    action: {item_id: \"${inputs.id}\"}\n    assign: {got: \"${result}\"}\n    next: out";
    let head = "permissions: [rye.sign.tool.made.*, rye.execute.tool.made.*]";
    world.graph_with("t/signs", head, &format!("{signs}{OUT}"));
    let _daemon = world.start("");
    let _unsigned = world
        .ryectl("execute tool made/one")
        .run()
        .code(4)
        .stderr_contains(&["not signed"]);
    let run = world
        .ryectl("run --detach t/signs -i id=made/one")
        .ok()
        .line();
    let record = world.settled(&run);
    assert_eq!(record["output"], 7, "{record}");
    let events = world.ryectl("events --json").arg(&run).ok().json_lines();
    let signed = events
        .iter()
        .find(|event| event["event_type"] == "item_signed");
    let payload = &signed.unwrap()["payload"];
    assert_eq!(payload["item"], "tool:made/one");
    assert_eq!(payload["key_fp"], world.info()["node_fingerprint"]);
    let denied = world
        .ryectl("run --detach t/signs -i id=t/signs")
        .ok()
        .line();
    let record = world.settled(&denied);
    assert_eq!(record["error"]["code"], "permission_denied", "{record}");
}
