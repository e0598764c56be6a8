//! Invalid scripts, and the program.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, Output, Stdio};

use nix::sys::signal::Signal;
use rye_tests::binaries;
use rye_tests::command::program;
use rye_tests::model_server::SECRET;
use rye_tests::{ModelServer, processes};
use tempfile::TempDir;

#[test]
fn invalid_script_error_names_line() {
    for (script, told) in [
        ("", "line 1, column 1: the script is no list"),
        ("[]", "the script is no list with entries"),
        (
            "- reply: {text: a}\n- when: {}",
            "line 2, column 3: the rule has no `reply`",
        ),
        (
            "- reply: {}\n  whenn: {}",
            "line 2, column 3: `/0` has no key `whenn`: it has when, reply",
        ),
        (
            "- when: {turns: 1}\n  reply: {}",
            "line 1, column 10: `/0/when` has no key `turns`",
        ),
        ("- when: {turn: 0}\n  reply: {}", "the first turn is 1"),
        (
            "- when: {contains: 17}\n  reply: {}",
            "`/0/when/contains` is no text: put it in quotes",
        ),
        ("- reply: {}\n  times: 0", "answers nothing"),
        (
            "- reply: {text: a, status: 529}",
            "a reply with `status` has no `text`",
        ),
        (
            "- reply: {text: a, reset_before: true}",
            "a reply with `reset_before` has no `text`",
        ),
        (
            "- reply: {retry_after: 1}",
            "`retry_after` goes with a `status`",
        ),
        ("- reply: {status: 200}", "`status` is from 400 to 599"),
        (
            "- reply:\n    stall: 1\n    cut_after: 1",
            "has `cut_after` or `stall`, not both",
        ),
        (
            "- reply: {stop: end_turn}",
            "`stop` is one of end, calls, length",
        ),
        ("- reply: {calls: [{input: {}}]}", "the call has no `name`"),
        (
            "- reply: {calls: [{name: a, input: [1]}]}",
            "`input` is a mapping, or text",
        ),
        (
            "- reply: {calls: [{name: a}], duplicate_index: true}",
            "needs two calls",
        ),
        (
            "- reply: {text: a, content: [{text: b}]}",
            "`text` belongs into `content`",
        ),
        ("- reply: {content: [{text: a, hold: b}]}", "has one key"),
        ("- reply: {content: [{}]}", "has one key"),
        ("- reply: {hold: {before: 1}}", "`hold` has no `name`"),
        (
            "- reply: {slow_headers: [1]}",
            "neither a number of milliseconds",
        ),
        ("- reply: {huge: 100000000}", "is no number from 0 to"),
        (
            "- reply: {usage: {input: -1}}",
            "`/0/reply/usage/input` is no number",
        ),
        ("- reply: {no_end: 1}", "is neither true nor false"),
        (
            "- reply: {status: 429, retry_after: \"a\\nb\"}",
            "characters that no header takes",
        ),
        ("- reply: {", "line 2, column 1: while parsing"),
    ] {
        let error = ModelServer::try_start(script).unwrap_err().to_string();
        assert!(
            error.contains(told) && error.contains("line "),
            "{script}: {error}"
        );
    }
}

#[test]
fn only_what_the_script_waits_for_can_be_released() {
    let server = ModelServer::start("- reply: {hold: mine}");
    server.release("mine");
    let other = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| server.release("yours")));
    let told = other.unwrap_err().downcast::<String>().unwrap();
    assert!(told.contains("`yours`") && told.contains("mine"), "{told}");
}

/// Makes a command of the program with a script.
fn server(script: &Path) -> Command {
    let mut command = program(binaries::model_server());
    command.arg(script).stdin(Stdio::null());
    command
}

fn script(text: &str) -> (TempDir, std::path::PathBuf) {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("script.yaml");
    fs::write(&path, text).unwrap();
    (directory, path)
}

fn output_of(output: &Output) -> (Option<i32>, String, String) {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    (
        output.status.code(),
        text(&output.stdout),
        text(&output.stderr),
    )
}

#[test]
fn the_program_runs_a_command_whose_calls_come_to_it() {
    let (_directory, path) = script("- reply: {text: Hello}");
    let shell = |line: &str| {
        output_of(
            &server(&path)
                .args(["--", "sh", "-c", line])
                .output()
                .unwrap(),
        )
    };
    let (code, stdout, stderr) = shell(
        "echo $ANTHROPIC_BASE_URL $ANTHROPIC_API_KEY $OPENAI_BASE_URL $OPENAI_API_KEY; exit 7",
    );
    let words: Vec<&str> = stdout.split_whitespace().collect();
    assert!(words[0].starts_with("http://127.0.0.1:"), "{stdout}");
    assert_eq!(words[1..], [SECRET, &format!("{}/v1", words[0]), SECRET]);
    assert_eq!((code, stderr.as_str()), (Some(7), ""));
    assert_eq!(shell("kill -TERM $$").0, Some(128 + 15));
    let (code, _, stderr) = shell(
        "python3 -c 'import os, urllib.request as r; r.urlopen(os.environ[\"OPENAI_BASE_URL\"])' 2>&1",
    );
    assert_eq!(code, Some(1));
    let breach = "model-server: requests broke the rules of the wire:\n  GET /v1 is not served\n";
    assert_eq!(stderr, breach);
}

#[test]
fn the_program_serves_until_it_is_interrupted() {
    let (_directory, path) = script("- reply: {text: Hello}");
    let mut child = server(&path).stdout(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let lines: Vec<String> = lines.take(4).map(Result::unwrap).collect();
    assert!(
        lines[0].starts_with("export ANTHROPIC_BASE_URL=http://127.0.0.1:"),
        "{lines:?}"
    );
    assert_eq!(lines[3], format!("export OPENAI_API_KEY={SECRET}"));
    processes::send(i32::try_from(child.id()).unwrap(), Signal::SIGINT);
    assert!(child.wait().unwrap().success());
}

#[test]
fn the_program_says_what_is_wrong_with_its_arguments() {
    let (_directory, path) = script("- reply: {text: Hello}\n- repyl: {}");
    let path = path.to_str().unwrap();
    for (arguments, expected) in [
        (&[][..], "a script is missing"),
        (&["--", "true"], "a script is missing"),
        (&["--port", "80"], "there is no option `--port`"),
        (&["missing.yaml"], "missing.yaml: No such file"),
        (&[path], "line 2, column 3: `/1` has no key `repyl`"),
        (
            &[path, "true"],
            "`true` is not expected: a command stands behind `--`",
        ),
        (&[path, "--"], "there is no command behind `--`"),
    ] {
        let mut command = program(binaries::model_server());
        let (code, stdout, stderr) = output_of(&command.args(arguments).output().unwrap());
        assert_eq!((code, stdout.as_str()), (Some(2), ""), "{arguments:?}");
        assert!(
            stderr.starts_with("model-server: ") && stderr.contains(expected),
            "{stderr}"
        );
    }
    let (_directory, path) = script("- reply: {}");
    let started = server(&path)
        .args(["--", "./no-such-program"])
        .output()
        .unwrap();
    let (code, _, stderr) = output_of(&started);
    assert!(
        code == Some(127) && stderr.contains("does not start"),
        "{stderr}"
    );
    let (code, stdout, _) = output_of(&server(Path::new("--help")).output().unwrap());
    assert!(
        code == Some(0) && stdout.contains("Usage: model-server SCRIPT.yaml"),
        "{stdout}"
    );
    assert!(stdout.lines().all(|line| line.len() <= 120), "{stdout}");
}
