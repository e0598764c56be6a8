//! Steering runs and viewing graphs: suspend, resume, single steps, validation, drawings, trees and chains.

use rye_core::id::ItemKind;
use rye_core::printable::shell_word;
use rye_tests::{World, processes, until};
use serde_json::{Value, json};

/// Two steps: the first waits for the file `go`, the second fails while the file `ok` is missing. Each records that it
/// ran.
pub(crate) const TWO: &str = r#"start: one
state: {n: 1}
nodes:
  one:
    action: {item_id: rye/bash, params: {command: "echo one >>ran; touch in; until [ -e go ]; do sleep 0.01; done"}}
    assign: {n: 2}
    next: two
  two:
    action: {item_id: rye/bash, params: {command: "echo two >>ran; [ -e ok ]"}}
    assign: {m: "${inputs.who}"}
    next: done
  done: {type: return, output: {n: "${state.n}", m: "${state.m}"}}"#;

/// Makes a world whose first run of [`TWO`] has failed at its second step.
pub(crate) fn failed() -> (World, String) {
    let world = World::new();
    world.graph("t/two", TWO);
    world.write("go", "");
    let out = world.ryectl("run --json t/two -i who=Ada").run().code(1);
    let run = out.json()["run_id"].as_str().unwrap().to_owned();
    assert_eq!(world.read("ran"), "one\ntwo\n");
    (world, run)
}

#[test]
fn a_suspended_run_stops_between_two_steps_and_resumes_under_its_own_id() {
    let world = World::new();
    world.graph(
        "t/loop",
        r#"start: tick
max_steps: 1000000
nodes:
  tick:
    action: {item_id: rye/bash, params: {command: "echo tick >>ran; [ -e ok ] && echo false || echo true"}}
    assign: {more: "${result.stdout | from_json}"}
    next:
      - {to: tick, when: {path: state.more, op: eq, value: true}}
      - {to: done}
  done: {type: return}"#,
    );
    let run = world.start_run("t/loop");
    until("a step", || (!world.read("ran").is_empty()).then_some(()));
    let record = world.ryectl("suspend --json").arg(&run).ok().json();
    assert_eq!(record["status"], "suspended");
    assert_eq!(record["suspend"]["reason"], "user");
    let ran = |world: &World| world.read("ran").lines().count();
    assert_eq!(record["steps"], ran(&world));
    let _suspended = world.ryectl("wait").arg(&run).run().code(75);
    let _already = world.ryectl("suspend").arg(&run).ok();
    let before = ran(&world);
    world.write("ok", "");
    let out = world.ryectl("resume --json").arg(&run).ok();
    assert_eq!(out.json()["run_id"], run.as_str());
    assert_eq!(out.json()["status"], "completed");
    assert_eq!(ran(&world), before + 1);
    // There are two nodes, and more steps than that.
    let of = if before < 2 { "/2" } else { "" };
    let _told = out
        .stderr_contains(&["done ⏹", &format!("step {}{of} tick ✓", before + 1)])
        .stderr_lacks(" step 1/2");
    let _over = world.ryectl("suspend").arg(&run).run().code(5);
}

#[test]
fn a_failed_run_is_continued_by_one_new_run_that_repeats_nothing() {
    let (world, old) = failed();
    world.write("ok", "");
    let out = world.ryectl("resume --json").arg(&old).ok();
    let result = out.json();
    let new = result["run_id"].as_str().unwrap().to_owned();
    assert_ne!(new, old);
    assert_eq!(result["output"], json!({"n": 2, "m": "Ada"}));
    let _told = out.stderr_contains(&[&format!("{old} has ended; {new} continues it")]);
    assert_eq!(world.read("ran"), "one\ntwo\ntwo\n");
    assert_eq!(world.record(&old)["continued_by"], new.as_str());
    assert_eq!(world.record(&new)["continuation_of"], old.as_str());
    let listed = world.ryectl("ps --all --json").ok().json();
    let line = |run: &str| {
        let mut lines = listed.as_array().unwrap().iter();
        lines.find(|line| line["run_id"] == run).unwrap()
    };
    assert_eq!(line(&old)["continued_by"], new.as_str());
    assert_eq!(line(&new)["continuation_of"], old.as_str());
    for run in [&old, &new] {
        let chain = world.ryectl("chain --json").arg(run).ok().json();
        let ids: Vec<&Value> = chain
            .as_array()
            .unwrap()
            .iter()
            .map(|it| &it["run_id"])
            .collect();
        assert_eq!(ids, [&json!(old), &json!(new)]);
    }
    // A second resume returns the run that continued it. That run itself has nothing to continue.
    let again = world.ryectl("resume --json").arg(&old).ok();
    assert_eq!(again.json()["run_id"], new.as_str());
    let _more = world
        .ryectl("resume --raise steps=90")
        .arg(&old)
        .run()
        .code(5);
    let _done = world.ryectl("resume").arg(&new).run().code(5);
    assert_eq!(world.read("ran"), "one\ntwo\ntwo\n");
}

#[test]
fn run_takes_up_an_old_run_only_of_the_same_graph_and_with_its_inputs() {
    let (world, old) = failed();
    world.graph("t/other", "start: a\nnodes:\n  a: {type: return}");
    let other = world.ryectl("run t/other --resume").arg(&old).run().code(5);
    let _told = other.stderr_contains(&["it runs `tool:t/two`"]);
    let inputs = world.ryectl("run t/two -i who=Bob --resume").arg(&old);
    let _usage = inputs.run().code(2);
    world.write("ok", "");
    let out = world.ryectl("run --json t/two --resume").arg(&old).ok();
    assert_eq!(out.json()["output"]["m"], "Ada");
    assert_eq!(world.record(&old)["continued_by"], out.json()["run_id"]);
}

#[test]
fn a_run_out_of_steps_resumes_with_more() {
    let world = World::new();
    world.graph("t/two", TWO);
    world.write("go", "");
    world.write("ok", "");
    let out = world
        .ryectl("run --json t/two --limit steps=1")
        .run()
        .code(1);
    assert_eq!(out.json()["error"]["code"], "max_steps_exceeded");
    let run = out.json()["run_id"].as_str().unwrap().to_owned();
    let out = world.ryectl("resume --json --raise steps=9").arg(&run).ok();
    assert_eq!(out.json()["status"], "completed");
    assert_eq!(world.read("ran"), "one\ntwo\n");
}

#[test]
fn an_uncertain_step_waits_for_its_answer() {
    let world = World::new();
    world.graph(
        "t/charge",
        r#"start: charge
nodes:
  charge:
    action: {item_id: rye/bash, params: {command: "echo charged >>ran; until [ -e go ]; do sleep 0.01; done"}}
    effect: at_most_once
    assign: {receipt: "${result.stdout | trim}"}
    next: done
  done: {type: return, output: {receipt: "${state.receipt}"}}"#,
    );
    let daemon = world.start("");
    let run = world.start_run("t/charge");
    until("the charge", || {
        (world.read("ran") == "charged\n").then_some(())
    });
    daemon.kill_both();
    until("nothing to be left", || {
        let left = processes::below(world.root());
        left.is_empty().then_some(())
    });
    let record = world.settled(&run);
    assert_eq!(record["status"], "suspended");
    assert_eq!(record["suspend"]["reason"], "uncertain");
    assert_eq!(record["suspend"]["uncertain"], json!(["charge"]));
    let attempt = &record["suspend"]["attempts"][0];
    assert_eq!(attempt["item"], "tool:rye/bash", "{attempt}");
    let command = attempt["params"]["command"].as_str().unwrap();
    assert!(command.starts_with("echo charged"), "{attempt}");
    let key = attempt["key"].as_str().unwrap();
    assert!(attempt["started_at"].is_string(), "{attempt}");
    let shown = world.ryectl("get").arg(&run).ok();
    let _told = shown.prints(&["echo charged", &format!("RYE_IDEMPOTENCY_KEY={key}")]);
    let _asked = world
        .ryectl("resume")
        .arg(&run)
        .run()
        .code(5)
        .stderr_contains(&["--uncertain 'charge=retry|done|fail'"]);
    let wrong = world.ryectl("resume --uncertain refund=done").arg(&run);
    let _named = wrong
        .run()
        .code(5)
        .stderr_contains(&["`refund` is not uncertain"]);
    for words in [
        "resume --uncertain charge=retry --result 1",
        "resume --uncertain *=done --result 1",
    ] {
        let unfit = world.ryectl(words).arg(&run).run().code(2);
        let _told = unfit.stderr_contains(&["exactly one answer"]);
    }
    let out = world
        .ryectl("resume --json --uncertain charge=done --reason looked --result")
        .arg(r#"{"stdout": "receipt 7\n"}"#)
        .arg(&run)
        .ok();
    assert_eq!(out.json()["status"], "completed");
    assert_eq!(out.json()["output"]["receipt"], "receipt 7");
    assert_eq!(world.read("ran"), "charged\n");
    // The result is a person's declaration, so the duration is unknown.
    let steps = world.ryectl("steps --json").arg(&run).ok().json();
    let mut steps = steps.as_array().unwrap().iter();
    let charge = steps.find(|step| step["node"] == "charge").unwrap();
    assert_eq!(charge["status"], "declared", "{charge}");
    assert_eq!(charge["elapsed_ms"], 0, "{charge}");
}

#[test]
fn a_continuation_repeats_no_item_that_succeeded() {
    let world = World::new();
    world.graph(
        "t/fan",
        r#"start: fan
nodes:
  fan:
    type: foreach
    over: [a, b, c]
    action: {item_id: rye/bash, params: {command: 'echo "$ITEM" >>ran; [ "$ITEM" != b ] || [ -e ok ]', env: {ITEM: "${item}"}}}
    next: done
  done: {type: return}"#,
    );
    let failed = world.ryectl("run t/fan --json").run().code(1).json();
    assert_eq!(failed["error"]["code"], "item_failed");
    assert_eq!(world.read("ran"), "a\nb\n");
    world.write("ok", "");
    let _resumed = world
        .ryectl("resume")
        .arg(failed["run_id"].as_str().unwrap())
        .ok();
    assert_eq!(world.read("ran"), "a\nb\nb\nc\n");
}

#[test]
fn step_cut_off_by_kill_repeats_only_on_verdict() {
    let world = World::new();
    world.graph(
        "t/charge",
        r#"start: charge
nodes:
  charge:
    effect: at_most_once
    action: {item_id: rye/bash, params: {command: "echo charged >>ran; [ -e ok ] || sleep 600"}}"#,
    );
    let run = world.start_run("t/charge");
    until("the charge", || {
        (!world.read("ran").is_empty()).then_some(())
    });
    let _killed = world.ryectl("kill --grace 0").arg(&run).ok();
    world.write("ok", "");
    let _asks = world
        .ryectl("resume")
        .arg(&run)
        .run()
        .code(5)
        .stderr_contains(&["charge", "--uncertain charge=retry"]);
    let _ended = world
        .ryectl("resume --uncertain charge=done")
        .arg(&run)
        .run()
        .code(5);
    assert_eq!(world.read("ran"), "charged\n");
    let _again = world
        .ryectl("resume --uncertain charge=retry")
        .arg(&run)
        .ok();
    assert_eq!(world.read("ran"), "charged\ncharged\n");
}

#[test]
fn the_time_of_a_graph_ends_the_call_in_flight() {
    let world = World::new();
    world.graph(
        "t/slow",
        "start: a\ntimeout: 0.3\nnodes:\n  a: {action: {item_id: rye/bash, params: {command: sleep 600}}, on_error: b}\n  b: {type: return}",
    );
    let ended = world.ryectl("run t/slow --json").run().code(1).json();
    assert_eq!(ended["error"]["code"], "duration_exceeded");
}

#[test]
fn step_cut_off_by_graph_timeout_repeats_only_on_verdict() {
    for (kind, open, charged) in [
        ("", "charge", 1),
        (
            "type: foreach, over: [0, 1], parallel: true, ",
            "charge[0]",
            2,
        ),
    ] {
        for hooks in [
            "",
            "hooks: [{event: graph_completed, action: {item_id: rye/core/echo}}]\n",
        ] {
            let world = World::new();
            let config = format!(
                "start: charge\ntimeout: 2\n{hooks}nodes:\n  charge: {{{kind}effect: at_most_once, action: {{item_id: rye/bash, \
                 params: {{command: 'echo charged >>ran; [ -e ok ] || sleep 600'}}}}}}"
            );
            world.graph("t/late", &config);
            let ended = world.ryectl("run t/late --json").run().code(1).json();
            assert_eq!(ended["error"]["code"], "duration_exceeded");
            let run = ended["run_id"].as_str().unwrap();
            world.write("ok", "");
            let _asks = world
                .ryectl("resume")
                .arg(run)
                .run()
                .code(5)
                .stderr_contains(&[&format!(
                    "--uncertain {}",
                    shell_word(&format!("{open}=retry"))
                )]);
            assert_eq!(world.read("ran").lines().count(), charged);
            let _again = world.ryectl("resume --uncertain *=retry").arg(run).ok();
            assert_eq!(world.read("ran").lines().count(), 2 * charged);
        }
    }
}

#[test]
fn failure_that_suspended_run_is_shown() {
    for (answer, reason, way) in [
        ("action: escalate", "error", "tries the node again"),
        ("action: suspend", "error", "tries the node again"),
        (
            "action: suspend, suspend_reason: approval",
            "approval",
            "continues:",
        ),
    ] {
        let world = World::new();
        let config = format!(
            "start: a\nhooks:\n  - {{event: error, action: {{item_id: rye/agent/threads/internal/control, params: {{{answer}}}}}}}\n\
             nodes:\n  a: {{action: {{item_id: rye/bash, params: {{command: '[ -e ok ] || {{ echo no card >&2; exit 3; }}'}}}}}}"
        );
        world.graph("t/asks", &config);
        let out = world
            .ryectl("run --json t/asks")
            .run()
            .code(75)
            .stderr_contains(&[
                &format!("suspended: {reason}"),
                "in node a",
                "it failed: node a: ",
                "no card",
                way,
            ]);
        let out = out.stderr_lacks("--raise").json();
        assert_eq!(out["error"]["node"], "a");
        let run = out["run_id"].as_str().unwrap();
        let record = world.record(run);
        assert_eq!(record["suspend"]["reason"], reason);
        let error = &record["error"];
        assert_eq!(error["node"], "a", "{record}");
        assert_eq!(error["code"], record["suspend"]["code"]);
        assert_eq!(record["state"]["_last_error"]["error"], error["message"]);
        let status = world
            .ryectl("execute tool rye/core/processes/status --json --params -")
            .stdin(json!({"run_id": run}).to_string())
            .ok()
            .json();
        assert_eq!(status["data"]["error"], error["message"], "{status}");
        world.write("ok", "");
        if reason == "approval" {
            let _approved = world.ryectl("approve").arg(run).ok();
            let _done = world.ryectl("wait").arg(run).ok();
            continue;
        }
        let _resumed = world
            .ryectl("resume")
            .arg(run)
            .ok()
            .stderr_contains(&["a retry 1"])
            .stderr_lacks("()");
    }
}

#[test]
fn stopped_run_names_caller_and_node() {
    for (verb, status) in [("cancel", "cancelled"), ("kill --grace 0", "killed")] {
        let world = World::new();
        world.graph("t/two", TWO);
        let run = world.start_run("t/two");
        until("a step", || (!world.read("ran").is_empty()).then_some(()));
        let _stopped = world.ryectl(verb).arg(&run).ok();
        let record = world.settled(&run);
        assert_eq!(record["status"], status);
        let error = &record["error"];
        assert_eq!(
            (&error["code"], &error["node"], &error["retryable"]),
            (&json!(status), &json!("one"), &json!(false)),
            "{record}"
        );
        let message = error["message"].as_str().unwrap();
        assert!(message.starts_with(&format!("{status} by ")), "{message}");
        let _told = world.ryectl("get").arg(&run).ok().prints(&[message]);
        world.write("go", "");
        world.write("ok", "");
        let _resumed = world
            .ryectl("resume")
            .arg(&run)
            .ok()
            .stderr_contains(&["continues it"]);
    }
}

#[test]
fn a_single_step_shows_what_a_node_does_and_what_would_follow() {
    let (world, old) = failed();
    let out = world
        .ryectl("graph step t/two --node one --json")
        .ok()
        .json();
    assert_eq!(out["success"], true);
    assert_eq!(out["executed_node"], "one");
    assert_eq!(out["next_node"], "two");
    assert_eq!(out["step_count"], 1);
    assert_eq!(out["state"]["n"], 2);
    let step = world.ryectl("graph step t/two --node done --json -i who=Eve --state");
    let out = step.arg(r#"{"n": 7}"#).ok().json();
    assert_eq!(out["state"]["n"], 7);
    assert_eq!(out["state"]["inputs"], json!({"who": "Eve"}));
    // From the position of an earlier run: its state and its inputs, and no new event in that run.
    let before = world.record(&old);
    world.write("ok", "");
    let step = world.ryectl("graph step t/two --node two --json --resume-from");
    let out = step.arg(&old).ok().json();
    assert_eq!(
        (&out["state"]["n"], &out["state"]["m"]),
        (&json!(2), &json!("Ada"))
    );
    assert_eq!(world.record(&old), before);
    let runs = world.ryectl("ps --all --json").ok().json();
    let steps = runs.as_array().unwrap().iter();
    let steps = steps.filter(|run| {
        run["run_id"]
            .as_str()
            .is_some_and(|id| id.ends_with("-step"))
    });
    assert_eq!(steps.count(), 3);
}

#[test]
fn a_single_step_fails_with_its_node_wherever_the_error_edge_leads() {
    let world = World::new();
    world.graph(
        "t/edge",
        "start: a\nnodes:\n  a: {action: {item_id: rye/bash, params: {command: exit 3}}, on_error: b}\n  b: {type: return}",
    );
    let step = world.ryectl("graph step t/edge --node a --json");
    let out = step.run().code(1).json();
    assert_eq!(
        (&out["success"], &out["next_node"]),
        (&json!(false), &json!("b"))
    );
}

#[test]
fn a_single_step_that_cannot_be_taken_is_refused_and_makes_no_run() {
    let (world, run) = failed();
    let refused = |arguments: &str| {
        let out = world.ryectl("graph step t/two --json --node");
        out.words(arguments).run().code(2)
    };
    let out = refused("twoo").stderr_contains(&["did you mean `two`?", "its nodes are"]);
    assert_eq!(out.json()["error"]["reason"], "target_node_not_found");
    let out = refused(r#"two --state {"inputs":{}}"#);
    assert_eq!(out.json()["error"]["reason"], "invalid_inject_state");
    let runs = world.ryectl("ps --all --json").ok().json();
    let runs = runs
        .as_array()
        .unwrap()
        .iter()
        .map(|run| run["run_id"].as_str().unwrap());
    assert_eq!(runs.collect::<Vec<_>>(), [run.as_str()]);
    let out = world.ryectl("graph step t/two --node two").run().code(1);
    let _shown = out.prints(&["node", "two", "next    none"]);
    // A step fails even if the graph would handle its error, and reports that.
    world.graph(
        "t/edge",
        "start: a\nnodes:\n  a: {action: {item_id: rye/bash, params: {command: exit 3}}, on_error: b}\n  b: {type: return}",
    );
    let out = world.ryectl("graph step t/edge --node a").run().code(1);
    let out = out.prints(&["status  error"]);
    let _why = out.stderr_contains(&["code 3"]);
    let _tool = world.ryectl("graph step rye/bash --node x").run().code(2);
    let _gone = world.ryectl("graph step t/none --node x").run().code(3);
}

#[test]
fn validation_names_file_line_and_node_and_starts_nothing() {
    let world = World::new();
    world.graph("t/two", TWO);
    let _sound = world.ryectl("graph validate t/two").ok();
    world.graph(
        "t/broken",
        "start: a\nnodes:\n  a: {type: gate, next: nowhere}",
    );
    let out = world.ryectl("graph validate t/broken").run().code(1);
    let line = out.line();
    let file = world.project().join(".ai/tools/t/broken.yaml");
    let file = file.canonicalize().unwrap();
    assert!(line.starts_with(&format!("{}:", file.display())), "{line}");
    assert!(line.contains("nowhere") && line.ends_with(']'), "{line}");
    let report = world
        .ryectl("graph validate t/broken --json")
        .run()
        .code(1)
        .json();
    assert_eq!(report["success"], false);
    assert_eq!(report["node_count"], 1);
    assert_eq!(report["errors"][0]["node"], "a");
    let _gone = world.ryectl("graph validate t/gone").run().code(3);
    for verb in ["validate", "show"] {
        let tool = world.ryectl("graph").arg(verb).arg("rye/bash");
        let _told = tool
            .run()
            .code(2)
            .stderr_contains(&["`tool:rye/bash` is no graph"]);
    }
    assert_eq!(world.ryectl("ps --all --json").ok().json(), json!([]));
}

/// Returns the codes of the warnings of `graph validate`, in the order of the text.
fn warnings(report: &Value) -> Vec<&str> {
    let warnings = report["warnings"].as_array().unwrap().iter();
    warnings
        .filter_map(|found| found["code"].as_str())
        .collect()
}

#[test]
fn a_graph_is_checked_before_it_is_signed() {
    let world = World::new();
    let text = rye_tests::world::graph_text(
        "t/new",
        "permissions: []",
        "start: a\nnodes:\n  a: {type: return}",
    );
    world.write(".ai/tools/t/new.yaml", &text);
    let report = world.ryectl("graph validate t/new --json").ok().json();
    assert_eq!(
        (&report["success"], warnings(&report)),
        (&json!(true), vec!["unsigned"])
    );
    let told = world.ryectl("graph validate t/new").ok();
    let _fix = told.prints(&["new.yaml:1:1: warning:", "ryectl sign tool:t/new"]);
    // Errors of the content are reported as well, and broken YAML is a finding with its position.
    world.write(
        ".ai/tools/t/new.yaml",
        text.replace("type: return", "type: teapot"),
    );
    let report = world
        .ryectl("graph validate t/new --json")
        .run()
        .code(1)
        .json();
    assert_eq!(report["errors"][0]["code"], "unknown_type");
    assert_eq!(warnings(&report), ["unsigned"]);
    world.write(".ai/tools/t/new.yaml", format!("{text}\n  b: ["));
    let report = world
        .ryectl("graph validate t/new --json")
        .run()
        .code(1)
        .json();
    assert_eq!(report["errors"][0]["code"], "yaml");
    assert!(report["errors"][0]["line"].as_u64() > Some(5), "{report}");
    // A graph that was changed after it was signed is checked as it is; a run refuses it.
    world.graph("t/two", TWO);
    let path = ".ai/tools/t/two.yaml";
    world.write(path, world.read(path).replace("m: 1", "m: 2") + "\n# more");
    let report = world.ryectl("graph validate t/two --json").ok().json();
    assert_eq!(warnings(&report), ["not_verified"]);
    let _refused = world.ryectl("run t/two").run().code(4);
    let shown = world.ryectl("graph show t/two").run().code(4);
    let _told = shown
        .stderr_contains(&["`tool:t/two` cannot be shown", "ryectl sign"])
        .stderr_lacks("failed to start");
    assert_eq!(world.ryectl("ps --all --json").ok().json(), json!([]));
}

/// Returns `text` without the lines that begin with `key`.
fn without_line(text: &str, key: &str) -> String {
    let lines = text.lines().filter(|line| !line.starts_with(key));
    lines.fold(String::new(), |text, line| text + line + "\n")
}

#[test]
fn validation_of_draft_reports_all_later_refusals() {
    let world = World::new();
    let sound = rye_tests::world::graph_text(
        "t/new",
        "permissions: []",
        "start: a\nnodes:\n  a: {type: return}",
    );
    let errors = |text: &str| -> Vec<(String, u64)> {
        world.write(".ai/tools/t/new.yaml", text);
        let out = world.ryectl("graph validate t/new --json").run().code(1);
        let report = out.json();
        let errors = report["errors"].as_array().unwrap().iter();
        errors
            .map(|found| {
                (
                    found["message"].as_str().unwrap().to_owned(),
                    found["line"].as_u64().unwrap(),
                )
            })
            .collect()
    };
    let without = |key: &str| without_line(&sound, key);
    let with = |key: &str, value: &str| format!("{}{key}: {value}\n", without(key));
    let last = u64::try_from(sound.lines().count()).unwrap();
    for (text, told, line) in [
        (
            without("executor_id"),
            "`executor_id` is missing: write executor_id: rye/core/runtimes/state-graph/runtime",
            1,
        ),
        (
            with("executor_id", "rye/core/runtimes/state-grap/runtime"),
            "the runtime of graphs is `rye/core/runtimes/state-graph/runtime`",
            last,
        ),
        (
            with("executor_id", "rye/core/runtimes/python/function"),
            "does not run graphs",
            last,
        ),
        (
            with("executor_id", "a//b"),
            "`executor_id` is malformed",
            last,
        ),
        (
            with("category", "elsewhere"),
            "`category` is `elsewhere`, but the folder of the file is `t`",
            last,
        ),
        (
            with("name", "other"),
            "`name` is `other`, but the name of the file is `new`",
            last,
        ),
        (
            with("version", "\"1.0\""),
            "`version` must be three numbers",
            last,
        ),
        (
            without("tool_type"),
            "`tool_type` is missing: write tool_type: graph",
            1,
        ),
        (String::new(), "a graph file is a map of keys", 1),
        ("[]".to_owned(), "a graph file is a map of keys", 1),
        ("version: \"1.0.0\"\n".to_owned(), "`config` is missing", 1),
    ] {
        let found = errors(&text);
        let is_told = |(message, at): &(String, u64)| message.contains(told) && *at == line;
        assert!(found.iter().any(is_told), "{told}: {found:?}\n{text}");
    }
}

#[test]
fn signed_graph_that_cannot_start_has_findings() {
    let world = World::new();
    let sound = rye_tests::world::graph_text(
        "t/new",
        "permissions: []",
        "start: a\nnodes:\n  a: {type: return}",
    );
    world.write(
        ".ai/tools/t/new.yaml",
        sound.replace("state-graph", "state-grap"),
    );
    let _signed = world.ryectl("sign tool:t/new").ok();
    let out = world.ryectl("graph validate t/new").run().code(1);
    let _told = out.prints(&["state-grap/runtime", "new.yaml:"]);
    let path = world.write(".ai/tools/t/new.yaml", without_line(&sound, "tool_type"));
    let refused = world.ryectl("sign tool:t/new").run().code(1);
    let _told = refused.stderr_contains(&["write `tool_type: graph`"]);
    world.sign_unchecked(ItemKind::Tool, &path);
    let out = world.ryectl("run t/new").run().code(2);
    let _told = out
        .stderr_contains(&[
            "`tool_type`, line 2 must be `graph`",
            "write `tool_type: graph`",
        ])
        .stderr_lacks("permissions");
}

#[test]
fn cache_result_on_graph_call_warns_of_no_effect() {
    let world = World::new();
    world.graph("t/below", "start: a\nnodes:\n  a: {type: return}");
    world.graph(
        "t/above",
        "start: a\nnodes:\n  a:\n    cache_result: true\n    action: {item_id: t/below}\n    next: z\n  z: {type: return}",
    );
    let report = world.ryectl("graph validate t/above --json").ok().json();
    assert_eq!(warnings(&report), ["no_effect"], "{report}");
    assert_eq!(report["warnings"][0]["node"], "a");
    let _told = world.ryectl("run t/above").ok().stderr_contains(&[
        "warning:",
        "`cache_result` has no effect on a node that calls a graph",
    ]);
}

#[test]
fn validation_checks_called_items_and_their_inputs() {
    let world = World::new();
    world.graph("t/sound", "start: a\nnodes:\n  a: {type: return}");
    world.write(".ai/tools/t/unsigned.yaml", "version: \"1.0.0\"\n");
    let uses = "start: a\nhooks:\n  - {event: graph_started, action: {item_id: t/soundd}}\nnodes:\n  \
                a: {action: {item_id: t/unsigned}, next: b}\n  \
                b: {action: {item_id: t/uses}, next: c}\n  \
                c: {action: {item_id: rye/bash, params: {comand: ls}}, next: d}\n  \
                d: {action: {item_id: rye/bash, params: {command: 7, timeout: \"${inputs.t}\"}}, next: e}\n  \
                e: {action: {item_id: rye/bash, params: {command: \"${inputs.c}\", timeout: \"${inputs.t}\"}}, next: f}\n  \
                f: {action: {item_id: t/sound, params: {depth: 3, async: true}}, next: z}\n  \
                z: {type: return}";
    world.graph("t/uses", uses);
    let report = world.ryectl("graph validate t/uses --json").ok().json();
    let found: Vec<(&str, Option<&str>)> = report["warnings"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|found| found["code"] != "pasted_template")
        .map(|found| (found["code"].as_str().unwrap(), found["node"].as_str()))
        .collect();
    assert_eq!(
        found,
        [
            ("unknown_item", None),
            ("item_refused", Some("a")),
            ("self_call", Some("b")),
            ("bad_params", Some("c")),
            ("bad_params", Some("c")),
            ("bad_params", Some("d")),
        ],
        "{report}"
    );
    let told = world.ryectl("graph validate t/uses").ok();
    let _hints = told.prints(&[
        "did you mean `t/sound`?",
        "ryectl sign tool:t/unsigned",
        "did you mean `command`?",
        "`command` is missing",
    ]);
}

#[test]
fn validation_reports_permission_gaps_of_nested_graphs() {
    let world = World::new();
    let call = |id: &str| {
        format!(
            "start: a\nnodes:\n  a: {{action: {{item_id: {id}}}, next: b}}\n  b: {{type: return}}"
        )
    };
    world.graph("t/inner", &call("rye/core/echo"));
    world.graph("t/middle", &call("t/inner"));
    let found = |permissions: &str| {
        let permissions = format!("permissions: [{permissions}]");
        world.graph_with("t/outer", &permissions, &call("t/middle"));
        let report = world.ryectl("graph validate t/outer --json").ok().json();
        let warnings = report["warnings"].as_array().unwrap().clone();
        let told = warnings.iter().map(|told| {
            assert_eq!(
                (&told["code"], &told["node"]),
                (&json!("not_permitted"), &json!("a"))
            );
            told["message"].as_str().unwrap().to_owned()
        });
        told.collect::<Vec<_>>()
    };
    assert_eq!(found("rye.execute.tool.*"), [""; 0]);
    assert_eq!(
        found("rye.execute.tool.t.middle"),
        [
            "`t/middle` does `rye.execute.tool.t.inner`, which `permissions` do not cover; add it to them",
            "`t/inner` does `rye.execute.tool.rye.core.echo`, which `permissions` do not cover; add it to them",
        ]
    );
    let strict = world
        .ryectl("graph validate --strict t/outer t/inner")
        .run()
        .code(1);
    let _told = strict
        .prints(&["`t/middle` does"])
        .stderr_contains(&["inner.yaml: ok"]);
    let several = world
        .ryectl("graph validate t/outer t/inner --json")
        .ok()
        .json_lines();
    let items: Vec<_> = several.iter().map(|line| &line["item"]).collect();
    assert_eq!(items, ["tool:t/outer", "tool:t/inner"]);
    assert_eq!(
        (&several[0]["success"], &several[1]["warnings"]),
        (&json!(true), &json!([]))
    );
}

#[test]
fn strict_validation_requires_default_edge() {
    let world = World::new();
    let graph = "start: a\nnodes:\n  a:\n    type: gate\n    next: [{to: b, when: {path: inputs.x, op: exists}}DEFAULT]\n  \
                 b: {type: return}";
    world.graph("t/open", &graph.replace("DEFAULT", ""));
    world.graph("t/closed", &graph.replace("DEFAULT", ", {to: b}"));
    let _sound = world.ryectl("graph validate t/open t/closed").ok();
    let strict = world.ryectl("graph validate --strict t/open t/closed");
    let _refused = strict
        .run()
        .code(1)
        .prints(&[
            "open.yaml:",
            "every edge has a condition",
            "[no_default_edge]",
        ])
        .stderr_contains(&["closed.yaml: ok"]);
    for name in [
        "project-stats",
        "code-review",
        "process-sales",
        "multi-file-review",
    ] {
        let item = format!("rye/examples/{name}");
        let _sound = world.ryectl("graph validate --strict").arg(item).ok();
    }
}

#[test]
fn readme_claims_hold_for_example_graph() {
    let world = World::bare();
    let example = "rye/examples/project-stats";
    let _sound = world.ryectl("graph validate").arg(example).ok();
    let _drawn = world
        .ryectl("graph show --format mermaid")
        .arg(example)
        .ok();
    let step = world
        .ryectl("graph step --node count -i directory=. --json")
        .arg(example);
    assert_eq!(step.ok().json()["executed_node"], "count");
}

#[test]
fn a_drawing_shows_the_graph_and_what_a_run_did() {
    let (world, run) = failed();
    let text = world.ryectl("graph show t/two").ok().stdout();
    assert!(text.contains("▶ one") && !text.contains('✓'), "{text}");
    let over = world.ryectl("graph show t/two --run").arg(&run).ok();
    let text = over.stdout();
    assert!(
        text.contains("one  rye/bash  ✓") && text.contains("two  rye/bash  ✗"),
        "{text}"
    );
    let _mermaid = world
        .ryectl("graph show t/two --format mermaid")
        .ok()
        .prints(&["flowchart TD"]);
    let _dot = world
        .ryectl("graph show t/two --format dot")
        .ok()
        .prints(&["digraph"]);
    world.graph("t/other", "start: a\nnodes:\n  a: {type: return}");
    let other = world.ryectl("graph show t/other --run").arg(&run);
    let _another = other.run().code(5);
    // A run keeps its graph, even if the file changes.
    world.graph("t/two", "start: z\nnodes:\n  z: {type: return}");
    let kept = world.ryectl("graph show t/two --run").arg(&run).ok();
    let _same = kept.prints(&["two  rye/bash  ✗"]);
}

#[test]
fn drawing_and_page_show_node_of_killed_run() {
    let world = World::new();
    world.graph(
        "t/stuck",
        "start: one\nnodes:\n  one: {action: {item_id: rye/core/echo}, next: two}\n  two: {action: {item_id: rye/bash, params: {command: \"touch here; sleep 1000\"}}, next: done}\n  done: {type: return}",
    );
    let run = world.start_run("t/stuck");
    until("the second step to begin", || {
        world.project().join("here").exists().then_some(())
    });
    let _killed = world.ryectl("kill").arg(&run).ok();
    let over = world.ryectl("graph show t/stuck --run").arg(&run).ok();
    let _marked = over.prints(&["one  rye/core/echo  ✓", "two  rye/bash  ⊘"]);
    let steps = world.record(&run)["steps"].as_u64().unwrap();
    let page = format!(".ai/knowledge/agent/threads/t/stuck/{run}.md");
    until("the page to tell the end", || {
        world.read(&page).contains("**killed**").then_some(())
    });
    let page = world.read(&page);
    let count = format!("step_count: {steps}\n");
    assert!(
        page.contains(&count) && page.contains("| 2 | two | ⛔ | 1 |"),
        "{page}"
    );
}

#[test]
fn child_runs_are_shown_below_their_parent() {
    let world = World::new();
    world.graph("t/leaf", "start: a\nnodes:\n  a: {type: return, output: 1}");
    let calls = |id: &str| {
        format!(
            "start: a\nnodes:\n  a:\n    action: {{item_id: {id}}}\n    next: b\n  b: {{type: return}}"
        )
    };
    world.graph("t/middle", &calls("t/leaf"));
    world.graph("t/top", &calls("t/middle"));
    let out = world.ryectl("run --json t/top").ok();
    let run = out.json()["run_id"].as_str().unwrap().to_owned();
    let tree = world.ryectl("tree --json").arg(&run).ok().json();
    assert_eq!(tree[0]["run_id"], run.as_str());
    let middle = &tree[0]["children"][0];
    assert_eq!(middle["item_id"], "t/middle");
    assert_eq!(middle["parent_id"], run.as_str());
    assert_eq!(middle["children"][0]["item_id"], "t/leaf");
    assert_eq!(middle["children"][0]["children"], json!([]));
    let all = world.ryectl("ps --all --tree --json").ok().json();
    assert_eq!(all.as_array().map(Vec::len), Some(1));
    let text = world.ryectl("tree").arg(&run).ok().stdout();
    assert!(
        text.contains("\n  t-middle-") && text.contains("\n    t-leaf-"),
        "{text}"
    );
    let limited = world.ryectl("run t/top --limit depth=1").run().code(1);
    let _told = limited.prints_nothing().stderr_contains(&["too deep"]);
}

#[test]
fn control_parameters_of_execute_say_how_a_graph_runs() {
    let (world, old) = failed();
    let execute = |params: Value| {
        world
            .ryectl("execute tool t/two --json --params")
            .arg(params.to_string())
    };
    let report = execute(json!({"validate": true})).ok().json();
    assert_eq!(
        (&report["data"]["success"], &report["data"]["node_count"]),
        (&json!(true), &json!(3))
    );
    let step = execute(json!({"node": "done", "inject_state": {"n": 5}, "who": "Eve"}))
        .ok()
        .json();
    assert_eq!(step["data"]["executed_node"], "done");
    assert_eq!(step["data"]["state"]["n"], 5);
    assert_eq!(step["data"]["state"]["inputs"], json!({"who": "Eve"}));
    // Without `node` the whole graph runs with that state.
    let injected = json!({"inject_state": {"m": 5}, "max_steps": 1, "who": "Eve"});
    let injected = execute(injected).run().code(1).json();
    assert_eq!(injected["data"]["state"]["m"], 5);
    assert_eq!(injected["data"]["state"]["n"], 2);
    let denied = execute(json!({"capabilities": []})).run().code(1).json();
    assert_eq!(denied["data"]["success"], false);
    world.write("ok", "");
    let launched = execute(json!({"async": true})).ok().json();
    let data = &launched["data"];
    assert_eq!(
        (&data["status"], &data["graph_id"]),
        (&json!("running"), &json!("t/two"))
    );
    assert_eq!(data["pid"], world.info()["pid"]);
    let record = world.settled(data["graph_run_id"].as_str().unwrap());
    assert_eq!(record["status"], "completed");
    // The recorded inputs may be given again, others may not.
    for other in [json!({"who": "Bob"}), json!({"who": "Ada", "more": 1})] {
        let mut params = other;
        params["resume_run_id"] = json!(old);
        let refused = execute(params).run().code(2);
        let _told = refused.stderr_contains(&["leave out others"]);
    }
    let resumed = execute(json!({"resume": true, "graph_run_id": old, "who": "Ada"}))
        .ok()
        .json();
    assert_eq!(resumed["data"]["output"]["m"], "Ada");
    let half = execute(json!({"graph_run_id": old})).run().code(2);
    let _told = half.stderr_contains(&["`resume: true`"]);
}

#[test]
fn execute_ends_as_the_run_of_its_graph_did() {
    let world = World::new();
    world.graph(
        "t/parks",
        "start: a\nmax_steps: 1\nhooks:\n  - event: limit\n    \
         action: {item_id: rye/agent/threads/internal/control, params: {action: escalate}}\n\
         nodes:\n  a: {assign: {n: 1}, next: b}\n  b: {type: return}",
    );
    let suspended = world.ryectl("execute tool t/parks --json").run().code(75);
    let envelope = suspended.json();
    assert_eq!(envelope["metadata"]["code"], "suspended", "{envelope}");
    assert_eq!(envelope["data"]["status"], "suspended", "{envelope}");
    let run = envelope["data"]["graph_run_id"].as_str().unwrap();
    let _told = suspended.stderr_contains(&["suspended", "limit", "ryectl resume", run]);
    world.graph(
        "t/suppressed",
        "start: a\non_error: continue\nnodes:\n  a: {action: {item_id: rye/bash, params: {command: exit 1}}, next: b}\n  b: {type: return}",
    );
    let ended = world
        .ryectl("execute tool t/suppressed --json")
        .run()
        .code(1)
        .json();
    assert_eq!(ended["data"]["status"], "completed_with_errors", "{ended}");
    assert_eq!(ended["status"], "success", "{ended}");
}

#[test]
fn an_empty_cache_is_listed_and_what_is_missing_is_not_found() {
    let world = World::new();
    assert_eq!(world.ryectl("cache ls --json").ok().json(), json!([]));
    assert_eq!(
        world.ryectl("cache drop --all --json").ok().json(),
        json!({"dropped": 0})
    );
    let hash = "0".repeat(64);
    let _missing = world.ryectl("objects get").arg(hash).run().code(3);
    let _malformed = world.ryectl("objects get").arg("xyz").run().code(2);
}

#[test]
fn control_words_are_no_inputs_of_a_run_unless_the_graph_declares_them() {
    let world = World::new();
    world.graph(
        "t/plain",
        "start: a\nnodes:\n  a: {type: return, output: \"${inputs}\"}",
    );
    for (input, instead) in [
        ("capabilities:=[]", "--cap"),
        ("node=a", "graph step --node"),
        ("async=true", "--detach"),
        ("depth:=1", "--limit depth=N"),
    ] {
        let refused = world.ryectl("run t/plain -i").arg(input).run().code(2);
        let _fix = refused.stderr_contains(&["is no input of `tool:t/plain`", instead]);
    }
    let step = world.ryectl("graph step t/plain --node a -i capabilities:=[]");
    let _refused = step.run().code(2);
    assert_eq!(world.ryectl("ps --all --json").ok().json(), json!([]));
    let schema =
        "permissions: []\nconfig_schema: {type: object, properties: {node: {type: string}}}";
    world.graph_with(
        "t/declared",
        schema,
        "start: a\nnodes:\n  a: {type: return, output: \"${inputs}\"}",
    );
    let out = world.ryectl("run --json t/declared -i node=x").ok().json();
    assert_eq!(out["output"], json!({"node": "x"}));
}
