//! Script of the server: its rules and replies.
//!
//! A rule depends on the request alone, so a request that is repeated after a crash gets the same answer. The only
//! exception is a rule with `times`, which lets a call fail and a retry succeed.

mod node;
mod read;

use std::collections::BTreeSet;
use std::time::Duration;

use hyper::header::HeaderValue;
use serde_json::Value;

use super::request::ParsedRequest;

pub(super) struct Script {
    /// Rules; the first that matches answers.
    pub(super) rules: Vec<Rule>,
    /// All names that an answer waits for.
    pub(super) holds: BTreeSet<String>,
}

/// A condition on requests, and the answer to them.
pub(super) struct Rule {
    /// Line in the script.
    pub(super) line: usize,
    when: When,
    /// Number of requests that it answers; `None` means all.
    pub(super) times: Option<u32>,
    pub(super) reply: Reply,
}

/// Condition on a request. A field without a value matches anything.
#[derive(Default)]
struct When {
    directive: Option<String>,
    turn: Option<usize>,
    tool_result: Option<String>,
    contains: Option<String>,
}

#[derive(Clone)]
pub(super) struct Reply {
    /// Condition for its headers.
    pub(super) wait: Option<Wait>,
    pub(super) kind: Kind,
}

/// Condition for an answer to continue.
#[derive(Clone)]
pub(super) enum Wait {
    Time(Duration),
    /// The test releases this name.
    Release(String),
}

/// Kind of an answer.
#[derive(Clone)]
pub(super) enum Kind {
    /// The connection is reset without an answer.
    Reset,
    Status(Status),
    Message(Message),
}

/// A refusal.
#[derive(Clone)]
pub(super) struct Status {
    /// HTTP status.
    pub(super) code: u16,
    /// Value of the header `retry-after`.
    pub(super) retry_after: Option<HeaderValue>,
    pub(super) error: ApiError,
}

/// An error in the form of the APIs.
#[derive(Clone, Default)]
pub(super) struct ApiError {
    /// Type; the default follows from the status.
    pub(super) kind: Option<String>,
    pub(super) message: Option<String>,
}

/// A message and the course of its stream.
#[derive(Clone)]
pub(super) struct Message {
    pub(super) content: Vec<Part>,
    pub(super) usage: Usage,
    /// Reason to stop; the default follows from the content.
    pub(super) stop: Option<Stop>,
    pub(super) flow: Flow,
    /// True if the stream reports usage.
    pub(super) reports_usage: bool,
    /// True if the final event is sent.
    pub(super) ends: bool,
    /// True if the second call has the index of the first.
    pub(super) duplicate_index: bool,
}

/// Course of a stream.
#[derive(Clone, Default)]
pub(super) struct Flow {
    /// Pause between two events.
    pub(super) pace: Option<Duration>,
    /// A name to wait for, after this number of events.
    pub(super) hold: Option<(usize, String)>,
    /// A fault after this number of events.
    pub(super) fault: Option<(usize, StreamFault)>,
}

/// A part of a message.
#[derive(Clone)]
pub(super) enum Part {
    /// A text, sent in pieces.
    Text(String),
    /// A text of this number of bytes in one event.
    Huge(usize),
    Thinking(String),
    /// A call. An input of type text is sent unchanged, whether or not it is JSON.
    Call {
        name: String,
        input: Value,
        id: Option<String>,
    },
    /// A wait until the test releases this name.
    Hold(String),
}

/// A fault in a stream.
#[derive(Clone)]
pub(super) enum StreamFault {
    Cut,
    Reset,
    /// Nothing more is sent, and the connection stays open.
    Stall,
    /// An event that is not JSON.
    Malformed,
    /// An error, after which the stream ends.
    Error(ApiError),
}

/// Token counts.
#[derive(Clone, Copy)]
pub(super) struct Usage {
    pub(super) input: u64,
    pub(super) output: u64,
    pub(super) cache_read: u64,
    pub(super) cache_write: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stop {
    End,
    Calls,
    Length,
    Window,
    Refusal,
    Pause,
}

impl Rule {
    /// True if the rule applies to the request.
    pub(super) fn matches(&self, asked: &ParsedRequest) -> bool {
        let When {
            directive,
            turn,
            tool_result,
            contains,
        } = &self.when;
        directive
            .as_ref()
            .is_none_or(|name| asked.directive.as_ref() == Some(name))
            && turn.is_none_or(|turn| asked.turn == turn)
            && tool_result
                .as_ref()
                .is_none_or(|part| asked.results.iter().any(|result| result.contains(part)))
            && contains
                .as_ref()
                .is_none_or(|part| asked.newest_text.contains(part))
    }
}

impl Reply {
    /// Returns the names that the reply waits for.
    fn holds(&self) -> Vec<String> {
        let mut names = Vec::new();
        if let Some(Wait::Release(name)) = &self.wait {
            names.push(name.clone());
        }
        if let Kind::Message(message) = &self.kind {
            names.extend(message.flow.hold.iter().map(|(_, name)| name.clone()));
            names.extend(message.content.iter().filter_map(|part| match part {
                Part::Hold(name) => Some(name.clone()),
                Part::Text(_) | Part::Huge(_) | Part::Thinking(_) | Part::Call { .. } => None,
            }));
        }
        names
    }
}

/// Placeholder in an input for the ids of the threads in the newest results.
const THREADS: &str = "$threads";

/// Placeholder in an input for the newest `handle_id` in the results of the conversation.
const HANDLE: &str = "$handle";

/// Replaces [`THREADS`] in `input` by `threads`, and [`HANDLE`] by `handle`.
fn fill(input: &mut Value, threads: &[Value], handle: &Value) {
    match input {
        Value::String(text) if text == THREADS => *input = Value::Array(threads.to_vec()),
        Value::String(text) if text == HANDLE => *input = handle.clone(),
        Value::Array(list) => list
            .iter_mut()
            .for_each(|value| fill(value, threads, handle)),
        Value::Object(map) => map
            .values_mut()
            .for_each(|value| fill(value, threads, handle)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

impl Message {
    /// Returns the message with the placeholders filled from the results of a request.
    pub(super) fn filled(&self, asked: &ParsedRequest) -> Self {
        let field = |result: &String, name: &str| {
            let result: Value = serde_json::from_str(result).ok()?;
            result.get(name).cloned()
        };
        let threads = asked.results.iter();
        let threads: Vec<Value> = threads
            .filter_map(|result| field(result, "thread_id"))
            .collect();
        let turns = asked.messages.iter().rev();
        let mut results = turns.flat_map(|turn| turn.results.iter().rev());
        let handle = results.find_map(|result| field(result, "handle_id"));
        let handle = handle.unwrap_or_default();
        let mut filled = self.clone();
        for part in &mut filled.content {
            if let Part::Call { input, .. } = part {
                fill(input, &threads, &handle);
            }
        }
        filled
    }

    /// Returns the reason to stop: that of the script, else the one that follows from the content.
    pub(super) fn stops(&self) -> Stop {
        let is_call = |part: &Part| matches!(part, Part::Call { .. });
        let natural = if self.content.iter().any(is_call) {
            Stop::Calls
        } else {
            Stop::End
        };
        self.stop.unwrap_or(natural)
    }
}
