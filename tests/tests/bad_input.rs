//! Bad graphs and bad inputs: a clear error, the right exit code, no effects and no leftovers.

use rye_tests::World;
use serde_json::Value;

/// A graph that cannot run, and the error for its author.
struct Fault {
    name: &'static str,
    /// The graph below `config`.
    config: &'static str,
    /// Texts that the error must contain, beginning with the position.
    error_parts: &'static [&'static str],
}

/// The first line of `config` is line 10 of the file; the signature is line 1.
const FAULTS: &[Fault] = &[
    Fault {
        name: "missing-node",
        config: "start: a\nnodes:\n  a: {assign: {x: 1}, next: nowhere}\n  done: {type: return}",
        error_parts: &[":12:", "nowhere"],
    },
    Fault {
        name: "missing-start",
        config: "start: b\nnodes:\n  done: {type: return}",
        error_parts: &[":10:", "`b`"],
    },
    Fault {
        name: "unknown-node-key",
        config: "start: a\nnodes:\n  a:\n    asign: {x: 1}\n    next: done\n  done: {type: return}",
        error_parts: &[":13:", "asign", "assign"],
    },
    Fault {
        name: "unknown-config-key",
        config: "start: done\nmaxsteps: 3\nnodes:\n  done: {type: return}",
        error_parts: &[":11:", "maxsteps", "max_steps"],
    },
    Fault {
        name: "unknown-edge-key",
        config: "start: a\nnodes:\n  a:\n    assign: {x: 1}\n    next:\n      - {to: done, if: {path: state.x, op: eq, value: 1}}\n  done: {type: return}",
        error_parts: &[":15:", "`if`"],
    },
    Fault {
        name: "unknown-operator",
        config: "start: a\nnodes:\n  a:\n    assign: {x: 1}\n    next:\n      - {to: done, when: {path: state.x, op: like, value: 1}}\n  done: {type: return}",
        error_parts: &[":15:", "like"],
    },
    Fault {
        name: "unknown-node-type",
        config: "start: a\nnodes:\n  a: {type: teapot, next: done}\n  done: {type: return}",
        error_parts: &[":12:", "teapot"],
    },
    Fault {
        name: "assigned-inputs",
        config: "start: a\nnodes:\n  a: {assign: {inputs: {x: 1}}, next: done}\n  done: {type: return}",
        error_parts: &[":12:", "inputs"],
    },
    Fault {
        name: "shell-variable",
        config: "start: a\nnodes:\n  a:\n    action:\n      item_id: rye/bash\n      params: {command: 'for f in one two; do rm -rf \"build/${f}\"; done'}\n    next: done\n  done: {type: return}",
        error_parts: &[
            ":15:",
            "there is no `f` here",
            "for the shell write `$${f}`",
        ],
    },
    Fault {
        name: "unknown-result",
        config: "start: a\nnodes:\n  a:\n    type: parallel\n    branches: {lint: {item_id: rye/core/echo}}\n    next: [{to: done, when: {path: result.errors, op: gt, value: 0}}]\n  done: {type: return}",
        error_parts: &[
            ":15:",
            "never has `errors`",
            "lint, count, failed, succeeded",
        ],
    },
    Fault {
        name: "wrong-type",
        config: "start: done\nmax_steps: many\nnodes:\n  done: {type: return}",
        error_parts: &[":11:", "max_steps"],
    },
];

#[test]
fn a_request_that_is_too_long_is_refused_before_it_is_sent() {
    let world = World::new();
    world.graph("t/done", "start: a\nnodes:\n  a: {type: return}");
    world.write(
        "in.json",
        format!("{{\"text\": \"{}\"}}", "x".repeat(17 << 20)),
    );
    for words in [
        "run t/done --input @in.json",
        "execute tool t/done --params @in.json",
        "graph step t/done --node a --state @in.json",
    ] {
        let refused = world.ryectl(words).run().code(2).prints_nothing();
        let _told = refused.stderr_contains(&["at most 16777216", "a file of the project"]);
    }
    assert_eq!(
        world.ryectl("ps --all --json").ok().json(),
        serde_json::json!([])
    );
}

#[test]
fn a_graph_with_a_fault_makes_no_run_and_the_refusal_names_the_place() {
    let world = World::new();
    for fault in FAULTS {
        let id = format!("bad/{}", fault.name);
        world.graph(&id, fault.config);
        let file = format!("{}.yaml", fault.name);
        let out = world
            .ryectl("run --json")
            .arg(&id)
            .run()
            .code(2)
            .stderr_contains(&[file.as_str()])
            .stderr_contains(fault.error_parts);
        assert_eq!(
            out.json()["error"]["reason"],
            "graph_validation_failed",
            "{}",
            fault.name
        );
    }
    let runs = world.ryectl("ps --all --json").ok().json();
    assert_eq!(runs, Value::Array(Vec::new()));
    assert_eq!(world.info()["live_runs"], 0);
}

#[test]
fn sign_refuses_broken_yaml_with_its_line() {
    let world = World::new();
    let text =
        rye_tests::world::graph_text("bad/broken", "permissions: []", "start: a\nnodes: {a: [\n");
    let path = world.write(".ai/tools/bad/broken.yaml", text);
    let out = world
        .ryectl("sign")
        .arg(&path)
        .run()
        .stderr_contains(&["broken.yaml", "line"]);
    assert!(!out.stderr().is_empty());
    let _refused = world
        .ryectl("run bad/broken")
        .run()
        .code(4)
        .stderr_contains(&["broken.yaml", "cannot be signed as it is: line"]);
    assert_eq!(
        world.ryectl("ps --all --json").ok().json(),
        Value::Array(Vec::new())
    );
}

const SCHEMA: &str = r#"permissions: ["rye.execute.tool.*"]
config_schema:
  type: object
  required: [who]
  properties:
    who: {type: string}
    count: {type: integer, default: 3}
    ratio: {type: number}
    fast: {type: boolean}
    tags: {type: array}
    size: {type: string, enum: [small, large]}"#;

const ECHO_INPUTS: &str = "start: done\nnodes:\n  done: {type: return, output: \"${inputs}\"}";

#[test]
fn missing_wrong_and_undeclared_inputs_make_no_run_and_the_refusal_names_the_input() {
    let world = World::new();
    world.graph_with("in/typed", SCHEMA, ECHO_INPUTS);
    for (arguments, told) in [
        ("", "who"),
        ("-i who:=null", "who"),
        ("-i who:=7", "who"),
        ("-i who=x -i count=many", "count"),
        ("-i who=x -i count=1.5", "count"),
        ("-i who=x -i size=huge", "size"),
        ("-i who=x -i fast=perhaps", "fast"),
        (
            "-i who=x -i cuont=1",
            "there is no input `cuont` (did you mean `count`?)",
        ),
        (
            "-i who=x -i unlike=1",
            "there is no input `unlike`; there are who, count",
        ),
    ] {
        let out = world
            .ryectl("run in/typed --json")
            .words(arguments)
            .run()
            .code(2)
            .stderr_contains(&[told]);
        assert_eq!(
            out.json()["error"]["reason"],
            "input_validation_failed",
            "{arguments}"
        );
    }
    let runs = world.ryectl("ps --all --json").ok().json();
    assert_eq!(runs, Value::Array(Vec::new()));
    world.graph_with(
        "in/open",
        &format!("{SCHEMA}\n  additionalProperties: true"),
        ECHO_INPUTS,
    );
    let out = world.ryectl("run in/open --json -i who=x -i unlike=1").ok();
    assert_eq!(out.json()["output"]["unlike"], "1");
}

#[test]
fn text_inputs_take_the_declared_type_and_the_rest_stays_text() {
    let world = World::new();
    let open = format!("{SCHEMA}\n  additionalProperties: true");
    world.graph_with("in/typed", &open, ECHO_INPUTS);
    let words = "run in/typed -i who=7 -i count=9007199254740993 -i ratio=0.5 -i fast=true -i tags=[1,\"a\"] -i free=12 -i raw:=12";
    let out = world.ryectl(words).ok();
    assert_eq!(
        out.json(),
        serde_json::json!({
            "who": "7", "count": 9_007_199_254_740_993_u64, "ratio": 0.5, "fast": true, "tags": [1, "a"],
            "free": "12", "raw": 12,
        })
    );
}

#[test]
fn inputs_come_as_json_from_a_word_a_file_or_stdin() {
    let world = World::new();
    world.graph_with("in/typed", SCHEMA, ECHO_INPUTS);
    world.write("in.json", r#"{"who": "file"}"#);
    let who = |out: rye_tests::Outcome| out.json()["who"].clone();
    assert_eq!(
        who(world
            .ryectl("run in/typed --input")
            .arg(r#"{"who": "word"}"#)
            .ok()),
        "word"
    );
    assert_eq!(
        who(world.ryectl("run in/typed --input @in.json").ok()),
        "file"
    );
    assert_eq!(
        who(world
            .ryectl("run in/typed --input -")
            .stdin(r#"{"who": "stdin"}"#)
            .ok()),
        "stdin"
    );
    assert_eq!(
        who(world
            .ryectl("run in/typed --input @in.json -i who=flag")
            .ok()),
        "flag"
    );
}

#[test]
fn malformed_input_is_a_usage_error_and_starts_nothing() {
    let world = World::new();
    world.graph_with("in/typed", SCHEMA, ECHO_INPUTS);
    for words in [
        "run in/typed --input {",
        "run in/typed --input [1]",
        "run in/typed --input @nowhere.json",
        "run in/typed -i who",
        "run in/typed -i who:={",
        "run ../in/typed",
        "run /in/typed",
        "run in//typed",
        "run in/../typed",
        "execute tool ../x",
        "execute teapot x",
        "run in/typed --limit steps=many",
        "teapot",
        "ps --teapot",
        "get ../x",
    ] {
        let out = world.ryectl(words).run().code(2).prints_nothing();
        assert!(!out.stderr().is_empty(), "{words}");
    }
    assert!(!world.socket().exists(), "a usage error needs no daemon");
}

#[test]
fn missing_runs_and_items_exit_3() {
    let world = World::new();
    for words in [
        "run no/such",
        "execute tool no/such",
        "get no-such-1-aaaaaaaaaa",
        "steps no-such-1-aaaaaaaaaa",
        "state no-such-1-aaaaaaaaaa",
        "events no-such-1-aaaaaaaaaa",
        "wait no-such-1-aaaaaaaaaa",
        "cancel no-such-1-aaaaaaaaaa",
        "kill no-such-1-aaaaaaaaaa",
        "verify tool:no/such",
    ] {
        let _missing = world
            .ryectl(words)
            .run()
            .code(3)
            .prints_nothing()
            .stderr_contains(&["no"]);
    }
    let _untrusted = world.ryectl("key untrust 0123456789abcdef").run().code(3);
}

#[test]
fn three_megabytes_of_params_arrive_whole() {
    let world = World::new();
    world.python(
        "t/length",
        "return {'length': len(params['text']), 'end': params['text'][-3:]}",
    );
    world.graph(
        "t/big",
        "start: a\nnodes:\n  a:\n    action: {item_id: t/length, params: {text: \"${inputs.text}\"}}\n    assign: {got: \"${result}\"}\n    next: done\n  done: {type: return, output: \"${state.got}\"}",
    );
    let text = format!("{}end", "x".repeat(3 * 1024 * 1024));
    world.write("in.json", serde_json::json!({"text": text}).to_string());
    let expected = serde_json::json!({"length": text.len(), "end": "end"});
    let out = world
        .ryectl("execute tool t/length --params @in.json --json")
        .ok();
    assert_eq!(out.json()["data"], expected);
    let out = world.ryectl("run t/big --input @in.json").ok();
    assert_eq!(out.json(), expected);
}

#[test]
fn lossy_json_argument_is_usage_error() {
    let world = World::new();
    world.graph_with("in/typed", SCHEMA, ECHO_INPUTS);
    for arguments in [
        ["run", "in/typed", "-i", "n:=99999999999999999999999"].as_slice(),
        &["run", "in/typed", "--input", r#"{"a":1,"a":2}"#],
        &[
            "execute",
            "tool",
            "rye/core/echo",
            "--params",
            r#"{"a":[{"b":1,"b":2}]}"#,
        ],
        &[
            "graph",
            "step",
            "in/typed",
            "--node",
            "a",
            "--state",
            r#"{"a":1,"a":2}"#,
        ],
    ] {
        let call = arguments
            .iter()
            .fold(world.ryectl(""), rye_tests::Ryectl::arg);
        let _refused = call.run().code(2).prints_nothing();
    }
    assert!(!world.socket().exists(), "a usage error needs no daemon");
}

#[test]
fn finding_quotes_only_excerpt_of_long_text() {
    let world = World::new();
    let long = "x.".repeat(50_000);
    world.graph(
        "bad/template",
        &format!("start: a\nnodes:\n  a: {{assign: {{x: \"${{state..{long}}}\"}}, next: b}}\n  b: {{type: return}}"),
    );
    let out = world.ryectl("graph validate bad/template").run().code(1);
    assert!(out.stdout().len() < 3000, "{}", out.stdout().len());
    let _told = out.prints(&["malformed template", "…"]);
}

#[test]
fn an_interpreter_that_is_not_there_is_named_and_not_waited_for() {
    let world = World::new();
    world.python("t/value", "return {'n': 1}");
    world.graph(
        "t/python",
        "start: a\nnodes:\n  a: {action: {item_id: t/value}, next: b}\n  b: {type: return}",
    );
    // The daemon inherits the environment of the client that starts it.
    let start = world.ryectl("daemon start").env("PATH", "/nowhere");
    let _started = start.ok();
    let out = world.ryectl("run t/python --json").run().code(1);
    let error = &out.json()["error"];
    assert_eq!(error["code"], "executor_not_found", "{error}");
    assert_eq!(error["retryable"], false, "{error}");
    let message = error["message"].as_str().unwrap();
    assert!(
        message.contains("`python3`") && message.contains("/nowhere"),
        "{message}"
    );
    let _at_once = out.stderr_lacks("retry 1");
}

#[test]
fn the_error_of_a_refused_graph_holds_its_errors_and_no_warnings() {
    let world = World::new();
    world.graph(
        "bad/both",
        "start: nowhere\nnodes:\n  a: {type: foreach, over: [], effect: at_most_once, retry: 2, action: {item_id: rye/core/echo}, next: gone}",
    );
    let checked = world.ryectl("graph validate bad/both --json").run();
    let checked = checked.code(1).json();
    let count = |of: &str| checked[of].as_array().unwrap().len();
    assert!(count("warnings") > 0, "{checked}");
    let run = world.ryectl("run bad/both --json").run().code(2).json();
    let told = run["error"]["message"].as_str().unwrap();
    assert_eq!(told.lines().count(), count("errors"), "{told}");
    let shown = world.ryectl("graph show bad/both").run().code(2);
    assert!(!shown.stderr().contains("has no effect"), "{shown:?}");
}

#[test]
fn impossible_tool_file_is_refused_as_permanent() {
    let world = World::new();
    let _daemon = world.start("");
    let folder = world.project().join(".ai/tools/t");
    std::fs::create_dir_all(&folder).unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(folder.join("socket.py")).unwrap();
    let longest = format!("t/{}", "x".repeat(253));
    for item in ["t/socket", &longest] {
        let out = world.ryectl("execute --json").arg(item).run();
        // Exit code 69 and `unavailable` would invite a retry.
        let out = out.code_among(&[2, 3, 4, 5]);
        assert_ne!(out.json()["error"]["reason"], "unavailable", "{out:?}");
    }
}
