//! The types of a graph that can run.

use std::collections::HashMap;
use std::num::NonZeroU32;
use std::time::Duration;

use super::hook::Hook;

use super::inputs::Inputs;
use super::work::{Action, Node, Work};
use crate::model::{Durability, Failure, Object, Recovery, Slot, attempt_name};
use crate::money::Usd;

/// Limit of steps if the file sets none.
pub const DEFAULT_MAX_STEPS: u32 = 100;

/// The limits in the file of a graph; `None` for one that is not set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct GraphLimits {
    /// Spending of a run and all runs below it.
    pub spend: Option<Usd>,
    /// Child runs of a run, together with those of the runs that it continues.
    pub spawns: Option<u32>,
    /// Levels of child runs.
    pub depth: Option<u32>,
    /// Turns of each thread that a run starts.
    pub turns: Option<u32>,
    /// Tokens of the turns of each such thread.
    pub tokens: Option<u64>,
    /// Total time of the turns of each such thread, in milliseconds.
    pub duration_ms: Option<u64>,
}

impl GraphLimits {
    /// Returns the limits of a run of the graph and of the runs that it starts. Its spending limit is that of its
    /// account.
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
    pub version: String,
    pub category: String,
    pub name: Option<String>,
    /// Empty if the file has none.
    pub description: String,
    /// Patterns of the permitted actions, normalised; `None` if the file does not declare any, `[]` allows nothing.
    pub permissions: Option<Vec<String>>,
    pub inputs: Inputs,
    pub limits: GraphLimits,
    pub start: String,
    pub nodes: Nodes,
    /// Limit of the steps of a run, if the graph sets one.
    pub max_steps: Option<u32>,
    /// The consequence of a failed node without an error edge.
    pub on_error: OnError,
    /// The initial state of a run.
    pub state: Object,
    /// Handling of its runs at a restart of the daemon, if the graph sets it.
    pub recovery: Option<Recovery>,
    /// Durability of its steps, if the graph sets it.
    pub durability: Option<Durability>,
    /// Names of environment variables that must be set before a run begins; nodes may add more.
    pub env_requires: Vec<String>,
    /// Its hooks, in the order of the file.
    pub hooks: Vec<Hook>,
    /// Time limit of a run, if the graph sets one.
    pub timeout: Option<Duration>,
    /// Limit of concurrent items of a parallel foreach, if the graph sets one; a node may override it.
    pub max_concurrency: Option<NonZeroU32>,
    /// Highest cost of choosing the successor of a step, in visited values.
    pub(crate) cost: usize,
    /// SHA-256 in hex of `config` as canonical JSON: equal graphs have equal digests, whatever their layout.
    pub digest: String,
}

impl Graph {
    /// Returns the inputs of a run: the given ones with defaults, checked against the schema. The texts are warnings
    /// about inputs that the graph does not declare. A failure has the code `input_validation_failed` and names each
    /// input.
    pub fn inputs(&self, given: Object) -> Result<(Object, Vec<String>), Failure> {
        self.inputs.resolve(given)
    }

    /// Returns the name of the attempt `slot` of a node for people: `build`, `build[3]`.
    pub fn attempt_name(&self, node: &str, slot: Slot) -> String {
        let branch = |part: u32| match &self.nodes.get(node)?.work {
            Work::Parallel(parallel) => parallel.branches.get(usize::try_from(part).ok()?),
            Work::Action(_)
            | Work::Foreach(_)
            | Work::Gate
            | Work::Return { .. }
            | Work::Fail(_)
            | Work::Wait(_)
            | Work::Approval(_)
            | Work::Service(_)
            | Work::ProcessWait(_) => None,
        };
        match slot {
            Slot::Part(part) => match branch(part) {
                Some((name, _)) => format!("{node}[{name}]"),
                None => attempt_name(node, slot),
            },
            Slot::Main | Slot::Hook(_) => attempt_name(node, slot),
        }
    }

    /// Returns every use of an item: of nodes in the order of the file, then of hooks.
    pub fn actions(&self) -> impl Iterator<Item = &Action> {
        let of_nodes = self.nodes.iter().flat_map(|node| node.work.actions());
        let of_hooks = self.hooks.iter().filter_map(|hook| hook.action.call());
        of_nodes.chain(of_hooks)
    }
}

/// The consequence of a failed node without an error edge for the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnError {
    /// The run ends with that error.
    #[default]
    Fail,
    /// The error is recorded, `assign` skipped, and the run continues.
    Continue,
}

#[derive(Debug, Clone, Default)]
pub struct Nodes {
    pub(super) list: Vec<Node>,
    by_name: HashMap<String, usize>,
}

impl Nodes {
    pub fn get(&self, name: &str) -> Option<&Node> {
        self.by_name.get(name).and_then(|at| self.list.get(*at))
    }

    /// Returns the position of the node of that name, from 0.
    pub(crate) fn index(&self, name: &str) -> Option<usize> {
        self.by_name.get(name).copied()
    }

    pub fn len(&self) -> usize {
        self.list.len()
    }

    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Iterates in the order of the file.
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
