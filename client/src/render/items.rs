//! Items for people: results of a search, listings and descriptions.

use rye_core::model::Object;
use rye_proto::convert::{self, Malformed};
use rye_proto::v1::{DescribeResponse, Item};
use serde_json::Value;

use super::{Style, fields, one_line, some, table, table_within};

/// Longest text in a table cell, in characters.
const CELL: usize = 200;

/// Renders the results of a search as a table, and their number.
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

/// Renders a table of items with space, status and description.
pub(crate) fn listed(items: &[Item], width: Option<usize>) -> String {
    let row = |item: &Item| {
        let about = some(&item.description).unwrap_or_else(|| item.title.clone());
        let status = some(&item.problem).map(|_| item.verdict.clone());
        [
            name(item),
            item.space.clone(),
            status.unwrap_or_else(|| "ok".to_owned()),
            one_line(&about, CELL),
        ]
    };
    let rows: Vec<[String; 4]> = items.iter().map(row).collect();
    if rows.is_empty() {
        return "no items".to_owned();
    }
    table_within(["ITEM", "SPACE", "STATUS", "ABOUT"], &rows, width)
}

/// Renders the description of an item.
pub(crate) fn described(described: &DescribeResponse, style: Style) -> Result<String, Malformed> {
    let item = &described.item.clone().unwrap_or_default();
    let verdict = match item.problem.as_str() {
        "" => style.green(&item.verdict),
        problem => format!("{}: {problem}", style.red(&item.verdict)),
    };
    let signer = some(&item.fingerprint).map(|fingerprint| match item.owner.as_str() {
        "" => fingerprint,
        owner => format!("{owner} ({fingerprint})"),
    });
    let permissions = described.has_permissions.then(|| {
        let patterns = some(&described.permissions.join("\n"));
        patterns.unwrap_or_else(|| "nothing".to_owned())
    });
    let shadows = described.shadows.iter();
    let shadows: Vec<String> = shadows
        .map(|other| format!("{} ({})", other.path, other.space))
        .collect();
    let head = fields(&[
        ("item", Some(name(item))),
        ("title", some(&item.title)),
        ("about", some(&item.description)),
        ("version", some(&item.version)),
        ("type", some(&item.tool_type)),
        ("runs through", some(&described.executor_id)),
        ("effect", some(&described.effect)),
        ("tags", some(&described.tags.join(", "))),
        ("may", permissions),
        ("space", Some(item.space.clone())),
        ("file", Some(item.path.clone())),
        ("signature", Some(verdict)),
        ("signed by", signer),
        ("shadows", some(&shadows.join("\n"))),
    ]);
    let schema = convert::document("inputs_schema_json", &described.inputs_schema_json)?;
    Ok(match schema {
        Some(schema) => format!("{head}\n\n{}", inputs(&schema)),
        None => head,
    })
}

fn name(item: &Item) -> String {
    item.item.clone().unwrap_or_default().name()
}

/// Renders the inputs of a JSON Schema as a table.
fn inputs(schema: &Value) -> String {
    let properties = schema["properties"].as_object();
    let required = |name: &String| {
        let mut names = schema["required"].as_array().into_iter().flatten();
        names.any(|required| required == name)
    };
    let row = |(name, property): (&String, &Value)| {
        let kind = match &property["type"] {
            Value::String(kind) => kind.clone(),
            Value::Array(kinds) => {
                let kinds: Vec<&str> = kinds.iter().filter_map(Value::as_str).collect();
                kinds.join(" or ")
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => "any".to_owned(),
        };
        let default = match &property["default"] {
            Value::Null if required(name) => "required".to_owned(),
            Value::Null => String::new(),
            default @ (Value::Bool(_)
            | Value::Number(_)
            | Value::String(_)
            | Value::Array(_)
            | Value::Object(_)) => one_line(&default.to_string(), CELL),
        };
        let about = property["description"].as_str().unwrap_or_default();
        [name.clone(), kind, default, one_line(about, CELL)]
    };
    let rows: Vec<[String; 4]> = properties.into_iter().flatten().map(row).collect();
    if rows.is_empty() {
        return "it takes no inputs".to_owned();
    }
    table(["INPUT", "TYPE", "DEFAULT", "ABOUT"], &rows)
}
