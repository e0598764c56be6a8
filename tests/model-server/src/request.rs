//! Content of a request, independent of its API.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Instant;

use rye_core::expr::parse_json;
use rye_core::provider::Api;
use rye_core::seal::sha256_hex;
use serde_json::Value;

use super::field::Field;

/// A request that was answered.
#[derive(Debug, Clone)]
pub struct Request {
    pub api: Api,
    /// Name of the directive in its first message.
    pub directive: Option<String>,
    /// Number of messages of the model plus 1.
    pub turn: usize,
    pub body: Value,
    /// Time at which its headers had arrived.
    pub arrived: Instant,
    /// Time at which each event of its answer was given to the connection.
    pub(super) sent: Arc<Mutex<Vec<Instant>>>,
    /// Time at which the end of its answer was given to the connection.
    pub(super) ended: Arc<OnceLock<Instant>>,
}

impl Request {
    /// Returns the time at which each event of its answer, so far, was given to the connection.
    pub fn sent(&self) -> Vec<Instant> {
        let sent = self.sent.lock();
        sent.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns the time at which the end of its answer was given to the connection; `None` before that.
    pub fn ended(&self) -> Option<Instant> {
        self.ended.get().copied()
    }
}

/// A request whose body follows the rules of its API.
pub(super) struct ParsedRequest {
    pub(super) api: Api,
    pub(super) model: String,
    /// Name of the directive in the first message of the user.
    pub(super) directive: Option<String>,
    /// Number of messages of the model plus 1.
    pub(super) turn: usize,
    pub(super) newest_text: String,
    pub(super) results: Vec<String>,
    /// True if the client requests usage in the stream.
    pub(super) requests_usage: bool,
    /// Messages, without those of the system.
    pub(super) messages: Vec<Turn>,
    /// For each message and for the end, a digest of everything before it, with the model and the system prompt.
    pub(super) chain: Vec<String>,
}

#[derive(Default)]
pub(super) struct Turn {
    /// The message as JSON, without cache breakpoints.
    pub(super) json: String,
    /// Blocks of a message of the model.
    pub(super) blocks: Option<Vec<String>>,
    /// Text of the user.
    pub(super) text: String,
    /// Results of tools.
    pub(super) results: Vec<String>,
}

impl ParsedRequest {
    /// Derives the request from its parsed body.
    pub(super) fn new(api: Api, body: &Value, system: &str, messages: Vec<Turn>) -> Self {
        let model = body["model"].as_str().unwrap_or_default().to_owned();
        let mut chain = vec![sha256_hex(format!("{api:?}\n{model}\n{system}"))];
        for message in &messages {
            let before = chain.last().map_or("", String::as_str);
            chain.push(sha256_hex(format!("{before}\n{}", message.json)));
        }
        let texts = || messages.iter().filter(|turn| !turn.text.is_empty());
        let first = texts().next().map_or("", |turn| &turn.text);
        let newest = messages.iter().rev();
        let newest = newest.skip_while(|turn| turn.results.is_empty());
        let results = newest.take_while(|turn| !turn.results.is_empty());
        Self {
            api,
            model,
            directive: directive(first),
            turn: messages.iter().filter(|turn| turn.blocks.is_some()).count() + 1,
            newest_text: texts()
                .next_back()
                .map_or_else(String::new, |turn| turn.text.clone()),
            results: results.flat_map(|turn| turn.results.clone()).collect(),
            requests_usage: true,
            chain,
            messages,
        }
    }

    /// Makes an id that a repeated request gets again.
    pub(super) fn made_id(&self, prefix: &str, of: usize) -> String {
        let all = self.chain.last().map_or("", String::as_str);
        let digest = sha256_hex(format!("{all}/{of}"));
        format!("{prefix}{}", &digest[..22])
    }
}

/// Returns the name of the directive in a message.
fn directive(message: &str) -> Option<String> {
    let (_, rest) = message.split_once("<directive name=\"")?;
    let (name, _) = rest.split_once('"')?;
    Some(name.to_owned())
}

/// Adds the id of a call, and refuses a duplicate in one message.
pub(super) fn add_call(calls: &mut Vec<String>, id: &Field<'_>) -> Result<(), String> {
    let name = id.words()?.to_owned();
    if calls.contains(&name) {
        return Err(id.wrong(&format!("is `{name}` a second time in one message")));
    }
    calls.push(name);
    Ok(())
}

/// Checks that `answers` answers each call of a message once.
pub(super) fn check_answers(
    calls: &[String],
    answers: &[(String, Field<'_>)],
) -> Result<(), String> {
    let mut seen = HashSet::new();
    for (id, field) in answers {
        if !calls.contains(id) {
            return Err(field.wrong(&format!(
                "answers `{id}`, which the message before does not call"
            )));
        }
        if !seen.insert(id) {
            return Err(field.wrong(&format!("answers `{id}` a second time")));
        }
    }
    let open = calls.iter().find(|id| !seen.contains(id));
    open.map_or(Ok(()), |id| {
        Err(format!(
            "the call `{id}` has no answer right behind its message"
        ))
    })
}

/// Returns the arguments of a call in the form of later requests. Text that Rye rejects as an object, such as one with
/// a duplicate key or an unbounded integer, is replaced by a marker.
pub(super) fn arguments(text: &str) -> Value {
    let text = if text.trim().is_empty() { "{}" } else { text };
    match parse_json(text) {
        Ok(Value::Object(object)) => unparsed(Value::Object(object)),
        Ok(_) | Err(_) => serde_json::json!({"_unparsed": true}),
    }
}

/// Replaces the text that the input of a call quotes from rejected arguments by a marker.
pub(super) fn unparsed(mut input: Value) -> Value {
    if let Some(quoted) = input.get_mut("_unparsed") {
        *quoted = Value::Bool(true);
    }
    input
}

/// Splits a text into pieces, as a model sends it.
pub(super) fn pieces(text: &str) -> impl Iterator<Item = &str> {
    const MOST: usize = 12;
    let mut rest = text;
    std::iter::from_fn(move || {
        let end = rest
            .char_indices()
            .nth(MOST)
            .map_or(rest.len(), |(at, _)| at);
        let (piece, after) = rest.split_at(end);
        rest = after;
        (!piece.is_empty()).then_some(piece)
    })
}
