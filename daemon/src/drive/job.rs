//! What a kind of run answers the driver: what a call needs.

use rye_core::cas::InputHashes;
use rye_core::id::RunId;
use rye_core::machine::CallOutcome;

use crate::exhausted::Exhausted;
use rye_journal::Change;

/// What a call needs.
#[derive(Debug)]
pub enum Job<P> {
    /// Nothing any more. It counts as attempted if there are hashes of it.
    Known(Box<CallOutcome>, Option<InputHashes>),
    /// Nobody can tell now: the host has too little of something. Nothing of it has happened.
    Exhausted(Exhausted),
    /// To be carried out.
    Begin {
        /// By what.
        plan: P,
        /// The child run that carries it out, if one does.
        child: Option<RunId>,
        /// The changes that create that run, if it is to be created: part of the commit that announces the call.
        creates: Vec<Change>,
        /// What it does and what it runs on.
        hashes: InputHashes,
    },
}
