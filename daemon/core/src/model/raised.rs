//! Checks limits that are raised when a run is resumed: the limits of its kind, and the least new value.
//!
//! It never changes a record: the event that resumes the run does.

use super::life::Life;
use super::limits::{Raisable, Raised};
use super::run::Run;
use super::suspension::SuspendReason;
use super::task::RunKind;

/// The reason for which a run is not resumed with the limits that it would have.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unraised {
    /// Runs of its kind have no such limit.
    #[error(
        "it is a {} run, which has no limit of `{}`; {}",
        kind.as_str(),
        limit.key(),
        instead(*kind)
    )]
    NoSuch { kind: RunKind, limit: Raisable },
    /// The run would stop again immediately.
    #[error(
        "{}, so with a limit of {} it could not continue; raise it to more than {}",
        limit.taken(*used),
        limit.amount(*max),
        limit.amount(*least)
    )]
    TooLow {
        limit: Raisable,
        used: u64,
        /// The limit that it would have.
        max: u64,
        /// The new limit must be greater than this.
        least: u64,
    },
}

/// Names the limits of a run of that kind.
const fn instead(kind: RunKind) -> &'static str {
    match kind {
        RunKind::Graph => "raise `steps`, `spawns`, `depth` or `spend`",
        RunKind::Thread => "raise `turns`, `tokens`, `duration`, `spawns`, `depth` or `spend`",
        RunKind::Tool => "only `spend` can be raised",
        RunKind::Process => "a managed process has no limits",
    }
}

impl Run {
    /// Checks that the run may be resumed with these limits. Each must be one of its kind and exceed the usage; and a
    /// thread suspended at a limit must get a higher one.
    pub fn check_raise(&self, raised: &Raised) -> Result<(), Unraised> {
        for limit in Raisable::ALL {
            let given = raised.get(limit);
            let Some(used) = self.used(limit) else {
                let kind = self.spec.kind();
                match given {
                    Some(_) => return Err(Unraised::NoSuch { kind, limit }),
                    None => continue,
                }
            };
            let standing = self.blocking_limit(limit);
            let least = standing.map_or(used, |max| used.max(max));
            match given.or(standing) {
                Some(max) if max <= least => {
                    return Err(Unraised::TooLow {
                        limit,
                        used,
                        max,
                        least,
                    });
                }
                Some(_) | None => {}
            }
        }
        Ok(())
    }

    /// Returns the usage of a limit; `None` if runs of its kind have no such limit.
    fn used(&self, limit: Raisable) -> Option<u64> {
        match (self.spec.kind(), limit) {
            (RunKind::Graph | RunKind::Thread, Raisable::Spawns) => {
                self.below.spawns.map(|_limited| self.spawn_count.into())
            }
            (RunKind::Graph | RunKind::Thread, Raisable::Depth) => Some(self.below.levels().into()),
            (RunKind::Graph, Raisable::Steps) => Some(self.steps().into()),
            (RunKind::Thread, _) => self.thread()?.used.of(limit),
            (RunKind::Graph | RunKind::Tool | RunKind::Process, _) => None,
        }
    }

    /// Returns the limit in force if it prevents the next turn of a thread that is suspended or has ended. For a graph
    /// run its hooks decide that.
    fn blocking_limit(&self, limit: Raisable) -> Option<u64> {
        let thread = self.thread()?;
        let max = thread.limits.get(limit)?;
        let is_why = match &self.life {
            Life::Created | Life::Running => return None,
            Life::Suspended(why) => {
                why.reason == SuspendReason::Limit && why.code.as_deref() == Some(limit.code())
            }
            Life::Ended(_) => self
                .failure()
                .is_some_and(|failure| failure.code == limit.code()),
        };
        (is_why || thread.is_at(limit)).then_some(max)
    }
}
