//! Messages to a thread while its model is busy.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::watch_message::WatchMessage;
use crate::id::RunId;

/// Limit of the messages that wait for a thread, and of those about lines of its processes in addition.
pub const MOST_QUEUED: usize = 64;
pub const MOST_MESSAGE_BYTES: usize = 64 * 1024;

/// Messages that wait for the next call of the model, the oldest first.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Queue(VecDeque<Queued>);

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
enum Queued {
    Text(Arc<str>),
    Lines(Arc<WatchMessage>),
}

impl Queued {
    fn text(&self) -> Cow<'_, str> {
        match self {
            Self::Text(text) => (&**text).into(),
            Self::Lines(lines) => lines.to_string().into(),
        }
    }

    fn lines(&self) -> Option<&WatchMessage> {
        match self {
            Self::Text(_) => None,
            Self::Lines(lines) => Some(lines),
        }
    }
}

impl Queue {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// True if it takes no further message of a person or a run.
    pub fn is_full(&self) -> bool {
        self.0.len() - self.about_lines().count() >= MOST_QUEUED
    }

    /// Returns the messages as the model receives them.
    pub fn texts(&self) -> impl Iterator<Item = Cow<'_, str>> {
        self.0.iter().map(Queued::text)
    }

    /// Returns the messages about lines of managed processes.
    pub fn about_lines(&self) -> impl Iterator<Item = &WatchMessage> {
        self.0.iter().filter_map(Queued::lines)
    }

    /// Returns the message about lines of `process` that the rule `rule` matched.
    pub fn lines_of(&self, process: &RunId, rule: &str) -> Option<&WatchMessage> {
        self.about_lines()
            .find(|lines| lines.process == *process && lines.rule == rule)
    }

    /// Adds a message; `false` if there is no room for it.
    pub fn push(&mut self, text: &str) -> bool {
        let fits = !self.is_full() && text.len() <= MOST_MESSAGE_BYTES;
        if fits {
            self.0.push_back(Queued::Text(text.into()));
        }
        fits
    }

    /// Adds lines to the message of their rule that waits, or as a message of its own; `false` if that is impossible.
    pub(crate) fn push_lines(&mut self, new: &WatchMessage) -> bool {
        let known = self.0.iter().position(|queued| {
            let lines = queued.lines();
            lines.is_some_and(|lines| lines.process == new.process && lines.rule == new.rule)
        });
        match known {
            Some(place) => {
                let joined = self.0[place].lines().and_then(|lines| lines.joined(new));
                let Some(joined) = joined else { return false };
                self.0[place] = Queued::Lines(Arc::new(joined));
            }
            None if new.joins || self.about_lines().count() >= MOST_QUEUED => return false,
            None => self.0.push_back(Queued::Lines(Arc::new(new.clone()))),
        }
        true
    }

    /// Removes the oldest message; `false` if that is not `text`.
    pub(crate) fn take(&mut self, text: &str) -> bool {
        let is_next = self.0.front().is_some_and(|next| next.text() == text);
        if is_next {
            self.0.pop_front();
        }
        is_next
    }
}
