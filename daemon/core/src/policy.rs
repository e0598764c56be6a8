//! stub
use crate::definition::{Backoff, Hook};
use crate::model::Failure;
use serde_json::Value;
/// stub
#[derive(Debug, Clone, Default)]
pub struct Policy;
/// stub
#[derive(Debug, Clone)]
pub struct Classification {
    /// stub
    pub category: String,
    /// stub
    pub code: String,
    /// stub
    pub retryable: bool,
    /// stub
    pub backoff: Backoff,
}
impl Classification {
    /// stub
    pub fn to_json(&self) -> Value {
        serde_json::json!({"category": self.category, "code": self.code, "retryable": self.retryable})
    }
}
impl Policy {
    /// stub
    pub fn from_text(_: &str) -> Result<Self, String> {
        Ok(Self)
    }
    /// stub
    pub fn hooks(&self) -> &[Hook] {
        &[]
    }
    /// stub
    pub fn classify(&self, _f: &Failure, _r: &Value) -> Classification {
        Classification {
            category: "permanent".into(),
            code: "default".into(),
            retryable: false,
            backoff: Backoff::None,
        }
    }
}
