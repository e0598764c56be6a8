//! Chains of tool, runtime and primitive: the valid forms, and the errors for invalid ones.

use rye_core::id::ItemKind;
use rye_tests::World;
use serde_json::{Value, json};

/// Renders the YAML tool `t/<name>` with the executor `executor`; `more` has further keys.
fn element(name: &str, executor: &str, more: &str) -> String {
    format!(
        "version: \"1.0.0\"\ntool_type: tool\nexecutor_id: {executor}\ncategory: t\nname: {name}\n\
         description: \"Part of a chain.\"\n{more}\n"
    )
}

fn write(world: &World, name: &str, executor: &str, more: &str) {
    world.tool(&format!("t/{name}.yaml"), &element(name, executor, more));
}

/// Writes an element that `ryectl sign` refuses with `told`, and signs it without that check.
fn write_refused(world: &World, name: &str, more: &str, told: &[&str]) {
    let path = world.write(
        &format!(".ai/tools/t/{name}.yaml"),
        element(name, BASH, more),
    );
    let refused = world.ryectl("sign").arg(&path).run().code(1);
    let _told = refused.stderr_contains(told);
    world.sign_unchecked(ItemKind::Tool, &path);
}

const BASH: &str = "rye/core/runtimes/bash";
const EXECUTE: &str = "rye/core/primitives/execute";

#[test]
fn a_chain_that_cannot_be_made_is_refused_with_what_is_wrong_and_leaves_no_run() {
    let world = World::new();
    write(&world, "round", "t/about", "");
    write(&world, "about", "t/round", "");
    for n in 0..10 {
        write(&world, &format!("deep{n}"), &format!("t/deep{}", n + 1), "");
    }
    write(&world, "deep10", EXECUTE, "");
    write(&world, "dead", "null", "");
    write(&world, "astray", "t/nowhere", "");
    write(&world, "climbing", "../secret", "");
    write_refused(
        &world,
        "isolated",
        "isolation: {}\nconfig: {script: cat}",
        &["isolated.yaml", "`isolation`", "one of the words"],
    );
    let cases: [(&str, i32, &[&str]); 6] = [
        ("round", 2, &["circular", "t/round", "about.yaml"]),
        ("deep0", 2, &["longer than 10"]),
        (
            "dead",
            2,
            &[
                "dead.yaml",
                "executor_id",
                "rye/core/runtimes/python/function",
            ],
        ),
        ("astray", 3, &["t/nowhere", "does not exist"]),
        ("climbing", 2, &["climbing.yaml", "executor_id", ".."]),
        (
            "isolated",
            2,
            &["isolated.yaml", "`isolation`", "one of the words"],
        ),
    ];
    for (tool, code, told) in cases {
        let id = format!("t/{tool}");
        let _refused = world
            .ryectl("execute tool")
            .arg(id)
            .run()
            .code(code)
            .stderr_contains(told);
    }
    assert_eq!(world.ryectl("ps --all --json").ok().json(), json!([]));
}

#[test]
fn chain_requirements_are_checked_before_run_exists() {
    let world = World::new();
    let library = element("library", "null", "").replace("tool_type: tool", "tool_type: library");
    world.tool("t/library.yaml", &library);
    write(&world, "on-library", "t/library", "");
    write_refused(
        &world,
        "misspelt",
        "confg: {script: cat}",
        &[
            "misspelt.yaml",
            "`confg` (line 7)",
            "did you mean `config`?",
        ],
    );
    write(
        &world,
        "taking",
        EXECUTE,
        "child_constraints: {min_version: \"1.5.0\"}\ninputs: [page]",
    );
    write(&world, "old", "t/taking", "");
    let young = element("young", "t/taking", "outputs: [text]").replace("1.0.0", "1.5.0");
    world.tool("t/young.yaml", &young);
    write(
        &world,
        "lax",
        EXECUTE,
        "child_constraints: {minimum: \"1.5.0\"}",
    );
    write(&world, "on-lax", "t/lax", "");
    let cases: [(&str, i32, &[&str]); 6] = [
        ("library", 2, &["library.yaml", "cannot be executed"]),
        ("on-library", 2, &["library.yaml", "cannot be executed"]),
        (
            "misspelt",
            2,
            &[
                "misspelt.yaml",
                "line 8",
                "`confg`",
                "did you mean `config`?",
            ],
        ),
        (
            "old",
            2,
            &["old.yaml", "taking.yaml", "1.0.0", "1.5.0 or later"],
        ),
        (
            "young",
            2,
            &["young.yaml", "taking.yaml", "`page`", "outputs"],
        ),
        (
            "on-lax",
            2,
            &["lax.yaml", "line 8", "child_constraints.minimum"],
        ),
    ];
    for (tool, code, told) in cases {
        let execute = world.ryectl("execute tool").arg(format!("t/{tool}"));
        let _refused = execute.run().code(code).stderr_contains(told);
    }
    assert_eq!(world.ryectl("ps --all --json").ok().json(), json!([]));
}

#[test]
fn plan_error_ends_run_before_start() {
    let world = World::new();
    for (name, executor, more) in [
        ("odd", EXECUTE, "config: {command: /bin/cat, umask: 7}"),
        ("on-odd", "t/odd", ""),
        ("slotless", BASH, ""),
        ("late", BASH, "config: {script: cat, timeout: soon}"),
        (
            "listless",
            EXECUTE,
            "config: {command: /bin/echo, args: [1]}",
        ),
        (
            "no-tongue",
            EXECUTE,
            "env_config: {interpreter: {type: local_binary, binary: no-such-tongue, search_paths: [.venv/bin], var: RYE_TONGUE, fallback: no-tongue-3}}\n\
             config: {command: \"${RYE_TONGUE}\", args: [\"{tool_path}\"]}",
        ),
        (
            "newer",
            EXECUTE,
            "env_config: {interpreter: {type: command, var: X}}\nconfig: {command: \"${X}\"}",
        ),
    ] {
        write(&world, name, executor, more);
    }
    let cases: [(&str, &[&str]); 6] = [
        ("on-odd", &["odd.yaml", "line 8", "config.umask", "unknown"]),
        ("slotless", &["config.script"]),
        ("late", &["config.timeout", "seconds"]),
        ("listless", &["config.args", "list of texts"]),
        (
            "no-tongue",
            &[
                "looked for `no-such-tongue` in ",
                ".venv/bin, and for `no-tongue-3` in PATH (",
            ],
        ),
        ("newer", &["env_config.interpreter.type", "local_binary"]),
    ];
    for (tool, told) in cases {
        let id = format!("t/{tool}");
        let _failed = world
            .ryectl("execute tool")
            .arg(id)
            .run()
            .code(1)
            .stderr_contains(told);
    }
}

#[test]
fn tool_config_overrides_runtime_config() {
    let world = World::new();
    write(
        &world,
        "base",
        EXECUTE,
        "env_config: {env: {A: base, B: base}}\n\
         config:\n  command: /bin/bash\n  args: [\"-c\", \"{script}\", bash, \"{project_path}\"]\n  input_data: \"{params_json}\"\n  timeout: 20",
    );
    write(
        &world,
        "mine",
        "t/base",
        "env_config: {env: {B: mine}}\nconfig:\n  script: |\n    printf '{\"a\": \"%s\", \"b\": \"%s\", \"project\": \"%s\", \"stdin\": %s}' \"$A\" \"$B\" \"$1\" \"$(cat)\"",
    );
    let out = world
        .ryectl("execute tool t/mine --json --params -")
        .stdin(r#"{"x": "{script}"}"#)
        .ok()
        .json();
    assert_eq!(
        out["data"],
        json!({"a": "base", "b": "mine", "project": world.project(), "stdin": {"x": "{script}"}})
    );
    let chain: Vec<_> = out["chain"]
        .as_array()
        .unwrap()
        .iter()
        .map(|element| element["item_id"].as_str().unwrap())
        .collect();
    assert_eq!(chain, ["t/mine", "t/base", EXECUTE]);
}

#[test]
fn trace_lists_files_shadowing_signers_and_decisions() {
    let world = World::new();
    world.write(
        ".ai/config/t/words.yaml",
        "version: \"1.0.0\"\ncategory: t\nname: words\n",
    );
    let _signed = world.ryectl("sign config:t/words").ok();
    let more = "env_config: {env: {A: secret-value}}\nconfig_resolve: {path: t/words.yaml}\nconfig: {script: cat}";
    write(&world, "mine", BASH, more);
    let out = world
        .ryectl("execute tool t/mine --json --trace")
        .ok()
        .json();
    let trace = out["trace"].as_array().unwrap();
    let steps: Vec<_> = trace
        .iter()
        .map(|step| {
            let name = step["step"].as_str().unwrap();
            let of = ["item_id", "contributed_by", "path"];
            let of = of.iter().find_map(|key| step[key].as_str());
            format!("{name} {}", of.unwrap_or_default())
        })
        .collect();
    assert_eq!(
        steps,
        [
            "resolve t/mine",
            "verify_integrity t/mine",
            &format!("resolve {BASH}"),
            &format!("verify_integrity {BASH}"),
            &format!("resolve {EXECUTE}"),
            &format!("verify_integrity {EXECUTE}"),
            "validate ",
            "config_resolve t/words.yaml",
            "resolve_env t/mine",
            "plan ",
            "timing ",
        ]
    );
    assert_eq!(trace[0]["space"], "project");
    assert!(trace[1]["key_fp"].is_string());
    assert_eq!(trace[1]["coverage"], "full");
    assert_eq!(trace[8]["keys"], json!(["A"]));
    assert_eq!(trace[9]["command"], "/bin/bash");
    assert!(trace[10]["run_ms"].is_u64());
    assert!(!json!(trace).to_string().contains("secret-value"));
}

#[test]
fn dry_run_prints_plan_without_effects() {
    let world = World::new();
    let more = "env_config: {env: {A: secret-value}}\nconfig: {script: \"touch done\", timeout: 7}";
    write(&world, "mine", BASH, more);
    let execute = world.ryectl("execute tool t/mine --json --dry-run --params -");
    let out = execute.stdin(r#"{"word": "another-secret"}"#).ok().json();
    let data = &out["data"];
    assert_eq!(data["command"], "/bin/bash");
    assert_eq!(data["args"][2], "touch done");
    assert_eq!(data["timeout"], 7.0);
    assert!(data["env"].as_array().unwrap().contains(&json!("A")));
    assert_eq!(out["trace"][0]["step"], "resolve");
    assert!(!out.to_string().contains("secret"), "{out}");
    write(&world, "broken", BASH, "");
    let broken = world.ryectl("execute tool t/broken --dry-run");
    let _told = broken.run().code(1).stderr_contains(&["config.script"]);
    world.graph("t/g", "start: a\nnodes:\n  a: {type: return}");
    let graph = world
        .ryectl("execute tool t/g --json --dry-run")
        .ok()
        .json();
    assert_eq!(graph["data"]["success"], true);
    assert_eq!(world.ryectl("ps --all --json").ok().json(), json!([]));
    assert!(!world.project().join("done").exists());
}

#[test]
fn graph_envelope_has_chain_and_optional_trace() {
    let world = World::new();
    world.graph("t/g", "start: a\nnodes:\n  a: {type: return}");
    let runtime = "rye/core/runtimes/state-graph/runtime";
    for params in ["{}", r#"{"async": true}"#, r#"{"validate": true}"#] {
        let execute = world.ryectl("execute tool t/g --json --trace --params");
        let out = execute.arg(params).ok().json();
        let named = |list: &Value, wanted: &str| -> Vec<String> {
            let list = list.as_array().unwrap().iter();
            list.filter(|entry| wanted.is_empty() || entry["step"] == wanted)
                .map(|entry| entry["item_id"].as_str().unwrap().to_owned())
                .collect()
        };
        assert_eq!(named(&out["chain"], ""), ["t/g", runtime], "{params}");
        assert_eq!(
            named(&out["trace"], "resolve"),
            ["t/g", runtime],
            "{params}"
        );
        let execute = world.ryectl("execute tool t/g --json --params");
        assert!(execute.arg(params).ok().json().get("trace").is_none());
    }
}

#[test]
fn a_caller_cannot_steer_the_loader_an_interpreter_or_rye_by_environment() {
    let world = World::new();
    for name in [
        "PATH",
        "LD_PRELOAD",
        "PYTHONPATH",
        "RYE_RUN_ID",
        "USER_SPACE",
        "NOT A NAME",
    ] {
        let _refused = world
            .ryectl("execute tool rye/bash --params -")
            .stdin(json!({"command": "env", "env": {name: "x"}}).to_string())
            .run()
            .code(1)
            .stderr_contains(&[name, "env"]);
    }
}

#[test]
fn a_caller_cannot_steer_the_shell_by_environment() {
    let world = World::new();
    let trap = world.write("trap", "touch sprung");
    let trap = trap.to_str().unwrap();
    for (name, value) in [
        ("BASH_ENV", trap),
        ("ENV", trap),
        ("SHELLOPTS", "xtrace"),
        ("BASHOPTS", "extdebug"),
        ("PS4", "$(touch sprung)"),
        ("IFS", "x"),
        ("CDPATH", "/"),
        ("GLOBIGNORE", "*"),
        ("PROMPT_COMMAND", "touch sprung"),
        ("BASH_LOADABLES_PATH", "/tmp"),
        ("BASH_FUNC_true%%", "() { touch sprung; }"),
    ] {
        // A shell that the command starts would obey variables that the tool's own shell ignores.
        let command = "touch began; bash -xc true; sh -c true";
        let refused = world.ryectl("execute tool rye/bash --params -");
        let params = json!({"command": command, "env": {name: value}});
        let refused = refused.stdin(params.to_string()).run().code(1);
        let _named = refused.stderr_contains(&[name, "env"]);
        for file in ["began", "sprung"] {
            assert!(!world.project().join(file).exists(), "{name}: {file}");
        }
    }
    let params = json!({"command": "echo $HARMLESS", "env": {"HARMLESS": "told"}});
    let out = world.ryectl("execute tool rye/bash --params -");
    let _told = out.stdin(params.to_string()).ok().prints(&["told"]);
}

#[test]
fn an_item_of_the_project_is_never_taken_for_a_part_of_the_daemon() {
    let world = World::new();
    world.tool(
        "rye/core/echo.yaml",
        &element("echo", BASH, "output: json\nconfig: {script: \"echo 7\"}")
            .replace("category: t", "category: rye/core"),
    );
    let out = world
        .ryectl("execute tool rye/core/echo --json --params -")
        .stdin(r#"{"x": 1}"#)
        .ok();
    assert_eq!(out.json()["data"], json!(7));
    assert_eq!(out.json()["chain"][0]["space"], "project");
}

#[test]
fn chain_variables_expand_only_known_variables_and_no_caller_values() {
    let world = World::new();
    world.write(".env", "HOST=example\nEMPTY=\n");
    write(
        &world,
        "base",
        EXECUTE,
        "env_config: {env: {LOW: \"low-${HOST}\", BOTH: base}}\n\
         config: {command: /bin/bash, args: [\"-c\", \"{script}\"], input_data: \"{params_json}\"}",
    );
    let own = r#"env_config: {env: {BOTH: "${BOTH}+${LOW}", NONE: "${NO_SUCH:-fallback}", GONE: "${EMPTY:-${HOST}"}}"#;
    let own = own.replace("${EMPTY:-${HOST}", "${EMPTY:-default}");
    let script = "config: {script: \"cat >&2; printf '[\\\"%s\\\",\\\"%s\\\",\\\"%s\\\"]' \\\"$BOTH\\\" \\\"$NONE\\\" \\\"$GONE\\\"\"}";
    write(&world, "mine", "t/base", &format!("{own}\n{script}"));
    let execute = world.ryectl("execute tool t/mine --json --params -");
    let out = execute.stdin(r#"{"x": "${HOST}"}"#).ok().json();
    assert_eq!(
        out["data"],
        json!(["base+low-example", "fallback", "default"])
    );
    for (name, value, told) in [
        ("unset", "${NO_SUCH}", "`${NO_SUCH}`"),
        ("open", "${HOST", "closes"),
        ("odd", "${1 + 1}", "no variable"),
    ] {
        let env = format!("env_config: {{env: {{A: \"{value}\"}}}}\nconfig: {{script: cat}}");
        write(&world, name, "t/base", &env);
        let id = format!("t/{name}");
        let execute = world.ryectl("execute tool").arg(id).run();
        let _failed = execute
            .code(1)
            .stderr_contains(&[name, "env_config.env.A", "line 8", told]);
    }
    let needs = "env_requires: [HOST, NO_SUCH]\nconfig: {script: cat}";
    write(&world, "needs", "t/base", needs);
    let needs = world.ryectl("execute tool t/needs").run();
    let _failed = needs
        .code(1)
        .stderr_contains(&["`NO_SUCH`", ".env", "env.pass"]);
}

#[test]
fn slot_is_whole_argument_or_path_with_literal_suffix() {
    let world = World::new();
    write(
        &world,
        "args",
        EXECUTE,
        "config:\n  command: /bin/bash\n  cwd: \"{tool_dir}\"\n  number: 7\n  args: [\"-c\", 'printf \"%s\\n\" \"$PWD\" \"$@\"', bash, \
         \"{tool_parent}/x\", \"{project_path}\", \"{number}\", \"{anchor_path}\", \"a{project_path}\", \"{user_space}/.ai\"]",
    );
    let data = world.ryectl("execute tool t/args --json").ok().json()["data"].clone();
    let project = world.project().display().to_string();
    let home = world.home().display().to_string();
    let expected = [
        format!("{project}/.ai/tools/t"),
        format!("{project}/.ai/tools/x"),
        project,
        "7".to_owned(),
        String::new(),
        "a{project_path}".to_owned(),
        format!("{home}/.ai"),
    ];
    let printed = data["stdout"].as_str().unwrap();
    assert_eq!(printed.lines().collect::<Vec<_>>(), expected);
    write(
        &world,
        "nowhere",
        EXECUTE,
        "config: {command: \"{anchor_path}/bin/x\"}",
    );
    let nowhere = world.ryectl("execute tool t/nowhere").run();
    let _failed = nowhere
        .code(1)
        .stderr_contains(&["config.command", "{anchor_path}/bin/x"]);
}

#[test]
fn tool_gets_resolved_config_and_caller_cannot_inject_it() {
    let world = World::new();
    let head = |text: &str| format!("version: \"1.0.0\"\ncategory: t\nname: words\n{text}");
    let user = world.home().join(".ai/config/t");
    std::fs::create_dir_all(&user).unwrap();
    std::fs::write(
        user.join("words.yaml"),
        head("deep: {a: user, b: user}\nlist: [1, 2]\n"),
    )
    .unwrap();
    let _signed = world.ryectl("sign").arg(user.join("words.yaml")).ok();
    world.write(
        ".ai/config/t/words.yaml",
        head("deep: {b: project}\nlist: [3]\n"),
    );
    let _signed = world.ryectl("sign config:t/words").ok();
    let given = |name: &str, asked: &str| {
        let more = format!("config_resolve: {asked}\nconfig: {{script: cat}}");
        write(&world, name, BASH, &more);
        let execute = world.ryectl("execute tool").arg(format!("t/{name}"));
        execute.arg("--json").run()
    };
    let merged = given("merged", "{path: t/words.yaml}").code(0).json();
    let merged = &merged["data"]["resolved_config"];
    assert_eq!(merged["deep"], json!({"a": "user", "b": "project"}));
    assert_eq!(merged["list"], json!([3]));
    let first = given(
        "first",
        "[{path: t/words.yaml, mode: first_match}, {path: t/none.yaml}]",
    );
    let first = first.code(0).json();
    let first = &first["data"]["resolved_config"];
    assert_eq!(first["t/words.yaml"]["deep"], json!({"b": "project"}));
    assert_eq!(first["t/none.yaml"], json!({}));
    for (name, asked, told) in [
        ("climbing", "{path: ../secret.yaml}", "below `.ai/config`"),
        (
            "mode",
            "{path: t/words.yaml, mode: both}",
            "`deep_merge` or `first_match`",
        ),
        (
            "key",
            "{path: t/words.yaml, mod: x}",
            "did you mean `mode`?",
        ),
    ] {
        let _refused = given(name, asked)
            .code(2)
            .stderr_contains(&[name, "line 8", told]);
    }
    let sent = world.ryectl("execute tool t/merged --params -");
    let sent = sent.stdin(r#"{"resolved_config": {}}"#).run();
    let _failed = sent
        .code(1)
        .stderr_contains(&["resolved_config", "cannot be sent"]);
    world.write(".ai/config/t/words.yaml", head("deep: forged\n"));
    let forged = world.ryectl("execute tool t/merged").run();
    let _refused = forged.code(4).stderr_contains(&["words.yaml"]);
}

#[test]
fn fixed_params_are_merged_and_not_overridden_by_caller() {
    let world = World::new();
    let more = "config: {script: cat, fixed_params: {kind: fixed, n: 1}}";
    write(&world, "beside", BASH, more);
    let below = "config: {script: cat, fixed_params: {kind: fixed}, params_key: words}";
    write(&world, "below", BASH, below);
    let run = |tool: &str, params: &str| {
        let execute = world.ryectl("execute tool").arg(tool);
        execute.arg("--json").arg("--params").arg(params).run()
    };
    let out = run("t/beside", r#"{"a": 1}"#).code(0).json();
    assert_eq!(out["data"], json!({"kind": "fixed", "n": 1, "a": 1}));
    let out = run("t/below", r#"{"kind": "mine"}"#).code(0).json();
    assert_eq!(
        out["data"],
        json!({"kind": "fixed", "words": {"kind": "mine"}})
    );
    let _refused = run("t/beside", r#"{"kind": "mine"}"#)
        .code(1)
        .stderr_contains(&["`kind`", "fixed"]);
}

#[test]
fn programs_in_files_of_their_own_run_with_their_parameters_on_stdin() {
    let world = World::new();
    world.tool(
        "t/script.py",
        "#!/usr/bin/env python3\n__version__ = \"1.0.0\"\n__executor_id__ = \"rye/core/runtimes/python/script\"\n\
         __category__ = \"t\"\n__tool_name__ = \"script\"\nimport json, sys\n\
         if __name__ == \"__main__\":\n    print(json.dumps({\"argv\": sys.argv[1:], \"params\": json.load(sys.stdin)}))\n",
    );
    let execute = |tool: &str| {
        let execute = world.ryectl("execute tool").arg(tool);
        execute
            .arg("--json")
            .arg("--params")
            .arg(r#"{"x": 1}"#)
            .run()
    };
    let out = execute("t/script").code(0).json();
    let project = world.project().display().to_string();
    assert_eq!(out["data"]["argv"], json!(["--project-path", project]));
    assert_eq!(out["data"]["params"], json!({"x": 1}));
    world.tool(
        "t/shell.sh",
        "#!/bin/bash\n# Gives back what it gets.\n# ---\n# version: \"1.0.0\"\n# executor_id: rye/core/runtimes/bash/file\n\
         # category: t\n# ---\nprintf '{\"project\": \"%s\", \"params\": %s}' \"$1\" \"$(cat)\"\n",
    );
    assert!(
        world
            .read(".ai/tools/t/shell.sh")
            .contains("\n# name: shell\n")
    );
    let out = execute("t/shell").code(0).json();
    assert_eq!(out["data"], json!({"project": project, "params": {"x": 1}}));
}

#[test]
fn a_program_that_a_tool_brings_along_runs_only_as_it_was_signed() {
    let world = World::new();
    let program = std::fs::read("/bin/cat").unwrap();
    let hash = rye_core::seal::sha256_hex(&program);
    world.write(".ai/tools/t/bin/cat", &program);
    let platform = format!("{}-linux", std::env::consts::ARCH);
    let tool = |path: &str, hash: &str| {
        let more = format!(
            "config:\n  args: []\n  binaries:\n    {platform}: {{path: {path}, sha256: \"{hash}\"}}"
        );
        write(&world, "native", "native/binary", &more);
        let execute = world.ryectl("execute tool t/native --json --params -");
        execute.stdin(r#"{"x": 1}"#).run()
    };
    assert_eq!(
        tool("bin/cat", &hash).code(0).json()["data"],
        json!({"x": 1})
    );
    let other = "0".repeat(64);
    let _refused = tool("bin/cat", &other)
        .code(1)
        .stderr_contains(&["bin/cat", &hash, "sign"]);
    std::os::unix::fs::symlink("/bin/cat", world.project().join(".ai/tools/t/bin/link")).unwrap();
    let _refused = tool("bin/link", &hash)
        .code(1)
        .stderr_contains(&["bin/link", "cannot be read below"]);
    let _refused = tool("../../../../../../bin/cat", &hash)
        .code(1)
        .stderr_contains(&["cannot be read below"]);
    let elsewhere = "config: {binaries: {vax-vms: {path: x, sha256: y}}}";
    write(&world, "elsewhere", "native/binary", elsewhere);
    let elsewhere = world.ryectl("execute tool t/elsewhere").run();
    let _failed = elsewhere.code(1).stderr_contains(&["vax-vms", &platform]);
}

#[test]
fn interpreter_is_from_project_or_daemon_config() {
    let world = World::new();
    // The path is one argument, in spite of characters that are special in a shell.
    let ours = "tongues (of) [men] {and} $angels/speak";
    let _fake = world.write(ours, "#!/bin/sh\necho of the project\n");
    let _other = world.write("other/speak", "#!/bin/sh\necho of the daemon\n");
    for path in [ours, "other/speak"] {
        use std::os::unix::fs::PermissionsExt as _;
        let path = world.project().join(path);
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
    }
    write(
        &world,
        "speaking",
        EXECUTE,
        "env_config: {interpreter: {type: local_binary, binary: speak, search_roots: [\"{project_path}\"], search_paths: [\"tongues (of) [men] {and} $angels\"], var: RYE_TONGUE}}\n\
         config: {command: \"${RYE_TONGUE}\"}",
    );
    let out = world
        .ryectl("execute tool t/speaking --json --trace")
        .ok()
        .json();
    assert_eq!(out["data"]["stdout"], "of the project\n");
    let trace = out["trace"].as_array().unwrap();
    let found = trace
        .iter()
        .find(|step| step["step"] == "interpreter")
        .unwrap();
    assert_eq!(found["var"], "RYE_TONGUE");
    let _stopped = world.ryectl("daemon stop").ok();
    let other = world.project().join("other/speak").display().to_string();
    let _daemon = world.start(&format!("interpreters: {{RYE_TONGUE: {other}}}\n"));
    let out = world.ryectl("execute tool t/speaking --json").ok().json();
    assert_eq!(out["data"]["stdout"], "of the daemon\n");
}

#[test]
fn a_key_of_the_original_that_nothing_depends_on_is_a_warning_once_a_run() {
    let world = World::new();
    write(
        &world,
        "old",
        BASH,
        "native_async: true\nexecution_owner: engine\nconfig: {script: cat}",
    );
    let steps = "  a: {action: {item_id: t/old}, next: b}\n  b: {action: {item_id: t/old}, next: c}\n  c: {type: return}";
    world.graph("t/g", &format!("start: a\nnodes:\n{steps}"));
    let run = world.start_run("t/g");
    assert_eq!(world.settled(&run)["status"], "completed");
    let events = world.ryectl("events --json").arg(&run).ok();
    let warnings = events.stdout().matches("native_async").count();
    assert_eq!(warnings, 1, "{}", events.stdout());
}

#[test]
fn tools_of_one_name_in_two_projects_have_nothing_in_common() {
    let world = World::new();
    let other = world.home().join("other");
    std::fs::create_dir_all(other.join(".ai/tools/t")).unwrap();
    std::fs::create_dir_all(other.join(".ai/config/t")).unwrap();
    let head = "version: \"1.0.0\"\ncategory: t\nname: words\n";
    world.write(".ai/config/t/words.yaml", format!("{head}word: first\n"));
    std::fs::write(
        other.join(".ai/config/t/words.yaml"),
        format!("{head}word: second\n"),
    )
    .unwrap();
    world.write(".env", "WHO=first\n");
    std::fs::write(other.join(".env"), "WHO=second\n").unwrap();
    let script = |word: &str| {
        format!(
            "config_resolve: {{path: t/words.yaml}}\nconfig: {{script: \"echo {word} $WHO; cat\"}}"
        )
    };
    write(&world, "who", BASH, &script("one"));
    std::fs::write(
        other.join(".ai/tools/t/who.yaml"),
        element("who", BASH, &script("two")),
    )
    .unwrap();
    let _signed = world.ryectl("sign config:t/words").ok();
    let all = world.ryectl("sign config:t/words tool:t/who");
    let _signed = all.within(&other).ok();
    let _daemon = world.start("");
    let run = |directory: &std::path::Path| {
        let execute = world.ryectl("execute tool t/who --json");
        let out = execute.within(directory).ok().json();
        out["data"]["stdout"].as_str().unwrap().to_owned()
    };
    // Each project has its own script, variable and configuration.
    for (directory, number, own) in [
        (world.project(), "one", "first"),
        (other, "two", "second"),
        (world.project(), "one", "first"),
    ] {
        let said = run(&directory);
        assert!(said.starts_with(&format!("{number} {own}\n")), "{said}");
        assert!(said.contains(&format!("\"{own}\"}}")), "{said}");
    }
}

#[test]
fn a_command_has_the_time_that_its_caller_gives_it() {
    let world = World::new();
    let _daemon = world.start("");
    for (params, seconds) in [
        (json!({"command": "true"}), 120.0),
        (json!({"command": "true", "timeout": 7200}), 7200.0),
    ] {
        let execute = world.ryectl("execute tool rye/bash --json --dry-run --params");
        let out = execute.arg(params.to_string()).ok().json();
        assert_eq!(out["data"]["timeout"], seconds);
    }
}

#[test]
fn a_project_overrides_native_tools_by_edited_copies_and_by_tools_of_its_own() {
    let world = World::new();
    let _daemon = world.start("");
    let edit = |tool: &str, from: &str, to: &str| {
        let fetched = world.ryectl("fetch --copy-to project").arg(tool);
        let _copied = fetched.ok();
        let file = format!("{tool}.yaml");
        let text = world.read(&format!(".ai/tools/{file}"));
        assert!(text.contains(from), "{text}");
        world.tool(&file, &text.replace(from, to));
    };
    edit("rye/bash", "default: 120", "default: 7");
    edit("rye/file-system/read", "Read", "Look at and read");
    world.write("a.txt", "one\n");
    let file = "start: a\nnodes:\n  a: {action: {item_id: rye/bash, params: {command: echo hi}}, assign: {said: '${result.stdout}'}, next: b}\n  \
                b: {action: {item_id: rye/file-system/read, params: {path: a.txt}}, assign: {lines: '${result.total_lines}'}, next: c}\n  \
                c: {type: return, output: {said: '${state.said}', lines: '${state.lines}'}}";
    world.graph("t/g", file);
    let _valid = world.ryectl("graph validate t/g --strict").ok();
    let out = world.ryectl("run t/g --quiet").ok().json();
    assert_eq!(out, json!({"said": "hi\n", "lines": 1}));
    let plan = world.ryectl("execute tool rye/bash --dry-run --json --params {\"command\":\"x\"}");
    let plan = plan.ok().stdout();
    assert!(
        plan.contains("\"timeout\": 7.0") || plan.contains("\"timeout\":7.0"),
        "{plan}"
    );

    // A tool of another kind with the same id is that tool.
    let own = element(
        "read",
        BASH,
        "config: {script: \"echo '{\\\"total_lines\\\": 99}'\"}\nconfig_schema: {type: object}",
    );
    let own = own.replace("category: t", "category: rye/file-system");
    world.tool("rye/file-system/read.yaml", &own);
    let out = world.ryectl("run t/g --quiet").ok().json();
    assert_eq!(out["lines"], 99);

    let run = world.start_run("t/g");
    let _ended = world.settled(&run);
    let can = world
        .ryectl("can")
        .arg(&run)
        .arg("tool:rye/file-system/read");
    let _risk = can.ok().prints(&["risk: write"]);

    // One that cannot run is found by the validation, too.
    let none = element("bash", EXECUTE, "config_schema: {type: object}");
    world.tool(
        "rye/bash.yaml",
        &none.replace("category: t", "category: rye"),
    );
    let refused = world.ryectl("graph validate t/g --strict").run().code(1);
    let _told = refused.prints(&["bash.yaml", "`config.command`", "is missing"]);
    let failed = world.ryectl("run t/g").run().code(1);
    let _told = failed.stderr_contains(&["bash.yaml", "`config.command`", "is missing"]);
}
