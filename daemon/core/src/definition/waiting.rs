//! Nodes without an action: `fail`, `wait` and `approval`; and the branches of a `parallel` node.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use super::inputs::Inputs;
use super::keys;
use super::read::{At, Reader};
use super::roots::COUNTS;
use super::work::{ApprovalRequest, Fail, OnItemError, Parallel, Pause};
use crate::clock::{self, Timestamp};
use crate::declared::brief;
use crate::expr;
use crate::id::Name;

/// The longest wait: a year.
const LONGEST: Duration = Duration::from_hours(366 * 24);

/// The form of a duration, for error messages.
const DURATION: &str = "a number of seconds, or a text like 90s, 15m or 1h30m";

/// Reads a duration: seconds, or a text like `1h30m`. The error text describes the problem.
pub fn duration(value: &Value) -> Result<Duration, String> {
    let refused = || format!("must be {DURATION}, up to a year, not `{}`", brief(value));
    let read = match value {
        Value::Number(seconds) => seconds
            .as_f64()
            .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok()),
        Value::String(text) => clock::duration(text.trim()),
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
    };
    read.filter(|duration| *duration <= LONGEST)
        .ok_or_else(refused)
}

/// Reads a time in RFC 3339. The error text describes the problem.
pub fn time(value: &Value) -> Result<Timestamp, String> {
    let read = value
        .as_str()
        .and_then(|text| Timestamp::parse(text.trim()));
    read.ok_or_else(|| {
        format!(
            "must be a time like 2027-01-31T09:00:00Z, not `{}`",
            brief(value)
        )
    })
}

impl<'d> Reader<'d> {
    /// Reads the keys of a node that fails.
    pub(super) fn fail(&mut self, at: &At<'d>) -> Option<Fail> {
        let message = self.message(at, "it says why the run fails");
        let output = at.given("output");
        if let Some(output) = &output {
            self.template(output);
        }
        let code = match at.given("code") {
            None => Some(None),
            Some(given) => {
                let word = self.text(at, "code")?;
                let plain =
                    |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
                if word.is_empty() || !word.bytes().all(plain) {
                    let text =
                        "`code` is a word of small letters, digits and `_`, like coverage_too_low";
                    self.error("bad_name", &given, text);
                    None
                } else {
                    Some(Some(word.to_owned()))
                }
            }
        };
        Some(Fail {
            message: message?,
            code: code?,
            output: output.map(|at| at.value.clone()),
        })
    }

    /// Reads the template of a text for people.
    fn message(&mut self, node: &At<'d>, why: &str) -> Option<Value> {
        let _text = self.required_text(node, "message", why)?;
        let at = node.child("message")?;
        self.template(&at);
        Some(at.value.clone())
    }

    /// Reads the keys of a node that waits.
    pub(super) fn pause(&mut self, node: &At<'d>) -> Option<Pause> {
        match (node.given("for"), node.given("until")) {
            (Some(at), None) => {
                self.check_literal(&at, duration);
                Some(Pause::For(at.value.clone()))
            }
            (None, Some(at)) => {
                self.check_literal(&at, time);
                Some(Pause::Until(at.value.clone()))
            }
            (Some(_), Some(until)) => {
                let text = "`until` beside `for`: a node waits for a duration or until a time";
                self.error("conflict", until.named(), text);
                None
            }
            (None, None) => {
                let text = format!("a wait node has `for` ({DURATION}) or `until` (a time)");
                self.error("missing_key", node.named(), text);
                None
            }
        }
    }

    /// Checks a template, and its value if it is a literal.
    fn check_literal<T>(&mut self, at: &At<'d>, read: impl Fn(&Value) -> Result<T, String>) {
        self.template(at);
        if self.is_literal(at.value)
            && let Err(problem) = read(at.value)
        {
            self.error("wrong_type", at, format!("`{}` {problem}", at.key()));
        }
    }

    /// Reads the keys of an approval node.
    pub(super) fn ask(&mut self, node: &At<'d>) -> Option<ApprovalRequest> {
        let message = self.message(node, "it says what is to be approved");
        let schema = node.given("schema");
        if let Some(schema) = &schema
            && let Err((place, problem)) = Inputs::new(schema.value)
        {
            let place = if place.is_empty() {
                String::new()
            } else {
                format!(" at {place}")
            };
            self.error("bad_schema", schema, format!("`schema`{place}: {problem}"));
        }
        Some(ApprovalRequest {
            message: message?,
            schema: schema.map(|at| Arc::new(at.value.clone())),
        })
    }

    /// Reads the keys of a parallel node.
    pub(super) fn parallel(&mut self, node: &At<'d>) -> Option<Parallel> {
        let modes = &[
            ("fail", OnItemError::Fail),
            ("collect", OnItemError::Collect),
        ];
        let on_item_error = self.word(node, "on_item_error", modes);
        let at_once = self.whole(node, "max_concurrency", 1);
        let Some(at) = node.given("branches") else {
            let text = "the parallel node has no `branches`: a map of names and actions";
            self.error("missing_key", node.named(), text);
            return None;
        };
        let what = "a map of names and actions, with one at least";
        let members = self.members(&at, what)?;
        if members.is_empty() {
            self.wrong_type(&at, what);
            return None;
        }
        let mut branches = Vec::with_capacity(members.len());
        for (name, entry) in members {
            if !expr::is_name(name) {
                let text = format!("{name:?} is no name for a branch: no path can read its result");
                self.error("bad_name", entry.named(), text);
            }
            if COUNTS.contains(&name) {
                let text = format!(
                    "the result of the branch is `result.{name}`, in place of the number of branches: call it something else to read both"
                );
                self.warn("shadowed_result", entry.named(), text);
            }
            let action = self.action(&entry, &keys::ACTION);
            branches.push(action.map(|action| (Name::from(name), action)));
        }
        Some(Parallel {
            branches: branches.into_iter().collect::<Option<_>>()?,
            at_once: at_once.and_then(NonZeroU32::new),
            on_item_error: on_item_error?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_duration_is_seconds_or_a_text_with_units() {
        for (value, seconds) in [
            (json!(90), 90.0),
            (json!(0.5), 0.5),
            (json!("90"), 90.0),
            (json!("90s"), 90.0),
            (json!("1m30s"), 90.0),
            (json!("1h30m"), 5400.0),
            (json!("2d"), 172_800.0),
            (json!(" 1.5h "), 5400.0),
        ] {
            let read = duration(&value).unwrap();
            assert!((read.as_secs_f64() - seconds).abs() < 1e-9, "{value}");
        }
        for value in [
            json!("soon"),
            json!("30m1h"),
            json!("1h1h"),
            json!("-5s"),
            json!(-1),
            json!(""),
            json!("1h30"),
            json!("400d"),
            json!(true),
            json!(null),
        ] {
            assert!(duration(&value).is_err(), "{value}");
        }
    }
}
