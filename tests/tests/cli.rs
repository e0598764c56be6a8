//! The interface for scripts: exit codes, streams, JSON, and the automatic start of the daemon.

use std::io::{BufRead as _, BufReader};
use std::process::Child;
use std::thread;

use nix::sys::signal::Signal;
use rye_tests::{Outcome, World, processes, until};
use serde_json::{Value, json};

/// A graph whose only step waits for the file `go`.
const GATE: &str = "start: a\nnodes:\n  a:\n    action: {item_id: rye/bash, params: {command: \"touch in; until [ -e go ]; do sleep 0.01; done\"}}\n    next: done\n  done: {type: return}";

fn gated() -> (World, String) {
    let world = World::new();
    world.graph("t/gate", GATE);
    let run = world.start_run("t/gate");
    until("the step to run", || {
        world.project().join("in").exists().then_some(())
    });
    (world, run)
}

fn bash_step(command: &str, tail: &str) -> String {
    format!(
        "start: a\n{tail}\nnodes:\n  a:\n    action: {{item_id: rye/bash, params: {{command: \"{command}\"}}}}\n    next: done\n  done: {{type: return}}"
    )
}

#[test]
fn the_exit_code_tells_how_the_run_ended() {
    let world = World::new();
    world.graph("t/good", &bash_step("true", ""));
    world.graph("t/bad", &bash_step("exit 3", ""));
    world.graph("t/so-so", &bash_step("exit 3", "on_error: continue"));
    for (id, status, code) in [
        ("t/good", "completed", 0),
        ("t/bad", "error", 1),
        ("t/so-so", "completed_with_errors", 1),
    ] {
        let out = world.ryectl("run --json").arg(id).run().code(code);
        assert_eq!(out.json()["status"], status);
        let run = out.json()["run_id"].as_str().unwrap().to_owned();
        let _waited = world.ryectl("wait").arg(run).run().code(code);
    }
}

#[test]
fn a_wait_that_is_over_too_early_ends_with_124() {
    let (world, run) = gated();
    let out = world
        .ryectl("wait --timeout 0.1 --json")
        .arg(&run)
        .run()
        .code(124);
    assert_eq!(out.json()[0]["status"], "running");
    world.write("go", "");
    let out = world.ryectl("wait --json").arg(&run).ok();
    assert_eq!(out.json()[0]["status"], "completed");
}

/// Sends `signal` once `ryectl` handles it.
fn interrupt(child: &Child, signal: Signal) {
    let pid = i32::try_from(child.id()).unwrap();
    until("ryectl to listen to signals", || {
        processes::catches(pid, signal).then_some(())
    });
    processes::send(pid, signal);
}

#[test]
fn an_interrupted_run_continues_and_ryectl_dies_of_sigint() {
    let world = World::new();
    world.graph("t/gate", GATE);
    let child = world.ryectl("run t/gate").spawn();
    until("the step to run", || {
        world.project().join("in").exists().then_some(())
    });
    interrupt(&child, Signal::SIGINT);
    // A shell sees 130.
    let left = Outcome::of(child).signal(Signal::SIGINT);
    let _named = left.stderr_contains(&["continues", "ryectl attach"]);
    let run = world.ryectl("ps --json").ok().json()[0]["run_id"]
        .as_str()
        .unwrap()
        .to_owned();
    world.write("go", "");
    assert_eq!(world.settled(&run)["status"], "completed");
}

#[test]
fn cancel_on_interrupt_cancels_the_run() {
    let world = World::new();
    world.graph("t/gate", GATE);
    let child = world
        .ryectl("run t/gate --cancel-on-interrupt --json")
        .spawn();
    until("the step to run", || {
        world.project().join("in").exists().then_some(())
    });
    interrupt(&child, Signal::SIGINT);
    let out = Outcome::of(child).signal(Signal::SIGINT);
    assert_eq!(out.json()["status"], "cancelled");
}

#[test]
fn cancel_on_interrupt_is_obeyed_by_term_and_hangup() {
    let world = World::new();
    world.graph("t/gate", GATE);
    for signal in [Signal::SIGTERM, Signal::SIGHUP] {
        let child = world
            .ryectl("run t/gate --cancel-on-interrupt --json")
            .spawn();
        let begun = world.project().join("in");
        until("the step to run", || begun.exists().then_some(()));
        interrupt(&child, signal);
        let out = Outcome::of(child).signal(signal);
        assert_eq!(out.json()["status"], "cancelled", "{signal}");
        std::fs::remove_file(&begun).unwrap();
    }
    // Without the option the run continues.
    let child = world.ryectl("run t/gate").spawn();
    let begun = world.project().join("in");
    until("the step to run", || begun.exists().then_some(()));
    processes::send(i32::try_from(child.id()).unwrap(), Signal::SIGTERM);
    let _out = Outcome::of(child).signal(Signal::SIGTERM);
    let runs = world.ryectl("ps --json").ok().json();
    assert_eq!(runs[0]["status"], "running", "{runs}");
}

#[test]
fn a_reader_that_goes_away_ends_verbs_that_follow_a_silent_run() {
    let world = World::new();
    world.graph("t/gate", GATE);
    let run = world.ryectl("run t/gate --detach").ok().line();
    until("the step to run", || {
        world.project().join("in").exists().then_some(())
    });
    for (verb, signal) in [
        ("logs -f", None),
        ("events --follow", None),
        ("attach", Some(Signal::SIGPIPE)),
    ] {
        let mut child = world.ryectl(verb).arg(&run).spawn();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        if verb.starts_with("events") {
            let mut lines = stdout.lines().map_while(Result::ok);
            assert!(lines.any(|line| line.contains("process_started")));
        } else {
            drop(stdout);
        }
        // The reader is gone here, and nothing more is printed.
        let out = Outcome::of(child);
        let _out = match signal {
            Some(signal) => out.signal(signal).stderr_contains(&["reader", "continues"]),
            None => out.code(0),
        };
    }
    world.write("go", "");
    assert_eq!(world.settled(&run)["status"], "completed");
}

#[test]
fn no_autostart_without_daemon_is_unreachable() {
    let world = World::new();
    let _refused = world
        .ryectl("ps --no-autostart")
        .run()
        .code(69)
        .prints_nothing()
        .stderr_contains(&["ryectl daemon start"]);
    let _refused = world
        .ryectl("ps")
        .env("RYE_NO_AUTOSTART", "1")
        .run()
        .code(69);
    let _refused = world.ryectl("daemon status").run().code(69);
    assert!(!world.socket().exists());
}

#[test]
fn a_socket_path_that_is_too_long_is_a_clear_error() {
    let world = World::new();
    let path = world.root().join("x".repeat(100)).join("ryed.sock");
    let _refused = world
        .ryectl("ps --socket")
        .arg(path)
        .run()
        .code(2)
        .stderr_contains(&["at most 107"]);
}

#[test]
fn two_clients_at_once_start_one_daemon_and_say_so() {
    let world = World::new();
    let outs: Vec<Outcome> = thread::scope(|scope| {
        let clients: Vec<_> = (0..6)
            .map(|_| scope.spawn(|| world.ryectl("daemon start --json").run()))
            .collect();
        clients
            .into_iter()
            .map(|client| client.join().unwrap())
            .collect()
    });
    let mut pids = Vec::new();
    let mut told = 0;
    for out in outs {
        let out = out.code(0);
        told += usize::from(out.stderr().contains("started"));
        pids.push(out.json()["pid"].clone());
    }
    pids.dedup();
    assert_eq!(pids.len(), 1, "{pids:?}");
    assert!(told >= 1, "nobody was told that a daemon was started");
    until("the daemons that lost to end", || {
        (world
            .processes()
            .iter()
            .filter(|process| process.name == "ryed")
            .count()
            == 2)
            .then_some(())
    });
}

#[test]
fn a_daemon_is_started_on_an_explicit_socket_too() {
    let world = World::new();
    let socket = world.root().join("own.sock");
    let out = world
        .ryectl("daemon start --json --socket")
        .arg(&socket)
        .ok();
    assert_eq!(out.json()["socket"], json!(socket));
    assert!(socket.exists());
}

#[test]
fn daemon_start_status_and_stop_do_what_they_say() {
    let world = World::new();
    let _started = world.ryectl("daemon start").ok();
    assert_eq!(
        world.ryectl("daemon status --json").ok().json()["running"],
        true
    );
    let _again = world.ryectl("daemon start").ok();
    let before = world.info();
    let restarted = world.ryectl("daemon restart --json").ok().json();
    assert_eq!(restarted["running"], true);
    assert_ne!(restarted["pid"], before["pid"]);
    assert_eq!(restarted["state_dir"], before["state_dir"]);
    let logged = world.ryectl("daemon logs --tail 1000").ok().stdout();
    assert!(
        logged.contains(" INFO ") && !logged.contains("{\""),
        "{logged}"
    );
    let entries = world.ryectl("daemon logs --json --tail 1").ok();
    assert!(entries.json()["timestamp"].is_string(), "{entries:?}");
    let _stopped = world.ryectl("daemon stop").ok();
    assert!(!world.socket().exists());
    assert_eq!(
        world.ryectl("daemon status --json").run().code(69).json()["running"],
        false
    );
    let _still_there = world.ryectl("daemon logs --tail 1").ok();
    let nowhere = world.ryectl("daemon logs --state-dir").arg(world.root());
    let _none = nowhere
        .run()
        .code(3)
        .stderr_contains(&["ryed.log", "journalctl"]);
    let _none = world.ryectl("daemon stop").ok();
    until("the daemon to be gone", || {
        world.processes().is_empty().then_some(())
    });
}

#[test]
fn one_idempotency_key_is_one_run() {
    let world = World::new();
    world.graph("t/good", &bash_step("echo x >>ran", ""));
    let start = |key: &str| {
        world
            .ryectl("run t/good --detach --idempotency-key")
            .arg(key)
            .ok()
            .line()
    };
    let runs: Vec<String> = thread::scope(|scope| {
        let starts: Vec<_> = (0..4).map(|_| scope.spawn(|| start("one"))).collect();
        starts
            .into_iter()
            .map(|start| start.join().unwrap())
            .collect()
    });
    assert!(runs.iter().all(|run| *run == runs[0]), "{runs:?}");
    assert_eq!(world.settled(&runs[0])["status"], "completed");
    assert_eq!(start("one"), runs[0], "a run that has ended is found too");
    let _stopped = world.ryectl("daemon stop").ok();
    assert_eq!(start("one"), runs[0], "a restart does not forget");
    assert_eq!(world.read("ran"), "x\n");
    assert_ne!(start("two"), runs[0]);
}

#[test]
fn run_json_has_documented_fields_in_every_verb() {
    let world = World::new();
    world.graph("t/good", &bash_step("true", ""));
    let run = world.ryectl("run t/good --json").ok().json();
    let names: Vec<&str> = run
        .as_object()
        .unwrap()
        .keys()
        .map(String::as_str)
        .collect();
    assert_eq!(
        names,
        [
            "run_id",
            "item_id",
            "kind",
            "status",
            "parent_id",
            "project",
            "success",
            "state",
            "output",
            "steps",
            "outputs",
            "result",
            "error",
            "errors_suppressed",
            "errors",
            "suspend",
            "cost",
            "spawn_count",
            "cancel",
            "started_at",
            "ended_at",
            "continuation_of",
            "continued_by",
            "model",
            "provider",
        ]
    );
    assert_eq!(
        run["cost"],
        json!({"turns": 0, "input_tokens": 0, "output_tokens": 0, "cache_read_tokens": 0, "cache_write_tokens": 0,
               "reasoning_tokens": 0, "spend": "0.000000000", "estimated": false})
    );
    let id = run["run_id"].as_str().unwrap();
    assert_eq!(world.record(id), run);
    assert_eq!(world.settled(id), run);
    let listed = world.ryectl("ps --all --json").ok().json();
    assert_eq!(listed[0]["run_id"], run["run_id"]);
    assert_eq!(listed[0].as_object().unwrap().len(), names.len());
    let steps = world.ryectl("steps --json").arg(id).ok().json();
    assert_eq!(
        steps[0].as_object().unwrap().keys().collect::<Vec<_>>(),
        ["step", "node", "status", "elapsed_ms", "cache_hit", "error"]
    );
    assert_eq!(steps.as_array().map(Vec::len), Some(2));
    assert_eq!(world.ryectl("state").arg(id).ok().json(), run["state"]);
    for event in world.ryectl("events --json").arg(id).ok().json_lines() {
        assert_eq!(
            event.as_object().unwrap().keys().collect::<Vec<_>>(),
            [
                "cursor",
                "seq",
                "run_id",
                "timestamp",
                "event_type",
                "payload"
            ]
        );
    }
}

#[test]
fn execute_envelope_has_documented_fields() {
    let world = World::new();
    let out = world
        .ryectl("execute tool rye/core/echo --json --params {\"a\":1}")
        .ok();
    let envelope = out.json();
    for name in ["status", "type", "item_id", "data", "chain", "metadata"] {
        assert!(envelope.get(name).is_some(), "no `{name}` in {envelope}");
    }
    assert_eq!(envelope["data"], json!({"a": 1}));
    assert_eq!(envelope["chain"].as_array().map(Vec::is_empty), Some(false));
    let out = world
        .ryectl("execute tool rye/core/echo --json --trace")
        .ok();
    assert!(out.json()["trace"].is_array(), "{out:?}");
}

#[test]
fn ps_shows_live_runs_and_all_shows_every_one_newest_first() {
    let (world, run) = gated();
    world.graph("t/good", &bash_step("true", ""));
    let ended = world.ryectl("run t/good --json").ok().json()["run_id"].clone();
    let ids = |words: &str| -> Vec<Value> {
        let listed = world.ryectl(words).ok().json();
        listed
            .as_array()
            .unwrap()
            .iter()
            .map(|run| run["run_id"].clone())
            .collect()
    };
    assert_eq!(ids("ps --json"), [json!(run)]);
    assert_eq!(
        ids("ps --status completed --json"),
        std::slice::from_ref(&ended)
    );
    assert_eq!(ids("ps --all --json"), [ended, json!(run)]);
    let _table = world.ryectl("ps").ok().prints(&[run.as_str(), "running"]);
    world.write("go", "");
}

#[test]
fn progress_goes_to_stderr_and_quiet_silences_it() {
    let world = World::new();
    world.graph("t/good", &bash_step("true", ""));
    let line = "[graph:t/good] step 1/2 a ✓";
    let out = world
        .ryectl("run t/good")
        .ok()
        .stderr_contains(&[line, "step 2/2 done ⏹"]);
    assert!(
        out.json()["inputs"].is_object(),
        "stdout holds the output and nothing else, which is the state where none is declared"
    );
    let _quiet = world
        .ryectl("run t/good --quiet")
        .ok()
        .stderr_lacks("[graph:");
    let _quiet = world
        .ryectl("run t/good")
        .env("RYE_GRAPH_QUIET", "1")
        .ok()
        .stderr_lacks("[graph:");
    world.graph("t/bad", &bash_step("echo why >&2; exit 3", ""));
    let _told = world
        .ryectl("run t/bad")
        .run()
        .code(1)
        .stderr_contains(&["step 1/2 a ✗", "why"]);
}

#[test]
fn plain_text_has_no_colour() {
    let world = World::new();
    world.graph("t/good", &bash_step("true", ""));
    for words in ["run t/good", "ps --all", "run no/such", "--help"] {
        let out = world
            .ryectl(words)
            .env("NO_COLOR", "1")
            .env("TERM", "xterm-256color")
            .run();
        assert!(
            !out.stdout().contains('\u{1b}') && !out.stderr().contains('\u{1b}'),
            "{out:?}"
        );
    }
}

#[test]
fn closed_stdout_is_no_error() {
    let (world, run) = gated();
    let mut follower = world.ryectl("events --follow --json").arg(&run).spawn();
    let mut lines = BufReader::new(follower.stdout.take().unwrap()).lines();
    let first = lines.next().unwrap().unwrap();
    assert!(first.contains("run_created"));
    drop(lines);
    world.write("go", "");
    let _quiet = Outcome::of(follower).code(0).stderr_lacks("roken pipe");
    assert_eq!(world.settled(&run)["status"], "completed");
}

#[test]
fn every_verb_has_help_with_an_example() {
    let world = World::bare();
    let help = world.ryectl("--help").ok().stdout();
    let verbs: Vec<&str> = help
        .lines()
        .take_while(|line| !line.starts_with("Options"))
        .filter(|line| line.starts_with("  ") && !line.starts_with("   "))
        .filter_map(|line| line.split_whitespace().next())
        .collect();
    for promised in [
        "init", "key", "sign", "verify", "run", "execute", "ps", "get", "steps", "state", "events",
        "wait", "cancel", "kill", "daemon",
    ] {
        assert!(
            verbs.contains(&promised),
            "no verb `{promised}` in {verbs:?}"
        );
    }
    for verb in verbs {
        let _example = world
            .ryectl(verb)
            .arg("--help")
            .ok()
            .prints(&["Example", "ryectl"]);
    }
    let _version = world.ryectl("--version").ok().prints(&["ryectl"]);
}

#[test]
fn the_graph_run_alias_and_async_mean_the_same() {
    let world = World::new();
    world.graph("t/good", &bash_step("true", ""));
    let run = world.ryectl("graph run t/good --async").ok().line();
    assert_eq!(world.settled(&run)["status"], "completed");
}

#[test]
fn the_project_is_the_nearest_one_or_the_one_that_is_named() {
    let world = World::new();
    world.graph("t/where", "start: a\nnodes:\n  a: {action: {item_id: rye/bash, params: {command: pwd}}, assign: {at: \"${result.stdout}\"}, next: done}\n  done: {type: return, output: \"${state.at}\"}");
    world.write("deep/er/file", "");
    // A string is printed unchanged and ends with one line feed.
    let expected = format!("{}\n", world.project().display());
    let deep = world.project().join("deep/er");
    assert_eq!(
        world.ryectl("run t/where").within(&deep).ok().stdout(),
        expected
    );
    let elsewhere = world.root().to_owned();
    assert_eq!(
        world
            .ryectl("run t/where --project")
            .arg(world.project())
            .within(&elsewhere)
            .ok()
            .stdout(),
        expected
    );
    let out = world
        .ryectl("run t/where")
        .env("RYE_PROJECT", world.project())
        .within(&elsewhere)
        .ok();
    assert_eq!(out.stdout(), expected);
    let _missing = world.ryectl("run t/where").within(&elsewhere).run().code(3);
}

#[test]
fn the_step_limit_of_the_caller_holds() {
    let world = World::new();
    world.graph("t/good", &bash_step("true", ""));
    let out = world
        .ryectl("run t/good --limit steps=1 --json")
        .run()
        .code(1);
    assert_eq!(out.json()["error"]["code"], "max_steps_exceeded");
    assert_eq!(out.json()["steps"], 1);
}

/// A step whose event exceeds the limit for events in the log and the transcript.
const LONG_STEPS: &str = "start: a\nnodes:\n  a:\n    action: {item_id: t/long}\n    assign: {text: \"${result.text}\"}\n    next: b\n  b:\n    action: {item_id: rye/bash, params: {command: \"head -c 200000 /dev/zero | tr '\\\\0' e >&2; exit 1\"}}\n    assign: {never: 1}\n    on_error: c\n    next: c\n  c: {type: return}";

#[test]
fn long_step_events_are_shown_like_others() {
    let world = World::new();
    world.python("t/long", "return {'text': 'x' * 200000}");
    world.graph("t/long-steps", LONG_STEPS);
    let out = world.ryectl("run t/long-steps --json").run();
    let run = out.json()["run_id"].as_str().unwrap().to_owned();
    let _shown = out.stderr_contains(&["step 1/3 a ✓", "+text", "step 2/3 b ✗", "step 3/3 c"]);
    let steps = world.ryectl("steps --json").arg(&run).ok().json();
    let steps: Vec<_> = steps.as_array().unwrap().iter().collect();
    let nodes: Vec<_> = steps.iter().map(|step| step["node"].clone()).collect();
    assert_eq!(nodes, ["a", "b", "c"]);
    let _drawn = world
        .ryectl("graph show t/long-steps --run")
        .arg(&run)
        .ok()
        .prints(&["a  t/long  ✓", "b  rye/bash  ✗"]);
}

#[test]
fn payload_of_long_event_is_available_in_full() {
    let world = World::new();
    world.python("t/long", "return {'text': 'x' * 200000}");
    world.graph("t/long-steps", LONG_STEPS);
    let run = world.ryectl("run t/long-steps --json").run().json()["run_id"]
        .as_str()
        .unwrap()
        .to_owned();
    let completed =
        |event: &&Value| event["event_type"] == "step_completed" && event["payload"]["node"] == "a";
    let events = world.ryectl("events --json").arg(&run).ok().json_lines();
    let whole = &events.iter().find(completed).expect("the event is whole")["payload"];
    assert_eq!(
        whole["assigned"]["text"].as_str().map(str::len),
        Some(200_000)
    );

    let transcript = until("the transcript", || {
        let text = world.read(&format!(".ai/state/threads/{run}/transcript.jsonl"));
        text.contains("graph_completed").then_some(text)
    });
    let lines = transcript.lines().map(serde_json::from_str::<Value>);
    let named: Vec<String> = lines
        .filter_map(|line| Some(line.unwrap()["payload"]["object"].as_str()?.to_owned()))
        .collect();
    assert!(!named.is_empty(), "{transcript}");
    let found = named
        .iter()
        .map(|hash| world.ryectl("objects get").arg(hash).ok().json());
    assert!(found.into_iter().any(|payload| payload == *whole));
    let _none = world
        .ryectl("objects get")
        .arg("0".repeat(64))
        .run()
        .code(3);
}

#[test]
fn tool_and_graph_text_cannot_control_terminal() {
    let world = World::new();
    let evil = r"x\u001b[31my\u0007z\r\u009b2J\u202ew";
    world.python("t/key", &format!("return {{'k': 'v', 'e': '{evil}'}}"));
    world.python(
        "t/evil",
        &format!("return {{'success': False, 'error': '{evil}\\nsecond line'}}"),
    );
    world.graph(
        "t/steer",
        "start: a\nnodes:\n  a:\n    action: {item_id: t/key}\n    assign: {\"k\\u0007\\u202e\": \"${result.k}\"}\n    next: b\n  b:\n    action: {item_id: t/evil}\n    next: c\n  c: {type: return}",
    );
    world.graph(
        "t/named",
        &format!("start: \"{evil}\"\nnodes:\n  \"{evil}\": {{type: return}}"),
    );
    let run = world
        .ryectl("run t/steer")
        .arg("-i")
        .arg("undeclared\u{1b}[2J=1")
        .run()
        .code(1);
    let run_id = world.ryectl("ps --all --json").ok().json()[0]["run_id"]
        .as_str()
        .unwrap()
        .to_owned();
    let shown = |words: &str| world.ryectl(words).arg(&run_id).run();
    let steers = |c: &char| c.is_control() && *c != '\n' || *c == '\u{202e}';
    let run = run.stderr_contains(&[r"+k\u{7}\u{202e}", r"x\u{1b}[31my"]);
    assert_eq!(run.stderr().chars().find(steers), None, "{run:?}");
    for out in [
        shown("steps"),
        shown("get"),
        shown("events"),
        shown("graph show t/steer --run"),
        world.ryectl("graph validate t/named").run(),
        world.ryectl("verify").arg("tool:t/\u{1b}[31m").run(),
    ] {
        let text = out.stderr() + &out.stdout();
        assert_eq!(text.chars().find(steers), None, "{out:?}");
    }
    let steps = shown("steps").stdout();
    let rows = steps.lines().take_while(|line| !line.is_empty());
    assert_eq!(rows.count(), 3, "{steps}");
    let record = shown("get").stdout();
    let error = record
        .lines()
        .find(|line| line.starts_with("error"))
        .unwrap();
    assert!(error.contains(r"x\u{1b}[31my"), "{error}");
    assert!(!record.contains("\nsecond line"), "{record}");
}

#[test]
fn invalid_sign_target_has_own_exit_code_and_fix() {
    let world = World::new();
    for verb in ["verify", "sign"] {
        let call = |target: &str| world.ryectl(verb).arg(target).run();
        let _bare = call("sample/hello")
            .code(3)
            .stderr_contains(&["no item and no file `sample/hello`"]);
        let _missing = call("nowhere.py").code(3);
        let _unknown = call("con:x")
            .code(2)
            .stderr_contains(&["`con`", "knowledge"]);
    }
    world.write("garbage", "no key");
    let _garbage = world.ryectl("key trust garbage").run().code(2);
    let _endless = world.ryectl("key trust /dev/zero").run().code(2);
}

#[test]
fn unusable_environment_is_usage_error() {
    let world = World::new();
    let _relative = world
        .ryectl("key show")
        .env("USER_SPACE", "home")
        .run()
        .code(2)
        .stderr_contains(&["USER_SPACE", "absolute"]);
    let _homeless = world
        .ryectl("key show")
        .without_env("HOME")
        .run()
        .code(2)
        .stderr_contains(&["your keys", "HOME"]);
    let _twice = world
        .ryectl("resume r-1767225600-abcdefghij --uncertain a=done --uncertain a=fail")
        .run()
        .code(2)
        .stderr_contains(&["`a`", "twice"]);
    let file = world.write("file", "");
    let _no_socket = world
        .ryectl("ps --socket")
        .arg(file)
        .run()
        .code(69)
        .stderr_contains(&["it is not a socket"]);
}

#[test]
fn unwritable_stdout_is_not_reported_as_failed_run() {
    let world = World::new();
    let full = std::fs::File::options()
        .write(true)
        .open("/dev/full")
        .unwrap();
    let mut call = world.ryectl("key list").into_command();
    let ended = call
        .stdout(full)
        .stderr(std::process::Stdio::null())
        .status();
    assert_eq!(ended.unwrap().code(), Some(5));
}

#[test]
fn last_run_is_a_root_run() {
    let world = World::new();
    world.graph(
        "t/below",
        "start: a\nnodes:\n  a: {type: return, output: 1}",
    );
    let above = "start: a\nnodes:\n  a: {action: {item_id: t/below}, next: b}\n  b: {type: return}";
    world.graph("t/above", above);
    let run = world.ryectl("run t/above --json").ok().json();
    let listed = world.ryectl("ps --all --json").ok().json();
    assert_eq!(
        listed.as_array().unwrap().len(),
        2,
        "a run and its child run: {listed}"
    );
    let last = world.ryectl("get @last --json").ok().json();
    assert_eq!(last["run_id"], run["run_id"]);
    assert_eq!(last["item_id"], "t/above");
    let _one = world.ryectl("get @last~1").run().code(3);
}

#[test]
fn a_run_is_named_by_a_beginning_of_its_id_or_by_its_age() {
    let world = World::new();
    world.graph("t/one", "start: a\nnodes:\n  a: {type: return, output: 1}");
    world.graph("t/two", "start: a\nnodes:\n  a: {type: return, output: 2}");
    let start = |words: &str| world.ryectl(words).ok().json();
    let id = |run: &Value| run["run_id"].as_str().unwrap().to_owned();
    let [first, second, third] =
        ["t/one", "t/two", "t/two"].map(|graph| id(&start(&format!("run {graph} --json"))));
    for (name, meant) in [
        ("@last", &third),
        ("@last~1", &second),
        ("@last~2", &first),
        ("t-one", &first),
        (&first[..first.len() - 3], &first),
        (&third, &third),
    ] {
        let found = world.ryectl("get --json").arg(name).ok().json();
        assert_eq!(found["run_id"], meant.as_str(), "{name}");
    }
    let _several = world.ryectl("steps t-two").run().code(2).stderr_contains(&[
        "`t-two` begins the ids of 2 runs",
        &second,
        &third,
    ]);
    let _none = world.ryectl("get t-three").run().code(3);
    let _past = world
        .ryectl("get @last~3")
        .run()
        .code(3)
        .stderr_contains(&["there is no run `@last~3`"]);
    let _word = world.ryectl("get @first").run().code(2);
    // In another project these names are valid for reading, and for nothing else.
    let other = world.root().join("elsewhere");
    std::fs::create_dir_all(other.join(".ai")).unwrap();
    let there = |words: &str| {
        let call = world.ryectl(words).arg("--project").arg(&other);
        call.run()
    };
    let _looked = there("get t-one").code(0);
    for words in [
        "cancel t-one",
        "kill @last",
        "suspend t-one",
        "resume @last",
        "approve t-one",
        "deny @last",
        "budget raise t-one --spend 2",
        "thread say @last hello",
    ] {
        let _refused = there(words).code(3).stderr_contains(&["there is no run"]);
    }
    let whole = there(&format!("cancel {first}")).code(5);
    let _named = whole.stderr_contains(&[&first]);
}

#[test]
fn json_flag_prints_errors_as_json() {
    let world = World::new();
    for (words, code, reason) in [
        ("get t-1-abcdefghij --json", 3, "not_found"),
        ("run t/nothing --json", 3, "not_found"),
        ("run t/nothing --json -i a:=", 2, "invalid"),
        ("ps --json --teapot", 2, "invalid"),
        ("get --json @last", 3, "not_found"),
    ] {
        let out = world.ryectl(words).run().code(code);
        let told = out.json();
        assert_eq!(told["error"]["reason"], reason, "{words}: {told}");
        let message = told["error"]["message"].as_str().unwrap();
        assert!(!message.is_empty(), "{words}");
    }
}
