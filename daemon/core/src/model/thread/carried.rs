//! The state that a thread takes over from a thread that it continues: from its end, or from the end of a turn.
//!
//! The conversation continues from its newest entry, and the usage counts against the limits. A call of the model that
//! had no result is made again. Calls of tools that had not ended are not; the model is informed. Counters against the
//! model (reminders, equal calls) start anew, for a person requested it to continue.

use super::{At, NextTurn, Repeated, ThreadState, Turn};
use crate::conversation::Stop;

impl ThreadState {
    /// Returns the state with which the other thread begins.
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

/// Returns the turn as if no try of it had failed.
fn again(before: NextTurn) -> At {
    At::Before(Box::new(NextTurn {
        retries: 0,
        due: None,
        ..before
    }))
}

impl Turn {
    /// True if its message is not part of the conversation.
    fn is_refused(&self) -> bool {
        self.stop() == Some(Stop::Refusal)
    }
}

impl ThreadState {
    pub fn has_begun(&self) -> bool {
        self.head.is_some()
    }

    /// True if a turn was finished, and no text was added since.
    pub(crate) fn is_between_turns(&self) -> bool {
        match &self.at {
            At::Before(before) => {
                before.attempt == 1 && before.texts.is_empty() && self.head != self.root
            }
            At::Composing | At::Calling(_) | At::Acting(_) | At::Failed(_) => false,
        }
    }

    /// True if the last message is one of the model, and nothing follows it.
    pub(crate) fn follows_finished_turn(&self) -> bool {
        self.is_between_turns() && self.queue.is_empty()
    }
}
