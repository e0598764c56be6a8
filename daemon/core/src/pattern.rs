//! Patterns: the failures to which a row of the configuration applies, and the pause it names.
//!
//! **Owns** the reading of a row (`id`, `match`, `retry_policy`), and its match; texts compare without regard to case.
//! **Never** knows the consequence of a match, nor the source of the facts. **Failure.** The error about an unreadable
//! row names the key and the problem.

use std::time::Duration;

use serde_json::{Value, json};

use crate::declared::{self, Fields};
use crate::definition::Backoff;
use crate::expr::{Condition, Scope, did_you_mean};
use crate::model::Object;

/// Keys of every row.
const KEYS: [&str; 6] = [
    "id",
    "name",
    "description",
    "category",
    "match",
    "retry_policy",
];

/// The condition of a row.
#[derive(Debug, Clone)]
pub struct Pattern {
    /// The name of the row.
    pub id: String,
    condition: Condition,
}

/// A map of the configuration with a closed list of keys: a row, or a map in one.
pub(crate) struct Row<'r> {
    map: &'r Object,
    /// The key of the map, as the end of a clause; empty for a row.
    of: &'static str,
}

impl<'r> Row<'r> {
    /// Opens the row `entry`, with the keys of every row and `more`.
    pub(crate) fn new(entry: &'r Value, more: &[&str]) -> Result<Self, String> {
        Self::closed(entry, "a pattern", KEYS.iter().chain(more).copied())
    }

    /// Opens the map `value`, called `what`, with these keys.
    pub(crate) fn closed<'k>(
        value: &'r Value,
        what: &str,
        keys: impl IntoIterator<Item = &'k str, IntoIter: Clone>,
    ) -> Result<Self, String> {
        let map = value
            .as_object()
            .ok_or_else(|| format!("{what} is a map, not {value}"))?;
        match unknown_key(map, keys) {
            Some(problem) => Err(problem),
            None => Ok(Self { map, of: "" }),
        }
    }

    /// Opens the retry policy `value`, with these keys.
    pub(crate) fn of_policy(value: &'r Value, keys: &[&str]) -> Result<Self, String> {
        const OF: &str = " of `retry_policy`";
        match Self::closed(value, "`retry_policy`", keys.iter().copied()) {
            Ok(row) => Ok(Self { of: OF, ..row }),
            Err(problem) => Err(problem),
        }
    }

    /// Reads a number of seconds above 0.
    fn seconds(&self, key: &str, default: f64) -> Result<f64, String> {
        let seconds = self.read(key, "a number of seconds above 0", |given| {
            let seconds = given.as_f64().filter(|given| *given > 0.0)?;
            Duration::try_from_secs_f64(seconds)
                .is_ok()
                .then_some(seconds)
        })?;
        Ok(seconds.unwrap_or(default))
    }
}

impl<'r> Fields<'r> for Row<'r> {
    type Error = String;

    fn find(&self, key: &str) -> Option<&'r Value> {
        self.map.get(key)
    }

    fn misfit(&self, key: &str, expected: &str, given: &Value) -> String {
        format!("`{key}`{} is {expected}, not {given}", self.of)
    }
}

impl Pattern {
    /// Reads `id` and `match` of a row, which may read these paths.
    pub(crate) fn read(row: &Row<'_>, readable: &[&str]) -> Result<Self, String> {
        let id = row.given("id").and_then(Value::as_str);
        let id = id.filter(|id| !id.is_empty()).ok_or("it has no `id`")?;
        let test = row
            .given("match")
            .filter(|test| test.as_object().is_some_and(|map| !map.is_empty()))
            .ok_or("it has no `match`; what nothing matches is `default`")?;
        let (condition, _warnings) = Condition::parse(&fold(test)).map_err(|faults| {
            let faults = faults.iter();
            let messages = faults.map(|fault| format!("`match{}`: {}", fault.at, fault.message));
            messages.collect::<Vec<_>>().join("; ")
        })?;
        for path in condition.paths() {
            let root = root(path);
            if !readable.iter().any(|known| self::root(known) == root) {
                return Err(format!(
                    "`match` reads `{path}`, which no failure has; there are {}",
                    readable.join(", ")
                ));
            }
        }
        Ok(Self {
            id: id.to_owned(),
            condition,
        })
    }

    /// True if it matches `facts`, whose texts must be `folded`.
    pub fn holds(&self, facts: &dyn Scope) -> bool {
        // Values that cannot be compared do not match, and a person can do nothing about it.
        let mut notes = Vec::new();
        self.condition.holds(facts, &mut notes)
    }
}

/// Returns the name with which `path` begins.
fn root(path: &str) -> &str {
    path.split(['.', '[']).next().unwrap_or_default()
}

/// Returns the condition with its texts in lower case and its regular expressions case-insensitive.
fn fold(condition: &Value) -> Value {
    let Value::Object(map) = condition else {
        return condition.clone();
    };
    let op = map.get("op").or(map.get("operator"));
    let regex = op.and_then(Value::as_str) == Some("regex");
    map.iter()
        .map(|(key, value)| {
            let folded = match (key.as_str(), value) {
                ("all" | "any", Value::Array(tests)) => tests.iter().map(fold).collect(),
                ("not", test) => fold(test),
                ("value", Value::String(pattern)) if regex => json!(format!("(?i){pattern}")),
                ("value", Value::Array(list)) => {
                    list.iter().map(|entry| folded(Some(entry))).collect()
                }
                ("value", value) => folded(Some(value)),
                (_, other) => other.clone(),
            };
            (key.clone(), folded)
        })
        .collect()
}

/// Returns `value` in lower case if it is a text; null if there is none.
pub(crate) fn folded(value: Option<&Value>) -> Value {
    match value {
        Some(Value::String(text)) => Value::String(text.to_lowercase()),
        Some(other) => other.clone(),
        None => Value::Null,
    }
}

/// Reads a retry policy without headers.
pub(crate) fn backoff(policy: &Value) -> Result<Backoff, String> {
    match policy.get("type").and_then(Value::as_str) {
        Some("none") => Row::of_policy(policy, &["type"]).map(|_| Backoff::None),
        Some("fixed") => {
            let delay = Row::of_policy(policy, &["type", "delay"])?.seconds("delay", 60.0)?;
            Ok(Backoff::Fixed(Duration::from_secs_f64(delay)))
        }
        Some("exponential") => {
            let row = Row::of_policy(policy, &["type", "base", "max"])?;
            Ok(Backoff::Exponential {
                base: row.seconds("base", 2.0)?,
                max: Duration::from_secs_f64(row.seconds("max", 120.0)?),
            })
        }
        Some(_) | None => Err(format!(
            "`retry_policy` is a map whose `type` is exponential, fixed, use_header or none, not {policy}"
        )),
    }
}

/// Returns the problem of a key of `map` that is not `known`, if there is one.
pub(crate) fn unknown_key<'k>(
    map: &Object,
    known: impl IntoIterator<Item = &'k str, IntoIter: Clone>,
) -> Option<String> {
    let (key, near) = declared::unknown_key(map, known)?;
    Some(format!("unknown key `{key}`{}", did_you_mean(near)))
}
