//! Tools that misbehave, and guarantees for tools.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;

use rye_tests::{Outcome, World, binaries, until};
use serde_json::{Value, json};

fn bash(world: &World, params: &Value) -> Outcome {
    world
        .ryectl("execute tool rye/bash --json --params -")
        .stdin(params.to_string())
        .run()
}

/// Asserts that only the daemon and its parent are left.
fn assert_nothing_left(world: &World) {
    until("the processes of the tool to be gone", || {
        world
            .processes()
            .iter()
            .all(|process| process.name == "ryed")
            .then_some(())
    });
}

#[test]
fn any_json_value_is_a_result() {
    let world = World::new();
    world.python("t/value", "return params.get('body')");
    for body in [
        json!({"body": true}),
        json!({"body": 0}),
        json!({"body": 1.5}),
        json!({"body": u64::MAX}),
        json!({"body": ""}),
        json!({"body": "text"}),
        json!({"body": []}),
        json!({"body": [1, [2]]}),
        json!({"body": {}}),
        json!({"body": {"path": "kept", "chain": [], "metadata": {"source": 1}}}),
    ] {
        let out = world
            .ryectl("execute tool t/value --json --params -")
            .stdin(body.to_string())
            .ok();
        let envelope = out.json();
        assert_eq!(envelope["status"], "success", "{body}");
        assert_eq!(envelope["data"], body["body"], "{body}");
    }
    let out = world.ryectl("execute tool t/value --json").ok();
    assert_eq!(out.json()["data"], Value::Null);
}

#[test]
fn tool_that_reports_failure_fails() {
    let world = World::new();
    world.python(
        "t/fails",
        "return {'success': False, 'error': 'no luck', 'kept': 1}",
    );
    let out = world
        .ryectl("execute tool t/fails --json")
        .run()
        .code(1)
        .stderr_contains(&["no luck"]);
    let envelope = out.json();
    assert_eq!(envelope["status"], "error");
    assert_eq!(envelope["data"]["kept"], 1);
}

#[test]
fn a_structured_error_keeps_its_message() {
    let world = World::new();
    let error = "{'type': 'X', 'message': 'the disk is on fire', 'code': 'fire'}";
    world.python(
        "t/fire",
        &format!("return {{'success': False, 'error': {error}}}"),
    );
    let _told = world
        .ryectl("execute tool t/fire")
        .run()
        .code(1)
        .stderr_contains(&["the disk is on fire"]);
}

/// Returns the error of `execute tool ID` for a tool that fails.
fn complaint(world: &World, id: &str) -> String {
    let ended = world.ryectl("execute tool").arg(id).run();
    ended.code(1).stderr()
}

#[test]
fn lone_surrogates_and_non_utf8_names_are_replaced_in_results() {
    let world = World::new();
    let _daemon = world.start("");
    world.write("in/plain.txt", "");
    let names = world.project().join("in");
    fs::rename(
        names.join("plain.txt"),
        names.join(OsStr::from_bytes(b"caf\xe9.txt")),
    )
    .unwrap();
    world.python(
        "t/names",
        "import os\nreturn {'files': os.listdir('in'), 'half': '\\ud83d', 'whole': '\\ud83d\\ude00'}",
    );
    world.tool(
        "t/prints.sh",
        "#!/bin/bash\n# ---\n# version: \"1.0.0\"\n# executor_id: rye/core/runtimes/bash/file\n# category: t\n# description: \"x\"\n# ---\n\
         printf '{\"half\": \"\\\\ud83d\", \"raw\": \"caf\\351\"}'\n",
    );
    world.graph(
        "t/g",
        "start: a\nnodes:\n  a: {action: {item_id: t/names}, assign: {names: \"${result}\"}, next: b}\n  \
         b: {action: {item_id: t/prints}, assign: {prints: \"${result}\"}, next: c}\n  \
         c: {action: {item_id: rye/bash, params: {command: 'cat json'}}, assign: {read: \"${result.stdout | from_json}\"}, next: d}\n  \
         d: {type: return, output: {names: \"${state.names}\", prints: \"${state.prints}\", read: \"${state.read}\"}}",
    );
    world.write("json", r#"{"half": "\ud83d"}"#);
    let run = world.start_run("t/g");
    let record = world.settled(&run);
    assert_eq!(
        record["output"],
        json!({
            "names": {"files": ["caf\u{fffd}.txt"], "half": "\u{fffd}", "whole": "\u{1f600}"},
            "prints": {"half": "\u{fffd}", "raw": "caf\u{fffd}"},
            "read": {"half": "\u{fffd}"},
        }),
        "{record}"
    );
    let given = world.ryectl("execute tool rye/core/echo --json --params");
    let echoed = given.arg(r#"{"text": "\udce9"}"#).ok().stdout();
    assert!(echoed.contains('\u{fffd}'), "{echoed}");
}

#[test]
fn a_tool_that_raises_fails_with_a_traceback_of_its_own_files() {
    let world = World::new();
    let raise = "raise ValueError('the reason')";
    world.python("t/raises", raise);
    let head = "\"\"\"A tool of the tests.\"\"\"\n__version__ = \"1.0.0\"\n__tool_type__ = \"python\"\n__category__ = \"t\"\n";
    let script = "__executor_id__ = \"rye/core/runtimes/python/script\"\n";
    let function = "__executor_id__ = \"rye/core/runtimes/python/function\"\n";
    world.tool(
        "t/waits.py",
        &format!("{head}{function}async def execute(params, project_path):\n    {raise}\n"),
    );
    world.tool(
        "t/program.py",
        &format!("{head}{script}def run():\n    {raise}\nrun()\n"),
    );
    world.tool(
        "t/broken.py",
        &format!("{head}{function}def execute(params, project_path):\n    pass\nreturn 1\n"),
    );
    for (id, frame) in [
        ("t/raises", "in execute"),
        ("t/waits", "in execute"),
        ("t/program", "in run"),
        ("t/broken", "SyntaxError"),
    ] {
        let file = world.project().join(format!(".ai/tools/{id}.py"));
        let said = complaint(&world, id);
        for part in [&format!("File \"{}\", line ", file.display()), frame] {
            assert!(said.contains(part), "no {part:?} in {said}");
        }
        for strange in ["<string>", "/proc/self", "/dev/fd"] {
            assert!(!said.contains(strange), "{strange} in {said}");
        }
        assert_eq!(
            said.contains("ValueError: the reason"),
            id != "t/broken",
            "{said}"
        );
    }
    // A tool of several files runs from a copy, and its errors refer to the original.
    world.write(".ai/tools/t/multi/__init__.py", "");
    let helper = "__version__ = \"1.0.0\"\n__tool_type__ = \"library\"\n__category__ = \"t/multi\"\n__tool_name__ = \"helper\"\n";
    world.tool(
        "t/multi/helper.py",
        &format!("{helper}def work():\n    {raise}\n"),
    );
    world.python("t/multi/tool", "import helper\nreturn helper.work()");
    let said = complaint(&world, "t/multi/tool");
    for name in ["tool.py", "helper.py"] {
        let file = world.project().join(".ai/tools/t/multi").join(name);
        let part = format!("File \"{}\", line ", file.display());
        assert!(said.contains(&part), "no {part:?} in {said}");
    }
    let copies = world.state().join("trees").display().to_string();
    assert!(!said.contains(&copies), "{said}");
}

#[test]
fn a_gigabyte_of_output_is_cut_and_the_daemon_stays_small() {
    let world = World::new();
    let daemon = world.start("");
    let out = bash(
        &world,
        &json!({"command": "head -c 1073741824 /dev/zero | tr '\\0' x"}),
    )
    .code(0);
    let data = &out.json()["data"];
    let kept = data["stdout"].as_str().unwrap();
    assert!(
        kept.len() >= 8 << 20 && kept.len() < 9 << 20,
        "{} bytes were kept",
        kept.len()
    );
    assert!(
        data.to_string().contains("truncated"),
        "the cut is not marked"
    );
    let status = fs::read_to_string(format!("/proc/{}/status", daemon.pid())).unwrap();
    let peak = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))
        .unwrap();
    let kib: u64 = peak.trim().trim_end_matches(" kB").parse().unwrap();
    assert!(kib < 256 << 10, "the daemon grew to {kib} KiB");
    assert_nothing_left(&world);
}

#[test]
fn a_tool_that_hangs_is_ended_with_all_it_started() {
    let world = World::new();
    let command = "sleep 1000 & (trap '' TERM; sleep 1000) & sleep 1000";
    let out = bash(&world, &json!({"command": command, "timeout": 0.3}))
        .code(1)
        .stderr_contains(&["timed out"]);
    assert_eq!(out.json()["status"], "error");
    assert_nothing_left(&world);
}

#[test]
fn processes_left_by_tool_are_ended() {
    let world = World::new();
    // The second process has left the group and the session, and its parent is gone.
    let command =
        "sleep 1000 >/dev/null 2>&1 & (setsid sleep 1000 >/dev/null 2>&1 &) ; echo started";
    let out = bash(&world, &json!({"command": command})).code(0);
    assert_eq!(out.json()["data"]["stdout"], "started\n");
    assert_nothing_left(&world);
}

#[test]
fn a_tool_ended_by_a_signal_says_so() {
    let world = World::new();
    let out = bash(&world, &json!({"command": "echo before; kill -SEGV $$"})).code(1);
    assert!(
        out.stderr().contains("SIGSEGV") || out.stderr().contains("signal 11"),
        "{out:?}"
    );
    assert_eq!(out.json()["data"]["stdout"], "before\n");
}

#[test]
fn an_exit_code_other_than_zero_is_a_failure_that_keeps_the_output() {
    let world = World::new();
    let out = bash(
        &world,
        &json!({"command": "echo out; echo the reason >&2; exit 3"}),
    )
    .code(1)
    .stderr_contains(&["the reason"]);
    let data = &out.json()["data"];
    assert_eq!(data["stdout"], "out\n");
    assert_eq!(data["exit_code"], 3);
}

#[test]
fn invalid_utf8_output_is_replaced() {
    let world = World::new();
    let out = bash(&world, &json!({"command": "printf 'a\\377\\376b'"})).code(0);
    assert_eq!(out.json()["data"]["stdout"], "a\u{fffd}\u{fffd}b");
}

#[test]
fn data_is_never_read_as_a_template_or_as_shell_code() {
    let world = World::new();
    let nasty = "$(touch pwned) `touch pwned` ${HOME} {project_path} {tool_path} ; touch pwned '\"";
    let out = bash(&world, &json!({"command": "printf %s \"$1\"; printf %s \"$DATA\"", "args": [nasty], "env": {"DATA": nasty}})).code(0);
    assert_eq!(out.json()["data"]["stdout"], format!("{nasty}{nasty}"));
    world.python("t/echo", "return params");
    let out = world
        .ryectl("execute tool t/echo --json --params -")
        .stdin(json!({"v": nasty}).to_string())
        .ok();
    assert_eq!(out.json()["data"]["v"], nasty);
    assert!(!world.project().join("pwned").exists());
}

#[test]
fn params_cannot_override_fixed_values_of_tool() {
    let world = World::new();
    world.python("t/echo", "return params");
    let params = json!({"command": "/bin/false", "args": ["x"], "env": {"A": "1"}, "timeout": 0, "cwd": "/"});
    let out = world
        .ryectl("execute tool t/echo --json --params -")
        .stdin(params.to_string())
        .ok();
    assert_eq!(out.json()["data"], params);
}

#[test]
fn tools_see_only_their_own_environment() {
    let world = World::new();
    world.write(".env", "FROM_PROJECT=yes\nPATH=/nowhere\nLD_PRELOAD=/nowhere.so\nPYTHONPATH=/nowhere\nRYE_RUN_ID=forged\n");
    let out = world
        .ryectl("execute tool rye/bash --json --params -")
        .env("SECRET_OF_CALLER", "x")
        .stdin(json!({"command": "env"}).to_string())
        .ok();
    let data = out.json();
    let stdout = data["data"]["stdout"].as_str().unwrap().to_owned();
    for line in stdout.lines() {
        let name = line.split('=').next().unwrap();
        let known = matches!(
            name,
            "PATH" | "HOME" | "LANG" | "TZ" | "FROM_PROJECT" | "PWD" | "OLDPWD" | "SHLVL" | "_"
        ) || name.starts_with("RYE_");
        assert!(known, "a tool sees {line}");
    }
    assert!(stdout.contains("FROM_PROJECT=yes"));
    assert!(
        !stdout.contains("/nowhere") && !stdout.contains("forged"),
        "{stdout}"
    );
}

#[test]
fn a_tool_that_calls_the_socket_is_refused() {
    let world = World::new();
    let ryectl = binaries::ryectl();
    let call = r#"env -i HOME="$HOME" "$1" --socket "$2" ps; echo "code $?""#;
    let args = json!([ryectl, world.socket()]);
    let out = bash(&world, &json!({"command": call, "args": args})).code(0);
    let data = out.json()["data"].clone();
    assert_eq!(data["stdout"], "code 4\n");
    assert!(
        data["stderr"]
            .as_str()
            .unwrap()
            .contains("a process that a run started"),
        "{data}"
    );
    assert_eq!(
        world
            .ryectl("ps --all --json")
            .ok()
            .json()
            .as_array()
            .map(Vec::len),
        Some(1)
    );
}

#[test]
fn double_forked_tool_cannot_escape_its_run() {
    let world = World::new();
    // A double fork with a session of its own: the process that adopts orphans is its parent.
    let call = r#"(setsid env -i HOME="$HOME" sh -c '"$0" --socket "$1" ps; echo "code $?" >answer' "$1" "$2" </dev/null >/dev/null 2>&1 &)
                  until [ -s answer ]; do sleep 0.01; done; cat answer"#;
    let args = json!([binaries::ryectl(), world.socket()]);
    let out = bash(&world, &json!({"command": call, "args": args})).code(0);
    assert_eq!(out.json()["data"]["stdout"], "code 4\n");
}

#[test]
fn caller_with_attempt_variable_is_refused_as_inside_run() {
    let world = World::new();
    let _daemon = world.start("");
    let tagged = world.ryectl("ps --json").env("RYE_ATTEMPT", "of.a.run.1");
    let refused = tagged.run().code(4);
    assert_eq!(refused.json()["error"]["reason"], "inside_a_run");
    let _listed = world.ryectl("ps --json").ok();
}

#[test]
fn inside_a_run_ryectl_starts_no_daemon() {
    let world = World::new();
    let call = r#"unset RYE_SOCKET; "$1" --state-dir "$2" ps; echo "code $?""#;
    let args = json!([binaries::ryectl(), world.root().join("second")]);
    let out = bash(&world, &json!({"command": call, "args": args})).code(0);
    assert_eq!(out.json()["data"]["stdout"], "code 69\n");
    assert!(!world.root().join("second").exists());
}

#[test]
fn kill_ends_processes_outside_process_group() {
    let world = World::new();
    let away = "setsid sh -c 'touch NAME; exec sleep 1000'";
    let command = format!(
        "{} & ({} &); until [ -e one -a -e two ]; do :; done; exec sleep 1000",
        away.replace("NAME", "one"),
        away.replace("NAME", "two"),
    );
    world.graph(
        "t/hang",
        &format!(
            "start: a\nnodes:\n  a:\n    action: {{item_id: rye/bash, params: {{command: \"{command}\"}}}}\n    next: done\n  done: {{type: return}}"
        ),
    );
    let run = world.start_run("t/hang");
    until("all three to sleep", || {
        let processes = world.processes();
        let asleep = processes.iter().filter(|process| process.name == "sleep");
        (asleep.count() == 3).then_some(())
    });
    let out = world.ryectl("kill --grace 0.2 --json").arg(&run).ok();
    let receipt = out.json();
    assert_eq!(receipt["run_id"], run);
    assert_eq!(receipt["survivors"], json!([]));
    // The leader, which has become a `sleep`, and the two processes that left its group.
    assert_eq!(
        receipt["processes"].as_array().map(Vec::len),
        Some(3),
        "{receipt}"
    );
    for process in receipt["processes"].as_array().unwrap() {
        assert_eq!(process["comm"], "sleep", "{receipt}");
        assert!(process["signal"].is_i64(), "{receipt}");
    }
    assert!(
        world
            .processes()
            .iter()
            .all(|process| process.name == "ryed"),
        "{:?}",
        world.processes()
    );
    assert_eq!(world.record(&run)["status"], "killed");
    let _over = world.ryectl("cancel").arg(&run).run().code(5);
}

#[test]
fn a_cancelled_step_gets_its_grace_and_is_ended() {
    let world = World::new();
    world.graph("t/hang", "start: a\nnodes:\n  a:\n    action: {item_id: rye/bash, params: {command: \"trap 'touch asked; exit 0' TERM; touch in; while :; do sleep 0.01; done\"}}\n    next: done\n  done: {type: return}");
    let run = world.start_run("t/hang");
    until("the step to run", || {
        world.project().join("in").exists().then_some(())
    });
    let _asked = world.ryectl("cancel").arg(&run).ok();
    assert_eq!(world.settled(&run)["status"], "cancelled");
    assert_nothing_left(&world);
}

#[test]
fn a_step_that_repeats_has_the_same_key_and_another_attempt() {
    let world = World::new();
    world.graph("t/keys", "start: a\nnodes:\n  a:\n    action: {item_id: rye/bash, params: {command: \"echo $RYE_IDEMPOTENCY_KEY >>keys; touch in; until [ -e go ]; do sleep 0.01; done\"}}\n    next: b\n  b:\n    action: {item_id: rye/bash, params: {command: \"echo $RYE_IDEMPOTENCY_KEY >>keys\"}}\n    next: done\n  done: {type: return}");
    let daemon = world.start("");
    let run = world.start_run("t/keys");
    until("the step to run", || {
        world.project().join("in").exists().then_some(())
    });
    daemon.kill();
    let _status = daemon.ended();
    world.write("go", "");
    assert_eq!(world.settled(&run)["status"], "completed");
    let text = world.read("keys");
    let keys: Vec<&str> = text.lines().collect();
    assert_eq!(keys.len(), 3);
    assert_eq!(keys[0], keys[1]);
    assert_ne!(keys[1], keys[2]);
    assert!(keys[0].len() >= 32, "{keys:?}");
    let out = world.ryectl("events --json").arg(&run).ok();
    let attempts: Vec<_> = out
        .json_lines()
        .iter()
        .filter(|event| event["event_type"] == "step_started")
        .map(|event| {
            (
                event["payload"]["step"].clone(),
                event["payload"]["attempt"].clone(),
            )
        })
        .collect();
    assert_eq!(
        attempts,
        [
            (json!(1), json!(1)),
            (json!(1), json!(2)),
            (json!(2), json!(1))
        ]
    );
}

#[test]
fn a_script_tool_of_bash_gets_its_params_on_stdin() {
    let world = World::new();
    world.tool(
        "t/script.yaml",
        "version: \"1.0.0\"\ntool_type: bash\nexecutor_id: rye/core/runtimes/bash\ncategory: t\nname: script\ndescription: \"A script.\"\nconfig:\n  script: |\n    cat\n",
    );
    let out = world
        .ryectl("execute tool t/script --json --params -")
        .stdin(r#"{"a": [1]}"#)
        .ok();
    assert_eq!(out.json()["data"], json!({"a": [1]}));
}

#[test]
fn vanished_at_most_once_tool_suspends_run_despite_node_settings() {
    let world = World::new();
    world.tool(
        "t/once.yaml",
        "version: \"1.0.0\"\ntool_type: bash\nexecutor_id: rye/core/runtimes/bash\ncategory: t\nname: once\n\
         description: \"Vanishes.\"\neffect: at_most_once\nconfig: {script: \"echo run >> ran; kill -9 $$\"}\n",
    );
    world.graph(
        "t/g",
        "start: a\nnodes:\n  a: {retry: 3, action: {item_id: t/once}, next: b}\n  b: {type: return}",
    );
    let run = world.start_run("t/g");
    let record = world.settled(&run);
    assert_eq!(record["status"], "suspended", "{record}");
    let ran = || fs::read_to_string(world.project().join("ran")).unwrap();
    assert_eq!(ran(), "run\n");
    let resume = world.ryectl("resume --uncertain a=done").arg(&run);
    let _resumed = resume.run().code(0);
    assert_eq!(world.settled(&run)["status"], "completed");
    assert_eq!(ran(), "run\n");
}

#[test]
fn values_too_long_for_the_kernel_are_refused_by_name_and_pass_by_stdin() {
    let world = World::new();
    let long = "x".repeat(200_000);
    for (field, params) in [
        (
            "`env.B` has 200002 bytes",
            json!({"command": "true", "env": {"B": long}}),
        ),
        (
            "`args[1]` has 200000 bytes",
            json!({"command": "true", "args": ["a", long]}),
        ),
        (
            "`command` has 200005 bytes",
            json!({"command": format!("echo {long}")}),
        ),
    ] {
        let refused = format!("{:?}", bash(&world, &params).code_among(&[1, 2]));
        for part in [field, "at most 131071", "by `stdin`"] {
            assert!(refused.contains(part), "{part}: {refused:.400}");
        }
    }
    let many = vec!["x".repeat(130_000); 60];
    let refused = bash(&world, &json!({"command": "true", "args": many})).code(1);
    let _named = refused.stderr_contains(&["bytes together", "pass large data on stdin"]);
    let out = bash(
        &world,
        &json!({"command": "wc -c", "stdin": "x".repeat(5_000_000)}),
    )
    .code(0);
    assert_eq!(
        out.json()["data"]["stdout"].as_str().unwrap().trim(),
        "5000000"
    );
}
