//! The words for what happens in a thread, which `events` and `transcript` share.

use rye_core::conversation::Message;
use rye_core::ledger::Usage;
use rye_core::model::ThreadEvent;
use serde_json::Value;

/// An event of a thread that is a text, or a call.
pub(super) struct Said {
    /// All of it as a sentence, which may have several lines.
    pub(super) sentence: String,
    /// All but the text.
    pub(super) brief: String,
    pub(super) text: String,
}

impl Said {
    fn new(sentence: String, brief: String, text: &str) -> Self {
        Self {
            sentence,
            brief,
            text: text.to_owned(),
        }
    }

    /// The words for `event`; `None` if it is neither a text nor a call.
    pub(super) fn of(event: &ThreadEvent) -> Option<Self> {
        Some(match event {
            ThreadEvent::SystemPrompt { text } => Self::new(text.clone(), String::new(), text),
            ThreadEvent::MessageQueued { text, by } => {
                Self::new(text.clone(), format!("by {by}"), text)
            }
            ThreadEvent::CognitionIn { turn, source, text } => {
                let source = serde_json::to_value(source).unwrap_or_default();
                let source = source.as_str().unwrap_or_default();
                let brief = format!("turn {turn}, {source}");
                Self::new(format!("turn {turn}: {text}"), brief, text)
            }
            ThreadEvent::CognitionReasoning { turn, text } => {
                Self::new(format!("turn {turn}: {text}"), format!("turn {turn}"), text)
            }
            ThreadEvent::CognitionOut {
                turn,
                attempt,
                text,
                message,
                usage,
                ..
            } => {
                let turn = turn_of(*turn, *attempt);
                let sentence = match text.trim() {
                    "" => format!("{turn}: no text, {} blocks", message.blocks().len()),
                    text => format!("{turn}: {text}"),
                };
                let brief = format!("{turn}{}{}", used(usage.as_ref()), broke_off(message));
                Self::new(sentence, brief, text)
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
            ThreadEvent::ToolCallResult {
                turn,
                call_id,
                output,
                is_error,
                ..
            } => {
                let (failed, ending) = if *is_error {
                    ("failed: ", " failed")
                } else {
                    ("", "")
                };
                let brief = format!("turn {turn}, {call_id}{ending}");
                Self::new(format!("turn {turn}: {failed}{output}"), brief, output)
            }
            ThreadEvent::ErrorClassified {
                turn,
                attempt,
                error,
                ..
            } => {
                let (message, code) = (&error.message, &error.code);
                let brief = format!("{}, {code}", turn_of(*turn, *attempt));
                Self::new(format!("turn {turn}: {message} ({code})"), brief, message)
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
}

/// The turn, and the number of the try if it is not the first.
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

/// JSON on several lines.
pub(super) fn readable(value: &Value) -> String {
    serde_json::to_string_pretty(value).unwrap_or_else(|_| value.to_string())
}
