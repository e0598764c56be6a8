//! Threads against llmock, a model server of a third party, which injects faults and judges its clients.
//! `RYE_LLMOCK` names its program. Without it these tests report that and check nothing.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Stdio};

use rye_tests::command::in_clean_environment;
use rye_tests::until::until;
use rye_tests::{World, skipped};
use serde_json::{Value, json};

use super::BASH;

/// Returns the program, if there is one.
fn program() -> Option<std::ffi::OsString> {
    let program = std::env::var_os("RYE_LLMOCK");
    if program.is_none() {
        skipped("RYE_LLMOCK names no program of llmock");
    }
    program
}

/// A server that listens on a port of its own.
struct Foreign {
    program: std::ffi::OsString,
    process: Child,
    home: tempfile::TempDir,
    address: String,
}

impl Foreign {
    fn start(program: std::ffi::OsString) -> Self {
        let home = tempfile::tempdir().unwrap();
        let free = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = free.local_addr().unwrap().port();
        drop(free);
        let process = in_clean_environment(&program, home.path(), home.path())
            .args(["serve", "--port", &port.to_string()])
            // It checks that its answer was read to the end, so the answer must not arrive at once.
            .args(["--stream-chunk-delay-ms", "25"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let server = Self {
            program,
            process,
            home,
            address: format!("127.0.0.1:{port}"),
        };
        until("the server to listen", || {
            TcpStream::connect(&server.address).ok()
        });
        server
    }

    fn environment(&self) -> Vec<(&'static str, String)> {
        let address = &self.address;
        vec![
            ("ANTHROPIC_BASE_URL", format!("http://{address}/anthropic")),
            ("ANTHROPIC_API_KEY", "any".to_owned()),
            ("OPENAI_BASE_URL", format!("http://{address}/v1")),
            ("OPENAI_API_KEY", "any".to_owned()),
        ]
    }

    /// Sends a request to its control interface. It sometimes resets these connections as well, so a request may be
    /// sent twice.
    fn post(&self, path: &str, body: &Value) {
        let body = body.to_string();
        let request = format!(
            "POST {path} HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\
             Connection: close\r\n\r\n{body}",
            self.address,
            body.len()
        );
        let answer = until("an answer of llmock", || self.exchange(&request).ok());
        assert!(answer.starts_with("HTTP/1.1 2"), "{answer}");
    }

    fn exchange(&self, request: &str) -> std::io::Result<String> {
        let mut stream = TcpStream::connect(&self.address)?;
        stream.write_all(request.as_bytes())?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer)
    }

    /// Returns its verdict on all requests since its last reset. With `strict`, its warnings count.
    fn verdict(&self, strict: bool) -> (bool, String) {
        let url = format!("http://{}", self.address);
        let home = self.home.path();
        let report = in_clean_environment(&self.program, home, home)
            .args(["report", "--url", &url])
            .args(strict.then_some("--strict"))
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&report.stdout).into_owned();
        (report.status.success(), text)
    }
}

impl Drop for Foreign {
    fn drop(&mut self) {
        // It may have ended by itself, which the test has already noticed.
        drop(self.process.kill());
        drop(self.process.wait());
    }
}

/// Faults, and the resulting status of a thread.
fn faults() -> Vec<(&'static str, Value, &'static str)> {
    let stream = |kind: &str| json!([{"type": "stream_fault", "kind": kind, "after_chunks": 2}]);
    let status =
        |status: u16, times: u32| json!([{"type": "fail", "status": status, "times": times}]);
    let asked_to_wait = json!([{"type": "fail", "status": 429, "retry_after": 1.0}]);
    let slow = json!([{"type": "slow_first_token", "seconds": 0.5}]);
    let too_long = json!([{"type": "fail", "status": 400, "code": "context_length_exceeded",
        "message": "This model's maximum context length is 8192 tokens"}]);
    vec![
        ("nothing", json!([]), "completed"),
        ("too many requests", asked_to_wait, "completed"),
        ("two errors of the server", status(500, 2), "completed"),
        ("an overload", status(529, 1), "completed"),
        ("a wrong request", status(400, 1), "error"),
        ("a wrong key", status(401, 1), "error"),
        ("a prompt that is too long", too_long, "error"),
        ("a lost connection", stream("disconnect"), "completed"),
        ("half of an answer", stream("truncate"), "completed"),
        ("no JSON", stream("malformed"), "error"),
        ("a late start", slow, "completed"),
        (
            "arguments that are no JSON",
            json!([{"type": "tool_fault", "kind": "malformed_arguments"}]),
            "completed",
        ),
        (
            "a tool that there is not",
            json!([{"type": "tool_fault", "kind": "unknown_tool"}]),
            "completed",
        ),
    ]
}

#[test]
fn thread_handles_every_fault_of_foreign_server() {
    let Some(program) = program() else { return };
    let server = Foreign::start(program);
    let mut world = World::new();
    world.find_models_by(server.environment());
    // It identifies the requests of one call by their bodies. A tool that starts in a broken answer would change them.
    let metadata = format!("{BASH}<tools start=\"message\"/>");
    world.directive("t/look", &metadata, "", "Look around.");
    let _daemon = world.start("");
    let call = json!({"type": "reply", "tool_calls": [
        {"name": "rye_execute", "arguments": {"item_id": "rye/bash", "parameters": {"command": "echo one"}}}]});
    for model in ["claude-haiku-5-5", "gpt-6-luna"] {
        for (what, behaviors, status) in faults() {
            server.post("/_llmock/reset", &json!({}));
            let mut behaviors = behaviors.as_array().cloned().unwrap_or_default();
            behaviors.push(call.clone());
            server.post("/_llmock/scenario", &json!({"behaviors": behaviors}));
            let run = world.ryectl("thread run t/look --json --model").arg(model);
            let run = run.run().json();
            assert_eq!(run["status"], status, "{what}, {model}: {run}");
            // It warns of every client that does not retry after a chunk that is no JSON, as it cannot see that the
            // client stopped reading. The status of the thread shows that ours did.
            let (is_content, verdict) = server.verdict(what != "no JSON");
            assert!(is_content, "{what}, {model}: {verdict}");
            let account = super::account(&world, run["run_id"].as_str().unwrap());
            assert_eq!(account["held"], "0.000000000", "{what}, {model}: {account}");
        }
    }
}
