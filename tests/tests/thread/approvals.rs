//! Calls of models that a person must approve, and questions of models.

use rye_tests::model_server::ModelServer;
use rye_tests::{World, until};
use serde_json::{Value, json};

use super::{payloads, start};

/// Permissions with a rule about `rye/bash`.
fn asks(attributes: &str) -> String {
    format!(
        "<model tier=\"general\"/><permissions><execute><tool>rye/bash</tool><tool>t/*</tool>\
         <tool>rye/agent/threads/ask</tool></execute><approve{attributes}><tool>rye/bash</tool></approve></permissions>"
    )
}

/// Makes two commands and reads a file in one turn, and ends in the next.
const TWO: &str = "
- when: {turn: 1}
  reply:
    calls:
    - {name: rye_execute, input: {item_id: rye/bash, parameters: {command: echo one >>done}}}
    - {name: rye_execute, input: {item_id: rye/bash, parameters: {command: echo two >>done}}}
    - {name: rye_execute, input: {item_id: t/free, parameters: {}}}
- when: {turn: 2}
  reply: {text: Done.}
";

fn free(world: &World) {
    world.tool(
        "t/free.py",
        "__version__ = \"1.0.0\"\n__tool_type__ = \"python\"\n__executor_id__ = \"rye/core/runtimes/python/function\"\n__category__ = \
         \"t\"\n__tool_description__ = \"A tool of the tests.\"\ndef execute(params, project_path):\n    open(\"free\", \"w\").close()\n    return {}\n",
    );
}

fn approvals(world: &World) -> Vec<Value> {
    let listed = world.ryectl("approvals --json").ok().json();
    listed.as_array().unwrap().clone()
}

#[test]
fn call_starts_after_approval_and_denied_one_is_told_to_the_model() {
    let server = ModelServer::start(TWO);
    let world = World::with_models(&server);
    world.directive("t/two", &asks(""), "", "Do both.");
    free(&world);
    let daemon = world.start("");
    let run = start(&world, "t/two");
    let record = world.settled(&run);
    assert_eq!(record["suspend"]["reason"], "approval", "{record}");
    // The call that needs no approval was made.
    assert!(world.project().join("free").exists());
    assert_eq!(world.read("done"), "");
    let asked = approvals(&world);
    assert_eq!(asked.len(), 2, "{asked:?}");
    assert!(
        asked.iter().all(|asked| asked["kind"] == "call"),
        "{asked:?}"
    );
    let about = |text: &str| {
        let is_about = |asked: &&Value| asked["message"].as_str().unwrap().contains(text);
        let asked = asked.iter().find(is_about).unwrap();
        asked["id"].as_str().unwrap().to_owned()
    };
    daemon.kill_both();
    let _status = daemon.ended();
    let _daemon = world.start("");
    assert_eq!(approvals(&world).len(), 2);
    let _denied = world
        .ryectl("deny --comment no")
        .arg(&run)
        .arg(about("echo one"))
        .run()
        .code_among(&[0, 75]);
    let _approved = world
        .ryectl("approve")
        .arg(&run)
        .arg(about("echo two"))
        .run()
        .code_among(&[0, 1, 75]);
    let record = until("the run to end", || {
        let record = world.record(&run);
        record["ended_at"].is_string().then_some(record)
    });
    assert_eq!(record["status"], "completed", "{record}");
    assert_eq!(world.read("done"), "two\n");
    let results = payloads(&world, &run, "tool_call_result");
    let denied = results.iter().find(|result| result["code"] == "denied");
    let text = denied.unwrap()["output"].as_str().unwrap();
    assert!(text.contains("denied by uid:0: no"), "{text}");
    let starts = payloads(&world, &run, "tool_call_start");
    assert_eq!(starts.len(), 2, "the denied call never started: {starts:?}");
}

#[test]
fn approved_tool_that_changes_is_asked_about_again() {
    let server = ModelServer::start(
        "
- when: {turn: 1}
  reply: {calls: [{name: rye_execute, input: {item_id: t/free, parameters: {}}}]}
- when: {turn: 2}
  reply: {text: Done.}
",
    );
    let world = World::with_models(&server);
    world.directive(
        "t/one",
        "<model tier=\"general\"/><permissions><execute><tool>t/*</tool></execute><approve><tool>t/free</tool></approve></permissions>",
        "",
        "Do it.",
    );
    free(&world);
    let _daemon = world.start("");
    let run = start(&world, "t/one");
    let _suspended = world.settled(&run);
    let first = approvals(&world)[0]["id"].clone();
    let changed = world
        .read(".ai/tools/t/free.py")
        .replace("open(\"free", "open(\"other");
    world.tool("t/free.py", &changed);
    let _approved = world.ryectl("approve").arg(&run).run().code_among(&[0, 75]);
    let second = until("the second question", || {
        let asked = approvals(&world);
        asked
            .first()
            .map(|asked| asked["id"].clone())
            .filter(|id| *id != first)
    });
    assert!(!world.project().join("other").exists());
    assert_eq!(
        payloads(&world, &run, "approval_invalidated"),
        [json!({"id": first})]
    );
    let _suspended = world.settled(&run);
    let _approved = world
        .ryectl("approve")
        .arg(&run)
        .arg(second.as_str().unwrap())
        .run()
        .code_among(&[0, 1]);
    until("the run to end", || {
        (world.record(&run)["status"] == "completed").then_some(())
    });
    assert!(world.project().join("other").exists());
}

#[test]
fn question_that_nobody_answers_in_time_is_denied_or_ends_the_thread() {
    for (on_expiry, status) in [("deny", "completed"), ("fail", "error")] {
        let server = ModelServer::start(TWO);
        let world = World::with_models(&server);
        let attributes = format!(" expires=\"1s\" on_expiry=\"{on_expiry}\"");
        world.directive("t/two", &asks(&attributes), "", "Do both.");
        free(&world);
        let _daemon = world.start("");
        let run = start(&world, "t/two");
        let record = until("the run to end", || {
            let record = world.record(&run);
            record["ended_at"].is_string().then_some(record)
        });
        assert_eq!(record["status"], status, "{record}");
        assert_eq!(world.read("done"), "");
        if status == "error" {
            assert_eq!(record["error"]["code"], "approval_expired", "{record}");
        }
    }
}

#[test]
fn model_asks_its_person_and_reads_the_answer() {
    let server = ModelServer::start(
        "
- when: {turn: 1}
  reply: {calls: [{name: rye_execute, input: {item_id: rye/agent/threads/ask, parameters: {question: Which way?, choices: [left, right]}}}]}
- when: {turn: 2}
  reply: {text: Done.}
",
    );
    let world = World::with_models(&server);
    // The rule is about calls of the model, not about calling the model.
    let all = asks("").replace("<tool>rye/bash</tool></approve>", "*</approve>");
    world.directive("t/lost", &all, "", "Find the way.");
    let _daemon = world.start("");
    let run = start(&world, "t/lost");
    let record = world.settled(&run);
    assert_eq!(record["suspend"]["reason"], "approval", "{record}");
    let asked = approvals(&world);
    assert_eq!(
        (&asked[0]["kind"], &asked[0]["message"]),
        (&json!("question"), &json!("Which way?"))
    );
    let answer = |text: &str| {
        world
            .ryectl("approve")
            .arg(&run)
            .arg("--answer")
            .arg(text)
            .run()
    };
    let _wrong = answer("\"up\"").code(2).stderr_contains(&["answer"]);
    let _answered = answer("\"left\"").code_among(&[0, 1]);
    until("the run to end", || {
        (world.record(&run)["status"] == "completed").then_some(())
    });
    let results = payloads(&world, &run, "tool_call_result");
    let text = results[0]["output"].as_str().unwrap();
    assert!(text.contains("left") && text.contains("uid:0"), "{text}");
}

#[test]
fn rule_of_a_thread_holds_for_the_runs_below_it() {
    let server = ModelServer::start(
        "
- when: {turn: 1}
  reply:
    calls:
    - {name: rye_execute, input: {item_id: t/graph, parameters: {}}}
- when: {turn: 2}
  reply: {text: Done.}
",
    );
    let world = World::with_models(&server);
    world.graph_with(
        "t/graph",
        "permissions: [rye.execute.tool.rye.bash]",
        "start: a\nnodes:\n  a:\n    type: foreach\n    over: [1, 2]\n    as: n\n    parallel: true\n    max_concurrency: 2\n    \
         action: {item_id: rye/bash, params: {command: \"echo ${n} >>done\"}}\n    next: b\n  \
         b: {action: {item_id: rye/bash, params: {command: \"echo ${_now} >>done\"}}, next: c}\n  c: {type: return}",
    );
    world.directive("t/above", &asks(""), "", "Run it.");
    let daemon = world.start("");
    let run = start(&world, "t/above");
    let record = world.settled(&run);
    assert_eq!(record["suspend"]["reason"], "child", "{record}");
    let child = record["suspend"]["child"].as_str().unwrap().to_owned();
    let asked = approvals(&world);
    assert_eq!(asked.len(), 2, "{asked:?}");
    daemon.kill_both();
    let _status = daemon.ended();
    let _daemon = world.start("");
    for count in [1, 2] {
        let asked = approvals(&world);
        let _approved = world
            .ryectl("approve")
            .arg(&child)
            .arg(asked[0]["id"].as_str().unwrap())
            .run()
            .code_among(&[0, 1, 75]);
        until("the item", || {
            (world.read("done").lines().count() == count).then_some(())
        });
    }
    // Its parameters hold the time, which stays the same while the person thinks.
    until("the third question", || {
        (approvals(&world).len() == 1).then_some(())
    });
    let _approved = world
        .ryectl("approve")
        .arg(&child)
        .run()
        .code_among(&[0, 1, 75]);
    until("the thread to end", || {
        (world.record(&run)["status"] == "completed").then_some(())
    });
    assert_eq!(world.read("done").lines().count(), 3);
}

#[test]
fn directive_is_asked_about_whichever_tool_starts_it() {
    for call in [
        "{item_type: directive, item_id: t/child, parameters: {}}",
        "{item_id: rye/agent/threads/thread_directive, parameters: {directive_name: t/child}}",
    ] {
        let server = ModelServer::start(&format!(
            "
- when: {{directive: above, turn: 1}}
  reply: {{calls: [{{name: rye_execute, input: {call}}}]}}
- when: {{directive: above, turn: 2}}
  reply: {{text: Done.}}
- when: {{directive: child, turn: 1}}
  reply: {{text: Hello.}}
"
        ));
        let world = World::with_models(&server);
        let model = "<model tier=\"general\"/>";
        world.directive("t/child", model, "", "Say hello.");
        world.directive(
            "t/above",
            &format!(
                "{model}<permissions><execute><directive>t/child</directive><tool>rye/agent/threads/thread_directive</tool></execute>\
                 <approve><directive>t/child</directive></approve></permissions>"
            ),
            "",
            "Start it.",
        );
        let _daemon = world.start("");
        let run = start(&world, "t/above");
        let record = world.settled(&run);
        assert_eq!(record["suspend"]["reason"], "approval", "{call}: {record}");
        assert_eq!(record["spawn_count"], 0, "{call}");
        let _approved = world.ryectl("approve").arg(&run).run().code_among(&[0, 1]);
        until("the thread to end", || {
            (world.record(&run)["status"] == "completed").then_some(())
        });
        assert_eq!(world.record(&run)["spawn_count"], 1, "{call}");
    }
}
