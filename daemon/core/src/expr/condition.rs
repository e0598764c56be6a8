//! Conditions: `{path, op, value}`, `{path, op, value_path}`, `{all: […]}`, `{any: […]}`, `{not: …}`.

mod display;
mod misfit;
mod patterns;

use std::cmp::Ordering;

use fancy_regex::Regex;
use std::borrow::Cow;

use serde_json::{Map, Value};

use super::fault::{Severity, TemplateFault};
use super::interpolate::references;
use super::path::{Path, did_you_mean, nearest};
use super::scope::Scope;
use super::value::{compare, equal, kind_of, text_of};
use crate::yaml::push_segment;

pub(crate) use misfit::Known;
pub(crate) use patterns::Patterns;

use patterns::Unusable;

/// Cost of matching a pattern, in comparisons of a value. It is so high that no pattern is matched on a runtime's
/// worker.
const PATTERN_COST: usize = 1 << 32;
pub(crate) const OPS: [&str; 10] = [
    "eq", "ne", "gt", "gte", "lt", "lte", "in", "contains", "regex", "exists",
];
pub(crate) const LEAF_KEYS: [&str; 5] = ["path", "op", "operator", "value", "value_path"];
pub(crate) const COMBINATORS: [&str; 3] = ["all", "any", "not"];

/// A parsed condition. Its values are literals or paths; nothing in it is interpolated.
#[derive(Debug, Clone)]
pub struct Condition(Test);

#[derive(Debug, Clone)]
enum Test {
    /// The empty condition, and `exists` of the whole document.
    Always,
    All(Vec<Test>),
    Any(Vec<Test>),
    Not(Box<Test>),
    Leaf(Path, Op),
}

#[derive(Debug, Clone)]
enum Op {
    Compare(Comparison, Operand),
    Regex(Box<Regex>),
    /// True if a value other than null must exist, false if none may.
    Exists(bool),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Comparison {
    Eq,
    Ne,
    Order(Relation),
    In,
    Contains,
}

#[derive(Debug, Clone)]
enum Operand {
    Literal(Value),
    Path(Path),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Relation {
    Gt,
    Gte,
    Lt,
    Lte,
}

impl Relation {
    const fn name(self) -> &'static str {
        match self {
            Self::Gt => "gt",
            Self::Gte => "gte",
            Self::Lt => "lt",
            Self::Lte => "lte",
        }
    }

    fn accepts(self, ordering: Ordering) -> bool {
        match self {
            Self::Gt => ordering.is_gt(),
            Self::Gte => ordering.is_ge(),
            Self::Lt => ordering.is_lt(),
            Self::Lte => ordering.is_le(),
        }
    }
}

impl Condition {
    /// Parses a condition. Returns it with warnings, or returns all errors. Null and `{}` always hold.
    pub fn parse(value: &Value) -> Result<(Self, Vec<TemplateFault>), Vec<TemplateFault>> {
        Self::parse_among(value, &mut Patterns::default())
    }

    /// Parses a condition that shares `patterns` with others of its file. If these are exhausted, it may fail without
    /// an error.
    pub(crate) fn parse_among(
        value: &Value,
        patterns: &mut Patterns,
    ) -> Result<(Self, Vec<TemplateFault>), Vec<TemplateFault>> {
        let mut reader = Reader {
            at: String::new(),
            faults: Vec::new(),
            patterns,
        };
        match reader.test(value) {
            Some(test)
                if reader
                    .faults
                    .iter()
                    .all(|f| f.severity == Severity::Warning) =>
            {
                Ok((Self(test), reader.faults))
            }
            Some(_) | None => Err(reader.faults),
        }
    }

    /// Returns true if the condition holds. Different types do not match; a failed comparison leaves a note.
    pub fn holds(&self, scope: &dyn Scope, notes: &mut Vec<String>) -> bool {
        self.0.holds(scope, notes)
    }

    /// Returns true if the condition holds for all values.
    pub(crate) fn always_holds(&self) -> bool {
        self.0.always_holds()
    }

    /// Returns the largest cost of an evaluation, in comparisons of a value; a pattern counts as many.
    pub(crate) fn cost(&self) -> usize {
        self.0.cost()
    }

    /// Returns the paths that the condition reads, in order.
    pub fn paths(&self) -> Vec<&str> {
        let mut paths = Vec::new();
        self.0.collect(&mut paths);
        paths
    }
}

impl Test {
    fn holds(&self, scope: &dyn Scope, notes: &mut Vec<String>) -> bool {
        match self {
            Self::Always => true,
            Self::All(tests) => tests.iter().all(|test| test.holds(scope, notes)),
            Self::Any(tests) => tests.iter().any(|test| test.holds(scope, notes)),
            Self::Not(test) => !test.holds(scope, notes),
            Self::Leaf(path, op) => {
                let actual = path.resolve(scope).unwrap_or(Cow::Owned(Value::Null));
                op.holds(&actual, scope).unwrap_or_else(|reason| {
                    notes.push(format!(
                        "condition on {} does not match: {reason}",
                        path.text()
                    ));
                    false
                })
            }
        }
    }

    fn always_holds(&self) -> bool {
        match self {
            Self::Always => true,
            Self::All(tests) => tests.iter().all(Self::always_holds),
            Self::Any(tests) => tests.iter().any(Self::always_holds),
            Self::Not(_) | Self::Leaf(..) => false,
        }
    }

    fn cost(&self) -> usize {
        match self {
            Self::Always => 0,
            Self::All(tests) | Self::Any(tests) => {
                tests.iter().map(Self::cost).fold(0, usize::saturating_add)
            }
            Self::Not(test) => test.cost(),
            Self::Leaf(_, Op::Regex(_)) => PATTERN_COST,
            Self::Leaf(..) => 1,
        }
    }

    fn collect<'c>(&'c self, paths: &mut Vec<&'c str>) {
        match self {
            Self::Always => {}
            Self::All(tests) | Self::Any(tests) => {
                for test in tests {
                    test.collect(paths);
                }
            }
            Self::Not(test) => test.collect(paths),
            Self::Leaf(path, op) => {
                paths.push(path.text());
                if let Op::Compare(_, Operand::Path(other)) = op {
                    paths.push(other.text());
                }
            }
        }
    }
}

impl Op {
    /// Returns true if `actual` (null if missing) satisfies the operator. The error is the reason why they are not
    /// comparable.
    fn holds(&self, actual: &Value, scope: &dyn Scope) -> Result<bool, String> {
        match self {
            Self::Compare(comparison, Operand::Literal(value)) => comparison.holds(actual, value),
            Self::Compare(comparison, Operand::Path(path)) => {
                let value = path.resolve(scope).unwrap_or(Cow::Owned(Value::Null));
                comparison.holds(actual, &value)
            }
            Self::Exists(wanted) => Ok(actual.is_null() != *wanted),
            Self::Regex(regex) => match actual {
                Value::Null => Ok(false),
                Value::String(_) | Value::Number(_) => regex
                    .is_match(&text_of(actual))
                    .map_err(|error| format!("the pattern gave up: {error}")),
                Value::Bool(_) | Value::Array(_) | Value::Object(_) => {
                    Err(format!("`regex` needs a text, not {}", kind_of(actual)))
                }
            },
        }
    }
}

impl Comparison {
    fn named(name: &str) -> Option<Self> {
        Some(match name {
            "eq" => Self::Eq,
            "ne" => Self::Ne,
            "gt" => Self::Order(Relation::Gt),
            "gte" => Self::Order(Relation::Gte),
            "lt" => Self::Order(Relation::Lt),
            "lte" => Self::Order(Relation::Lte),
            "in" => Self::In,
            "contains" => Self::Contains,
            _ => return None,
        })
    }

    fn holds(self, actual: &Value, value: &Value) -> Result<bool, String> {
        match self {
            Self::Eq => Ok(equal(actual, value)),
            Self::Ne => Ok(!equal(actual, value)),
            Self::Order(relation) => order(relation, actual, value),
            Self::In => match value {
                Value::Array(list) => Ok(list.iter().any(|value| equal(actual, value))),
                Value::Null => Ok(false),
                Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Object(_) => {
                    Err(format!("`in` needs a list, not {}", kind_of(value)))
                }
            },
            Self::Contains => contains(actual, value),
        }
    }
}

fn order(relation: Relation, actual: &Value, value: &Value) -> Result<bool, String> {
    let ordering = match (actual, value) {
        (Value::Null, _) | (_, Value::Null) => return Ok(false),
        (Value::Number(a), Value::Number(b)) => compare(a, b),
        (Value::String(a), Value::String(b)) => Some(a.cmp(b)),
        _ => None,
    };
    ordering
        .map(|ordering| relation.accepts(ordering))
        .ok_or_else(|| {
            format!(
                "`{}` compares two numbers or two texts, not {} with {}",
                relation.name(),
                kind_of(actual),
                kind_of(value)
            )
        })
}

fn contains(actual: &Value, value: &Value) -> Result<bool, String> {
    match (actual, value) {
        (Value::Null, _) | (Value::String(_) | Value::Object(_), Value::Null) => Ok(false),
        (Value::Array(list), _) => Ok(list.iter().any(|member| equal(member, value))),
        (Value::String(text), Value::String(part)) => Ok(text.contains(part.as_str())),
        (Value::Object(map), Value::String(key)) => Ok(map.contains_key(key)),
        _ => Err(format!(
            "`contains` looks for a member of a list, a key of a map or a part of a text, not for {} in {}",
            kind_of(value),
            kind_of(actual)
        )),
    }
}

struct Reader<'p> {
    at: String,
    faults: Vec<TemplateFault>,
    patterns: &'p mut Patterns,
}

impl Reader<'_> {
    fn report(&mut self, severity: Severity, key: Option<&str>, message: impl Into<String>) {
        let mut at = self.at.clone();
        if let Some(key) = key {
            push_segment(&mut at, key);
        }
        self.faults.push(TemplateFault {
            at,
            message: message.into(),
            severity,
        });
    }

    fn error(&mut self, key: Option<&str>, message: impl Into<String>) {
        self.report(Severity::Error, key, message);
    }

    fn warn(&mut self, key: Option<&str>, message: impl Into<String>) {
        self.report(Severity::Warning, key, message);
    }

    /// Reads `value`; returns `None` after an error.
    fn test(&mut self, value: &Value) -> Option<Test> {
        let map = match value {
            Value::Null => return Some(Test::Always),
            Value::Object(map) if map.is_empty() => return Some(Test::Always),
            Value::Object(map) => map,
            Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
                self.error(
                    None,
                    format!(
                        "a condition is a map like {{path: state.x, op: eq, value: 1}}, not {}",
                        kind_of(value)
                    ),
                );
                return None;
            }
        };
        let combinator = COMBINATORS.into_iter().find(|name| map.contains_key(*name));
        match combinator {
            Some(name) => self.combined(name, map),
            None => self.leaf(map),
        }
    }

    fn combined(&mut self, name: &'static str, map: &Map<String, Value>) -> Option<Test> {
        for other in map.keys().filter(|key| *key != name) {
            self.error(
                Some(other),
                format!("`{other}` beside `{name}`: put both into one `all`"),
            );
        }
        let value = map.get(name)?;
        match (name, value) {
            ("not", _) => self
                .below(name, |reader| reader.test(value))
                .map(|test| Test::Not(Box::new(test))),
            (_, Value::Array(list)) => {
                let tests: Vec<Option<Test>> = self.below(name, |reader| {
                    list.iter()
                        .enumerate()
                        .map(|(index, entry)| {
                            reader.below(&index.to_string(), |reader| reader.test(entry))
                        })
                        .collect()
                });
                if list.is_empty() {
                    let outcome = if name == "all" { "always" } else { "never" };
                    self.warn(Some(name), format!("`{name}: []` {outcome} holds"));
                }
                let tests = tests.into_iter().collect::<Option<Vec<_>>>()?;
                Some(if name == "all" {
                    Test::All(tests)
                } else {
                    Test::Any(tests)
                })
            }
            _ => {
                self.error(
                    Some(name),
                    format!(
                        "`{name}` takes a list of conditions, not {}",
                        kind_of(value)
                    ),
                );
                None
            }
        }
    }

    fn below<T>(&mut self, segment: &str, read: impl FnOnce(&mut Self) -> T) -> T {
        let length = self.at.len();
        push_segment(&mut self.at, segment);
        let result = read(self);
        self.at.truncate(length);
        result
    }

    fn leaf(&mut self, map: &Map<String, Value>) -> Option<Test> {
        for key in map.keys().filter(|key| !LEAF_KEYS.contains(&key.as_str())) {
            let known = LEAF_KEYS.into_iter().chain(COMBINATORS);
            let hint = did_you_mean(nearest(key, known));
            self.error(
                Some(key),
                format!("unknown key `{key}` in a condition{hint}; there are path, op, value, value_path, all, any, not"),
            );
        }
        let before = self.faults.len();
        let op = self.op_name(map)?;
        let op = self.op(&op, map)?;
        match map.get("path") {
            Some(Value::String(path)) => match Path::parse(path) {
                Ok(path) => Some(Test::Leaf(path, op)),
                Err(reason) => {
                    self.error(Some("path"), reason);
                    None
                }
            },
            Some(other) => {
                self.error(
                    Some("path"),
                    format!("`path` is a text, not {}", kind_of(other)),
                );
                None
            }
            None => match op {
                Op::Exists(true) => Some(Test::Always),
                Op::Exists(false) => Some(Test::Not(Box::new(Test::Always))),
                Op::Compare(..) | Op::Regex(_) => {
                    self.faults.truncate(before);
                    self.error(None, "the condition has no `path`");
                    None
                }
            },
        }
    }

    fn op_name(&mut self, map: &Map<String, Value>) -> Option<String> {
        let (key, value) = match (map.get("op"), map.get("operator")) {
            (Some(_), Some(_)) => {
                self.error(Some("operator"), "`operator` beside `op`: keep one");
                return None;
            }
            (Some(op), None) => ("op", op),
            (None, Some(op)) => {
                self.warn(Some("operator"), "`operator` is read as `op`");
                ("operator", op)
            }
            (None, None) => return Some("eq".to_owned()),
        };
        let Value::String(name) = value else {
            self.error(
                Some(key),
                format!("`{key}` is a text, not {}", kind_of(value)),
            );
            return None;
        };
        if name == "neq" {
            self.warn(Some(key), "`neq` is read as `ne`");
            return Some("ne".to_owned());
        }
        if OPS.contains(&name.as_str()) {
            return Some(name.clone());
        }
        self.error(
            Some(key),
            format!("unknown op `{name}`; there are {}", OPS.join(", ")),
        );
        None
    }

    fn op(&mut self, name: &str, map: &Map<String, Value>) -> Option<Op> {
        let given = map.get("value");
        if let Some(path) = map.get("value_path") {
            return self.with_path(name, path, given.is_some());
        }
        let value = given.cloned().unwrap_or_default();
        if !references(&value, &|_| true).is_empty() {
            self.warn(
                Some("value"),
                "the `value` of a condition is literal: nothing in it is interpolated; `value_path: inputs.x` compares with the value there",
            );
        }
        if given.is_none() && matches!(name, "eq" | "ne") {
            self.warn(
                None,
                format!("`{name}` without `value` compares with null; `op: exists` says so"),
            );
        }
        if let Some(comparison) = Comparison::named(name) {
            self.never_matching(name, comparison, &value);
            return Some(Op::Compare(comparison, Operand::Literal(value)));
        }
        match name {
            "regex" => self.regex(&value),
            _ => match given {
                None | Some(Value::Null) => Some(Op::Exists(true)),
                Some(Value::Bool(wanted)) => Some(Op::Exists(*wanted)),
                Some(other) => {
                    self.error(
                        Some("value"),
                        format!("`exists` takes true or false, not {}", kind_of(other)),
                    );
                    None
                }
            },
        }
    }

    /// Builds the comparison `name` with the value at `path`.
    fn with_path(&mut self, name: &str, path: &Value, beside_value: bool) -> Option<Op> {
        if beside_value {
            self.error(Some("value_path"), "`value_path` beside `value`: keep one");
            return None;
        }
        let Some(comparison) = Comparison::named(name) else {
            let problem = format!("`{name}` takes no `value_path`");
            self.error(Some("value_path"), problem);
            return None;
        };
        let Value::String(text) = path else {
            let problem = format!("`value_path` is a text, not {}", kind_of(path));
            self.error(Some("value_path"), problem);
            return None;
        };
        match Path::parse(text) {
            Ok(path) => Some(Op::Compare(comparison, Operand::Path(path))),
            Err(reason) => {
                self.error(Some("value_path"), reason);
                None
            }
        }
    }

    /// Warns of a value that no comparison matches.
    fn never_matching(&mut self, name: &str, comparison: Comparison, value: &Value) {
        match comparison {
            Comparison::In if !value.is_array() => self.never(name, "a list", value),
            Comparison::Contains if value.is_null() => self.never(name, "a value", value),
            Comparison::Order(_) if !value.is_number() && !value.is_string() => {
                self.never(name, "a number or a text", value);
            }
            Comparison::Eq
            | Comparison::Ne
            | Comparison::Order(_)
            | Comparison::In
            | Comparison::Contains => {}
        }
    }

    fn never(&mut self, op: &str, wants: &str, value: &Value) {
        self.warn(
            Some("value"),
            format!(
                "`{op}` needs {wants}, not {}: it never matches",
                kind_of(value)
            ),
        );
    }

    fn regex(&mut self, value: &Value) -> Option<Op> {
        let Value::String(pattern) = value else {
            self.error(
                Some("value"),
                format!("`regex` takes a pattern, not {}", kind_of(value)),
            );
            return None;
        };
        match self.patterns.compile(pattern) {
            Ok(regex) => return Some(Op::Regex(Box::new(regex))),
            Err(Unusable::Bad(why)) => {
                self.error(
                    Some("value"),
                    format!("`{pattern}` is not a pattern: {why}"),
                );
            }
            Err(Unusable::TooComplex(why)) => self.error(Some("value"), why),
            Err(Unusable::Reported) => {}
        }
        None
    }
}
