//! What a thread takes over from another one that it continues: from where that ended, or from behind one of its turns.
//!
//! The conversation continues from its newest entry, and what was used of the limits counts. A call of the model that came to nothing is made
//! again; calls of tools that had not ended are not: the model learns of it. What was counted against the model (reminders, equal calls)
//! begins anew, for somebody asked it to continue.

use super::{At, Before, Repeated, State, Turn};
use crate::clock::Timestamp;
use crate::conversation::Stop;
use crate::model::{Run, Spec};

impl Spec {
    /// Where the thread stood that this one continues.
    pub(crate) fn carried(&self) -> Option<&State> {
        self.thread()?.carried.as_deref()
    }
}

impl Run {
    /// Where a thread begins that continues this one; `None` if this is none, or has not ended.
    pub fn carried(&self) -> Option<State> {
        let mut state = self.thread()?.clone();
        state.count_time(self.ended_at?);
        Some(state.carried())
    }

    /// Where a thread begins that continues this one from the turn that was last finished, whatever became of it later: the record is
    /// as the `step_finish` of that turn left it, which is what replaying its events up to there leads to. `None` if it stands
    /// anywhere else.
    pub fn carried_from_turn(&self) -> Option<State> {
        let state = self.thread()?;
        state.is_between_turns().then(|| state.clone().carried())
    }
}

impl State {
    /// What of it another thread begins with.
    fn carried(self) -> Self {
        let at = match self.at {
            At::Composing => At::Composing,
            At::Before(before) => again(*before),
            At::Failed(failed) => again(failed.next),
            At::Calling(turn) if turn.calls.is_empty() => again(turn.again(false)),
            At::Acting(turn) if turn.is_refused() => again(turn.again(false)),
            At::Calling(mut turn) => {
                turn.is_cut = true;
                At::Calling(turn)
            }
            At::Acting(mut turn) => {
                turn.is_cut = true;
                At::Acting(turn)
            }
        };
        Self {
            at,
            repeated: Repeated::default(),
            escalated: None,
            is_cut_short: false,
            reseeded: false,
            nudges: 0,
            lengths: 0,
            returned: None,
            result: None,
            ..self
        }
    }
}

/// The turn, as if no try of it had failed.
fn again(before: Before) -> At {
    At::Before(Box::new(Before {
        retries: 0,
        due: None,
        ..before
    }))
}

impl Turn {
    /// Whether its message is no part of the conversation.
    fn is_refused(&self) -> bool {
        self.stop() == Some(Stop::Refusal)
    }
}

impl State {
    /// Whether it has a conversation to continue.
    pub fn has_begun(&self) -> bool {
        self.head.is_some()
    }

    /// Whether a turn was finished, and nothing was said since.
    fn is_between_turns(&self) -> bool {
        match &self.at {
            At::Before(before) => {
                before.attempt == 1 && before.texts.is_empty() && self.head != self.root
            }
            At::Composing | At::Calling(_) | At::Acting(_) | At::Failed(_) => false,
        }
    }

    /// Whether the last thing that was said is the last message of the model, which nothing follows.
    pub(crate) fn stands_behind_a_turn(&self) -> bool {
        self.is_between_turns() && self.queue.is_empty()
    }

    /// The thread starts: at its prompt, or where the one stood that it continues.
    pub(super) fn start(&mut self, at: Timestamp, spec: &Spec) -> bool {
        if self.at != At::Composing {
            return false;
        }
        if let Some(carried) = spec.carried() {
            self.at = carried.at.clone();
        }
        if let Some(turn) = self.turn_mut() {
            turn.since = at;
        }
        true
    }
}
