//! Directive files: a prompt with a contract, run by a model as a thread.
//!
//! **Owns** the shape of a directive file (its closed lists of elements and attributes, older spellings included), every check
//! that needs no other file, the laying of a directive over those it extends, and the text that its prompt comes to.
//! **Never** reads a file: parents and knowledge are handed in by a caller that verified them. Nothing in here decides whether a
//! thread may do what its directive asks for.
//!
//! ```text
//! text ──parse──► Directive ──Lineage (verified parents)──► Effective ──compose (inputs, knowledge)──► Prompt
//! ```
//!
//! An [`Effective`] is data: it is stored with the run that was made of it, so that an edit never changes a thread that has begun,
//! and no text is parsed a second time.
//!
//! **Values are data.** Inputs and variables of the environment are put into the prompt in one pass; what they bring along is
//! never read as a placeholder.
//! **Failure.** All findings of a file are returned together, in the order of the text, each with line and column. One error is
//! enough to keep a directive from running. What this release does not carry out yet is an error (`not_supported`), so that no
//! limit or condition of an author is silently passed over.

mod contract;
mod extends;
mod fill;
mod metadata;
mod permissions;
mod prompt;
mod read;
mod shape;
mod source;

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::definition::{Finding, Inputs, Severity};
use crate::id::{ItemId, ItemKind, ItemRef};
use crate::model::{Effect, Failure, Object};
use crate::money::Usd;

pub use contract::{Output, Returns};
pub use extends::{Effective, Lineage, LineageError, MOST_PARENTS};
pub use prompt::{Knowledge, Prompt, Values};

use read::Reader;
use source::Source;

/// Largest directive file, in bytes.
pub const MOST_BYTES: usize = 1 << 20;

/// Most inputs named in one refusal.
const MOST_PROBLEMS: usize = 20;

/// What prompts a thread that continues in a fresh conversation, if its directive does not say.
pub const DEFAULT_CONTINUATION: &str = "rye/agent/continuation";

/// A directive file, parsed.
///
/// It is stored in the record of each thread: what is absent takes no room there.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Directive {
    /// `name`, which is the stem of the file.
    pub name: String,
    /// `version`.
    pub version: String,
    /// The directive it extends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub extends: Option<ItemRef>,
    /// What it is for.
    pub description: String,
    /// Who wrote it.
    pub author: String,
    /// `category`, which is the folder of the file.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub category: String,
    /// Words to find it by.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
    /// The model it asks for.
    #[serde(default)]
    pub model: Wish,
    /// How much it may use.
    #[serde(default)]
    pub limits: DirectiveLimits,
    /// What it may do; `None` if the file does not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub permissions: Option<Permissions>,
    /// Risks that its author knows of.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub acknowledged: Vec<Acknowledged>,
    /// Knowledge that goes along.
    #[serde(default)]
    pub context: Context,
    /// How its tool calls are made.
    #[serde(default)]
    pub tools: ToolUse,
    /// What prompts the thread when it continues in a fresh conversation, if it says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub continuation: Option<ItemRef>,
    /// JSON Schema of its inputs; `None` if it declares none, and then takes any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inputs: Option<Value>,
    /// What it returns, in the order of the file.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub outputs: Vec<Output>,
    /// The element `actions` as it is written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub actions: Option<String>,
    /// What is behind the fence: the prompt.
    pub body: String,
}

/// The model that a directive asks for.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Wish {
    /// A model by its id or alias.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// A tier, if no model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tier: Option<String>,
    /// The provider it should come from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub provider: Option<String>,
    /// How much the model should think.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub effort: Option<String>,
    /// Most tokens of one answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_output: Option<u32>,
    /// How far answers may stray.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub temperature: Option<f64>,
    /// The model to take if the first cannot be used at the start.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fallback: Option<String>,
    /// `parallel="false"`: one call a message is asked for.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub one_call: bool,
}

/// How much a thread may use, as its directive says; what is absent is not limited here.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct DirectiveLimits {
    /// Turns of its chain.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub turns: Option<u32>,
    /// Tokens of its chain.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tokens: Option<u64>,
    /// Money, with all below it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spend: Option<Usd>,
    /// Child runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spawns: Option<u32>,
    /// Levels of child runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub depth: Option<u32>,
    /// Milliseconds of active time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub duration_ms: Option<u64>,
}

impl DirectiveLimits {
    /// Active time, as a duration.
    pub fn duration(&self) -> Option<Duration> {
        self.duration_ms.map(Duration::from_millis)
    }
}

/// What a directive may do.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Permissions {
    /// Patterns of capabilities, normalised; none denies everything.
    pub patterns: Vec<String>,
    /// What a second execution would mean, for the patterns that say so.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub effects: Vec<(String, Effect)>,
    /// The element as it is written, for the model.
    pub written: String,
}

/// A risk its author knows of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Acknowledged {
    /// The risk class.
    pub risk: String,
    /// Why it is taken.
    pub reason: String,
}

/// Knowledge that goes along with a prompt.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Context {
    /// Items of the system prompt.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub system: Vec<ItemId>,
    /// Items ahead of the prompt.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub before: Vec<ItemId>,
    /// Items behind the prompt.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub after: Vec<ItemId>,
    /// Items, and hooks, that are left out.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub suppress: Vec<String>,
}

impl Context {
    /// The knowledge of one of the lists that goes along: what is not left out.
    pub fn kept<'a>(&'a self, list: &'a [ItemId]) -> impl Iterator<Item = ItemRef> + 'a {
        let is_left_out = |id: &ItemId| self.suppress.iter().any(|out| out == id.as_str());
        let kept = list.iter().filter(move |id| !is_left_out(id));
        kept.map(|id| ItemRef {
            kind: ItemKind::Knowledge,
            id: id.clone(),
        })
    }
}

/// How tool calls are made, where the directive decides over the provider.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ToolUse {
    /// When a call starts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start: Option<CallStart>,
    /// Most calls at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_parallel: Option<u32>,
}

/// When a tool call starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CallStart {
    /// As soon as it is complete, while the message continues.
    #[default]
    Streaming,
    /// When its message is complete.
    Message,
}

impl Directive {
    /// The inputs of a thread: those given, with defaults, checked. A failure has the code `input_validation_failed` and names
    /// each input.
    pub fn resolve_inputs(&self, given: Object) -> Result<Object, Failure> {
        let Some(schema) = &self.inputs else {
            return Ok(given);
        };
        let refused = |problem: String| Failure::permanent("input_validation_failed", problem);
        let unknown = given
            .keys()
            .filter(|key| schema["properties"].get(key).is_none());
        let unknown: Vec<String> = unknown
            .take(MOST_PROBLEMS)
            .map(|key| {
                format!(
                    "there is no input `{key}`{}",
                    contract::near_input(schema, key)
                )
            })
            .collect();
        if !unknown.is_empty() {
            return Err(refused(unknown.join("; ")));
        }
        let inputs =
            Inputs::new(schema).map_err(|(at, problem)| refused(format!("{problem} at `{at}`")))?;
        inputs.resolve(given).map(|(inputs, _)| inputs)
    }

    /// The directive that prompts a thread which continues in a fresh conversation.
    pub fn continuation(&self) -> ItemRef {
        self.continuation.clone().unwrap_or_else(|| ItemRef {
            kind: ItemKind::Directive,
            id: ItemId::new(DEFAULT_CONTINUATION).expect("the default is a valid id"),
        })
    }
}

/// Reads the directive file of `id`, in which line ends are `\n`: the directive with its warnings, or all errors and warnings.
pub fn parse(text: &str, id: &ItemId) -> Result<(Directive, Vec<Finding>), Vec<Finding>> {
    parse_until(text, id, &|| false)
}

/// As [`parse`]; when `is_late` says so it ends with the error `too_complex`.
pub fn parse_until(
    text: &str,
    id: &ItemId,
    is_late: &dyn Fn() -> bool,
) -> Result<(Directive, Vec<Finding>), Vec<Finding>> {
    let source = Source::find(text).map_err(|finding| vec![finding])?;
    let document = source.document().map_err(|finding| vec![finding])?;
    let mut reader = Reader::until(&source, is_late);
    let directive = reader.directive(document.root_element(), id);
    if let Some(directive) = &directive {
        reader.check_placeholders(directive);
    }
    let findings = reader.finish();
    match directive {
        Some(directive) if findings.iter().all(|f| f.severity == Severity::Warning) => {
            Ok((directive, findings))
        }
        Some(_) | None => Err(findings),
    }
}

#[cfg(test)]
mod tests;
