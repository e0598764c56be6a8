//! Calls of MCP servers, and the results of their answers.
//!
//! **Never** sends a call twice: the effect of the step decides about a repetition. **Failure.** An answer that the
//! server flags as an error is a failure with the answer as its data.

use rye_core::error::with_sources;
use rye_core::expr::parse_json;
use rye_core::machine::Certainty;
use rye_core::model::{Failure, Isolation, Object, Resources};
use rye_process::Source;
use rye_process::masking::Masker;
use serde_json::{Value, json};

use super::request::masker_of;
use super::{Unsuccessful, Work};
use crate::mcp::{
    self, Caller, Ending, Plan, Reached, ServerAnswer, ServerOperation, Sessions, Trouble,
};
use crate::services::{AttemptCtx, timed_out};

/// Maximum length of a blob in a result, in bytes as encoded.
const LONG_BLOB: usize = 64 << 10;

pub(super) async fn call(
    servers: &Sessions,
    plan: Plan,
    cx: &AttemptCtx,
    known: &Masker,
    work: &mut Work,
) -> Result<Value, Box<Unsuccessful>> {
    let client = match plan.server.reached {
        Reached::Stdio(_) => None,
        Reached::Http(_) => {
            let client = cx.services.providers.client().await;
            let none = |error| Failure::permanent("executor_not_found", with_sources(&error));
            Some(client.map_err(none)?)
        }
    };
    let isolation = match &plan.server.reached {
        Reached::Stdio(process) => process.confinement.level(),
        Reached::Http(_) => Isolation::default(),
    };
    let report = |line: &str| {
        let masked = known.text(line);
        let line = masked.as_deref().unwrap_or(line);
        cx.output
            .receive(Source::Stderr, format!("{line}\n").as_bytes());
    };
    let started = |process| cx.note_process(process, isolation, Resources::default());
    let caller = Caller {
        run: &cx.run,
        journal: &cx.services.journal,
        client: client.as_ref(),
        stop: &cx.stop,
        report: &report,
        started: &started,
    };
    work.certainty = Certainty::Unknown;
    let asked = tokio::select! {
        asked = servers.execute(&plan, caller) => asked,
        never = cx.output.write() => match never {},
    };
    cx.output.close().await;
    let masker = masker_of(plan.secrets());
    match asked {
        Ok(ServerAnswer::Tools(tools)) => {
            work.certainty = Certainty::Known;
            let tools: Vec<_> = tools.iter().map(mcp::Offered::to_json).collect();
            let mut told = json!({"server": plan.server.id.as_str(), "transport": plan.server.reached.as_str(), "tools": tools});
            let _found = masker.value(&mut told);
            Ok(told)
        }
        Ok(ServerAnswer::Called {
            mut result,
            remarks,
            is_unpinned,
        }) => {
            work.certainty = Certainty::Known;
            let _found = masker.value(&mut result);
            let ServerOperation::Call { tool, .. } = &plan.operation else {
                return Ok(result);
            };
            for remark in remarks {
                let remark = masker.text(&remark).unwrap_or(remark);
                let remark = known.text(&remark).unwrap_or(remark);
                let server = &plan.server.id;
                cx.warn(format!("the server `{server}`: {remark}"));
            }
            if is_unpinned {
                warn_of_unpinned(&plan, tool, cx);
            }
            keep_blobs(&mut result, cx).await;
            judge(tool, &result)
        }
        Err(trouble) => Err(unanswered(&trouble, &plan, &masker, work).into()),
    }
}

/// Moves long blobs of the answer to the object store, and replaces them by their hashes.
async fn keep_blobs(result: &mut Value, cx: &AttemptCtx) {
    let blocks = result.get_mut("content").and_then(Value::as_array_mut);
    for (block, key) in blocks.into_iter().flatten().filter_map(blob) {
        let Some(Value::String(blob)) = block.get(key) else {
            continue;
        };
        let bytes = decoded(blob);
        // Objects are JSON; a blob is stored as a JSON string.
        let text = Value::String(blob.clone()).to_string();
        match cx.services.journal.keep(text).await {
            Ok(digest) => {
                let _blob = block.shift_remove(key);
                block.insert("object".to_owned(), digest.to_string().into());
                block.insert("bytes".to_owned(), bytes.into());
            }
            Err(error) => {
                let told = with_sources(&error);
                cx.warn(format!("a blob is in the result itself: {told}"));
            }
        }
    }
}

/// Returns the object and the key that hold a long blob in a content block, or `None`. Images, sounds and binary
/// resources have blobs.
fn blob(block: &mut Value) -> Option<(&mut Object, &'static str)> {
    let is_resource = block.get("type").and_then(Value::as_str) == Some("resource");
    let (holder, key) = if is_resource {
        (block.get_mut("resource")?, "blob")
    } else {
        (block, "data")
    };
    let holder = holder.as_object_mut()?;
    let is_long = holder.get(key)?.as_str()?.len() > LONG_BLOB;
    is_long.then_some((holder, key))
}

/// Number of bytes that `blob` encodes in base64.
fn decoded(blob: &str) -> usize {
    let digits = blob.trim_end_matches('=').len();
    digits / 4 * 3 + (digits % 4).saturating_sub(1)
}

/// Failure of a call without an answer. Updates `work` with the certainty of the call.
fn unanswered(trouble: &Trouble, plan: &Plan, masker: &Masker, work: &mut Work) -> Failure {
    if trouble.is_unsent {
        work.certainty = Certainty::NeverStarted;
    }
    match &trouble.ending {
        Ending::Stopped => {
            work.stopped = true;
            Failure::permanent("stopped", "stopped on request")
        }
        Ending::Late => {
            let mut late = timed_out(plan.max_duration.unwrap_or_default());
            late.message.push_str(" (more with `timeout` of the node)");
            late
        }
        Ending::Failed(failure) => {
            if matches!(
                failure,
                mcp::Failure::Refused { .. } | mcp::Failure::Unclear { .. }
            ) {
                work.certainty = Certainty::Known;
            }
            let failed = failed(failure);
            let message = masker.text(&failed.message);
            Failure {
                message: message.unwrap_or_else(|| failed.message.clone()),
                ..failed
            }
        }
    }
}

fn warn_of_unpinned(plan: &Plan, tool: &str, cx: &AttemptCtx) {
    let server = &plan.server.id;
    cx.warn(format!(
        "nothing pins the tool `{tool}` of the server `{server}`: its inputs and its description for models may change; \
         `ryectl mcp import {server}` writes its `schema_hash`"
    ));
}

fn failed(failure: &mcp::Failure) -> Failure {
    use mcp::Failure as F;
    let (code, retryable) = match failure {
        F::TooMany { .. } => ("mcp_too_many_servers", true),
        F::Program { .. } => ("executor_not_found", false),
        F::Start { .. } => ("mcp_start_failed", true),
        F::UnknownTool { .. } => ("mcp_unknown_tool", false),
        F::Changed { .. } => ("mcp_tool_changed", false),
        F::Refused { .. } => ("mcp_refused", false),
        F::Unclear { .. } => ("result_refused", false),
        F::Lost { .. } => ("mcp_failed", true),
        F::Silent { .. } => ("timeout", false),
    };
    Failure {
        retryable,
        ..Failure::permanent(code, failure.to_string())
    }
}

/// Result of an answer in the form of the original. If the answer is one JSON text, `parsed` holds it. The members of a
/// JSON object are also added by themselves.
fn judge(tool: &str, result: &Value) -> Result<Value, Box<Unsuccessful>> {
    let content = result.get("content").cloned().unwrap_or_else(|| json!([]));
    let is_error = result.get("isError") == Some(&Value::Bool(true));
    let mut data = Object::from_iter([
        ("success".to_owned(), Value::Bool(!is_error)),
        ("tool".to_owned(), tool.into()),
        ("content".to_owned(), content.clone()),
        ("isError".to_owned(), Value::Bool(is_error)),
    ]);
    if let Some(structured) = result.get("structuredContent") {
        data.insert("structuredContent".to_owned(), structured.clone());
    }
    let texts: Vec<&str> = content
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|block| block.get("text")?.as_str())
        .collect();
    if is_error {
        let words = texts.join("\n");
        let words = match result.get("structuredContent") {
            _ if !words.trim().is_empty() => words,
            Some(structured) if !structured.is_null() => structured.to_string(),
            Some(_) | None => "the tool reported a failure without saying why".to_owned(),
        };
        data.insert("error".to_owned(), words.clone().into());
        let message = rye_core::error::beginning(&words, 1000).into_owned();
        return Err(Box::new(Unsuccessful {
            data: Value::Object(data),
            failure: Failure::permanent("tool_failed", message),
        }));
    }
    if let [text] = texts.as_slice()
        && content.as_array().is_some_and(|blocks| blocks.len() == 1)
        && let Ok(parsed) = parse_json(text)
    {
        if let Value::Object(members) = &parsed {
            for (name, member) in members {
                if !data.contains_key(name) && !matches!(name.as_str(), "status" | "error") {
                    data.insert(name.clone(), member.clone());
                }
            }
        }
        data.insert("parsed".to_owned(), parsed);
    }
    Ok(Value::Object(data))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> Value {
        json!({"content": [{"type": "text", "text": text}]})
    }

    #[test]
    fn mcp_json_text_is_parsed_without_overriding_members() {
        let data = judge(
            "t",
            &text(r#"{"sum": 3, "tool": "x", "success": false, "status": "error"}"#),
        );
        let data = data.unwrap_or_else(|_| panic!("it succeeded"));
        assert_eq!(data["sum"], 3);
        assert_eq!(
            (&data["tool"], &data["success"]),
            (&json!("t"), &json!(true))
        );
        assert_eq!(data["parsed"]["status"], "error");
        assert_eq!(data.get("status"), None);
        let plain = judge("t", &text("three")).unwrap_or_else(|_| panic!("it succeeded"));
        assert_eq!(plain.get("parsed"), None);
    }

    #[test]
    fn mcp_long_blobs_are_found_and_measured() {
        let long = "QUJD".repeat(LONG_BLOB / 4 + 1);
        let found = |mut block: Value| blob(&mut block).map(|(_, key)| key);
        for (block, expected) in [
            (json!({"type": "image", "data": long}), Some("data")),
            (json!({"type": "audio", "data": long}), Some("data")),
            (json!({"type": "image", "data": "QUJD"}), None),
            (json!({"type": "text", "text": long}), None),
            (
                json!({"type": "resource", "resource": {"blob": long}}),
                Some("blob"),
            ),
            (
                json!({"type": "resource", "resource": {"text": long}}),
                None,
            ),
        ] {
            assert_eq!(found(block.clone()), expected, "{}", block["type"]);
        }
        for (blob, bytes) in [
            ("", 0),
            ("QQ==", 1),
            ("QUI=", 2),
            ("QUJD", 3),
            ("QUJDRA", 4),
        ] {
            assert_eq!(decoded(blob), bytes, "{blob}");
        }
    }

    #[test]
    fn mcp_error_answer_is_failure_with_its_text() {
        let mut result = text("no such row");
        result["isError"] = json!(true);
        let failed = judge("t", &result).unwrap_err();
        assert_eq!(failed.failure.message, "no such row");
        assert_eq!(failed.data["isError"], true);
    }
}
