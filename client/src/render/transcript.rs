//! Events of a run in the form of its transcript: nothing is cut, and texts keep their lines.
//!
//! ```text
//!    12  2026-01-01T00:00:00.000Z  cognition_out  turn 2
//!           I count the words.
//! ```

use rye_core::model::{Event, RunEvent};
use serde_json::Value;

use super::screen::in_line;
use super::words::{ThreadText, readable};

/// Longest payload in characters that is shown in the line of its event.
const LONGEST_IN_LINE: usize = 120;
/// Indentation of each line of a text.
const INDENT: &str = "         ";

/// Renders an event: a line that names it, and its text below.
pub(crate) fn event(seq: u64, timestamp: &str, event_type: &str, payload: &Value) -> String {
    let (brief, text) = match Event::read(event_type, &payload.to_string()) {
        Ok(Event::Thread(event)) => match ThreadText::of(&event) {
            Some(said) => (said.brief, said.text),
            None => plain(payload),
        },
        // The record of the run: item, text and configuration. `--json` has all of it.
        Ok(Event::Run(RunEvent::RunCreated(_))) => {
            (super::events::sentence(event_type, payload), String::new())
        }
        Ok(Event::Run(_) | Event::Graph(_) | Event::Tool(_) | Event::Process(_)) | Err(_) => {
            plain(payload)
        }
    };
    let (event_type, brief) = (in_line(event_type), in_line(&brief));
    let mut shown = format!("{seq:>5}  {timestamp}  {event_type:<17} {brief}");
    shown.truncate(shown.trim_end().len());
    for line in text.trim_end_matches('\n').lines() {
        shown.push('\n');
        if !line.is_empty() {
            shown.push_str(INDENT);
            shown.push_str(line);
        }
    }
    shown
}

/// Returns a payload as text for the line if it is short, else as text for the lines below.
fn plain(payload: &Value) -> (String, String) {
    let line = payload.to_string();
    if payload.as_object().is_some_and(serde_json::Map::is_empty) {
        (String::new(), String::new())
    } else if line.chars().count() <= LONGEST_IN_LINE {
        (line, String::new())
    } else {
        (String::new(), readable(payload))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn transcript_text_follows_its_heading_in_full() {
        let call = json!({"turn": 1, "position": 0, "call_id": "a", "tool": "rye_execute", "item": "tool:rye/bash",
                          "input": {"x": 1}, "attempt": 1, "effect": "idempotent", "key": "k"});
        let result = json!({"turn": 1, "position": 0, "call_id": "a", "output": "no\n\nroute\n", "is_error": true,
                            "duration_ms": 4});
        let message = json!({"role": "assistant", "origin": {"provider": "p", "model": "m"}, "blocks": [], "partial": true});
        let out = json!({"turn": 2, "attempt": 2, "text": "Hello", "message": message});
        let long = "x".repeat(200);
        let told = json!({"turn": 1, "source": "directive", "text": long});
        let table = [
            ("cognition_in", told, format!("cognition_in      turn 1, directive\n         {long}")),
            ("cognition_out", out, "cognition_out     turn 2 (try 2), broke off\n         Hello".to_owned()),
            ("tool_call_start", call, "tool_call_start   turn 1, a tool:rye/bash\n         {\n           \"x\": 1\n         }".to_owned()),
            ("tool_call_result", result, "tool_call_result  turn 1, a failed\n         no\n\n         route".to_owned()),
            ("run_started", json!({"epoch": 1}), "run_started       {\"epoch\":1}".to_owned()),
            ("run_created", json!({"spec": "of another release"}), "run_created       {\"spec\":\"of another release\"}".to_owned()),
            ("moon_landed", json!({}), "moon_landed".to_owned()),
            ("moon\nlanded", json!({"by": "us"}), "moon\\nlanded      {\"by\":\"us\"}".to_owned()),
        ];
        for (name, payload, expected) in table {
            assert_eq!(
                event(7, "T", name, &payload),
                format!("    7  T  {expected}"),
                "{name}"
            );
        }
    }
}
