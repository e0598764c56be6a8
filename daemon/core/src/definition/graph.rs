//! Graphs that can run.

use std::collections::HashMap;
use std::num::NonZeroU32;
use std::time::Duration;

use super::hook::Hook;

use super::inputs::Inputs;
use super::work::{Action, Node, Work};
use crate::model::{Durability, Failure, Object, Recovery, Slot, attempt_name};
use crate::money::Usd;

/// Steps a graph may take if its file does not say.
pub const DEFAULT_MAX_STEPS: u32 = 100;

/// What the file of a graph limits; `None` where it does not say.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct GraphLimits {
    /// The most a run may spend, itself and all below it.
    pub spend: Option<Usd>,
    /// How many child runs a run may start, together with those that it continues.
    pub spawns: Option<u32>,
    /// How many levels of child runs a run may have.
    pub depth: Option<u32>,
    /// How many turns each thread may take that a run starts.
    pub turns: Option<u32>,
    /// How many tokens the turns of each may use.
    pub tokens: Option<u64>,
    /// How long the turns of each may take together, in milliseconds.
    pub duration_ms: Option<u64>,
}

impl GraphLimits {
    /// What a run of the graph may do, and leaves to those that it starts; what it may spend is the limit of its account.
    pub fn of_runs(&self) -> crate::model::Limits {
        crate::model::Limits {
            steps: None,
            depth: self.depth,
            spawns: self.spawns,
            turns: self.turns,
            tokens: self.tokens,
            duration_ms: self.duration_ms,
            spend: None,
        }
    }
}

/// A graph that can run.
#[derive(Debug, Clone)]
pub struct Graph {
    /// `version` of the file.
    pub version: String,
    /// `category` of the file.
    pub category: String,
    /// `name` of the file.
    pub name: Option<String>,
    /// What it is for; empty if the file does not say.
    pub description: String,
    /// Patterns of what it may do, normalised; `None` if the file does not declare any, `[]` allows nothing.
    pub permissions: Option<Vec<String>>,
    /// What it takes.
    pub inputs: Inputs,
    /// `limits` of the file.
    pub limits: GraphLimits,
    /// The first node.
    pub start: String,
    /// All nodes.
    pub nodes: Nodes,
    /// Most steps a run may take, if the graph says.
    pub max_steps: Option<u32>,
    /// What a failed node without an error edge means.
    pub on_error: OnError,
    /// The state a run begins with.
    pub state: Object,
    /// What a restart of the daemon does to its runs, if the graph says.
    pub recovery: Option<Recovery>,
    /// When a step counts as done, if the graph says.
    pub durability: Option<Durability>,
    /// Names of environment variables that must be set before a run begins; nodes have more.
    pub env_requires: Vec<String>,
    /// What the graph wants done at its events, in the order of the file.
    pub hooks: Vec<Hook>,
    /// How long a run may take, if the graph says.
    pub timeout: Option<Duration>,
    /// Most items of a parallel foreach at once, if the graph says; a node may say otherwise.
    pub max_concurrency: Option<NonZeroU32>,
    /// What choosing what follows a step takes at most, in looks at a value.
    pub(crate) cost: usize,
    /// SHA-256 in hex of `config` as canonical JSON: equal graphs have equal digests, whatever their layout.
    pub digest: String,
}

impl Graph {
    /// The inputs of a run: those given, with defaults, checked against the schema. The texts are warnings about
    /// inputs the graph does not declare. A failure has the code `input_validation_failed` and names each input.
    pub fn inputs(&self, given: Object) -> Result<(Object, Vec<String>), Failure> {
        self.inputs.resolve(given)
    }

    /// What people call the attempt `slot` of a node: `build`, `build[3]`.
    pub fn attempt_name(&self, node: &str, slot: Slot) -> String {
        let branch = |part: u32| match &self.nodes.get(node)?.work {
            Work::Parallel(parallel) => parallel.branches.get(usize::try_from(part).ok()?),
            Work::Action(_)
            | Work::Foreach(_)
            | Work::Gate
            | Work::Return { .. }
            | Work::Fail(_)
            | Work::Wait(_)
            | Work::Approval(_) => None,
        };
        match slot {
            Slot::Part(part) => match branch(part) {
                Some((name, _)) => format!("{node}[{name}]"),
                None => attempt_name(node, slot),
            },
            Slot::Main | Slot::Hook(_) => attempt_name(node, slot),
        }
    }

    /// Every use of an item: of nodes in the order of the file, then of hooks.
    pub fn actions(&self) -> impl Iterator<Item = &Action> {
        let of_nodes = self.nodes.iter().flat_map(|node| node.work.actions());
        let of_hooks = self.hooks.iter().filter_map(|hook| hook.action.call());
        of_nodes.chain(of_hooks)
    }
}

/// What a failed node without an error edge means for the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnError {
    /// It ends with that error.
    #[default]
    Fail,
    /// The error is noted, `assign` skipped, and the run continues.
    Continue,
}

/// The nodes of a graph, in the order of the file.
#[derive(Debug, Clone, Default)]
pub struct Nodes {
    pub(super) list: Vec<Node>,
    by_name: HashMap<String, usize>,
}

impl Nodes {
    /// The node of that name.
    pub fn get(&self, name: &str) -> Option<&Node> {
        self.by_name.get(name).and_then(|at| self.list.get(*at))
    }

    /// The place of the node of that name, from 0.
    pub(crate) fn index(&self, name: &str) -> Option<usize> {
        self.by_name.get(name).copied()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// All of them, in the order of the file.
    pub fn iter(&self) -> std::slice::Iter<'_, Node> {
        self.list.iter()
    }
}

impl<'n> IntoIterator for &'n Nodes {
    type Item = &'n Node;
    type IntoIter = std::slice::Iter<'n, Node>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl FromIterator<Node> for Nodes {
    fn from_iter<I: IntoIterator<Item = Node>>(nodes: I) -> Self {
        let list: Vec<Node> = nodes.into_iter().collect();
        let by_name = list
            .iter()
            .enumerate()
            .map(|(at, node)| (node.name.clone(), at))
            .collect();
        Self { list, by_name }
    }
}
