//! What processes print.

use std::fs;
use std::os::unix::fs::symlink;

use nix::sys::stat::Mode;
use nix::unistd::mkfifo;
use rye_tests::{World, until};
use serde_json::json;

use super::{call, envelope, printed, start, status, stop};

#[test]
fn logs_continue_at_a_cursor_over_restarts_of_process_and_daemon() {
    let world = World::new();
    let daemon = world.start("");
    let server = start(
        &world,
        json!({"command": "echo one; echo two >&2; exec sleep 60", "name": "nap", "restart": "on-failure", "ready_pattern": "two"}),
    );
    let logs = json!({"action": "logs", "handle_id": server});
    until("both lines", || {
        (printed(&world, &server).len() == 2).then_some(())
    });
    let first = call(&world, &logs);
    let cursor = first["cursor"].as_str().unwrap().to_owned();
    let since = json!({"action": "logs", "handle_id": server, "since": cursor});
    assert_eq!(call(&world, &since)["lines"], json!([]));
    daemon.kill();
    let _daemon = world.start("");
    until("the lines of the next attempt", || {
        let later = call(&world, &since);
        (later["lines"].as_array().unwrap().len() == 2).then_some(())
    });
    assert_eq!(printed(&world, &server).len(), 4);
    let wrong = json!({"action": "logs", "handle_id": server, "since": "x"});
    assert_eq!(envelope(&world, &wrong)["status"], "error");
    let _stopped = stop(&world, &server);
}

#[test]
fn flood_of_output_is_bounded_and_stops_nothing() {
    let world = World::new();
    let _daemon = world.start("");
    let yes = start(
        &world,
        json!({"command": "exec yes", "args": null, "name": "yes"}),
    );
    let directory = world.state().join("procs").join(&yes);
    until("a full file", || {
        directory.join("out.log.1").exists().then_some(())
    });
    assert_eq!(status(&world, &yes)["running"], true);
    let lines = printed(&world, &yes);
    assert_eq!(lines.len(), 1000);
    assert!(lines.iter().all(|line| line == "y"));
    let _stopped = stop(&world, &yes);
    for entry in fs::read_dir(directory).unwrap() {
        assert!(entry.unwrap().metadata().unwrap().len() <= 8 << 20);
    }
}

#[test]
fn wait_for_a_line_answers_with_it() {
    let world = World::new();
    let _daemon = world.start("");
    let server = start(
        &world,
        json!({"command": "until [ -e go ]; do sleep 0.05; done; echo compiled in 12 ms; exec sleep 60", "name": "build"}),
    );
    let wait = json!({"action": "wait", "handle_id": server, "for": "line", "pattern": "compiled in [0-9]+", "since": "0.0"});
    let mut soon = wait.clone();
    soon["timeout"] = json!(0.2);
    let late = envelope(&world, &soon);
    assert_eq!(
        late["error"], "no line matches in the time of the wait",
        "{late}"
    );
    world.write("go", "");
    let found = call(&world, &wait);
    assert_eq!(
        (&found["line"], &found["stream"]),
        (&json!("compiled in 12 ms"), &json!("stdout"))
    );
    let exit = json!({"action": "wait", "handle_id": server, "for": "exit", "timeout": 0.1});
    assert_eq!(
        envelope(&world, &exit)["error"],
        "the process has not ended in the time of the wait"
    );
    let _stopped = stop(&world, &server);
    assert_eq!(call(&world, &exit)["running"], false);
    let never = json!({"action": "wait", "handle_id": server, "for": "line", "pattern": "never"});
    assert_eq!(envelope(&world, &never)["status"], "error", "it has ended");
}

#[test]
fn planted_files_cost_only_their_exports() {
    let world = World::new();
    let _daemon = world.start("");
    let outside = world.root().join("outside");
    fs::create_dir(&outside).expect("the world is ours");
    let state = world.project().join(".ai/state");
    fs::create_dir_all(&state).expect("the world is ours");
    symlink(&outside, state.join("threads")).expect("the world is ours");
    let nap = start(
        &world,
        json!({"command": "echo hello; exec sleep 60", "name": "nap"}),
    );
    until("its line", || {
        (printed(&world, &nap) == ["hello"]).then_some(())
    });
    assert_eq!(stop(&world, &nap)["stopped"], true);
    let written = fs::read_dir(&outside).expect("it is there").count();
    assert_eq!(written, 0, "a link leads out of the project");

    fs::remove_file(state.join("threads")).expect("the world is ours");
    let nap = start(&world, json!({"command": "exec sleep 60", "name": "nap"}));
    let file = state.join("threads").join(&nap).join("process.json");
    until("the handle file", || file.exists().then_some(()));
    fs::remove_file(&file).expect("the world is ours");
    mkfifo(&file, Mode::S_IRWXU).expect("the world is ours");
    assert_eq!(stop(&world, &nap)["stopped"], true);
}

#[test]
fn directory_that_no_run_names_is_removed_at_the_start() {
    let world = World::new();
    let lost = world.state().join("procs/lost-1-abcdefghij");
    fs::create_dir_all(&lost).expect("the world is ours");
    fs::write(lost.join("out.log"), "1 1 1 o x\n").expect("the world is ours");
    let _daemon = world.start("");
    until("its removal", || (!lost.exists()).then_some(()));
}
