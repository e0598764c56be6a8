//! The machine of a thread, with its state that is in memory only.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::contract::Terms;
use super::funds::Funds;
use super::model_stream::PartialMessage;
use crate::clock::{Timestamp, Uptime};
use crate::id::{ItemRef, RunId};
use crate::machine::ResultText;
use crate::model::{Effect, Run, Suspension};
use crate::money::Usd;

#[derive(Debug, Clone)]
pub struct ThreadMachine {
    pub(super) terms: Arc<Terms>,
    pub(super) run: Arc<Run>,
    /// Work in flight in this life of the daemon.
    pub(super) live: Live,
    /// Reason to suspend the run before it begins anything more.
    pub(super) held: Option<Suspension>,
}

/// Work in flight, and facts for the next move.
#[derive(Debug, Clone, Default)]
pub(super) struct Live {
    /// Funds, if they were queried for the next call.
    pub(super) funds: Option<Funds>,
    /// The next call at the size at which its hold was refused.
    pub(super) unpaid: Option<Unpaid>,
    /// The model call in flight.
    pub(super) partial: Option<PartialMessage>,
    /// Tool calls in flight, with their start.
    pub(super) running: BTreeMap<u32, Uptime>,
    /// Text forms of their results.
    pub(super) result_texts: BTreeMap<u32, ResultText>,
    /// Effects of a second execution, by item, from the last lookup.
    pub(super) effects: BTreeMap<ItemRef, Effect>,
    /// Tool calls whose programs were ended because they wait for a suspended run.
    pub(super) parked: BTreeSet<u32>,
    /// The suspended child run that a call waits for.
    pub(super) waits_for: Option<RunId>,
    /// End of the pause.
    pub(super) due: Option<Uptime>,
    /// The monotonic clock, as last read.
    pub(super) up: Uptime,
    /// Start of the uncounted time of the turn, and the end of the thread's time if the turn lasts until then.
    pub(super) deadline: Option<(Timestamp, Uptime)>,
}

/// A model call whose hold was refused.
#[derive(Debug, Clone)]
pub(super) struct Unpaid {
    /// The refused amount.
    pub(super) hold: Usd,
    /// The suspension, if no smaller call is possible.
    pub(super) why: Suspension,
}
