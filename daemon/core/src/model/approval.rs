//! Approvals: questions of a run to a person, the same for every kind of run.
//!
//! ```text
//! approval_requested ─► open ─approval_answered─► answered ─(the waiting step continues)─► gone
//!                         ├─approval_expired─► too late ─(its node fails)─► gone
//!                         └── the run ends ─► gone, except the question of a hook
//! ```
//!
//! A node requests its approval again when its run is continued. A hook does not. So a question of a hook that is open
//! or denied when its run ends stays on record, and the run is not continued past it
//! ([`Approvals::barrier`](super::Approvals::barrier)).
//!
//! A run puts its question, and is suspended as soon as nothing else of it is in flight. The people who may act on the
//! run may answer, once; a run never may. **Order.** The answer and the event that resumes the run are one commit.
//! **Failure.** An answer to an unknown question, or to one that was answered, is illegal.

use std::sync::Arc;

use rye_schema::Schema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::attempt::Slot;
use super::failure::Failure;
use crate::clock::Timestamp;
use crate::id::{Name, RunId, Seq};
use crate::seal::sha256_hex;

/// Code of the failure of a step that a person denied.
pub const DENIED: &str = "denied";

/// Digits of the id of a question.
const APPROVAL_DIGITS: usize = 10;
/// Limit of the problems of an answer that are reported together.
const MOST_PROBLEMS: usize = 5;

/// The source of a question.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ApprovalKind {
    /// A node or a hook of a graph.
    Node,
    /// A call of a tool by a model.
    Call,
    /// A limit that was reached.
    Limit,
    /// A model that needs information.
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
    /// Unique in its run.
    pub id: Name,
    pub kind: ApprovalKind,
    pub message: String,
    /// JSON schema of an answer, if it is restricted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schema: Option<Arc<Value>>,
    /// The current node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// The step that waits for the answer; none if a hook put the question.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<u32>,
    pub created_at: Timestamp,
    /// End of the time in which it may be answered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Timestamp>,
    /// Consequence if nobody answers until then.
    #[serde(default, skip_serializing_if = "OnExpiry::is_fail")]
    pub on_expiry: OnExpiry,
    /// The call that waits for the answer, if it is one of `step`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slot: Option<Slot>,
    /// SHA-256 over that call and the contents that it runs on: the answer is about these.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
}

/// Consequence of a question that nobody answers in time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnExpiry {
    /// It stays open; lists show that its time is over.
    Keep,
    /// It counts as denied.
    Deny,
    /// The step fails; a thread ends.
    #[default]
    Fail,
}

impl OnExpiry {
    /// Every variant with its name.
    pub const WORDS: [(&'static str, Self); 3] = [
        ("keep", Self::Keep),
        ("deny", Self::Deny),
        ("fail", Self::Fail),
    ];

    #[expect(
        clippy::trivially_copy_pass_by_ref,
        reason = "serde passes a reference"
    )]
    const fn is_fail(&self) -> bool {
        matches!(self, Self::Fail)
    }
}

/// Calls that need the approval of a person.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ApprovalRule {
    /// Pattern of capabilities.
    pub pattern: String,
    /// Time in milliseconds in which a question may be answered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_ms: Option<u64>,
    #[serde(default)]
    pub on_expiry: OnExpiry,
}

impl Approval {
    /// Limit of the characters of `message`.
    pub const MESSAGE_CHARS: usize = 4000;

    /// Makes a question that the event `seq` of `run` puts at `now`. Its id differs from those of other runs.
    pub fn new(run: &RunId, seq: Seq, now: Timestamp, kind: ApprovalKind, message: &str) -> Self {
        let hash = sha256_hex(format!("rye-approval/1 {run} {seq}").as_bytes());
        let digits: String = hash.chars().take(APPROVAL_DIGITS).collect();
        Self {
            id: format!("a{digits}").into(),
            kind,
            message: message.chars().take(Self::MESSAGE_CHARS).collect(),
            schema: None,
            node: None,
            step: None,
            created_at: now,
            expires_at: None,
            on_expiry: OnExpiry::default(),
            slot: None,
            digest: None,
        }
    }

    /// Checks that `answer` is valid; the error text gives the reason.
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

/// The answer of a person.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ApprovalAnswer {
    pub id: Name,
    pub approved: bool,
    /// Data beyond yes or no.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer: Option<Arc<Value>>,
    /// Reason, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub comment: Option<String>,
    /// The person who answered.
    pub by: String,
}

/// A question expired without an answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Expired {
    pub id: Name,
}

impl ApprovalAnswer {
    /// Returns the failure of a denied question.
    pub fn denial(&self) -> Failure {
        let comment = self.comment.as_ref();
        let comment = comment.map(|comment| format!(": {comment}"));
        let text = format!("denied by {}{}", self.by, comment.unwrap_or_default());
        Failure::permanent(DENIED, text).decided()
    }
}
