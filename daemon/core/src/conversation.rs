//! Conversations with models: an append-only list of entries, linked by digest.
//!
//! **Owns** the form of a conversation that is nobody's in particular: [blocks](Block), [messages](Message), [entries](Entry) and
//! their one text, the way back from the newest entry to the first, and the estimate of tokens. **Never** stores anything, and
//! knows no provider: what a provider sent is kept beside the blocks as [`Raw`], byte for byte, and goes back to nobody else.
//!
//! ```text
//! root entry {root, first user message} ◄─prev─ entry {turn 1} ◄─prev─ entry {turn 2} ◄── head
//! ```
//!
//! The entry of a turn holds the texts delivered before it, the answer of the model, and the results of its calls in their order.
//! What was sent is never changed: whatever changes a conversation begins another root ([`Conversation::reseeded`]).
//! **Failure.** An entry that is missing, damaged, or not where it belongs ends the walk with a [`Damage`] that names it.

mod reseed;
mod walk;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

pub use crate::digest::Digest;
use crate::digest::Encoded;
use crate::expr::Object;

pub use reseed::Reseed;
pub use walk::{Conversation, Damage, Fault, walk};

/// The version of the form.
const SCHEMA: u32 = 1;
const KIND: &str = "conversation";

/// One entry.
#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    /// The entry before; `None` for that of the root.
    pub prev: Option<Digest>,
    /// What the conversation is about, in the first entry only.
    pub root: Option<Root>,
    /// The turn it ends; 0 for that of the root.
    pub turn: u32,
    /// What was said.
    pub messages: Vec<Message>,
}

/// What a conversation begins with, and what never changes in it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Root {
    /// The system prompt.
    pub system: Option<String>,
    /// The tools that the model may call, in the order in which it gets them.
    pub tools: Vec<Tool>,
    /// How it calls them.
    pub tool_mode: ToolMode,
    /// The model it is held with.
    pub origin: Origin,
}

/// A tool that the model may call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Tool {
    /// The name by which it is called.
    pub name: String,
    /// What it is for.
    pub description: String,
    /// JSON Schema of its arguments.
    pub schema: Value,
}

/// How a model calls tools.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToolMode {
    /// By the means of its api.
    #[default]
    Native,
}

/// Who said something: a model of a provider.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Origin {
    /// The name of the provider.
    pub provider: String,
    /// The id of the model.
    pub model: String,
}

/// What a provider sent, as JSON text: it goes back to the model it came from byte for byte.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Raw(pub String);

/// One message.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "role", rename_all = "snake_case")]
pub enum Message {
    /// What the model receives.
    User {
        /// Where it came from.
        source: Source,
        /// What it says.
        blocks: Vec<Block>,
    },
    /// What the model said.
    Assistant {
        /// Which model.
        origin: Origin,
        /// What it said.
        blocks: Vec<Block>,
        /// The same as it was received; `None` if it was made up from blocks.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        raw: Option<Raw>,
        /// Why it stopped; `None` if it was cut off.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        stop: Option<Stop>,
        /// Whether it is the part of a message that was saved when its stream broke.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        partial: bool,
    },
}

/// A part of a message.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Block {
    /// A text.
    Text {
        /// It.
        text: String,
    },
    /// What the model thought, as far as it says.
    Thinking {
        /// It.
        text: String,
    },
    /// A call of a tool.
    Call {
        /// The id by which it is answered.
        id: String,
        /// The name of the tool.
        name: String,
        /// The arguments.
        input: Object,
    },
    /// The answer to a call.
    Result {
        /// The id of the call.
        id: String,
        /// What came of it.
        content: String,
        /// Whether it failed.
        is_error: bool,
    },
}

/// Where a message of the user's side came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// The prompt of the directive.
    Directive,
    /// Somebody wrote it while the thread ran.
    Message,
    /// The thread reminds the model of what it was asked for.
    Nudge,
    /// A hook.
    Hook,
    /// A summary of an earlier conversation.
    Summary,
    /// The prompt of a thread that continues.
    Continuation,
    /// The results of calls.
    Tools,
}

/// Why a model stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stop {
    /// It was done.
    End,
    /// It waits for the results of its calls.
    Calls,
    /// It may say no more at once.
    Length,
    /// The context is full.
    Window,
    /// It refuses.
    Refusal,
    /// It made a call that is none.
    BadCall,
    /// It wants to be called again.
    Pause,
}

impl Message {
    /// A text of the user's side.
    pub fn text(source: Source, text: impl Into<String>) -> Self {
        Self::User {
            source,
            blocks: vec![Block::Text { text: text.into() }],
        }
    }

    /// What it says.
    pub fn blocks(&self) -> &[Block] {
        match self {
            Self::User { blocks, .. } | Self::Assistant { blocks, .. } => blocks,
        }
    }

    /// Its texts as paragraphs, without reasoning, calls and results.
    pub fn plain_text(&self) -> String {
        let texts = self.blocks().iter().filter_map(|block| match block {
            Block::Text { text } => Some(text.as_str()),
            Block::Thinking { .. } | Block::Call { .. } | Block::Result { .. } => None,
        });
        texts.collect::<Vec<_>>().join("\n\n")
    }

    /// The ids of the calls in it, in order.
    pub fn calls(&self) -> impl Iterator<Item = &str> {
        self.blocks().iter().filter_map(|block| match block {
            Block::Call { id, .. } => Some(id.as_str()),
            Block::Text { .. } | Block::Thinking { .. } | Block::Result { .. } => None,
        })
    }

    /// The ids of the calls that it answers, in order.
    pub fn results(&self) -> impl Iterator<Item = &str> {
        self.blocks().iter().filter_map(|block| match block {
            Block::Result { id, .. } => Some(id.as_str()),
            Block::Text { .. } | Block::Thinking { .. } | Block::Call { .. } => None,
        })
    }

    /// About how many bytes a provider gets to read.
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
    /// About how many bytes a provider gets to read.
    pub fn bytes(&self) -> usize {
        let of_tool = |tool: &Tool| {
            tool.name.len() + tool.description.len() + crate::seal::canonical(&tool.schema).len()
        };
        let tools: usize = self.tools.iter().map(of_tool).sum();
        self.system.as_ref().map_or(0, String::len) + tools
    }
}

impl Entry {
    /// The first entry of a conversation.
    pub const fn root(root: Root, messages: Vec<Message>) -> Self {
        Self {
            prev: None,
            root: Some(root),
            turn: 0,
            messages,
        }
    }

    /// The entry of a turn, after another one.
    pub const fn turn(prev: Digest, turn: u32, messages: Vec<Message>) -> Self {
        Self {
            prev: Some(prev),
            root: None,
            turn,
            messages,
        }
    }

    /// About how many bytes a provider gets to read.
    pub fn bytes(&self) -> usize {
        let messages: usize = self.messages.iter().map(Message::bytes).sum();
        self.root.as_ref().map_or(0, Root::bytes) + messages
    }

    /// Its one text, and its name.
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

    /// Reads the text of an entry. The error says what it is instead.
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

/// An entry as it is stored.
#[derive(Deserialize)]
struct Stored {
    schema: u32,
    kind: String,
    prev: Option<Digest>,
    root: Option<Root>,
    turn: u32,
    messages: Vec<Message>,
}

/// How many bytes of text make a token of a model, on the safe side. A thousandth of a byte is the finest there is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct TokenSize {
    thousandths: u32,
}

impl TokenSize {
    /// So many thousandths of a byte; `None` for none at all, and for more than a thousand bytes.
    pub fn from_thousandths(thousandths: u32) -> Option<Self> {
        (1..=1_000_000)
            .contains(&thousandths)
            .then_some(Self { thousandths })
    }

    /// The tokens that so many bytes may be, rounded up.
    pub fn tokens(self, bytes: usize) -> u64 {
        let thousandths = u128::try_from(bytes)
            .unwrap_or(u128::MAX)
            .saturating_mul(1000);
        u64::try_from(thousandths.div_ceil(self.thousandths.into())).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests;
