//! Typed Python functions that call items, made from the schemas of their inputs.
//!
//! **Owns** the module that `ryectl stub python` prints. The same descriptions give the same bytes. **Never** evaluates a
//! schema: what it cannot express as a type is `Any`, and the daemon checks each call.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use serde_json::{Map, Value};

/// An item for which a function is made.
#[derive(Debug)]
pub(crate) struct StubItem {
    /// Its name in calls: the id of a tool, else `TYPE:ID`.
    pub(crate) name: String,
    pub(crate) id: String,
    pub(crate) description: String,
    /// JSON Schema of its inputs; `None` if it declares none.
    pub(crate) schema: Option<Value>,
}

const HEAD: &str = "\"\"\"Functions that call items of Rye, as `ryectl stub python` prints them.\"\"\"\n\n\
                    from __future__ import annotations\n\n\
                    from typing import Any, Literal\n\n\
                    import rye_client\n\n\
                    _OMITTED: Any = object()\n";

/// Names of the module, which no function may have. Annotations are not evaluated, so built-in names are free.
const MODULE_NAMES: [&str; 5] = ["Any", "Literal", "annotations", "rye_client", "_OMITTED"];
/// Names that the body of a function uses, which no parameter may have.
const BODY_NAMES: [&str; 3] = ["rye_client", "_OMITTED", "_params"];

const KEYWORDS: [&str; 35] = [
    "False", "None", "True", "and", "as", "assert", "async", "await", "break", "class", "continue",
    "def", "del", "elif", "else", "except", "finally", "for", "from", "global", "if", "import",
    "in", "is", "lambda", "nonlocal", "not", "or", "pass", "raise", "return", "try", "while",
    "with", "yield",
];

/// Renders a module with a function for each item, in their order.
pub(crate) fn module(items: &[StubItem]) -> String {
    let mut taken: BTreeSet<String> = MODULE_NAMES.map(str::to_owned).into();
    let mut text = HEAD.to_owned();
    for item in items {
        let name = identifier(&item.id, &mut taken);
        let properties = item.schema.as_ref().and_then(|schema| {
            let properties = schema["properties"].as_object()?;
            Some(parameters(properties, schema))
        });
        text.push_str(&match properties {
            Some(parameters) => typed(&name, item, &parameters),
            None => untyped(&name, item),
        });
    }
    text
}

/// A parameter of a function.
struct Parameter<'s> {
    /// Name in Python.
    name: String,
    /// Name in the schema.
    key: &'s str,
    property: &'s Value,
    is_required: bool,
}

/// Parameters in the order of the schema, the required ones first.
fn parameters<'s>(properties: &'s Map<String, Value>, schema: &Value) -> Vec<Parameter<'s>> {
    let mut taken: BTreeSet<String> = BODY_NAMES.map(str::to_owned).into();
    let required = schema["required"].as_array();
    let is_required =
        |key: &str| required.is_some_and(|required| required.iter().any(|name| name == key));
    let parameters = properties.iter().map(|(key, property)| Parameter {
        name: identifier(key, &mut taken),
        key,
        property,
        is_required: is_required(key),
    });
    let (mut all, optional): (Vec<_>, Vec<_>) =
        parameters.partition(|parameter| parameter.is_required);
    all.extend(optional);
    all
}

/// Renders a function with the parameters of the schema. Optional ones are passed by keyword.
fn typed(name: &str, item: &StubItem, parameters: &[Parameter<'_>]) -> String {
    let mut signature = Vec::new();
    let mut assignments = String::new();
    let mut notes = Vec::new();
    for parameter in parameters {
        let Parameter {
            name,
            key,
            property,
            is_required,
        } = parameter;
        let hint = type_of(property);
        let default = property.get("default").filter(|_| !is_required);
        let literal = default.and_then(scalar);
        if !is_required && !signature.iter().any(|word| word == "*") {
            signature.push("*".to_owned());
        }
        signature.push(match (is_required, &literal) {
            (true, _) => format!("{name}: {hint}"),
            (false, Some(literal)) => format!("{name}: {hint} = {literal}"),
            (false, None) => format!("{name}: {hint} = _OMITTED"),
        });
        let key = text_literal(key);
        let assignment = if *is_required || literal.is_some() {
            format!("    _params[{key}] = {name}\n")
        } else {
            format!("    if {name} is not _OMITTED:\n        _params[{key}] = {name}\n")
        };
        assignments.push_str(&assignment);
        let about = property["description"].as_str().unwrap_or_default();
        let unset = default.filter(|_| literal.is_none());
        let unset = unset.map(|default| format!("Default: {default}"));
        let parts = [Some(about.to_owned()), unset].into_iter().flatten();
        let parts: Vec<String> = parts.filter(|part| !part.is_empty()).collect();
        if !parts.is_empty() {
            notes.push(format!("{name}: {}", parts.join(" ")));
        }
    }
    let mut function = format!("\n\ndef {name}({}) -> Any:\n", signature.join(", "));
    function.push_str(&docstring(&item.description, &notes));
    function.push_str("    _params: dict[str, Any] = {}\n");
    function.push_str(&assignments);
    let item = text_literal(&item.name);
    let call = format!("    return rye_client.execute({item}, **_params)\n");
    function + &call
}

/// Renders the function of an item without a schema.
fn untyped(name: &str, item: &StubItem) -> String {
    let doc = docstring(&item.description, &[]);
    let item = text_literal(&item.name);
    format!(
        "\n\ndef {name}(**params: Any) -> Any:\n{doc}    return rye_client.execute({item}, **params)\n"
    )
}

/// Makes an identifier that is not in `taken`, and adds it: other characters become `_`, and keywords and names that
/// are taken end with `_`.
fn identifier(text: &str, taken: &mut BTreeSet<String>) -> String {
    let keep = |c: char| if c.is_ascii_alphanumeric() { c } else { '_' };
    let mut name: String = text.chars().map(keep).collect();
    if name.is_empty() || name.starts_with(|c: char| c.is_ascii_digit()) {
        name.insert(0, '_');
    }
    while KEYWORDS.contains(&name.as_str()) || taken.contains(&name) {
        name.push('_');
    }
    taken.insert(name.clone());
    name
}

/// Type hint of a property.
fn type_of(property: &Value) -> String {
    let choices = property["enum"].as_array().cloned();
    let choices = choices.or_else(|| Some(vec![property.get("const")?.clone()]));
    if let Some(choices) = choices.filter(|choices| !choices.is_empty()) {
        let literals = choices.iter().filter(|choice| !choice.is_f64());
        let literals: Vec<String> = literals.filter_map(scalar).collect();
        if literals.len() == choices.len() {
            return format!("Literal[{}]", literals.join(", "));
        }
    }
    match &property["type"] {
        Value::String(word) => named_type(word, property),
        Value::Array(words) => {
            let words = words.iter().filter_map(Value::as_str);
            let mut hints: Vec<String> = Vec::new();
            for hint in words.map(|word| named_type(word, property)) {
                if !hints.contains(&hint) {
                    hints.push(hint);
                }
            }
            if hints.is_empty() {
                "Any".to_owned()
            } else {
                hints.join(" | ")
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => "Any".to_owned(),
    }
}

fn named_type(word: &str, property: &Value) -> String {
    match word {
        "string" => "str".to_owned(),
        "integer" => "int".to_owned(),
        "number" => "float".to_owned(),
        "boolean" => "bool".to_owned(),
        "null" => "None".to_owned(),
        "array" => format!("list[{}]", type_of(&property["items"])),
        "object" => "dict[str, Any]".to_owned(),
        _ => "Any".to_owned(),
    }
}

/// Python literal of a value that is no list and no object.
fn scalar(value: &Value) -> Option<String> {
    match value {
        Value::Null => Some("None".to_owned()),
        Value::Bool(true) => Some("True".to_owned()),
        Value::Bool(false) => Some("False".to_owned()),
        Value::Number(number) => Some(number.to_string()),
        Value::String(text) => Some(text_literal(text)),
        Value::Array(_) | Value::Object(_) => None,
    }
}

/// Literal of a text. Every JSON text is one in Python, because characters beyond ASCII are not escaped.
fn text_literal(text: &str) -> String {
    Value::from(text).to_string()
}

/// Renders the docstring, or nothing if there is no text.
fn docstring(description: &str, notes: &[String]) -> String {
    let about = [description.to_owned(), notes.join("\n")];
    let about: Vec<String> = about.map(|part| printable(part.trim())).into();
    let about: Vec<&String> = about.iter().filter(|part| !part.is_empty()).collect();
    let mut text = String::new();
    let [first, rest @ ..] = &about[..] else {
        return text;
    };
    text.push_str("    \"\"\"");
    let mut lines = first.lines().chain(
        rest.iter()
            .flat_map(|part| [""].into_iter().chain(part.lines())),
    );
    text.push_str(lines.next().unwrap_or_default());
    let mut has_more = false;
    for line in lines {
        has_more = true;
        let line = format!("    {}", line.trim());
        let _written = write!(text, "\n{}", line.trim_end());
    }
    text.push_str(if has_more {
        "\n    \"\"\"\n"
    } else {
        "\"\"\"\n"
    });
    text
}

/// Escapes what would end a docstring, and leaves control characters out.
fn printable(text: &str) -> String {
    let plain = text.chars().filter(|c| *c == '\n' || !c.is_control());
    let plain: String = plain.collect();
    plain.replace('\\', "\\\\").replace('"', "\\\"")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn item(id: &str, schema: Option<Value>) -> StubItem {
        StubItem {
            name: id.to_owned(),
            id: id.to_owned(),
            description: String::new(),
            schema,
        }
    }

    fn signature(schema: Value) -> String {
        let text = module(&[item("a", Some(schema))]);
        let line = text.lines().find(|line| line.starts_with("def ")).unwrap();
        line.to_owned()
    }

    #[test]
    fn schema_gives_types_defaults_and_keyword_only_optional_parameters() {
        let schema = json!({
            "type": "object",
            "required": ["path"],
            "properties": {
                "limit": {"type": "integer", "default": 5},
                "path": {"type": "string"},
                "tags": {"type": "array", "items": {"type": "string"}, "default": []},
                "mode": {"enum": ["a", "b", null]},
                "extra": {"type": ["object", "null"]},
                "any": {},
            },
        });
        assert_eq!(
            signature(schema),
            "def a(path: str, *, limit: int = 5, tags: list[str] = _OMITTED, mode: Literal[\"a\", \"b\", None] = _OMITTED, \
             extra: dict[str, Any] | None = _OMITTED, any: Any = _OMITTED) -> Any:"
        );
        assert_eq!(
            signature(json!({"type": "object"})),
            "def a(**params: Any) -> Any:"
        );
        assert_eq!(signature(json!({"properties": {}})), "def a() -> Any:");
    }

    #[test]
    fn names_that_python_does_not_take_get_an_underscore() {
        let schema = json!({"properties": {"class": {}, "x-y": {}, "x_y": {}, "1st": {}, "": {}, "_params": {}}});
        assert_eq!(
            signature(schema),
            "def a(*, class_: Any = _OMITTED, x_y: Any = _OMITTED, x_y_: Any = _OMITTED, _1st: Any = _OMITTED, \
             _: Any = _OMITTED, _params_: Any = _OMITTED) -> Any:"
        );
        let items = ["a/b", "a_b", "import", "rye_client"].map(|id| item(id, None));
        let text = module(&items);
        let names: Vec<&str> = text
            .lines()
            .filter_map(|line| line.strip_prefix("def ")?.split('(').next())
            .collect();
        assert_eq!(names, ["a_b", "a_b_", "import_", "rye_client_"]);
    }
}
