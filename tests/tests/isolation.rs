//! Isolation of the processes of tools: `none`, `scoped` and `sandbox`.

use rye_tests::{World, skipped, until};
use serde_json::{Value, json};

/// Writes and signs a shell tool with that isolation, which runs `script`.
fn tool(world: &World, id: &str, isolation: &str, script: &str) {
    let text = format!(
        "# ---\n# version: \"1.0.0\"\n# tool_type: bash\n# executor_id: rye/core/runtimes/bash/file\n# category: t\n# description: A tool of the tests.\n# {isolation}\n# ---\n{script}\n"
    );
    world.tool(&format!("{id}.sh"), &text);
}

fn stdout(world: &World, id: &str) -> String {
    let out = world.ryectl("execute tool --json").arg(id).ok().json();
    out["data"]["stdout"].as_str().unwrap().to_owned()
}

fn recorded(world: &World) -> Vec<Value> {
    let events = world.ryectl("events --json @last").ok().json_lines();
    let started = events.iter();
    let started = started.filter(|event| event["event_type"] == "process_started");
    started
        .map(|event| event["payload"]["isolation"].clone())
        .collect()
}

fn has_bwrap() -> bool {
    let found = ["/usr/bin/bwrap", "/usr/local/bin/bwrap", "/bin/bwrap"];
    let found = found.iter().any(|path| std::path::Path::new(path).exists());
    if !found {
        skipped("bwrap is not installed");
    }
    found
}

const PRIVILEGES: &str = "grep NoNewPrivs /proc/self/status";

#[test]
fn isolation_of_a_tool_is_in_force_and_on_record() {
    let world = World::new();
    for (id, isolation) in [
        ("t/default", "x-note: 1"),
        ("t/scoped", "isolation: scoped"),
        ("t/none", "isolation: none"),
    ] {
        tool(&world, id, isolation, PRIVILEGES);
    }
    let _daemon = world.start("");
    for (id, bit, level) in [
        ("t/default", "1", "scoped"),
        ("t/scoped", "1", "scoped"),
        ("t/none", "0", "none"),
    ] {
        assert_eq!(stdout(&world, id), format!("NoNewPrivs:\t{bit}\n"), "{id}");
        assert_eq!(recorded(&world), [json!(level)], "{id}");
    }
}

#[test]
fn weaker_isolation_than_the_setting_and_the_user_level_are_refused() {
    let world = World::new();
    tool(&world, "t/none", "isolation: none", PRIVILEGES);
    tool(&world, "t/user", "isolation: user", PRIVILEGES);
    let _daemon = world.start("isolation: {least: scoped}");
    for (id, why) in [("t/none", "isolation.least"), ("t/user", "serves one user")] {
        let refused = world.ryectl("execute tool --json").arg(id).run().code(5);
        let _refused = refused.stderr_contains(&["is not available", why]);
    }
    let refused = world
        .ryectl("proc start --isolation user -- sleep 60")
        .run();
    let _refused = refused.code(5).stderr_contains(&["serves one user"]);
    let wrong = world.ryectl("proc start --isolation all -- sleep 60").run();
    let _wrong = wrong
        .code(2)
        .stderr_contains(&["none, scoped, sandbox, user"]);
}

#[test]
fn sandbox_hides_state_and_keys_and_only_the_project_can_be_written() {
    if !has_bwrap() {
        return;
    }
    let world = World::new();
    let (state, home) = (world.state(), world.home());
    let script = format!(
        "ls {state}; ls {home}/.ai/config/keys; echo kept > written; echo lost > /tmp/lost; touch /usr/outside 2> /dev/null || echo read-only; \
         ls /proc | grep -c '^[0-9]*$' | awk '{{ print ($1 < 20) ? \"own processes\" : \"all\" }}'; \
         \"$RYE_CTL\" execute tool rye/core/echo --params '{{\"text\": \"called\"}}'",
        state = state.display(),
        home = home.display(),
    );
    tool(&world, "t/sandboxed", "isolation: sandbox", &script);
    let _daemon = world.start("");
    let out = stdout(&world, "t/sandboxed");
    for text in ["read-only", "own processes", "called"] {
        assert!(out.contains(text), "{text}: {out}");
    }
    for text in ["keys", "signing", "trusted", "served-at"] {
        assert!(!out.contains(text), "{text}: {out}");
    }
    assert_eq!(world.read("written"), "kept\n");
    assert!(!std::path::Path::new("/tmp/lost").exists());
    let run = world.ryectl("ps --all --json").ok().json();
    let outer = run.as_array().unwrap().iter();
    let mut outer = outer.filter(|run| run["item_id"] == "t/sandboxed");
    let id = outer.next().unwrap()["run_id"].as_str().unwrap().to_owned();
    let events = world.ryectl("events --json").arg(&id).ok().json_lines();
    let started = events
        .iter()
        .find(|event| event["event_type"] == "process_started");
    assert_eq!(started.unwrap()["payload"]["isolation"], "sandbox");
}

#[test]
fn setting_puts_every_tool_in_a_sandbox_and_its_processes_end_with_it() {
    if !has_bwrap() {
        return;
    }
    let world = World::new();
    let _daemon = world.start("isolation: {least: sandbox}");
    let handle = world.ryectl("proc start -- sleep 1000").ok().line();
    let command = json!({"command": "touch /outside 2>&1; sleep 1000 & echo done"});
    let out = world.ryectl("execute tool rye/bash --json --params");
    let out = out.arg(command.to_string()).ok().json();
    let text = out["data"]["stdout"].as_str().unwrap();
    assert!(
        text.contains("Read-only file system") && text.contains("done"),
        "{text}"
    );
    let _stopped = world.ryectl("proc stop").arg(&handle).ok();
    until("both to be gone", || {
        let left = world.processes();
        (!left.iter().any(|process| process.name == "sleep")).then_some(())
    });
}

#[test]
fn sandbox_that_the_host_does_not_allow_names_the_cause() {
    let world = World::new();
    let fake = world.root().join("bin");
    std::fs::create_dir_all(&fake).unwrap();
    tool(&world, "t/sandboxed", "isolation: sandbox", "echo ran");
    let path = format!("{}:/usr/bin:/bin", fake.display());
    let config = format!("env: {{path: \"{path}\"}}");
    let script = "#!/bin/sh\necho 'bwrap: setting up uid map: Permission denied' >&2\nexit 1\n";
    let program = fake.join("bwrap");
    std::fs::write(&program, script).unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&program, mode).unwrap();
    let _daemon = world.start(&config);
    let out = world
        .ryectl("execute tool t/sandboxed --json")
        .run()
        .code(1);
    let out = out.json();
    assert_eq!(out["metadata"]["code"], "isolation_unavailable", "{out}");
    let message = out["error"].as_str().unwrap();
    assert!(message.contains("setting up uid map"), "{message}");
}
