//! Classification of failed calls: retry, pause, and charge.
//!
//! Rows of the configuration ([`ErrorRows`]) classify the errors that a provider reports. This module decides about
//! connection failures and about the charge of a failed call.

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

/// Progress of a failed call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Failed {
    /// The call cannot be sent: its address or a header is invalid.
    Unsendable,
    /// No connection was established.
    Connect,
    /// The provider's certificate was refused.
    Certificate,
    /// The request was sent, but no answer arrived.
    Unanswered,
    /// The headers of the answer were too large.
    Headers,
    /// The answer was an error.
    Answered(ApiError),
    Stream {
        fault: Fault,
        /// True if the model had begun its answer.
        begun: bool,
    },
    Refused,
}

impl Failed {
    /// Returns the error that the provider reported, if any.
    const fn reported(&self) -> Option<&ApiError> {
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

/// Charge of a failed call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Charge {
    Nothing,
    /// The reported usage, and an estimate of the rest ([`known_cost`](super::ResolvedModel::known_cost)).
    Known,
    /// The whole hold.
    Hold,
}

/// Classification of a failed call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Verdict {
    pub class: Class,
    pub charge: Charge,
    /// Pause requested by the provider.
    pub requested_pause: Option<Duration>,
    /// Pause after the first failure; it doubles with each further one.
    pub base: Duration,
    /// Longest pause.
    pub most: Duration,
}

impl Verdict {
    /// Returns true if the same call may be made again.
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

    /// Returns the pause for all calls with the same secret, if the failure shows that other calls would fail as well.
    pub fn pause_for_all(&self) -> Option<Duration> {
        let own = (self.class == Class::RateLimited).then_some(self.base);
        self.requested_pause.or(own).filter(|_| self.is_retryable())
    }

    /// Returns the pause before the next try, after `failed_before` earlier failures: the larger of the requested pause
    /// and the doubled base with jitter. The jitter is up to half of that base; `jitter` is its share in thousandths.
    pub fn pause(&self, failed_before: u32, jitter: u16) -> Duration {
        let factor = 1_u32.checked_shl(failed_before).unwrap_or(u32::MAX);
        let own = self.base.saturating_mul(factor).min(self.most);
        let extra = own / 2 * u32::from(jitter.min(1000)) / 1000;
        self.requested_pause.unwrap_or_default().max(own + extra)
    }
}

/// Default pauses for rate limits, and for other transient failures.
const SLOW: Pauses = Pauses {
    base: Duration::from_secs(2),
    most: Duration::from_mins(2),
};
const USUAL: Pauses = Pauses {
    base: Duration::from_secs(1),
    most: Duration::from_secs(30),
};

/// Classifies a failed call. `rows` classify reported errors; `header` returns a header of the answer by its lower-case
/// name.
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
    let told = failed.reported();
    let row = told.and_then(|error| rows.find(error, advice));
    let class = match failed {
        Failed::Connect | Failed::Unanswered => Class::Transient,
        Failed::Certificate | Failed::Unsendable | Failed::Headers | Failed::Refused => {
            Class::Permanent
        }
        // The network transferred the provider's answer intact: a retry would likely fail the same way, and cost again.
        Failed::Stream {
            fault: Fault::Malformed(_) | Fault::Excess(_),
            ..
        } => Class::Permanent,
        Failed::Answered(_) => row.map_or(Class::Permanent, |row| row.class),
        // The stream reported an unknown code, or ended without a report.
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
        requested_pause: retry_after(&header, now).or(by_body),
        base,
        most,
    }
}

/// Returns the charge. It depends on the work that the provider may have done, so no row influences it. An error as the
/// status or as the first event shows that the provider produced no answer.
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

/// Returns the pause that the headers request.
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
