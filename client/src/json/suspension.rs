//! Why a run is suspended.

use rye_proto::v1;
use serde::{Serialize, Serializer};
use serde_json::Value;

use super::{some, time};
use crate::error::Error;
use crate::wire;

/// Why a run is suspended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Suspension {
    /// The reason, one word.
    pub reason: String,
    /// Which limit, where there are several.
    pub code: Option<String>,
    /// The value reached.
    #[serde(serialize_with = "amount")]
    pub current: Option<String>,
    /// The value allowed.
    #[serde(serialize_with = "amount")]
    pub max: Option<String>,
    /// The node it is suspended at.
    pub node: Option<String>,
    /// Whether it is suspended in the step of that node, not before it.
    #[serde(skip)]
    pub begun: bool,
    /// The account that has too little, for the reason `budget`: the first run of its chain.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub account: Option<String>,
    /// The suspended child run that it waits for.
    pub child: Option<String>,
    /// Attempts whose outcome nobody knows, as `resume --uncertain` names them.
    pub uncertain: Vec<String>,
    /// What is known of these attempts.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub attempts: Vec<InDoubt>,
}

/// An attempt whose outcome nobody knows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct InDoubt {
    /// As `resume --uncertain` names it.
    pub name: String,
    /// Its `RYE_IDEMPOTENCY_KEY`; null if the record does not have it any more.
    pub key: Option<String>,
    /// RFC 3339; when its step began.
    pub started_at: Option<String>,
    /// What it calls.
    pub item: Option<String>,
    /// With what.
    pub params: Option<Value>,
    /// The child run it belongs to, if it is none of the run itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run_id: Option<String>,
}

/// A count or a time in milliseconds as a number, money as decimal text.
#[expect(clippy::ref_option, reason = "serde hands out the field as it is")]
fn amount<S: Serializer>(amount: &Option<String>, serializer: S) -> Result<S::Ok, S::Error> {
    let Some(text) = amount else {
        return serializer.serialize_none();
    };
    match text.parse::<u64>() {
        Ok(number) => serializer.serialize_u64(number),
        Err(_) => serializer.serialize_str(text),
    }
}

impl InDoubt {
    fn new(attempt: &v1::UncertainAttempt) -> Result<Self, Error> {
        Ok(Self {
            name: attempt.name.clone(),
            key: some(&attempt.key),
            started_at: time(attempt.started_at.as_ref()),
            item: some(&attempt.item),
            params: wire::json("params_json", &attempt.params_json)?,
            run_id: some(&attempt.run_id),
        })
    }

    pub(super) fn all(attempts: &[v1::UncertainAttempt]) -> Result<Vec<Self>, Error> {
        attempts.iter().map(Self::new).collect()
    }
}

impl Suspension {
    pub(super) fn new(suspension: &v1::Suspension) -> Result<Self, Error> {
        Ok(Self {
            reason: suspension.reason.clone(),
            code: some(&suspension.code),
            current: some(&suspension.current),
            max: some(&suspension.max),
            node: some(&suspension.node),
            begun: suspension.begun,
            account: some(&suspension.account),
            child: some(&suspension.child),
            uncertain: suspension.uncertain.clone(),
            attempts: InDoubt::all(&suspension.attempts)?,
        })
    }
}
