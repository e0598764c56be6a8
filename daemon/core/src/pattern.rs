//! Patterns: which failures a row of the configuration is about, and the pause it names.
//!
//! **Owns** the reading of a row (`id`, `match`, `retry_policy`), and whether it matches: texts compare without regard to case. **Never**
//! knows what follows from a match, nor where the facts come from. **Failure.** A row that cannot be read says what is wrong with which key.

use std::time::Duration;

use serde_json::{Value, json};

use crate::declared;
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
    /// By which the row is named.
    pub id: String,
    condition: Condition,
}

/// The map that a row is, with no other keys than those of every row and `more`.
pub fn row<'r>(entry: &'r Value, more: &[&str]) -> Result<&'r Object, String> {
    let map = entry
        .as_object()
        .ok_or_else(|| format!("a pattern is a map, not {entry}"))?;
    match unknown_key(map, KEYS.iter().chain(more).copied()) {
        Some(problem) => Err(problem),
        None => Ok(map),
    }
}

impl Pattern {
    /// Reads `id` and `match` of a row, which may read these paths.
    pub fn read(row: &Object, readable: &[&str]) -> Result<Self, String> {
        let id = match row.get("id") {
            Some(Value::String(id)) if !id.is_empty() => id.clone(),
            Some(_) | None => return Err("it has no `id`".to_owned()),
        };
        let wanted = row
            .get("match")
            .filter(|wanted| wanted.as_object().is_some_and(|map| !map.is_empty()))
            .ok_or("it has no `match`; what nothing matches is `default`")?;
        let (condition, _warnings) = Condition::parse(&fold(wanted)).map_err(|faults| {
            let told: Vec<String> = faults
                .iter()
                .map(|fault| format!("`match{}`: {}", fault.at, fault.message))
                .collect();
            told.join("; ")
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
        Ok(Self { id, condition })
    }

    /// Whether it matches `facts`, whose texts are [`folded`].
    pub fn holds(&self, facts: &dyn Scope) -> bool {
        // What could not be compared does not match, and a person can do nothing about it.
        let mut notes = Vec::new();
        self.condition.holds(facts, &mut notes)
    }
}

/// The name with which `path` begins.
fn root(path: &str) -> &str {
    path.split(['.', '[']).next().unwrap_or_default()
}

/// The condition with its texts in lower case and its regular expressions blind to case.
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

/// `value` in lower case if it is a text; null if there is none.
pub fn folded(value: Option<&Value>) -> Value {
    match value {
        Some(Value::String(text)) => Value::String(text.to_lowercase()),
        Some(other) => other.clone(),
        None => Value::Null,
    }
}

/// Reads a retry policy without headers.
pub fn backoff(policy: &Value) -> Result<Backoff, String> {
    let seconds = |key: &str, default: f64| match policy.get(key) {
        None => Ok(default),
        Some(given) => given
            .as_f64()
            .filter(|given| *given > 0.0 && Duration::try_from_secs_f64(*given).is_ok())
            .ok_or_else(|| {
                format!("`{key}` of `retry_policy` is a number of seconds above 0, not {given}")
            }),
    };
    match policy.get("type").and_then(Value::as_str) {
        Some("none") => closed(policy, &["type"]).map(|_| Backoff::None),
        Some("fixed") => {
            closed(policy, &["type", "delay"])?;
            Ok(Backoff::Fixed(Duration::from_secs_f64(seconds(
                "delay", 60.0,
            )?)))
        }
        Some("exponential") => {
            closed(policy, &["type", "base", "max"])?;
            Ok(Backoff::Exponential {
                base: seconds("base", 2.0)?,
                max: Duration::from_secs_f64(seconds("max", 120.0)?),
            })
        }
        Some(_) | None => Err(format!(
            "`retry_policy` is a map whose `type` is exponential, fixed, use_header or none, not {policy}"
        )),
    }
}

/// The map `policy` is, if it has no other keys than these.
pub(crate) fn closed<'p>(policy: &'p Value, keys: &[&str]) -> Result<&'p Object, String> {
    let map = policy
        .as_object()
        .ok_or_else(|| format!("`retry_policy` is a map, not {policy}"))?;
    match unknown_key(map, keys.iter().copied()) {
        None => Ok(map),
        Some(problem) => Err(format!("{problem} in `retry_policy`")),
    }
}

/// The problem that `map` has a key which is not `known`, if it does.
pub(crate) fn unknown_key<'k>(
    map: &Object,
    known: impl IntoIterator<Item = &'k str, IntoIter: Clone>,
) -> Option<String> {
    let (key, near) = declared::unknown_key(map, known)?;
    Some(format!("unknown key `{key}`{}", did_you_mean(near)))
}
