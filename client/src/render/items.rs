//! Items that were looked for, for people.

use rye_core::model::Object;
use serde_json::Value;

use super::table;

/// A line for each item that was found, and how many there are.
pub(crate) fn found(answer: &Object) -> String {
    let results = answer.get("results").and_then(Value::as_array);
    let mut rows = Vec::new();
    for result in results.into_iter().flatten() {
        let text = |key: &str| result[key].as_str().unwrap_or_default().to_owned();
        let status = match (&result["shadowed_by"], &result["verified"]) {
            (Value::Null, Value::Bool(true)) => "verified",
            (Value::Null, _) => "not verified",
            (_, _) => "shadowed",
        };
        let item = format!("{}:{}", text("type"), text("id"));
        let about = Some(text("title")).filter(|title| !title.is_empty());
        rows.push([
            item,
            text("source"),
            status.to_owned(),
            about.unwrap_or_else(|| text("description")),
        ]);
    }
    let total = answer.get("total").and_then(Value::as_u64).unwrap_or(0);
    if rows.is_empty() {
        return format!("nothing to show of {total}");
    }
    let count = format!("{} of {total}", rows.len());
    format!(
        "{}\n{count}",
        table(["ITEM", "SPACE", "STATUS", "ABOUT"], &rows)
    )
}
