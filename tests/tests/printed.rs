//! Output of a step: shown if the step fails, and live.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::process::{Child, Stdio};

use rye_tests::{Outcome, World, until};
use serde_json::Value;

/// A step that reports its failure on stdout and something else on stderr, as test runners do.
const FAILS: &str = r#"start: test
nodes:
  test:
    action: {item_id: rye/bash, params: {command: "echo '1 failed: test_login'; echo 'warning: deprecated' >&2; exit 3"}}
    next: done
  done: {type: return}"#;

#[test]
fn a_failed_step_shows_its_exit_code_and_the_last_lines_of_both_streams() {
    let world = World::new();
    world.graph("t/fails", FAILS);
    let parts = [
        "exit code 3",
        "stdout:\n  1 failed: test_login",
        "stderr:\n  warning: deprecated",
    ];
    let _told = world
        .ryectl("run t/fails")
        .run()
        .code(1)
        .stderr_contains(&parts)
        .stderr_contains(&["node test: bash exited with code 3"]);
    let listed = world.ryectl("ps --all --json").ok().json();
    let run = listed[0]["run_id"].as_str().unwrap().to_owned();
    for verb in ["get", "steps"] {
        let _shown = world.ryectl(verb).arg(&run).ok().prints(&parts);
    }
    let error = &world.record(&run)["error"];
    assert_eq!(error["exit_code"], 3, "{error}");
    assert_eq!(error["class"], "permanent", "{error}");
    assert_eq!(error["stdout_tail"], "1 failed: test_login", "{error}");
    assert_eq!(error["stderr_tail"], "warning: deprecated", "{error}");
    let page = format!(".ai/knowledge/agent/threads/t/fails/{run}.md");
    let page = until("the page of the run", || {
        fs::read_to_string(world.project().join(&page))
            .ok()
            .filter(|page| page.contains("error"))
    });
    assert!(page.contains("> 1 failed: test"), "{page}");
    let last = &world.ryectl("state").arg(&run).ok().json()["_last_error"];
    assert_eq!(last["code"], "tool_failed", "{last}");
    assert_eq!(last["exit_code"], 3, "{last}");
    assert_eq!(last["result"]["stdout"], "1 failed: test_login\n", "{last}");
}

#[test]
fn stdout_of_failed_step_is_shown_in_every_view() {
    let world = World::new();
    world.graph(
        "t/silent",
        r#"start: test
nodes:
  test: {action: {item_id: rye/bash, params: {command: "echo one; echo '1 failed: test_login'; exit 3"}}}"#,
    );
    let why = "bash exited with code 3: 1 failed: test_login";
    let _told = world
        .ryectl("run t/silent")
        .run()
        .code(1)
        .stderr_contains(&[&format!("({why})"), &format!("node test: {why}")]);
    for verb in ["get @last", "steps @last"] {
        let _shown = world.ryectl(verb).ok().prints(&[why]);
    }
    let run = world.ryectl("get @last --json").ok().json();
    assert_eq!(run["error"]["message"], why);
    assert_eq!(run["error"]["stderr_tail"], "");
    let id = run["run_id"].as_str().unwrap();
    let page = format!(".ai/knowledge/agent/threads/t/silent/{id}.md");
    let _page = until("the page to say why", || {
        fs::read_to_string(world.project().join(&page))
            .ok()
            .filter(|page| page.contains(why))
    });
}

#[test]
fn printed_text_never_triggers_retry() {
    let world = World::new();
    world.graph(
        "t/word",
        r#"start: test
nodes:
  test:
    action: {item_id: rye/bash, params: {command: "echo x >>ran; echo 'connection refused, timeout' >&2; exit 1"}}"#,
    );
    let _failed = world.ryectl("run t/word").run().code(1);
    assert_eq!(world.read("ran"), "x\n");
}

#[test]
fn the_number_of_tries_of_a_node_is_the_only_bound() {
    let world = World::new();
    // The tool reports that a retry may help, so the shipped hook would retry.
    world.python(
        "t/flaky",
        "open('ran', 'a').write('x')\nreturn {'success': False, 'error': 'busy', 'retryable': True}",
    );
    world.graph(
        "t/never",
        "start: a\nnodes:\n  a: {retry: {max: 0}, action: {item_id: t/flaky}}",
    );
    let _failed = world.ryectl("run t/never").run().code(1);
    assert_eq!(world.read("ran"), "x");
    world.graph(
        "t/twice",
        "start: a\nhooks: [{event: error, action: {retry: true, max_retries: 5}}]\nnodes:\n  a: {retry: 1, action: {item_id: t/flaky}}",
    );
    let _failed = world
        .ryectl("run t/twice")
        .run()
        .code(1)
        .stderr_contains(&["retry 1 in", "(by `retry` of the node)"]);
    assert_eq!(world.read("ran"), "xxx");
    world.graph(
        "t/shipped",
        "start: a\nhooks: [{id: mine, event: error, condition: {path: classification.retryable, op: eq, value: true}, action: {retry: true, max_retries: 1}}]\nnodes:\n  a: {action: {item_id: t/flaky}}",
    );
    let _failed = world
        .ryectl("run t/shipped")
        .run()
        .code(1)
        .stderr_contains(&["(by hook mine)"]);
}

/// Returns the lines that `command` prints, until it ends or has printed `last`.
fn lines_until(command: rye_tests::Ryectl, last: &str) -> Vec<String> {
    let mut child = command
        .into_command()
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = Vec::new();
    for line in BufReader::new(child.stdout.take().unwrap()).lines() {
        let line = line.unwrap();
        let is_last = line == last;
        lines.push(line);
        if is_last {
            break;
        }
    }
    child.kill().unwrap();
    let _ended = child.wait().unwrap();
    lines
}

#[test]
fn lines_are_served_and_written_while_the_tool_runs() {
    let world = World::new();
    world.graph(
        "t/slow",
        r#"start: build
nodes:
  build:
    type: foreach
    over: [a, b]
    parallel: true
    action: {item_id: rye/bash, params: {command: "echo \"out $N\"; echo \"err $N\" >&2; until [ -e go ]; do sleep 0.01; done; echo \"last $N\"", env: {N: "${item}"}}}"#,
    );
    let run = world.start_run("t/slow");
    let follow = world
        .ryectl("logs --follow --node build --item 1")
        .arg(&run);
    let seen = lines_until(follow, "err b");
    assert!(seen.contains(&"out b".to_owned()), "{seen:?}");
    assert!(!seen.iter().any(|line| line.contains('a')), "{seen:?}");
    let log = format!(".ai/state/threads/{run}/async.log");
    let text = world.read(&log);
    assert!(text.contains("== step 1 build[1] =="), "{text}");
    assert!(!text.contains("last"), "{text}");
    let follow = world.ryectl("logs -f").arg(&run).spawn();
    world.write("go", "");
    let record = world.settled(&run);
    assert_eq!(record["status"], "completed", "{record}");
    // The stream ends with the run, and contains its last lines.
    let _followed = Outcome::of(follow).code(0).prints(&["last a", "last b"]);
    let tail = world
        .ryectl("logs --tail 1 --node build --item 0")
        .arg(&run)
        .ok();
    assert_eq!(tail.stdout(), "last a\n");
    let lines = world
        .ryectl("logs --json --item 0")
        .arg(&run)
        .ok()
        .json_lines();
    assert_eq!(lines[0]["heading"], "step 1 build[0]", "{lines:?}");
    let _unknown = world.ryectl("logs t-nothing-1-aaaaaaaaaa").run().code(3);
}

#[test]
fn logs_report_that_files_of_the_run_are_gone() {
    let world = World::new();
    let node =
        "start: a\nnodes:\n  a: {action: {item_id: rye/bash, params: {command: 'echo one'}}}";
    world.graph("t/one", node);
    world.graph("t/silent", &node.replace("echo one", "true"));
    let (one, silent) = (world.start_run("t/one"), world.start_run("t/silent"));
    for run in [&one, &silent] {
        assert_eq!(world.settled(run)["status"], "completed");
    }
    let logs = |run: &str| world.ryectl("logs").arg(run).ok().stdout();
    let directory = |run: &str| world.project().join(".ai/state/threads").join(run);
    until("the files of the silent run", || {
        directory(&silent).is_dir().then_some(())
    });
    assert_eq!(
        (logs(&one).contains("one"), logs(&silent).as_str()),
        (true, "")
    );
    fs::remove_dir_all(directory(&one)).unwrap();
    let gone = format!(
        "[no output is left: `.ai/state/threads/{one}` does not exist; `ryectl steps {one}` and `ryectl events {one}` show \
         the results]\n"
    );
    assert_eq!(logs(&one), gone);
    assert_eq!(
        world.ryectl("logs --tail 5 -f").arg(&one).ok().stdout(),
        gone
    );
}

/// Listens to the events of `run` and the output of its tools. It is connected once the first line arrives.
fn listen(world: &World, run: &str) -> (Child, impl Iterator<Item = Value>) {
    let listener = world.ryectl("events --follow --deltas --json").arg(run);
    let mut listener = listener.spawn();
    let lines = BufReader::new(listener.stdout.take().unwrap()).lines();
    let told = lines.map(|line| serde_json::from_str(&line.unwrap()).unwrap());
    (listener, told)
}

/// Returns the lines of the stream and the ends of steps, in order.
fn printed_and_ended(told: &[Value]) -> Vec<String> {
    let said = told.iter().filter_map(|told| {
        let ended = told["event_type"] == "step_completed";
        let delta = &told["delta"];
        match (delta["text"].as_str(), ended) {
            (Some(text), _) => Some(format!("{}: {text}", delta["heading"].as_str().unwrap())),
            (None, true) => Some(format!(
                "end of {}",
                told["payload"]["node"].as_str().unwrap()
            )),
            (None, false) => None,
        }
    });
    said.collect()
}

#[test]
fn tool_output_streams_before_end_of_attempt() {
    let world = World::new();
    let wait = |name: &str| format!("until [ -e {name} ]; do sleep 0.01; done");
    let (heard, go) = (wait("heard"), wait("go"));
    world.graph(
        "t/tells",
        &format!(
            "start: a\nnodes:\n  \
             a: {{action: {{item_id: rye/bash, params: {{command: \"{heard}; echo one; {go}; echo two >&2\"}}}}, next: b}}\n  \
             b: {{action: {{item_id: rye/bash, params: {{command: \"printf three\"}}}}, next: c}}\n  c: {{type: return}}"
        ),
    );
    let run = world.start_run("t/tells");
    let (mut first, mut lines) = listen(&world, &run);
    let mut told = vec![lines.next().unwrap()];
    world.write("heard", "");
    while !told.last().unwrap()["delta"].is_object() {
        told.push(lines.next().unwrap());
    }
    let output = &told.last().unwrap()["delta"];
    assert_eq!(output["kind"], "output", "{output}");
    // A stream that begins now has only new output.
    let (mut second, mut later) = listen(&world, &run);
    let mut rest = vec![later.next().unwrap()];
    let text = world.ryectl("events --follow --deltas").arg(&run);
    let mut text = text.spawn();
    let mut events = BufReader::new(text.stdout.take().unwrap()).lines();
    let _begun = events.next().unwrap().unwrap();
    world.write("go", "");
    told.extend(lines);
    rest.extend(later);
    let all = [
        "step 1 a: one\n",
        "step 1 a: two\n",
        "end of a",
        "step 2 b: three\n",
        "end of b",
        "end of c",
    ];
    assert_eq!(printed_and_ended(&told), all);
    assert_eq!(printed_and_ended(&rest), all[1..]);
    let _rest = events.count();
    let _text = Outcome::of(text)
        .code(0)
        .stderr_contains(&["step 1 a | two\n", "step 2 b | three\n"])
        .stderr_lacks("one");
    for listener in [&mut first, &mut second] {
        assert!(listener.wait().unwrap().success());
    }
    // The event log has no output.
    let events = world.ryectl("events --json").arg(&run).ok().json_lines();
    assert!(events.iter().all(|event| event["delta"].is_null()));
}

#[test]
fn the_result_of_a_python_tool_is_no_line_of_output() {
    let world = World::new();
    world.python(
        "t/speaks",
        "import sys\nprint('to stderr', file=sys.stderr)\nreturn {'a': 1}",
    );
    let _done = world.ryectl("run t/speaks").ok();
    let listed = world.ryectl("ps --all --json").ok().json();
    let run = listed[0]["run_id"].as_str().unwrap();
    let logged = world.ryectl("logs").arg(run).ok().stdout();
    assert_eq!(logged, "== t/speaks ==\nto stderr\n");
}
