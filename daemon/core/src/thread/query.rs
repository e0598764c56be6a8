//! What a thread asks before its next move, and the answers.

use super::artifact::ArtifactRange;
use super::funds::Funds;
use crate::conversation::{Digest, Entry};
use crate::model::Failure;

/// What a thread has to find out before its next move.
#[derive(Debug, Clone, PartialEq)]
pub enum ThreadQuery {
    /// To put its prompt together, and to keep the entry with which the conversation begins.
    Compose,
    /// What may be spent, once there is a place at the provider.
    Funds,
    /// To keep the entry of a turn.
    Keep(Entry),
    /// To tell the conversation anew without reasoning, and to keep the entry with which it begins.
    Reseed,
    /// To read a part of a long result, for the call at that position.
    Read(u32, ArtifactRange),
}

/// What it is answered.
#[derive(Debug)]
pub enum ThreadAnswer {
    /// The prompt.
    Composed(Box<Composed>),
    /// What may be spent.
    Funds(Funds),
    /// The name of the entry, which is on disk.
    Kept(Digest),
    /// The restated conversation, which is on disk.
    Reseeded(Reseeded),
    /// The part of a long result, or why it cannot be read, for the call at that position.
    Read(u32, Result<String, Failure>),
    /// The model cannot be called as things are, and somebody can change that: a key is missing. The thread is suspended.
    Unusable(Failure),
    /// It cannot be done; the thread fails.
    Failed(Failure),
}

/// A prompt that was put together, and is on disk as the first entry of the conversation.
#[derive(Debug, Clone, PartialEq)]
pub struct Composed {
    /// The system prompt, if there is one.
    pub system: Option<String>,
    /// The first message.
    pub message: String,
    /// The first entry.
    pub head: Digest,
    /// Bytes that the model reads.
    pub bytes: usize,
    /// What the author of the directive should know.
    pub warnings: Vec<String>,
}

/// A conversation that was restated, and is on disk as one entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reseeded {
    /// The entry.
    pub root: Digest,
    /// Bytes that the model reads.
    pub bytes: usize,
    /// Turns of which it tells.
    pub turns: u32,
}
