//! The JSON of what a run may do: `get --capabilities --json` is the list of its layers.

use rye_core::capability::{self, Capability, Layer};
use rye_proto::v1;
use serde::Serialize;

/// The layers of `run`, the first one set first.
pub fn layers(run: &v1::Run) -> Vec<Layer> {
    let layers = run.layers.iter();
    layers
        .map(|layer| Layer {
            source: layer.source.clone(),
            patterns: layer.patterns.clone(),
        })
        .collect()
}

/// `can --json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Answer {
    /// The run.
    pub run_id: String,
    /// The action, as patterns see it.
    pub action: String,
    /// Whether every layer allows it.
    pub allowed: bool,
    /// The first layer that does not; null too if there are no layers at all.
    pub refused_by: Option<Layer>,
    /// How risky it is as a permission of a thread; null if that cannot be told.
    pub risk: Option<Risk>,
}

/// How risky a permission of a thread is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Risk {
    /// The permission.
    pub permission: String,
    /// Its class: safe, write, elevated or unrestricted.
    pub class: String,
    /// What becomes of the start of a thread that does not acknowledge it: allow, `acknowledge_required` or block.
    pub policy: String,
}

impl From<v1::PermissionRisk> for Risk {
    fn from(risk: v1::PermissionRisk) -> Self {
        Self {
            permission: risk.permission,
            class: risk.risk,
            policy: risk.policy,
        }
    }
}

impl Answer {
    /// Whether `run` may do `action`, as its layers say, and what `risk` that is.
    pub fn new(run: &v1::Run, action: &Capability, risk: Option<Risk>) -> Self {
        let layers = layers(run);
        let checked = capability::check(&layers, action);
        Self {
            run_id: run.run_id.clone(),
            action: action.to_string(),
            allowed: checked.is_ok(),
            refused_by: checked.err().flatten().cloned(),
            risk,
        }
    }
}
