//! Resumes in special states: refused ones, ends before the first node and after the last, restarts.

use nix::sys::signal::Signal;
use rye_tests::{Daemon, ModelServer, Outcome, World, processes, until};
use serde_json::{Value, json};

use crate::steering::{TWO, failed};

/// Permissions of the graphs here.
const ALL: &str = "permissions: [\"rye.execute.tool.*\"]";

/// Waits in a process until the file `go` exists. Each attempt records its start.
const GATE: &str = r#"start: a
nodes:
  a:
    action: {item_id: rye/bash, params: {command: "echo a >>ran; until [ -e go ]; do sleep 0.01; done"}}
    next: b
  b: {type: return}"#;

fn runs(world: &World) -> Vec<Value> {
    let all = world.ryectl("ps --all --json").ok().json();
    all.as_array().unwrap().clone()
}

fn resume(world: &World, run: &str) -> Outcome {
    world.ryectl("resume").arg(run).run()
}

/// Starts a run of `id` and waits until `file` exists, which a step writes.
fn started_until(world: &World, id: &str, file: &str) -> String {
    let run = world.start_run(id);
    until("the run to get that far", || {
        (!world.read(file).is_empty()).then_some(())
    });
    run
}

#[test]
fn a_refused_resume_leaves_the_run_as_it_was() {
    let broken = [
        ("a typo", ALL, TWO.replace("next: done", "nxt: done"), "nxt"),
        ("no permissions", "", TWO.to_owned(), "permissions"),
        (
            "a variable that is missing",
            &format!("{ALL}\nenv_requires: [NEEDED]"),
            TWO.to_owned(),
            "graph requires 'NEEDED'",
        ),
        (
            "the node under another name",
            ALL,
            TWO.replace("  two:", "  second:")
                .replace("next: two", "next: second"),
            "no node `two`",
        ),
    ];
    for (what, head, config, told) in broken {
        let (world, old) = failed();
        world.graph_with("t/two", head, &config);
        for _ in 0..2 {
            let _refused = resume(&world, &old).code(5).stderr_contains(&[&old, told]);
        }
        assert_eq!(runs(&world).len(), 1, "{what}");
        assert_eq!(world.record(&old)["continued_by"], Value::Null, "{what}");
        world.graph("t/two", TWO);
        world.write("ok", "");
        let out = resume(&world, &old).code(0);
        assert_eq!(out.json(), json!({"n": 2, "m": "Ada"}), "{what}");
        assert_eq!(world.read("ran"), "one\ntwo\ntwo\n", "{what}");
    }
}

#[test]
fn a_run_whose_nodes_are_all_done_has_nothing_to_continue() {
    let world = World::new();
    let hook = |event: &str| {
        format!(
            "start: a\nhooks:\n  - event: {event}\n    condition: {{path: state.a, op: eq, value: 1}}\n    \
             action: {{item_id: rye/bash, params: {{command: \"echo in >>{event}; sleep 600\"}}}}\nnodes:\n  \
             a: {{assign: {{a: 1}}, next: b}}\n  b: {{type: return}}"
        )
    };
    world.graph("t/ends", &hook("graph_completed"));
    let after = hook("after_step").replace(
        "a: {assign: {a: 1}, next: b}\n  b: {type: return}",
        "a: {assign: {a: 1}}",
    );
    world.graph("t/after", &after);
    for (count, (id, file)) in [("t/ends", "graph_completed"), ("t/after", "after_step")]
        .into_iter()
        .enumerate()
    {
        let run = started_until(&world, id, file);
        let _killed = world.ryectl("kill --grace 0").arg(&run).ok();
        for _ in 0..2 {
            let _refused = resume(&world, &run)
                .code(5)
                .stderr_contains(&[&run, "nothing is left to do"]);
        }
        assert_eq!(runs(&world).len(), count + 1);
    }
}

#[test]
fn a_failed_run_killed_in_its_last_hooks_is_continued_at_the_node_that_failed() {
    let world = World::new();
    world.graph(
        "t/two",
        &TWO.replace(
            "nodes:",
            "hooks:\n  - event: graph_completed\n    condition: {path: status, op: eq, value: error}\n    \
             action: {item_id: rye/bash, params: {command: \"echo in >>hook; sleep 600\"}}\nnodes:",
        ),
    );
    world.write("go", "");
    let run = started_until(&world, "t/two", "hook");
    let _killed = world.ryectl("kill --grace 0").arg(&run).ok();
    world.write("ok", "");
    let out = resume(&world, &run).code(0);
    assert_eq!(out.json()["n"], 2);
    assert_eq!(world.read("ran"), "one\ntwo\ntwo\n");
}

/// Returns the run of `graph` with `inputs` below a run that calls it. It has ended before its first node.
fn failed_child(world: &World, graph: &str, inputs: &str) -> String {
    let calls = format!("{graph}-calls");
    let config = format!(
        "start: a\nnodes:\n  a: {{action: {{item_id: {graph}, params: {inputs}}}, next: b}}\n  b: {{type: return}}"
    );
    world.graph_with(&calls, ALL, &config);
    let _failed = world.ryectl("run").arg(&calls).run().code(1);
    let all = runs(world);
    let child = all.iter().find(|run| run["item_id"] == graph).unwrap();
    assert_eq!(
        (&child["status"], &child["steps"]),
        (&json!("error"), &json!(0)),
        "{child}"
    );
    child["run_id"].as_str().unwrap().to_owned()
}

#[test]
fn a_run_that_ended_before_its_first_node_begins_once_the_graph_is_fixed() {
    let world = World::new();
    world.graph_with("t/two", &format!("{ALL}\nenv_requires: [NEEDED]"), TWO);
    world.write("go", "");
    world.write("ok", "");
    // An error before the first step creates no run, unless a node waits for it.
    let refused = world.ryectl("run t/two -i who=Ada").run().code(5);
    let _told = refused.stderr_contains(&["NEEDED"]);
    assert_eq!(runs(&world), Vec::<Value>::new());
    let old = failed_child(&world, "t/two", "{who: Ada}");
    let _still = resume(&world, &old)
        .code(5)
        .stderr_contains(&[&old, "NEEDED"]);
    world.write(".env", "NEEDED=1\n");
    let out = resume(&world, &old).code(0);
    assert_eq!(out.json(), json!({"n": 2, "m": "Ada"}));
    assert_eq!(runs(&world)[0]["steps"], 3);
    assert_eq!(runs(&world).len(), 3);
    // The inputs of a graph that could not be read are unknown.
    world.graph("t/typo", "start: a\nnodes:\n  a: {type: return, nxt: b}");
    let old = failed_child(&world, "t/typo", "{n: 1}");
    world.graph("t/typo", "start: a\nnodes:\n  a: {type: return}");
    let _anew = resume(&world, &old)
        .code(5)
        .stderr_contains(&["start it anew"]);
}

#[test]
fn a_new_limit_of_steps_is_above_the_steps_taken() {
    let (world, ended) = failed();
    world.graph(
        "t/parks",
        "start: first\nmax_steps: 1\nhooks:\n  - event: limit\n    \
         action: {item_id: rye/agent/threads/internal/control, params: {action: escalate}}\nnodes:\n  \
         first: {assign: {a: 1}, next: out}\n  out: {type: return, output: 7}",
    );
    let suspended = world.start_run("t/parks");
    assert_eq!(world.settled(&suspended)["status"], "suspended");
    for (run, taken) in [(&ended, 2), (&suspended, 1)] {
        let raise = format!("resume --raise steps={taken}");
        let refused = world.ryectl(&raise).arg(run).run().code(5);
        let _named = refused.stderr_contains(&[run, &format!("taken {taken} step")]);
    }
    assert_eq!(runs(&world).len(), 2);
    world.write("ok", "");
    for (run, limit) in [(&ended, 4), (&suspended, 2)] {
        let raise = format!("resume --raise steps={limit}");
        let _done = world.ryectl(&raise).arg(run).ok();
    }
}

#[test]
fn a_run_that_failed_at_its_limit_is_continued_only_with_a_higher_one() {
    let world = World::new();
    let _daemon = world.start("");
    world.graph("t/long", "start: a\nmax_steps: 2\nnodes:\n  a: {assign: {n: 1}, next: b}\n  b: {assign: {n: 2}, next: c}\n  c: {type: return}");
    let run = world.start_run("t/long");
    assert_eq!(world.settled(&run)["error"]["code"], "max_steps_exceeded");
    for _ in 0..2 {
        let _refused = resume(&world, &run)
            .code(5)
            .stderr_contains(&["2 steps of 2", "--raise steps=N"]);
    }
    assert_eq!(runs(&world).len(), 1);
    let _done = world.ryectl("resume --raise steps=3").arg(&run).ok();
}

#[test]
fn only_deaths_while_computing_count_against_run() {
    let world = World::new();
    world.graph("t/gate", GATE);
    let mut daemon = world.start("");
    let run = world.start_run("t/gate");
    let begun = |times: usize| {
        until("the step to begin again", || {
            (world.read("ran").lines().count() == times).then_some(())
        });
    };
    begun(1);
    let again = |daemon: Daemon, times: usize| {
        let _status = daemon.ended();
        let daemon = world.start("");
        begun(times);
        daemon
    };
    for times in 2..7 {
        daemon.signal(Signal::SIGTERM);
        daemon = again(daemon, times);
    }
    assert_eq!(world.record(&run)["status"], "running");
    for times in 7..12 {
        kill_while_it_waits(&world, &daemon);
        daemon = again(daemon, times);
    }
    assert_eq!(world.record(&run)["status"], "running");
    // From now on as if the daemon had computed for the run.
    let mut times = 12;
    let record = loop {
        daemon.kill();
        let _status = daemon.ended();
        computed_for(&world, &run);
        daemon = world.start("");
        let record = until("the run to be recovered", || {
            let record = world.record(&run);
            let has_begun = world.read("ran").lines().count() == times;
            (has_begun || record["status"] == "suspended").then_some(record)
        });
        if record["status"] == "suspended" {
            break record;
        }
        times += 1;
    };
    assert_eq!(times, 15, "three times it is recovered");
    assert_eq!(record["suspend"]["reason"], "crash_loop", "{record}");
    world.write("go", "");
    let _done = resume(&world, &run).code(0);
}

#[test]
fn crashing_run_is_suspended_at_fourth_death() {
    let server = ModelServer::start("- reply: {text: Done.}");
    let world = World::with_models(&server);
    world.directive("t/speak", "<model tier=\"general\"/>", "", "Speak.");
    let daemon = world.start_until("at:composing", "");
    // The daemon may be gone before it answers.
    let _out = world
        .ryectl("run --detach --no-autostart directive:t/speak")
        .run();
    let _status = daemon.ended();
    for _ in 0..3 {
        world.live_until("at:composing", "");
    }
    let _lives = world.start_until("at:composing", "");
    let all = runs(&world);
    let [run] = &all[..] else {
        panic!("there is one run: {all:?}")
    };
    let run = run["run_id"].as_str().unwrap();
    let record = world.settled(run);
    assert_eq!(record["suspend"]["reason"], "crash_loop", "{record}");
    assert_eq!(server.requests().len(), 0);
    // The run records each start of the daemon before it acts, even the first one.
    let events = world.ryectl("events --json").arg(run).ok().json_lines();
    let mut names = events
        .iter()
        .filter_map(|event| event["event_type"].as_str());
    assert_eq!(names.next(), Some("run_created"));
    assert_eq!(names.next(), Some("run_started"));
    assert_eq!(names.filter(|name| *name == "run_started").count(), 3);
}

/// Kills the daemon while it computes for no run.
fn kill_while_it_waits(world: &World, daemon: &Daemon) {
    until("the daemon to compute for nobody", || {
        processes::send(daemon.pid(), Signal::SIGSTOP);
        until("the daemon to stand still", || {
            processes::is_stopped(daemon.pid()).then_some(())
        });
        let acting = std::fs::read(world.state().join("acting")).unwrap();
        let waits = acting.iter().all(|byte| *byte == 0);
        processes::send(
            daemon.pid(),
            if waits {
                Signal::SIGKILL
            } else {
                Signal::SIGCONT
            },
        );
        waits.then_some(())
    });
}

/// Leaves the state of a daemon that died while it computed for `run`.
fn computed_for(world: &World, run: &str) {
    let name = rye_core::seal::sha256_hex(run);
    // The last bit, which would report a fault of the daemon, is cleared.
    let name = u64::from_str_radix(&name[..16], 16).unwrap() & !1;
    let path = world.state().join("acting");
    let mut acting = std::fs::read(&path).unwrap();
    let last = acting.len() - 8;
    acting[last..].copy_from_slice(&name.to_ne_bytes());
    std::fs::write(path, acting).unwrap();
}

/// Returns a graph with an at-most-once step, in which `command` runs after the step has recorded its start.
fn charges(command: &str, more: &str) -> String {
    format!(
        "start: a\nnodes:\n  a:\n    effect: at_most_once\n    {more}\n    action: {{item_id: rye/bash, params: {{command: \"echo charged >>ran; {command}\"}}}}\n    \
         next: b\n  b: {{type: return}}"
    )
}

fn charged(world: &World) -> usize {
    world.read("ran").lines().count()
}

#[test]
fn a_run_is_continued_with_its_graph_as_it_is_now_or_with_the_text_it_started_with() {
    let world = World::new();
    let _daemon = world.start("");
    let gate = |more: &str| {
        format!(
            "start: a\nnodes:\n  a:\n    action: {{item_id: rye/bash, params: {{command: \"echo {more}>>said; test -e ok\"}}}}\n    next: b\n  b: {{type: return}}"
        )
    };
    let bash = "permissions: [\"rye.execute.tool.rye.bash\"]";
    let failed = |head: &str| {
        world.graph_with("t/edit", head, &gate("old"));
        let run = world.start_run("t/edit");
        assert_eq!(world.settled(&run)["status"], "error");
        run
    };
    // Permissions of the new file apply, although the old file lacked them.
    let run = failed("permissions: [\"rye.execute.tool.other\"]");
    world.graph_with("t/edit", bash, &gate("new"));
    world.write("ok", "");
    let out = resume(&world, &run).code(0);
    let _told = out.stderr_contains(&["t/edit", "has changed since"]);
    assert_eq!(world.read("said"), "new\n");

    // A permission that the new file lacks does not apply.
    std::fs::remove_file(world.project().join("ok")).unwrap();
    let run = failed(bash);
    world.write("ok", "");
    world.graph_with(
        "t/edit",
        "permissions: [\"rye.execute.tool.other\"]",
        &gate("new"),
    );
    let _denied = resume(&world, &run)
        .code(1)
        .stderr_contains(&["not covered by permissions of tool:t/edit"]);

    // With the original text nothing has changed.
    std::fs::remove_file(world.project().join("ok")).unwrap();
    std::fs::remove_file(world.project().join("said")).unwrap();
    let run = failed(bash);
    world.graph_with("t/edit", bash, &gate("new"));
    world.write("ok", "");
    let same = world.ryectl("resume --same-text").arg(&run).run().code(0);
    let _silent = same.stderr_lacks("has changed");
    assert_eq!(world.read("said"), "old\nold\n");
}

#[test]
fn a_run_whose_inputs_do_not_fit_its_graph_any_more_is_not_continued() {
    let world = World::new();
    let _daemon = world.start("");
    let head = |kind: &str| {
        format!(
            "permissions: [\"rye.execute.tool.*\"]\nconfig_schema: {{type: object, properties: {{n: {{type: {kind}}}}}}}"
        )
    };
    world.graph_with("t/gate", &head("integer"), GATE_THAT_FAILS);
    let run = world.ryectl("run --detach t/gate -i n=1").ok().line();
    assert_eq!(world.settled(&run)["status"], "error");
    world.graph_with("t/gate", &head("string"), GATE_THAT_FAILS);
    let refused = resume(&world, &run).code(5);
    let _told = refused.stderr_contains(&["cannot be continued as things are", "n"]);
    assert_eq!(runs(&world).len(), 1);
    world.write("ok", "");
    let _done = world.ryectl("resume --same-text").arg(&run).run().code(0);
}

#[test]
fn edited_graph_state_starts_as_declared_and_unset_keys_are_null() {
    let (world, run) = failed();
    let edited = TWO
        .replace("state: {n: 1}", "state: {n: 7, greeting: [hi]}")
        .replace(
            "output: {n: \"${state.n}\", m: \"${state.m}\"}",
            "output: {n: \"${state.n}\", greeting: \"${state.greeting}\", unset: \"${state.unset}\"}",
        );
    world.graph("t/two", &edited);
    world.write("ok", "");
    let out = resume(&world, &run).code(0);
    let out = out.stderr_contains(&[
        "has changed since",
        "`state.greeting`: set as the graph declares",
    ]);
    // Keys that the run has assigned are not declared again.
    assert_eq!(
        out.json(),
        json!({"n": 2, "greeting": ["hi"], "unset": null})
    );
}

const GATE_THAT_FAILS: &str = "start: a\nnodes:\n  a:\n    action: {item_id: rye/bash, params: {command: \"test -e ok\"}}\n    next: b\n  b: {type: return}";

#[test]
fn single_step_of_run_repeats_at_most_once_node_only_on_verdict() {
    let world = World::new();
    world.graph("t/charge", &charges("true", ""));
    let run = world.start_run("t/charge");
    assert_eq!(world.settled(&run)["status"], "completed");
    let step = |more: &str| {
        let words = format!("graph step t/charge --node a --resume-from {run} {more}");
        world.ryectl(&words).run()
    };
    let _refused = step("")
        .code(5)
        .stderr_contains(&["`a`", "--uncertain a=retry"]);
    let _refused = step("--uncertain a=done").code(5).stderr_contains(&["`a`"]);
    let _refused = step("--uncertain b=retry")
        .code(5)
        .stderr_contains(&["`b` is not uncertain"]);
    assert_eq!(charged(&world), 1);
    let _done = step("--uncertain a=retry").code(0);
    assert_eq!(charged(&world), 2);
}

#[test]
fn failed_at_most_once_step_of_child_run_is_not_retried_by_parent() {
    let action = "action: {item_id: t/charge, params: {}}";
    let above = [
        (format!("{action}\n    retry: {{max: 2}}"), "", 1),
        (action.to_owned(), "", 1),
        (
            action.to_owned(),
            "hooks: [{event: error, action: {retry: true, max_retries: 2}}]\n",
            1,
        ),
        (
            format!(
                "type: foreach\n    over: [0, 1]\n    parallel: true\n    {action}\n    retry: {{max: 2}}"
            ),
            "",
            2,
        ),
    ];
    for (node, hooks, once) in above {
        let world = World::new();
        let _daemon = world.start("");
        // The shipped hook would retry after a network failure.
        world.graph(
            "t/charge",
            &charges("echo connection reset >&2; exit 1", ""),
        );
        let config = format!(
            "start: a\n{hooks}nodes:\n  a:\n    {node}\n    next: b\n  b: {{type: return}}"
        );
        world.graph("t/above", &config);
        let run = world.start_run("t/above");
        assert_eq!(world.settled(&run)["status"], "error", "{config}");
        assert_eq!(charged(&world), once, "{config}");
        let _asks = resume(&world, &run)
            .code(5)
            .stderr_contains(&["--uncertain a=retry"]);
        assert_eq!(charged(&world), once, "{config}");
        let again = world.ryectl("resume --uncertain a=retry").arg(&run).run();
        let _failed = again.code(1);
        assert_eq!(charged(&world), 2 * once, "{config}");
    }
}

#[test]
fn failed_at_most_once_step_repeats_only_on_verdict() {
    for (command, more) in [
        ("exit 1", ""),
        // The action has completed; its evaluation failed.
        (
            "echo no json",
            "assign: {k: \"${result.stdout | from_json}\"}",
        ),
    ] {
        let world = World::new();
        let _daemon = world.start("");
        world.graph("t/charge", &charges(command, more));
        let run = world.start_run("t/charge");
        assert_eq!(world.settled(&run)["status"], "error", "{command}");
        let left =
            json!([{"name": "a", "key": null, "started_at": null, "item": null, "params": null}]);
        assert_eq!(world.record(&run)["uncertain"], left, "{command}");
        let _asks = resume(&world, &run)
            .code(5)
            .stderr_contains(&["`a`: at most once", "--uncertain a=retry"]);
        assert_eq!(charged(&world), 1, "{command}");
        let _again = world
            .ryectl("resume --uncertain a=retry")
            .arg(&run)
            .run()
            .code(1);
        assert_eq!(charged(&world), 2, "{command}");
    }
}

#[test]
fn only_uncertain_items_need_verdicts() {
    let world = World::new();
    let _daemon = world.start("");
    let config = "start: a\nnodes:\n  a:\n    type: foreach\n    over: [0, 1, 2]\n    effect: at_most_once\n    \
        action: {item_id: rye/bash, params: {command: \"echo $I >>ran; [ $I != 1 ] || [ -e ok ]\", env: {I: \"${item}\"}}}\n    \
        next: b\n  b: {type: return}";
    world.graph("t/charge", config);
    let run = world.start_run("t/charge");
    assert_eq!(world.settled(&run)["status"], "error");
    let before = world.read("ran");
    let _asks = resume(&world, &run)
        .code(5)
        .stderr_contains(&["--uncertain 'a[1]=retry'"])
        .stderr_lacks("a[0]");
    world.write("ok", "");
    let _done = world.ryectl("resume --uncertain a[1]=retry").arg(&run).ok();
    let again = world.read("ran");
    let again: Vec<&str> = again.strip_prefix(&before).unwrap().lines().collect();
    assert_eq!(
        again,
        if before == "0\n1\n" {
            vec!["1", "2"]
        } else {
            vec!["1"]
        }
    );
}

#[test]
fn suspension_after_at_most_once_step_names_resume_command() {
    let world = World::new();
    let _daemon = world.start("");
    let suspends = "start: a\nhooks: [{event: error, action: {item_id: rye/agent/threads/internal/control, params: {action: suspend}}}]\n";
    let config = charges("[ -e ok ]", "").replacen("start: a\n", suspends, 1);
    world.graph("t/charge", &config);
    let suspended = world
        .ryectl("run t/charge --json")
        .run()
        .code(75)
        .stderr_contains(&["--uncertain a=retry"]);
    let run = suspended.json()["run_id"].as_str().unwrap().to_owned();
    let _asks = resume(&world, &run)
        .code(5)
        .stderr_contains(&["--uncertain a=retry"]);
    assert_eq!(world.record(&run)["status"], "suspended");
    assert_eq!(charged(&world), 1);
    world.write("ok", "");
    let _done = world.ryectl("resume --uncertain a=retry").arg(&run).ok();
    assert_eq!(charged(&world), 2);
}

/// Is suspended after its failure.
const SUSPENDS: &str = "start: a\nhooks: [{event: error, action: {item_id: rye/agent/threads/internal/control, params: {action: suspend}}}]\n";

#[test]
fn resume_leaves_at_most_once_sibling_suspended() {
    let world = World::new();
    let _daemon = world.start("");
    world.graph(
        "t/charge",
        &charges("exit 1", "").replacen("start: a\n", SUSPENDS, 1),
    );
    world.graph(
        "t/limited",
        "start: a\nmax_steps: 1\nhooks:\n  - event: limit\n    \
         action: {item_id: rye/agent/threads/internal/control, params: {action: escalate}}\n\
         nodes:\n  a: {assign: {n: 1}, next: b}\n  b: {type: return}",
    );
    world.graph(
        "t/family",
        "start: a\nnodes:\n  a:\n    type: foreach\n    over: [t/limited, t/charge]\n    parallel: true\n    \
         action: {item_id: \"${item}\", params: {}}\n    next: b\n  b: {type: return}",
    );
    let run = world.start_run("t/family");
    assert_eq!(world.settled(&run)["status"], "suspended");
    for _ in 0..3 {
        let _suspended = world.ryectl("resume --raise steps=5").arg(&run).run();
        assert_eq!(world.settled(&run)["status"], "suspended");
        assert_eq!(charged(&world), 1);
    }
}

#[test]
fn run_suspended_during_hooks_calls_them_again() {
    let world = World::new();
    let daemon = world.start("");
    let hook = "start: a\nrecovery: suspend\nhooks: [{event: error, action: {item_id: rye/bash, params: {command: \"echo asked >>hook; until [ -e go ]; do sleep 0.01; done\"}}}]\n";
    let config = charges("exit 1", "on_error: b").replacen("start: a\n", hook, 1);
    world.graph("t/charge", &config);
    let run = started_until(&world, "t/charge", "hook");
    daemon.kill_both();
    let _status = daemon.ended();
    let _next = world.start("");
    assert_eq!(world.settled(&run)["suspend"]["reason"], "restart");
    world.write("go", "");
    let _done = world.ryectl("resume").arg(&run).ok();
    assert_eq!(world.record(&run)["status"], "completed");
    assert_eq!(charged(&world), 1);
}
