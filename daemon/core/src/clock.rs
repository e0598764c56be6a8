//! Time and randomness as ports: callers pass them into the core, which never reads them itself.

use std::fmt;
use std::time::Duration;

use jiff::fmt::StdFmtWrite;
use jiff::fmt::temporal::DateTimePrinter;
use serde::{Deserialize, Serialize};

/// A point in time: milliseconds since the Unix epoch, in UTC. Its text is RFC 3339 with milliseconds and `Z`.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Timestamp {
    ms: i64,
}

impl Timestamp {
    pub const fn from_ms(ms: i64) -> Self {
        Self { ms }
    }

    /// Returns the milliseconds since the Unix epoch.
    pub const fn ms(self) -> i64 {
        self.ms
    }

    /// Returns the whole seconds since the Unix epoch, rounded down.
    pub const fn seconds(self) -> i64 {
        self.ms.div_euclid(1000)
    }

    /// Reads an RFC 3339 time; returns `None` for any other text.
    pub fn parse(text: &str) -> Option<Self> {
        let at: jiff::Timestamp = text.parse().ok()?;
        Some(Self::from_ms(at.as_millisecond()))
    }

    /// Returns this point plus `pause`; saturates at the largest time.
    #[must_use]
    pub fn plus(self, pause: Duration) -> Self {
        let ms = i64::try_from(pause.as_millis()).unwrap_or(i64::MAX);
        Self::from_ms(self.ms.saturating_add(ms))
    }

    /// Returns the milliseconds from `earlier` to this point, or 0 if the clock went back.
    pub fn ms_since(self, earlier: Self) -> u64 {
        u64::try_from(self.ms.saturating_sub(earlier.ms)).unwrap_or(0)
    }

    /// Returns the form with whole seconds, `2026-04-01T00:00:00Z`, that signature tokens carry.
    pub fn to_seconds_string(self) -> String {
        self.format("%Y-%m-%dT%H:%M:%SZ")
    }

    /// Returns the day in UTC, as `2026-04-01`.
    pub fn to_day_string(self) -> String {
        self.format("%Y-%m-%d")
    }

    /// Returns the month in UTC, as `2026-04`.
    pub fn to_month_string(self) -> String {
        self.format("%Y-%m")
    }

    fn format(self, pattern: &str) -> String {
        jiff::Timestamp::from_millisecond(self.ms)
            .unwrap_or_default()
            .strftime(pattern)
            .to_string()
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A hot path: every transcript line and every expression context holds a time.
        const PRINTER: DateTimePrinter = DateTimePrinter::new().precision(Some(3));
        let at = jiff::Timestamp::from_millisecond(self.ms).unwrap_or_default();
        let printed = PRINTER.print_timestamp(&at, StdFmtWrite(f));
        printed.map_err(|_refused| fmt::Error)
    }
}

/// Reading of a monotonic clock that also advances while the machine sleeps. It serves delays and deadlines within one
/// life of the daemon. It counts nanoseconds since an unspecified moment and is never stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Uptime {
    ns: u64,
}

impl Uptime {
    pub const fn from_ns(ns: u64) -> Self {
        Self { ns }
    }

    /// Returns this point plus `pause`; saturates at the largest reading.
    #[must_use]
    pub fn plus(self, pause: Duration) -> Self {
        let ns = u64::try_from(pause.as_nanos()).unwrap_or(u64::MAX);
        Self::from_ns(self.ns.saturating_add(ns))
    }

    /// Returns the time from `earlier` to this point, or zero if `earlier` is later.
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.ns.saturating_sub(earlier.ns))
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tick {
    /// Wall clock, for stored and displayed times.
    pub at: Timestamp,
    /// Monotonic clock, for every delay and deadline within one life of the daemon.
    pub up: Uptime,
}

/// Source of the time and of random bits.
pub trait Clock: fmt::Debug + Send + Sync {
    /// Returns the wall-clock time in UTC.
    fn now(&self) -> Timestamp;
    /// Returns the monotonic clock.
    fn up(&self) -> Uptime;
    /// Returns 64 unpredictable bits.
    fn random(&self) -> u64;
    /// Reads both clocks.
    fn tick(&self) -> Tick {
        Tick {
            at: self.now(),
            up: self.up(),
        }
    }
}

/// Parses a duration like `90`, `1.5s` or `1h30m`: seconds, or units (`d`, `h`, `m`, `s`) from the largest to the
/// smallest, each at most once. Returns `None` for any other text.
pub fn duration(text: &str) -> Option<Duration> {
    const UNITS: [(char, f64); 4] = [('d', 86_400.0), ('h', 3600.0), ('m', 60.0), ('s', 1.0)];
    let number = |digits: &str| {
        let plain = digits
            .bytes()
            .all(|byte| byte.is_ascii_digit() || byte == b'.');
        digits.parse::<f64>().ok().filter(|_| plain)
    };
    if let Some(seconds) = number(text) {
        return Duration::try_from_secs_f64(seconds).ok();
    }
    let mut units = UNITS.iter();
    let (mut rest, mut seconds) = (text, 0.0);
    while !rest.is_empty() {
        let end = rest.find(|c: char| c.is_ascii_alphabetic())?;
        let unit = rest[end..].chars().next()?;
        let (_, size) = units.find(|(known, _)| *known == unit)?;
        seconds += number(&rest[..end])? * size;
        rest = &rest[end + 1..];
    }
    (!text.is_empty()).then(|| Duration::try_from_secs_f64(seconds).ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timestamps_are_written_with_milliseconds_and_z() {
        let at = Timestamp::from_ms(1_771_840_801_234);
        assert_eq!(at.to_string(), "2026-02-23T10:00:01.234Z");
        assert_eq!(at.to_seconds_string(), "2026-02-23T10:00:01Z");
        assert_eq!(Timestamp::parse("2026-02-23T10:00:01.234Z"), Some(at));
        assert_eq!(Timestamp::parse("2026-13-23T10:00:01Z"), None);
        assert_eq!(at.ms_since(Timestamp::from_ms(1_771_840_801_230)), 4);
        assert_eq!(Timestamp::from_ms(0).ms_since(at), 0);
    }

    #[test]
    fn duration_reads_seconds_or_descending_units() {
        for (text, ms) in [
            ("90", 90_000),
            ("1.5", 1_500),
            ("90s", 90_000),
            ("1h30m", 5_400_000),
            ("1m30s", 90_000),
            ("0", 0),
        ] {
            assert_eq!(duration(text), Some(Duration::from_millis(ms)), "{text}");
        }
        for text in ["", "s", "1x", "1s1m", "-1", "1e3", "inf", "1m 30s", "1mm"] {
            assert_eq!(duration(text), None, "{text}");
        }
    }

    #[test]
    fn uptime_plus_saturates() {
        let start = Uptime::from_ns(5);
        let later = start.plus(Duration::from_millis(2));
        assert_eq!(later.since(start), Duration::from_millis(2));
        assert_eq!(start.since(later), Duration::ZERO);
        assert_eq!(later.plus(Duration::MAX), Uptime::from_ns(u64::MAX));
    }
}
