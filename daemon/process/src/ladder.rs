//! Escalation of signals to a process, as a pure state machine over time.
//!
//! ```text
//! Free ──request / timeout──► Terminating (TERM) ──grace over──► Killed (KILL) ──patience over──► given up
//!   └─────── request without a grace period ───────────────────────▲
//! ```
//!
//! A further request during termination can only shorten the rest of the grace period.

use std::time::{Duration, Instant};

use super::ending::StopReason;

/// Time limit for the end of a killed process. Only one that hangs in the kernel takes this long.
const PATIENCE: Duration = Duration::from_secs(10);

/// State of a running process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LadderState {
    Free {
        timeout_at: Option<Instant>,
    },
    Terminating {
        reason: StopReason,
        kill_at: Option<Instant>,
    },
    Killed {
        reason: StopReason,
        give_up_at: Instant,
    },
    GivenUp {
        reason: StopReason,
    },
}

/// Action on the process group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub(super) enum Step {
    Nothing,
    Terminate,
    Kill,
    GiveUp,
}

/// State machine of one process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Ladder {
    stage: LadderState,
    grace: Duration,
}

impl Ladder {
    /// `now` is the start of the process.
    pub(super) fn new(now: Instant, timeout: Duration, grace: Duration) -> Self {
        // A timeout beyond the range of the clock never expires.
        let timeout_at = now.checked_add(timeout);
        Self {
            stage: LadderState::Free { timeout_at },
            grace,
        }
    }

    /// Time until [`Self::due`] must be called.
    pub(super) fn remaining(&self, now: Instant) -> Option<Duration> {
        let deadline = self.deadline()?;
        Some(deadline.saturating_duration_since(now))
    }

    /// Time of the next call of [`Self::due`].
    pub(super) fn deadline(&self) -> Option<Instant> {
        match self.stage {
            LadderState::Free { timeout_at } => timeout_at,
            LadderState::Terminating { kill_at, .. } => kill_at,
            LadderState::Killed { give_up_at, .. } => Some(give_up_at),
            LadderState::GivenUp { .. } => None,
        }
    }

    /// The strongest reason that took effect.
    pub(super) fn reason(&self) -> Option<StopReason> {
        match self.stage {
            LadderState::Free { .. } => None,
            LadderState::Terminating { reason, .. }
            | LadderState::Killed { reason, .. }
            | LadderState::GivenUp { reason } => Some(reason),
        }
    }

    /// Handles a stop request for `reason`.
    pub(super) fn request(&mut self, reason: StopReason, now: Instant) -> Step {
        let grace = match reason {
            StopReason::Cancel | StopReason::Timeout => self.grace,
            StopReason::Kill { grace } => grace,
        };
        // A grace period beyond the range of the clock never ends.
        let kill_at = now.checked_add(grace);
        match &mut self.stage {
            LadderState::Free { .. } | LadderState::Terminating { .. } if grace.is_zero() => {
                self.kill(reason, now)
            }
            LadderState::Free { .. } => {
                self.stage = LadderState::Terminating { reason, kill_at };
                Step::Terminate
            }
            LadderState::Terminating {
                reason: before,
                kill_at: known,
            } => {
                *before = reason.max(*before);
                *known = known.map_or(kill_at, |known| {
                    Some(kill_at.map_or(known, |kill_at| kill_at.min(known)))
                });
                Step::Nothing
            }
            // The reason is recorded, but no further signal is needed.
            LadderState::Killed { reason: before, .. }
            | LadderState::GivenUp { reason: before } => {
                *before = reason.max(*before);
                Step::Nothing
            }
        }
    }

    /// Handles the deadline.
    pub(super) fn due(&mut self, now: Instant) -> Step {
        match self.stage {
            LadderState::Free { .. } => self.request(StopReason::Timeout, now),
            LadderState::Terminating { reason, .. } => self.kill(reason, now),
            LadderState::Killed { reason, .. } => {
                self.stage = LadderState::GivenUp { reason };
                Step::GiveUp
            }
            LadderState::GivenUp { .. } => Step::Nothing,
        }
    }

    fn kill(&mut self, reason: StopReason, now: Instant) -> Step {
        self.stage = LadderState::Killed {
            reason,
            give_up_at: now + PATIENCE,
        };
        Step::Kill
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GRACE: Duration = Duration::from_secs(5);
    const AT_ONCE: StopReason = StopReason::Kill {
        grace: Duration::ZERO,
    };
    const REASONS: [StopReason; 3] = [StopReason::Cancel, StopReason::Timeout, AT_ONCE];

    fn ladder(now: Instant) -> Ladder {
        Ladder::new(now, Duration::from_mins(1), GRACE)
    }

    #[test]
    fn second_request_only_escalates() {
        let now = Instant::now();
        for first in REASONS {
            for second in REASONS {
                let mut ladder = ladder(now);
                let step = ladder.request(first, now);
                let expected = if first == AT_ONCE {
                    Step::Kill
                } else {
                    Step::Terminate
                };
                assert_eq!(step, expected, "{first:?}");
                let before = ladder.deadline();
                let step = ladder.request(second, now + Duration::from_secs(1));
                let expected = if first < AT_ONCE && second == AT_ONCE {
                    Step::Kill
                } else {
                    assert_eq!(ladder.deadline(), before, "a grace never grows");
                    Step::Nothing
                };
                assert_eq!(step, expected, "{first:?} then {second:?}");
                assert_eq!(ladder.reason(), Some(first.max(second)));
            }
        }
    }

    #[test]
    fn second_kill_only_shortens_grace() {
        let seconds = Duration::from_secs;
        let kill = |grace| StopReason::Kill {
            grace: seconds(grace),
        };
        // First request, request two seconds later, and the second in which the process is killed.
        for (first, second, killed) in [
            (kill(30), kill(40), 30),
            (kill(30), kill(3), 5),
            (kill(3), kill(2), 3),
            (kill(30), StopReason::Cancel, 7),
            (StopReason::Cancel, kill(30), 5),
            (StopReason::Cancel, kill(1), 3),
            (kill(u64::MAX), kill(9), 11),
        ] {
            let now = Instant::now();
            let mut ladder = ladder(now);
            assert_eq!(ladder.request(first, now), Step::Terminate);
            assert_eq!(ladder.request(second, now + seconds(2)), Step::Nothing);
            assert_eq!(ladder.reason(), Some(first.max(second)));
            let at = ladder.deadline().unwrap();
            assert_eq!(at, now + seconds(killed), "{first:?} then {second:?}");
            assert_eq!(ladder.due(at), Step::Kill);
        }
    }

    #[test]
    fn late_request_is_recorded() {
        let now = Instant::now();
        let mut ladder = ladder(now);
        assert_eq!(ladder.request(StopReason::Cancel, now), Step::Terminate);
        assert_eq!(ladder.due(now + GRACE), Step::Kill);
        assert_eq!(ladder.request(AT_ONCE, now + GRACE), Step::Nothing);
        assert_eq!(ladder.reason(), Some(AT_ONCE));
    }

    #[test]
    fn deadlines_escalate_without_requests() {
        let now = Instant::now();
        let mut ladder = ladder(now);
        assert_eq!(ladder.reason(), None);
        let at = ladder.deadline().unwrap();
        assert_eq!(at, now + Duration::from_mins(1));
        assert_eq!(ladder.due(at), Step::Terminate);
        assert_eq!(ladder.deadline(), Some(at + GRACE));
        assert_eq!(ladder.due(at + GRACE), Step::Kill);
        let at = ladder.deadline().unwrap();
        assert_eq!(ladder.due(at), Step::GiveUp);
        assert_eq!(ladder.deadline(), None);
        assert_eq!(ladder.reason(), Some(StopReason::Timeout));
    }

    #[test]
    fn unbounded_timeout_sets_no_deadline() {
        let ladder = Ladder::new(Instant::now(), Duration::MAX, GRACE);
        assert_eq!(ladder.deadline(), None);
    }
}
