//! Conversation of a live thread: entries on disk, and the encoded form in memory.
//!
//! **Order.** Memory follows the disk. A recovered thread reads its conversation once, at the first use. If the memory
//! limit of all runs leaves no room for a conversation, it is read before each call of the model.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rye_core::conversation::{Conversation, Digest, Entry, Message, Root, walk};
use rye_core::error::with_sources;
use rye_core::memory::Charge;
use rye_core::model::Failure;
use rye_core::provider::{ResolvedModel, Wire};
use rye_core::thread::{ArtifactRange, Reseeded, ThreadAnswer};

use rye_host::task;
use rye_journal::Journal;

pub(super) struct LiveConversation {
    journal: Arc<Journal>,
    /// Part in memory, if there is room.
    memory: Mutex<Option<InMemory>>,
}

/// A conversation in memory.
struct InMemory {
    /// Newest entry.
    head: Digest,
    /// All messages as they are sent.
    wire: Arc<Wire>,
    charge: Charge,
}

impl LiveConversation {
    pub(super) fn new(journal: &Arc<Journal>) -> Self {
        Self {
            journal: Arc::clone(journal),
            memory: Mutex::default(),
        }
    }

    fn memory(&self) -> MutexGuard<'_, Option<InMemory>> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts the conversation. Returns the name of its first entry, and its length in bytes.
    pub(super) async fn begin(
        &self,
        root: Root,
        first: Message,
        model: &ResolvedModel,
    ) -> Result<(Digest, usize), rye_journal::Error> {
        let entry = Entry::root(root.clone(), vec![first.clone()]);
        let head = self.keep(entry.encode().text).await?;
        let conversation = Conversation::begin(head, root, vec![first])
            .expect("a conversation may begin with a text");
        self.remember(&head, &conversation, model);
        Ok((head, conversation.bytes()))
    }

    /// Encodes the conversation up to `head`, and keeps it in memory if there is room.
    fn remember(
        &self,
        head: &Digest,
        conversation: &Conversation,
        model: &ResolvedModel,
    ) -> Arc<Wire> {
        let wire = Arc::new(Wire::new(conversation, model));
        let mut charge = self.journal.memory().open();
        let has_room = charge.grow(conversation.bytes());
        *self.memory() = has_room.then(|| InMemory {
            head: *head,
            wire: Arc::clone(&wire),
            charge,
        });
        wire
    }

    /// Appends the entry of a turn.
    pub(super) async fn push(&self, entry: Entry) -> Result<Digest, rye_journal::Error> {
        let head = self.keep(entry.encode().text).await?;
        let mut memory = self.memory();
        let follows = memory.as_mut().is_some_and(|known| {
            entry.prev.as_ref() == Some(&known.head) && known.charge.grow(entry.bytes())
        });
        match &mut *memory {
            // The machine repeats the request after a plan was rejected.
            Some(known) if known.head == head => {}
            Some(known) if follows => {
                let wire = Arc::make_mut(&mut known.wire);
                for message in &entry.messages {
                    wire.push(message);
                }
                known.head = head;
            }
            Some(_) | None => *memory = None,
        }
        Ok(head)
    }

    /// Body of a call of `model`: the conversation up to the entry `head`, then `told`.
    pub(super) async fn body(
        &self,
        head: &Digest,
        told: &[Message],
        model: &ResolvedModel,
        max_output: u32,
    ) -> Result<String, Failure> {
        let known = {
            let memory = self.memory();
            let known = memory.as_ref().filter(|known| known.head == *head);
            known.map(|known| Arc::clone(&known.wire))
        };
        let wire = if let Some(wire) = known {
            wire
        } else {
            let conversation = self.read(*head).await?;
            self.remember(head, &conversation, model)
        };
        if told.is_empty() {
            return Ok(wire.body(model, max_output));
        }
        let mut wire = Wire::clone(&wire);
        for message in told {
            wire.push(message);
        }
        Ok(wire.body(model, max_output))
    }

    /// Starts a new conversation with the content up to the entry `head`, without reasoning.
    pub(super) async fn reseed(
        &self,
        head: &Digest,
        model: &ResolvedModel,
    ) -> Result<ThreadAnswer, rye_journal::Error> {
        let conversation = match self.read(*head).await {
            Ok(conversation) => conversation,
            Err(failure) => return Ok(ThreadAnswer::Failed(failure)),
        };
        let turns = conversation.turn;
        let entry = conversation.reseeded(model.reseed);
        let root = self.keep(entry.encode().text).await?;
        Ok(ThreadAnswer::Reseeded(Reseeded {
            root,
            bytes: entry.bytes(),
            turns,
        }))
    }

    /// Stores `text` and returns its name.
    pub(super) async fn keep(&self, text: String) -> Result<Digest, rye_journal::Error> {
        self.journal.keep(text).await
    }

    /// The part of a long result that `reading` selects, as the model receives it.
    pub(super) async fn part(&self, reading: ArtifactRange) -> Result<String, Failure> {
        let journal = Arc::clone(&self.journal);
        let read = move || {
            let lost = |problem: String| Failure::permanent("data_loss", problem);
            let name = &reading.artifact;
            match journal.kept(name) {
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
                journal.kept(name).map_err(|error| with_sources(&error))
            })
        };
        let read = task::blocking("read a conversation", read).await;
        read.map_err(|damage| Failure::permanent("data_loss", damage.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use rye_core::conversation::{Block, Source, ToolMode};
    use rye_core::provider::ModelRequest;

    use super::*;
    use crate::models::Models;
    use crate::node::tests::rig::Rig;
    use crate::projects;

    #[tokio::test]
    async fn conversation_without_memory_is_read_before_each_call() {
        let rig = Rig::new();
        let daemon = rig.start().await;
        let project = rig.project("p", &[]);
        let choose = |inside: &projects::ProjectView<'_>| {
            let models = Models::read(inside.library).unwrap();
            let chosen = models.choose(&ModelRequest::default(), &|_, _| true);
            Ok::<_, projects::Error>(chosen.unwrap().0)
        };
        let model = daemon.projects.visit(&project, "choose", choose);
        let model = model.await.unwrap();
        let root = Root {
            system: Some("You count.".repeat(100)),
            tools: Vec::new(),
            tool_mode: ToolMode::Native,
            origin: model.origin(),
        };
        let first = Message::User {
            source: Source::Directive,
            blocks: vec![Block::Text {
                text: "One, two".to_owned(),
            }],
        };
        let memory = daemon.journal.memory();
        let before = memory.taken();
        let talk = LiveConversation::new(&daemon.journal);
        let (head, bytes) = talk.begin(root, first, &model).await.unwrap();
        assert_eq!(memory.taken(), before + bytes);
        let body = talk.body(&head, &[], &model, 100).await.unwrap();
        drop(talk);
        assert_eq!(memory.taken(), before);
        // Other runs use all of the memory.
        let others = memory.most() - before;
        memory.count(0, others);
        let talk = LiveConversation::new(&daemon.journal);
        for _ in 0..2 {
            let again = talk.body(&head, &[], &model, 100).await.unwrap();
            assert_eq!(again, body);
            assert!(talk.memory().is_none());
        }
        memory.count(others, 0);
        let again = talk.body(&head, &[], &model, 100).await.unwrap();
        assert_eq!(again, body);
        assert_eq!(memory.taken(), before + bytes);
        drop(talk);
        daemon.stop().await;
    }
}
