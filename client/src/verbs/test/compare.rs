//! Whether what came of a call is what was expected, and what is different. Pure.

use std::fmt::Write as _;

use serde_json::{Number, Value};
use similar::{ChangeTag, TextDiff};

use super::file::{Expect, Wanted};

/// Lines of a difference that are shown.
const MOST_LINES: usize = 60;
/// Lines around a difference.
const AROUND: usize = 2;

/// What came of a call.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Outcome {
    /// What the tool answered.
    pub(super) data: Value,
    /// Why it failed, if it did.
    pub(super) failure: Option<Failed>,
}

/// Why a call failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Failed {
    /// In a word.
    pub(super) code: String,
    /// For people.
    pub(super) message: String,
}

/// Something that is not as it was expected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Problem {
    /// What, in a line or a few.
    pub(super) message: String,
    /// What is different, line by line: `-` was expected, `+` is there.
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

/// What of `outcome` is not as `expect` says.
pub(super) fn problems(expect: &Expect, outcome: &Outcome) -> Vec<Problem> {
    let mut problems = Vec::new();
    match (&outcome.failure, expect.success) {
        (None, true) => {}
        (None, false) => problems.push("it was expected to fail, and succeeded".to_owned().into()),
        // What it answered besides says little then.
        (Some(Failed { code, message }), true) => {
            return vec![format!("it failed: {message} ({code})").into()];
        }
        (Some(failed), false) => problems.extend(misfits(expect, failed)),
    }
    let (wanted, is_whole) = match &expect.result {
        None => return problems,
        Some(Wanted::Part(wanted)) => (wanted, false),
        Some(Wanted::Whole(wanted)) => (wanted, true),
    };
    if !fits(wanted, &outcome.data, is_whole) {
        let found = if is_whole {
            outcome.data.clone()
        } else {
            asked_of(wanted, &outcome.data)
        };
        problems.push(Problem {
            message: "the result is another one (- expected, + found)".to_owned(),
            diff: Some(diff(&pretty(wanted), &pretty(&found))),
        });
    }
    problems
}

/// What is not as it was expected of how a call failed.
fn misfits(expect: &Expect, failed: &Failed) -> Vec<Problem> {
    let mut problems: Vec<Problem> = Vec::new();
    let Failed { code, message } = failed;
    if let Some(wanted) = expect.code.as_ref().filter(|wanted| *wanted != code) {
        problems
            .push(format!("the code is `{code}`, and `{wanted}` was expected: {message}").into());
    }
    let lacks = |part: &&String| !message.contains(part.as_str());
    if let Some(part) = expect.error_contains.as_ref().filter(lacks) {
        problems.push(format!("the error does not contain `{part}`: {message}").into());
    }
    problems
}

/// Whether `found` is as `wanted` says: in all of it, or as far as `wanted` names keys.
fn fits(wanted: &Value, found: &Value, is_whole: bool) -> bool {
    match (wanted, found) {
        (Value::Object(wanted), Value::Object(found)) => {
            (!is_whole || wanted.len() == found.len())
                && wanted.iter().all(|(key, wanted)| {
                    found
                        .get(key)
                        .is_some_and(|found| fits(wanted, found, is_whole))
                })
        }
        (Value::Array(wanted), Value::Array(found)) => {
            let mut pairs = wanted.iter().zip(found);
            wanted.len() == found.len()
                && pairs.all(|(wanted, found)| fits(wanted, found, is_whole))
        }
        (Value::Number(wanted), Value::Number(found)) => are_equal(wanted, found),
        (wanted, found) => wanted == found,
    }
}

/// Whether two numbers are the same, however they are written: 1 is 1.0.
fn are_equal(one: &Number, other: &Number) -> bool {
    let is_whole = |number: &Number| number.is_i64() || number.is_u64();
    if is_whole(one) && is_whole(other) {
        one == other
    } else {
        one.as_f64() == other.as_f64()
    }
}

/// `found` without the keys that nothing was said about.
fn asked_of(wanted: &Value, found: &Value) -> Value {
    match (wanted, found) {
        (Value::Object(wanted), Value::Object(found)) => {
            // In the order in which they are expected, so that lines stand beside their likes.
            let named = wanted
                .iter()
                .filter_map(|(key, wanted)| Some((key.clone(), asked_of(wanted, found.get(key)?))));
            Value::Object(named.collect())
        }
        (Value::Array(wanted), Value::Array(found)) => {
            let nothing = Value::Null;
            let wanted = wanted.iter().chain(std::iter::repeat(&nothing));
            let list = found.iter().zip(wanted);
            Value::Array(
                list.map(|(found, wanted)| asked_of(wanted, found))
                    .collect(),
            )
        }
        (_, found) => found.clone(),
    }
}

fn pretty(value: &Value) -> String {
    let text = serde_json::to_string_pretty(value).expect("a JSON value is written");
    format!("{text}\n")
}

/// The lines that are different, with some around them.
fn diff(wanted: &str, found: &str) -> String {
    let lines = TextDiff::from_lines(wanted, found);
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

    fn expect(result: Option<Wanted>) -> Expect {
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
    fn a_result_has_what_is_named_and_may_have_more() {
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
                (Wanted::Part(wanted.clone()), as_part),
                (Wanted::Whole(wanted.clone()), as_whole),
            ] {
                let found = problems(&expect(Some(result.clone())), &answered(found.clone()));
                assert_eq!(found.is_empty(), fits, "{result:?}: {found:?}");
            }
        }
    }

    #[test]
    fn a_difference_shows_what_was_expected_and_what_is_there() {
        let wanted = Wanted::Part(json!({"greeting": "Hello, Bob.", "n": [1, 2]}));
        let found = answered(json!({"n": [1, 3], "x": "left out", "greeting": "Hello, Ada."}));
        let found = problems(&expect(Some(wanted)), &found);
        let shown = "  {\n-   \"greeting\": \"Hello, Bob.\",\n+   \"greeting\": \"Hello, Ada.\",\n    \"n\": [\n      1,\n\
                     -     2\n+     3\n    ]\n  }";
        assert_eq!(found[0].diff.as_deref(), Some(shown), "{found:?}");
        let much: Vec<usize> = (0..100).collect();
        let found = problems(
            &expect(Some(Wanted::Whole(json!([])))),
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
        let wanted = expect(Some(Wanted::Whole(json!(1))));
        assert_eq!(
            told(&wanted, &failed),
            ["it failed: no such row (tool_failed)"]
        );
    }
}
