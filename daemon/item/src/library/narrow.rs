//! Limits of a project: it may lower the limits of the user and the system, and never raise them.

use std::path::Path;

use rye_core::money::Usd;
use serde_json::{Map, Value};

/// Section of `resilience` that holds limits.
const LIMITS: &str = "limits";
/// Section of `limits` with the limits of runs that have none of their own.
const DEFAULTS: &str = "defaults";
/// Section with the maximum number of concurrent runs.
const CONCURRENCY: &str = "concurrency";
/// Key in `limits`: how often a model may repeat one call in a row; 0 means no limit.
const REPEATED: &str = "repeated_calls";

/// Removes from `file`, which a project merges into `below`, every limit that is higher than the lower file's, or lifts
/// it. Returns a message for each.
pub(super) fn narrow(
    below: &Map<String, Value>,
    file: &mut Map<String, Value>,
    path: &Path,
) -> Vec<String> {
    let mut narrowed = Narrowed {
        path,
        ignored: Vec::new(),
    };
    if let Some(before) = below.get(CONCURRENCY).and_then(Value::as_object) {
        narrowed.keep_whole(file, CONCURRENCY, CONCURRENCY);
        if let Some(given) = file.get_mut(CONCURRENCY).and_then(Value::as_object_mut) {
            narrowed.retain(before, given, CONCURRENCY, |_, limit, value| {
                is_higher(value, limit)
            });
        }
    }
    let Some(before) = below.get(LIMITS).and_then(Value::as_object) else {
        return narrowed.ignored;
    };
    narrowed.keep_whole(file, LIMITS, LIMITS);
    if let Some(given) = file.get_mut(LIMITS).and_then(Value::as_object_mut) {
        narrowed.retain(before, given, LIMITS, |key, limit, value| {
            let is_limited = key == REPEATED && limit.as_u64() != Some(0);
            is_limited && (value.as_u64() == Some(0) || is_higher(value, limit))
        });
        if let Some(before) = before.get(DEFAULTS).and_then(Value::as_object) {
            let name = format!("{LIMITS}.{DEFAULTS}");
            narrowed.keep_whole(given, DEFAULTS, &name);
            if let Some(given) = given.get_mut(DEFAULTS).and_then(Value::as_object_mut) {
                narrowed.retain(before, given, &name, |_, limit, value| {
                    is_higher(value, limit)
                });
            }
        }
    }
    narrowed.ignored
}

/// Messages about ignored limits.
struct Narrowed<'a> {
    path: &'a Path,
    ignored: Vec<String>,
}

impl Narrowed<'_> {
    /// Ignores `null` in place of a whole section, which would remove all of its limits.
    fn keep_whole(&mut self, map: &mut Map<String, Value>, key: &str, name: &str) {
        if map.get(key).is_some_and(Value::is_null) {
            map.shift_remove(key);
            self.ignored.push(format!(
                "{}: `{name}: null` is ignored: a project may only lower limits",
                self.path.display()
            ));
        }
    }

    /// Keeps the entries of `given` that do not raise a limit of `before`.
    fn retain(
        &mut self,
        before: &Map<String, Value>,
        given: &mut Map<String, Value>,
        name: &str,
        raises: impl Fn(&str, &Value, &Value) -> bool,
    ) {
        given.retain(|key, value| {
            let limit = before.get(key).filter(|limit| amount(limit).is_some());
            let Some(limit) = limit.filter(|limit| raises(key, limit, value)) else {
                return true;
            };
            self.ignored.push(format!(
                "{}: `{name}.{key}: {value}` is ignored: a project may only lower this limit, which is {limit}",
                self.path.display()
            ));
            false
        });
    }
}

/// True if `value` allows more than `limit`. An invalid value is left for its readers to refuse.
fn is_higher(value: &Value, limit: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(word) if word == "none" => true,
        Value::Number(_) | Value::String(_) => {
            amount(value).is_some_and(|value| Some(value) > amount(limit))
        }
        Value::Bool(_) | Value::Array(_) | Value::Object(_) => false,
    }
}

/// Numeric value of a limit. An amount of money may be a string.
fn amount(value: &Value) -> Option<f64> {
    match value {
        Value::Number(number) => number.as_f64(),
        Value::String(text) => Usd::parse(text).ok()?.to_number().as_f64(),
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn map(value: Value) -> Map<String, Value> {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn limit_can_only_be_lowered() {
        let below = map(json!({"limits": {"defaults": {"spend": 1.0, "turns": 25}}}));
        // The project's value, and true if it counts.
        let table = [
            (json!({"spend": 0.5}), true),
            (json!({"spend": 1}), true),
            (json!({"spend": 1.01}), false),
            (json!({"spend": "1.00"}), true),
            (json!({"spend": "1.01"}), false),
            (json!({"spend": " 1000 "}), false),
            (json!({"spend": "none"}), false),
            (json!({"spend": null}), false),
            (json!({"turns": 26}), false),
            (json!({"depth": 50}), true),
            (json!({"spend": "much"}), true),
        ];
        for (defaults, counts) in table {
            let mut file = map(json!({"limits": {"defaults": defaults}}));
            let ignored = narrow(&below, &mut file, Path::new("p"));
            assert_eq!(ignored.is_empty(), counts, "{defaults}: {ignored:?}");
            let kept = if counts { defaults } else { json!({}) };
            assert_eq!(file["limits"]["defaults"], kept);
        }
        let quoted = map(json!({"limits": {"defaults": {"spend": "1.00"}}}));
        let mut raised = map(json!({"limits": {"defaults": {"spend": 2}}}));
        assert_eq!(narrow(&quoted, &mut raised, Path::new("p")).len(), 1);
        let unlimited = map(json!({"limits": {"defaults": {"spend": "none"}}}));
        let mut file = map(json!({"limits": {"defaults": {"spend": 5}}}));
        assert!(narrow(&unlimited, &mut file, Path::new("p")).is_empty());
    }

    #[test]
    fn concurrency_can_only_be_lowered() {
        let below = map(json!({"concurrency": {"max_concurrent_children": 10}}));
        // The project's values, and those that count.
        let table = [
            (json!({"max_concurrent_children": 3}), true),
            (json!({"max_concurrent_children": 11}), false),
            (json!({"max_concurrent_children": null}), false),
            (json!({"max_total_threads": 50}), true),
        ];
        for (given, counts) in table {
            let mut file = map(json!({"concurrency": given}));
            let ignored = narrow(&below, &mut file, Path::new("p"));
            assert_eq!(ignored.is_empty(), counts, "{given}: {ignored:?}");
            let kept = if counts { given } else { json!({}) };
            assert_eq!(file["concurrency"], kept);
        }
        let mut file = map(json!({"concurrency": null}));
        assert_eq!(narrow(&below, &mut file, Path::new("p")).len(), 1);
        assert_eq!(json!(file), json!({}));
    }

    #[test]
    fn limits_cannot_be_removed_nor_repeated_calls_allowed() {
        let below = map(json!({"limits": {"defaults": {"turns": 25}, "repeated_calls": 6}}));
        let table = [
            (json!({"limits": null}), json!({})),
            (json!({"limits": {"defaults": null}}), json!({"limits": {}})),
            (
                json!({"limits": {"repeated_calls": 0}}),
                json!({"limits": {}}),
            ),
            (
                json!({"limits": {"repeated_calls": 7}}),
                json!({"limits": {}}),
            ),
            (
                json!({"limits": {"repeated_calls": null}}),
                json!({"limits": {}}),
            ),
        ];
        for (given, kept) in table {
            let mut file = map(given.clone());
            let ignored = narrow(&below, &mut file, Path::new("p"));
            assert_eq!(ignored.len(), 1, "{given}");
            assert_eq!(json!(file), kept);
        }
        let fewer = json!({"limits": {"repeated_calls": 3, "enforcement": {"on_exceed": "fail"}}});
        let mut file = map(fewer.clone());
        assert_eq!(narrow(&below, &mut file, Path::new("p")), [""; 0]);
        assert_eq!(json!(file), fewer);
        let off = map(json!({"limits": {"repeated_calls": 0}}));
        assert_eq!(narrow(&off, &mut file, Path::new("p")), [""; 0]);
    }
}
