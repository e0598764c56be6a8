//! `ryectl test`: each case runs in a project of its own and leaves nothing.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use nix::sys::signal::Signal;
use rye_tests::{Outcome, Ryectl, World, processes, until};
use serde_json::{Value, json};

/// Makes a call of `ryectl test` with `words` and a temporary directory of its own.
fn ryectl_test(world: &World, words: &str) -> Ryectl {
    fs::create_dir_all(temporary(world)).unwrap();
    let command = world.ryectl("test").words(words);
    command.env("TMPDIR", temporary(world))
}

fn temporary(world: &World) -> PathBuf {
    world.root().join("tmp")
}

/// Asserts that nothing is left: no directory of a case, and no run in the project.
fn assert_nothing_is_left(world: &World) {
    let left: Vec<_> = fs::read_dir(temporary(world)).unwrap().flatten().collect();
    assert!(left.is_empty(), "{left:?}");
    assert!(!world.project().join(".ai/state").exists());
    assert!(!world.project().join(".ai/knowledge").exists());
    let log = world.log();
    let troubles = ["cannot be written", "cannot be synced"];
    assert!(
        !troubles.iter().any(|trouble| log.contains(trouble)),
        "{log}"
    );
}

/// Makes a world with a tool `t/add` that returns the sum, and fails for `a: 0`.
fn world() -> World {
    let world = World::new();
    world.python(
        "t/add",
        "if params.get('a') == 0:\n    raise ValueError('a is nothing')\nreturn {'sum': params['a'] + params['b'], 'more': [1, 2]}",
    );
    world
}

const CASES: &str = "\
tool: t/add
cases:
- name: adds
  params: {a: 1, b: 2}
  expect: {result: {sum: 3}}
- name: adds wrongly
  params: {a: 1, b: 2}
  expect: {result: {sum: 4}}
- name: is all of it
  params: {a: 1, b: 2}
  expect: {result_is: {sum: 3, more: [1, 2]}}
- name: fails
  params: {a: 0}
  expect: {code: tool_failed, error_contains: a is nothing}
- name: fails otherwise
  params: {a: 0}
  expect: {code: timeout}
- name: is told
  params: {a: 0}
  expect: {success: true}
";

#[test]
fn test_cases_report_differences_and_leave_project_unchanged() {
    let world = world();
    let _daemon = world.start("");
    world.write(".ai/tools/t/add.test.yaml", CASES);
    let out = ryectl_test(&world, "").run().code(1);
    let out = out.prints(&[
        "✓ t/add: adds ",
        "✗ t/add: adds wrongly ",
        "    -   \"sum\": 4\n    +   \"sum\": 3\n",
        "✓ t/add: is all of it ",
        "✓ t/add: fails ",
        "✗ t/add: fails otherwise ",
        "the code is `tool_failed`, and `timeout` was expected: ",
        "✗ t/add: is told ",
        "it failed: ",
        "3 passed, 3 failed",
    ]);
    // The order is that of the file, and not of the ends.
    let order: Vec<_> = [
        "adds ",
        "wrongly",
        "all of it",
        "fails ",
        "otherwise",
        "is told",
    ]
    .iter()
    .map(|name| out.stdout().find(name))
    .collect();
    assert!(order.is_sorted(), "{out:?}");
    assert_nothing_is_left(&world);
    let passing = ryectl_test(&world, "t/add --filter fails --filter=adds --jobs 1");
    let _usage = passing.run().code(2);
    let passing = ryectl_test(&world, ".ai/tools/t --jobs 1");
    let out = passing.arg("--filter").arg("is all").ok();
    assert!(out.stdout().ends_with("1 passed\n"), "{out:?}");
}

#[test]
fn programs_and_build_servers_read_the_results() {
    let world = world();
    let _daemon = world.start("");
    world.write(".ai/tools/t/add.test.yaml", CASES);
    let out = ryectl_test(&world, "--json --junit out.xml --filter adds").run();
    let told = out.code(1).json();
    let case = told["cases"][0].clone();
    assert_eq!((&told["passed"], &told["failed"]), (&json!(1), &json!(1)));
    assert!(case["run_id"].is_string() && case["elapsed_ms"].is_u64());
    let rest = json!({
        "file": ".ai/tools/t/add.test.yaml", "tool": "t/add", "name": "adds", "status": "passed",
        "elapsed_ms": case["elapsed_ms"], "run_id": case["run_id"], "problems": [], "directory": null,
    });
    assert_eq!(case, rest);
    let problem = &told["cases"][1]["problems"][0];
    assert!(problem["diff"].as_str().unwrap().contains("+   \"sum\": 3"));
    // Another parser than the writer's own checks it.
    let check = "import sys, xml.etree.ElementTree as e; r = e.parse(sys.argv[1]).getroot(); s = r[0]\n\
                 print(r.tag, s.get('name'), s.get('tests'), s.get('failures'), [c.get('name') for c in s], s[1][0].tag)";
    let checked =
        rye_tests::command::in_clean_environment("python3", &world.home(), &world.project())
            .args(["-c", check, "out.xml"])
            .output()
            .unwrap();
    assert_eq!(
        String::from_utf8_lossy(&checked.stdout).trim(),
        "testsuites .ai/tools/t/add.test.yaml 2 1 ['adds', 'adds wrongly'] failure"
    );
    let unwritable = ryectl_test(&world, "--junit no/such/out.xml --filter all").run();
    let _told = unwritable.code(5).stderr_contains(&["no/such/out.xml"]);
}

#[test]
fn a_project_of_a_case_has_the_variables_and_files_that_its_file_says() {
    let world = World::new();
    let _daemon = world.start("");
    world.write(".env", "PLACE=the project\n");
    world.python("t/inner", "return {'from': 'the project'}");
    world.python(
        "t/look",
        "import os, pathlib\nroot = pathlib.Path(project_path)\nreturn {'place': os.environ.get('PLACE'), 'quoted': os.environ.get('QUOTED'), \
         'data': (root / 'data/a.txt').read_text(), 'ai': sorted(p.name for p in (root / '.ai').iterdir())}",
    );
    world.graph(
        "t/g",
        "start: a\nnodes:\n  a: {action: {item_id: t/inner}, assign: {from: \"${result.from}\"}, next: b}\n  \
         b: {type: return, output: {from: \"${state.from}\"}}",
    );
    world.write(
        ".ai/tools/t/look.test.yaml",
        "tool: t/look\nenv: {PLACE: a test, QUOTED: ' \"two words\" '}\nfiles: {data/a.txt: one}\n\
         cases:\n- name: sees them\n  expect: {result: {place: a test, quoted: ' \"two words\" ', data: one}}\n",
    );
    // A tool of another file, in another language, replaces the one that the graph calls.
    world.write(
        ".ai/tools/t/g.test.yaml",
        "tool: t/g\nfiles:\n  .ai/tools/t/inner.yaml: |\n    version: \"1.0.0\"\n    tool_type: bash\n    \
         executor_id: rye/core/runtimes/bash\n    category: t\n    name: inner\n    description: \"Faked.\"\n    \
         config: {script: \"echo '{\\\"from\\\": \\\"a fake\\\"}'\"}\n\
         cases:\n- name: asks the fake\n  expect: {result: {output: {from: a fake}}}\n",
    );
    let _out = ryectl_test(&world, "").ok().prints(&["2 passed"]);
    assert_nothing_is_left(&world);
    let kept = ryectl_test(&world, "--keep --json t/look").ok();
    let directory = kept.json()["cases"][0]["directory"].clone();
    let directory = Path::new(directory.as_str().unwrap());
    assert!(directory.join("data/a.txt").exists(), "{kept:?}");
    let _told = kept.stderr_contains(&["the directories are kept in"]);
    // An invalid signature is not replaced.
    let text = world
        .read(".ai/tools/t/inner.py")
        .replace("the project", "elsewhere");
    let lines = format!("    {}\n", text.trim_end().replace('\n', "\n    "));
    world.write(
        ".ai/tools/t/g.test.yaml",
        format!("tool: t/g\nfiles:\n  .ai/tools/t/inner.py: |\n{lines}cases:\n- name: refused\n  expect: {{error_contains: changed after}}\n"),
    );
    let _refused = ryectl_test(&world, "t/g").ok().prints(&["✓ t/g: refused"]);
}

#[test]
fn timed_out_test_case_fails_and_its_run_ends() {
    let world = World::new();
    let _daemon = world.start("");
    world.python("t/slow", "import time\ntime.sleep(600)");
    world.graph(
        "t/apart",
        "start: a\nnodes:\n  a: {action: {item_id: t/never, params: {async: true}}, next: b}\n  b: {type: return}",
    );
    world.graph(
        "t/never",
        "start: a\nnodes:\n  a: {action: {item_id: t/slow}, next: b}\n  b: {type: return}",
    );
    world.write(
        ".ai/tools/t/slow.test.yaml",
        "tool: t/slow\ncases:\n- name: is slow\n  timeout: 1\n  expect: {}\n",
    );
    // A detached run is ended with its case as well.
    world.write(
        ".ai/tools/t/apart.test.yaml",
        "tool: t/apart\ncases:\n- name: leaves one\n  expect: {}\n",
    );
    let out = ryectl_test(&world, "").run().code(1);
    let _told = out.prints(&["it took more than 1 s", "✓ t/apart: leaves one"]);
    assert_nothing_is_left(&world);
    let runs = world.ryectl("ps --all --json --status killed");
    let runs = runs.within(&world.home()).ok().json();
    let mut killed: Vec<_> = runs
        .as_array()
        .unwrap()
        .iter()
        .map(|run| run["item_id"].as_str().unwrap().to_owned())
        .collect();
    killed.sort();
    assert_eq!(killed, ["t/never", "t/slow"]);
}

#[test]
fn interrupted_test_verb_ends_runs_and_removes_directories() {
    let world = World::new();
    let _daemon = world.start("");
    let begun = world.root().join("begun");
    let body = format!(
        "import time\nopen({:?}, 'w').close()\ntime.sleep(600)",
        begun.to_str().unwrap()
    );
    world.python("t/slow", &body);
    world.write(
        ".ai/tools/t/slow.test.yaml",
        "tool: t/slow\ncases:\n- name: one\n  expect: {}\n- name: two\n  expect: {}\n",
    );
    for signal in [Signal::SIGINT, Signal::SIGTERM] {
        let child = ryectl_test(&world, "--jobs 1").spawn();
        until("the tool to run", || begun.exists().then_some(()));
        processes::send(i32::try_from(child.id()).unwrap(), signal);
        let _out = Outcome::of(child)
            .signal(signal)
            .stderr_contains(&["ending the runs of the tests"]);
        assert_nothing_is_left(&world);
        fs::remove_file(&begun).unwrap();
    }
    let runs = world
        .ryectl("ps --all --json")
        .within(&world.home())
        .ok()
        .json();
    let statuses: Vec<_> = runs
        .as_array()
        .unwrap()
        .iter()
        .map(|run| &run["status"])
        .collect();
    assert_eq!(statuses, ["killed", "killed"], "{runs}");
}

#[test]
fn items_of_a_case_count_in_its_directory_alone_and_a_killed_test_leaves_nothing() {
    let world = World::new();
    let _daemon = world.start("");
    world.python("t/inner", "return {'from': 'the project'}");
    let fake = "    # A fake.\n    version: \"1.0.0\"\n    tool_type: bash\n    executor_id: rye/core/runtimes/bash\n    \
                category: t\n    name: fake\n    description: \"Faked.\"\n    config: {script: \"echo 1\"}\n";
    let case = "cases:\n- name: one\n  expect: {}\n";
    let test =
        |tool: &str| format!("tool: {tool}\nfiles:\n  .ai/tools/t/fake.yaml: |\n{fake}{case}");
    world.write(".ai/tools/t/fake.test.yaml", test("t/fake"));
    let trusted = world.home().join(".ai/config/keys/trusted");
    let entries = || fs::read_dir(&trusted).unwrap().count();
    let before = entries();
    let kept = ryectl_test(&world, "--keep --json t/fake").ok().json();
    let directory = kept["cases"][0]["directory"].as_str().unwrap();
    let root = Path::new(directory).parent().unwrap();
    let mode = fs::metadata(root).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode, 0o700);
    let item = ".ai/tools/t/fake.yaml";
    let verdict = |world_directory: &Path| {
        let verify = world.ryectl("verify tool:t/fake --json");
        verify.within(world_directory).run().json()[0]["verdict"].clone()
    };
    assert_eq!(verdict(Path::new(directory)), "full");
    fs::copy(Path::new(directory).join(item), world.project().join(item)).unwrap();
    assert_eq!(verdict(&world.project()), "untrusted");
    assert_eq!(entries(), before + 1);

    // A test that is killed leaves its directory and its key to the next one, which removes both.
    fs::remove_dir_all(root).unwrap();
    let begun = world.root().join("begun");
    let body = format!("import time\nopen({begun:?}, 'w').close()\ntime.sleep(600)");
    world.python("t/slow", &body);
    world.write(".ai/tools/t/slow.test.yaml", test("t/slow"));
    let child = ryectl_test(&world, "t/slow").spawn();
    until("the tool to run", || begun.exists().then_some(()));
    processes::send(i32::try_from(child.id()).unwrap(), Signal::SIGKILL);
    let _killed = Outcome::of(child);
    assert!(fs::read_dir(temporary(&world)).unwrap().count() > 0);
    let _next = ryectl_test(&world, "t/fake").ok();
    assert_eq!(fs::read_dir(temporary(&world)).unwrap().count(), 0);
    assert_eq!(entries(), before);
}

#[test]
fn invalid_test_file_runs_nothing_and_names_line_field_and_fix() {
    let world = world();
    let _daemon = world.start("");
    world.write(".ai/tools/t/add.test.yaml", CASES);
    let bad = ".ai/tools/t/bad.test.yaml";
    for (text, words) in [
        (
            "cases:\n- name: x\n  expect: {}\n",
            "bad.test.yaml:1:1: `tool` is missing: name the tool",
        ),
        (
            "tool: t/add\ncases:\n- name: x\n  expects: {}\n",
            "bad.test.yaml:4:3: `cases[0].expects` is no key here; did you mean `expect`?",
        ),
        (
            "tool: t/add\nenv: 3\ncases: []\n",
            "bad.test.yaml:2:1: `env` must be a map of variables",
        ),
        (
            "tool: t/add\ncases:\n- name: x\n  timeout: never\n  expect: {}\n",
            "`cases[0].timeout` must be a time",
        ),
        ("tool: [\n", "bad.test.yaml:"),
        ("tool: t/add\ncases: []\ntool: t/x\n", "bad.test.yaml:3:1"),
        ("tool: &a t/add\ncases: [*a]\n", "bad.test.yaml:"),
        ("tool: !x t/add\ncases: []\n", "bad.test.yaml:1:"),
    ] {
        world.write(bad, text);
        let out = ryectl_test(&world, "").run().code(2).prints_nothing();
        let _told = out.stderr_contains(&[words]);
    }
    world.write(bad, "tool: t/add\nmock: 1\n");
    let told = ryectl_test(&world, "--json").run().code(2).json();
    assert_eq!(told["error"]["reason"], "invalid", "{told}");
    assert_nothing_is_left(&world);
}

#[test]
fn untestable_targets_are_reported() {
    let world = world();
    let _daemon = world.start("");
    let told = |words: &str, code: i32, parts: &[&str]| {
        let _out = ryectl_test(&world, words)
            .run()
            .code(code)
            .stderr_contains(parts);
    };
    told("", 3, &["there are no tests below", ".test.yaml"]);
    told("t/none", 3, &["there is no `t/none`"]);
    told(".ai/tools/t/add.py", 2, &["is no file of tests"]);
    told("/tmp", 2, &["is not below"]);
    let test = |tool: &str, files: &str| {
        format!(
            "tool: {tool}\n{files}cases:\n- name: one\n  params: {{a: 1, b: 1}}\n  expect: {{}}\n"
        )
    };
    world.write(".ai/tools/t/add.test.yaml", test("t/add", ""));
    told(
        "--filter nothing",
        3,
        &["whose tool or name holds `nothing`"],
    );
    told("--jobs 0", 2, &["--jobs"]);
    // A refused tool and a missing one fail their cases. Paths are those of the project.
    world.write(".ai/tools/t/none.test.yaml", test("t/none", ""));
    let file = ".ai/tools/t/add.py";
    let signed = world.read(file);
    world.write(file, signed.replace("'sum'", "'difference'"));
    let out = ryectl_test(&world, "").run().code(1);
    let _told = out.prints(&[
        "(`.ai/tools/t/add.py`) was changed after",
        "(denied)",
        "(not_found)",
    ]);
    world.write(file, signed);
    // A fake that cannot be signed.
    world.write(
        ".ai/tools/t/none.test.yaml",
        test("t/add", "files: {.ai/tools/t/x.yaml: \"a: 1\"}\n"),
    );
    let out = ryectl_test(&world, "t/none").run().code(1);
    let _told = out.prints(&["`files`: `.ai/tools/t/x.yaml` cannot be signed"]);
    let large = world.write(".ai/tools/t/data.bin", "");
    let large = fs::File::options().write(true).open(large).unwrap();
    large.set_len(65 << 20).unwrap();
    told("", 5, &["64 MiB", ".ai/tools/t/data.bin"]);
    let elsewhere = World::bare();
    let out = ryectl_test(&elsewhere, "").run().code(3);
    let _told = out.stderr_contains(&["there is no project here"]);
}

#[test]
fn a_new_project_and_a_new_tool_come_with_tests_that_pass() {
    let world = World::bare();
    let _daemon = world.start("");
    let _made = world.ryectl("init").ok();
    let _new = world
        .ryectl("new tool team/hail")
        .ok()
        .prints(&["hail.py", "hail.test.yaml"]);
    let _signed = world.ryectl("sign tool:team/hail").ok();
    let out = ryectl_test(&world, "").ok();
    assert!(out.stdout().ends_with("5 passed\n"), "{out:?}");
    // Tests are no items: they are neither signed nor listed, and a tool of several files does not need them.
    let _signed = world.ryectl("sign tool:sample/*").ok();
    let listed = world.ryectl("ls tool sample/*").ok().stdout();
    assert!(
        listed.contains("sample/greet") && !listed.contains("test"),
        "{listed}"
    );
    world.write(".ai/tools/sample/__init__.py", "");
    let params = json!({"name": "Ada", "files": 1}).to_string();
    let out = world
        .ryectl("execute tool sample/greet --params")
        .arg(params)
        .ok();
    assert_eq!(out.json(), json!({"greeting": "Hello, Ada: 1 file here."}));
}

#[test]
fn invalid_parameters_have_one_error_code() {
    let world = World::new();
    let _daemon = world.start("");
    let _made = world.ryectl("init").ok();
    let refused = world
        .ryectl("execute tool sample/greet --json --params {\"nme\":1}")
        .run();
    assert_eq!(
        refused.code(2).json()["error"]["reason"],
        "input_validation_failed"
    );
    let refused = world.ryectl("run sample/hello --json -i nme=1").run();
    assert_eq!(
        refused.code(2).json()["error"]["reason"],
        "input_validation_failed"
    );
    for (item, params) in [
        ("sample/greet", "{name: Ada, files: 1, nme: 2}"),
        ("rye/core/sign", "{nme: 2}"),
    ] {
        let name = item.replace('/', "-");
        world.graph(
            &format!("t/{name}"),
            &format!("start: a\nnodes:\n  a: {{action: {{item_id: {item}, params: {params}}}, next: b}}\n  b: {{type: return}}"),
        );
        let run = world.start_run(&format!("t/{name}"));
        let record: Value = world.settled(&run);
        assert_eq!(
            record["error"]["code"], "input_validation_failed",
            "{record}"
        );
    }
}
