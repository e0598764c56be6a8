//! The conversation of a live thread: on disk entry by entry, in memory as it is sent.
//!
//! **Order.** What is in memory follows what is on disk. A thread that was recovered reads its conversation once, when it is needed first.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rye_core::conversation::{Conversation, Digest, Entry, Message, Root, walk};
use rye_core::error::with_sources;
use rye_core::model::Failure;
use rye_core::provider::{ResolvedModel, Wire};
use rye_core::thread::{Answer, Reading, Reseeded};

use crate::journal::{self, Journal};
use crate::task;

/// The conversation of a live thread.
pub(super) struct Talk {
    journal: Arc<Journal>,
    /// What is in memory of it.
    memory: Mutex<Option<Memory>>,
}

/// A conversation in memory.
struct Memory {
    /// The newest entry.
    head: Digest,
    /// All that was said, as it is sent.
    wire: Wire,
}

impl Talk {
    pub(super) fn new(journal: &Arc<Journal>) -> Self {
        Self {
            journal: Arc::clone(journal),
            memory: Mutex::default(),
        }
    }

    fn memory(&self) -> MutexGuard<'_, Option<Memory>> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins the conversation: the name of its first entry, and how much there is to read.
    pub(super) async fn begin(
        &self,
        root: Root,
        first: Message,
        model: &ResolvedModel,
    ) -> Result<(Digest, usize), journal::Error> {
        let entry = Entry::root(root.clone(), vec![first.clone()]);
        let head = self.keep(entry.encode().text).await?;
        let conversation = Conversation::begin(head.clone(), root, vec![first])
            .expect("a conversation may begin with a text");
        *self.memory() = Some(Memory {
            head: head.clone(),
            wire: Wire::new(&conversation, model),
        });
        Ok((head, conversation.bytes()))
    }

    /// Adds the entry of a turn.
    pub(super) async fn push(&self, entry: Entry) -> Result<Digest, journal::Error> {
        let head = self.keep(entry.encode().text).await?;
        let mut memory = self.memory();
        match &mut *memory {
            // A plan that was refused asks for the same again.
            Some(known) if known.head == head => {}
            Some(known) if entry.prev.as_ref() == Some(&known.head) => {
                for message in &entry.messages {
                    known.wire.push(message);
                }
                known.head = head.clone();
            }
            Some(_) | None => *memory = None,
        }
        Ok(head)
    }

    /// The body of a call of `model` behind the entry `head`, with `told` behind that.
    pub(super) async fn body(
        &self,
        head: &Digest,
        told: &[Message],
        model: &ResolvedModel,
        max_output: u32,
    ) -> Result<String, Failure> {
        let known = self.memory().as_ref().map(|memory| memory.head.clone());
        if known.as_ref() != Some(head) {
            let conversation = self.read(head.clone()).await?;
            *self.memory() = Some(Memory {
                head: head.clone(),
                wire: Wire::new(&conversation, model),
            });
        }
        let memory = self.memory();
        let memory = memory
            .as_ref()
            .expect("the conversation is in memory by now");
        if told.is_empty() {
            return Ok(memory.wire.body(model, max_output));
        }
        let mut wire = memory.wire.clone();
        for message in told {
            wire.push(message);
        }
        Ok(wire.body(model, max_output))
    }

    /// Tells the conversation up to the entry `head` anew, without reasoning.
    pub(super) async fn reseed(
        &self,
        head: &Digest,
        model: &ResolvedModel,
    ) -> Result<Answer, journal::Error> {
        let conversation = match self.read(head.clone()).await {
            Ok(conversation) => conversation,
            Err(failure) => return Ok(Answer::Failed(failure)),
        };
        let turns = conversation.turn;
        let entry = conversation.reseeded(model.reseed);
        let root = self.keep(entry.encode().text).await?;
        Ok(Answer::Reseeded(Reseeded {
            root,
            bytes: entry.bytes(),
            turns,
        }))
    }

    /// Keeps `text` under its name.
    pub(super) async fn keep(&self, text: String) -> Result<Digest, journal::Error> {
        let name = Digest::of(&text);
        self.journal.keep(text).await?;
        Ok(name)
    }

    /// The part of a long result that `reading` asks for, as the model receives it.
    pub(super) async fn part(&self, reading: Reading) -> Result<String, Failure> {
        let journal = Arc::clone(&self.journal);
        let read = move || {
            let lost = |problem: String| Failure::permanent("data_loss", problem);
            let name = &reading.artifact;
            let object = name.as_str().parse();
            let object = object.map_err(|error| lost(format!("{error}")))?;
            match journal.kept(&object) {
                Ok(Some(text)) => Ok(reading.part_of(&text)),
                Ok(None) => Err(lost(format!("the result `{name}` is gone"))),
                Err(error) => Err(lost(with_sources(&error))),
            }
        };
        task::blocking("read a long result", read).await
    }

    /// Reads the conversation from its newest entry.
    async fn read(&self, head: Digest) -> Result<Conversation, Failure> {
        let journal = Arc::clone(&self.journal);
        let read = move || {
            walk(&head, |name| {
                let name = name.as_str().parse().map_err(|error| format!("{error}"))?;
                journal.kept(&name).map_err(|error| with_sources(&error))
            })
        };
        let read = task::blocking("read a conversation", read).await;
        read.map_err(|damage| Failure::permanent("data_loss", damage.to_string()))
    }
}
