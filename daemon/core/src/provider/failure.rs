//! What a failed call means: whether to try again, when, and what it is charged at.
//!
//! What a provider says is classed by rows of the configuration ([`ErrorRows`]); what happened to the connection, and what a failed call is
//! charged at, is decided here.

mod rows;

use std::time::Duration;

use jiff::fmt::rfc2822::DateTimeParser;
use serde::{Deserialize, Serialize};

use super::stream::Fault;
use crate::clock::Timestamp;
pub use crate::model::thread::Class;

use self::rows::{Advice, Pauses};
pub use self::rows::{ErrorRow, ErrorRows};
pub use super::api_error::ApiError;
use super::api_error::milliseconds;

/// How far a call had come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Failed {
    /// It cannot be sent: its address or a header is none.
    Unsendable,
    /// There was no connection.
    Connect,
    /// The provider's certificate was refused.
    Certificate,
    /// The request was sent, and nothing was answered.
    Unanswered,
    /// The headers of the answer were too large to be taken.
    Headers,
    /// The answer was an error.
    Answered(ApiError),
    /// The stream broke.
    Stream {
        /// How.
        fault: Fault,
        /// Whether the model had said something.
        begun: bool,
    },
    /// The model refused.
    Refused,
}

impl Failed {
    /// What the provider says, if it says something.
    const fn told(&self) -> Option<&ApiError> {
        match self {
            Self::Answered(error)
            | Self::Stream {
                fault: Fault::Api(error),
                ..
            } => Some(error),
            Self::Unsendable
            | Self::Connect
            | Self::Certificate
            | Self::Unanswered
            | Self::Headers
            | Self::Refused
            | Self::Stream { .. } => None,
        }
    }
}

/// What a failed call is charged at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Charge {
    /// Nothing.
    Nothing,
    /// The usage that was reported, and an estimate of the rest
    /// ([`known_cost`](super::ResolvedModel::known_cost)).
    Known,
    /// All that was held for it.
    Hold,
}

/// The meaning of a failed call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Verdict {
    /// What becomes of it.
    pub class: Class,
    /// What it is charged at.
    pub charge: Charge,
    /// The pause that the provider asks for.
    pub asked: Option<Duration>,
    /// The pause after the first failure; it doubles.
    pub base: Duration,
    /// The longest pause.
    pub most: Duration,
}

impl Verdict {
    /// Whether the same call may be made again.
    pub const fn is_retryable(&self) -> bool {
        match self.class {
            Class::Transient | Class::RateLimited => true,
            Class::Quota
            | Class::Context
            | Class::Reasoning
            | Class::Permanent
            | Class::Interrupted => false,
        }
    }

    /// The pause that everybody makes who calls with the same secret, if the failure says that more calls would fail as well.
    pub fn pause_for_all(&self) -> Option<Duration> {
        let own = (self.class == Class::RateLimited).then_some(self.base);
        self.asked.or(own).filter(|_| self.is_retryable())
    }

    /// The pause before the next try, after so many tries that failed before this one: what the provider asks for, or the doubled
    /// base; with up to half of that as jitter on top, of which `jitter` is the share in thousandths.
    pub fn pause(&self, failed_before: u32, jitter: u16) -> Duration {
        let factor = 1_u32.checked_shl(failed_before).unwrap_or(u32::MAX);
        let own = self.base.saturating_mul(factor).min(self.most);
        let extra = own / 2 * u32::from(jitter.min(1000)) / 1000;
        self.asked.unwrap_or_default().max(own + extra)
    }
}

/// The pauses after a failure that may pass, if no row says: where there are too many calls, and else.
const SLOW: Pauses = Pauses {
    base: Duration::from_secs(2),
    most: Duration::from_mins(2),
};
const USUAL: Pauses = Pauses {
    base: Duration::from_secs(1),
    most: Duration::from_secs(30),
};

/// What a failed call means. `rows` class what the provider says; `header` gives the headers of the answer, by lower-case name.
pub fn classify<'h>(
    failed: &Failed,
    rows: &ErrorRows,
    header: impl Fn(&str) -> Option<&'h str>,
    now: Timestamp,
) -> Verdict {
    let advice = Advice {
        has_pause: header("retry-after").is_some() || header("retry-after-ms").is_some(),
        should_retry: match header("x-should-retry") {
            Some("true") => Some(true),
            Some("false") => Some(false),
            Some(_) | None => None,
        },
    };
    let told = failed.told();
    let row = told.and_then(|error| rows.find(error, advice));
    let class = match failed {
        Failed::Connect | Failed::Unanswered => Class::Transient,
        Failed::Certificate | Failed::Unsendable | Failed::Headers | Failed::Refused => {
            Class::Permanent
        }
        // The network brought what the provider sent: another try would bring the like, and be paid for.
        Failed::Stream {
            fault: Fault::Malformed(_) | Fault::Excess(_),
            ..
        } => Class::Permanent,
        Failed::Answered(_) => row.map_or(Class::Permanent, |row| row.class),
        // Reported within a stream, by a code that nobody knows; or not reported at all.
        Failed::Stream { .. } => row.map_or(Class::Transient, |row| row.class),
    };
    let usual = if class == Class::RateLimited {
        SLOW
    } else {
        USUAL
    };
    let Pauses { base, most } = row.and_then(|row| row.pauses).unwrap_or(usual);
    let by_body = told
        .and_then(|error| error.retry_ms)
        .map(Duration::from_millis);
    Verdict {
        class,
        charge: charge(failed),
        asked: retry_after(&header, now).or(by_body),
        base,
        most,
    }
}

/// What a failed call is charged at. No row has a say in it: it depends on what the provider may have done, not on what follows.
/// An error, as the status or as the first event, says that the provider made no answer.
const fn charge(failed: &Failed) -> Charge {
    match failed {
        Failed::Connect
        | Failed::Certificate
        | Failed::Unsendable
        | Failed::Answered(_)
        | Failed::Stream {
            fault: Fault::Api(_),
            begun: false,
        } => Charge::Nothing,
        Failed::Unanswered | Failed::Headers => Charge::Hold,
        Failed::Stream { .. } | Failed::Refused => Charge::Known,
    }
}

/// The pause that headers ask for.
fn retry_after<'h>(header: &impl Fn(&str) -> Option<&'h str>, now: Timestamp) -> Option<Duration> {
    if let Some(text) = header("retry-after-ms")
        && let Ok(ms) = text.trim().parse::<f64>()
        && let Ok(pause) = Duration::try_from_secs_f64(ms / 1000.0)
    {
        return Some(pause);
    }
    let text = header("retry-after")?.trim();
    if let Some(ms) = milliseconds(text) {
        return Some(Duration::from_millis(ms));
    }
    let at = DateTimeParser::new().parse_timestamp(text).ok()?;
    let ms = at.as_millisecond().saturating_sub(now.ms());
    u64::try_from(ms).ok().map(Duration::from_millis)
}
