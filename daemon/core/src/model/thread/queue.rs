//! Messages to a thread while its model is busy.

use std::collections::VecDeque;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// Limit of the messages that wait for a thread.
pub const MOST_QUEUED: usize = 64;
pub const MOST_MESSAGE_BYTES: usize = 64 * 1024;

/// Messages that wait for the next call of the model, the oldest first.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Queue(VecDeque<Arc<str>>);

impl Queue {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn is_full(&self) -> bool {
        self.0.len() >= MOST_QUEUED
    }

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

    /// Removes the oldest message; `false` if that is not `text`.
    pub(crate) fn take(&mut self, text: &str) -> bool {
        let is_next = self.0.front().is_some_and(|next| **next == *text);
        if is_next {
            self.0.pop_front();
        }
        is_next
    }
}
