//! What the end of a process, or the answer of a tool, comes to.

use std::path::Path;

use rye_core::error::beginning;
use rye_core::expr::parse_json;
use rye_core::json;
use rye_core::model::{Failure, Printed};
use serde::de::IgnoredAny;
use serde_json::{Value, json};

use super::Unsuccessful;
use crate::chain;
use crate::process::{Captured, Exit, Exited, StopReason};

/// `{"success": false}` or `{"status": "error"}` in a result is the tool's word that it failed.
pub(super) fn declared_failure(data: &Value) -> Option<Failure> {
    let failed = data.get("status") == Some(&json!("error"));
    reported_failure(data).or_else(|| failed.then(|| told_failure(data)))
}

/// `{"success": false}` in the answer of a tool that tells of runs, whose `status` is not its own.
pub(super) fn reported_failure(data: &Value) -> Option<Failure> {
    let failed = match data.get("success") {
        Some(Value::Bool(success)) => !success,
        Some(Value::String(word)) => word.eq_ignore_ascii_case("false"),
        Some(_) | None => false,
    };
    failed.then(|| told_failure(data))
}

fn told_failure(data: &Value) -> Failure {
    let message = ["error", "stderr", "message"]
        .iter()
        .find_map(|key| words(data.get(key)?));
    let silent = "the tool reported a failure without saying why";
    Failure::permanent("tool_failed", tail(message.as_deref().unwrap_or(silent)))
}

/// What `value` tells: a text, the `message` of a structured error, or else the structure as JSON.
fn words(value: &Value) -> Option<String> {
    let text = |value: &Value| {
        let text = value.as_str().filter(|text| !text.trim().is_empty());
        text.map(str::to_owned)
    };
    match value {
        Value::Null | Value::Bool(_) => None,
        Value::String(_) => text(value),
        Value::Object(error) if error.is_empty() => None,
        Value::Object(error) => error
            .get("message")
            .and_then(text)
            .or_else(|| Some(value.to_string())),
        Value::Array(_) | Value::Number(_) => Some(value.to_string()),
    }
}

/// Turns the end of a process of `program` into data, or into a failure that says what ended it.
pub(super) fn judge(
    answer: chain::Answer,
    program: &Path,
    exited: &Exited,
    limit: &str,
) -> Result<Value, Box<Unsuccessful>> {
    let (data, lossy) = match answer {
        chain::Answer::Json => json_result(exited),
        chain::Answer::Shell => (shell_result(exited), None),
    };
    // The class of these is what they are: no pattern is asked what a process printed.
    let own = |code, message: String| Failure::permanent(code, message).decided();
    let failure = match (exited.ended_by, exited.exit) {
        (Some(StopReason::Timeout), _) => {
            let text = format!("timed out after {limit}; its whole process group was ended");
            own("timeout", text)
        }
        (Some(StopReason::Cancel | StopReason::Kill { .. }), _) => {
            own("stopped", "stopped on request".to_owned())
        }
        (None, Exit::Code(0)) => match lossy {
            None => return Ok(data),
            Some(reason) => {
                let text = format!("what the tool printed is JSON that cannot be used: {reason}");
                own("result_refused", text)
            }
        },
        (None, Exit::Code(code)) => match data.get("error").and_then(words) {
            Some(told) => Failure::permanent("tool_failed", tail(&told)),
            None => own(
                "tool_failed",
                exit_text(
                    program,
                    code,
                    printed_lines(answer, exited),
                    &exited.stderr.bytes,
                ),
            ),
        },
        (None, exit @ Exit::Signal(_)) => own("tool_killed", format!("ended by {exit}")),
    };
    Err(Box::new(Unsuccessful { data, failure }))
}

/// How a process ended that failed, and what it printed last.
pub(super) fn printed(answer: chain::Answer, exited: &Exited) -> Printed {
    let (exit_code, signal) = match exited.exit {
        Exit::Code(code) => (Some(code), None),
        Exit::Signal(signal) => (None, Some(signal)),
    };
    Printed {
        exit_code,
        signal,
        ..Printed::new(printed_lines(answer, exited), &exited.stderr.bytes)
    }
}

/// What was written to stdout, unless it is a result: that is no line of output.
fn printed_lines(answer: chain::Answer, exited: &Exited) -> &[u8] {
    match answer {
        chain::Answer::Json if json_result(exited).0.get("return_code").is_none() => &[],
        chain::Answer::Json | chain::Answer::Shell => &exited.stdout.bytes,
    }
}

/// The program and its exit code, with the last line it wrote to stderr (that of a traceback is what tells), or to stdout if it
/// wrote none there, as test runners do.
fn exit_text(program: &Path, code: i32, stdout: &[u8], stderr: &[u8]) -> String {
    const MOST: usize = 200;
    let program = program.file_name().unwrap_or(program.as_os_str());
    let text = format!("{} exited with code {code}", program.to_string_lossy());
    let last = |printed: &[u8]| {
        let printed = String::from_utf8_lossy(printed);
        let last = printed.trim().lines().next_back()?;
        Some(beginning(last.trim(), MOST).into_owned())
    };
    match last(stderr).or_else(|| last(stdout)) {
        None => text,
        Some(last) => format!("{text}: {last}"),
    }
}

/// The last 4,000 characters of a message: the end of a traceback is what tells.
fn tail(text: &str) -> String {
    const MOST: usize = 4_000;
    let text = text.trim();
    let count = text.chars().count();
    if count <= MOST {
        text.to_owned()
    } else {
        format!("… {}", text.chars().skip(count - MOST).collect::<String>())
    }
}

/// One JSON document on stdout is the result; anything else is handed on as text. A document that cannot be taken over
/// without a loss, or was cut, is handed on as text too, with what is wrong with it.
fn json_result(exited: &Exited) -> (Value, Option<String>) {
    let printed = &exited.stdout.bytes;
    let text = json::decoded(printed);
    let mut lossy = None;
    if exited.stdout.is_truncated() {
        lossy = may_continue(&text).then(|| cut_document(&exited.stdout));
    } else {
        match parse_json(&text) {
            Ok(document) => return (document, None),
            Err(error) if serde_json::from_str::<IgnoredAny>(&text).is_ok() => {
                lossy = Some(error.to_string());
            }
            Err(_) => {}
        }
    }
    let mut data = json!({
        "stdout": String::from_utf8_lossy(printed),
        "stderr": String::from_utf8_lossy(&exited.stderr.bytes),
        "return_code": exit_number(exited.exit),
    });
    note_truncation(&mut data, exited);
    (data, lossy)
}

/// True if `text` is the beginning of a JSON object, list or string, or all of it.
fn may_continue(text: &str) -> bool {
    text.trim_start().starts_with(['{', '[', '"'])
        && serde_json::from_str::<IgnoredAny>(text).map_or_else(|error| error.is_eof(), |_| true)
}

fn cut_document(stdout: &Captured) -> String {
    format!(
        "it has {} bytes, of which {} were kept (more with the setting `limits.output_bytes`; large data belongs in a file)",
        stdout.total,
        stdout.bytes.len()
    )
}

/// The shape `rye/bash` promises.
fn shell_result(exited: &Exited) -> Value {
    let stdout = String::from_utf8_lossy(&exited.stdout.bytes);
    let stderr = String::from_utf8_lossy(&exited.stderr.bytes);
    let output = match (stdout.is_empty(), stderr.is_empty()) {
        (_, true) => stdout.clone().into_owned(),
        (true, false) => format!("[stderr]\n{stderr}"),
        (false, false) => format!("{stdout}\n[stderr]\n{stderr}"),
    };
    let mut data = json!({
        "success": exited.exit == Exit::Code(0),
        "output": cut(output),
        "stdout": stdout,
        "stderr": stderr,
        "exit_code": exit_number(exited.exit),
        "truncated": exited.stdout.is_truncated() || exited.stderr.is_truncated(),
    });
    note_truncation(&mut data, exited);
    data
}

/// `output` is for reading; `stdout` and `stderr` beside it are whole.
fn cut(output: String) -> String {
    const MOST: usize = 51_200;
    if output.len() <= MOST {
        return output;
    }
    let end = output.floor_char_boundary(MOST);
    format!(
        "{}\n[{} bytes in all; the rest is in stdout and stderr]",
        &output[..end],
        output.len()
    )
}

fn note_truncation(data: &mut Value, exited: &Exited) {
    for (name, captured) in [("stdout", &exited.stdout), ("stderr", &exited.stderr)] {
        if captured.is_truncated() {
            data["truncated"] = json!(true);
            data[format!("{name}_bytes")] = json!(captured.total);
        }
    }
}

/// The exit code, or minus the signal, as Python's subprocess counts.
fn exit_number(exit: Exit) -> i32 {
    match exit {
        Exit::Code(code) => code,
        Exit::Signal(signal) => -signal,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rye_core::model::KillReceipt;

    use super::*;

    fn captured(text: impl Into<Vec<u8>>) -> Captured {
        let bytes = text.into();
        Captured {
            total: u64::try_from(bytes.len()).unwrap(),
            bytes,
            is_starved: false,
        }
    }

    fn exited(stdout: Captured) -> Exited {
        Exited {
            exit: Exit::Code(0),
            stdout,
            stderr: captured("beside"),
            elapsed: Duration::ZERO,
            ended_by: None,
            receipt: KillReceipt::default(),
            pipe_leak: false,
        }
    }

    #[test]
    fn a_line_before_a_document_makes_the_whole_a_text() {
        let result = |stdout: &str| json_result(&exited(captured(stdout))).0;
        assert_eq!(result("\n{\"n\": 1}\n"), json!({"n": 1}));
        assert_eq!(
            result("begun\n{\"n\": 1}\n"),
            json!({"stdout": "begun\n{\"n\": 1}\n", "stderr": "beside", "return_code": 0})
        );
    }

    #[test]
    fn half_pairs_and_bytes_that_are_not_utf8_are_replaced_in_a_document() {
        let result = |stdout: &[u8]| json_result(&exited(captured(stdout)));
        let expected = json!({"name": "caf\u{fffd}"});
        for stdout in [
            br#"{"name": "caf\udce9"}"#.as_slice(),
            b"{\"name\": \"caf\xe9\"}",
        ] {
            assert_eq!(result(stdout), (expected.clone(), None));
        }
        let (text, lossy) = result(b"caf\xe9 \\udce9");
        assert_eq!(
            (&text["stdout"], lossy),
            (&json!("caf\u{fffd} \\udce9"), None)
        );
    }

    #[test]
    fn output_that_was_cut_is_a_failure_only_where_it_is_a_document() {
        let cut = |stdout: &[u8], answer| {
            let stdout = Captured {
                total: 99,
                ..captured(stdout)
            };
            judge(answer, Path::new("/bin/x"), &exited(stdout), "1 s")
        };
        for stdout in [
            r#"[1, 2"#.as_bytes(),
            b" {\"a\": \"x",
            b"{\"a\": \"caf\xc3",
            b"[\"\\ud83d",
            b"\"one long text",
            b"{}\n\n",
        ] {
            let failed = cut(stdout, chain::Answer::Json).unwrap_err();
            assert_eq!(failed.failure.code, "result_refused");
            let message = failed.failure.message;
            assert!(
                message.contains("99 bytes") && message.contains("`limits.output_bytes`"),
                "{message}"
            );
            assert_eq!(failed.data["truncated"], true);
        }
        let texts: [&[u8]; 6] = [
            b"y\ny\n",
            b"[INFO] built\n",
            b"{}\n{}\n",
            b"\n\n",
            b"12",
            b"\"a\" b",
        ];
        for stdout in texts {
            let Ok(data) = cut(stdout, chain::Answer::Json) else {
                panic!("{stdout:?} is a text");
            };
            assert_eq!(
                (&data["truncated"], &data["stdout_bytes"]),
                (&json!(true), &json!(99))
            );
        }
        let Ok(data) = cut(b"[1, 2", chain::Answer::Shell) else {
            panic!("a shell prints text");
        };
        assert_eq!(
            (&data["success"], &data["truncated"]),
            (&json!(true), &json!(true))
        );
    }

    #[test]
    fn a_failure_is_told_in_the_tools_own_words() {
        let structured = json!({"type": "X", "message": "the disk is on fire", "code": "fire"});
        for (error, told) in [
            (json!("plain"), "plain"),
            (structured, "the disk is on fire"),
            (json!({"code": 7}), r#"{"code":7}"#),
            (
                json!({"message": " ", "code": 7}),
                r#"{"message":" ","code":7}"#,
            ),
            (json!([1, 2]), "[1,2]"),
            (json!(503), "503"),
            (json!(""), "from stderr"),
            (json!({}), "from stderr"),
            (json!(true), "from stderr"),
            (Value::Null, "from stderr"),
        ] {
            let data = json!({"success": false, "error": error, "stderr": "from stderr"});
            let failure = declared_failure(&data).unwrap();
            assert_eq!(failure.message, told, "{data}");
        }
        assert!(declared_failure(&json!({"success": "False"})).is_some());
        assert!(declared_failure(&json!({"success": "0 of 3"})).is_none());
        let silent = declared_failure(&json!({"status": "error"})).unwrap();
        assert!(silent.message.contains("without saying why"));
    }

    #[test]
    fn an_exit_code_comes_with_the_last_line_of_stderr_or_else_of_stdout() {
        let told = |stdout: &str, stderr: &str| {
            exit_text(
                Path::new("/bin/bash"),
                3,
                stdout.as_bytes(),
                stderr.as_bytes(),
            )
        };
        for (stdout, stderr, end) in [
            ("", "", ""),
            ("\n", " \n", ""),
            ("1 failed: test_login\n", "", ": 1 failed: test_login"),
            ("passed 3\n  failed 1  \n\n", "\n", ": failed 1"),
            ("1 failed\n", "warning: old\nno route\n", ": no route"),
        ] {
            let expected = format!("bash exited with code 3{end}");
            assert_eq!(told(stdout, stderr), expected, "{stdout:?} {stderr:?}");
        }
        let long = told(&"x".repeat(1000), "");
        assert!(long.len() < 300, "{long}");
    }
}
