//! Processes of runs that call the daemon without being its program.

use rye_tests::{World, until};
use serde_json::{Value, json};

use super::{node, python};

/// Result of a shell command in a node of a graph.
fn shell(world: &World, command: &str) -> Value {
    node(world, "rye/bash", &json!({"command": command}), "");
    let run = world.start_run("t/g");
    world.settled(&run)["output"]["out"].clone()
}

#[test]
fn program_may_only_execute_and_fetch() {
    let world = World::new();
    let _daemon = world.start("");
    for call in ["ps", "models", "daemon info"] {
        let out = shell(&world, &format!("\"$RYE_CTL\" {call}; echo \"code $?\""));
        assert_eq!(out["stdout"], "code 4\n", "{call}: {out}");
        let said = out["stderr"].as_str().unwrap();
        assert!(said.contains("may only execute and fetch"), "{call}: {out}");
    }
}

#[test]
fn process_of_a_run_without_the_token_of_its_attempt_is_refused() {
    let world = World::new();
    let _daemon = world.start("");
    let echo = "execute tool rye/core/echo --params '{\"text\": \"x\"}'";
    for without in ["unset RYE_TOKEN; ", "export RYE_TOKEN=rye_guessed; "] {
        let command = format!("{without}\"$RYE_CTL\" {echo}; echo \"code $?\"");
        let out = shell(&world, &command);
        assert_eq!(out["stdout"], "code 4\n", "{out}");
    }
    // The token of another attempt, which is still live.
    let keep = "printf %s \"$RYE_TOKEN\" > token.new; mv token.new token; until [ -e done ]; do sleep 0.02; done";
    world.graph(
        "t/other",
        &format!("start: a\nnodes:\n  a: {{action: {{item_id: rye/bash, params: {{command: {}}}}}, next: done}}\n  done: {{type: return}}", json!(keep)),
    );
    let other = world.start_run("t/other");
    let token = until("the token of the other attempt", || {
        std::fs::read_to_string(world.project().join("token")).ok()
    });
    let command = format!("export RYE_TOKEN={token}; \"$RYE_CTL\" {echo}; echo \"code $?\"");
    let out = shell(&world, &command);
    assert_eq!(out["stdout"], "code 4\n", "{out}");
    // A process that leaves its session and its environment is still part of its attempt.
    let command = format!(
        "env -i PATH=\"$PATH\" HOME=\"$HOME\" RYE_SOCKET=\"$RYE_SOCKET\" RYE_TOKEN={token} setsid -w \"$RYE_CTL\" {echo}; echo \"code $?\""
    );
    let out = shell(&world, &command);
    assert_eq!(out["stdout"], "code 4\n", "{out}");
    world.write("done", "");
    assert_eq!(world.settled(&other)["status"], "completed");
}

#[test]
fn tool_that_declares_no_permissions_at_all_gets_no_token() {
    let world = World::new();
    let code = "\nimport os\ndef execute(params, project_path):\n    import rye_client\n    try:\n        rye_client.execute(\"rye/core/echo\", text=\"x\")\n    \
                except rye_client.CallError as error:\n        return {\"code\": error.code, \"token\": \"RYE_TOKEN\" in os.environ}\n";
    python(&world, "t/closed", &format!("PERMISSIONS = []\n{code}"));
    let _daemon = world.start("");
    let out = world.ryectl("execute tool t/closed --json").ok().json();
    assert_eq!(out["data"], json!({"code": "no_token", "token": false}));
}
