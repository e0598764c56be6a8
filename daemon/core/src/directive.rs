//! Directive files: a prompt with a contract, run by a model as a thread.
//!
//! **Owns** the shape of a directive file: its closed lists of elements and attributes, older spellings included. It
//! makes every check that needs no other file, merges a directive with those it extends, and composes the text of its
//! prompt.
//! **Never** reads a file: a caller that verified them passes parents and knowledge in. Nothing in here decides if a
//! thread may do what its directive requests.
//!
//! ```text
//! text ──parse──► Directive ──Lineage (verified parents)──► Effective ──compose (inputs, knowledge)──► Prompt
//! ```
//!
//! An [`Effective`] is data. It is stored with its run, so that an edit never changes a thread that has begun, and no
//! text is parsed a second time.
//!
//! **Values are data.** Inputs and environment variables are put into the prompt in one pass; their text is never read
//! as a placeholder.
//! **Failure.** All findings of a file are returned together, in the order of the text, each with line and column. One
//! error is enough to keep a directive from running. An element that this release does not support yet is an error
//! (`not_supported`), so that no limit or condition of an author is silently ignored.

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
use crate::model::{ApprovalRule, Effect, Failure, Object};
use crate::money::Usd;

pub use contract::{Output, Returns};
pub use extends::{Effective, Lineage, LineageError, MOST_PARENTS};
pub use prompt::{Knowledge, Prompt, Values};

use read::Reader;
use source::Source;

/// Largest directive file, in bytes.
pub const MOST_BYTES: usize = 1 << 20;

/// Limit of the inputs named in one refusal.
const MOST_PROBLEMS: usize = 20;

/// The directive that prompts a thread which continues in a fresh conversation, if its own directive names none.
pub const DEFAULT_CONTINUATION: &str = "rye/agent/continuation";

/// A parsed directive file.
///
/// It is stored in the record of each thread: absent fields take no space there.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Directive {
    /// `name`, which is the stem of the file.
    pub name: String,
    pub version: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub extends: Option<ItemRef>,
    pub description: String,
    pub author: String,
    /// `category`, which is the folder of the file.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub category: String,
    /// Search terms.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
    #[serde(default)]
    pub model: Wish,
    #[serde(default)]
    pub limits: DirectiveLimits,
    /// `None` if the file declares none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub permissions: Option<Permissions>,
    /// Risks that its author accepts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub acknowledged: Vec<Acknowledged>,
    /// Knowledge added to the prompt.
    #[serde(default)]
    pub context: Context,
    #[serde(default)]
    pub tools: ToolUse,
    /// The directive that prompts the thread when it continues in a fresh conversation, if it names one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub continuation: Option<ItemRef>,
    /// JSON Schema of its inputs; `None` if it declares none, and then accepts any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inputs: Option<Value>,
    /// Its outputs, in the order of the file.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub outputs: Vec<Output>,
    /// The element `actions` as written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub actions: Option<String>,
    /// The text after the fence: the prompt.
    pub body: String,
}

/// The model that a directive requests.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Wish {
    /// Id or alias of a model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// A tier, if no model is named.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tier: Option<String>,
    /// The preferred provider.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub provider: Option<String>,
    /// Reasoning effort.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub effort: Option<String>,
    /// Limit of the tokens of one answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_output: Option<u32>,
    /// Sampling temperature.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub temperature: Option<f64>,
    /// The model to use if the first is unavailable at the start.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fallback: Option<String>,
    /// `parallel="false"`: the model is requested to make one call a message.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub one_call: bool,
}

/// Limits of a thread from its directive; an absent one sets no limit here.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct DirectiveLimits {
    /// Turns of its chain.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub turns: Option<u32>,
    /// Tokens of its chain.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tokens: Option<u64>,
    /// Spending, with all runs below it.
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
    pub fn duration(&self) -> Option<Duration> {
        self.duration_ms.map(Duration::from_millis)
    }
}

/// The permissions of a directive.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Permissions {
    /// Patterns of capabilities, normalised; an empty list denies everything.
    pub patterns: Vec<String>,
    /// The meaning of a second execution, for the patterns that declare one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub effects: Vec<(String, Effect)>,
    /// The calls that need the approval of a person.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub approvals: Vec<ApprovalRule>,
    /// The element as written, for the model.
    pub written: String,
}

/// A risk that its author accepts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Acknowledged {
    pub risk: String,
    pub reason: String,
}

/// Knowledge added to a prompt.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Context {
    /// Items of the system prompt.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub system: Vec<ItemId>,
    /// Items before the prompt.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub before: Vec<ItemId>,
    /// Items after the prompt.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub after: Vec<ItemId>,
    /// Items, and hooks, that are left out.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub suppress: Vec<String>,
}

impl Context {
    /// Returns the items of one of the lists, without suppressed ones.
    pub fn kept<'a>(&'a self, list: &'a [ItemId]) -> impl Iterator<Item = ItemRef> + 'a {
        let is_left_out = |id: &ItemId| self.suppress.iter().any(|out| out == id.as_str());
        let kept = list.iter().filter(move |id| !is_left_out(id));
        kept.map(|id| ItemRef {
            kind: ItemKind::Knowledge,
            id: id.clone(),
        })
    }
}

/// Tool call settings of a directive, which override those of the provider.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ToolUse {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start: Option<CallStart>,
    /// Limit of concurrent calls.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_parallel: Option<u32>,
}

/// The time at which a tool call starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CallStart {
    /// Once it is complete, while the message continues.
    #[default]
    Streaming,
    /// Once its message is complete.
    Message,
}

impl Directive {
    /// Returns the inputs of a thread: the given ones with defaults, checked. A failure has the code
    /// `input_validation_failed` and names each input.
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

    /// Returns the directive that prompts a thread which continues in a fresh conversation.
    pub fn continuation(&self) -> ItemRef {
        self.continuation.clone().unwrap_or_else(|| ItemRef {
            kind: ItemKind::Directive,
            id: ItemId::new(DEFAULT_CONTINUATION).expect("the default is a valid id"),
        })
    }
}

/// Reads the directive file of `id`, in which line ends are `\n`: the directive with its warnings, or all errors and
/// warnings.
pub fn parse(text: &str, id: &ItemId) -> Result<(Directive, Vec<Finding>), Vec<Finding>> {
    parse_until(text, id, &|| false)
}

/// Like [`parse`], but ends with the error `too_complex` when `is_late` returns true.
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
