//! JSON Schemas, and checks of values at a bounded cost.
//!
//! A check of a few hundred bytes against a schema that refers to itself may take hours, and the list of its errors may
//! fill any memory. So each access to a value costs a step, and a check that has no steps left is aborted. The first
//! pass only determines if a value is valid, which needs no memory. Errors are collected in a second pass with fewer
//! steps. **Never** lets a pattern backtrack or use memory without a bound.

use std::any::Any;
use std::borrow::Cow;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::slice;

use jsonschema::error::ValidationErrorKind;
use jsonschema::json::{Array, Json, Node, NodeIdentity, Object as Members};
use jsonschema::{JsonType, PatternOptions, ValidationError, Validator};
use serde_json::{Map, Number, Value, map};

/// Most steps for determining if a value is valid: about a second.
const MOST_STEPS: u64 = 20_000_000;
/// Most steps for collecting errors: each may leave an error in memory.
const MAX_ERROR_STEPS: u64 = 50_000;
/// Characters of a text that cost one step.
const CHARACTERS: usize = 64;
/// Most patterns in one schema.
const MOST_PATTERNS: usize = 100;
/// Approximate limit in bytes on the memory of one pattern.
const PATTERN_BYTES: usize = 256 << 10;
/// Most backtracks of a pattern with look-around in one text.
const MOST_BACKTRACKS: usize = 100_000;

/// A compiled schema.
#[derive(Debug, Clone)]
pub struct Schema {
    source: Value,
    validator: Validator<Metered>,
}

/// Reason why a value is no usable schema.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unusable {
    /// JSON pointer into the schema.
    pub at: String,
    /// Message for people.
    pub problem: String,
}

/// An error in a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// JSON pointer into the value.
    pub at: String,
    /// Message for people; it may be as long as the value.
    pub message: String,
    pub about: About,
    /// True if the value at that position is null.
    pub is_null: bool,
}

/// Subject of a problem.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum About {
    /// This property of a map is missing.
    Missing(String),
    /// These properties of a map are not allowed.
    Unexpected(Vec<String>),
    Value,
}

impl Problem {
    fn of(error: &ValidationError<'_>) -> Self {
        let about = if let ValidationErrorKind::Required { property } = error.kind() {
            let name = property.as_str().map(str::to_owned);
            About::Missing(name.unwrap_or_else(|| property.to_string()))
        } else if let ValidationErrorKind::AdditionalProperties { unexpected } = error.kind() {
            About::Unexpected(unexpected.clone())
        } else {
            About::Value
        };
        Self {
            at: error.instance_path().as_str().to_owned(),
            message: error.to_string(),
            about,
            is_null: error.instance().is_null(),
        }
    }
}

/// Reason why problems cannot be reported.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CheckError {
    /// The value is invalid, but collecting the errors took too many steps.
    #[error("does not fit the schema, and to tell where would take too long")]
    Misfit,
    /// It is unknown if the value is valid.
    #[error(
        "cannot be checked against the schema in {MOST_STEPS} steps: simplify the schema, or give it less to check"
    )]
    TooComplex,
}

impl Schema {
    /// Compiles a schema.
    pub fn new(source: &Value) -> Result<Self, Unusable> {
        let patterns = patterns(source);
        if patterns > MOST_PATTERNS {
            let problem =
                format!("has {patterns} patterns, and at most {MOST_PATTERNS} are allowed");
            let at = String::new();
            return Err(Unusable { at, problem });
        }
        let patterns = PatternOptions::fancy_regex()
            .backtrack_limit(MOST_BACKTRACKS)
            .size_limit(PATTERN_BYTES)
            .dfa_size_limit(PATTERN_BYTES);
        let options = jsonschema::options_for::<Metered>().with_pattern_options(patterns);
        let validator = options.build(source).map_err(|error| Unusable {
            at: error.instance_path().as_str().to_owned(),
            problem: format!("not a JSON schema: {error}"),
        })?;
        Ok(Self {
            source: source.clone(),
            validator,
        })
    }

    /// Returns the schema as it was written.
    pub const fn source(&self) -> &Value {
        &self.source
    }

    /// Returns at most `most` problems of `value`; none if it is valid.
    pub fn problems(&self, value: &Value, most: usize) -> Result<Vec<Problem>, CheckError> {
        let fits = metered(MOST_STEPS, || self.validator.is_valid(MeteredValue(value)));
        if fits.ok_or(CheckError::TooComplex)? {
            return Ok(Vec::new());
        }
        let told = metered(MAX_ERROR_STEPS, || {
            let errors = self.validator.iter_errors(MeteredValue(value)).take(most);
            errors.map(|error| Problem::of(&error)).collect()
        });
        told.ok_or(CheckError::Misfit)
    }
}

/// Returns an upper bound on the number of patterns in `schema`, because data that looks like a pattern counts too.
fn patterns(schema: &Value) -> usize {
    match schema {
        Value::Object(map) => map
            .iter()
            .map(|(key, value)| {
                let own = match (key.as_str(), value) {
                    ("pattern", Value::String(_)) => 1,
                    ("patternProperties", Value::Object(patterns)) => patterns.len(),
                    _ => 0,
                };
                own + patterns(value)
            })
            .sum(),
        Value::Array(list) => list.iter().map(patterns).sum(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => 0,
    }
}

thread_local! {
    /// Steps that the check on this thread has left.
    static LEFT: Cell<u64> = const { Cell::new(u64::MAX) };
}

/// Panic payload of a check that has no steps left.
struct Exhausted;

/// Runs `work`, or returns `None` if it takes more than `most` steps. Unwinding is the only way to stop the library.
fn metered<T>(most: u64, work: impl FnOnce() -> T) -> Option<T> {
    let before = LEFT.replace(most);
    let done = catch_unwind(AssertUnwindSafe(work));
    LEFT.set(before);
    let is_exhausted = |panic: &Box<dyn Any + Send>| panic.is::<Exhausted>();
    match done {
        Ok(value) => Some(value),
        Err(panic) if is_exhausted(&panic) => None,
        Err(panic) => resume_unwind(panic),
    }
}

fn pay(steps: usize) {
    let left = LEFT
        .get()
        .checked_sub(u64::try_from(steps).unwrap_or(u64::MAX));
    match left {
        Some(left) => LEFT.set(left),
        None => resume_unwind(Box::new(Exhausted)),
    }
}

/// A representation of JSON in which each access costs a step.
#[derive(Debug)]
struct Metered;

#[derive(Debug, Clone, Copy)]
struct MeteredValue<'a>(&'a Value);

impl<'a> MeteredValue<'a> {
    fn value(self) -> &'a Value {
        pay(1);
        self.0
    }
}

impl Json for Metered {
    type Node<'a> = MeteredValue<'a>;
    type PreparedKey = String;
    type StringBuffer = Value;

    fn prepare_key(key: &str) -> String {
        key.to_owned()
    }

    fn with_string_node<T>(
        buffer: &mut Value,
        string: &str,
        f: impl FnOnce(MeteredValue<'_>) -> T,
    ) -> T {
        *buffer = Value::String(string.to_owned());
        f(MeteredValue(buffer))
    }
}

impl<'a> Node<'a, Metered> for MeteredValue<'a> {
    type Object = MeteredMap<'a>;
    type Array = MeteredList<'a>;
    type Number = &'a Number;

    fn as_object(&self) -> Option<MeteredMap<'a>> {
        self.value().as_object().map(MeteredMap)
    }

    fn as_array(&self) -> Option<MeteredList<'a>> {
        self.value().as_array().map(|list| MeteredList(list))
    }

    fn as_string(&self) -> Option<Cow<'a, str>> {
        let text = self.value().as_str()?;
        pay(text.len() / CHARACTERS);
        Some(Cow::Borrowed(text))
    }

    fn as_number(&self) -> Option<&'a Number> {
        self.value().as_number()
    }

    fn as_boolean(&self) -> Option<bool> {
        self.value().as_bool()
    }

    fn is_null(&self) -> bool {
        self.value().is_null()
    }

    fn json_type(&self) -> JsonType {
        match self.value() {
            Value::Null => JsonType::Null,
            Value::Bool(_) => JsonType::Boolean,
            Value::Number(_) => JsonType::Number,
            Value::String(_) => JsonType::String,
            Value::Array(_) => JsonType::Array,
            Value::Object(_) => JsonType::Object,
        }
    }

    fn to_value(&self) -> Cow<'a, Value> {
        Cow::Borrowed(self.value())
    }

    fn identity(&self) -> Option<NodeIdentity> {
        let address = std::ptr::from_ref::<Value>(self.0).addr();
        Some(NodeIdentity::new(address))
    }
}

struct MeteredMap<'a>(&'a Map<String, Value>);

impl<'a> Members<'a, Metered> for MeteredMap<'a> {
    type Node = MeteredValue<'a>;
    type MemberName = &'a str;
    type MembersIter = MembersIter<'a>;

    fn len(&self) -> usize {
        self.0.len()
    }

    fn get(&self, key: &String) -> Option<MeteredValue<'a>> {
        pay(1);
        self.0.get(key).map(MeteredValue)
    }

    fn members(&self) -> MembersIter<'a> {
        MembersIter(self.0.iter())
    }
}

struct MembersIter<'a>(map::Iter<'a>);

impl<'a> Iterator for MembersIter<'a> {
    type Item = (&'a str, MeteredValue<'a>);

    fn next(&mut self) -> Option<Self::Item> {
        pay(1);
        let (name, value) = self.0.next()?;
        Some((name, MeteredValue(value)))
    }
}

struct MeteredList<'a>(&'a [Value]);

impl<'a> Array<'a, Metered> for MeteredList<'a> {
    type Node = MeteredValue<'a>;
    type ElementsIter = ElementsIter<'a>;

    fn len(&self) -> usize {
        self.0.len()
    }

    fn elements(&self) -> ElementsIter<'a> {
        ElementsIter(self.0.iter())
    }
}

struct ElementsIter<'a>(slice::Iter<'a, Value>);

impl<'a> Iterator for ElementsIter<'a> {
    type Item = MeteredValue<'a>;

    fn next(&mut self) -> Option<MeteredValue<'a>> {
        pay(1);
        self.0.next().map(MeteredValue)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn schema(source: &Value) -> Schema {
        Schema::new(source).unwrap()
    }

    fn problems(source: &Value, value: &Value) -> Result<Vec<Problem>, CheckError> {
        schema(source).problems(value, 20)
    }

    #[test]
    fn schema_reports_problems_of_invalid_value() {
        let person = json!({
            "type": "object",
            "properties": {"name": {"type": "string", "pattern": "^[a-z]+$"}, "age": {"minimum": 0}},
            "required": ["name"],
            "additionalProperties": false,
        });
        assert_eq!(
            problems(&person, &json!({"name": "ann", "age": 3})),
            Ok(vec![])
        );
        let told = problems(&person, &json!({"name": "Ann", "age": -1, "x": 1})).unwrap();
        let of = |about: &About| told.iter().find(|problem| problem.about == *about);
        let unexpected = About::Unexpected(vec!["x".to_owned()]);
        assert_eq!(of(&unexpected).unwrap().at, "");
        assert_eq!(told.len(), 3, "{told:?}");
        let missing = problems(&person, &json!({})).unwrap();
        assert_eq!(missing[0].about, About::Missing("name".to_owned()));
    }

    #[test]
    fn schema_bounds_steps_for_errors() {
        // Any JSON without numbers. An error at each level is repeated for each arm of `anyOf`.
        let tree = json!({
            "$defs": {"tree": {"anyOf": [
                {"type": "string"},
                {"type": "array", "items": {"$ref": "#/$defs/tree"}},
                {"type": "object", "additionalProperties": {"$ref": "#/$defs/tree"}},
                {"type": "array", "prefixItems": [{"$ref": "#/$defs/tree"}]},
            ]}},
            "$ref": "#/$defs/tree",
        });
        let nested = |levels: u32, inner| (0..levels).fold(inner, |inner, _| json!([inner]));
        assert_eq!(
            problems(&tree, &nested(20, json!(1))),
            Err(CheckError::Misfit)
        );
        let fits = nested(60, json!("x"));
        assert_eq!(problems(&tree, &fits), Ok(vec![]));
    }

    #[test]
    fn schema_bounds_steps_for_doubling_references() {
        let mut defs = Map::new();
        for level in 0..40 {
            let next = json!({"$ref": format!("#/$defs/d{}", level + 1)});
            let twice = json!({"anyOf": [next, {"allOf": [next]}]});
            defs.insert(format!("d{level}"), twice);
        }
        defs.insert("d40".to_owned(), json!({"type": "string", "maxLength": 1}));
        let doubling = json!({"$defs": defs, "$ref": "#/$defs/d0"});
        assert_eq!(problems(&doubling, &json!(1)), Err(CheckError::TooComplex));
    }

    #[test]
    fn schema_bounds_number_and_size_of_patterns() {
        let properties: Map<String, Value> = (0..=MOST_PATTERNS)
            .map(|number| (format!("p{number}"), json!({"pattern": "^a+$"})))
            .collect();
        let refused = Schema::new(&json!({"properties": properties})).unwrap_err();
        assert!(
            refused.problem.contains("101 patterns"),
            "{}",
            refused.problem
        );
        assert!(Schema::new(&json!({"pattern": "("})).is_err());
        let huge = Schema::new(&json!({"pattern": "(a{1,1000}){1,1000}"}));
        assert!(huge.is_err(), "{huge:?}");
    }

    #[test]
    fn schema_bounds_backtracking() {
        let looks_back = json!({"pattern": "^(?=a)(a+)+\\1$"});
        let text = json!("a".repeat(50) + "b");
        assert!(!problems(&looks_back, &text).unwrap().is_empty());
    }
}
