//! The JSON of what a run may do.

use rye_core::capability::{self, Capability};
use rye_proto::v1;
use serde::Serialize;

/// A layer: an element of `get --capabilities --json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Layer {
    /// Who or what set it.
    pub source: String,
    /// The patterns, one of which must match an action; none allows nothing.
    pub patterns: Vec<String>,
}

impl Layer {
    /// The layers of `run`, the first one set first.
    pub fn list(run: &v1::Run) -> Vec<Self> {
        let layers = run.layers.iter();
        layers
            .map(|layer| Self {
                source: layer.source.clone(),
                patterns: layer.patterns.clone(),
            })
            .collect()
    }
}

impl From<&capability::Layer> for Layer {
    fn from(layer: &capability::Layer) -> Self {
        Self {
            source: layer.source.clone(),
            patterns: layer.patterns.clone(),
        }
    }
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
}

impl Answer {
    /// Whether `run` may do `action`, as its layers say.
    pub fn new(run: &v1::Run, action: &Capability) -> Self {
        let layers: Vec<capability::Layer> = run
            .layers
            .iter()
            .map(|layer| capability::Layer {
                source: layer.source.clone(),
                patterns: layer.patterns.clone(),
            })
            .collect();
        let checked = capability::check(&layers, action);
        Self {
            run_id: run.run_id.clone(),
            action: action.to_string(),
            allowed: checked.is_ok(),
            refused_by: checked.err().flatten().map(Layer::from),
        }
    }
}
