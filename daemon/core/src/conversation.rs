//! Conversations with models: an append-only list of entries, linked by digest.
//!
//! **Owns** the provider-independent form of a conversation: [blocks](Block), [messages](Message), [entries](Entry) and
//! their canonical text, the walk from the newest entry back to the first, and the estimate of tokens. **Never** stores
//! anything, and knows no provider. A provider's own text of a message is kept with the blocks as [`Raw`], byte for
//! byte, and is sent only to the model that it came from.
//!
//! ```text
//! root entry {root, first user message} ◄─prev─ entry {turn 1} ◄─prev─ entry {turn 2} ◄── head
//! ```
//!
//! The entry of a turn holds the texts delivered before it, the model's answer, and the results of its calls in order.
//! Sent text never changes: a change to a conversation begins another root ([`Conversation::reseeded`]). **Failure.** A
//! missing, damaged or misplaced entry ends the walk with a [`Damage`] that names it.

mod reseed;
mod walk;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

pub use crate::digest::Digest;
use crate::digest::Encoded;
use crate::expr::Object;

pub use reseed::Reseed;
pub use walk::{Conversation, Damage, EntryFault, walk};

/// Version of the stored form.
const SCHEMA: u32 = 1;
const KIND: &str = "conversation";

#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    /// Digest of the previous entry; `None` in the root entry.
    pub prev: Option<Digest>,
    /// Present in the first entry only.
    pub root: Option<Root>,
    /// Turn that the entry ends; 0 for the root entry.
    pub turn: u32,
    pub messages: Vec<Message>,
}

/// Beginning of a conversation; it never changes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Root {
    /// System prompt.
    pub system: Option<String>,
    /// Tools that the model may call, in the order in which they are sent.
    pub tools: Vec<Tool>,
    pub tool_mode: ToolMode,
    /// Model of the conversation.
    pub origin: Origin,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Tool {
    pub name: String,
    pub description: String,
    /// JSON Schema of the arguments.
    pub schema: Value,
}

/// Way in which a model calls tools.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToolMode {
    /// By the means of its API.
    #[default]
    Native,
}

/// Model of a provider that wrote a message.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Origin {
    pub provider: String,
    pub model: String,
}

/// JSON text that a provider sent. It goes back to the same model byte for byte.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Raw(pub String);

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "role", rename_all = "snake_case")]
pub enum Message {
    /// Input of the model.
    User { source: Source, blocks: Vec<Block> },
    /// Output of the model.
    Assistant {
        origin: Origin,
        blocks: Vec<Block>,
        /// The message as received; `None` if it was built from blocks.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        raw: Option<Raw>,
        /// Reason why the model stopped; `None` if its stream was cut off.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        stop: Option<Stop>,
        /// True if only a part of the message was saved when its stream broke.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        partial: bool,
    },
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Block {
    Text {
        text: String,
    },
    /// Reasoning of the model, as far as the provider discloses it.
    Thinking {
        text: String,
    },
    Call {
        /// Id that the result refers to.
        id: String,
        name: String,
        input: Object,
    },
    Result {
        id: String,
        content: String,
        is_error: bool,
    },
}

/// Origin of a message of the user's side.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// Prompt of the directive.
    Directive,
    /// Message that somebody sent while the thread ran.
    Message,
    /// Reminder of the required output, sent by the thread.
    Nudge,
    Hook,
    /// Summary of an earlier conversation.
    Summary,
    /// Prompt of a thread that continues.
    Continuation,
    /// Results of calls.
    Tools,
}

/// Reason why a model stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stop {
    /// The answer is complete.
    End,
    /// The model waits for the results of its calls.
    Calls,
    /// The answer reached its length limit.
    Length,
    /// The context is full.
    Window,
    /// The model refuses.
    Refusal,
    /// The model made an invalid call.
    BadCall,
    /// The model requests to be called again.
    Pause,
}

impl Message {
    /// Creates a message of the user's side with one text.
    pub fn text(source: Source, text: impl Into<String>) -> Self {
        Self::User {
            source,
            blocks: vec![Block::Text { text: text.into() }],
        }
    }

    pub fn blocks(&self) -> &[Block] {
        match self {
            Self::User { blocks, .. } | Self::Assistant { blocks, .. } => blocks,
        }
    }

    /// Joins the texts of the message as paragraphs, without reasoning, calls and results.
    pub fn plain_text(&self) -> String {
        let texts = self.blocks().iter().filter_map(|block| match block {
            Block::Text { text } => Some(text.as_str()),
            Block::Thinking { .. } | Block::Call { .. } | Block::Result { .. } => None,
        });
        texts.collect::<Vec<_>>().join("\n\n")
    }

    /// Returns the ids of the calls in the message, in order.
    pub fn calls(&self) -> impl Iterator<Item = &str> {
        self.blocks().iter().filter_map(|block| match block {
            Block::Call { id, .. } => Some(id.as_str()),
            Block::Text { .. } | Block::Thinking { .. } | Block::Result { .. } => None,
        })
    }

    /// Returns the ids of the calls that the message answers, in order.
    pub fn results(&self) -> impl Iterator<Item = &str> {
        self.blocks().iter().filter_map(|block| match block {
            Block::Result { id, .. } => Some(id.as_str()),
            Block::Text { .. } | Block::Thinking { .. } | Block::Call { .. } => None,
        })
    }

    /// Returns the approximate number of bytes that a provider reads.
    pub fn bytes(&self) -> usize {
        let blocks = self.blocks().iter().map(Block::bytes).sum();
        match self {
            Self::Assistant {
                raw: Some(Raw(raw)),
                ..
            } => raw.len().max(blocks),
            Self::Assistant { raw: None, .. } | Self::User { .. } => blocks,
        }
    }
}

impl Block {
    fn bytes(&self) -> usize {
        match self {
            Self::Text { text } | Self::Thinking { text } => text.len(),
            Self::Call { id, name, input } => {
                id.len() + name.len() + crate::seal::canonical_object(input).len()
            }
            Self::Result { id, content, .. } => id.len() + content.len(),
        }
    }
}

impl Root {
    /// Returns the approximate number of bytes that a provider reads.
    pub fn bytes(&self) -> usize {
        let of_tool = |tool: &Tool| {
            tool.name.len() + tool.description.len() + crate::seal::canonical(&tool.schema).len()
        };
        let tools: usize = self.tools.iter().map(of_tool).sum();
        self.system.as_ref().map_or(0, String::len) + tools
    }
}

impl Entry {
    /// Creates the first entry of a conversation.
    pub const fn root(root: Root, messages: Vec<Message>) -> Self {
        Self {
            prev: None,
            root: Some(root),
            turn: 0,
            messages,
        }
    }

    /// Creates the entry of a turn that follows `prev`.
    pub const fn turn(prev: Digest, turn: u32, messages: Vec<Message>) -> Self {
        Self {
            prev: Some(prev),
            root: None,
            turn,
            messages,
        }
    }

    /// Returns the approximate number of bytes that a provider reads.
    pub fn bytes(&self) -> usize {
        let messages: usize = self.messages.iter().map(Message::bytes).sum();
        self.root.as_ref().map_or(0, Root::bytes) + messages
    }

    /// Returns the canonical text and its hash.
    pub fn encode(&self) -> Encoded {
        let mut object = Map::new();
        object.insert("schema".to_owned(), json!(SCHEMA));
        object.insert("kind".to_owned(), json!(KIND));
        object.insert("prev".to_owned(), json!(self.prev));
        if let Some(root) = &self.root {
            object.insert("root".to_owned(), json!(root));
        }
        object.insert("turn".to_owned(), json!(self.turn));
        object.insert("messages".to_owned(), json!(self.messages));
        Encoded::of(&Value::Object(object))
    }

    /// Reads the text of an entry. The error completes a sentence about the text.
    pub fn decode(text: &str) -> Result<Self, String> {
        let stored: Stored = serde_json::from_str(text).map_err(|error| error.to_string())?;
        if stored.schema != SCHEMA {
            return Err(format!(
                "it has the version {}, this release reads {SCHEMA}",
                stored.schema
            ));
        }
        if stored.kind != KIND {
            return Err("it is an object of another kind".to_owned());
        }
        Ok(Self {
            prev: stored.prev,
            root: stored.root,
            turn: stored.turn,
            messages: stored.messages,
        })
    }
}

/// An entry as stored.
#[derive(Deserialize)]
struct Stored {
    schema: u32,
    kind: String,
    prev: Option<Digest>,
    root: Option<Root>,
    turn: u32,
    messages: Vec<Message>,
}

/// Bytes of text in a token of a model, estimated low so that counts of tokens are safe. The resolution is 1/1000 byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct TokenSize {
    thousandths: u32,
}

impl TokenSize {
    /// Returns `None` for 0, and for more than 1,000 bytes per token.
    pub fn from_thousandths(thousandths: u32) -> Option<Self> {
        (1..=1_000_000)
            .contains(&thousandths)
            .then_some(Self { thousandths })
    }

    /// Returns the tokens that `bytes` bytes may be, rounded up.
    pub fn tokens(self, bytes: usize) -> u64 {
        let thousandths = u128::try_from(bytes)
            .unwrap_or(u128::MAX)
            .saturating_mul(1000);
        u64::try_from(thousandths.div_ceil(self.thousandths.into())).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests;
