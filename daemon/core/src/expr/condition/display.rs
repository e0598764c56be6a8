//! Display form of conditions: `state.n >= 3 and not (inputs.dry == true)`.

use std::fmt::{self, Display as _};

use serde_json::Value;

use super::{Comparison, Condition, Op, Operand, Relation, Test};

/// Largest length, in characters, of a value that is shown whole.
const MAX_VALUE: usize = 40;

impl fmt::Display for Condition {
    /// Writes one line. Values are JSON; long ones are cut.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for Test {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Always => f.write_str("always"),
            Self::All(tests) => joined(f, tests, "and", "always"),
            Self::Any(tests) => joined(f, tests, "or", "never"),
            Self::Not(test) => write!(f, "not ({test})"),
            Self::Leaf(path, op) => write!(f, "{} {op}", path.text()),
        }
    }
}

/// Joins several tests in one line; nested lists are put in parentheses.
fn joined(f: &mut fmt::Formatter<'_>, tests: &[Test], word: &str, none: &str) -> fmt::Result {
    match tests {
        [] => f.write_str(none),
        [test] => test.fmt(f),
        _ => {
            for (index, test) in tests.iter().enumerate() {
                if index > 0 {
                    write!(f, " {word} ")?;
                }
                if matches!(test, Test::All(inner) | Test::Any(inner) if inner.len() > 1) {
                    write!(f, "({test})")?;
                } else {
                    test.fmt(f)?;
                }
            }
            Ok(())
        }
    }
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Compare(comparison, operand) => {
                let sign = match comparison {
                    Comparison::Eq => "==",
                    Comparison::Ne => "!=",
                    Comparison::Order(Relation::Gt) => ">",
                    Comparison::Order(Relation::Gte) => ">=",
                    Comparison::Order(Relation::Lt) => "<",
                    Comparison::Order(Relation::Lte) => "<=",
                    Comparison::In => "in",
                    Comparison::Contains => "contains",
                };
                match operand {
                    Operand::Literal(value) => write!(f, "{sign} {}", short(value)),
                    Operand::Path(path) => write!(f, "{sign} {}", path.text()),
                }
            }
            Self::Regex(regex) => write!(f, "matches {}", short(&regex.as_str().into())),
            Self::Exists(true) => f.write_str("exists"),
            Self::Exists(false) => f.write_str("is missing"),
        }
    }
}

fn short(value: &Value) -> String {
    let text = value.to_string();
    match text.char_indices().nth(MAX_VALUE) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}
