//! What is fixed about a thread at its start, and what the model may call under it.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::capability::{Capability, Layer, Primary, can_match};
use crate::conversation::{Root, Tool, ToolMode};
use crate::directive::{Effective, Returns};
use crate::error::excerpt;
use crate::expr::parse_json;
use crate::id::{ItemKind, ItemRef};
use crate::model::{Effect, Object};
use crate::provider::ResolvedModel;

/// The name of the tool by which a model carries out items.
const EXECUTE: &str = "rye_execute";
/// What a call of it may say beside, if the item is a directive.
const OF_DIRECTIVES: [&str; 3] = ["async", "model", "limit_overrides"];
/// The name of the tool by which it returns its outputs.
const RETURN: &str = "directive_return";

/// What a thread goes by. It is data, and part of its record: no edit of a file changes a thread that has begun.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Contract {
    /// The directive, with what it takes over from those it extends.
    pub directive: Effective,
    /// The model.
    pub model: ResolvedModel,
    /// The tools that the model may call, in the order in which it is told of them.
    pub offered: Vec<Offered>,
    /// How often a failed call is tried again in one turn.
    pub max_retries: u8,
}

/// A contract that is ready to be worked under.
#[derive(Debug)]
pub struct Terms {
    /// What was agreed.
    pub contract: Contract,
    /// The check of what is returned, if something is to be.
    pub(super) returns: Option<Returns>,
}

impl Terms {
    /// Reads the JSON text of a contract.
    pub fn read(text: &str) -> Result<Self, String> {
        let contract: Contract = serde_json::from_str(text).map_err(|error| error.to_string())?;
        let returns = Returns::of(&contract.directive.directive.outputs)?;
        Ok(Self { contract, returns })
    }
}

/// A tool that the model may call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Offered {
    /// What the model is told of it.
    pub tool: Tool,
    /// What a call of it does.
    pub does: Does,
}

/// What a call of an offered tool does.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Does {
    /// It carries out the item that its arguments name.
    Execute,
    /// It returns the outputs of the thread.
    Return,
}

/// What a call of a model comes down to.
#[derive(Debug, Clone, PartialEq)]
pub enum Target {
    /// This item is carried out.
    Execute {
        /// The item.
        item: ItemRef,
        /// With these parameters.
        params: Object,
    },
    /// The outputs are returned.
    Return,
    /// Nothing, for it cannot be carried out.
    Refused {
        /// Why, for programs.
        code: &'static str,
        /// Why, for the model.
        message: String,
    },
}

/// The tools that a model may call under `layers`. The error says which output cannot be described.
pub fn offer(directive: &Effective, layers: &[Layer]) -> Result<Vec<Offered>, String> {
    let mut offered = Vec::new();
    let kinds = [ItemKind::Tool, ItemKind::Directive].map(|kind| (kind, may_execute(layers, kind)));
    let kinds: Vec<ItemKind> = kinds
        .into_iter()
        .filter_map(|(kind, may)| may.then_some(kind))
        .collect();
    if !kinds.is_empty() {
        offered.push(Offered {
            tool: execute(&kinds),
            does: Does::Execute,
        });
    }
    if let Some(returns) = Returns::of(&directive.directive.outputs)? {
        offered.push(Offered {
            tool: Tool {
                name: RETURN.to_owned(),
                description: "Returns the outputs of this directive and ends it.".to_owned(),
                schema: returns.schema().clone(),
            },
            does: Does::Return,
        });
    }
    offered.sort_by(|one, other| one.tool.name.cmp(&other.tool.name));
    Ok(offered)
}

/// Whether each layer has a pattern that may cover the execution of an item of this kind.
fn may_execute(layers: &[Layer], kind: ItemKind) -> bool {
    let prefix = format!("rye.execute.{kind}.");
    let covers = |pattern: &String| {
        let literal = pattern.split(['*', '?', '[']).next().unwrap_or_default();
        can_match(pattern) && (literal.starts_with(&prefix) || prefix.starts_with(literal))
    };
    let allows = |layer: &Layer| layer.patterns.iter().any(covers);
    !layers.is_empty() && layers.iter().all(allows)
}

/// The tool that carries out items of these kinds.
fn execute(kinds: &[ItemKind]) -> Tool {
    let words: Vec<&str> = kinds.iter().map(|kind| kind.as_str()).collect();
    let mut schema = json!({
        "type": "object",
        "properties": {
            "item_type": {"type": "string", "enum": words, "description": "The kind of the item."},
            "item_id": {"type": "string", "description": "The id of the item, like `rye/bash`."},
            "parameters": {"type": "object", "description": "The parameters of the item, or the inputs of a directive."},
        },
        "required": ["item_id"],
        "additionalProperties": false,
    });
    if kinds.contains(&ItemKind::Directive)
        && let Some(properties) = schema["properties"].as_object_mut()
    {
        properties.extend([
            (
                "async".to_owned(),
                json!({"type": "boolean", "description": "Do not wait for the directive: answer with the id of its thread at once."}),
            ),
            (
                "model".to_owned(),
                json!({"type": "string", "description": "The model of the directive, or a tier."}),
            ),
            (
                "limit_overrides".to_owned(),
                json!({"type": "object", "description": "Limits of the directive: turns, tokens, spend, spawns, depth, duration_seconds."}),
            ),
        ]);
    }
    Tool {
        name: EXECUTE.to_owned(),
        description: "Carries out a signed item and answers with its result. What may be carried out is said under \
                      `permissions`."
            .to_owned(),
        schema,
    }
}

impl Contract {
    /// What the model may call, and how the conversation begins.
    pub fn root(&self, system: Option<String>) -> Root {
        Root {
            system,
            tools: self
                .offered
                .iter()
                .map(|offered| offered.tool.clone())
                .collect(),
            tool_mode: ToolMode::Native,
            origin: self.model.origin(),
        }
    }

    /// What a call of the tool `name` with `input` comes down to. Tools are known by the names under which they were offered, and
    /// by no others.
    pub fn target(&self, name: &str, input: &Object) -> Target {
        let offered = self
            .offered
            .iter()
            .find(|offered| offered.tool.name == name);
        match offered.map(|offered| &offered.does) {
            Some(Does::Execute) => to_execute(input),
            Some(Does::Return) => Target::Return,
            None => {
                let known: Vec<&str> = self.offered.iter().map(|o| o.tool.name.as_str()).collect();
                let known = if known.is_empty() {
                    "there are no tools".to_owned()
                } else {
                    format!("there are {}", known.join(", "))
                };
                Target::Refused {
                    code: "unknown_tool",
                    message: format!("there is no tool `{}`; {known}", excerpt(name)),
                }
            }
        }
    }

    /// What a second execution of `item` would mean, if the permission that names it says so.
    pub fn effect(&self, item: &ItemRef) -> Option<Effect> {
        let permissions = self.directive.directive.permissions.as_ref()?;
        let capability = Capability::of(Primary::Execute, item);
        let names = |pattern: &str| {
            let layer = Layer {
                source: String::new(),
                patterns: vec![pattern.to_owned()],
            };
            layer.allows(&capability)
        };
        let found = permissions
            .effects
            .iter()
            .find(|(pattern, _)| names(pattern));
        found.map(|(_, effect)| *effect)
    }
}

/// The item and the parameters that a call of `rye_execute` names.
fn to_execute(input: &Object) -> Target {
    match read_execute(input) {
        Ok((item, _)) if is_internal(&item) => Target::Refused {
            code: "permission_denied",
            message: format!("`{item}` is a tool of the daemon's own, and no model calls it"),
        },
        Ok((item, params)) => Target::Execute { item, params },
        Err(message) => Target::Refused {
            code: "invalid_params",
            message,
        },
    }
}

/// Whether `item` is for hooks and the daemon itself: what answers a hook, or writes events into a record, is no means of a model,
/// whatever its permissions are.
fn is_internal(item: &ItemRef) -> bool {
    item.id.as_str().split('/').any(|part| part == "internal")
}

fn read_execute(input: &Object) -> Result<(ItemRef, Object), String> {
    const KEYS: [&str; 3] = ["item_type", "item_id", "parameters"];
    if let Some(other) = input
        .keys()
        .find(|key| !KEYS.contains(&key.as_str()) && !OF_DIRECTIVES.contains(&key.as_str()))
    {
        return Err(format!(
            "`{EXECUTE}` takes `item_type`, `item_id` and `parameters`, and no `{}`",
            excerpt(other)
        ));
    }
    let kind = match input.get("item_type").map(Value::as_str) {
        None => None,
        Some(Some("tool")) => Some(ItemKind::Tool),
        Some(Some("directive")) => Some(ItemKind::Directive),
        Some(_) => return Err("`item_type` must be \"tool\" or \"directive\"".to_owned()),
    };
    let id = input.get("item_id").and_then(Value::as_str);
    let id = id.ok_or("`item_id` must be the id of an item, like \"rye/bash\"")?;
    let item = ItemRef::parse(id, kind.unwrap_or(ItemKind::Tool));
    let item = item.map_err(|error| format!("`item_id`: {error}"))?;
    let params = parameters(input)?;
    match item.kind {
        kind_of_id if kind.is_some_and(|kind| kind != kind_of_id) => Err(format!(
            "`item_type` and `item_id` name different types: `{item}` is a {kind_of_id}"
        )),
        ItemKind::Tool => match OF_DIRECTIVES.iter().find(|key| input.contains_key(**key)) {
            Some(key) => Err(format!(
                "`{key}` is for directives; what says how a graph goes stands among its `parameters`"
            )),
            None => Ok((item, params)),
        },
        ItemKind::Directive => Ok((item, started(input, params))),
        ItemKind::Knowledge | ItemKind::Config => Err(format!("`{item}` is no tool")),
    }
}

fn parameters(input: &Object) -> Result<Object, String> {
    match input.get("parameters") {
        None | Some(Value::Null) => Ok(Object::new()),
        Some(Value::Object(params)) => Ok(params.clone()),
        // Some models write objects as text.
        Some(Value::String(text)) => match parse_json(text) {
            Ok(Value::Object(params)) => Ok(params),
            Ok(_) | Err(_) => Err("`parameters` must be an object".to_owned()),
        },
        Some(_) => Err("`parameters` must be an object".to_owned()),
    }
}

/// The parameters of an action on a directive, which is given `inputs`.
fn started(input: &Object, inputs: Object) -> Object {
    let how = OF_DIRECTIVES.iter().filter_map(|key| {
        let value = input.get(*key)?;
        Some(((*key).to_owned(), value.clone()))
    });
    let inputs = ("inputs".to_owned(), Value::Object(inputs));
    std::iter::once(inputs).chain(how).collect()
}
