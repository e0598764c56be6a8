//! A conversation under another root: what was said in it is restated.
//!
//! A provider takes reasoning back only as it sent it, and with all that was said between. Where it does not take it back at all, the
//! conversation begins again without: the prompt and the tools stay as they were, and of all that was said and done nothing is lost
//! but the reasoning.

use std::fmt::Write as _;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Block, Conversation, Entry, Message, Source};

/// How a model takes calls and results that are not from its own mouth.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reseed {
    /// As text: it signs its reasoning, and would miss it.
    Text,
    /// As calls and results.
    Pairs,
}

/// What stands before all that was said and done, where it is sent as a text.
const TOLD: &str = "This is what you have said and done so far. Continue from there.";

impl Conversation {
    /// The first entry of the same conversation without reasoning, for a model that takes it as `how` says.
    pub fn reseeded(self, how: Reseed) -> Entry {
        let is_said = |message: &Message| matches!(message, Message::Assistant { .. });
        let begins = self.messages.iter().position(is_said);
        let mut messages = self.messages;
        let said = messages.split_off(begins.unwrap_or(messages.len()));
        match how {
            Reseed::Pairs => messages.extend(said.into_iter().filter_map(neutral)),
            Reseed::Text if said.is_empty() => {}
            Reseed::Text => messages.push(Message::text(Source::Summary, told(&said))),
        }
        Entry::root(self.root, messages)
    }
}

/// The message as nobody in particular said it; `None` if it was nothing but reasoning.
fn neutral(message: Message) -> Option<Message> {
    match message {
        Message::User { .. } => Some(message),
        Message::Assistant {
            origin,
            mut blocks,
            stop,
            partial,
            raw: _,
        } => {
            blocks.retain(|block| !matches!(block, Block::Thinking { .. }));
            (!blocks.is_empty()).then_some(Message::Assistant {
                origin,
                blocks,
                raw: None,
                stop,
                partial,
            })
        }
    }
}

/// The messages as one text. What was said cannot be mistaken for what encloses it.
fn told(messages: &[Message]) -> String {
    let mut text = TOLD.to_owned();
    for message in messages {
        let speaker = match message {
            Message::User { .. } => "user",
            Message::Assistant { .. } => "assistant",
        };
        for block in message.blocks() {
            let added = match block {
                Block::Text { text: said } => {
                    write!(text, "\n\n<{speaker}>\n{}\n</{speaker}>", plain(said))
                }
                Block::Thinking { .. } => Ok(()),
                Block::Call { id, name, input } => {
                    let input = Value::Object(input.clone()).to_string();
                    let (id, name, input) = (quoted(id), quoted(name), plain(&input));
                    write!(text, "\n\n<call id=\"{id}\" name=\"{name}\">{input}</call>")
                }
                Block::Result {
                    id,
                    content,
                    is_error,
                } => {
                    let (id, content) = (quoted(id), plain(content));
                    let failed = if *is_error { " error=\"true\"" } else { "" };
                    write!(
                        text,
                        "\n\n<result id=\"{id}\"{failed}>\n{content}\n</result>"
                    )
                }
            };
            added.expect("writing to a String cannot fail");
        }
    }
    text
}

/// A text between tags.
fn plain(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;")
}

/// A text within the quotes of an attribute.
fn quoted(text: &str) -> String {
    plain(text).replace('"', "&quot;")
}
