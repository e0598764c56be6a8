//! Items: the elements of `ls --json`, and `show --json`.

use rye_proto::v1;
use serde::Serialize;
use serde_json::Value;

use super::some;
use crate::error::Error;
use crate::wire;

/// An item as it lies in a space.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Item {
    /// `TYPE:ID`.
    pub id: String,
    /// `project`, `user` or `system`.
    pub space: String,
    /// Its file.
    pub path: String,
    /// How it stands.
    pub verdict: String,
    /// Why it may not be used, with the fix.
    pub problem: Option<String>,
    /// The key that signed it, or that its signature names.
    pub fingerprint: Option<String>,
    /// Whose key that is, if it is trusted.
    pub owner: Option<String>,
    /// What it is called, for people.
    pub title: Option<String>,
    /// What it is for.
    pub description: Option<String>,
    /// Its version.
    pub version: Option<String>,
    /// Of a tool: `graph`, `python`, …
    pub tool_type: Option<String>,
}

/// All that is told of an item.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Described {
    /// What it is and how it stands.
    #[serde(flatten)]
    pub item: Item,
    /// JSON Schema of its inputs; null if it declares none.
    pub inputs: Option<Value>,
    /// What it declares that it needs; null if it declares nothing.
    pub permissions: Option<Vec<String>>,
    /// What runs it.
    pub executor_id: Option<String>,
    /// What a second run means, if it says so.
    pub effect: Option<String>,
    /// What else it is about.
    pub tags: Vec<String>,
    /// Files of the same name that are not used because this one comes first.
    pub shadows: Vec<Shadowed>,
}

/// A file that is not used because another one of its name comes first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Shadowed {
    /// Its space.
    pub space: String,
    /// The file.
    pub path: String,
}

impl Item {
    /// From a line of a list.
    pub fn new(item: &v1::Item) -> Self {
        let name = item.item.clone().unwrap_or_default();
        Self {
            id: format!("{}:{}", wire::item_word(&name), name.id),
            space: item.space.clone(),
            path: item.path.clone(),
            verdict: item.verdict.clone(),
            problem: some(&item.problem),
            fingerprint: some(&item.fingerprint),
            owner: some(&item.owner),
            title: some(&item.title),
            description: some(&item.description),
            version: some(&item.version),
            tool_type: some(&item.tool_type),
        }
    }
}

impl Described {
    /// From what the daemon answered with.
    pub fn new(answer: v1::DescribeResponse) -> Result<Self, Error> {
        let shadowed = |other: v1::ShadowedItem| Shadowed {
            space: other.space,
            path: other.path,
        };
        Ok(Self {
            item: Item::new(&answer.item.unwrap_or_default()),
            inputs: wire::json("inputs_schema_json", &answer.inputs_schema_json)?,
            permissions: answer.has_permissions.then_some(answer.permissions),
            executor_id: some(&answer.executor_id),
            effect: some(&answer.effect),
            tags: answer.tags,
            shadows: answer.shadows.into_iter().map(shadowed).collect(),
        })
    }
}
