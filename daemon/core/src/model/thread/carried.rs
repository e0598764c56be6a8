//! What a thread takes over from another one that it continues: from where that ended, or from behind one of its turns.
//!
//! The conversation continues from its newest entry, and what was used of the limits counts. A call of the model that came to nothing is made
//! again; calls of tools that had not ended are not: the model learns of it. What was counted against the model (reminders, equal calls)
//! begins anew, for somebody asked it to continue.

use super::{At, NextTurn, Repeated, ThreadState, Turn};
use crate::conversation::Stop;

impl ThreadState {
    /// What of it another thread begins with.
    pub(crate) fn carried(self) -> Self {
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
fn again(before: NextTurn) -> At {
    At::Before(Box::new(NextTurn {
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

impl ThreadState {
    /// Whether it has a conversation to continue.
    pub fn has_begun(&self) -> bool {
        self.head.is_some()
    }

    /// Whether a turn was finished, and nothing was said since.
    pub(crate) fn is_between_turns(&self) -> bool {
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
}
