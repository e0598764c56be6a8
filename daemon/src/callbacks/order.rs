//! Order of the calls of a program that repeats them.

use std::sync::{Mutex, MutexGuard, PoisonError};

use rye_core::id::RunId;
use rye_core::model::Failure;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::Closed;

/// Calls of one life of a program. Each life counts from 0.
#[derive(Debug, Default)]
pub(super) struct CallOrder {
    state: Mutex<State>,
    halted: CancellationToken,
}

#[derive(Debug, Default)]
struct State {
    /// Ordinal of the next call.
    next: u32,
    is_busy: bool,
    is_warned: bool,
    halt: Option<Halt>,
}

/// Reason for which a program is ended by the daemon.
#[derive(Debug, Clone, PartialEq)]
pub enum Halt {
    /// It does not make the calls of its earlier life.
    Diverged {
        failure: Box<Failure>,
        /// The two calls.
        data: Value,
    },
    /// Its call waits for this suspended run.
    Parked(RunId),
}

impl CallOrder {
    fn state(&self) -> MutexGuard<'_, State> {
        // Every use changes single fields, so a panic elsewhere leaves the state valid.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn turn(&self) -> Result<Turn<'_>, Closed> {
        let mut state = self.state();
        if state.halt.is_some() {
            return Err(Closed::Ended);
        }
        if state.is_busy {
            return Err(Closed::Concurrent);
        }
        state.is_busy = true;
        Ok(Turn { order: self })
    }

    pub(super) async fn halted(&self) {
        self.halted.cancelled().await;
    }

    pub(super) fn halt(&self) -> Option<Halt> {
        self.state().halt.clone()
    }
}

/// The one call that a program has in flight.
#[derive(Debug)]
pub struct Turn<'a> {
    order: &'a CallOrder,
}

impl Turn<'_> {
    /// Number of the call, from 0. A call that is refused has none: the next one gets the number.
    pub fn ordinal(&self) -> u32 {
        self.order.state().next
    }

    /// Counts the call, which has a run.
    pub fn count(&self) {
        self.order.state().next += 1;
    }

    /// True if this is the first call of the program with a key, which has no effect.
    pub fn warns_of_key(&self) -> bool {
        !std::mem::replace(&mut self.order.state().is_warned, true)
    }

    /// Ends the program for `why`. The first reason counts.
    pub fn halt(&self, why: Halt) {
        self.order.state().halt.get_or_insert(why);
        self.order.halted.cancel();
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.order.state().is_busy = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_follow_one_another_and_only_those_with_a_run_have_numbers() {
        let order = CallOrder::default();
        let turn = order.turn().unwrap();
        assert_eq!(turn.ordinal(), 0);
        assert_eq!(order.turn().unwrap_err(), Closed::Concurrent);
        drop(turn);
        let turn = order.turn().unwrap();
        assert_eq!(turn.ordinal(), 0, "the first call was refused");
        turn.count();
        assert!(turn.warns_of_key() && !turn.warns_of_key());
        drop(turn);
        let turn = order.turn().unwrap();
        assert_eq!(turn.ordinal(), 1);
        let parked = Halt::Parked(RunId::new("r-1").unwrap());
        turn.halt(parked.clone());
        drop(turn);
        assert_eq!(order.turn().unwrap_err(), Closed::Ended);
        assert_eq!(order.halt(), Some(parked));
    }
}
