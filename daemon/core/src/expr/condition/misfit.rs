//! Conditions that can never hold because of the types of the values that they read.

use std::collections::BTreeSet;

use serde_json::Value;

use super::{Comparison, Condition, Op, Operand, Test};
use crate::expr::fault::{Severity, TemplateFault};
use crate::expr::value::{Kind, equal};
use crate::yaml::push_segment;

/// Known facts about the values of a path. Null is always possible: the path may be unassigned.
#[derive(Debug, Clone)]
pub(crate) struct Known<'v> {
    /// Possible types.
    pub(crate) kinds: BTreeSet<Kind>,
    /// All possible values, if known.
    pub(crate) choices: Option<&'v [Value]>,
}

impl Condition {
    /// Returns warnings about comparisons with the same result in every run.
    pub(crate) fn misfits<'v>(
        &self,
        known: &dyn Fn(&str) -> Option<Known<'v>>,
    ) -> Vec<TemplateFault> {
        let mut faults = Vec::new();
        collect(&self.0, &mut String::new(), known, &mut faults);
        faults
    }
}

fn collect<'v>(
    test: &Test,
    at: &mut String,
    known: &dyn Fn(&str) -> Option<Known<'v>>,
    faults: &mut Vec<TemplateFault>,
) {
    let length = at.len();
    match test {
        Test::Always => {}
        Test::All(tests) | Test::Any(tests) => {
            at.push_str(if matches!(test, Test::All(_)) {
                "/all"
            } else {
                "/any"
            });
            let below = at.len();
            for (index, test) in tests.iter().enumerate() {
                push_segment(at, &index.to_string());
                collect(test, at, known, faults);
                at.truncate(below);
            }
        }
        Test::Not(test) => {
            at.push_str("/not");
            collect(test, at, known, faults);
        }
        Test::Leaf(path, op) => {
            if let Some(known) = known(path.text())
                && let Some(misfit) = op.misfit(&known)
            {
                faults.push(TemplateFault {
                    at: at.clone(),
                    message: format!("{} is {misfit}", path.text()),
                    severity: Severity::Warning,
                });
            }
        }
    }
    at.truncate(length);
}

impl Op {
    /// Returns the possible values and the consequence for this comparison, to complete "`path` is …".
    fn misfit(&self, known: &Known<'_>) -> Option<String> {
        let has = |kind| known.kinds.contains(&kind);
        let (comparison, value) = match self {
            // The value at the other path is unknown.
            Self::Exists(_) | Self::Compare(_, Operand::Path(_)) => return None,
            Self::Regex(_) => {
                let possible = has(Kind::Text) || has(Kind::Number);
                let verdict = "`regex` never matches";
                return (!possible).then(|| format!("{}: {verdict}", describe(known)));
            }
            Self::Compare(comparison, Operand::Literal(value)) => (*comparison, value),
        };
        let (possible, verdict) = match (comparison, value) {
            (Comparison::Eq, _) => (can_be(known, value), "`eq` never matches"),
            (Comparison::Ne, _) => (can_be(known, value), "`ne` always matches"),
            (Comparison::In, Value::Array(list)) if !list.is_empty() => (
                list.iter().any(|value| can_be(known, value)),
                "`in` never matches",
            ),
            (Comparison::Order(_), Value::Number(_) | Value::String(_)) => {
                (has(Kind::of(value)), "the comparison never matches")
            }
            (Comparison::Contains, _) => (
                has(Kind::List) || (value.is_string() && (has(Kind::Text) || has(Kind::Map))),
                "`contains` never matches",
            ),
            // The parser of conditions has already warned that these never match.
            (Comparison::In | Comparison::Order(_), _) => return None,
        };
        (!possible).then(|| format!("{}: {verdict}", describe(known)))
    }
}

fn can_be(known: &Known<'_>, value: &Value) -> bool {
    value.is_null()
        || (known.kinds.contains(&Kind::of(value))
            && known
                .choices
                .is_none_or(|choices| choices.iter().any(|choice| equal(choice, value))))
}

fn describe(known: &Known<'_>) -> String {
    if let Some(choices) = known.choices {
        let all: Vec<String> = choices.iter().take(10).map(Value::to_string).collect();
        return format!("one of {}", all.join(", "));
    }
    let all: Vec<&str> = known
        .kinds
        .iter()
        .filter(|kind| **kind != Kind::Null)
        .map(|kind| kind.as_str())
        .collect();
    if all.is_empty() {
        "always null".to_owned()
    } else {
        all.join(" or ")
    }
}
