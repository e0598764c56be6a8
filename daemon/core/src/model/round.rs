//! A round of hooks: all that are asked about one event of a run, one after the other.

use std::collections::VecDeque;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::attempt::Attempt;
use super::control::Control;
use super::suspension::Suspension;
use crate::clock::Timestamp;
use crate::expr::Object;
use crate::id::{Name, RunId};

/// Hooks that are being asked about an event.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Round {
    /// The event.
    pub event: Name,
    /// Hooks that have not answered, by their place in the list.
    pub waiting: VecDeque<u32>,
    /// What they are given, without the state.
    pub context: Arc<Object>,
    /// `_now` of their templates.
    pub now: Timestamp,
    /// The first answer that counts, and the hook that gave it.
    pub answer: Option<(Control, Name)>,
    /// The attempt of the first waiting one.
    pub running: Option<Attempt>,
}

impl Round {
    /// Whether every hook has answered.
    pub fn is_over(&self) -> bool {
        self.waiting.is_empty()
    }

    /// The child run that carries out the attempt in flight.
    pub(super) fn child(&self) -> Option<&RunId> {
        self.running.as_ref()?.child.as_ref()
    }

    /// Whether the run is suspended for `why` because the answer of this round says so.
    pub(super) fn asked(&self, why: &Suspension) -> bool {
        let wanted = self.answer.as_ref();
        let wanted = wanted.and_then(|(answer, _)| answer.suspends(&self.event));
        self.is_over() && wanted == Some(why.reason)
    }
}
