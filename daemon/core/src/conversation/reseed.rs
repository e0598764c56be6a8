//! A conversation under another root, in which earlier turns are restated.
//!
//! A provider accepts reasoning only as it sent it, and only within the unchanged conversation. If it does not accept
//! it any more, the conversation begins again without the reasoning. The prompt, the tools, and all texts, calls and
//! results are kept.

use std::fmt::Write as _;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Block, Conversation, Entry, Message, Source};

/// Form in which a model accepts calls and results that it did not make itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reseed {
    /// As text: the model signs its reasoning and expects it with its calls.
    Text,
    /// As calls and results.
    Pairs,
}

/// First line of the restated turns when they are sent as text.
const RESTATED_PREFACE: &str = "This is what you have said and done so far. Continue from there.";

impl Conversation {
    /// Returns the first entry of the same conversation without reasoning, in the form `how`.
    pub fn reseeded(self, how: Reseed) -> Entry {
        let is_said = |message: &Message| matches!(message, Message::Assistant { .. });
        let begins = self.messages.iter().position(is_said);
        let mut messages = self.messages;
        let said = messages.split_off(begins.unwrap_or(messages.len()));
        match how {
            Reseed::Pairs => messages.extend(said.into_iter().filter_map(neutral)),
            Reseed::Text if said.is_empty() => {}
            Reseed::Text => messages.push(Message::text(Source::Summary, restate(&said))),
        }
        Entry::root(self.root, messages)
    }
}

/// Removes reasoning and raw text from a message; returns `None` if only reasoning was in it.
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

/// Renders the messages as one text. The text of a message is escaped, so it cannot imitate the enclosing tags.
fn restate(messages: &[Message]) -> String {
    let mut text = RESTATED_PREFACE.to_owned();
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

/// Escapes a text between tags.
fn plain(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;")
}

/// Escapes a text within the quotes of an attribute.
fn quoted(text: &str) -> String {
    plain(text).replace('"', "&quot;")
}
