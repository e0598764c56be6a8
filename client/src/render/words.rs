//! Words for events of a thread, shared by `events` and `transcript`.

use rye_core::conversation::Message;
use rye_core::ledger::Usage;
use rye_core::model::ThreadEvent;
use rye_core::model::event::{CognitionIn, CognitionReasoning, SystemPrompt};
use rye_core::model::thread::TurnWait;
use serde_json::Value;

/// A text, a call or an error of a thread.
pub(super) struct ThreadText {
    /// The whole event as a sentence, which may have several lines.
    pub(super) sentence: String,
    /// The event without its text.
    pub(super) brief: String,
    pub(super) text: String,
}

impl ThreadText {
    fn new(sentence: String, brief: String, text: &str) -> Self {
        Self {
            sentence,
            brief,
            text: text.to_owned(),
        }
    }

    /// Returns the words for `event`, or `None` if it is neither a text nor a call nor an error.
    pub(super) fn of(event: &ThreadEvent) -> Option<Self> {
        Some(match event {
            ThreadEvent::SystemPrompt(SystemPrompt { text }) => {
                Self::new(text.clone(), String::new(), text)
            }
            ThreadEvent::MessageQueued(message) => {
                let text = message.shown();
                Self::new(text.to_string(), format!("by {}", message.by), &text)
            }
            ThreadEvent::CognitionIn(CognitionIn { turn, source, text }) => {
                let source = serde_json::to_value(source).unwrap_or_default();
                let source = source.as_str().unwrap_or_default();
                let brief = format!("turn {turn}, {source}");
                Self::new(format!("turn {turn}: {text}"), brief, text)
            }
            ThreadEvent::CognitionReasoning(CognitionReasoning { turn, text }) => {
                Self::new(format!("turn {turn}: {text}"), format!("turn {turn}"), text)
            }
            ThreadEvent::CognitionOut(said) => {
                let turn = turn_of(said.turn, said.attempt);
                let sentence = match said.text.trim() {
                    "" => format!("{turn}: no text, {} blocks", said.message.blocks().len()),
                    text => format!("{turn}: {text}"),
                };
                let used = used(said.usage.as_ref());
                let brief = format!("{turn}{used}{}", broke_off(&said.message));
                Self::new(sentence, brief, &said.text)
            }
            ThreadEvent::ToolCallStart(call) => {
                let (turn, item) = (call.turn, &call.item);
                let input = Value::Object((*call.input).clone());
                let brief = format!("turn {turn}, {} {item}", call.call_id);
                Self::new(
                    format!("turn {turn}: {item} {input}"),
                    brief,
                    &readable(&input),
                )
            }
            ThreadEvent::ToolCallResult(result) => {
                let (turn, output) = (result.turn, &result.output);
                let (failed, ending) = if result.is_error {
                    ("failed: ", " failed")
                } else {
                    ("", "")
                };
                let brief = format!("turn {turn}, {}{ending}", result.call_id);
                Self::new(format!("turn {turn}: {failed}{output}"), brief, output)
            }
            ThreadEvent::ErrorClassified(failed) => {
                let (message, code) = (&failed.error.message, &failed.error.code);
                let brief = format!("{}, {code}", turn_of(failed.turn, failed.attempt));
                let sentence = format!("turn {}: {message} ({code})", failed.turn);
                Self::new(sentence, brief, message)
            }
            ThreadEvent::TurnWaiting(delayed) => {
                let TurnWait { waits, until } = delayed.waiting;
                let waits = super::waits(waits.as_str(), until);
                let turn = turn_of(delayed.turn, delayed.attempt);
                Self::new(
                    format!("{turn} waits: {waits}"),
                    format!("{turn} waits"),
                    &waits,
                )
            }
            ThreadEvent::ThreadStarted(_)
            | ThreadEvent::PromptComposed(_)
            | ThreadEvent::StepStart(_)
            | ThreadEvent::StepFinish(_)
            | ThreadEvent::TurnRetryScheduled(_)
            | ThreadEvent::ContextReseeded(_)
            | ThreadEvent::RetrySucceeded(_)
            | ThreadEvent::LimitEscalationRequested(_)
            | ThreadEvent::DirectiveReturn(_)
            | ThreadEvent::ThreadCompleted(_)
            | ThreadEvent::ThreadError(_)
            | ThreadEvent::ThreadCancelled(_) => return None,
        })
    }
}

/// Renders the turn, and the attempt if it is not the first.
fn turn_of(turn: u32, attempt: u32) -> String {
    match attempt {
        0 | 1 => format!("turn {turn}"),
        _ => format!("turn {turn} (try {attempt})"),
    }
}

fn used(usage: Option<&Usage>) -> String {
    usage.map_or_else(String::new, |usage| {
        let read = [usage.input, usage.cache_read, usage.cache_write];
        let read: u64 = read.into_iter().fold(0, u64::saturating_add);
        format!(", {read} tokens in, {} out", usage.output)
    })
}

fn broke_off(message: &Message) -> &'static str {
    match message {
        Message::Assistant { partial: true, .. } => ", broke off",
        Message::Assistant { .. } | Message::User { .. } => "",
    }
}

/// Renders indented JSON.
pub(super) fn readable(value: &Value) -> String {
    serde_json::to_string_pretty(value).unwrap_or_else(|_| value.to_string())
}
