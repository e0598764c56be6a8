//! How the process of an attempt ended, what it used, and what it left running.

use std::process::{Child, Command, Stdio};

use rye_tests::{World, processes, skipped, until};
use serde_json::{Value, json};

/// The ends of processes in the events of `run`.
fn ends(world: &World, run: &str) -> Vec<Value> {
    let events = world.ryectl("events --json").arg(run).ok().json_lines();
    let ends = events.into_iter();
    let ends = ends.filter(|event| event["event_type"] == "process_exited");
    ends.map(|event| event["payload"]["end"].clone()).collect()
}

fn graph(world: &World, command: &str, more: &str) {
    let command = json!(command);
    world.graph(
        "t/g",
        &format!(
            "start: a\nnodes:\n  a: {{action: {{item_id: rye/bash, params: {{command: {command}{more}}}}}, on_error: done, next: done}}\n  \
             done: {{type: return}}"
        ),
    );
}

/// Starts a graph with `command`, and waits until the command has begun.
fn begun(world: &World, command: &str, more: &str) -> String {
    graph(world, &format!("touch begun; {command}"), more);
    let run = world.start_run("t/g");
    until("the command begins", || {
        world.project().join("begun").exists().then_some(())
    });
    run
}

fn assert_end(end: &Value, expected: &Value) {
    for (key, value) in expected.as_object().unwrap() {
        assert_eq!(&end[key], value, "{key} of {end}");
    }
    for key in ["wall_ms", "cpu_ms"] {
        assert!(end[key].is_u64(), "{key} of {end}");
    }
}

#[test]
fn process_that_ends_by_itself_has_its_exit_code_or_signal() {
    let world = World::new();
    let _daemon = world.start("");
    for (command, expected) in [
        (
            "printf abc; printf de >&2; exit 3",
            json!({"cause": "exited", "exit_code": 3, "stdout_bytes": 3, "stderr_bytes": 2}),
        ),
        (
            "kill -SEGV $$",
            json!({"cause": "signal", "signal": 11, "exit_code": null}),
        ),
    ] {
        graph(&world, command, "");
        let run = world.start_run("t/g");
        let _ended = world.settled(&run);
        let ends = ends(&world, &run);
        assert_eq!(ends.len(), 1, "{ends:?}");
        assert_end(&ends[0], &expected);
    }
}

#[test]
fn stopped_process_has_the_reason_of_the_stop() {
    let world = World::new();
    let daemon = world.start("shutdown_grace_seconds: 1");
    let wait = "exec sleep 1000";
    for (stop, cause) in [("cancel", "cancelled"), ("kill", "killed")] {
        let run = begun(&world, wait, "");
        let _stopped = world.ryectl(stop).arg(&run).run();
        let _ended = world.settled(&run);
        assert_end(&ends(&world, &run)[0], &json!({"cause": cause}));
        std::fs::remove_file(world.project().join("begun")).unwrap();
    }
    let run = begun(&world, wait, ", timeout: 1");
    let _ended = world.settled(&run);
    assert_end(&ends(&world, &run)[0], &json!({"cause": "timeout"}));
    std::fs::remove_file(world.project().join("begun")).unwrap();

    let run = begun(&world, wait, "");
    let _stopped = world.ryectl("daemon stop").ok();
    let _status = daemon.ended();
    let _daemon = world.start("");
    let ends = ends(&world, &run);
    assert_end(&ends[0], &json!({"cause": "shutdown"}));
    let _killed = world.ryectl("kill").arg(&run).ok();
}

#[test]
fn envelope_has_use_of_resources_and_what_was_ended_with_the_command() {
    let world = World::new();
    let _daemon = world.start("");
    let burn = "python3 -c 'x = bytearray(600 << 20); i = 0\nwhile i < 1000000: i += 1'";
    let command = format!(
        "{burn}; sleep 999 >/dev/null 2>&1 & until grep -q sleep /proc/$!/comm; do :; done; echo $!"
    );
    let params = json!({"command": command}).to_string();
    let call = world.ryectl("execute tool rye/bash --json --params");
    let envelope = call.arg(&params).ok().json();
    let end = &envelope["metadata"]["process"];
    assert_end(
        end,
        &json!({"cause": "exited", "exit_code": 0, "stderr_bytes": 0}),
    );
    assert!(end["cpu_ms"].as_u64().unwrap() >= 10, "{end}");
    assert!(end["max_rss_kib"].as_u64().unwrap() > 600 << 10, "{end}");
    assert!(end["wall_ms"].as_u64() >= Some(10), "{end}");
    let pid: i32 = envelope["data"]["stdout"]
        .as_str()
        .unwrap()
        .trim()
        .parse()
        .unwrap();
    let ended = end["ended"].as_array().unwrap();
    assert_eq!(
        (ended.len(), &ended[0]["pid"], &ended[0]["comm"]),
        (1, &json!(pid), &json!("sleep")),
        "{end}"
    );
    let output = envelope["data"]["output"].as_str().unwrap();
    let note = format!(
        "\n[ended with the command: sleep (pid {pid}); use managed_subprocess for servers]"
    );
    assert!(output.ends_with(&note), "{output}");
    assert!(!processes::lives(pid));
}

#[test]
fn command_signals_only_its_own_processes_unless_a_setting_allows_others() {
    let world = World::new();
    let daemon = world.start("");
    let missing = world.info()["containment_missing"].clone();
    if missing.as_str().unwrap().contains("signal scope") {
        skipped(&format!("no signal scope: {missing}"));
        return;
    }
    assert!(
        world.info()["containment"]
            .as_array()
            .unwrap()
            .contains(&json!("signal scope"))
    );
    // A duration that no other process has.
    let seconds = format!("1000.{}", std::process::id());
    let mut stranger = Stranger::start(&seconds);
    let own = "sleep 999 & kill $!; wait $!; echo $?";
    let others = format!("pkill -f '^sleep {seconds}'; kill {} 2>&1", daemon.pid());
    let params = json!({"command": format!("{own}; {others}; true")}).to_string();
    let execute = || {
        let call = world.ryectl("execute tool rye/bash --json --no-autostart --params");
        call.arg(&params).run()
    };
    let envelope = execute().code(0).json();
    let stdout = envelope["data"]["stdout"].as_str().unwrap();
    assert!(stdout.starts_with("143\n"), "own processes: {stdout}");
    assert!(stdout.contains("not permitted"), "{stdout}");
    assert_eq!(stranger.0.try_wait().unwrap(), None);
    assert_eq!(world.info()["pid"], daemon.pid());

    let _stopped = world.ryectl("daemon stop").ok();
    let _status = daemon.ended();
    let _daemon = world.start("containment: {signals: off}");
    let missing = world.info()["containment_missing"].to_string();
    assert!(
        missing.contains("`containment.signals` is `off`"),
        "{missing}"
    );
    let params = json!({"command": format!("pkill -f '^sleep {seconds}'")}).to_string();
    let call = world.ryectl("execute tool rye/bash --params");
    let _ended = call.arg(&params).ok();
    let _status = stranger.0.wait().unwrap();
}

/// A process of nobody's run. It ends with the test.
struct Stranger(Child);

impl Stranger {
    #[expect(
        clippy::disallowed_methods,
        reason = "a process that is not the daemon's"
    )]
    fn start(seconds: &str) -> Self {
        let mut command = Command::new("sleep");
        let command = command.arg(seconds).stdout(Stdio::null());
        Self(command.stderr(Stdio::null()).spawn().unwrap())
    }
}

impl Drop for Stranger {
    fn drop(&mut self) {
        drop(self.0.kill().and_then(|()| self.0.wait()));
    }
}
