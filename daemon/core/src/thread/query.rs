//! The queries of a thread before its next move, and the answers.

use super::artifact::ArtifactRange;
use super::funds::Funds;
use crate::conversation::{Digest, Entry};
use crate::model::Failure;
use crate::model::thread::TurnWait;

/// A query of a thread, which the driver answers before its next move.
#[derive(Debug, Clone, PartialEq)]
pub enum ThreadQuery {
    /// Compose its prompt, and store the first entry of the conversation.
    Compose,
    /// The funds, once there is a slot at the provider.
    Funds,
    /// Store the entry of a turn.
    Keep(Entry),
    /// Restate the conversation without reasoning, and store its first entry.
    Reseed,
    /// Read a part of a long result, for the call at that position.
    Read(u32, ArtifactRange),
}

/// The answer to a query.
#[derive(Debug)]
pub enum ThreadAnswer {
    Composed(Box<Composed>),
    Funds(Funds),
    /// There is no slot at the provider yet. The query is repeated.
    Waits(TurnWait),
    /// Name of the entry, which is on disk.
    Kept(Digest),
    /// The restated conversation, which is on disk.
    Reseeded(Reseeded),
    /// The part of a long result, or the reason for which it cannot be read, for the call at that position.
    Read(u32, Result<String, Failure>),
    /// The model cannot be called at present, and a person can change that: a key is missing. The thread is suspended.
    Unusable(Failure),
    /// The query failed; the thread fails.
    Failed(Failure),
}

/// A composed prompt, which is on disk as the first entry of the conversation.
#[derive(Debug, Clone, PartialEq)]
pub struct Composed {
    pub system: Option<String>,
    pub message: String,
    pub head: Digest,
    /// Bytes that the model reads.
    pub bytes: usize,
    /// Warnings for the author of the directive.
    pub warnings: Vec<String>,
}

/// A restated conversation, which is on disk as one entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reseeded {
    pub root: Digest,
    /// Bytes that the model reads.
    pub bytes: usize,
    /// Number of turns that it restates.
    pub turns: u32,
}
