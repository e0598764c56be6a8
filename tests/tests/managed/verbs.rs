//! `ryectl proc`.

use std::process::Stdio;

use rye_tests::{World, until};
use serde_json::json;

use super::{named, until_named};

/// Starts `sleep 60` and returns its handle.
fn nap(world: &World) -> String {
    let start = world.ryectl("proc start --name nap -- sleep 60").ok();
    let _noted = start.line();
    start.line()
}

#[test]
fn process_is_started_listed_and_stopped() {
    let world = World::new();
    let _daemon = world.start("");
    let handle = nap(&world);
    assert_eq!(nap(&world), handle, "the same one");
    let status = world.ryectl("proc status --json").arg(&handle).ok().json();
    assert_eq!(
        (&status["handle"], &status["status"], &status["ready"]),
        (&json!(handle), &json!("running"), &json!(true))
    );
    assert_eq!(status["pid"], status["pgid"]);
    let listed = world.ryectl("proc ls --json").ok().json();
    assert_eq!(
        (listed.as_array().unwrap().len(), &listed[0]["handle"]),
        (1, &json!(handle))
    );
    let _table = world
        .ryectl("proc ls")
        .ok()
        .prints(&["HANDLE", &handle, "sleep 60"]);
    let restarted = world.ryectl("proc restart --json").arg(&handle).ok().json();
    assert_eq!(
        (&restarted["restarts"], &restarted["ready"]),
        (&json!(1), &json!(true))
    );
    let stopped = world.ryectl("proc stop --json @last").ok().json();
    assert_eq!(
        (&stopped["status"], &stopped["signal"]),
        (&json!("stopped"), &json!(15))
    );
    let _again = world.ryectl("proc stop").arg(&handle).ok();
    assert_eq!(named(&world, "sleep"), []);
    assert_eq!(world.ryectl("proc ls --json").ok().json(), json!([]));
    assert_eq!(
        world.ryectl("proc ls --all --json").ok().json()[0]["handle"],
        json!(handle)
    );
    let refused = world.ryectl("proc restart").arg(&handle).run();
    let _over = refused.code(5);
}

#[test]
fn failures_have_their_exit_codes() {
    let world = World::new();
    let _daemon = world.start("");
    let failed = world
        .ryectl("proc start --ready-pattern never -- sh -c")
        .arg("echo why >&2; exit 3");
    let _failed = failed
        .run()
        .code(1)
        .stderr_contains(&["exited with code 3", "why"]);
    let _usage = world
        .ryectl("proc start --name a/b -- true")
        .run()
        .code(2)
        .stderr_contains(&["`name`"]);
    let _usage = world
        .ryectl("proc start --restart always -- true")
        .run()
        .code(2);
    let _unknown = world.ryectl("proc status web-1-a").run().code(3);
    world.graph("t/g", "start: a\nnodes: {a: {type: return}}");
    let run = world.start_run("t/g");
    let _other = world
        .ryectl("proc status")
        .arg(&run)
        .run()
        .code(5)
        .stderr_contains(&["no managed process"]);
}

#[test]
fn waits_end_by_what_they_wait_for() {
    let world = World::new();
    let _daemon = world.start("");
    let start = world.ryectl("proc start --name build -- sh -c");
    let start =
        start.arg("until [ -e go ]; do sleep 0.05; done; echo compiled in 12 ms; exec sleep 60");
    let build = start.ok().line();
    let wait = |words: &str| world.ryectl(&format!("proc wait {build} {words}"));
    let _ready = wait("--for ready").ok();
    let _late = wait("--for line compiled --timeout 0.2s").run().code(124);
    let waiting = wait("--for line --timeout 60")
        .arg("compiled in [0-9]+")
        .arg("--since")
        .arg("0.0");
    let mut command = waiting.into_command();
    let waiting = command.stdout(Stdio::piped()).spawn().unwrap();
    world.write("go", "");
    let found = waiting.wait_with_output().unwrap();
    assert_eq!(
        String::from_utf8(found.stdout).unwrap(),
        "compiled in 12 ms\n"
    );
    let _usage = wait("--for line").run().code(2);
    let _stopped = world.ryectl("proc stop").arg(&build).ok();
    let _exit = wait("--for exit").ok();
    let _without = wait("--for line never").run().code(1);
    until_named(&world, "sleep", 0);
}

#[test]
fn logs_are_followed_searched_and_continued() {
    let world = World::new();
    let _daemon = world.start("");
    let start = world.ryectl("proc start --name log -- sh -c");
    let start = start.arg("for i in 1 2 3; do echo line $i; done; until [ -e go ]; do sleep 0.05; done; echo last >&2");
    let handle = start.ok().line();
    let logs = |words: &str| world.ryectl(&format!("proc logs {handle} {words}"));
    until("three lines", || {
        (logs("").ok().stdout() == "line 1\nline 2\nline 3\n").then_some(())
    });
    assert_eq!(logs("--tail 1").ok().stdout(), "line 3\n");
    assert_eq!(logs("--grep [12]$").ok().stdout(), "line 1\nline 2\n");
    let lines = logs("--json").ok().json_lines();
    let cursor = lines[1]["cursor"].as_str().unwrap();
    assert_eq!(logs(&format!("--since {cursor}")).ok().stdout(), "line 3\n");
    let mut follow = logs(&format!("--since {cursor} --follow")).into_command();
    let follow = follow.stdout(Stdio::piped()).spawn().unwrap();
    world.write("go", "");
    let followed = follow.wait_with_output().unwrap();
    assert_eq!(
        String::from_utf8(followed.stdout).unwrap(),
        "line 3\nlast\n"
    );
    let bomb = logs("--grep").arg("^(?=(a|aa)+$)(l|li)+\\1$").ok();
    assert_eq!(bomb.stdout(), "");
    let _usage = logs("--since x").run().code(2);
}
