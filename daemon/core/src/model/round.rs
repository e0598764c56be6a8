//! A round of hooks: all hooks for one event of a run, one after the other.

use std::collections::VecDeque;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::attempt::Attempt;
use super::control::Control;
use super::suspension::Suspension;
use crate::clock::Timestamp;
use crate::expr::Object;
use crate::id::{Name, RunId};

/// The hooks that are being called about an event.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Round {
    pub event: Name,
    /// Hooks that have not answered, by their index in the list.
    pub waiting: VecDeque<u32>,
    /// Context of the hooks, without the state.
    pub context: Arc<Object>,
    /// `_now` of their templates.
    pub now: Timestamp,
    /// The first answer that counts, and the hook that gave it.
    pub answer: Option<(Control, Name)>,
    /// The attempt of the first waiting hook.
    pub running: Option<Attempt>,
}

impl Round {
    /// True if every hook has answered.
    pub fn is_over(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Returns the child run that carries out the attempt in flight.
    pub(super) fn child(&self) -> Option<&RunId> {
        self.running.as_ref()?.child.as_ref()
    }

    /// True if the answer of this round is the cause of the suspension `why`.
    pub(super) fn requests_suspension(&self, why: &Suspension) -> bool {
        let wanted = self.answer.as_ref();
        let wanted = wanted.and_then(|(answer, _)| answer.suspends(&self.event));
        self.is_over() && wanted == Some(why.reason)
    }
}
