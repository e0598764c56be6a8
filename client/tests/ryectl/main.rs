//! The real `ryectl` against a scripted daemon. The tests cover what scripts rely on: the stream of each output, the
//! JSON, and the exit codes.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "whatever goes wrong here is the end of the test"
)]

mod budget;
mod capability;
mod help;
mod items;
mod scripted;
mod steering;
mod thread;
mod transcript;
mod transcript_file;

use std::io::{BufRead, BufReader, Read as _};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Child, ChildStderr, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::Mutex;
use std::time::Duration;

use nix::fcntl::{Flock, FlockArg};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use rye_proto::v1::{self, RunStatus};
use scripted::{Daemon, RUN, Script, StreamEnd, completed, many, run, two_steps};
use serde_json::{Value, json};
use tonic::Status;

/// Longest time of one call of `ryectl` in these tests.
const DEADLINE: Duration = Duration::from_secs(20);

struct Ended {
    code: Option<i32>,
    stdout: String,
    stderr: String,
}

/// Exit code as a shell shows it.
fn shell_code(status: ExitStatus) -> Option<i32> {
    status.code().or(status.signal().map(|signal| 128 + signal))
}

impl Ended {
    fn json(&self) -> Value {
        serde_json::from_str(&self.stdout)
            .unwrap_or_else(|error| panic!("{error} in {:?} ({})", self.stdout, self.stderr))
    }
}

/// Makes a command of `program` with a home of its own and an empty environment.
#[expect(
    clippy::disallowed_methods,
    reason = "a test starts the program it tests"
)]
fn command(program: &Path, home: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(program);
    command
        .args(arguments)
        .env_clear()
        .env("HOME", home)
        .env("PATH", "/usr/bin:/bin")
        .current_dir(home)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

fn ryectl(home: &Path, arguments: &[&str]) -> Command {
    command(Path::new(env!("CARGO_BIN_EXE_ryectl")), home, arguments)
}

/// Runs a command to its end while the scripted daemon keeps serving.
async fn end(mut command: Command) -> Ended {
    let child = command.spawn().unwrap();
    finish(child).await
}

async fn finish(child: Child) -> Ended {
    let pid = Pid::from_raw(child.id().cast_signed());
    let mut waiter = tokio::task::JoinSet::new();
    waiter.spawn_blocking(move || child.wait_with_output().unwrap());
    let Ok(ended) = tokio::time::timeout(DEADLINE, waiter.join_next()).await else {
        kill(pid, Signal::SIGKILL).unwrap();
        panic!("ryectl did not end in time");
    };
    let output = ended.unwrap().unwrap();
    Ended {
        code: shell_code(output.status),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}

/// Output of a child so far, and the reader of the rest.
struct ChildOutput {
    so_far: String,
    rest: Box<dyn BufRead + Send>,
}

/// Reads lines up to one that contains `text`, or to the end.
async fn read_until(from: impl Into<ChildOutput>, text: &'static str) -> ChildOutput {
    let mut told = from.into();
    let mut reader = tokio::task::JoinSet::new();
    reader.spawn_blocking(move || {
        let mut line = String::new();
        while told.rest.read_line(&mut line).unwrap() > 0 {
            told.so_far.push_str(&line);
            if line.contains(text) {
                break;
            }
            line.clear();
        }
        told
    });
    let read = tokio::time::timeout(DEADLINE, reader.join_next()).await;
    read.unwrap().unwrap().unwrap()
}

impl From<ChildStderr> for ChildOutput {
    fn from(stderr: ChildStderr) -> Self {
        Self {
            so_far: String::new(),
            rest: Box::new(BufReader::new(stderr)),
        }
    }
}

/// Runs `ryectl ARGUMENTS` with the state directory of `daemon`.
async fn ask(daemon: &Daemon, arguments: &[&str]) -> Ended {
    let mut command = ryectl(daemon.dir.path(), arguments);
    command.env("RYE_STATE_DIR", daemon.dir.path());
    end(command).await
}

fn script(status: RunStatus, end: (&str, &Value)) -> Script {
    Script {
        run: run(status).into(),
        events: two_steps(end),
        ..Script::default()
    }
}

fn good() -> Script {
    let (event_type, payload) = completed();
    script(RunStatus::Completed, (event_type, &payload))
}

#[tokio::test(flavor = "multi_thread")]
async fn piped_stdout_holds_only_the_result_and_stderr_a_line_per_step() {
    let daemon = Daemon::serve(good());
    let ended = ask(
        &daemon,
        &[
            "run",
            "x/g",
            "-i",
            "k=v",
            "-i",
            "n:=[1]",
            "--cap",
            "rye.execute.tool.*",
        ],
    )
    .await;
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    assert_eq!(ended.stdout, "{\"n\":1}\n");
    assert_eq!(
        ended.stderr,
        format!(
            "warning: the input `z` is not declared\n\
             run {RUN}\n\
             [graph:x/g] step 1/2 one ✓ 1.2s (+one)\n\
             [graph:x/g] step 2/2 two ✓ 1.2s (+two)\n\
             completed\n"
        )
    );
    let request = daemon.script.started.lock().unwrap().clone().unwrap();
    assert_eq!(request.inputs_json, r#"{"n":[1]}"#);
    assert_eq!(request.text_inputs.get("k").map(String::as_str), Some("v"));
    assert_eq!(
        request.project,
        daemon
            .dir
            .path()
            .canonicalize()
            .unwrap()
            .display()
            .to_string()
    );
    assert!(request.has_capabilities);
}

#[tokio::test(flavor = "multi_thread")]
async fn stdout_has_only_the_run_outcome() {
    let record = |status, kind: v1::RunKind, output: &str| v1::Run {
        kind: kind.into(),
        output_json: output.to_owned(),
        state_json: if kind == v1::RunKind::Graph {
            r#"{"a":1,"inputs":{}}"#.to_owned()
        } else {
            String::new()
        },
        ..run(status)
    };
    let (graph, tool, thread) = (v1::RunKind::Graph, v1::RunKind::Tool, v1::RunKind::Thread);
    let state = "{\"a\":1,\"inputs\":{}}\n";
    for (status, kind, output, printed) in [
        (RunStatus::Completed, graph, "[1,\"a\"]", "[1,\"a\"]\n"),
        (RunStatus::Completed, graph, "{}", state),
        (RunStatus::CompletedWithErrors, graph, "", state),
        (RunStatus::Completed, graph, "\"a\\u001b\\n\"", "a\u{1b}\n"),
        (RunStatus::Error, graph, "{\"n\":1}", ""),
        (RunStatus::Suspended, graph, "", ""),
        (RunStatus::Completed, tool, "{}", "{}\n"),
        (RunStatus::Completed, tool, "\"a\\nb\"", "a\nb\n"),
        (RunStatus::Killed, tool, "{}", ""),
        (RunStatus::Completed, thread, "{\"k\":1}", "{\"k\":1}\n"),
        (RunStatus::Completed, thread, "\"Done.\"", "Done.\n"),
        (RunStatus::Error, thread, "\"Half\"", ""),
    ] {
        let mut script = good();
        script.run = record(status, kind, output).into();
        let daemon = Daemon::serve(script);
        for verb in [["run", "x/g"], ["attach", RUN]] {
            let ended = ask(&daemon, &verb).await;
            assert_eq!(ended.stdout, printed, "{status:?} {kind:?} {output}");
        }
        // The record has the same form for every kind of run and in every verb.
        let whole = ask(&daemon, &["run", "x/g", "--json"]).await.stdout;
        assert_eq!(ask(&daemon, &["get", RUN, "--json"]).await.stdout, whole);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn get_fetches_the_texts_that_the_answer_omits() {
    let long = json!({"n": "é".repeat(100)});
    let daemon = Daemon::serve(Script {
        run: Mutex::new(v1::Run {
            state_json: long.to_string(),
            output_json: json!([long]).to_string(),
            ..run(RunStatus::Completed)
        }),
        ..Script::default()
    });
    let printed = ask(&daemon, &["get", RUN, "--json"]).await.json();
    assert_eq!(printed["state"], long);
    assert_eq!(printed["output"], json!([long]));
    assert_eq!(ask(&daemon, &["state", RUN, "--json"]).await.json(), long);
}

#[tokio::test(flavor = "multi_thread")]
async fn quiet_silences_the_step_lines_and_json_prints_the_record() {
    let daemon = Daemon::serve(good());
    let ended = ask(&daemon, &["graph", "run", "x/g", "--json", "--quiet"]).await;
    assert_eq!(ended.json()["cost"]["spend"], "0.000000000");
    assert!(!ended.stderr.contains("step"), "{}", ended.stderr);
    let mut command = ryectl(daemon.dir.path(), &["run", "x/g"]);
    command
        .env("RYE_SOCKET", daemon.socket())
        .env("RYE_GRAPH_QUIET", "1");
    let ended = end(command).await;
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    assert!(!ended.stderr.contains("step"), "{}", ended.stderr);
}

#[tokio::test(flavor = "multi_thread")]
async fn broken_stream_continues_after_last_event() {
    for status in [
        Status::unavailable("the daemon stops"),
        Status::resource_exhausted("the reader is too slow"),
    ] {
        let daemon = Daemon::serve(Script {
            streams: Mutex::new([(2, StreamEnd::Failed(status))].into()),
            ..good()
        });
        let ended = ask(&daemon, &["run", "x/g"]).await;
        assert_eq!(ended.code, Some(0), "{}", ended.stderr);
        assert_eq!(
            ended.stderr.matches("step 1/2").count(),
            1,
            "{}",
            ended.stderr
        );
        assert_eq!(
            ended.stderr.matches("step 2/2").count(),
            1,
            "{}",
            ended.stderr
        );
        assert_eq!(
            daemon.requests(),
            ["start", "stream from ``", "stream from `c2`"]
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn attach_waits_for_run_with_unstreamable_events() {
    let script = good();
    let mut full = Status::resource_exhausted("no memory (`limits.memory_mb`)");
    let reason = "memory_exceeded".parse().unwrap();
    full.metadata_mut().insert("rye-reason", reason);
    *script.streams.lock().unwrap() = [(1, StreamEnd::Failed(full))].into();
    let daemon = Daemon::serve(script);
    let ended = ask(&daemon, &["run", "x/g"]).await;
    assert_eq!(
        (ended.code, ended.stdout.as_str()),
        (Some(0), "{\"n\":1}\n")
    );
    assert!(
        ended.stderr.contains("limits.memory_mb"),
        "{}",
        ended.stderr
    );
    assert!(
        daemon.requests().contains(&"wait".to_owned()),
        "{:?}",
        daemon.requests()
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn stream_reopens_after_daemon_stops() {
    let running = Script {
        run: run(RunStatus::Running).into(),
        streams: Mutex::new([(2, StreamEnd::Closed)].into()),
        ..good()
    };
    let daemon = Daemon::serve(running);
    let ended = ask(&daemon, &["events", RUN, "--follow", "--json"]).await;
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    let seqs: Vec<Value> = ended
        .stdout
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap()["seq"].clone())
        .collect();
    assert_eq!(seqs, [1, 2, 3, 4, 5]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_ends_with_the_code_of_its_status() {
    let error = json!({"error": {"message": "boom", "node": "two", "code": "node_error", "retryable": false},
                       "steps": 2, "elapsed_ms": 5});
    let suspended = json!({"reason": "storage", "code": null, "node": "two"});
    let cancelled = json!({"cause": "uid:1", "steps": 2, "elapsed_ms": 5});
    for (status, end, code) in [
        (RunStatus::Error, ("graph_error", &error), 1),
        (RunStatus::Cancelled, ("graph_cancelled", &cancelled), 1),
        (RunStatus::Suspended, ("run_suspended", &suspended), 75),
    ] {
        let daemon = Daemon::serve(script(status, end));
        daemon.script.run.lock().unwrap().suspend = Some(v1::Suspension {
            reason: "storage".to_owned(),
            ..v1::Suspension::default()
        });
        let ended = ask(&daemon, &["run", "x/g"]).await;
        assert_eq!(ended.code, Some(code), "{}", ended.stderr);
        let told = ended.stderr.contains("suspended: storage");
        assert_eq!(told, status == RunStatus::Suspended, "{}", ended.stderr);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_ends_with_its_code_and_the_daemons_words() {
    let status =
        Status::permission_denied("the tool `x/t` is unsigned: run `ryectl sign tool:x/t`");
    let daemon = Daemon::serve(Script {
        refusal: Some(status).into(),
        ..good()
    });
    let ended = ask(&daemon, &["run", "x/g"]).await;
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(4), ""));
    assert_eq!(
        ended.stderr,
        "error: the tool `x/t` is unsigned: run `ryectl sign tool:x/t`\n"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn detached_runs_print_their_id_and_are_left_alone() {
    let daemon = Daemon::serve(good());
    let ended = ask(&daemon, &["run", "x/g", "--async"]).await;
    assert_eq!((ended.code, ended.stdout), (Some(0), format!("{RUN}\n")));
    assert_eq!(daemon.requests(), ["start"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn ctrl_c_detaches_from_run_or_cancels_it() {
    for (flag, code, seen) in [
        (None, 130, vec!["start", "stream from ``"]),
        (
            Some("--cancel-on-interrupt"),
            130,
            vec!["start", "stream from ``", "cancel"],
        ),
    ] {
        let daemon = Daemon::serve(Script {
            streams: Mutex::new([(2, StreamEnd::Held)].into()),
            ..good()
        });
        let mut arguments = vec!["run", "x/g"];
        arguments.extend(flag);
        let mut command = ryectl(daemon.dir.path(), &arguments);
        command.env("RYE_STATE_DIR", daemon.dir.path());
        let mut child = command.spawn().unwrap();
        let told = read_until(child.stderr.take().unwrap(), "step 1/2").await;
        kill(Pid::from_raw(child.id().cast_signed()), Signal::SIGINT).unwrap();
        let (ended, stderr) = tokio::join!(finish(child), read_until(told, "\0"));
        let stderr = stderr.so_far;
        assert_eq!(ended.code, Some(code), "{stderr}");
        assert_eq!(daemon.requests(), seen);
        match flag {
            None => assert!(
                stderr.contains("continues") && stderr.contains("hint: `ryectl attach"),
                "{stderr}"
            ),
            Some(_) => assert!(stderr.contains("\ncancelled"), "{stderr}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn ctrl_c_after_end_keeps_exit_code_of_run() {
    let daemon = Daemon::serve(Script {
        streams: Mutex::new([(2, StreamEnd::Held)].into()),
        cancel_refusal: Some(Status::failed_precondition("it has ended")),
        ..good()
    });
    let mut command = ryectl(daemon.dir.path(), &["run", "x/g", "--cancel-on-interrupt"]);
    command.env("RYE_STATE_DIR", daemon.dir.path());
    let mut child = command.spawn().unwrap();
    let told = read_until(child.stderr.take().unwrap(), "step 1/2").await;
    kill(Pid::from_raw(child.id().cast_signed()), Signal::SIGINT).unwrap();
    let (ended, told) = tokio::join!(finish(child), read_until(told, "\0"));
    assert_eq!(ended.code, Some(0), "{}", told.so_far);
    assert!(told.so_far.contains("\ncompleted"), "{}", told.so_far);
}

#[tokio::test(flavor = "multi_thread")]
async fn run_queries_print_documented_json() {
    let daemon = Daemon::serve(good());
    assert_eq!(
        ask(&daemon, &["get", RUN, "--json"]).await.json()["run_id"],
        RUN
    );
    assert_eq!(
        ask(&daemon, &["steps", RUN, "--json"]).await.stdout,
        "[{\"step\":1,\"node\":\"one\",\"status\":\"ok\",\"elapsed_ms\":1200,\"cache_hit\":false,\"error\":null}]\n"
    );
    assert_eq!(
        ask(&daemon, &["state", RUN]).await.stdout,
        "{\"a\":1,\"inputs\":{}}\n"
    );
    let ended = ask(&daemon, &["events", RUN, "--from", "c4", "--json"]).await;
    assert_eq!(
        ended.stdout,
        format!(
            "{{\"cursor\":\"c5\",\"seq\":5,\"run_id\":\"{RUN}\",\"timestamp\":null,\"event_type\":\"graph_completed\",\
             \"payload\":{{\"status\":\"completed\",\"steps\":2,\"elapsed_ms\":2400,\"output\":{{\"n\":1}}}}}}\n"
        )
    );
    let ended = ask(&daemon, &["events", RUN, "--from", "4"]).await;
    assert!(
        ended.stdout.starts_with("    5  -  graph_completed"),
        "{}",
        ended.stdout
    );
    assert_eq!(ended.stdout.lines().count(), 1);
    let ended = ask(&daemon, &["kill", RUN, "--grace", "0.5", "--json"]).await;
    assert_eq!(
        ended.stdout,
        format!(
            "{{\"run_id\":\"{RUN}\",\"processes\":[{{\"pid\":7,\"comm\":\"sleep\",\"signal\":15,\"exit\":null}}],\
             \"survivors\":[],\"below\":[],\"complete\":true,\"adopted\":[]}}\n"
        )
    );
    assert!(daemon.requests().contains(&"kill Some(500)".to_owned()));
}

#[tokio::test(flavor = "multi_thread")]
async fn rm_prints_the_runs_that_were_removed_and_notes_files_that_remain() {
    let daemon = Daemon::serve(good());
    let ended = ask(&daemon, &["rm", RUN, "--purge"]).await;
    assert_eq!(ended.stdout, format!("{RUN}\n"));
    assert!(ended.stderr.contains("still there"), "{}", ended.stderr);
    assert!(
        daemon
            .requests()
            .contains(&format!("remove {RUN} purge=true"))
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn prune_selects_something_and_prints_the_runs_of_all_pages() {
    let daemon = Daemon::serve(good());
    let ended = ask(
        &daemon,
        &["prune", "--older-than", "30d", "--keep", "2", "--json"],
    )
    .await;
    assert_eq!(
        ended.stdout,
        "{\"run_id\":\"run-1\"}\n{\"run_id\":\"run-2\"}\n"
    );
    let prune = "prune older=Some(2592000000) keep=Some(2) statuses=0 dry=false from=";
    assert_eq!(
        daemon.requests(),
        [prune.to_owned(), format!("{prune}more")]
    );
    let refused = ask(&daemon, &["prune", "--purge"]).await;
    assert_eq!(refused.code, Some(2));
    assert!(
        refused.stderr.contains("--older-than"),
        "{}",
        refused.stderr
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn ps_lists_live_runs_over_all_pages() {
    let daemon = Daemon::serve(good());
    let ended = ask(&daemon, &["ps", "--json"]).await;
    assert_eq!(ended.json().as_array().map(Vec::len), Some(2));
    assert_eq!(daemon.requests(), ["list [1, 2, 3] ", "list [1, 2, 3] p2"]);
    let ended = ask(&daemon, &["ps", "--all"]).await;
    assert_eq!(
        ended.stdout.lines().next(),
        Some("RUN               STATUS     STEPS  ITEM")
    );
    assert_eq!(daemon.requests()[2], "list [] ");
}

#[tokio::test(flavor = "multi_thread")]
async fn wait_exit_code_distinguishes_timeout_from_failure() {
    for (status, code) in [
        (RunStatus::Completed, 0),
        (RunStatus::CompletedWithErrors, 1),
        (RunStatus::Killed, 1),
        (RunStatus::Suspended, 75),
        (RunStatus::Running, 124),
    ] {
        let daemon = Daemon::serve(Script {
            run: run(status).into(),
            ..Script::default()
        });
        let ended = ask(&daemon, &["wait", RUN, "--timeout", "1", "--json"]).await;
        assert_eq!(ended.code, Some(code), "{}", ended.stderr);
        assert_eq!(ended.json().as_array().map(Vec::len), Some(1));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn cancel_continues_after_missing_run() {
    let daemon = Daemon::serve(good());
    let ended = ask(&daemon, &["cancel", "gone", RUN]).await;
    assert_eq!(ended.code, Some(3));
    assert_eq!(ended.stderr, "error: there is no run `gone`\n");
    assert_eq!(ended.stdout, format!("{RUN} is completed\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn execute_prints_data_or_the_envelope_and_fails_with_the_item() {
    let envelope = |status: &str| {
        format!(
            r#"{{"status":"{status}","type":"tool","item_id":"x","data":{{"n":1}},"error":"no luck"}}"#
        )
    };
    let daemon = Daemon::serve(Script {
        envelope: envelope("success"),
        ..Script::default()
    });
    let ended = ask(&daemon, &["execute", "tool", "x", "--params", "{\"a\": 1}"]).await;
    assert_eq!(
        (ended.code, ended.stdout.as_str()),
        (Some(0), "{\"n\":1}\n")
    );
    assert_eq!(daemon.requests(), ["execute {\"a\":1}"]);
    let daemon = Daemon::serve(Script {
        envelope: envelope("error"),
        run: run(RunStatus::Error).into(),
        ..Script::default()
    });
    let ended = ask(&daemon, &["execute", "tool", "x"]).await;
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(1), ""));
    let ended = ask(&daemon, &["execute", "tool", "x", "--json"]).await;
    assert_eq!(ended.code, Some(1));
    assert_eq!(ended.stderr, "error: no luck\n");
    assert_eq!(ended.json()["item_id"], "x");
}

#[tokio::test(flavor = "multi_thread")]
async fn closed_stdout_ends_verb_quietly() {
    let daemon = Daemon::serve(Script {
        run: run(RunStatus::Completed).into(),
        events: many(2000),
        ..Script::default()
    });
    let mut command = ryectl(daemon.dir.path(), &["events", RUN]);
    command.env("RYE_STATE_DIR", daemon.dir.path());
    let mut child = command.spawn().unwrap();
    let mut stdout = child.stdout.take().unwrap();
    stdout.read_exact(&mut [0; 10]).unwrap();
    drop(stdout);
    let ended = finish(child).await;
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""));
}

#[tokio::test(flavor = "multi_thread")]
async fn missing_daemon_exits_69_where_autostart_is_forbidden() {
    let home = tempfile::tempdir().unwrap();
    for (arguments, inside, hint) in [
        (&["ps", "--no-autostart"][..], false, "ryectl daemon start"),
        (&["ps"][..], true, "a run never starts a daemon"),
        (&["daemon", "info"][..], false, "ryectl daemon start"),
        (
            &["daemon", "start"][..],
            true,
            "a run never starts a daemon",
        ),
    ] {
        let mut command = ryectl(home.path(), arguments);
        command.args(["--socket", "here.sock"]);
        if inside {
            command.env("RYE_RUN_ID", RUN);
        }
        let ended = end(command).await;
        assert_eq!(ended.code, Some(69), "{}", ended.stderr);
        assert!(ended.stderr.contains(hint), "{}", ended.stderr);
    }
    let ended = end(ryectl(
        home.path(),
        &["daemon", "status", "--json", "--socket", "s"],
    ))
    .await;
    assert_eq!(
        (ended.code, ended.json()["running"].clone()),
        (Some(69), json!(false))
    );
    let ended = end(ryectl(home.path(), &["daemon", "stop", "--socket", "s"])).await;
    assert_eq!(
        (ended.code, ended.stdout.as_str()),
        (Some(0), "ryed was not running\n")
    );
    assert_eq!(std::fs::read_dir(home.path()).unwrap().count(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_running_daemon_is_shown() {
    let daemon = Daemon::serve(good());
    let ended = ask(&daemon, &["daemon", "status", "--json"]).await;
    assert_eq!(
        (ended.code, ended.json()["pid"].clone()),
        (Some(0), json!(42))
    );
    assert_eq!(
        ask(&daemon, &["daemon", "info", "--json"]).await.json()["isolation"],
        "scoped"
    );
    assert_eq!(ask(&daemon, &["daemon", "stop"]).await.code, Some(4));
}

/// Copies `ryectl` to `dir`, with a shell script as `ryed` next to it.
fn install(dir: &Path, ryed: &str) -> std::path::PathBuf {
    let program = dir.join("ryectl");
    copy_program(Path::new(env!("CARGO_BIN_EXE_ryectl")), &program);
    let draft = dir.join("ryed.draft");
    std::fs::write(&draft, format!("#!/bin/sh\n{ryed}\n")).unwrap();
    std::fs::set_permissions(&draft, std::fs::Permissions::from_mode(0o755)).unwrap();
    copy_program(&draft, &dir.join("ryed"));
    program
}

/// Copies a program in a process of its own. A child that another test starts meanwhile inherits a file that this
/// process has open for writing. The copy then fails with `ETXTBSY` until that child has executed its own program.
#[expect(
    clippy::disallowed_methods,
    reason = "the copy is to be made by another process"
)]
fn copy_program(from: &Path, to: &Path) {
    let copied = Command::new("cp").arg(from).arg(to).status().unwrap();
    assert!(copied.success(), "{} is not copied", from.display());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_daemon_that_cannot_start_is_reported_with_the_last_line_of_its_log() {
    let home = tempfile::tempdir().unwrap();
    let program = install(home.path(), "echo \"error: bad config ($*)\" >&2; exit 2");
    let ended = end(command(
        &program,
        home.path(),
        &["ps", "--state-dir", "state"],
    ))
    .await;
    assert_eq!(ended.code, Some(69));
    let state = home.path().canonicalize().unwrap().join("state");
    let said = format!(
        "it said: error: bad config (--state-dir {0} --socket {0}/ryed.sock)",
        state.display()
    );
    assert!(ended.stderr.contains(&said), "{}", ended.stderr);
    assert!(ended.stderr.contains("ryed.log"), "{}", ended.stderr);
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(
        (mode(&state), mode(&state.join("ryed.log"))),
        (0o700, 0o600)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_daemon_program_is_named() {
    let home = tempfile::tempdir().unwrap();
    let program = install(home.path(), "");
    std::fs::remove_file(home.path().join("ryed")).unwrap();
    let ended = end(command(&program, home.path(), &["ps"])).await;
    assert_eq!(ended.code, Some(69));
    assert!(
        ended.stderr.contains("install `ryed` next to `ryectl`"),
        "{}",
        ended.stderr
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn autostart_waits_for_other_daemon_with_lock() {
    let home = tempfile::tempdir().unwrap();
    // Reports its own session, then ends in favour of the daemon that holds the lock.
    let program = install(
        home.path(),
        "ps -o sid= -p $$ | tr -d ' ' > \"$2/sid.tmp\"; echo $$ >> \"$2/sid.tmp\"; mv \"$2/sid.tmp\" \"$2/sid\"; \
         while ! [ -e \"$2/locked\" ]; do sleep 0.01; done; exit 5",
    );
    let child = command(&program, home.path(), &["ps", "--state-dir", "s"])
        .spawn()
        .unwrap();
    let sid = home.path().join("s/sid");
    let deadline = tokio::time::Instant::now() + DEADLINE;
    let mut look = tokio::time::interval(Duration::from_millis(5));
    while !sid.exists() {
        assert!(
            tokio::time::Instant::now() < deadline,
            "ryed was not started"
        );
        look.tick().await;
    }
    let directory = std::fs::File::open(home.path().join("s")).unwrap();
    let _lock = Flock::lock(directory, FlockArg::LockExclusiveNonblock).unwrap();
    std::fs::write(home.path().join("s/locked"), "").unwrap();
    let script = Arc::new(good());
    let _server = scripted::serve_on(&home.path().join("s/ryed.sock"), &script);
    let ended = finish(child).await;
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    assert!(ended.stderr.contains("started ryed"), "{}", ended.stderr);
    let text = std::fs::read_to_string(sid).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[0], lines[1], "the daemon leads a session of its own");
}

#[tokio::test(flavor = "multi_thread")]
async fn malformed_input_is_a_usage_error_and_starts_nothing() {
    let home = tempfile::tempdir().unwrap();
    for (arguments, told) in [
        (&["fly"][..], "unrecognized subcommand"),
        (
            &["run", "x", "-i", "n:={"][..],
            "-i n:= is not JSON that can be used: EOF while parsing an object at line 1 column 1",
        ),
        (
            &["run", "x", "--input", "[]"][..],
            "--input must be a JSON object",
        ),
        (&["run", "a/../x"][..], "ids cannot leave their space"),
        (&["ps", "--socket", &"x".repeat(120)][..], "at most 107"),
    ] {
        let ended = end(ryectl(home.path(), arguments)).await;
        assert_eq!(
            (ended.code, ended.stdout.as_str()),
            (Some(2), ""),
            "{}",
            ended.stderr
        );
        assert!(ended.stderr.contains(told), "{}", ended.stderr);
    }
    assert_eq!(std::fs::read_dir(home.path()).unwrap().count(), 0);
}
