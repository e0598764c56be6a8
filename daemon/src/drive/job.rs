//! Result of the lookup of a call by its kind.

use rye_core::cas::InputHashes;
use rye_core::id::RunId;
use rye_core::machine::CallOutcome;

use crate::exhausted::Exhausted;
use rye_journal::Change;

/// Needs of a call.
#[derive(Debug)]
pub enum Job<P> {
    /// The outcome is known. With hashes, the call counts as attempted.
    Known(Box<CallOutcome>, Option<InputHashes>),
    /// Unknown because of a shortage on the host. Nothing has happened.
    Exhausted(Exhausted),
    Begin {
        plan: P,
        /// The child run that carries the call out, if there is one.
        child: Option<RunId>,
        /// Changes that create that run, if it does not exist. They are part of the commit that announces the call.
        creates: Vec<Change>,
        /// Hashes of the action and its inputs.
        hashes: InputHashes,
    },
}
