//! What a graph takes: defaults and the check against `config_schema`.

use serde_json::Value;

use super::read::shorten;
use super::uses::About;
use crate::expr::{nearest, parse_json, references, text_of};
use crate::model::{Failure, Object};

/// Most problems reported at once.
const MAX_PROBLEMS: usize = 20;

/// The inputs a graph declares.
#[derive(Debug, Clone, Default)]
pub struct Inputs {
    declared: Option<Declared>,
}

#[derive(Debug, Clone)]
struct Declared {
    schema: Value,
    validator: jsonschema::Validator,
}

impl Inputs {
    /// Compiles the schema; the error is a JSON pointer into it and what is wrong there.
    pub fn new(schema: &Value) -> Result<Self, (String, String)> {
        let validator = jsonschema::validator_for(schema).map_err(|error| {
            (
                error.instance_path().as_str().to_owned(),
                format!("not a JSON schema: {}", shorten(&error.to_string())),
            )
        })?;
        Ok(Self {
            declared: Some(Declared {
                schema: schema.clone(),
                validator,
            }),
        })
    }

    /// The schema, as the file has it.
    pub fn schema(&self) -> Option<&Value> {
        self.declared.as_ref().map(|declared| &declared.schema)
    }

    /// Properties whose default would be refused, with the reason.
    pub(super) fn bad_defaults(&self) -> Vec<(String, String)> {
        let Some(Declared { schema, validator }) = &self.declared else {
            return Vec::new();
        };
        let mut bad = Vec::new();
        for (key, default) in defaults(schema) {
            let alone = Value::Object([(key.clone(), default.clone())].into_iter().collect());
            for error in validator.iter_errors(&alone) {
                if input_of(error.instance_path().as_str()) == *key {
                    bad.push((key.clone(), shorten(&error.to_string())));
                }
            }
        }
        bad
    }

    /// What a use with these parameters would be refused for, whatever their templates come to.
    pub fn misfits(&self, params: &Object) -> Vec<(About, String)> {
        let Some(Declared { schema, validator }) = &self.declared else {
            return Vec::new();
        };
        // What is null is left out when the use comes to it.
        let mut given = params.clone();
        given.retain(|_, value| !value.is_null());
        let is_open = |key: &str| given.get(key).is_some_and(|v| !references(v).is_empty());
        let any_open = given.keys().any(|key| is_open(key));
        let mut whole = given.clone();
        for (key, default) in defaults(schema) {
            whole.entry(key).or_insert_with(|| default.clone());
        }
        let whole = Value::Object(whole);
        let mut misfits = Vec::new();
        for error in validator.iter_errors(&whole).take(MAX_PROBLEMS) {
            let pointer = error.instance_path().as_str();
            if !pointer.is_empty() {
                let key = input_of(pointer);
                if !is_open(&key) {
                    let message = format!("`{key}`: {}", shorten(&error.to_string()));
                    misfits.push((About::Param(key), message));
                }
            } else if let Some(told) = about_names(schema, &error) {
                misfits.extend(told);
            } else if !any_open {
                misfits.push((About::Params, shorten(&error.to_string())));
            }
        }
        misfits
    }

    /// Applies defaults and checks; see [`Graph::inputs`](super::Graph::inputs).
    pub fn resolve(&self, mut given: Object) -> Result<(Object, Vec<String>), Failure> {
        let properties = self.schema().and_then(|schema| schema.get("properties"));
        let warnings = given
            .keys()
            .filter(|key| properties.and_then(|declared| declared.get(*key)).is_none())
            .map(|key| format!("input `{key}` is not declared in `config_schema`"))
            .collect();
        let Some(Declared { schema, validator }) = &self.declared else {
            return Ok((given, warnings));
        };
        for (key, default) in defaults(schema) {
            if !given.contains_key(key) {
                given.insert(key.clone(), default.clone());
            }
        }
        let whole = Value::Object(given);
        let problems: Vec<String> = validator
            .iter_errors(&whole)
            .take(MAX_PROBLEMS)
            .map(|error| problem(schema, &error))
            .collect();
        if !problems.is_empty() {
            return Err(Failure::permanent(
                "input_validation_failed",
                format!("input validation failed: {}", problems.join("; ")),
            ));
        }
        match whole {
            Value::Object(inputs) => Ok((inputs, warnings)),
            Value::Null
            | Value::Bool(_)
            | Value::Number(_)
            | Value::String(_)
            | Value::Array(_) => Ok((Object::new(), warnings)),
        }
    }
}

/// Inputs with a default, in the order of the file.
fn defaults(schema: &Value) -> impl Iterator<Item = (&String, &Value)> {
    let properties = schema.get("properties").and_then(Value::as_object);
    properties
        .into_iter()
        .flatten()
        .filter_map(|(key, property)| Some((key, property.get("default")?)))
}

/// The input a JSON pointer into the inputs leads to.
fn input_of(pointer: &str) -> String {
    let first = pointer.split('/').nth(1).unwrap_or_default();
    first.replace("~1", "/").replace("~0", "~")
}

/// What an error says that is about the names of the parameters alone; `None` if it is about more.
fn about_names(
    schema: &Value,
    error: &jsonschema::ValidationError<'_>,
) -> Option<Vec<(About, String)>> {
    use jsonschema::error::ValidationErrorKind as Kind;

    if let Kind::Required { property } = error.kind() {
        let message = format!("`{}` is missing", text_of(property));
        return Some(vec![(About::Params, message)]);
    }
    let Kind::AdditionalProperties { unexpected } = error.kind() else {
        return None;
    };
    let declared = schema["properties"].as_object();
    let known = || declared.into_iter().flat_map(Object::keys);
    let told = unexpected.iter().map(|name| {
        let hint = nearest(name, known().map(String::as_str))
            .map_or_else(String::new, |near| format!(" (did you mean `{near}`?)"));
        let message = format!("there is no parameter `{name}`{hint}");
        (About::Param(name.clone()), message)
    });
    Some(told.collect())
}

/// What is wrong with one input, and how to fix it.
fn problem(schema: &Value, error: &jsonschema::ValidationError<'_>) -> String {
    use jsonschema::error::ValidationErrorKind;

    let pointer = error.instance_path().as_str();
    if let ValidationErrorKind::Required { property } = error.kind()
        && pointer.is_empty()
    {
        let name = text_of(property);
        let kind = schema["properties"][&name]["type"]
            .as_str()
            .unwrap_or("any type");
        return format!(
            "missing required input `{name}` ({kind}): give it with -i {name}=…, or in the parameters of a call"
        );
    }
    let message = shorten(&error.to_string());
    if pointer.is_empty() {
        return message;
    }
    let name = input_of(pointer);
    let place = pointer.trim_start_matches('/').replace('/', ".");
    let hint = if error.instance().is_null() && !schema["properties"][&name]["default"].is_null() {
        " (leave it out to get the default)"
    } else {
        ""
    };
    format!("input `{place}`: {message}{hint}")
}

/// The value of `-i key=text`: of the type that `schema` declares for `key` where the text can be read so, else the
/// text itself (the check of the inputs then says what is wrong with it).
pub fn coerce(schema: Option<&Value>, key: &str, text: &str) -> Value {
    let Some(property) = schema.and_then(|schema| schema.get("properties")?.get(key)) else {
        return Value::String(text.to_owned());
    };
    let choice = property
        .get("enum")
        .and_then(Value::as_array)
        .and_then(|choices| choices.iter().find(|choice| text_of(choice) == text));
    if let Some(choice) = choice {
        return choice.clone();
    }
    let types: Vec<&str> = match property.get("type") {
        Some(Value::String(one)) => vec![one.as_str()],
        Some(Value::Array(list)) => list.iter().filter_map(Value::as_str).collect(),
        _ => Vec::new(),
    };
    types
        .into_iter()
        .find_map(|name| typed(name, text))
        .unwrap_or_else(|| Value::String(text.to_owned()))
}

/// `text` as a value of the JSON schema type `name`.
fn typed(name: &str, text: &str) -> Option<Value> {
    if name == "string" {
        return Some(Value::String(text.to_owned()));
    }
    parse_json(text).ok().filter(|value| match name {
        "integer" => value.is_i64() || value.is_u64(),
        "number" => value.is_number(),
        "boolean" => value.is_boolean(),
        "null" => value.is_null(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        _ => false,
    })
}
