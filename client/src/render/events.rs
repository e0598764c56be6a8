//! What an event says, on one line: for threads what was said and done, for others the payload.

use rye_core::model::{Event, ThreadEvent};
use serde_json::Value;

use super::one_line;
use super::transcript::place;

/// Longest summary.
const MAX_CHARS: usize = 120;

/// The payload of an event on one line.
pub(crate) fn summary(event_type: &str, payload: &Value) -> String {
    let text = payload.to_string();
    let said = match Event::read(event_type, &text) {
        Ok(Event::Thread(event)) => said(&event),
        Ok(Event::Run(_) | Event::Graph(_) | Event::Tool(_)) | Err(_) => None,
    };
    let is_empty = payload.as_object().is_some_and(serde_json::Map::is_empty);
    match said {
        Some(said) => one_line(&said, MAX_CHARS),
        None if is_empty => String::new(),
        None => one_line(&text, MAX_CHARS),
    }
}

/// What an event of a thread says, where its payload begins with something else.
fn said(event: &ThreadEvent) -> Option<String> {
    Some(match event {
        ThreadEvent::CognitionIn { turn, text, .. }
        | ThreadEvent::CognitionReasoning { turn, text } => format!("turn {turn}: {text}"),
        ThreadEvent::CognitionOut {
            turn,
            attempt,
            text,
            message,
            ..
        } => {
            let blocks = message.blocks().len();
            let turn = place(*turn, *attempt);
            match text.trim() {
                "" => format!("{turn}: no text, {blocks} blocks"),
                text => format!("{turn}: {text}"),
            }
        }
        ThreadEvent::ToolCallStart(call) => {
            let input = Value::Object((*call.input).clone());
            format!("turn {}: {} {input}", call.turn, call.item)
        }
        ThreadEvent::ToolCallResult {
            turn,
            output,
            is_error,
            ..
        } => {
            let failed = if *is_error { "failed: " } else { "" };
            format!("turn {turn}: {failed}{output}")
        }
        ThreadEvent::ErrorClassified { turn, error, .. } => {
            format!("turn {turn}: {} ({})", error.message, error.code)
        }
        ThreadEvent::SystemPrompt { text } | ThreadEvent::MessageQueued { text, .. } => {
            text.clone()
        }
        ThreadEvent::ThreadStarted { .. }
        | ThreadEvent::PromptComposed { .. }
        | ThreadEvent::StepStart { .. }
        | ThreadEvent::StepFinish { .. }
        | ThreadEvent::TurnRetryScheduled { .. }
        | ThreadEvent::ContextReseeded { .. }
        | ThreadEvent::RetrySucceeded { .. }
        | ThreadEvent::LimitEscalationRequested { .. }
        | ThreadEvent::DirectiveReturn(_)
        | ThreadEvent::ThreadCompleted { .. }
        | ThreadEvent::ThreadError { .. }
        | ThreadEvent::ThreadCancelled { .. } => return None,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_was_said_and_done_stands_first() {
        let call = json!({"turn": 1, "position": 0, "call_id": "a", "tool": "rye_execute", "item": "tool:rye/bash",
                          "input": {"x": 1}, "attempt": 1, "effect": "idempotent", "key": "k"});
        let result = json!({"turn": 1, "position": 0, "call_id": "a", "output": "no\nroute", "is_error": true,
                            "duration_ms": 4});
        let message =
            json!({"role": "assistant", "origin": {"provider": "p", "model": "m"}, "blocks": []});
        let table = [
            (
                "cognition_out",
                json!({"turn": 2, "attempt": 2, "text": "Hello", "message": message}),
                "turn 2 (try 2): Hello",
            ),
            ("tool_call_start", call, "turn 1: tool:rye/bash {\"x\":1}"),
            ("tool_call_result", result, "turn 1: failed: no route"),
            ("run_started", json!({"epoch": 1}), "{\"epoch\":1}"),
            ("moon_landed", json!({"by": "us"}), "{\"by\":\"us\"}"),
            ("moon_landed", json!({}), ""),
        ];
        for (name, payload, expected) in table {
            assert_eq!(summary(name, &payload), expected, "{name}");
        }
    }
}
