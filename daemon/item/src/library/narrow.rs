//! What a project may say about limits: less than the user and the system do, never more.

use std::path::Path;

use serde_json::{Map, Value};

/// The part of `resilience` that holds the limits of runs which nobody limits.
const PATH: [&str; 2] = ["limits", "defaults"];

/// Takes out of `file`, which a project lays over `below`, every default limit that is higher than the one below it, or none where there
/// is one. Answers with what to say about each.
pub(super) fn narrow(
    below: &Map<String, Value>,
    file: &mut Map<String, Value>,
    path: &Path,
) -> Vec<String> {
    let Some(before) = defaults(below) else {
        return Vec::new();
    };
    let Some(given) = file
        .get_mut(PATH[0])
        .and_then(|limits| limits.get_mut(PATH[1]))
    else {
        return Vec::new();
    };
    let Some(given) = given.as_object_mut() else {
        return Vec::new();
    };
    let mut ignored = Vec::new();
    given.retain(|key, value| {
        let Some(limit) = before.get(key).filter(|limit| limit.is_number()) else {
            return true;
        };
        if !is_higher(value, limit) {
            return true;
        }
        ignored.push(format!(
            "{}: `limits.defaults.{key}: {value}` is ignored: a project may only lower this limit, which is {limit}",
            path.display()
        ));
        false
    });
    ignored
}

fn defaults(resilience: &Map<String, Value>) -> Option<&Map<String, Value>> {
    resilience.get(PATH[0])?.get(PATH[1])?.as_object()
}

/// Whether `value` allows more than the number `limit`. What is no limit at all is left for those who read it to refuse.
fn is_higher(value: &Value, limit: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(word) => word == "none",
        Value::Number(_) => value.as_f64() > limit.as_f64(),
        Value::Bool(_) | Value::Array(_) | Value::Object(_) => false,
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
    fn a_limit_can_be_lowered_and_not_raised() {
        let below = map(json!({"limits": {"defaults": {"spend": 1.0, "turns": 25}}}));
        // What the project says, and whether it counts.
        let table = [
            (json!({"spend": 0.5}), true),
            (json!({"spend": 1}), true),
            (json!({"spend": 1.01}), false),
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
        let unlimited = map(json!({"limits": {"defaults": {"spend": "none"}}}));
        let mut file = map(json!({"limits": {"defaults": {"spend": 5}}}));
        assert!(narrow(&unlimited, &mut file, Path::new("p")).is_empty());
    }
}
