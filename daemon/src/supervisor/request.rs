//! Requests to the supervisor, and their results.

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::Arc;

use rye_core::capability::Layer;
use rye_core::clock::Uptime;
use rye_core::id::{ItemRef, Name, RunId, Seq};
use rye_core::ledger::AccountId;
use rye_core::model::{
    Callback, Durability, Failure, Limits, Object, ParentEnd, Run, Spec, Verdict,
};
use rye_core::seal::{canonical, sha256_hex};
use serde_json::json;

use crate::tool_offer::OmittedTools;

/// A request to start a run.
#[derive(Debug, Clone)]
pub struct Start {
    pub item: ItemRef,
    /// The project, or a directory within it.
    pub directory: PathBuf,
    pub inputs: Object,
    /// Inputs as text, parsed as the types that the item declares.
    pub text_inputs: BTreeMap<String, String>,
    /// Patterns that narrow the authority of the run.
    pub capabilities: Option<Vec<String>>,
    pub limits: Limits,
    /// Model or tier of a thread; `None` leaves the choice to the directive and the configuration.
    pub model: Option<String>,
    /// Provider of the model.
    pub provider: Option<String>,
    /// `None` leaves the choice to the graph, the parent run or the configuration.
    pub durability: Option<Durability>,
    /// Idempotency key. A second start with the same key returns the first run; item, inputs and options must be equal.
    pub start_key: Option<String>,
    pub caller: Layer,
    pub start_at: StartAt,
    /// Set for a child run.
    pub lineage: Option<Lineage>,
}

impl Start {
    /// A new run of `item` in `directory` for `caller`, with defaults for the rest.
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

    /// The principal of the run, to whom the start key belongs.
    pub(super) fn principal(&self) -> &str {
        match (&self.lineage, &self.start_at) {
            (Some(lineage), _) => &lineage.spec.principal,
            (None, StartAt::Continue { run, .. }) => &run.spec.principal,
            (None, StartAt::Start | StartAt::Injected(_) | StartAt::Node { .. }) => {
                &self.caller.source
            }
        }
    }

    /// SHA-256 of the inputs as given, and of every option that is set.
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

#[derive(Debug, Clone, Default)]
pub enum StartAt {
    #[default]
    Start,
    /// Begins at the start node, with this merged into the initial state.
    Injected(Object),
    /// Runs one node, then ends.
    Node {
        node: String,
        /// Merged into the state.
        inject_state: Object,
        /// The run whose state and inputs are taken over.
        from: Option<Arc<Run>>,
        /// Verdicts on attempts of `from` with unknown outcome.
        verdicts: Vec<(String, Verdict)>,
    },
    /// Begins at the point where an ended run stopped.
    Continue {
        run: Arc<Run>,
        /// Authority of the caller, which narrows that of the new run.
        layers: Vec<Layer>,
        /// Message to the model of a thread, sent first.
        message: Option<String>,
        /// True if a graph continues with the recorded text even if the item has changed.
        same_text: bool,
        /// True if it begins at the first node that failed and after which the graph went on.
        failed: bool,
        /// Account of a caller that is a run. The new run draws on this account or on one below it.
        within: Option<AccountId>,
    },
}

/// Everything that a child run inherits from its parent.
#[derive(Debug, Clone)]
pub struct Lineage {
    pub parent: RunId,
    /// Specification of the parent.
    pub spec: Arc<Spec>,
    /// The limits that the parent leaves to each child run.
    pub limits: Limits,
    /// The idempotency key of the step.
    pub key: String,
    /// Name of the attempt of the parent that the run carries out.
    pub attempt: Option<String>,
    /// Effect of the end of the parent on the run.
    pub parent_end: ParentEnd,
    /// Set if a program of the parent starts it.
    pub callback: Option<Callback>,
}

#[derive(Debug, Clone)]
pub struct Started {
    pub run: RunId,
    /// Warnings for the caller.
    pub warnings: Vec<String>,
    /// True if the run was started earlier with the same key.
    pub existed: bool,
}

/// A run that passed admission.
pub(super) struct Admitted {
    pub(super) spec: Spec,
    /// Reason for which the run fails at once. Only a child run is created with one.
    pub(super) fault: Option<Failure>,
    /// Warnings for the caller.
    pub(super) warnings: Vec<String>,
    /// Warnings that are also recorded in the run.
    pub(super) notes: Vec<String>,
    /// Tools omitted from the offer to the model; empty if the offer was made earlier.
    pub(super) omitted_tools: OmittedTools,
}

/// A request to suspend a run: its id, and its last event at that time.
pub(super) type Hold = (RunId, Seq);

/// A question: the run, and the name of the question.
type Question = (RunId, Name);

/// Deadlines of open questions.
pub(super) type Deadlines = HashMap<Question, Uptime>;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    Children,
    Tree,
}
