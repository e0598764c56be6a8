//! What a stream says, in words that are no api's own.

use std::collections::BTreeSet;

use serde::Deserialize;
use serde_json::Value;

use super::api_error::{ApiError, without};
use super::usage::Tokens;
use crate::conversation::{Block, Raw, Stop};
use crate::error::excerpt;
use crate::expr::parse_json;
use crate::model::Object;

/// Most bytes of all that a message says.
const MOST_MESSAGE: usize = 16 << 20;
/// Most calls of one message that are carried out.
const MOST_CALLS: usize = 128;
/// Most bytes of the arguments of a call.
const MOST_ARGUMENTS: usize = 1 << 20;
/// Most bytes of the name of a tool.
const MOST_NAME: usize = 128;
/// Most bytes of an id.
const MOST_ID: usize = 256;
/// The last position that a part of a message may have.
pub(super) const MOST_POSITION: u64 = 1024;
/// Most events that nobody knows.
const MOST_UNKNOWN: u32 = 10_000;
/// Most bytes that are sent back of arguments which are none.
const MOST_UNPARSED: usize = 4096;
/// What a model is answered whose answer reached its most tokens within a call.
const CUT: &str = "the answer reached its most tokens inside the arguments of this call, so they are not whole; say less before the call, or do less in it";
/// Name that is sent back for a call that names no tool.
pub(super) const UNNAMED: &str = "unnamed";

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
    /// The call cannot be carried out.
    Refused(Refused),
}

/// The answer to a call that is never carried out, because of the form in which it came.
#[derive(Debug, Clone, PartialEq)]
pub struct Refused {
    /// Why, for programs.
    pub code: &'static str,
    /// The same for the model.
    pub problem: String,
    /// The arguments as they are sent back.
    pub sent: Object,
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
    /// What it used; `None` unless the provider reported both input and output in numbers that can be read.
    pub usage: Option<Tokens>,
    /// What the provider said in a way that is not known, and how it was taken.
    pub warnings: Vec<String>,
}

/// Why a stream cannot be read on.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// It ends before the message does.
    #[error("the answer was cut off")]
    Cut,
    /// It ends after the message, without the mark of the api.
    #[error(
        "the answer ended without `{0}`; if the provider never sends it, set `quirks: {{end: lenient}}` in its file"
    )]
    Unmarked(&'static str),
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

impl Fault {
    /// The answer has the mark of its end, and no reason why it stops.
    pub(super) fn without_reason(mark: &str) -> Self {
        Self::Malformed(format!(
            "`{mark}` comes without a reason why the answer stops; if the provider never gives one, set `quirks: {{end: lenient}}` in its file"
        ))
    }
}

impl Call {
    /// The block of the call.
    pub fn block(&self) -> Block {
        Block::Call {
            id: self.id.clone(),
            name: self.name.clone(),
            input: self.arguments.sent().clone(),
        }
    }
}

impl Arguments {
    /// The arguments as they are sent back.
    pub const fn sent(&self) -> &Object {
        match self {
            Self::Object(object) => object,
            Self::Refused(refused) => &refused.sent,
        }
    }
}

/// The arguments that a text holds, or what is wrong with it.
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

/// A call as it came, all of it.
#[derive(Debug)]
pub(super) struct Came<'a> {
    /// Its place in the message.
    pub(super) position: u32,
    /// Empty if it has none.
    pub(super) id: &'a str,
    pub(super) name: &'a str,
    pub(super) arguments: &'a str,
    /// The object in the arguments, if they were read before.
    pub(super) object: Option<Object>,
    /// Whether there was more of the arguments than is kept.
    pub(super) is_too_large: bool,
    /// Whether the answer reached its most tokens in this call.
    pub(super) is_cut: bool,
}

/// The complete calls of an answer.
#[derive(Debug)]
pub(super) struct Calls {
    /// The turn, for ids that the provider does not give.
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

    /// Completes a call, of which `raw` makes the JSON that is sent back out of its id, its name and its arguments.
    pub(super) fn complete(
        &mut self,
        came: Came<'_>,
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

    /// The id of a call: its own, unless it has none that an answer can refer to.
    fn id(&mut self, came: &Came<'_>) -> String {
        let mut id = came.id.to_owned();
        if id.is_empty() || id.len() > MOST_ID || self.ids.contains(&id) {
            id = format!("call_{}_{}", self.turn, came.position);
        }
        while !self.ids.insert(id.clone()) {
            id.push('_');
        }
        id
    }

    fn arguments(&self, came: Came<'_>) -> Arguments {
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

    /// Why a call cannot be carried out, whatever its arguments are.
    fn unusable(&self, came: &Came<'_>) -> Option<(&'static str, String)> {
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

/// Arguments that are none, as they are sent back.
fn unparsed(text: &str) -> Object {
    let kept = text.floor_char_boundary(MOST_UNPARSED);
    Object::from_iter([("_unparsed".to_owned(), text[..kept].into())])
}

/// Adds `more` to the arguments of a call. Beyond their bound, which sets `is_too_large`, only the beginning is kept: it is sent back.
pub(super) fn add_arguments(arguments: &mut String, is_too_large: &mut bool, more: &str) {
    *is_too_large |= arguments.len() + more.len() > MOST_ARGUMENTS;
    if *is_too_large {
        arguments.push_str(&more[..more.floor_char_boundary(MOST_UNPARSED)]);
        arguments.truncate(arguments.floor_char_boundary(MOST_UNPARSED));
    } else {
        arguments.push_str(more);
    }
}

/// What a stream has brought, against its bounds.
#[derive(Debug, Default)]
pub(super) struct Meter {
    bytes: usize,
    unknown: u32,
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
}

/// The data of an event that has just this shape; `None` if it has another, or is no JSON. An event of the usual shape is read without
/// anything in between, and of all others the reader of any shape says what they are.
pub(super) fn shaped<'a, T: Deserialize<'a>>(data: &'a str) -> Option<T> {
    serde_json::from_str(data).ok()
}

pub(super) fn malformed(what: impl Into<String>) -> Fault {
    Fault::Malformed(what.into())
}

/// The reason to stop that `word` names, among those that an api has. One that reports an error is an error; any other is taken as the
/// end of the message, with a warning.
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
