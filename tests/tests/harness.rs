//! Tests of the harness itself: it detects the faults that it is meant to detect.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::Stdio;
use std::time::Duration;

use nix::sys::signal::Signal;
use rye_tests::command::program;
use rye_tests::model_server::SECRET;
use rye_tests::processes;
use rye_tests::until::within;
use rye_tests::{ModelServer, World, until};

#[test]
fn a_process_of_a_world_is_found_by_its_environment_alone() {
    let world = World::bare();
    let mut child = program("sleep")
        .arg("1000")
        .env_clear()
        .env("HOME", world.home())
        .current_dir("/")
        .stdin(Stdio::null())
        .spawn()
        .unwrap();
    let found = until("the process to be seen", || world.processes().pop());
    assert_eq!(found.name, "sleep");
    processes::send(found.pid, Signal::SIGKILL);
    child.wait().unwrap();
    assert_eq!(world.processes(), []);
}

#[test]
fn waiting_ends_at_its_deadline() {
    assert_eq!(within(Duration::from_millis(5), || None::<()>), None);
}

#[test]
fn commands_get_default_interrupt_dispositions() {
    const THIS: &str = "harness::commands_get_default_interrupt_dispositions";
    let out = program("cat").arg("/proc/self/status").output().unwrap();
    let status = String::from_utf8(out.stdout).unwrap();
    for signal in [Signal::SIGINT, Signal::SIGQUIT] {
        assert!(!processes::ignores(&status, signal), "{signal}: {status}");
    }
    if std::env::var_os("RYE_TESTS_IGNORING").is_none() {
        let out = program("sh")
            .args(["-c", "trap '' INT QUIT; exec \"$0\" --exact \"$1\""])
            .arg(std::env::current_exe().unwrap())
            .arg(THIS)
            .env("RYE_TESTS_IGNORING", "1")
            .output()
            .unwrap();
        let told = String::from_utf8_lossy(&out.stdout);
        assert!(told.contains("1 passed"), "{told}");
    }
}

#[test]
fn commands_get_nothing_of_our_environment() {
    let world = World::bare();
    let out = rye_tests::command::in_clean_environment("env", &world.home(), world.root())
        .output()
        .unwrap();
    let text = String::from_utf8(out.stdout).unwrap();
    let mut names: Vec<&str> = text
        .lines()
        .filter_map(|line| Some(line.split_once('=')?.0))
        .collect();
    names.sort_unstable();
    assert_eq!(names, ["HOME", "LANG", "PATH"]);
}

#[test]
fn a_world_that_had_models_once_is_searched_for_their_secret() {
    let server = ModelServer::start("- reply: {text: Done.}");
    let mut world = World::with_models(&server);
    world.forget_models();
    world.write("leak", SECRET);
    let dropped = catch_unwind(AssertUnwindSafe(|| drop(world)));
    let told = dropped.expect_err("the secret stands in a file");
    let told = told.downcast_ref::<String>().unwrap();
    assert!(told.contains("leak"), "{told}");
}
