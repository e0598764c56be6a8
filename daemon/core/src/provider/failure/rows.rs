//! The rows by which the errors of providers are classed. They are data: of the configuration, and of a thread's contract.

use std::time::Duration;

use serde_json::{Value, json};

use super::super::api_error::ApiError;
use super::Class;
use crate::definition::Backoff;
use crate::expr::Names;
use crate::pattern::{self, Pattern, backoff, folded};

/// What a row may read of an error, and of the headers of the answer.
const READ: [&str; 6] = [
    "error.type",
    "error.message",
    "error.code",
    "status_code",
    "retry_after",
    "should_retry",
];

/// The classes that a row may give.
const CLASSES: [(&str, Class); 6] = [
    ("transient", Class::Transient),
    ("rate_limited", Class::RateLimited),
    ("quota", Class::Quota),
    ("context", Class::Context),
    ("reasoning", Class::Reasoning),
    ("permanent", Class::Permanent),
];

/// The pauses after a failure: the first, which doubles, and the longest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Pauses {
    pub(super) base: Duration,
    pub(super) most: Duration,
}

/// A row: which errors it is about, and what these mean.
#[derive(Debug, Clone)]
pub struct ErrorRow {
    pattern: Pattern,
    pub(super) class: Class,
    /// Those of the class, if it names none.
    pub(super) pauses: Option<Pauses>,
}

/// The rows, in their order: the first that matches an error decides.
#[derive(Debug, Clone, Default)]
pub struct ErrorRows(Vec<ErrorRow>);

/// What the headers of an answer say to who would try again.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Advice {
    /// Whether they ask for a pause.
    pub(super) has_pause: bool,
    /// Whether they say that another try makes sense.
    pub(super) should_retry: Option<bool>,
}

impl ErrorRow {
    /// Reads a row.
    pub fn read(row: &Value) -> Result<Self, String> {
        let row = pattern::row(row, &[])?;
        let pattern = Pattern::read(row, &READ)?;
        let words = || CLASSES.map(|(word, _)| word).join(", ");
        let class = match row.get("category") {
            Some(Value::String(word)) => CLASSES.iter().find(|(known, _)| known == word),
            Some(_) | None => None,
        };
        let Some((_, class)) = class else {
            return Err(match row.get("category") {
                Some(given) => format!("`category` is one of {}, not {given}", words()),
                None => format!("it has no `category`, which is one of {}", words()),
            });
        };
        let pauses = row.get("retry_policy").filter(|policy| !policy.is_null());
        Ok(Self {
            pattern,
            class: *class,
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
    /// Reads rows.
    pub fn read(rows: &[Value]) -> Result<Self, String> {
        let rows = rows.iter().map(ErrorRow::read);
        Ok(Self(rows.collect::<Result<_, _>>()?))
    }

    /// The first row that is about `error`.
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
