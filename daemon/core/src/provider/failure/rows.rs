//! Rows that classify errors of providers. They are data of the configuration and of a thread's contract.

use std::time::Duration;

use serde_json::{Value, json};

use super::super::api_error::ApiError;
use super::Class;
use crate::declared::Fields as _;
use crate::definition::Backoff;
use crate::expr::Names;
use crate::pattern::{Pattern, Row, backoff, folded};

/// Facts of an error and of the answer's headers that a row may match.
const READ: [&str; 6] = [
    "error.type",
    "error.message",
    "error.code",
    "status_code",
    "retry_after",
    "should_retry",
];

/// Names of the classes in rows.
const CLASSES: [(&str, Class); 6] = [
    ("transient", Class::Transient),
    ("rate_limited", Class::RateLimited),
    ("quota", Class::Quota),
    ("context", Class::Context),
    ("reasoning", Class::Reasoning),
    ("permanent", Class::Permanent),
];

/// First pause, which doubles, and longest pause after a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Pauses {
    pub(super) base: Duration,
    pub(super) most: Duration,
}

/// A pattern of errors, with their class.
#[derive(Debug, Clone)]
pub struct ErrorRow {
    pattern: Pattern,
    pub(super) class: Class,
    /// `None` selects the pauses of the class.
    pub(super) pauses: Option<Pauses>,
}

/// Rows in order; the first matching row decides.
#[derive(Debug, Clone, Default)]
pub struct ErrorRows(Vec<ErrorRow>);

/// Retry advice in the headers of an answer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Advice {
    /// True if they request a pause.
    pub(super) has_pause: bool,
    /// Explicit advice for or against a retry, if given.
    pub(super) should_retry: Option<bool>,
}

impl ErrorRow {
    /// Reads a row. The error names the faulty key.
    pub fn read(row: &Value) -> Result<Self, String> {
        let row = Row::new(row, &[])?;
        let expected = format!("one of {}", CLASSES.map(|(word, _)| word).join(", "));
        let pattern = Pattern::read(&row, &READ)?;
        let class = row.word("category", &CLASSES, &expected)?;
        let pauses = row.given("retry_policy");
        Ok(Self {
            pattern,
            class: class.ok_or_else(|| format!("it has no `category`, which is {expected}"))?,
            pauses: pauses.map(pauses_of).transpose()?.flatten(),
        })
    }
}

fn pauses_of(policy: &Value) -> Result<Option<Pauses>, String> {
    Ok(match backoff(policy)? {
        Backoff::None => None,
        Backoff::Fixed(delay) => Some(Pauses {
            base: delay,
            most: delay,
        }),
        Backoff::Exponential { base, max } => Some(Pauses {
            base: Duration::try_from_secs_f64(base).unwrap_or(max).min(max),
            most: max,
        }),
    })
}

impl ErrorRows {
    /// Reads rows. The error names the faulty key of the first bad row.
    pub fn read(rows: &[Value]) -> Result<Self, String> {
        let rows = rows.iter().map(ErrorRow::read);
        Ok(Self(rows.collect::<Result<_, _>>()?))
    }

    /// Returns the first row that matches `error`.
    pub(super) fn find(&self, error: &ApiError, advice: Advice) -> Option<&ErrorRow> {
        let told = json!({
            "type": error.kind.to_lowercase(),
            "message": error.message.to_lowercase(),
            "code": error.code.to_lowercase(),
        });
        let status = folded(error.status.map(Value::from).as_ref());
        let (pause, retry) = (json!(advice.has_pause), json!(advice.should_retry));
        let facts = Names::new(vec![
            ("error", &told),
            ("status_code", &status),
            ("retry_after", &pause),
            ("should_retry", &retry),
        ]);
        self.0.iter().find(|row| row.pattern.holds(&facts))
    }
}
