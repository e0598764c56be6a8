//! The machine of a thread, and what it keeps in memory only.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::contract::Terms;
use super::funds::Funds;
use super::heard::PartialMessage;
use crate::clock::{Timestamp, Uptime};
use crate::id::{ItemRef, RunId};
use crate::machine::ResultText;
use crate::model::{Effect, Run, SuspendReason, Suspension};

/// A thread.
#[derive(Debug, Clone)]
pub struct ThreadMachine {
    pub(super) terms: Arc<Terms>,
    pub(super) run: Arc<Run>,
    /// What is in flight in this life of the daemon.
    pub(super) live: Live,
    /// The run is to be suspended before it begins anything more.
    pub(super) held: Option<Suspension>,
}

/// What is in flight, and what is known for the next move.
#[derive(Debug, Clone, Default)]
pub(super) struct Live {
    /// What may be spent, if that was asked for the call that comes next.
    pub(super) funds: Option<Funds>,
    /// Why the call that comes next cannot be paid for.
    pub(super) unpaid: Option<Suspension>,
    /// The call of the model in flight.
    pub(super) speaking: Option<PartialMessage>,
    /// Calls of tools in flight, and since when.
    pub(super) running: BTreeMap<u32, Uptime>,
    /// How the model reads their results.
    pub(super) result_texts: BTreeMap<u32, ResultText>,
    /// What a second execution of an item would mean, as was found when it was looked up last.
    pub(super) effects: BTreeMap<ItemRef, Effect>,
    /// The suspended child run that a call waits for.
    pub(super) waits_for: Option<RunId>,
    /// When the pause is over.
    pub(super) due: Option<Uptime>,
    /// The clock as it was last read.
    pub(super) up: Uptime,
    /// When the time of the thread is over, if its turn lasts until then; and since when that is so.
    pub(super) deadline: Option<(Timestamp, Uptime)>,
}

/// Suspended because the child run `child` is.
pub(super) fn suspended_for(child: RunId) -> Suspension {
    Suspension {
        child: Some(child),
        ..Suspension::new(SuspendReason::Child)
    }
}
