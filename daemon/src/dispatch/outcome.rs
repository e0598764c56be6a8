//! Converts the end of a process, or the answer of a tool, to a result or a failure.

use std::fmt::Display;
use std::path::Path;
use std::time::Duration;

use rye_core::bounds;
use rye_core::error::beginning;
use rye_core::expr::parse_json;
use rye_core::json;
use rye_core::memory::Charge;
use rye_core::model::{EndCause, Failure, Object, Printed, ProcessEnd};
use rye_item::OutputFormat;
use rye_process::masking::Masker;
use rye_process::{Captured, CgroupLimit, Exit, Exited, StopReason};
use serde::de::IgnoredAny;
use serde_json::{Value, json};

use super::Unsuccessful;
use crate::chain;
use crate::services::memory_exceeded;
use crate::stop::Urgency;

/// Bytes of output up to which the decoded document is not charged in advance.
const MOST_UNCHARGED: usize = 16 << 10;
/// Copies of a text that decoding makes if some bytes are not UTF-8.
const COPIES_OF_DECODING: usize = 2;
/// Maximum length of `output` in bytes. It is meant for reading; `stdout` and `stderr` are complete.
const MOST_OUTPUT: usize = 51_200;

/// Failure that a tool declares by `{"success": false}` or `{"status": "error"}` in its result.
pub(super) fn declared_failure(data: &Value) -> Option<Failure> {
    let failed = data.get("status") == Some(&json!("error"));
    reported_failure(data).or_else(|| failed.then(|| failure_of_result(data)))
}

/// Failure that a tool declares by `{"success": false}`. For tools that report on runs: their `status` is that of a
/// run.
pub(super) fn reported_failure(data: &Value) -> Option<Failure> {
    let failed = match data.get("success") {
        Some(Value::Bool(success)) => !success,
        Some(Value::String(word)) => word.eq_ignore_ascii_case("false"),
        Some(_) | None => false,
    };
    failed.then(|| failure_of_result(data))
}

fn failure_of_result(data: &Value) -> Failure {
    let message = ["error", "stderr", "message"]
        .iter()
        .find_map(|key| message_of(data.get(key)?));
    let silent = "the tool reported a failure without saying why";
    Failure::permanent("tool_failed", tail(message.as_deref().unwrap_or(silent)))
}

/// Message in `value`: the text, the `message` of a structured error, or else the structure as JSON.
fn message_of(value: &Value) -> Option<String> {
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

/// Returns the data of an ended process of `program`, or a failure that names the cause of its end. `charge` covers the
/// captured output, and grows by the data in addition. The caller adjusts it to the data afterwards.
pub(super) fn judge(
    answer: chain::OutputForm,
    program: &Path,
    exited: Exited,
    limit: &str,
    charge: &mut Charge,
) -> Result<Value, Box<Unsuccessful>> {
    let (document, unusable) = match answer {
        chain::OutputForm::Declared(OutputFormat::Text) | chain::OutputForm::Shell => (None, None),
        chain::OutputForm::Declared(format @ (OutputFormat::Json | OutputFormat::Auto)) => {
            json_result(format, &exited, charge)?
        }
    };
    // Their codes determine their classes, so error patterns must not classify the output.
    let own = |code, message: String| Failure::permanent(code, message).decided();
    let failure = match (exited.ended_by, exited.exit) {
        (Some(StopReason::Timeout), _) => {
            let text = format!("timed out after {limit}; its whole process group was ended");
            Some(own("timeout", text))
        }
        (Some(StopReason::Cancel | StopReason::Kill { .. }), _) => {
            Some(own("stopped", "stopped on request".to_owned()))
        }
        (None, Exit::Code(0)) => unusable.map(|reason| own("result_refused", reason)),
        (None, Exit::Code(code)) => {
            let told = document
                .as_ref()
                .and_then(|data| message_of(data.get("error")?));
            let told = told.map(|told| Failure::permanent("tool_failed", tail(&told)));
            Some(told.unwrap_or_else(|| {
                let lines: &[u8] = match &document {
                    Some(document) if !is_text(document) => &[],
                    Some(_) | None => &exited.stdout.bytes,
                };
                let text = exit_text(program, code, lines, &exited.stderr.bytes);
                own("tool_failed", text)
            }))
        }
        (None, exit @ Exit::Signal(_)) => {
            let why = match exited.limit {
                Some(CgroupLimit::Memory) => ": its cgroup reached its memory limit",
                Some(CgroupLimit::Pids) => ": its cgroup reached its limit on processes",
                None if exited.was_memory_short => "; the kernel ran out of memory meanwhile",
                None => "",
            };
            Some(own("tool_killed", format!("ended by {exit}{why}")))
        }
    };
    let data = match (document, answer) {
        (Some(document), _) => document,
        (None, chain::OutputForm::Declared(_)) => text_result(exited, charge)?,
        (None, chain::OutputForm::Shell) => shell_result(exited, charge)?,
    };
    match failure {
        None => Ok(data),
        Some(failure) => Err(Box::new(Unsuccessful { data, failure })),
    }
}

/// Failure of a call that succeeded and whose result, called `what`, is JSON that cannot be kept without loss.
pub(super) fn unusable_json(what: &str, reason: &str) -> Failure {
    Failure::permanent("result_refused", unusable_text(what, &reason)).decided()
}

fn unusable_text(what: &str, reason: &dyn Display) -> String {
    format!("{what} is JSON that cannot be used: {reason}")
}

/// Exit of a process with the end of its output.
pub(super) fn printed(exited: &Exited) -> Printed {
    let (exit_code, signal) = exited.exit.code_or_signal();
    Printed {
        exit_code,
        signal,
        ..Printed::new(&exited.stdout.bytes, &exited.stderr.bytes)
    }
}

/// The end of the process `pid`, whose stop had this urgency if it was stopped.
pub(super) fn process_end(pid: i32, exited: &Exited, urgency: Urgency) -> ProcessEnd {
    let milliseconds = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    let (exit_code, signal) = exited.exit.code_or_signal();
    let cause = match (exited.ended_by, exited.limit) {
        (Some(StopReason::Timeout), _) => EndCause::Timeout,
        (Some(StopReason::Cancel | StopReason::Kill { .. }), _) => match urgency {
            Urgency::None | Urgency::Cancel => EndCause::Cancelled,
            Urgency::Shutdown => EndCause::Shutdown,
            Urgency::Kill => EndCause::Killed,
        },
        (None, Some(CgroupLimit::Memory)) => EndCause::OutOfMemory,
        (None, Some(CgroupLimit::Pids)) => EndCause::PidsLimit,
        (None, None) if signal.is_some() => EndCause::Signal,
        (None, None) => EndCause::Exited,
    };
    let others = exited.receipt.processes.iter();
    ProcessEnd {
        exit_code,
        signal,
        cause,
        wall_ms: milliseconds(exited.elapsed),
        cpu_ms: milliseconds(exited.usage.cpu),
        max_rss_kib: exited.usage.max_rss_kib,
        stdout_bytes: exited.stdout.total,
        stderr_bytes: exited.stderr.total,
        ended: others.filter(|other| other.pid != pid).cloned().collect(),
    }
}

/// True if `data` consists of stdout and stderr as texts, false if it is a document.
pub(super) fn is_text(data: &Value) -> bool {
    data.get("return_code").is_some()
}

/// Message with the program, its exit code, and the last line of stderr, which in a traceback holds the error. Falls
/// back to the last line of stdout, which test runners use.
fn exit_text(program: &Path, code: i32, stdout: &[u8], stderr: &[u8]) -> String {
    const MOST: usize = 200;
    let program = program.file_name().unwrap_or(program.as_os_str());
    let text = format!("{} exited with code {code}", program.to_string_lossy());
    let last = |printed: &[u8]| {
        let mut lines = printed.trim_ascii_end().rsplit(|byte| *byte == b'\n');
        let last = lines.next()?.trim_ascii();
        // A character takes at most four bytes.
        let last = String::from_utf8_lossy(&last[..last.len().min(4 * MOST)]);
        let last = last.trim();
        (!last.is_empty()).then(|| beginning(last, MOST).into_owned())
    };
    match last(stderr).or_else(|| last(stdout)) {
        None => text,
        Some(last) => format!("{text}: {last}"),
    }
}

/// Last 4,000 characters of a message, because the error is at the end of a traceback.
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

/// Returns the document if `format` takes stdout as one. If it must be a document but is not, or cannot be
/// represented without loss, or was truncated, returns the reason instead. In all other cases stdout is text.
fn json_result(
    format: OutputFormat,
    exited: &Exited,
    charge: &mut Charge,
) -> Result<(Option<Value>, Option<String>), Box<Unsuccessful>> {
    let printed = &exited.stdout.bytes;
    let copies = match std::str::from_utf8(printed) {
        Ok(_) => 0,
        Err(_) => COPIES_OF_DECODING * length_as_text(printed),
    };
    grow(charge, copies)?;
    let read = read_json(format, &exited.stdout, charge);
    charge.shrink(copies);
    read
}

fn read_json(
    format: OutputFormat,
    stdout: &Captured,
    charge: &mut Charge,
) -> Result<(Option<Value>, Option<String>), Box<Unsuccessful>> {
    let lossy = |reason: &dyn Display| Some(unusable_text("what the tool printed", reason));
    let required = format == OutputFormat::Json;
    let text = json::decoded(&stdout.bytes);
    if stdout.is_truncated() {
        let cut = (required || may_continue(&text)).then(|| lossy(&cut_document(stdout)));
        return Ok((None, cut.flatten()));
    }
    if !required && !begins_container(&text) {
        return Ok((None, None));
    }
    // Most texts are not documents, and need no memory.
    let syntax = || serde_json::from_str::<IgnoredAny>(&text);
    let no_json = |error: &serde_json::Error| required.then(|| not_json(&text, error));
    if text.len() > MOST_UNCHARGED {
        if let Err(error) = syntax() {
            return Ok((None, no_json(&error)));
        }
        grow(charge, bounds::most_of_json(&text))?;
    }
    Ok(match parse_json(&text) {
        Ok(document) => (Some(document), None),
        Err(lost) => match syntax() {
            Ok(IgnoredAny) => (None, lossy(&lost)),
            Err(error) => (None, no_json(&error)),
        },
    })
}

/// Failure of a tool that must print one JSON document, and did not.
fn not_json(printed: &str, error: &serde_json::Error) -> String {
    let found = if printed.trim().is_empty() {
        "is empty, and no JSON document".to_owned()
    } else {
        format!("is not one JSON document ({error})")
    };
    format!(
        "stdout {found}; `output: json` of the tool or its runtime requires one: print messages to stderr, or declare `output: text`"
    )
}

/// Result with both streams as texts.
fn text_result(exited: Exited, charge: &mut Charge) -> Result<Value, Box<Unsuccessful>> {
    let cut = Cut::of(&exited);
    let mut data = Object::new();
    let mut put = |name: &str, value: Value| drop(data.insert(name.to_owned(), value));
    put("stdout", text(exited.stdout.bytes, charge)?);
    put("stderr", text(exited.stderr.bytes, charge)?);
    put("return_code", json!(exit_number(exited.exit)));
    cut.note(&mut data);
    Ok(Value::Object(data))
}

/// True if `text` can be a JSON object or list, by its first character.
fn begins_container(text: &str) -> bool {
    text.trim_start().starts_with(['{', '['])
}

/// True if `text` is a JSON object or list, or the beginning of one.
fn may_continue(text: &str) -> bool {
    begins_container(text)
        && serde_json::from_str::<IgnoredAny>(text).map_or_else(|error| error.is_eof(), |_| true)
}

fn cut_document(stdout: &Captured) -> String {
    format!(
        "it has {} bytes, of which {} were kept (more with the setting `limits.output_bytes`; large data belongs in a file)",
        stdout.total,
        stdout.bytes.len()
    )
}

/// Cuts `output` where its text in JSON, and so on disk, would take more than `most` bytes: a control character takes six
/// there. A JSON document has none.
pub(super) fn bound(output: &mut Captured, most: usize) {
    const ESCAPED: usize = "\\u0000".len();
    let is_escaped = |byte: u8| {
        byte.is_ascii_control() && !matches!(byte, b'\n' | b'\r' | b'\t' | 0x08 | 0x0c | 0x7f)
    };
    let mut left = most;
    let end = output.bytes.iter().position(|byte| {
        let taken = if is_escaped(*byte) { ESCAPED } else { 1 };
        let fits = left >= taken;
        left = left.saturating_sub(taken);
        !fits
    });
    if let Some(end) = end {
        output.bytes.truncate(end);
        // Otherwise the part that was cut off would still take memory.
        output.bytes.shrink_to_fit();
    }
}

/// Result with the members that `rye/bash` documents.
fn shell_result(exited: Exited, charge: &mut Charge) -> Result<Value, Box<Unsuccessful>> {
    let cut = Cut::of(&exited);
    let mut output = output(&exited.stdout.bytes, &exited.stderr.bytes);
    if exited.ended_by.is_none() && !exited.receipt.processes.is_empty() {
        let left = exited.receipt.processes.iter();
        let left: Vec<String> = left
            .map(|left| format!("{} (pid {})", left.comm, left.pid))
            .collect();
        output = format!(
            "{output}\n[ended with the command: {}; use managed_subprocess for servers]",
            left.join(", ")
        );
    }
    let mut data = Object::new();
    let mut put = |name: &str, value: Value| drop(data.insert(name.to_owned(), value));
    put("success", json!(exited.exit == Exit::Code(0)));
    put("output", output.into());
    put("stdout", text(exited.stdout.bytes, charge)?);
    put("stderr", text(exited.stderr.bytes, charge)?);
    put("exit_code", json!(exit_number(exited.exit)));
    put("truncated", json!(cut.is_any()));
    cut.note(&mut data);
    Ok(Value::Object(data))
}

/// Converts `bytes` to text, without a copy if they are valid UTF-8. Otherwise the memory of the copy is charged first.
fn text(bytes: Vec<u8>, charge: &mut Charge) -> Result<Value, Box<Unsuccessful>> {
    match String::from_utf8(bytes) {
        Ok(text) => Ok(text.into()),
        Err(bad) => {
            let bytes = bad.into_bytes();
            grow(charge, length_as_text(&bytes))?;
            Ok(String::from_utf8_lossy(&bytes).into_owned().into())
        }
    }
}

/// Length of `bytes` as text, in bytes, with invalid sequences replaced by U+FFFD.
fn length_as_text(bytes: &[u8]) -> usize {
    let length = bytes.utf8_chunks().map(|chunk| {
        let replaced = usize::from(!chunk.invalid().is_empty());
        chunk.valid().len() + replaced * char::REPLACEMENT_CHARACTER.len_utf8()
    });
    length.sum()
}

/// Charges `bytes` before they are allocated.
fn grow(charge: &mut Charge, bytes: usize) -> Result<(), Box<Unsuccessful>> {
    if charge.grow(bytes) {
        Ok(())
    } else {
        Err(memory_exceeded(charge.memory()).into())
    }
}

/// Value of `output`: both streams, truncated to [`MOST_OUTPUT`] bytes.
fn output(stdout: &[u8], stderr: &[u8]) -> String {
    // A byte that is not UTF-8 takes three bytes in the text.
    let beginning = |bytes: &[u8]| {
        let most = bytes.len().min(MOST_OUTPUT + 4);
        String::from_utf8_lossy(&bytes[..most]).into_owned()
    };
    let (mut text, heading) = (beginning(stdout), "[stderr]\n");
    let mut total = stdout.len();
    if !stderr.is_empty() {
        let between = if stdout.is_empty() { "" } else { "\n" };
        total += between.len() + heading.len() + stderr.len();
        if stdout.len() <= MOST_OUTPUT {
            text.push_str(between);
            text.push_str(heading);
            text.push_str(&beginning(stderr));
        }
    }
    if total <= MOST_OUTPUT && text.len() <= MOST_OUTPUT {
        return text;
    }
    text.truncate(text.floor_char_boundary(MOST_OUTPUT));
    let note = format!("\n[{total} bytes in all; the rest is in stdout and stderr]");
    text + &note
}

/// Total bytes written to each truncated stream.
struct Cut([(&'static str, Option<u64>); 2]);

impl Cut {
    fn of(exited: &Exited) -> Self {
        let total = |captured: &Captured| captured.is_truncated().then_some(captured.total);
        Self([
            ("stdout", total(&exited.stdout)),
            ("stderr", total(&exited.stderr)),
        ])
    }

    fn is_any(&self) -> bool {
        self.0.iter().any(|(_, total)| total.is_some())
    }

    fn note(&self, data: &mut Object) {
        for (name, total) in &self.0 {
            if let Some(total) = total {
                data.insert("truncated".to_owned(), json!(true));
                data.insert(format!("{name}_bytes"), json!(total));
            }
        }
    }
}

/// The exit code, or the negated signal number, as in Python's `subprocess`.
fn exit_number(exit: Exit) -> i32 {
    match exit {
        Exit::Code(code) => code,
        Exit::Signal(signal) => -signal,
    }
}

/// Masks what a tool found, however it was returned.
pub(super) fn without_secrets(
    mut data: Value,
    failure: Option<Failure>,
    masker: &Masker,
) -> (Value, Option<Failure>) {
    let _found = masker.value(&mut data);
    let failure = failure.map(|failure| match masker.text(&failure.message) {
        Some(message) => Failure { message, ..failure },
        None => failure,
    });
    (data, failure)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use rye_core::model::KillReceipt;

    use rye_core::memory::Memory;

    use super::*;
    use rye_process::Usage;

    const AUTO: chain::OutputForm = chain::OutputForm::Declared(OutputFormat::Auto);
    const JSON: chain::OutputForm = chain::OutputForm::Declared(OutputFormat::Json);
    const TEXT: chain::OutputForm = chain::OutputForm::Declared(OutputFormat::Text);

    fn captured(bytes: &[u8]) -> Captured {
        Captured {
            bytes: bytes.into(),
            total: u64::try_from(bytes.len()).unwrap(),
            is_starved: false,
        }
    }

    #[test]
    fn output_is_cut_by_its_length_in_json() {
        for (bytes, most, kept) in [
            (vec![0; 100], 60, 10),
            (vec![0; 100], 65, 10),
            (b"\x1b[1mred\n".to_vec(), 13, 8),
            (b"\x1b[1mred\n".to_vec(), 12, 7),
            ("\tline\r\n\u{85}é\x7f".into(), 12, 12),
            (Vec::new(), 0, 0),
        ] {
            let mut output = captured(&bytes);
            bound(&mut output, most);
            assert_eq!(output.bytes, bytes[..kept], "{bytes:?} in {most}");
            assert_eq!(output.is_truncated(), kept < bytes.len());
            assert!(
                output.bytes.capacity() < kept + 32,
                "no memory for the rest"
            );
        }
    }

    /// A process with exit code 0 and these outputs.
    fn exited(stdout: &[u8], stderr: &[u8]) -> Exited {
        Exited {
            exit: Exit::Code(0),
            stdout: captured(stdout),
            stderr: captured(stderr),
            charge: Arc::new(Memory::default()).open(),
            elapsed: Duration::ZERO,
            usage: Usage::default(),
            limit: None,
            was_memory_short: false,
            ended_by: None,
            receipt: KillReceipt::default(),
            pipe_leak: false,
        }
    }

    /// Judges a process where `memory` bytes are available in addition to the captured output. Returns the result and
    /// the memory taken.
    fn given(
        answer: chain::OutputForm,
        exited: Exited,
        memory: usize,
    ) -> (Result<Value, Failure>, usize) {
        let mut charge = Arc::new(Memory::new(memory)).open();
        let judged = judge(answer, Path::new("/bin/sh"), exited, "1 s", &mut charge);
        let taken = charge.memory().taken();
        (judged.map_err(|failed| failed.failure), taken)
    }

    #[test]
    fn text_before_json_document_makes_result_text() {
        let result = |stdout: &str| {
            let exited = exited(stdout.as_bytes(), b"beside");
            given(AUTO, exited, usize::MAX).0.unwrap()
        };
        assert_eq!(result("\n{\"n\": 1}\n"), json!({"n": 1}));
        assert_eq!(
            result("begun\n{\"n\": 1}\n"),
            json!({"stdout": "begun\n{\"n\": 1}\n", "stderr": "beside", "return_code": 0})
        );
    }

    #[test]
    fn declared_output_decides_shape_of_result() {
        let result =
            |answer, stdout: &str| given(answer, exited(stdout.as_bytes(), b""), usize::MAX).0;
        for stdout in [
            "",
            "40e2\n",
            "12345678",
            "\"a\"",
            "null",
            "{\"n\": 1}",
            "[1]\n",
            "built",
        ] {
            let text = json!({"stdout": stdout, "stderr": "", "return_code": 0});
            assert_eq!(result(TEXT, stdout).unwrap(), text, "text: {stdout}");
            let document: Option<Value> = serde_json::from_str(stdout).ok();
            let container = document
                .clone()
                .filter(|value| value.is_object() || value.is_array());
            assert_eq!(
                result(AUTO, stdout).unwrap(),
                container.unwrap_or(text),
                "auto: {stdout}"
            );
            match (result(JSON, stdout), serde_json::from_str::<Value>(stdout)) {
                (Ok(result), Ok(document)) => assert_eq!(result, document, "json: {stdout}"),
                (Err(failure), Err(_)) => assert!(
                    failure.code == "result_refused" && failure.message.contains("`output: json`"),
                    "{failure:?}"
                ),
                other => panic!("{stdout}: {other:?}"),
            }
        }
        let long = "x".repeat(MOST_UNCHARGED + 1);
        assert_eq!(result(JSON, &long).unwrap_err().code, "result_refused");
    }

    #[test]
    fn lone_surrogates_and_invalid_utf8_are_replaced_in_document() {
        let result = |stdout: &[u8]| {
            let exited = exited(stdout, b"");
            given(AUTO, exited, usize::MAX).0.unwrap()
        };
        let expected = json!({"name": "caf\u{fffd}"});
        for stdout in [
            br#"{"name": "caf\udce9"}"#.as_slice(),
            b"{\"name\": \"caf\xe9\"}",
        ] {
            assert_eq!(result(stdout), expected);
        }
        let text = result(b"caf\xe9 \\udce9");
        assert_eq!(text["stdout"], "caf\u{fffd} \\udce9");
    }

    #[test]
    fn truncated_output_fails_only_as_document() {
        let cut = |stdout: &[u8], answer| {
            let mut exited = exited(stdout, b"");
            exited.stdout.total = 99;
            let mut charge = Arc::new(Memory::default()).open();
            judge(answer, Path::new("/bin/x"), exited, "1 s", &mut charge)
        };
        for stdout in [
            b"[1, 2".as_slice(),
            b" {\"a\": \"x",
            b"{\"a\": \"caf\xc3",
            b"[\"\\ud83d",
            b"{}\n\n",
        ] {
            let failed = cut(stdout, AUTO).unwrap_err();
            assert_eq!(failed.failure.code, "result_refused");
            let message = failed.failure.message;
            assert!(
                message.contains("99 bytes") && message.contains("`limits.output_bytes`"),
                "{message}"
            );
            assert_eq!(failed.data["truncated"], true);
        }
        let texts: [&[u8]; 7] = [
            b"\"one long text",
            b"y\ny\n",
            b"[INFO] built\n",
            b"{}\n{}\n",
            b"\n\n",
            b"12",
            b"\"a\" b",
        ];
        for stdout in texts {
            let Ok(data) = cut(stdout, AUTO) else {
                panic!("{stdout:?} is a text");
            };
            assert_eq!(
                (&data["truncated"], &data["stdout_bytes"]),
                (&json!(true), &json!(99))
            );
        }
        assert_eq!(cut(b"12", JSON).unwrap_err().failure.code, "result_refused");
        let Ok(data) = cut(b"[1, 2", TEXT) else {
            panic!("text is never a document");
        };
        assert_eq!(data["truncated"], true);
        let Ok(data) = cut(b"[1, 2", chain::OutputForm::Shell) else {
            panic!("a shell prints text");
        };
        assert_eq!(
            (&data["success"], &data["truncated"]),
            (&json!(true), &json!(true))
        );
    }

    #[test]
    fn result_memory_is_charged_before_allocation() {
        let full = |answer, stdout: &[u8], memory| {
            let (given, taken) = given(answer, exited(stdout, b""), memory);
            let given = given.map_err(|failure| failure.code);
            (given.map(drop), taken)
        };
        let refused = Err("memory_exceeded".to_owned());
        // Valid text is not copied; each invalid byte takes three bytes.
        let text = vec![0; 100_000];
        let bytes = vec![0xff; 100_000];
        for (answer, most) in [(chain::OutputForm::Shell, 300_000), (AUTO, 600_000)] {
            assert_eq!(full(answer, &text, 0), (Ok(()), 0));
            assert_eq!(full(answer, &bytes, most - 1).0, refused);
            assert_eq!(full(answer, &bytes, most), (Ok(()), 300_000));
        }
        let nulls = format!("[{}null]", "null,".repeat(10_000));
        assert_eq!(full(AUTO, nulls.as_bytes(), 720_000).0, refused);
        let (given, taken) = full(AUTO, nulls.as_bytes(), usize::MAX);
        assert!(given.is_ok() && taken >= 720_000, "{taken}");
    }

    #[test]
    fn output_joins_both_streams_up_to_limit() {
        let long = "é".repeat(MOST_OUTPUT);
        for (stdout, stderr, expected) in [
            ("", "", String::new()),
            ("a", "", "a".to_owned()),
            ("", "b", "[stderr]\nb".to_owned()),
            ("a", "b", "a\n[stderr]\nb".to_owned()),
        ] {
            assert_eq!(output(stdout.as_bytes(), stderr.as_bytes()), expected);
        }
        let note =
            |total: usize| format!("\n[{total} bytes in all; the rest is in stdout and stderr]");
        let cut = &long[..MOST_OUTPUT];
        let whole = output(long.as_bytes(), b"b");
        assert_eq!(whole, format!("{cut}{}", note(2 * MOST_OUTPUT + 11)));
        let begun = output(b"a", long.as_bytes());
        let room = MOST_OUTPUT - "a\n[stderr]\n".len();
        let cut = &long[..long.floor_char_boundary(room)];
        assert_eq!(
            begun,
            format!("a\n[stderr]\n{cut}{}", note(2 * MOST_OUTPUT + 11))
        );
    }

    #[test]
    fn failure_message_is_taken_from_result() {
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
    fn exit_message_has_last_line_of_stderr_or_stdout() {
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
