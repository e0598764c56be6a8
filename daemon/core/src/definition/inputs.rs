//! The inputs of a graph: defaults and the check against `config_schema`.

use rye_schema::{About as Cause, CheckError, Problem, Schema};
use serde_json::Value;

use super::remark::About;
use crate::declared::shorten;
use crate::expr::{nearest, parse_json, references, text_of};
use crate::model::{Failure, Object};

/// Limit of the problems that are reported together.
const MAX_PROBLEMS: usize = 20;
/// The code of inputs, or of parameters, that do not match their schema.
pub const MISFIT: &str = "input_validation_failed";

/// The declared inputs of a graph.
#[derive(Debug, Clone, Default)]
pub struct Inputs {
    declared: Option<Schema>,
}

impl Inputs {
    /// Compiles the schema. The error is a JSON pointer into it and the problem there.
    pub fn new(schema: &Value) -> Result<Self, (String, String)> {
        let declared = Schema::new(schema).map_err(|unusable| (unusable.at, unusable.problem))?;
        Ok(Self {
            declared: Some(declared),
        })
    }

    /// Returns the schema as written in the file.
    pub fn schema(&self) -> Option<&Value> {
        self.declared.as_ref().map(Schema::source)
    }

    /// Returns the properties whose default would be refused, with the reason.
    pub(super) fn bad_defaults(&self) -> Vec<(String, String)> {
        let Some(schema) = &self.declared else {
            return Vec::new();
        };
        let mut bad = Vec::new();
        for (key, default) in defaults(schema.source()) {
            let alone = Value::Object([(key.clone(), default.clone())].into_iter().collect());
            match schema.problems(&alone, MAX_PROBLEMS) {
                Ok(problems) => {
                    let about_it = problems.iter().filter(|told| input_of(&told.at) == *key);
                    bad.extend(about_it.map(|told| (key.clone(), shorten(&told.message))));
                }
                Err(untold) => bad.push((key.clone(), format!("it {untold}"))),
            }
        }
        bad
    }

    /// Returns the problems for which a use with these parameters would be refused, whatever the values of their
    /// templates.
    pub fn misfits(&self, params: &Object) -> Vec<(About, String)> {
        let Some(schema) = &self.declared else {
            return Vec::new();
        };
        // The use leaves out parameters that are null.
        let mut given = params.clone();
        given.retain(|_, value| !value.is_null());
        let is_open = |key: &str| {
            given
                .get(key)
                .is_some_and(|v| !references(v, &|_| true).is_empty())
        };
        let any_open = given.keys().any(|key| is_open(key));
        let mut whole = given.clone();
        for (key, default) in defaults(schema.source()) {
            whole.entry(key).or_insert_with(|| default.clone());
        }
        let problems = match schema.problems(&Value::Object(whole), MAX_PROBLEMS) {
            Ok(problems) => problems,
            Err(_) if any_open => Vec::new(),
            Err(untold) => return vec![(About::Params, format!("the whole {untold}"))],
        };
        let undeclared = self.undeclared("parameter", params).into_iter();
        let mut misfits: Vec<(About, String)> = undeclared
            .map(|(name, told)| (About::Param(name.clone()), told))
            .collect();
        for told in problems {
            if !told.at.is_empty() {
                let key = input_of(&told.at);
                if !is_open(&key) {
                    let message = format!("`{key}`: {}", shorten(&told.message));
                    misfits.push((About::Param(key), message));
                }
            } else if let Some(names) = about_names(schema.source(), &told.about) {
                misfits.extend(names);
            } else if !any_open {
                misfits.push((About::Params, shorten(&told.message)));
            }
        }
        misfits
    }

    /// Returns the declared properties if no others may be given; `None` if others may, or none is declared.
    fn closed(&self) -> Option<&Object> {
        let schema = self.schema()?;
        let declared = schema.get("properties")?.as_object()?;
        let says_so = |key: &str| schema.get(key).is_some();
        let is_open = says_so("additionalProperties") || says_so("patternProperties");
        (!is_open && !declared.is_empty()).then_some(declared)
    }

    /// Returns the given names that are not declared, if no others are allowed, each with a message.
    fn undeclared<'g>(&self, what: &str, given: &'g Object) -> Vec<(&'g String, String)> {
        let Some(declared) = self.closed() else {
            return Vec::new();
        };
        let names = || declared.keys().map(String::as_str);
        given
            .keys()
            .filter(|name| !declared.contains_key(*name))
            .map(|name| (name, unknown(what, name, names())))
            .collect()
    }

    /// Applies defaults and checks; see [`Graph::inputs`](super::Graph::inputs).
    pub fn resolve(&self, mut given: Object) -> Result<(Object, Vec<String>), Failure> {
        let Some(schema) = &self.declared else {
            let told = given.keys();
            let warnings = told
                .map(|key| format!("input `{key}` is not declared: there is no `config_schema`"));
            let warnings = warnings.collect();
            return Ok((given, warnings));
        };
        let undeclared: Vec<String> = self
            .undeclared("input", &given)
            .into_iter()
            .map(|(_, told)| told)
            .collect();
        let warnings = Vec::new();
        for (key, default) in defaults(schema.source()) {
            if !given.contains_key(key) {
                given.insert(key.clone(), default.clone());
            }
        }
        let whole = Value::Object(given);
        let refused = match schema.problems(&whole, MAX_PROBLEMS) {
            Ok(problems) if problems.is_empty() && undeclared.is_empty() => None,
            Ok(problems) => {
                let told = problems.iter().map(|told| problem(schema.source(), told));
                let told: Vec<String> = undeclared.into_iter().chain(told).collect();
                Some((MISFIT, told.join("; ")))
            }
            Err(untold) => {
                let code = match untold {
                    CheckError::Misfit => MISFIT,
                    CheckError::TooComplex => "too_complex",
                };
                Some((code, format!("what was given {untold}")))
            }
        };
        if let Some((code, told)) = refused {
            let message = format!("input validation failed: {told}");
            return Err(Failure::permanent(code, message));
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

/// Returns the inputs with a default, in the order of the file.
fn defaults(schema: &Value) -> impl Iterator<Item = (&String, &Value)> {
    let properties = schema.get("properties").and_then(Value::as_object);
    properties
        .into_iter()
        .flatten()
        .filter_map(|(key, property)| Some((key, property.get("default")?)))
}

/// Returns the input to which a JSON pointer into the inputs leads.
fn input_of(pointer: &str) -> String {
    let first = pointer.split('/').nth(1).unwrap_or_default();
    first.replace("~1", "/").replace("~0", "~")
}

/// Returns the problems of the names of the parameters; `None` if the cause concerns more than names.
fn about_names(schema: &Value, cause: &Cause) -> Option<Vec<(About, String)>> {
    let unexpected = match cause {
        Cause::Missing(name) => {
            let message = format!("`{name}` is missing");
            return Some(vec![(About::Params, message)]);
        }
        Cause::Unexpected(unexpected) => unexpected,
        Cause::Value => return None,
    };
    let declared = schema["properties"].as_object();
    let known = || declared.into_iter().flat_map(Object::keys);
    let told = unexpected.iter().map(|name| {
        let message = unknown("parameter", name, known().map(String::as_str));
        (About::Param(name.clone()), message)
    });
    Some(told.collect())
}

/// Returns the message about a name that is not declared.
fn unknown<'c>(what: &str, name: &str, declared: impl Iterator<Item = &'c str> + Clone) -> String {
    if let Some(near) = nearest(name, declared.clone()) {
        return format!("there is no {what} `{name}` (did you mean `{near}`?)");
    }
    let all: Vec<&str> = declared.take(MAX_PROBLEMS).collect();
    match all.as_slice() {
        [] => format!("there is no {what} `{name}`"),
        all => format!("there is no {what} `{name}`; there are {}", all.join(", ")),
    }
}

/// Describes the problem of one input, and its fix.
fn problem(schema: &Value, told: &Problem) -> String {
    if let Cause::Missing(name) = &told.about
        && told.at.is_empty()
    {
        let kind = schema["properties"][name]["type"]
            .as_str()
            .unwrap_or("any type");
        return format!(
            "missing required input `{name}` ({kind}): give it with -i {name}=…, or in the parameters of a call"
        );
    }
    if let (Cause::Unexpected(names), "") = (&told.about, told.at.as_str()) {
        let declared = schema["properties"].as_object();
        let known = declared.into_iter().flat_map(Object::keys);
        let told = names
            .iter()
            .map(|name| unknown("input", name, known.clone().map(String::as_str)));
        return told.collect::<Vec<_>>().join("; ");
    }
    let message = shorten(&told.message);
    if told.at.is_empty() {
        return message;
    }
    let name = input_of(&told.at);
    let place = told.at.trim_start_matches('/').replace('/', ".");
    let hint = if told.is_null && !schema["properties"][&name]["default"].is_null() {
        " (leave it out to get the default)"
    } else {
        ""
    };
    format!("input `{place}`: {message}{hint}")
}

/// Returns the value of `-i key=text`: of the type that `schema` declares for `key` if the text can be read so, else
/// the text itself, which the check of the inputs then reports.
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

/// Reads `text` as a value of the JSON schema type `name`.
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
