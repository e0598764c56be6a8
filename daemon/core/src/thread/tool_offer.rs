//! The tool offer: the tools that a model may call, by the names under which it knows them.
//!
//! **Owns** the choice among the permitted items, and the names. **Never** looks for an item: the caller that starts
//! the thread has found and verified the items that the permissions name.
//!
//! **Rule.** Every permitted item can be carried out by `rye_execute`. A tool that the permissions name, or in a folder
//! that they name, has a name of its own besides, with the schema of its parameters. Named tools are always offered,
//! the others within the token limit: first those that the text of the directive uses, then those in the folders that
//! the permissions list first. A name belongs to one item. If two items would share one, or a name would be too long,
//! the hash of the id distinguishes them.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::artifact::{self, READ};
use super::offered_tool::{Does, EXECUTE, FETCH, OfferedTool, RETURN, SIGN};
use crate::capability::{self, Capability, Layer, Named, Primary, can_match, check, may_meet};
use crate::conversation::{TokenSize, Tool};
use crate::directive::{Effective, Returns};
use crate::id::{ItemId, ItemKind, ItemRef};
use crate::seal::sha256_hex;

/// Length of the longest name of a tool.
const MOST_NAME: usize = 64;
/// Limit of the tools with names of their own, those that the permissions name included: providers accept 128 tools.
const MOST_TOOLS: usize = 100;
/// Hexadecimal digits that distinguish two items.
const HASH_DIGITS: usize = 8;
/// Keys besides `properties` by which a schema needs more than every provider supports.
const JOINS: [&str; 4] = ["allOf", "anyOf", "oneOf", "$ref"];

/// Items and folders that the permissions of a directive name, and every layer may allow.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NamedTools {
    pub items: BTreeSet<ItemRef>,
    /// Offers the tools in these folders and below them.
    pub folders: BTreeSet<ItemId>,
}

/// A verified tool that may be offered by name.
#[derive(Debug, Clone, PartialEq)]
pub struct ItemTool {
    pub item: ItemRef,
    /// True if the permissions name it, and not just a folder above it.
    pub is_named: bool,
    /// The description of its item.
    pub description: Option<String>,
    /// JSON Schema of its parameters, if it declares any.
    pub schema: Option<Value>,
}

/// Verified tools, and the limit for them.
#[derive(Debug, Clone, PartialEq)]
pub struct ItemTools {
    pub tools: Vec<ItemTool>,
    /// Limit of the tokens of all of them; beyond it only tools that the permissions name are offered.
    pub most_tokens: u64,
    pub token_size: TokenSize,
}

/// The tools that a model may call.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolOffer {
    /// Sorted by name.
    pub tools: Vec<OfferedTool>,
    /// The items without a name of their own, though the permissions name them or their folder, with the reason.
    pub left_out: Vec<(ItemRef, &'static str)>,
}

impl NamedTools {
    /// Collects the tools and folders that `permissions` name.
    pub fn of(permissions: &[String]) -> Self {
        let mut wanted = Self::default();
        for pattern in permissions {
            match Named::of(pattern, Primary::Execute) {
                Some(Named::Item(item)) if may_be_offered(&item) => {
                    wanted.items.insert(item);
                }
                Some(Named::Below(ItemKind::Tool, folder)) => {
                    wanted.folders.insert(folder);
                }
                Some(Named::Item(_) | Named::Below(..)) | None => {}
            }
        }
        wanted
    }
}

/// True if `item` is a tool that may be offered to a model.
pub fn may_be_offered(item: &ItemRef) -> bool {
    item.kind == ItemKind::Tool && !is_internal(item)
}

/// True if `item` is for hooks and the daemon itself. A tool that answers a hook, or writes events into a record, is
/// never for a model, whatever its permissions are.
pub(super) fn is_internal(item: &ItemRef) -> bool {
    item.id.as_str().split('/').any(|part| part == "internal")
}

/// Makes the offer under `layers`. The error names an output that cannot be described.
pub fn offer(
    directive: &Effective,
    layers: &[Layer],
    items: &ItemTools,
) -> Result<ToolOffer, String> {
    let mut tools = Vec::new();
    let mut left_out = Vec::new();
    let mut kinds = vec![ItemKind::Tool, ItemKind::Directive];
    kinds.retain(|kind| may(layers, Primary::Execute, *kind));
    if !kinds.is_empty() {
        tools.push(OfferedTool {
            tool: execute(&kinds),
            does: Does::Execute,
        });
        tools.extend(by_name(directive, layers, items, &mut left_out));
    }
    kinds = ItemKind::ALL.to_vec();
    kinds.retain(|kind| may(layers, Primary::Fetch, *kind));
    if !kinds.is_empty() {
        tools.push(OfferedTool {
            tool: fetch(&kinds),
            does: Does::Fetch,
        });
    }
    kinds = ItemKind::ALL.to_vec();
    kinds.retain(|kind| may(layers, Primary::Sign, *kind));
    if !kinds.is_empty() {
        tools.push(OfferedTool {
            tool: sign(&kinds),
            does: Does::Sign,
        });
    }
    if !tools.is_empty() {
        tools.push(OfferedTool {
            tool: artifact::tool(),
            does: Does::Read,
        });
    }
    if let Some(returns) = Returns::of(&directive.directive.outputs)? {
        tools.push(OfferedTool {
            tool: Tool {
                name: RETURN.to_owned(),
                description: "Returns the outputs of this directive and ends it.".to_owned(),
                schema: returns.schema().clone(),
            },
            does: Does::Return,
        });
    }
    tools.sort_by(|one, other| one.tool.name.cmp(&other.tool.name));
    Ok(ToolOffer { tools, left_out })
}

/// Returns the patterns of a directive that some of the `layers` above it cannot grant, each with that layer.
pub fn ungranted<'a>(permissions: &'a [String], layers: &'a [Layer]) -> Vec<(&'a str, &'a Layer)> {
    let refusing = |pattern: &'a String| {
        let may_grant = |layer: &Layer| layer.patterns.iter().any(|own| may_meet(own, pattern));
        let layer = layers.iter().find(|layer| !may_grant(layer))?;
        Some((pattern.as_str(), layer))
    };
    permissions.iter().filter_map(refusing).collect()
}

/// True if each layer has a pattern that may cover such an action on an item of this kind.
fn may(layers: &[Layer], primary: Primary, kind: ItemKind) -> bool {
    let all = format!("rye.{}.{kind}.*", primary.as_str());
    let covers = |pattern: &String| can_match(pattern) && may_meet(pattern, &all);
    let allows = |layer: &Layer| layer.patterns.iter().any(covers);
    !layers.is_empty() && layers.iter().all(allows)
}

/// Makes the tool that carries out items of these kinds.
fn execute(kinds: &[ItemKind]) -> Tool {
    let words: Vec<&str> = kinds.iter().map(|kind| kind.as_str()).collect();
    let mut properties = json!({
        "item_type": {"type": "string", "enum": words, "description": "The kind of the item."},
        "item_id": {"type": "string", "description": "The id of the item, like `rye/bash`."},
        "parameters": {"type": "object", "description": "The parameters of the item, or the inputs of a directive."},
    });
    if kinds.contains(&ItemKind::Directive) {
        properties["async"] = json!({
            "type": "boolean",
            "description": "Do not wait for the directive or graph: answer with the id of its thread or run at once.",
        });
        properties["model"] =
            json!({"type": "string", "description": "The model of the directive, or a tier."});
        properties["limit_overrides"] = json!({
            "type": "object",
            "description": "Limits of the directive: turns, tokens, spend, spawns, depth, duration_seconds. Of a graph: steps, depth.",
        });
        properties["thread"] = json!({
            "type": "string",
            "enum": ["fork", "inline"],
            "description": "`fork`, which is the default: a thread of its own runs the directive. `inline`: you get its text.",
        });
    }
    Tool {
        name: EXECUTE.to_owned(),
        description: "Carries out a signed item and answers with its result. What may be carried out is said under \
                      `permissions`."
            .to_owned(),
        schema: json!({
            "type": "object",
            "properties": properties,
            "required": ["item_id"],
            "additionalProperties": false,
        }),
    }
}

/// Makes the tool that reads items of these kinds, and searches for them.
fn fetch(kinds: &[ItemKind]) -> Tool {
    let words: Vec<&str> = kinds.iter().map(|kind| kind.as_str()).collect();
    Tool {
        name: FETCH.to_owned(),
        description: "Reads a signed item by its id, or looks for items by a query: one of `item_id` and `query`. What may be \
                      read is said under `permissions`."
            .to_owned(),
        schema: json!({
            "type": "object",
            "properties": {
                "item_type": {"type": "string", "enum": words, "description": "The kind of the item, or of what is looked for."},
                "item_id": {"type": "string", "description": "The id of the item, like `rye/bash`."},
                "query": {
                    "type": "string",
                    "description": "Words, with AND, OR, NOT, parentheses, \"phrases\" and beginnings like `auth*`.",
                },
                "scope": {"type": "string", "description": "A kind and a folder, like `tool.rye.file-system`. With `query`."},
                "limit": {"type": "integer", "description": "Most results. With `query`."},
                "offset": {"type": "integer", "description": "How many results to pass over. With `query`."},
            },
            "additionalProperties": false,
        }),
    }
}

/// Makes the tool that signs items of these kinds.
fn sign(kinds: &[ItemKind]) -> Tool {
    let words: Vec<&str> = kinds.iter().map(|kind| kind.as_str()).collect();
    Tool {
        name: SIGN.to_owned(),
        description: "Signs items of the project, so that they may be used. What may be signed is said under `permissions`."
            .to_owned(),
        schema: json!({
            "type": "object",
            "properties": {
                "item_type": {"type": "string", "enum": words, "description": "The kind of the items."},
                "item_id": {"type": "string", "description": "The id of an item, like `team/send`, or a pattern of ids, like `team/*`."},
            },
            "required": ["item_type", "item_id"],
            "additionalProperties": false,
        }),
    }
}

/// Returns the tools with names of their own that every layer allows and the limits admit.
fn by_name(
    directive: &Effective,
    layers: &[Layer],
    items: &ItemTools,
    left_out: &mut Vec<(ItemRef, &'static str)>,
) -> Vec<OfferedTool> {
    let is_allowed =
        |item: &ItemRef| check(layers, &Capability::of(Primary::Execute, item)).is_ok();
    let mut tools: Vec<&ItemTool> = items.tools.iter().collect();
    tools.retain(|tool| is_allowed(&tool.item));
    let names = names(tools.iter().map(|tool| &tool.item));
    let body = &directive.directive.body;
    let permissions = directive.permissions().patterns;
    tools.sort_by_cached_key(|tool| {
        let is_used = body.contains(tool.item.id.as_str());
        let listed = permissions
            .iter()
            .position(|pattern| covers(pattern, &tool.item));
        (!tool.is_named, !is_used, listed, names.get(&tool.item))
    });
    let mut offered = Vec::new();
    let mut left = items.most_tokens;
    for tool in tools {
        let told = match describe(tool, names.get(&tool.item)) {
            Ok(told) => told,
            Err(why) => {
                left_out.push((tool.item.clone(), why));
                continue;
            }
        };
        let tokens = items.token_size.tokens(json!(told).to_string().len());
        if !tool.is_named && tokens > left {
            left_out.push((tool.item.clone(), "there is no room for it"));
            continue;
        }
        if !tool.is_named && offered.len() == MOST_TOOLS {
            left_out.push((tool.item.clone(), "there are 100 tools without it"));
            continue;
        }
        left = left.saturating_sub(tokens);
        offered.push(OfferedTool {
            tool: told,
            does: Does::Item(tool.item.clone()),
        });
    }
    offered
}

/// True if the permission `pattern` covers the execution of `item`.
pub(super) fn covers(pattern: &str, item: &ItemRef) -> bool {
    capability::covers_action(pattern, Primary::Execute, item)
}

/// Returns the offered form of `tool`, or the reason for leaving it out.
fn describe(tool: &ItemTool, name: Option<&String>) -> Result<Tool, &'static str> {
    let description = tool.description.as_deref();
    Ok(Tool {
        name: name.ok_or("another item has its name")?.clone(),
        description: description.unwrap_or(tool.item.id.as_str()).to_owned(),
        schema: parameters(tool.schema.as_ref())
            .ok_or("not every provider takes the schema of its parameters")?,
    })
}

/// Returns the schema of parameters in the form that every provider accepts; `None` if it is not one of an object, or
/// joins others.
fn parameters(schema: Option<&Value>) -> Option<Value> {
    let Some(schema) = schema else {
        return Some(json!({"type": "object"}));
    };
    let mut schema = schema.as_object()?.clone();
    let is_object = match schema.get("type") {
        None => true,
        Some(word) => word == "object",
    };
    if !is_object || JOINS.iter().any(|join| schema.contains_key(*join)) {
        return None;
    }
    schema.insert("type".to_owned(), json!("object"));
    Some(Value::Object(schema))
}

/// Returns the name of each item. An item has none if even its hash does not distinguish it from an earlier one.
fn names<'a>(items: impl Iterator<Item = &'a ItemRef>) -> BTreeMap<&'a ItemRef, String> {
    let items: BTreeSet<&ItemRef> = items.collect();
    let mut holders: BTreeMap<String, u32> = BTreeMap::new();
    for own in [EXECUTE, FETCH, READ, RETURN, SIGN] {
        holders.insert(own.to_owned(), 1);
    }
    for item in &items {
        *holders.entry(plain(&item.id)).or_default() += 1;
    }
    let mut taken = BTreeSet::new();
    let mut names = BTreeMap::new();
    for item in items {
        let plain = plain(&item.id);
        let name = if holders[&plain] > 1 || plain.len() > MOST_NAME {
            let start = &plain[..plain.len().min(MOST_NAME - HASH_DIGITS - 1)];
            let hash = sha256_hex(item.id.as_str());
            format!("{start}_{}", &hash[..HASH_DIGITS])
        } else {
            plain
        };
        if taken.insert(name.clone()) {
            names.insert(item, name);
        }
    }
    names
}

/// Returns an id in the letters that names may contain.
fn plain(id: &ItemId) -> String {
    let letter = |c: char| if c.is_ascii_alphanumeric() { c } else { '_' };
    id.as_str().chars().map(letter).collect()
}
