//! Watch rules as they are requested, and their checks.

use serde::Deserialize;

use super::LinePattern;
use crate::model::{MOST_WATCH_RULES, WatchRule};

const MOST_ID: usize = 64;
const DEFAULT_PER_MINUTE: u32 = 60;
const MOST_PER_MINUTE: u32 = 600;

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WatchRequest {
    pub id: String,
    #[serde(rename = "match")]
    pub pattern: String,
    pub once: Option<bool>,
    pub max_per_minute: Option<u32>,
}

/// Returns the rules if every value is one that it may have. The error names the key.
pub fn watch_rules(requests: Vec<WatchRequest>) -> Result<Vec<WatchRule>, String> {
    if requests.len() > MOST_WATCH_RULES {
        return Err(format!(
            "`watch` has at most {MOST_WATCH_RULES} rules, not {}",
            requests.len()
        ));
    }
    let mut rules: Vec<WatchRule> = Vec::with_capacity(requests.len());
    for (place, request) in requests.into_iter().enumerate() {
        let key = |name: &str| format!("`watch[{place}].{name}`");
        let id = request.id;
        let is_known = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
        if !(1..=MOST_ID).contains(&id.len()) || !id.bytes().all(is_known) {
            return Err(format!(
                "{} has 1 to {MOST_ID} characters of A-Z a-z 0-9 . _ -, not {id:?}",
                key("id")
            ));
        }
        if rules.iter().any(|rule| rule.id == id) {
            return Err(format!("{} is {id:?}, as of another rule", key("id")));
        }
        LinePattern::parse(&request.pattern).map_err(|why| format!("{} {why}", key("match")))?;
        let max_per_minute = request.max_per_minute.unwrap_or(DEFAULT_PER_MINUTE);
        if !(1..=MOST_PER_MINUTE).contains(&max_per_minute) {
            return Err(format!(
                "{} is a number from 1 to {MOST_PER_MINUTE}, not {max_per_minute}",
                key("max_per_minute")
            ));
        }
        rules.push(WatchRule {
            id,
            pattern: request.pattern,
            once: request.once.unwrap_or_default(),
            max_per_minute,
        });
    }
    Ok(rules)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn checked(rules: Value) -> Result<Vec<WatchRule>, String> {
        watch_rules(serde_json::from_value(rules).unwrap())
    }

    #[test]
    fn values_that_are_not_given_have_defaults() {
        let rules = checked(json!([{"id": "E.r_r-1", "match": "^ERROR"}])).unwrap();
        assert_eq!((rules[0].once, rules[0].max_per_minute), (false, 60));
        let rules = json!([{"id": "a", "match": "x", "once": true, "max_per_minute": 600}, {"id": "b", "match": "x"}]);
        let rules = checked(rules).unwrap();
        assert_eq!((rules[0].once, rules[0].max_per_minute), (true, 600));
        assert_eq!(checked(json!([])).unwrap(), []);
    }

    #[test]
    fn wrong_value_is_refused_by_its_key() {
        let many: Vec<Value> = (0..17)
            .map(|n| json!({"id": format!("r{n}"), "match": "x"}))
            .collect();
        for (key, rules) in [
            ("`watch`", json!(many)),
            ("`watch[0].id`", json!([{"id": "", "match": "x"}])),
            ("`watch[0].id`", json!([{"id": "a\"b", "match": "x"}])),
            (
                "`watch[0].id`",
                json!([{"id": "x".repeat(65), "match": "x"}]),
            ),
            (
                "`watch[1].id`",
                json!([{"id": "a", "match": "x"}, {"id": "a", "match": "y"}]),
            ),
            ("`watch[0].match`", json!([{"id": "a", "match": "("}])),
            ("`watch[0].match`", json!([{"id": "a", "match": ""}])),
            (
                "`watch[0].match`",
                json!([{"id": "a", "match": "x".repeat(1025)}]),
            ),
            (
                "`watch[0].max_per_minute`",
                json!([{"id": "a", "match": "x", "max_per_minute": 0}]),
            ),
            (
                "`watch[0].max_per_minute`",
                json!([{"id": "a", "match": "x", "max_per_minute": 601}]),
            ),
        ] {
            let problem = checked(rules).unwrap_err();
            assert!(problem.starts_with(key), "{key}: {problem}");
        }
        let unknown = json!([{"id": "a", "match": "x", "forever": true}]);
        assert!(serde_json::from_value::<Vec<WatchRequest>>(unknown).is_err());
    }
}
