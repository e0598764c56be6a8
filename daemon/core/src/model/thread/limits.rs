//! Limits of a thread, and the usage of its turns.

use serde::{Deserialize, Serialize};

use super::{At, ThreadState};
use crate::model::limits::{Raisable, Raised};

/// The limits in force of a thread: those at its start, or those set when it was resumed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ThreadLimits {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turns: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens: Option<u64>,
    /// Milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration_ms: Option<u64>,
}

/// Usage of the turns of a thread, those of the runs that it continues included.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Used {
    pub turns: u32,
    /// Tokens that count: input and output, without cached input.
    pub tokens: u64,
    /// Milliseconds.
    pub active_ms: u64,
}

/// A limit that leaves nothing for another turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reached {
    pub limit: Raisable,
    pub used: u64,
    pub max: u64,
}

impl ThreadLimits {
    pub(crate) fn get(&self, limit: Raisable) -> Option<u64> {
        match limit {
            Raisable::Steps | Raisable::Spawns | Raisable::Depth => None,
            Raisable::Turns => self.turns.map(u64::from),
            Raisable::Tokens => self.tokens,
            Raisable::Duration => self.duration_ms,
        }
    }

    pub(crate) fn raise(&mut self, raised: &Raised) {
        self.turns = raised.max_turns.or(self.turns);
        self.tokens = raised.max_tokens.or(self.tokens);
        self.duration_ms = raised.max_duration_ms.or(self.duration_ms);
    }
}

impl Used {
    pub(crate) fn count(&mut self, tokens: &[u64]) {
        let sum = |sum: u64, part: &u64| sum.saturating_add(*part);
        self.tokens = tokens.iter().fold(self.tokens, sum);
    }

    /// Returns the usage of a limit; `None` if threads have no such limit.
    pub(crate) fn of(&self, limit: Raisable) -> Option<u64> {
        match limit {
            Raisable::Steps | Raisable::Spawns | Raisable::Depth => None,
            Raisable::Turns => Some(self.turns.into()),
            Raisable::Tokens => Some(self.tokens),
            Raisable::Duration => Some(self.active_ms),
        }
    }
}

impl ThreadState {
    /// Returns the first limit that leaves nothing for another turn.
    pub fn limit_reached(&self) -> Option<Reached> {
        Raisable::ALL.into_iter().find_map(|limit| {
            let (used, max) = (self.used.of(limit)?, self.limits.get(limit)?);
            (used >= max).then_some(Reached { limit, used, max })
        })
    }

    /// True if another turn comes next, and `limit` leaves nothing for it.
    pub(crate) fn is_at(&self, limit: Raisable) -> bool {
        let is_next = matches!(self.at, At::Before(_) | At::Failed(_));
        let (used, max) = (self.used.of(limit), self.limits.get(limit));
        is_next && max.is_some_and(|max| used >= Some(max))
    }
}
