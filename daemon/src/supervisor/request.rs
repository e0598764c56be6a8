//! What callers ask of the supervisor, and what they get.

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::Arc;

use rye_core::capability::Layer;
use rye_core::clock::Uptime;
use rye_core::id::{ItemRef, Name, RunId, Seq};
use rye_core::ledger::AccountId;
use rye_core::model::{Durability, Failure, Limits, Object, ParentEnd, Run, Spec, Verdict};
use rye_core::seal::{canonical, sha256_hex};
use serde_json::json;

use crate::offers::LeftOut;

/// What a caller asks for.
#[derive(Debug, Clone)]
pub struct Start {
    /// The item.
    pub item: ItemRef,
    /// The project, or the directory the caller stands in.
    pub directory: PathBuf,
    /// Typed inputs.
    pub inputs: Object,
    /// Inputs as text, read as the type the graph declares.
    pub text_inputs: BTreeMap<String, String>,
    /// Patterns that narrow the run's authority.
    pub capabilities: Option<Vec<String>>,
    /// Limits.
    pub limits: Limits,
    /// The model of a thread, or a tier; `None` leaves the choice to the directive and the configuration.
    pub model: Option<String>,
    /// The provider that its model comes from.
    pub provider: Option<String>,
    /// Durability, where the caller has a wish.
    pub durability: Option<Durability>,
    /// A second start with this key is the first one; it must ask for the same.
    pub start_key: Option<String>,
    /// Who asks, and what they may do.
    pub caller: Layer,
    /// Where it begins.
    pub start_at: StartAt,
    /// The run that asks, if one does.
    pub lineage: Option<Lineage>,
}

impl Start {
    /// A fresh run of `item` in `directory` for `caller`, of which nothing more is said.
    pub fn of(item: ItemRef, directory: PathBuf, caller: Layer) -> Self {
        Self {
            item,
            directory,
            inputs: Object::new(),
            text_inputs: BTreeMap::new(),
            capabilities: None,
            limits: Limits::default(),
            model: None,
            provider: None,
            durability: None,
            start_key: None,
            caller,
            start_at: StartAt::Start,
            lineage: None,
        }
    }

    /// Who the run is for; its start key is one of theirs.
    pub(super) fn principal(&self) -> &str {
        match (&self.lineage, &self.start_at) {
            (Some(lineage), _) => &lineage.spec.principal,
            (None, StartAt::Continue { run, .. }) => &run.spec.principal,
            (None, StartAt::Start | StartAt::Injected(_) | StartAt::Node { .. }) => {
                &self.caller.source
            }
        }
    }

    /// SHA-256 of the inputs as they are asked for, and of every option that is given.
    pub(super) fn digest(&self) -> String {
        let mut asked = json!({"inputs": self.inputs, "text_inputs": self.text_inputs});
        let limits = (self.limits != Limits::default()).then_some(&self.limits);
        for (key, option) in [
            ("model", json!(self.model)),
            ("provider", json!(self.provider)),
            ("limits", json!(limits)),
            ("capabilities", json!(self.capabilities)),
            ("durability", json!(self.durability)),
        ] {
            if !option.is_null() {
                asked[key] = option;
            }
        }
        sha256_hex(canonical(&asked))
    }
}

/// Where a run begins.
#[derive(Debug, Clone, Default)]
pub enum StartAt {
    /// At the start node.
    #[default]
    Start,
    /// At the start node, with this laid over the graph's own state.
    Injected(Object),
    /// At this node, and after it the run ends.
    Node {
        /// The node.
        node: String,
        /// What is laid over the state.
        inject_state: Object,
        /// The run whose state and inputs it takes.
        from: Option<Arc<Run>>,
        /// What of that run may be done again.
        verdicts: Vec<(String, Verdict)>,
    },
    /// Where an ended run stood.
    Continue {
        /// That run.
        run: Arc<Run>,
        /// What the caller who continues it may do; the new run may do no more.
        layers: Vec<Layer>,
        /// What the model of a thread receives before it continues.
        message: Option<String>,
        /// With the text of the graph that it has on record, whatever the item says by now.
        same_text: bool,
        /// The account that it draws on, or on what lies below it, if a run asks that acts for itself.
        within: Option<AccountId>,
    },
}

/// What a run inherits from the run that asks for it.
#[derive(Debug, Clone)]
pub struct Lineage {
    /// That run.
    pub parent: RunId,
    /// Its spec.
    pub spec: Arc<Spec>,
    /// What that leaves to each of those that it starts.
    pub limits: Limits,
    /// The idempotency key of the step.
    pub key: String,
    /// What the end of the parent means for the run.
    pub parent_end: ParentEnd,
}

/// An accepted run.
#[derive(Debug, Clone)]
pub struct Started {
    /// Its id.
    pub run: RunId,
    /// What the caller should know.
    pub warnings: Vec<String>,
    /// Whether it had been started before, with the same key.
    pub existed: bool,
}

/// A run that may be created.
pub(super) struct Admitted {
    /// Everything that is fixed about it.
    pub(super) spec: Spec,
    /// Why it fails at once, if it does; only a child run is made that does.
    pub(super) fault: Option<Failure>,
    /// What the caller should know.
    pub(super) warnings: Vec<String>,
    /// What the readers of the run should know as well.
    pub(super) notes: Vec<String>,
    /// The tools that a model is not offered by name; empty where the offer was made earlier.
    pub(super) left_out: LeftOut,
}

/// A run that is to be suspended, and its last event when that was asked.
pub(super) type Hold = (RunId, Seq);

/// A question, by its run and its name there.
type Question = (RunId, Name);

/// Until when questions may be answered.
pub(super) type Deadlines = HashMap<Question, Uptime>;

/// How far down the descendants of a run are listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    /// Those it started itself.
    Children,
    /// All of them.
    Tree,
}
