//! What a stream says, in words that are no api's own.

use std::collections::BTreeSet;

use serde::Deserialize;
use serde_json::Value;

use super::Tokens;
use super::failure::ApiError;
use crate::conversation::{Block, Raw, Stop};
use crate::error::excerpt;
use crate::expr::parse_json;
use crate::model::Object;

/// Most bytes of all that a message says.
const MOST_MESSAGE: usize = 16 << 20;
/// Most calls of one message.
const MOST_CALLS: usize = 128;
/// Most bytes of the arguments of a call.
const MOST_ARGUMENTS: usize = 1 << 20;
/// Most bytes of the name of a tool.
const MOST_NAME: usize = 128;
/// Most bytes of an id.
const MOST_ID: usize = 256;
/// The last position that a part of a message may have.
pub(super) const MOST_POSITION: u64 = 1024;
/// Most tokens that a call may report.
const MOST_TOKENS: i64 = 1_000_000_000;
/// Most events that nobody knows.
const MOST_UNKNOWN: u32 = 10_000;
/// Most bytes that are sent back of arguments which are none.
const MOST_UNPARSED: usize = 4096;

/// Something that a stream says.
#[derive(Debug, Clone, PartialEq)]
pub enum Signal {
    /// The answer begins.
    Begun {
        /// The model that answers, as it calls itself.
        model: String,
    },
    /// More of a text.
    Text {
        /// Its place in the message.
        position: u32,
        /// More of it.
        text: String,
    },
    /// More of what the model thinks.
    Thinking {
        /// Its place in the message.
        position: u32,
        /// More of it.
        text: String,
    },
    /// A text or a thought is complete.
    Block(Part),
    /// A call begins.
    CallBegun {
        /// Its place in the message.
        position: u32,
        /// The tool.
        name: String,
    },
    /// More of its arguments.
    CallArgs {
        /// Its place in the message.
        position: u32,
        /// More of their text.
        text: String,
    },
    /// A call is complete.
    CallReady(Call),
    /// What the call used so far.
    Usage(Tokens),
    /// Why the model stops.
    Stopped(Stop),
    /// The message is complete; it is the last signal.
    Ended(Ended),
    /// The stream cannot be read on; it is the last signal.
    Broken(Fault),
}

/// A complete part of a message.
#[derive(Debug, Clone, PartialEq)]
pub struct Part {
    /// Its place in the message.
    pub position: u32,
    /// What it says.
    pub block: Block,
    /// The same as it was received, JSON text.
    pub raw: String,
}

/// A complete call.
#[derive(Debug, Clone, PartialEq)]
pub struct Call {
    /// Its place in the message.
    pub position: u32,
    /// The id by which it is answered.
    pub id: String,
    /// The tool.
    pub name: String,
    /// With what.
    pub arguments: Arguments,
    /// The same as it was received, JSON text.
    pub raw: String,
}

/// The arguments of a call.
#[derive(Debug, Clone, PartialEq)]
pub enum Arguments {
    /// An object.
    Object(Object),
    /// Something else: the call is answered with this error and never carried out.
    Unparsed(String),
}

/// A complete message.
#[derive(Debug, Clone, PartialEq)]
pub struct Ended {
    /// All of it.
    pub blocks: Vec<Block>,
    /// The same as it was received; `None` if it says nothing.
    pub raw: Option<Raw>,
    /// Why the model stopped.
    pub stop: Stop,
    /// What it used; `None` if it did not say.
    pub usage: Option<Tokens>,
    /// Whether it said that it used less than no tokens of a kind, which count as none.
    pub negative_usage: bool,
}

/// Why a stream cannot be read on.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// It ends before the message does.
    #[error("the answer was cut off")]
    Cut,
    /// It breaks the rules of its api.
    #[error("the answer is malformed: {0}")]
    Malformed(String),
    /// It goes beyond a bound.
    #[error("the answer goes beyond a bound: {0}")]
    Excess(&'static str),
    /// The provider says so.
    #[error("{0}")]
    Api(ApiError),
}

impl Call {
    /// The block of the call.
    pub fn block(&self) -> Block {
        Block::Call {
            id: self.id.clone(),
            name: self.name.clone(),
            input: match &self.arguments {
                Arguments::Object(input) => input.clone(),
                Arguments::Unparsed(_) => Object::new(),
            },
        }
    }
}

/// The arguments that a text holds, and how they are sent back.
pub(super) fn arguments(text: &str) -> (Arguments, Value) {
    let problem = match parse_json(text) {
        Ok(Value::Object(object)) => {
            return (Arguments::Object(object.clone()), Value::Object(object));
        }
        Ok(_) => "the arguments are no JSON object".to_owned(),
        Err(error) => format!(
            "the arguments are not JSON: {}",
            excerpt(&error.to_string())
        ),
    };
    let kept = text.floor_char_boundary(MOST_UNPARSED.min(text.len()));
    let sent = serde_json::json!({"_unparsed": &text[..kept]});
    (Arguments::Unparsed(problem), sent)
}

/// What a stream has brought, against its bounds.
#[derive(Debug, Default)]
pub(super) struct Meter {
    bytes: usize,
    unknown: u32,
    /// The ids of its calls.
    calls: BTreeSet<String>,
}

impl Meter {
    /// Takes in so many bytes of the message.
    pub(super) fn weigh(&mut self, bytes: usize) -> Result<(), Fault> {
        self.bytes = self.bytes.saturating_add(bytes);
        if self.bytes > MOST_MESSAGE {
            return Err(Fault::Excess("the message is too large"));
        }
        Ok(())
    }

    /// Takes in something that nobody knows.
    pub(super) fn skip(&mut self) -> Result<(), Fault> {
        self.unknown += 1;
        if self.unknown > MOST_UNKNOWN {
            return Err(Fault::Excess("too many events that nobody knows"));
        }
        Ok(())
    }

    /// Takes in a call.
    pub(super) fn call(&mut self, id: &str, name: &str) -> Result<(), Fault> {
        if self.calls.len() >= MOST_CALLS {
            return Err(Fault::Excess("too many calls"));
        }
        if id.is_empty() || name.is_empty() {
            return Err(malformed("a call has no id or no name"));
        }
        if id.len() > MOST_ID || name.len() > MOST_NAME {
            return Err(Fault::Excess("the id or the name of a call is too long"));
        }
        if !self.calls.insert(id.to_owned()) {
            return Err(malformed("two calls have one id"));
        }
        Ok(())
    }

    /// Whether the arguments of a call, as far as they came, are small enough.
    pub(super) fn arguments(text: &str) -> Result<(), Fault> {
        if text.len() > MOST_ARGUMENTS {
            return Err(Fault::Excess("the arguments of a call are too large"));
        }
        Ok(())
    }
}

/// The data of an event, as JSON.
pub(super) fn parsed(data: &str) -> Result<Value, Fault> {
    serde_json::from_str(data)
        .map_err(|error| Fault::Malformed(format!("an event is not JSON: {error}")))
}

/// The data of an event that has just this shape; `None` if it has another, or is no JSON. An event of the usual shape is read without
/// anything in between, and of all others the reader of any shape says what they are.
pub(super) fn shaped<'a, T: Deserialize<'a>>(data: &'a str) -> Option<T> {
    serde_json::from_str(data).ok()
}

/// The answer begins, of a model that calls itself like that.
pub(super) fn begun(model: &Value) -> Signal {
    let model = model.as_str().unwrap_or_default();
    Signal::Begun {
        model: excerpt(model).into_owned(),
    }
}

pub(super) fn malformed(what: &str) -> Fault {
    Fault::Malformed(what.to_owned())
}

/// A number of tokens; one below zero counts as none, and is noted in `is_negative`.
pub(super) fn tokens_of(value: &Value, is_negative: &mut bool) -> Result<u64, Fault> {
    let reported = value
        .as_i64()
        .filter(|tokens| *tokens <= MOST_TOKENS)
        .ok_or(Fault::Excess("a number of tokens is none that can be"))?;
    *is_negative |= reported < 0;
    Ok(u64::try_from(reported).unwrap_or(0))
}
