//! The reason for which a turn has not begun yet.

use serde::{Deserialize, Serialize};
use strum::IntoStaticStr;

use crate::clock::Timestamp;

/// A wait before a call of the model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct TurnWait {
    /// The reason of the wait.
    pub waits: WaitsFor,
    /// The earliest end, as far as it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
}

/// A reason to wait before the model is called.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, IntoStaticStr)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum WaitsFor {
    /// The provider accepts no call at present: it requested a pause, or all its slots are in use.
    Provider,
    /// Model calls in flight hold the budget.
    Budget,
}

impl WaitsFor {
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

impl TurnWait {
    /// Makes the wait for the provider.
    pub const fn for_provider(until: Option<Timestamp>) -> Self {
        let waits = WaitsFor::Provider;
        Self { waits, until }
    }
}
