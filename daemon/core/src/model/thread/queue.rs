//! What somebody says to a thread while its model is busy.

use std::collections::VecDeque;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// Most messages that wait for a thread.
pub const MOST_QUEUED: usize = 64;
/// The longest message.
pub const MOST_MESSAGE_BYTES: usize = 64 * 1024;

/// Messages that wait for the next call of the model, in the order in which they came.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Queue(VecDeque<Arc<str>>);

impl Queue {
    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether there is room for no other message.
    pub fn is_full(&self) -> bool {
        self.0.len() >= MOST_QUEUED
    }

    /// What waits, the oldest first.
    pub fn texts(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|text| &**text)
    }

    /// Adds a message; `false` if there is no room for it.
    pub fn push(&mut self, text: &str) -> bool {
        let fits = !self.is_full() && text.len() <= MOST_MESSAGE_BYTES;
        if fits {
            self.0.push_back(text.into());
        }
        fits
    }

    /// Takes the oldest message out; `false` if that is not `text`.
    pub(crate) fn take(&mut self, text: &str) -> bool {
        let is_next = self.0.front().is_some_and(|next| **next == *text);
        if is_next {
            self.0.pop_front();
        }
        is_next
    }
}
