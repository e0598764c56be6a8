//! How lives of the daemon ended, and what is held against a run for it.
//!
//! A run whose own moves bring the daemon down does it again at every start. What the daemon computed for when it died is known; whether
//! the run is at fault is not, as several compute at once. So it takes several deaths. **Own faults** of the daemon (it aborted, it was
//! killed because memory was used up) count for ten minutes, whatever the run finished meanwhile: some item of a wide node ends in each
//! life. Deaths **of unknown cause** count while the run gets nowhere. Kills from outside do not count.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::run::Run;
use crate::clock::Timestamp;

/// Deaths by the daemon's own fault, the present one included, with which a run is taken to cause them.
pub const MOST_FAULTS: usize = 3;
/// The time in which they count.
pub const FAULTS_WITHIN: Duration = Duration::from_mins(10);
/// Deaths of any cause but a kill from outside, without that a step or an item was finished, with which a run is taken to cause the next.
pub const MOST_SUSPICIONS: u32 = 3;

/// How the last life of the daemon ended, as far as its parent process knows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Death {
    /// No process saw it: the parent process died as well, or the machine.
    #[default]
    Unknown,
    /// By its own fault.
    Fault,
    /// A process from outside killed it.
    Outside,
}

impl Death {
    /// Its name, by which the parent process hands it on.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Unknown => "unknown",
            Self::Fault => "fault",
            Self::Outside => "outside",
        }
    }

    /// The death of this name; [`Death::Unknown`] for any other text.
    pub fn named(name: &str) -> Self {
        let known = [Self::Fault, Self::Outside].into_iter();
        known.fold(Self::Unknown, |found, death| {
            if death.as_str() == name { death } else { found }
        })
    }
}

impl Run {
    /// Whether it is taken to bring the daemon down, which computed for it when it died of `death`, as it now finds at `now`.
    pub fn is_in_crash_loop(&self, death: Death, now: Timestamp) -> bool {
        let faults = self.faults.iter().filter(|at| is_recent(**at, now));
        let is_third = death == Death::Fault && faults.count() + 1 >= MOST_FAULTS;
        is_third || (death != Death::Outside && self.suspicions >= MOST_SUSPICIONS)
    }

    /// Takes in that the daemon computed for it when it died, and now, at `at`, owns it again.
    pub(super) fn suspect(&mut self, at: Timestamp, is_fault: bool) {
        self.suspicions += 1;
        if is_fault {
            self.faults.retain(|fault| is_recent(*fault, at));
            self.faults.push(at);
        }
    }
}

fn is_recent(fault: Timestamp, now: Timestamp) -> bool {
    u128::from(now.ms_since(fault)) < FAULTS_WITHIN.as_millis()
}
