//! Signals of a stream, independent of the API.

use std::collections::BTreeSet;

use serde::Deserialize;
use serde_json::Value;

use super::api_error::{ApiError, without};
use super::usage::Tokens;
use crate::conversation::{Block, Raw, Stop};
use crate::error::excerpt;
use crate::expr::parse_json;
use crate::model::Object;

/// Size limit of a message's content in bytes.
const MOST_MESSAGE: usize = 16 << 20;
/// Largest number of calls of one message that are executed.
const MOST_CALLS: usize = 128;
/// Size limit of the arguments of a call in bytes.
const MOST_ARGUMENTS: usize = 1 << 20;
/// Size limit of the name of a tool in bytes.
const MOST_NAME: usize = 128;
/// Size limit of an id in bytes.
const MOST_ID: usize = 256;
/// Largest position of a part of a message.
pub(super) const MOST_POSITION: u64 = 1024;
/// Largest number of unknown events.
const MOST_UNKNOWN: u32 = 10_000;
/// Largest number of bytes of malformed arguments that are sent back.
const MOST_UNPARSED: usize = 4096;
/// Answer to the model if its output limit was reached within a call.
const CUT: &str = "the answer reached its most tokens inside the arguments of this call, so they are not whole; say less before the call, or do less in it";
/// Name that is sent back for a call without a tool name.
pub(super) const UNNAMED: &str = "unnamed";

/// A signal of a stream.
#[derive(Debug, Clone, PartialEq)]
pub enum StreamSignal {
    Begun {
        /// Model name that the provider reports.
        model: String,
    },
    /// Addition to a text.
    Text {
        /// Position in the message.
        position: u32,
        text: String,
    },
    /// Addition to the reasoning.
    Thinking {
        /// Position in the message.
        position: u32,
        text: String,
    },
    /// A text or reasoning is complete.
    Block(BlockPart),
    CallBegun {
        /// Position in the message.
        position: u32,
        /// Name of the tool.
        name: String,
    },
    /// Addition to the arguments of a call.
    CallArgs {
        /// Position in the message.
        position: u32,
        text: String,
    },
    CallReady(Call),
    /// Tokens that the call used so far.
    Usage(Tokens),
    Stopped(Stop),
    /// The message is complete; this is the last signal.
    Ended(Ended),
    /// The stream is unreadable; this is the last signal.
    Broken(Fault),
}

/// A complete part of a message.
#[derive(Debug, Clone, PartialEq)]
pub struct BlockPart {
    /// Position in the message.
    pub position: u32,
    pub block: Block,
    /// JSON text as received.
    pub raw: String,
}

/// A complete call.
#[derive(Debug, Clone, PartialEq)]
pub struct Call {
    /// Position in the message.
    pub position: u32,
    /// Id that the result refers to.
    pub id: String,
    /// Name of the tool.
    pub name: String,
    pub arguments: Arguments,
    /// JSON text as received.
    pub raw: String,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Arguments {
    Object(Object),
    /// The call cannot be executed.
    Refused(Refused),
}

/// Answer to a malformed call, which is never executed.
#[derive(Debug, Clone, PartialEq)]
pub struct Refused {
    /// Code for programs.
    pub code: &'static str,
    /// Description for the model.
    pub problem: String,
    /// Arguments that are sent back.
    pub sent: Object,
}

/// A complete message.
#[derive(Debug, Clone, PartialEq)]
pub struct Ended {
    pub blocks: Vec<Block>,
    /// Message as received; `None` if it is empty.
    pub raw: Option<Raw>,
    pub stop: Stop,
    /// Tokens of the whole call; `None` unless the provider reported readable numbers of both input and output.
    pub usage: Option<Tokens>,
    /// Unknown values of the provider, with their interpretation.
    pub warnings: Vec<String>,
}

/// Reason why a stream is unreadable.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// The stream ends before the message does.
    #[error("the answer was cut off")]
    Cut,
    /// The stream ends after the message, but without the end event of the API.
    #[error(
        "the answer ended without `{0}`; if the provider never sends it, set `quirks: {{end: lenient}}` in its file"
    )]
    NoEndEvent(&'static str),
    /// The stream violates its API.
    #[error("the answer is malformed: {0}")]
    Malformed(String),
    /// The stream exceeds a limit.
    #[error("the answer goes beyond a bound: {0}")]
    Excess(&'static str),
    /// The provider reports an error.
    #[error("{0}")]
    Api(ApiError),
}

impl Fault {
    /// Creates the fault of an answer that ends without a stop reason.
    pub(super) fn without_reason(mark: &str) -> Self {
        Self::Malformed(format!(
            "`{mark}` comes without a stop reason; if the provider never gives one, set `quirks: {{end: lenient}}` in its file"
        ))
    }
}

impl Call {
    pub fn block(&self) -> Block {
        Block::Call {
            id: self.id.clone(),
            name: self.name.clone(),
            input: self.arguments.sent().clone(),
        }
    }
}

impl Arguments {
    /// Returns the arguments that are sent back.
    pub const fn sent(&self) -> &Object {
        match self {
            Self::Object(object) => object,
            Self::Refused(refused) => &refused.sent,
        }
    }
}

/// Parses the arguments of a call.
pub(super) fn arguments(text: &str) -> Result<Object, String> {
    match parse_json(text) {
        Ok(Value::Object(object)) => Ok(object),
        Ok(_) => Err("the arguments are no JSON object".to_owned()),
        Err(error) => Err(format!(
            "the arguments are not JSON: {}",
            excerpt(&error.to_string())
        )),
    }
}

/// A call as received, complete.
#[derive(Debug)]
pub(super) struct RawCall<'a> {
    /// Position in the message.
    pub(super) position: u32,
    /// Empty if the call has no id.
    pub(super) id: &'a str,
    pub(super) name: &'a str,
    pub(super) arguments: &'a str,
    /// Parsed arguments, if available.
    pub(super) object: Option<Object>,
    /// True if the arguments exceed their size limit and were cut.
    pub(super) is_too_large: bool,
    /// True if the output limit was reached within this call.
    pub(super) is_cut: bool,
}

/// Complete calls of an answer.
#[derive(Debug)]
pub(super) struct Calls {
    /// Turn, for ids that the provider does not supply.
    turn: u32,
    ids: BTreeSet<String>,
    count: usize,
}

impl Calls {
    pub(super) const fn new(turn: u32) -> Self {
        Self {
            turn,
            ids: BTreeSet::new(),
            count: 0,
        }
    }

    /// Completes a call. `raw` builds the JSON that is sent back from id, name and arguments.
    pub(super) fn complete(
        &mut self,
        came: RawCall<'_>,
        raw: impl FnOnce(&str, &str, &Object) -> Value,
    ) -> (Call, Value) {
        self.count += 1;
        let id = self.id(&came);
        let kept = came.name.floor_char_boundary(MOST_NAME);
        let name = match came.name[..kept].trim() {
            "" => UNNAMED,
            _ => &came.name[..kept],
        };
        let position = came.position;
        let arguments = self.arguments(came);
        let raw = raw(&id, name, arguments.sent());
        let call = Call {
            position,
            id,
            name: name.to_owned(),
            arguments,
            raw: raw.to_string(),
        };
        (call, raw)
    }

    /// Returns the id of a call: its own, or a generated one if that is empty, too long or taken.
    fn id(&mut self, came: &RawCall<'_>) -> String {
        let mut id = came.id.to_owned();
        if id.is_empty() || id.len() > MOST_ID || self.ids.contains(&id) {
            id = format!("call_{}_{}", self.turn, came.position);
        }
        while !self.ids.insert(id.clone()) {
            id.push('_');
        }
        id
    }

    fn arguments(&self, came: RawCall<'_>) -> Arguments {
        let unusable = self.unusable(&came);
        let object = match (came.is_too_large, came.object) {
            (false, Some(object)) => Ok(object),
            (false, None) => arguments(came.arguments),
            (true, _) => Err(format!(
                "the arguments are larger than {} MiB; do less in one call",
                MOST_ARGUMENTS >> 20
            )),
        };
        let object = object.map_err(|problem| if came.is_cut { CUT.to_owned() } else { problem });
        let (code, problem, sent) = match (unusable, object) {
            (None, Ok(object)) => return Arguments::Object(object),
            (None, Err(problem)) => ("invalid_params", problem, None),
            (Some((code, problem)), object) => (code, problem, object.ok()),
        };
        Arguments::Refused(Refused {
            code,
            problem,
            sent: sent.unwrap_or_else(|| unparsed(came.arguments)),
        })
    }

    /// Returns the reason why a call cannot be executed with any arguments.
    fn unusable(&self, came: &RawCall<'_>) -> Option<(&'static str, String)> {
        if self.count > MOST_CALLS {
            let problem = format!(
                "too many calls: of one answer the first {MOST_CALLS} are carried out, and this is not one of them; make it again"
            );
            return Some(("too_many_calls", problem));
        }
        if came.name.trim().is_empty() {
            return Some(("unknown_tool", "this call names no tool".to_owned()));
        }
        (came.name.len() > MOST_NAME).then(|| {
            let problem = format!("no tool has a name of more than {MOST_NAME} bytes");
            ("unknown_tool", problem)
        })
    }
}

/// Wraps malformed arguments to send them back.
fn unparsed(text: &str) -> Object {
    let kept = text.floor_char_boundary(MOST_UNPARSED);
    Object::from_iter([("_unparsed".to_owned(), text[..kept].into())])
}

/// Appends `more` to the arguments of a call. Beyond the size limit it sets `is_too_large` and keeps only the
/// beginning, which is sent back.
pub(super) fn add_arguments(arguments: &mut String, is_too_large: &mut bool, more: &str) {
    *is_too_large |= arguments.len() + more.len() > MOST_ARGUMENTS;
    if *is_too_large {
        arguments.push_str(&more[..more.floor_char_boundary(MOST_UNPARSED)]);
        arguments.truncate(arguments.floor_char_boundary(MOST_UNPARSED));
    } else {
        arguments.push_str(more);
    }
}

/// Counters of a stream's content, with limits.
#[derive(Debug, Default)]
pub(super) struct Meter {
    bytes: usize,
    unknown: u32,
}

impl Meter {
    /// Counts `bytes` bytes of the message.
    pub(super) fn weigh(&mut self, bytes: usize) -> Result<(), Fault> {
        self.bytes = self.bytes.saturating_add(bytes);
        if self.bytes > MOST_MESSAGE {
            return Err(Fault::Excess("the message is too large"));
        }
        Ok(())
    }

    /// Counts an unknown event.
    pub(super) fn skip(&mut self) -> Result<(), Fault> {
        self.unknown += 1;
        if self.unknown > MOST_UNKNOWN {
            return Err(Fault::Excess("too many unknown events"));
        }
        Ok(())
    }
}

/// Parses the data of an event in exactly this shape; returns `None` for any other. Events of the common shape take
/// this direct path; the generic decoder handles all others.
pub(super) fn shaped<'a, T: Deserialize<'a>>(data: &'a str) -> Option<T> {
    serde_json::from_str(data).ok()
}

pub(super) fn malformed(what: impl Into<String>) -> Fault {
    Fault::Malformed(what.into())
}

/// Maps a stop reason of the API. A reason that names an error is an error. Any other unknown reason ends the message,
/// with a warning.
pub(super) fn reason(
    word: &str,
    known: &[(&str, Stop)],
    secrets: &[&str],
    warnings: &mut Vec<String>,
) -> Result<Stop, Fault> {
    const ERRORS: [&str; 6] = [
        "error",
        "fail",
        "abort",
        "cancel",
        "insufficient",
        "overload",
    ];
    if let Some((_, stop)) = known.iter().find(|(name, _)| *name == word) {
        return Ok(*stop);
    }
    let folded = word.to_lowercase();
    if ERRORS.iter().any(|error| folded.contains(error)) {
        return Err(Fault::Api(ApiError {
            kind: excerpt(&without(word, secrets)).into_owned(),
            message: "the provider gives this as the reason why the answer stops".to_owned(),
            ..ApiError::default()
        }));
    }
    let warning = format!(
        "the model stopped for a reason that is not known, `{}`; its answer is taken as complete",
        excerpt(&without(word, secrets))
    );
    if !warnings.contains(&warning) {
        warnings.push(warning);
    }
    Ok(Stop::End)
}
