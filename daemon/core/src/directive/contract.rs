//! The inputs, outputs and actions of a directive.

use roxmltree::Node;
use rye_schema::Schema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::read::{Element, Reader, child, elements, text_of};
use super::shape;
use super::source::OPAQUE;
use crate::bounds;
use crate::definition::{Inputs, coerce};
use crate::error::excerpt;
use crate::expr::{did_you_mean, nearest, text_of as text_of_value};
use crate::model::Object;
use crate::model::thread::{ReturnStatus, Returned};

const TYPES: [&str; 6] = ["string", "integer", "number", "boolean", "object", "array"];

/// The argument of `directive_return` for success or failure. Its second name is used if an output has the first.
const STATUS: [&str; 2] = ["status", "return_status"];
/// The argument for the cause of a failure.
const ERROR_DETAIL: &str = "error_detail";

/// Limit of the approximate memory of the outputs of a thread in bytes.
const MOST_BYTES: usize = 1 << 20;
/// Limit of the reported problems of one return.
const MOST_PROBLEMS: usize = 20;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Output {
    pub name: String,
    /// For the model.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub description: String,
    /// True if a thread cannot complete without it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub required: bool,
    pub schema: Value,
}

impl Output {
    /// Returns the name of its type.
    pub fn kind(&self) -> &str {
        self.schema["type"].as_str().unwrap_or("string")
    }
}

/// Returns the name of the argument of `directive_return` that reports success or failure, in addition to these
/// outputs.
pub(super) fn status_argument(outputs: &[Output]) -> &'static str {
    let [usual, other] = STATUS;
    let is_taken = outputs.iter().any(|output| output.name == usual);
    if is_taken { other } else { usual }
}

/// The tool `directive_return` of a directive with outputs.
#[derive(Debug, Clone)]
pub struct Returns {
    /// Name of the argument that tells success from failure.
    status: &'static str,
    schema: Value,
    complete: Schema,
    blocked: Schema,
}

impl Returns {
    /// Makes the tool for these outputs; `None` if there are none. The error names a schema that cannot be used.
    pub fn of(outputs: &[Output]) -> Result<Option<Self>, String> {
        if outputs.is_empty() {
            return Ok(None);
        }
        let named = outputs.iter().map(|output| {
            let mut schema = output.schema.clone();
            if let Value::Object(map) = &mut schema
                && !output.description.is_empty()
            {
                map.insert("description".to_owned(), json!(output.description));
            }
            (output.name.clone(), schema)
        });
        let mut properties: Map<String, Value> = named.collect();
        let status = json!({"type": "string", "enum": ["success", "error"]});
        let argument = status_argument(outputs);
        properties.insert(argument.to_owned(), status);
        properties.insert(ERROR_DETAIL.to_owned(), json!({"type": "string"}));
        let mut schema = json!({
            "type": "object",
            "properties": properties,
            "additionalProperties": false,
        });
        let compile = |schema: &Value| {
            Schema::new(schema).map_err(|unusable| {
                let problem = unusable.problem;
                format!("the outputs make no JSON schema: {problem}")
            })
        };
        // A blocked thread has no outputs to return.
        let blocked = compile(&schema)?;
        let required = outputs.iter().filter(|output| output.required);
        let required: Vec<&str> = required.map(|output| output.name.as_str()).collect();
        if !required.is_empty() {
            schema["required"] = json!(required);
        }
        Ok(Some(Self {
            status: argument,
            complete: compile(&schema)?,
            blocked,
            schema,
        }))
    }

    /// Returns the JSON Schema of its arguments.
    pub const fn schema(&self) -> &Value {
        &self.schema
    }

    /// Reads a call; the error describes its problems to the model.
    pub fn check(&self, arguments: &Object) -> Result<Returned, String> {
        let status = match arguments.get(self.status).and_then(Value::as_str) {
            Some("error") => ReturnStatus::Error,
            Some(_) | None => ReturnStatus::Success,
        };
        let schema = match status {
            ReturnStatus::Success => &self.complete,
            ReturnStatus::Error => &self.blocked,
        };
        let given = Value::Object(arguments.clone());
        if bounds::size_within(&given, bounds::MOST_DEPTH, MOST_BYTES).is_err() {
            return Err(format!(
                "the outputs are larger than {} MiB or nested more than {} levels deep; write large data to files and return their paths",
                MOST_BYTES >> 20,
                bounds::MOST_DEPTH
            ));
        }
        let problems = schema.problems(&given, MOST_PROBLEMS);
        let problems = problems.map_err(|untold| format!("what was returned {untold}"))?;
        if !problems.is_empty() {
            let told = problems.iter().map(|told| match told.at.as_str() {
                "" => excerpt(&told.message).into_owned(),
                at => format!("`{}`: {}", &at[1..], excerpt(&told.message)),
            });
            return Err(told.collect::<Vec<_>>().join("; "));
        }
        let mut outputs = arguments.clone();
        outputs.shift_remove(self.status);
        let detail = outputs.shift_remove(ERROR_DETAIL);
        Ok(Returned {
            status,
            error_detail: detail.as_ref().map(text_of_value),
            outputs,
        })
    }
}

/// The three elements next to `metadata`.
#[derive(Default)]
pub(super) struct Contract {
    pub(super) inputs: Option<Value>,
    pub(super) outputs: Vec<Output>,
    pub(super) actions: Option<String>,
}

pub(super) fn read(reader: &mut Reader<'_, '_>, root: Element<'_>) -> Contract {
    let mut contract = Contract::default();
    if let Some(permissions) = child(root, "permissions") {
        let message = "<permissions> belongs into <metadata>; here it would allow nothing";
        reader.error("misplaced", permissions.range().start, message);
    }
    if let Some(inputs) = child(root, "inputs") {
        contract.inputs = reader.inputs(inputs);
    }
    if let Some(outputs) = child(root, "outputs") {
        contract.outputs = reader.outputs(outputs);
    }
    if let Some(actions) = child(root, "actions") {
        reader.check(actions, &shape::ACTIONS);
        contract.actions = Some(reader.source.written(actions.range()).to_owned());
    }
    contract
}

impl Reader<'_, '_> {
    /// Returns the schema of the declared inputs; `None` if none is declared.
    fn inputs(&mut self, element: Element<'_>) -> Option<Value> {
        self.check(element, &shape::INPUTS);
        let mut properties = Map::new();
        let mut required = Vec::new();
        for input in elements(element, "input") {
            self.check(input, &shape::INPUT);
            if !self.has_time() {
                break;
            }
            let Some(name) = self.new_name(input, &properties) else {
                continue;
            };
            let mut schema = self.typed(input);
            let description = text_of(input);
            if !description.is_empty() {
                schema["description"] = json!(description);
            }
            let default = self.default_of(input, &name, &schema);
            if self.switch(input, "required") == Some(true) {
                required.push(name.clone());
            }
            if let Some(default) = default {
                schema["default"] = default;
            }
            properties.insert(name, schema);
        }
        if properties.is_empty() {
            return None;
        }
        let mut schema = json!({
            "type": "object",
            "properties": properties,
            "additionalProperties": false,
        });
        if !required.is_empty() {
            schema["required"] = json!(required);
        }
        Some(schema)
    }

    /// Reads the default of an input. An empty text is one.
    fn default_of(&mut self, input: Element<'_>, name: &str, schema: &Value) -> Option<Value> {
        let attribute = input.attribute_node("default")?;
        let properties = Map::from_iter([(name.to_owned(), schema.clone())]);
        let alone = json!({"properties": properties});
        let default = coerce(Some(&alone), name, attribute.value());
        let fits = Inputs::new(&alone).is_ok_and(|inputs| {
            inputs
                .resolve(Object::from_iter([(name.to_owned(), default.clone())]))
                .is_ok()
        });
        if !fits {
            let message = format!(
                "the default of input `{name}` is not of its type: `{}`",
                excerpt(attribute.value())
            );
            self.error("bad_default", attribute.range_value().start, message);
            return None;
        }
        Some(default)
    }

    fn outputs(&mut self, element: Element<'_>) -> Vec<Output> {
        self.check(element, &shape::OUTPUTS);
        let mut seen = Map::new();
        let mut outputs = Vec::new();
        for child in element.children().filter(Node::is_element) {
            if !self.has_time() {
                break;
            }
            let tag = child.tag_name().name();
            if tag == "output" {
                outputs.extend(self.output(child, &mut seen));
            } else if !tag.starts_with("x-") && !OPAQUE.contains(&tag) {
                let message = format!(
                    "<{}> in <outputs> does nothing; an output is <output name=\"…\">",
                    excerpt(tag)
                );
                self.warn("no_effect", child.range().start, message);
            }
        }
        outputs
    }

    fn output(&mut self, element: Element<'_>, seen: &mut Map<String, Value>) -> Option<Output> {
        self.check(element, &shape::OUTPUT);
        let name = self.new_name(element, seen)?;
        if [STATUS[1], ERROR_DETAIL].contains(&name.as_str()) {
            let message =
                format!("every directive returns `{name}`; give this output another name");
            self.error("bad_name", element.range().start, message);
            return None;
        }
        let mut schema = self.typed(element);
        if let Some(items) = element.attribute_node("items") {
            let at = items.range().start;
            if schema["type"] != "array" {
                self.error("conflict", at, "`items` needs type=\"array\"");
            }
            if let Some(kind) = self.type_of(element, "items") {
                schema["items"] = json!({"type": kind});
            }
        }
        seen.insert(name.clone(), Value::Null);
        Some(Output {
            name,
            description: text_of(element),
            required: self.switch(element, "required") == Some(true),
            schema,
        })
    }

    /// Returns the name of an input or output that is not among those `seen`.
    fn new_name(&mut self, element: Element<'_>, seen: &Map<String, Value>) -> Option<String> {
        let why = "it is the name that calls use";
        let attribute = self.required(element, "name", why)?;
        let name = attribute.value();
        let at = attribute.range_value().start;
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
        if name.len() > 64 || !name.chars().all(plain) {
            let message = format!(
                "`{}` is no name: up to 64 letters, digits, `_` and `-`",
                excerpt(name)
            );
            self.error("bad_name", at, message);
            return None;
        }
        if seen.contains_key(name) {
            let message = format!("the name `{name}` occurs twice");
            self.error("duplicate_name", at, message);
            return None;
        }
        Some(name.to_owned())
    }

    /// Makes the schema from `type` and `enum`.
    fn typed(&mut self, element: Element<'_>) -> Value {
        let kind = self.type_of(element, "type").unwrap_or("string");
        let mut schema = json!({"type": kind});
        if let Some(attribute) = self.attribute(element, "enum") {
            let alone = json!({"properties": {"value": {"type": kind}}});
            let words = attribute.value().split(',').map(str::trim);
            let choices: Vec<Value> = words
                .map(|word| coerce(Some(&alone), "value", word))
                .collect();
            if kind != "string" && choices.iter().any(Value::is_string) {
                let message = format!(
                    "the values of `enum` must be of type {kind}, with commas between them"
                );
                self.error("bad_enum", attribute.range_value().start, message);
            }
            schema["enum"] = json!(choices);
        }
        schema
    }

    fn type_of(&mut self, element: Element<'_>, name: &str) -> Option<&'static str> {
        let words = TYPES.map(|word| (word, word));
        self.word(element, name, &words)
    }
}

/// Returns the input whose name is similar to `name`, as part of a sentence.
pub(super) fn near_input(schema: &Value, name: &str) -> String {
    let declared = schema["properties"].as_object();
    let names = declared.into_iter().flat_map(Map::keys);
    did_you_mean(nearest(name, names.map(String::as_str)))
}
