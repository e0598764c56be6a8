//! What a request says, in words that are no api's own.

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
    /// The api that it was made of.
    pub api: Api,
    /// The directive that its first message holds.
    pub directive: Option<String>,
    /// Its turn: one more than it has messages of the model.
    pub turn: usize,
    /// Its body.
    pub body: Value,
    /// When its headers were there.
    pub arrived: Instant,
    /// When each event of its answer was given to the connection.
    pub(super) sent: Arc<Mutex<Vec<Instant>>>,
    /// When the last of its answer was given to the connection.
    pub(super) ended: Arc<OnceLock<Instant>>,
}

impl Request {
    /// When each event of its answer was given to the connection, as far as that has come.
    pub fn sent(&self) -> Vec<Instant> {
        let sent = self.sent.lock();
        sent.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// When the last of its answer was given to the connection; `None` before that.
    pub fn ended(&self) -> Option<Instant> {
        self.ended.get().copied()
    }
}

/// A request whose body follows the rules of its api.
pub(super) struct Asked {
    /// The api.
    pub(super) api: Api,
    /// The model.
    pub(super) model: String,
    /// The directive that the first message of the user holds.
    pub(super) directive: Option<String>,
    /// One more than there are messages of the model.
    pub(super) turn: usize,
    /// The newest text of the user.
    pub(super) said: String,
    /// The newest results of tools.
    pub(super) results: Vec<String>,
    /// Whether the stream is to tell what was used.
    pub(super) wants_usage: bool,
    /// Its messages; not those of the system.
    pub(super) messages: Vec<Turn>,
    /// For each message, and for the end, a digest of all before it: the model and the system prompt included.
    pub(super) chain: Vec<String>,
}

/// A message.
#[derive(Default)]
pub(super) struct Turn {
    /// All of it but marks of a cache, as JSON.
    pub(super) json: String,
    /// Its blocks, if it is the model's.
    pub(super) blocks: Option<Vec<String>>,
    /// What the user says in it.
    pub(super) text: String,
    /// The results that it brings.
    pub(super) results: Vec<String>,
}

impl Asked {
    /// Puts together what the body of a request says.
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
            said: texts()
                .next_back()
                .map_or_else(String::new, |turn| turn.text.clone()),
            results: results.flat_map(|turn| turn.results.clone()).collect(),
            wants_usage: true,
            chain,
            messages,
        }
    }

    /// An id that a repeated request gets again.
    pub(super) fn made_id(&self, prefix: &str, of: usize) -> String {
        let all = self.chain.last().map_or("", String::as_str);
        let digest = sha256_hex(format!("{all}/{of}"));
        format!("{prefix}{}", &digest[..22])
    }
}

/// The name of the directive that a message holds.
fn directive(message: &str) -> Option<String> {
    let (_, rest) = message.split_once("<directive name=\"")?;
    let (name, _) = rest.split_once('"')?;
    Some(name.to_owned())
}

/// Adds the id of a call to those of its message.
pub(super) fn add_call(calls: &mut Vec<String>, id: &Field<'_>) -> Result<(), String> {
    let name = id.words()?.to_owned();
    if calls.contains(&name) {
        return Err(id.wrong(&format!("is `{name}` a second time in one message")));
    }
    calls.push(name);
    Ok(())
}

/// Checks that the calls of a message are what `answers` name, each once.
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

/// The arguments of a call as they come back. What Rye does not take for an object (it has a key twice, or an integer beyond all
/// bounds) comes back as one that says so.
pub(super) fn arguments(text: &str) -> Value {
    let text = if text.trim().is_empty() { "{}" } else { text };
    match parse_json(text) {
        Ok(Value::Object(object)) => unparsed(Value::Object(object)),
        Ok(_) | Err(_) => serde_json::json!({"_unparsed": true}),
    }
}

/// The input of a call that came back, without what it quotes of arguments that were none.
pub(super) fn unparsed(mut input: Value) -> Value {
    if let Some(quoted) = input.get_mut("_unparsed") {
        *quoted = Value::Bool(true);
    }
    input
}

/// A text in pieces, as a model says it.
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
