//! What `thread run` shows of a thread while it runs: what the model says as it says it, and a line per call of a tool.
//!
//! ```text
//! [thread:<id>] turn 3 rye/bash ✓ 0.4s
//! ```

use std::collections::HashMap;

use rye_core::conversation::Source;
use rye_core::model::{Event, Failure, RunEvent, ThreadEvent};
use rye_proto::v1;

use super::screen::in_line;
use super::speech::{Heard, Speech};
use super::steps::Line;
use super::{Style, elapsed, one_line};

/// Longest error in a line; the whole text stands in the transcript.
const MAX_ERROR_CHARS: usize = 160;

/// Longest message in a line.
const MAX_TOLD_CHARS: usize = 160;

/// Makes lines out of the events of one thread.
#[derive(Debug)]
pub(crate) struct Turns {
    directive: String,
    style: Style,
    /// What the calls in flight do, by their ids.
    calls: HashMap<String, String>,
    speech: Speech,
    /// What the model said last, whole.
    said: Option<String>,
}

impl Turns {
    /// For a thread that works on `directive`.
    pub(crate) fn new(directive: &str, style: Style) -> Self {
        Self {
            directive: directive.to_owned(),
            style,
            calls: HashMap::new(),
            speech: Speech::default(),
            said: None,
        }
    }

    /// What is shown of `delta`, if anything is.
    pub(crate) fn hear(&mut self, delta: &v1::Delta) -> Option<Line> {
        Some(match self.speech.hear(delta)? {
            Heard::More(text) => Line::More(text),
            Heard::TakenBack(turn) => Line::Done(format!(
                "{} the answer broke off; what was shown of it does not count",
                self.head(turn)
            )),
        })
    }

    /// What the model said last, all of which was shown.
    pub(crate) fn said(&self) -> Option<&str> {
        self.said.as_deref()
    }

    /// What is shown of `event`, if anything is.
    pub(crate) fn line(&mut self, event: &Event) -> Option<Line> {
        match event {
            Event::Thread(event) => self.of_thread(event),
            Event::Run(RunEvent::Warning { message, .. }) => {
                let text = one_line(message, MAX_ERROR_CHARS);
                Some(Line::Done(format!(
                    "[thread:{}] warning: {text}",
                    self.directive
                )))
            }
            Event::Run(_) | Event::Graph(_) | Event::Tool(_) => None,
        }
    }

    fn of_thread(&mut self, event: &ThreadEvent) -> Option<Line> {
        if let ThreadEvent::StepStart { turn, .. } = event {
            return Some(Line::Started(format!("{} ...", self.head(*turn))));
        }
        if let ThreadEvent::CognitionIn {
            turn,
            source: Source::Message,
            text,
        } = event
        {
            let text = one_line(text, MAX_TOLD_CHARS);
            return Some(Line::Done(format!("{} is told: {text}", self.head(*turn))));
        }
        if let ThreadEvent::CognitionOut {
            turn,
            attempt,
            text,
            ..
        } = event
        {
            let trimmed = text.trim();
            self.said = Some(trimmed.to_owned());
            return match self.speech.rest(*turn, *attempt, text) {
                Some(rest) => Some(Line::Rest(rest)),
                None if trimmed.is_empty() => None,
                None => Some(Line::Done(trimmed.to_owned())),
            };
        }
        if let ThreadEvent::ErrorClassified {
            turn,
            error,
            pause_ms,
            ..
        } = event
        {
            return Some(Line::Done(self.failed(*turn, error, *pause_ms)));
        }
        if let ThreadEvent::ToolCallStart(call) = event {
            let item = call.item.rsplit_once(':');
            let item = item.map_or(call.item.as_str(), |(_, id)| id);
            let line = format!("{} {} ...", self.head(call.turn), in_line(item));
            self.calls.insert(call.call_id.clone(), in_line(item));
            return Some(Line::Started(line));
        }
        let ThreadEvent::ToolCallResult {
            turn,
            call_id,
            output,
            is_error,
            duration_ms,
            ..
        } = event
        else {
            return None;
        };
        // What was answered before it began has no item: a refusal, or outputs, which are shown at the end.
        let item = self.calls.remove(call_id);
        if item.is_none() && !*is_error {
            return None;
        }
        let item = item.unwrap_or_else(|| "call refused".to_owned());
        let time = elapsed(*duration_ms);
        let head = self.head(*turn);
        Some(Line::Done(if *is_error {
            let why = one_line(output, MAX_ERROR_CHARS);
            format!("{head} {item} {} {time} ({why})", self.style.red("✗"))
        } else {
            format!("{head} {item} {} {time}", self.style.green("✓"))
        }))
    }

    fn head(&self, turn: u32) -> String {
        format!("[thread:{}] turn {turn}", self.directive)
    }

    /// That the call of the model failed.
    fn failed(&self, turn: u32, error: &Failure, pause_ms: u64) -> String {
        let why = one_line(&error.message, MAX_ERROR_CHARS);
        let again = if pause_ms > 0 {
            format!(" retry in {}", elapsed(pause_ms))
        } else {
            String::new()
        };
        format!("{} {} ({why}){again}", self.head(turn), self.style.red("✗"))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn shown(turns: &mut Turns, event_type: &str, payload: &Value) -> Option<Line> {
        turns.line(&Event::read(event_type, &payload.to_string()).unwrap())
    }

    fn done(text: &str) -> Line {
        Line::Done(text.to_owned())
    }

    #[test]
    fn a_call_has_one_line_with_what_it_did_and_how_it_ended() {
        let mut turns = Turns::new("t/count", Style::Plain);
        let call = |id: &str| {
            json!({"turn": 3, "position": 0, "call_id": id, "tool": "rye_execute", "item": "tool:rye/bash", "input": {},
                   "attempt": 1, "effect": "idempotent", "key": "k"})
        };
        let result = |id: &str, is_error: bool| {
            json!({"turn": 3, "position": 0, "call_id": id, "output": "no\nroute", "is_error": is_error,
                   "duration_ms": 400})
        };
        let begun = shown(&mut turns, "tool_call_start", &call("a"));
        let started = "[thread:t/count] turn 3 rye/bash ...".to_owned();
        assert_eq!(begun, Some(Line::Started(started)));
        shown(&mut turns, "tool_call_start", &call("b"));
        // They end in any order.
        let table = [
            ("b", true, "rye/bash ✗ 0.4s (no route)"),
            ("a", false, "rye/bash ✓ 0.4s"),
            ("c", true, "call refused ✗ 0.4s (no route)"),
        ];
        for (id, is_error, line) in table {
            let line = format!("[thread:t/count] turn 3 {line}");
            let ended = shown(&mut turns, "tool_call_result", &result(id, is_error));
            assert_eq!(ended, Some(done(&line)));
        }
        let returned = shown(&mut turns, "tool_call_result", &result("d", false));
        assert_eq!(returned, None);
    }

    #[test]
    fn what_the_model_says_is_shown_as_it_is_and_silence_is_not() {
        let mut turns = Turns::new("t/count", Style::Plain);
        let said = |text: &str| {
            json!({"turn": 1, "attempt": 1, "text": text,
                   "message": {"role": "assistant", "origin": {"provider": "p", "model": "m"}, "blocks": []}})
        };
        let line = shown(&mut turns, "cognition_out", &said("First\nsecond\n"));
        assert_eq!(line, Some(done("First\nsecond")));
        assert_eq!(shown(&mut turns, "cognition_out", &said(" \n")), None);
    }

    #[test]
    fn what_somebody_said_to_the_thread_is_shown_when_its_model_is_told() {
        let mut turns = Turns::new("t/count", Style::Plain);
        let told = |source: &str| json!({"turn": 2, "source": source, "text": "Be\nquick."});
        let line = shown(&mut turns, "cognition_in", &told("message"));
        assert_eq!(
            line,
            Some(done("[thread:t/count] turn 2 is told: Be quick."))
        );
        assert_eq!(shown(&mut turns, "cognition_in", &told("nudge")), None);
    }

    #[test]
    fn a_failed_call_of_the_model_says_why_and_when_it_is_tried_again() {
        let mut turns = Turns::new("t/count", Style::Plain);
        let failed = |pause: u64| {
            json!({"turn": 2, "attempt": 1, "classification": "transient", "pause_ms": pause,
                   "error": {"message": "over\nloaded", "code": "x", "retryable": true}})
        };
        for (pause, again) in [(2_000, " retry in 2.0s"), (0, "")] {
            let line = shown(&mut turns, "error_classified", &failed(pause));
            let expected = format!("[thread:t/count] turn 2 ✗ (over loaded){again}");
            assert_eq!(line, Some(done(&expected)));
        }
    }
}
