//! What a script says: which requests get which answer.
//!
//! A rule looks at the request and at nothing else, so a request that is repeated after a crash gets the same answer. The one
//! exception is a rule with `times`, which is how a call fails and succeeds when it is tried again.

mod node;
mod read;

use std::collections::BTreeSet;
use std::time::Duration;

use hyper::header::HeaderValue;
use serde_json::Value;

use super::request::Asked;

/// A script.
pub(super) struct Script {
    /// Its rules; the first that matches answers.
    pub(super) rules: Vec<Rule>,
    /// All names that an answer waits for.
    pub(super) holds: BTreeSet<String>,
}

/// Which requests get an answer, and which one.
pub(super) struct Rule {
    /// Where it stands.
    pub(super) line: usize,
    when: When,
    /// How many requests it answers; `None` is all.
    pub(super) times: Option<u32>,
    /// The answer.
    pub(super) reply: Reply,
}

/// What a request has to be; what is not named may be anything.
#[derive(Default)]
struct When {
    directive: Option<String>,
    turn: Option<usize>,
    tool_result: Option<String>,
    contains: Option<String>,
}

/// An answer.
#[derive(Clone)]
pub(super) struct Reply {
    /// What its headers wait for.
    pub(super) wait: Option<Wait>,
    /// What it is.
    pub(super) kind: Kind,
}

/// Something to wait for.
#[derive(Clone)]
pub(super) enum Wait {
    /// That much time.
    Time(Duration),
    /// That the test releases this name.
    Release(String),
}

/// What an answer is.
#[derive(Clone)]
pub(super) enum Kind {
    /// The connection is reset and nothing is said.
    Reset,
    /// The call is refused.
    Status(Status),
    /// A message.
    Message(Message),
}

/// A refusal.
#[derive(Clone)]
pub(super) struct Status {
    /// The status of HTTP.
    pub(super) code: u16,
    /// The header `retry-after`.
    pub(super) retry_after: Option<HeaderValue>,
    /// What is wrong.
    pub(super) error: ApiError,
}

/// An error as the apis tell it.
#[derive(Clone, Default)]
pub(super) struct ApiError {
    /// Its type; that which goes with the status if there is none.
    pub(super) kind: Option<String>,
    /// Its text.
    pub(super) message: Option<String>,
}

/// A message, and how its stream goes.
#[derive(Clone)]
pub(super) struct Message {
    /// What it says, in order.
    pub(super) content: Vec<Part>,
    /// What it used.
    pub(super) usage: Usage,
    /// Why it stops; by default what its content comes to.
    pub(super) stop: Option<Stop>,
    /// How the stream goes.
    pub(super) flow: Flow,
    /// Whether it tells what it used.
    pub(super) tells_usage: bool,
    /// Whether the mark of its end comes.
    pub(super) ends: bool,
    /// Whether the second call has the index of the first.
    pub(super) duplicate_index: bool,
}

/// How a stream goes.
#[derive(Clone, Default)]
pub(super) struct Flow {
    /// The pause between two events.
    pub(super) pace: Option<Duration>,
    /// A name that it waits for, before that many events were sent.
    pub(super) hold: Option<(usize, String)>,
    /// What goes wrong, after that many events.
    pub(super) fault: Option<(usize, StreamFault)>,
}

/// A part of a message.
#[derive(Clone)]
pub(super) enum Part {
    /// A text, in pieces.
    Text(String),
    /// A text of that many bytes, in one event.
    Huge(usize),
    /// A thought.
    Thinking(String),
    /// A call. An input that is text is sent as it is, whether it is JSON or not.
    Call {
        name: String,
        input: Value,
        id: Option<String>,
    },
    /// The stream waits until the test releases this name.
    Hold(String),
}

/// Something that goes wrong in a stream.
#[derive(Clone)]
pub(super) enum StreamFault {
    /// The connection is closed.
    Cut,
    /// The connection is reset.
    Reset,
    /// Nothing more comes, and the connection stays open.
    Stall,
    /// An event that is not JSON.
    Malformed,
    /// An error, after which the stream ends.
    Error(ApiError),
}

/// Tokens.
#[derive(Clone, Copy)]
pub(super) struct Usage {
    pub(super) input: u64,
    pub(super) output: u64,
    pub(super) cache_read: u64,
    pub(super) cache_write: u64,
}

/// Why a message stops.
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
    /// Whether it is about such a request.
    pub(super) fn matches(&self, asked: &Asked) -> bool {
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
                .is_none_or(|part| asked.said.contains(part))
    }
}

impl Reply {
    /// The names that it waits for.
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

/// What stands in an input for the ids of the threads that the newest results name.
const THREADS: &str = "$threads";

/// `input` with `threads` in the place of [`THREADS`].
fn with_threads(input: &mut Value, threads: &[Value]) {
    match input {
        Value::String(text) if text == THREADS => *input = Value::Array(threads.to_vec()),
        Value::Array(list) => list
            .iter_mut()
            .for_each(|value| with_threads(value, threads)),
        Value::Object(map) => map
            .values_mut()
            .for_each(|value| with_threads(value, threads)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

impl Message {
    /// The same to a request whose newest results are these.
    pub(super) fn filled(&self, results: &[String]) -> Self {
        let threads = results.iter().filter_map(|result| {
            let result: Value = serde_json::from_str(result).ok()?;
            result.get("thread_id").cloned()
        });
        let threads: Vec<Value> = threads.collect();
        let mut filled = self.clone();
        for part in &mut filled.content {
            if let Part::Call { input, .. } = part {
                with_threads(input, &threads);
            }
        }
        filled
    }

    /// Why it stops.
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
