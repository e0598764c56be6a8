//! Attempts of unknown outcome, for the person who finds out: item and parameters, idempotency key and start of each.
//!
//! All are named. Their calls are reported within [`MOST_SHOWN`] bytes: a node may have thousands of items in flight,
//! and each may get a large part of the state.

use std::collections::HashMap;

use crate::bounds;
use crate::clock::Timestamp;
use crate::id::{ItemRef, Name, RunId};
use crate::model::{Attempt, AttemptId, Object, Run, Slot};

/// Limit of the approximate memory of the reported parameters of a run's attempts, in bytes.
const MOST_SHOWN: usize = 1 << 20;

/// An attempt of unknown outcome.
#[derive(Debug, Clone, PartialEq)]
pub struct InDoubt {
    /// The name for people.
    pub name: String,
    /// Its idempotency key; empty if it is not recorded any more.
    pub key: Name,
    /// Its start.
    pub since: Option<Timestamp>,
    /// The child run to which it belongs, if it is not of the run itself.
    pub run: Option<RunId>,
    /// Its item and parameters; `None` if they are not known any more, or too large.
    pub call: Option<(ItemRef, Object)>,
}

/// Returns the attempts of unknown outcome of `run`. `call` returns item and parameters of an attempt, if they are
/// known; after one that was too large, no further one is reported.
pub(crate) fn in_doubt(
    run: &Run,
    mut call: impl FnMut(Slot) -> Option<(ItemRef, Object)>,
) -> Vec<InDoubt> {
    let attempts: HashMap<AttemptId, &Attempt> = run
        .attempts()
        .map(|attempt| (attempt.id, attempt))
        .collect();
    let mut left = MOST_SHOWN;
    let uncertain = run.uncertain().into_iter();
    let found = uncertain.map(|(name, id)| {
        let attempt = attempts.get(&id);
        let call = (left > 0).then(|| call(id.slot)).flatten();
        let call = call.filter(|(_, params)| {
            let taken: usize = params.values().map(bounds::size).sum();
            left = left.saturating_sub(taken);
            left > 0
        });
        InDoubt {
            name,
            key: attempt
                .map(|attempt| Name::clone(&attempt.key))
                .unwrap_or_default(),
            since: attempt.map(|attempt| attempt.since),
            run: None,
            call,
        }
    });
    found.collect()
}
