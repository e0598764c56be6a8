//! The causes of the daemon's deaths, and the suspicion of a run that follows from them.
//!
//! A run that brings the daemon down would do it again at every start. It is known for which runs the daemon was
//! computing at a death, but not which run is at fault, as there are several. So it takes several deaths. **Own
//! faults** of the daemon (it aborted, or was killed because memory was used up) count for ten minutes. They count
//! whatever the run finished meanwhile: some item of a wide node ends in each life. Deaths **of unknown cause** count
//! while the run makes no progress. Kills from outside do not count.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::run::Run;
use crate::clock::Timestamp;

/// Number of deaths by the daemon's own fault, the present one included, at which a run is taken as their cause.
pub const MOST_FAULTS: usize = 3;
/// Time in which these deaths count.
pub const FAULT_WINDOW: Duration = Duration::from_mins(10);
/// Number of deaths without progress (a finished step or item) at which a run is taken as their cause. Kills from
/// outside do not count.
pub const MOST_SUSPICIONS: u32 = 3;

/// The cause of the end of the daemon's last life, as far as its parent process knows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Death {
    /// No process observed it: the parent process died as well, or the machine.
    #[default]
    Unknown,
    /// The daemon's own fault.
    Fault,
    /// A process from outside killed it.
    Outside,
}

impl Death {
    /// Returns the name by which the parent process passes it on.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Unknown => "unknown",
            Self::Fault => "fault",
            Self::Outside => "outside",
        }
    }

    /// Returns the cause of this name; [`Death::Unknown`] for any other text.
    pub fn named(name: &str) -> Self {
        let known = [Self::Fault, Self::Outside].into_iter();
        known.fold(Self::Unknown, |found, death| {
            if death.as_str() == name { death } else { found }
        })
    }
}

impl Run {
    /// True if the run is taken as the cause of the daemon's death. The daemon was computing for it when it died of
    /// `death`; `now` is the time of the new start.
    pub fn is_in_crash_loop(&self, death: Death, now: Timestamp) -> bool {
        let faults = self.faults.iter().filter(|at| is_recent(**at, now));
        let is_third = death == Death::Fault && faults.count() + 1 >= MOST_FAULTS;
        is_third || (death != Death::Outside && self.suspicions >= MOST_SUSPICIONS)
    }

    /// Records at `at` that the daemon was computing for the run when it died.
    pub(super) fn suspect(&mut self, at: Timestamp, is_fault: bool) {
        self.suspicions += 1;
        if is_fault {
            self.faults.retain(|fault| is_recent(*fault, at));
            self.faults.push(at);
        }
    }
}

fn is_recent(fault: Timestamp, now: Timestamp) -> bool {
    u128::from(now.ms_since(fault)) < FAULT_WINDOW.as_millis()
}
