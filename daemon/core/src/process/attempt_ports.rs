//! Ports of an attempt: their choice before it, and their way to its start.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::model::{Object, Ports};

/// Code of the failure of an attempt whose port another process has. It is moved to another port once.
pub const PORT_FOREIGN: &str = "port_foreign";

/// A request for free ports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PortQuery {
    /// Names of the ports.
    pub auto: Vec<String>,
    /// Ports of the attempt before, which are used again if they are free.
    pub preferred: Ports,
}

/// Ports of an attempt.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttemptPorts {
    pub numbers: Ports,
    /// True if another process on a port ends the attempt, which is then moved to another port.
    pub can_move: bool,
}

impl AttemptPorts {
    /// Returns the parameters of the call that carries the attempt out.
    pub(super) fn params(&self) -> Object {
        match serde_json::to_value(self) {
            Ok(Value::Object(params)) if !self.numbers.is_empty() => params,
            Ok(_) | Err(_) => Object::new(),
        }
    }

    /// Reads the parameters of such a call.
    pub fn of(params: &Object) -> Self {
        serde_json::from_value(Value::Object(params.clone())).unwrap_or_default()
    }
}
