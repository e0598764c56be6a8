//! Walk from the newest entry of a conversation back to its root.

use super::{Block, Digest, Entry, Message, Root};
use crate::error::{ErrorKind, Kinded};

/// Largest number of entries of one conversation: far more turns than a context holds.
const MOST_ENTRIES: usize = 100_000;

/// A complete conversation.
#[derive(Debug, Clone, PartialEq)]
pub struct Conversation {
    pub root: Root,
    /// Name of the entry with the root.
    pub first: Digest,
    /// Name of the newest entry.
    pub head: Digest,
    /// Last turn that ended.
    pub turn: u32,
    pub messages: Vec<Message>,
}

/// Defect of an entry.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EntryFault {
    /// The entry is not in the store.
    #[error("is missing")]
    Missing,
    /// The store holds another text under its name.
    #[error("was changed after it was written")]
    Changed,
    #[error("cannot be read: {0}")]
    Unreadable(String),
    #[error("does not belong there: {0}")]
    Misplaced(&'static str),
    #[error("cannot be loaded: {0}")]
    Store(String),
}

/// Defect that makes a conversation incomplete, with its entry.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the entry {entry} of the conversation {fault}")]
pub struct Damage {
    pub entry: Digest,
    pub fault: EntryFault,
}

impl Kinded for Damage {
    fn kind(&self) -> ErrorKind {
        match self.fault {
            EntryFault::Missing
            | EntryFault::Changed
            | EntryFault::Unreadable(_)
            | EntryFault::Misplaced(_) => ErrorKind::DataLoss,
            EntryFault::Store(_) => ErrorKind::Unavailable,
        }
    }
}

/// Reads a conversation from its newest entry. `load` returns the text of an entry, or `None` if the store has none.
pub fn walk(
    head: &Digest,
    mut load: impl FnMut(&Digest) -> Result<Option<String>, String>,
) -> Result<Conversation, Damage> {
    let mut entries: Vec<(Digest, Entry)> = Vec::new();
    let mut wanted = Some(*head);
    while let Some(name) = wanted.take() {
        let below = entries.last().map(|(_, entry)| entry.turn);
        let entry = read(&name, &mut load)
            .and_then(|entry| {
                check_position(&entry, below, entries.len())?;
                Ok(entry)
            })
            .map_err(|fault| Damage { entry: name, fault })?;
        wanted.clone_from(&entry.prev);
        entries.push((name, entry));
    }
    let turn = entries.first().map_or(0, |(_, entry)| entry.turn);
    join(entries, *head, turn)
}

fn read(
    name: &Digest,
    load: &mut impl FnMut(&Digest) -> Result<Option<String>, String>,
) -> Result<Entry, EntryFault> {
    let text = load(name)
        .map_err(EntryFault::Store)?
        .ok_or(EntryFault::Missing)?;
    if Digest::of(&text) != *name {
        return Err(EntryFault::Changed);
    }
    Entry::decode(&text).map_err(EntryFault::Unreadable)
}

/// Checks that an entry may precede an entry of turn `after`, when the walk has read `behind` entries already.
fn check_position(entry: &Entry, after: Option<u32>, behind: usize) -> Result<(), EntryFault> {
    let is_first = entry.prev.is_none();
    if is_first != entry.root.is_some() {
        return Err(EntryFault::Misplaced(
            "the first entry, and no other, has a root",
        ));
    }
    if after.is_some_and(|after| entry.turn >= after) {
        return Err(EntryFault::Misplaced(
            "its turn is not below the one that follows",
        ));
    }
    if behind >= MOST_ENTRIES {
        return Err(EntryFault::Misplaced("too many follow it"));
    }
    Ok(())
}

/// Joins entries, given newest first, in order.
fn join(entries: Vec<(Digest, Entry)>, head: Digest, turn: u32) -> Result<Conversation, Damage> {
    let mut entries = entries.into_iter().rev();
    let (first, entry) = entries.next().expect("the walk begins with an entry");
    let root = entry
        .root
        .expect("the entry before which there is none has a root");
    let mut conversation = Conversation {
        root,
        head: first,
        first,
        turn,
        messages: Vec::new(),
    };
    for (name, messages) in [(conversation.first, entry.messages)]
        .into_iter()
        .chain(entries.map(|(name, entry)| (name, entry.messages)))
    {
        conversation
            .append(messages)
            .map_err(|fault| Damage { entry: name, fault })?;
    }
    conversation.head = head;
    Ok(conversation)
}

impl Conversation {
    /// Begins a conversation with the entry `first`.
    pub fn begin(first: Digest, root: Root, messages: Vec<Message>) -> Result<Self, EntryFault> {
        let mut conversation = Self {
            root,
            head: first,
            first,
            turn: 0,
            messages: Vec::new(),
        };
        conversation.append(messages)?;
        Ok(conversation)
    }

    /// Adds the entry of a turn. After a fault the conversation is unusable.
    pub fn push(
        &mut self,
        name: Digest,
        turn: u32,
        messages: Vec<Message>,
    ) -> Result<(), EntryFault> {
        self.append(messages)?;
        self.head = name;
        self.turn = turn;
        Ok(())
    }

    /// Returns the ids of the last message's calls that have no result yet, in order.
    pub fn unanswered(&self) -> Vec<&str> {
        let is_said = |message: &Message| matches!(message, Message::Assistant { .. });
        let last = self.messages.iter().rposition(is_said);
        let Some((asked, after)) = last.and_then(|at| self.messages[at..].split_first()) else {
            return Vec::new();
        };
        let answered: Vec<&str> = after.iter().flat_map(Message::results).collect();
        asked.calls().filter(|id| !answered.contains(id)).collect()
    }

    /// Returns the approximate number of bytes that a provider reads.
    pub fn bytes(&self) -> usize {
        let messages: usize = self.messages.iter().map(Message::bytes).sum();
        self.root.bytes() + messages
    }

    /// Adds messages. Each block must be on its own side, and each result must answer an open call.
    fn append(&mut self, messages: Vec<Message>) -> Result<(), EntryFault> {
        for message in messages {
            let is_assistant = matches!(message, Message::Assistant { .. });
            let fits = |block: &Block| match block {
                Block::Text { .. } => true,
                Block::Thinking { .. } | Block::Call { .. } => is_assistant,
                Block::Result { .. } => !is_assistant,
            };
            if !message.blocks().iter().all(fits) {
                return Err(EntryFault::Misplaced("a block is on the wrong side"));
            }
            let open = self.unanswered();
            if is_assistant && !open.is_empty() {
                return Err(EntryFault::Misplaced("calls were not answered"));
            }
            let mut seen = Vec::new();
            for id in message.results() {
                if !open.contains(&id) || seen.contains(&id) {
                    return Err(EntryFault::Misplaced("a result answers no open call"));
                }
                seen.push(id);
            }
            let mut calls: Vec<&str> = message.calls().collect();
            calls.sort_unstable();
            if calls.windows(2).any(|pair| pair[0] == pair[1]) {
                return Err(EntryFault::Misplaced("two calls have one id"));
            }
            self.messages.push(message);
        }
        Ok(())
    }
}
