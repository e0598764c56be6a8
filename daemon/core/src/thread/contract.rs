//! The terms of a thread, fixed at its start, and the actions of its model's calls.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::artifact::ArtifactRange;
use super::offered_tool::{Does, EXECUTE, OfferedTool};
use super::results::{Free, Shown, shown};
use super::tool_offer::{covers, is_internal};
use crate::capability::Primary;
use crate::conversation::{Root, ToolMode};
use crate::definition;
use crate::directive::{Effective, Returns};
use crate::error::excerpt;
use crate::expr::{did_you_mean, nearest, parse_json};
use crate::id::{ItemId, ItemKind, ItemRef};
use crate::machine::{CallOutcome, ResultText};
use crate::model::thread::Turn;
use crate::model::{Effect, Object};
use crate::policy::OnExceed;
use crate::provider::ResolvedModel;
use crate::provider::failure::ErrorRows;

/// Arguments of every call of `rye_execute`.
const OF_ALL: [&str; 3] = ["item_type", "item_id", "parameters"];
/// Further arguments for a directive; `thread` decides if it is run at all.
const OF_DIRECTIVES: [&str; 3] = ["async", "model", "limit_overrides"];
const THREAD: &str = "thread";
/// Limits of a graph, with its equivalent parameters.
const OF_GRAPHS: [(&str, &str); 2] = [("steps", "max_steps"), ("depth", "depth")];

/// The terms of a thread. They are data, and part of its record: no edit of a file changes a thread that has begun.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Contract {
    /// The directive, merged with those it extends.
    pub directive: Effective,
    pub model: ResolvedModel,
    /// The tools that the model may call, in the order in which it gets them.
    pub offered: Vec<OfferedTool>,
    /// Limit of the tries of a failed call in one turn, without the first.
    pub max_retries: u8,
    /// The handling of a reached limit.
    pub on_exceed: OnExceed,
    /// The number of equal calls in a row of which the last is refused; 0 is no limit.
    pub repeated_calls: u32,
    /// The rows that classify the errors of its provider, in their order.
    pub provider_errors: Vec<Value>,
}

/// A contract with its compiled checks.
#[derive(Debug)]
pub struct Terms {
    pub contract: Contract,
    /// The check of the returned outputs, if it has any.
    pub(super) returns: Option<Returns>,
    /// The rows that classify the errors of the provider.
    pub errors: Arc<ErrorRows>,
}

impl Terms {
    /// Reads the JSON text of a contract.
    pub fn read(text: &str) -> Result<Self, String> {
        let contract: Contract = serde_json::from_str(text).map_err(|error| error.to_string())?;
        let returns = Returns::of(&contract.directive.directive.outputs)?;
        let errors = ErrorRows::read(&contract.provider_errors)?.into();
        Ok(Self {
            contract,
            returns,
            errors,
        })
    }
}

/// The meaning of a call of a model.
#[derive(Debug, Clone, PartialEq)]
pub enum Target {
    /// This action is carried out.
    Execute {
        primary: Primary,
        item: ItemRef,
        params: Object,
    },
    Return,
    /// A part of a long result is read.
    Read(ArtifactRange),
    /// The call cannot be carried out.
    Refused {
        /// For programs.
        code: &'static str,
        /// For the model.
        message: String,
    },
}

impl Contract {
    /// Returns the first entry of the conversation: system prompt and tools.
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

    /// Returns the meaning of a call of the tool `name` with `input`. Tools are known only by the names under which
    /// they were offered.
    pub fn target(&self, name: &str, input: &Object) -> Target {
        let offered = self
            .offered
            .iter()
            .find(|offered| offered.tool.name == name);
        match offered.map(|offered| &offered.does) {
            Some(Does::Execute) => to_execute(input),
            Some(Does::Item(item)) => Target::Execute {
                primary: Primary::Execute,
                item: item.clone(),
                params: input.clone(),
            },
            Some(Does::Fetch) => Target::Execute {
                primary: Primary::Fetch,
                item: tool(definition::FETCH),
                params: input.clone(),
            },
            Some(Does::Sign) => Target::Execute {
                primary: Primary::Sign,
                item: tool(definition::SIGN),
                params: input.clone(),
            },
            Some(Does::Return) => Target::Return,
            Some(Does::Read) => match ArtifactRange::of(input) {
                Ok(reading) => Target::Read(reading),
                Err(message) => Target::Refused {
                    code: "invalid_params",
                    message,
                },
            },
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

    /// Returns the text of a result that the model receives in `turn`. It depends on nothing else. So the component
    /// that stores the whole and the machine, which sends a part of it, agree.
    pub fn shown(&self, turn: &Turn, outcome: &CallOutcome, text: ResultText) -> Shown {
        let free = Free {
            sent: turn.input,
            room: self.model.room(),
        };
        shown(&outcome.result, outcome.failure.as_ref(), text, free)
    }

    /// Returns the effect of a second execution of `item`, if the permission that names it declares one.
    pub fn effect(&self, item: &ItemRef) -> Option<Effect> {
        let permissions = self.directive.directive.permissions.as_ref()?;
        let found = permissions
            .effects
            .iter()
            .find(|(pattern, _)| covers(pattern, item));
        found.map(|(_, effect)| *effect)
    }
}

/// Returns the meaning of a call of `rye_execute`.
fn to_execute(input: &Object) -> Target {
    match read_execute(input) {
        Ok((_, item, _)) if is_internal(&item) => Target::Refused {
            code: "permission_denied",
            message: format!("`{item}` is a tool of the daemon's own, and no model calls it"),
        },
        Ok((primary, item, params)) => Target::Execute {
            primary,
            item,
            params,
        },
        Err(message) => Target::Refused {
            code: "invalid_params",
            message,
        },
    }
}

fn tool(id: &str) -> ItemRef {
    ItemRef::tool(ItemId::new(id).expect("it is the id of a tool"))
}

/// Reads the action, its item and its parameters.
fn read_execute(input: &Object) -> Result<(Primary, ItemRef, Object), String> {
    let known = [OF_ALL.as_slice(), &OF_DIRECTIVES, &[THREAD]].concat();
    if let Some(other) = input.keys().find(|key| !known.contains(&key.as_str())) {
        let near = nearest(other, known);
        let near = did_you_mean(near);
        return Err(format!(
            "`{EXECUTE}` takes `item_type`, `item_id` and `parameters`, and no `{}`{near}",
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
        ItemKind::Tool => Ok((Primary::Execute, item, of_tool(input, params)?)),
        ItemKind::Directive if is_inline(input)? => inline(input, &item, &params),
        ItemKind::Directive => Ok((Primary::Execute, item, started(input, params))),
        ItemKind::Knowledge | ItemKind::Config => Err(format!("`{item}` is no tool")),
    }
}

/// True if a directive must be read by the calling model, and not run by another one.
fn is_inline(input: &Object) -> Result<bool, String> {
    match input.get(THREAD).map(Value::as_str) {
        None | Some(Some("fork")) => Ok(false),
        Some(Some("inline")) => Ok(true),
        Some(_) => Err("`thread` must be \"fork\" or \"inline\"".to_owned()),
    }
}

/// Reads the directive `item`, as `rye_fetch` does.
fn inline(
    input: &Object,
    item: &ItemRef,
    params: &Object,
) -> Result<(Primary, ItemRef, Object), String> {
    let how = OF_DIRECTIVES.iter().find(|key| input.contains_key(**key));
    let given = (!params.is_empty()).then_some(&"parameters");
    if let Some(key) = given.or(how) {
        return Err(format!(
            "`{key}` is for a thread of its own; with `thread: \"inline\"` the directive is only read"
        ));
    }
    let read = [
        ("item_type", item.kind.as_str()),
        ("item_id", item.id.as_str()),
    ];
    let read = read.map(|(key, value)| (key.to_owned(), Value::from(value)));
    Ok((
        Primary::Fetch,
        tool(definition::FETCH),
        read.into_iter().collect(),
    ))
}

/// Returns the parameters of a tool, which may be a graph: its limits are among them.
fn of_tool(input: &Object, mut params: Object) -> Result<Object, String> {
    if let Some(key) = [THREAD, "model"]
        .iter()
        .find(|key| input.contains_key(**key))
    {
        return Err(format!(
            "`{key}` is for directives; no model runs a tool or a graph"
        ));
    }
    let mut told = Vec::new();
    told.extend(input.get("async").map(|given| ("async", given)));
    match input.get("limit_overrides") {
        None | Some(Value::Null) => {}
        Some(Value::Object(limits)) => {
            for (key, limit) in limits {
                let known = OF_GRAPHS.iter().find(|(own, _)| own == key);
                let (_, param) = known.ok_or_else(|| {
                    format!(
                        "`limit_overrides` of a graph has `steps` and `depth`, and no `{}`",
                        excerpt(key)
                    )
                })?;
                told.push((*param, limit));
            }
        }
        Some(_) => return Err("`limit_overrides` must be an object".to_owned()),
    }
    for (key, given) in told {
        if params.insert(key.to_owned(), given.clone()).is_some() {
            return Err(format!(
                "`{key}` is given twice: leave it out among the `parameters`"
            ));
        }
    }
    Ok(params)
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

/// Returns the parameters of an action on a directive with `inputs`.
fn started(input: &Object, inputs: Object) -> Object {
    let how = OF_DIRECTIVES.iter().filter_map(|key| {
        let value = input.get(*key)?;
        Some(((*key).to_owned(), value.clone()))
    });
    let inputs = ("inputs".to_owned(), Value::Object(inputs));
    std::iter::once(inputs).chain(how).collect()
}
