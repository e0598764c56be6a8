//! Comparison of the outcome of a call with the expected one. Pure.

use std::fmt::Write as _;

use serde::Serialize;
use serde_json::{Number, Value};
use similar::{ChangeTag, TextDiff};

use super::file::{Expect, Expected};

/// Most lines of a difference that are shown.
const MOST_LINES: usize = 60;
/// Lines of context around a difference.
const AROUND: usize = 2;

/// Outcome of a call.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Outcome {
    /// Result of the tool.
    pub(super) data: Value,
    /// `None` if the call succeeded.
    pub(super) failure: Option<Failed>,
}

/// Failure of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Failed {
    /// Reason as a word for programs.
    pub(super) code: String,
    pub(super) message: String,
}

/// A difference from what was expected.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Problem {
    /// One or a few lines for people.
    pub(super) message: String,
    /// Lines that differ: `-` is expected, `+` is found.
    pub(super) diff: Option<String>,
}

impl From<String> for Problem {
    fn from(message: String) -> Self {
        Self {
            message,
            diff: None,
        }
    }
}

/// Returns the differences between `outcome` and `expect`.
pub(super) fn problems(expect: &Expect, outcome: &Outcome) -> Vec<Problem> {
    let mut problems = match (&outcome.failure, expect.success) {
        (None, true) => Vec::new(),
        (None, false) => vec!["it was expected to fail, and succeeded".to_owned().into()],
        // The result of a failed call says little.
        (Some(Failed { code, message }), true) => {
            return vec![format!("it failed: {message} ({code})").into()];
        }
        (Some(failed), false) => misfits(expect, failed),
    };
    let (expected, found) = match &expect.result {
        None => return problems,
        Some(Expected::Part(part)) => (part, named(part, &outcome.data)),
        Some(Expected::Whole(whole)) => (whole, outcome.data.clone()),
    };
    if !are_equal(expected, &found) {
        problems.push(Problem {
            message: "the result is another one (- expected, + found)".to_owned(),
            diff: Some(diff(&pretty(expected), &pretty(&found))),
        });
    }
    problems
}

/// Compares the code and the message of a failure with the expected ones.
fn misfits(expect: &Expect, Failed { code, message }: &Failed) -> Vec<Problem> {
    let mut problems: Vec<Problem> = Vec::new();
    if let Some(expected) = expect.code.as_ref().filter(|expected| *expected != code) {
        problems
            .push(format!("the code is `{code}`, and `{expected}` was expected: {message}").into());
    }
    let lacks = |part: &&String| !message.contains(part.as_str());
    if let Some(part) = expect.error_contains.as_ref().filter(lacks) {
        problems.push(format!("the error does not contain `{part}`: {message}").into());
    }
    problems
}

/// True if the values are equal. Numbers are compared by value, so 1 equals 1.0.
fn are_equal(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Object(one), Value::Object(other)) => {
            let is_in_other = |(key, value): (&String, &Value)| {
                other.get(key).is_some_and(|other| are_equal(value, other))
            };
            one.len() == other.len() && one.iter().all(is_in_other)
        }
        (Value::Array(one), Value::Array(other)) => {
            let mut pairs = one.iter().zip(other);
            one.len() == other.len() && pairs.all(|(one, other)| are_equal(one, other))
        }
        (Value::Number(one), Value::Number(other)) => {
            let is_whole = |number: &Number| number.is_i64() || number.is_u64();
            if is_whole(one) && is_whole(other) {
                one == other
            } else {
                one.as_f64() == other.as_f64()
            }
        }
        (one, other) => one == other,
    }
}

/// Returns `found` without the keys that `part` does not name, in the order of `part`, so that a diff aligns the lines.
fn named(part: &Value, found: &Value) -> Value {
    match (part, found) {
        (Value::Object(part), Value::Object(found)) => {
            let entries = part
                .iter()
                .filter_map(|(key, part)| Some((key.clone(), named(part, found.get(key)?))));
            Value::Object(entries.collect())
        }
        (Value::Array(part), Value::Array(found)) => {
            let parts = part.iter().chain(std::iter::repeat(&Value::Null));
            let pairs = found.iter().zip(parts);
            Value::Array(pairs.map(|(found, part)| named(part, found)).collect())
        }
        (_, found) => found.clone(),
    }
}

fn pretty(value: &Value) -> String {
    let text = serde_json::to_string_pretty(value).expect("a JSON value is written");
    format!("{text}\n")
}

/// Returns the lines that differ, with some lines of context.
fn diff(expected: &str, found: &str) -> String {
    let lines = TextDiff::from_lines(expected, found);
    let mut text = String::new();
    let (mut shown, mut left) = (0, 0);
    for (at, group) in lines.grouped_ops(AROUND).iter().enumerate() {
        if at > 0 {
            text.push_str("  …\n");
        }
        for change in group.iter().flat_map(|op| lines.iter_changes(op)) {
            if shown == MOST_LINES {
                left += 1;
                continue;
            }
            shown += 1;
            let sign = match change.tag() {
                ChangeTag::Equal => ' ',
                ChangeTag::Delete => '-',
                ChangeTag::Insert => '+',
            };
            let line = change.value().trim_end_matches('\n');
            writeln!(text, "{sign} {line}").expect("writing to a String cannot fail");
        }
    }
    if left > 0 {
        writeln!(text, "  … and {left} more lines").expect("writing to a String cannot fail");
    }
    text.truncate(text.trim_end().len());
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn expect(result: Option<Expected>) -> Expect {
        Expect {
            success: true,
            result,
            code: None,
            error_contains: None,
        }
    }

    fn answered(data: Value) -> Outcome {
        Outcome {
            data,
            failure: None,
        }
    }

    #[test]
    fn result_comparison_ignores_extra_keys() {
        for (wanted, found, as_part, as_whole) in [
            (json!({"a": 1}), json!({"a": 1, "b": 2}), true, false),
            (
                json!({"a": {"b": 1}}),
                json!({"a": {"b": 1, "c": 2}}),
                true,
                false,
            ),
            (json!([{"a": 1}]), json!([{"a": 1, "b": 2}]), true, false),
            (json!({"b": 2, "a": 1}), json!({"a": 1, "b": 2}), true, true),
            (json!([1]), json!([1, 2]), false, false),
            (json!({"a": null}), json!({}), false, false),
            (json!({"a": null}), json!({"a": null}), true, true),
            (json!({"a": 1.0}), json!({"a": 1}), true, true),
            (json!(u64::MAX), json!(u64::MAX - 1), false, false),
            (json!({}), json!([]), false, false),
            (json!("1"), json!(1), false, false),
            (json!({}), json!({"a": 1}), true, false),
        ] {
            for (result, fits) in [
                (Expected::Part(wanted.clone()), as_part),
                (Expected::Whole(wanted.clone()), as_whole),
            ] {
                let found = problems(&expect(Some(result.clone())), &answered(found.clone()));
                assert_eq!(found.is_empty(), fits, "{result:?}: {found:?}");
            }
        }
    }

    #[test]
    fn result_diff_shows_expected_and_actual() {
        let wanted = Expected::Part(json!({"greeting": "Hello, Bob.", "n": [1, 2]}));
        let found = answered(json!({"n": [1, 3], "x": "left out", "greeting": "Hello, Ada."}));
        let found = problems(&expect(Some(wanted)), &found);
        let shown = "  {\n-   \"greeting\": \"Hello, Bob.\",\n+   \"greeting\": \"Hello, Ada.\",\n    \"n\": [\n      1,\n\
                     -     2\n+     3\n    ]\n  }";
        assert_eq!(found[0].diff.as_deref(), Some(shown), "{found:?}");
        let much: Vec<usize> = (0..100).collect();
        let found = problems(
            &expect(Some(Expected::Whole(json!([])))),
            &answered(json!(much)),
        );
        let diff = found[0].diff.as_ref().unwrap();
        assert!(diff.ends_with("more lines") && diff.lines().count() == MOST_LINES + 1);
    }

    #[test]
    fn a_failure_is_expected_by_its_code_or_by_words_of_its_message() {
        let failed = Outcome {
            data: Value::Null,
            failure: Some(Failed {
                code: "tool_failed".to_owned(),
                message: "no such row".to_owned(),
            }),
        };
        let fails = |code: Option<&str>, part: Option<&str>| Expect {
            success: false,
            result: None,
            code: code.map(str::to_owned),
            error_contains: part.map(str::to_owned),
        };
        let told = |expect: &Expect, outcome: &Outcome| -> Vec<String> {
            let found = problems(expect, outcome);
            found.into_iter().map(|problem| problem.message).collect()
        };
        assert!(told(&fails(None, None), &failed).is_empty());
        assert!(told(&fails(Some("tool_failed"), Some("such row")), &failed).is_empty());
        let both = told(&fails(Some("timeout"), Some("table")), &failed);
        assert_eq!(
            both,
            [
                "the code is `tool_failed`, and `timeout` was expected: no such row",
                "the error does not contain `table`: no such row"
            ]
        );
        let succeeded = answered(json!(1));
        let told_of = told(&fails(Some("timeout"), None), &succeeded);
        assert_eq!(told_of, ["it was expected to fail, and succeeded"]);
        let wanted = expect(Some(Expected::Whole(json!(1))));
        assert_eq!(
            told(&wanted, &failed),
            ["it failed: no such row (tool_failed)"]
        );
    }
}
