//! Approvals: questions of a run to a person, the same for every kind of run.
//!
//! ```text
//! approval_requested ─► open ─approval_answered─► answered ─(what was waiting continues)─► gone
//!                         ├─approval_expired─► too late ─(its node fails)─► gone
//!                         └── the run ends ─► gone, but for what a hook asked
//! ```
//!
//! A node asks again when its run is continued. Nothing asks again what a hook asked, so a question of a hook that is open or denied when
//! its run ends stays on record, and the run is not continued past it ([`Approvals::barrier`](super::Approvals::barrier)).
//!
//! A run asks, and is suspended as soon as nothing else of it is in flight. Those who may act on the run may answer, once; a run never
//! may. **Order.** The answer and what resumes the run are one commit. **Failure.** An answer to what nobody asked, or that was
//! answered, cannot happen here.

use std::sync::Arc;

use rye_schema::Schema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::failure::Failure;
use crate::clock::Timestamp;
use crate::id::Name;

/// Most problems of an answer that are reported at once.
const MOST_PROBLEMS: usize = 5;

/// What asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ApprovalKind {
    /// A graph: a node, or a hook.
    Node,
    /// A call of a tool by a model.
    Call,
    /// A limit that was reached.
    Limit,
    /// A model, which wants to know something.
    Question,
}

impl ApprovalKind {
    /// The name used on the wire and in `--json`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Node => "node",
            Self::Call => "call",
            Self::Limit => "limit",
            Self::Question => "question",
        }
    }
}

/// A question to a person.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Approval {
    /// What it is called; no other of its run is.
    pub id: Name,
    /// What asks.
    pub kind: ApprovalKind,
    /// What is asked.
    pub message: String,
    /// JSON schema of what an answer may hold, if it may hold anything in particular.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schema: Option<Arc<Value>>,
    /// The node at hand.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// The step that waits for the answer; none if a hook asks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<u32>,
    /// When it was asked.
    pub created_at: Timestamp,
    /// Until when it may be answered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Timestamp>,
}

impl Approval {
    /// Whether `answer` may be given to it; the text says why not.
    pub fn check(&self, answer: Option<&Value>) -> Result<(), String> {
        let Some(schema) = &self.schema else {
            return Ok(());
        };
        let compiled = Schema::new(schema).map_err(|unusable| {
            format!(
                "the schema of the answer cannot be used: {}",
                unusable.problem
            )
        })?;
        let problems = compiled
            .problems(answer.unwrap_or(&Value::Null), MOST_PROBLEMS)
            .map_err(|untold| format!("the answer {untold}"))?;
        if problems.is_empty() {
            return Ok(());
        }
        if answer.is_none() {
            return Err(format!(
                "the answer is missing: give one that fits {schema}"
            ));
        }
        let told: Vec<String> = problems
            .iter()
            .map(|problem| match problem.at.as_str() {
                "" => problem.message.clone(),
                place => format!("{place}: {}", problem.message),
            })
            .collect();
        Err(format!("the answer does not fit: {}", told.join("; ")))
    }
}

/// What a person said.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ApprovalAnswer {
    /// Which question it answers.
    pub id: Name,
    /// Whether it may continue.
    pub approved: bool,
    /// More than yes or no.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer: Option<Arc<Value>>,
    /// Why, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub comment: Option<String>,
    /// Who said so.
    pub by: String,
}

/// Nobody answered a question in time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Expired {
    /// Which question.
    pub id: Name,
}

impl ApprovalAnswer {
    /// The failure of what was denied.
    pub fn denial(&self) -> Failure {
        let comment = self.comment.as_ref();
        let comment = comment.map(|comment| format!(": {comment}"));
        let text = format!("denied by {}{}", self.by, comment.unwrap_or_default());
        Failure::permanent("denied", text).decided()
    }
}
