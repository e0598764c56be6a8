//! What runs ask people.

use rye_proto::v1;
use serde::Serialize;
use serde_json::Value;

use super::{some, time};
use crate::error::Error;
use crate::wire;

/// An element of `approvals --json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Approval {
    /// The run that asks.
    pub run_id: String,
    /// What it is called in its run.
    pub id: String,
    /// `node call limit question`.
    pub kind: String,
    /// What is asked.
    pub message: String,
    /// JSON schema of what an answer may hold.
    pub schema: Option<Value>,
    /// The node at hand.
    pub node: Option<String>,
    /// RFC 3339.
    pub created_at: Option<String>,
    /// RFC 3339; until when it may be answered.
    pub expires_at: Option<String>,
}

impl Approval {
    /// From what the daemon answered with.
    pub fn new(approval: &v1::Approval) -> Result<Self, Error> {
        Ok(Self {
            run_id: approval.run_id.clone(),
            id: approval.id.clone(),
            kind: approval.kind.clone(),
            message: approval.message.clone(),
            schema: wire::json("schema_json", &approval.schema_json)?,
            node: some(&approval.node),
            created_at: time(approval.created_at.as_ref()),
            expires_at: time(approval.expires_at.as_ref()),
        })
    }
}
