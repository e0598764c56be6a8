//! Tries after a failure.

use std::time::Duration;

/// Tries after a failure.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Retry {
    /// Most tries after the first.
    pub max: u32,
    pub backoff: Backoff,
}

/// The pause before the next try.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Backoff {
    None,
    /// An equal pause each time.
    Fixed(Duration),
    /// Twice the previous pause each time.
    Exponential {
        /// The first pause in seconds.
        base: f64,
        /// The longest pause.
        max: Duration,
    },
}

impl Backoff {
    /// Returns the pause before retry number `attempt`, counted from 0. An exponential pause is `base * 2^attempt`
    /// seconds, at most `max`. `jitter` (0 to 1) shortens it by up to a half, so that simultaneous failures are not
    /// retried simultaneously.
    pub fn delay(self, attempt: u32, jitter: f64) -> Duration {
        match self {
            Self::None => Duration::ZERO,
            Self::Fixed(pause) => pause,
            Self::Exponential { base, max } => {
                let doublings = i32::try_from(attempt).unwrap_or(i32::MAX);
                let pause = Duration::try_from_secs_f64(base * 2f64.powi(doublings))
                    .map_or(max, |pause| pause.min(max));
                pause.mul_f64(1.0 - jitter.clamp(0.0, 1.0) / 2.0)
            }
        }
    }
}
