//! Graph files, parsed once into types.
//!
//! **Owns** the shape of a graph file: its closed lists of keys, its types, and every check that needs no run. What
//! [`parse`] returns walks without surprises: each target is a node, each template and condition is well-formed
//! and reads names that are there, the schema of the inputs compiles.
//! **Never** looks at other files, and never decides about a graph without `permissions`: it says `None` and leaves
//! that to the caller that starts runs.
//!
//! **Failure.** All findings of a file are returned together, in the order of the text, each with line and column.
//! One error is enough to keep the graph from running. Parts of the language this release does not run yet are
//! errors (`not_supported`), so that nothing is ever silently left out. A key whose value is null counts as absent.
//! [`parse`] finds what keeps a graph from running and what will surprise its author; [`validate`] looks closer, as
//! only somebody who asks for it has the time.

mod action;
mod file;
mod flow;
mod foreach;
mod hooks;
mod inputs;
pub(crate) mod keys;
mod kinds;
mod node;
mod paths;
mod permissions;
pub(crate) mod read;
mod retry;
mod schema;
pub(crate) mod scope;
pub mod show;
mod state;
mod undeclared;
mod uses;
mod validate;
mod waiting;

use std::collections::HashMap;
use std::fmt;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use crate::capability::Primary;
use crate::expr::{self, Condition};
use crate::id::{ItemKind, ItemRef, Name};
use crate::model::{Durability, Effect, Failure, Object, Recovery, Slot, attempt_name};
use crate::money::Usd;
use crate::yaml;

pub use self::action::{FETCH, SIGN};
pub use crate::expr::Severity;
pub use hooks::{Authority, Hook, HookAction, HookEvent};
pub use inputs::{Inputs, MISFIT, coerce};
pub use retry::{Backoff, Retry};
pub use schema::schema;
pub use uses::{About, Remark};
pub use validate::{Around, Validation, validate, validate_among};
pub use waiting::{duration, time};

/// Steps a graph may take if its file does not say.
pub const DEFAULT_MAX_STEPS: u32 = 100;

/// Something a person should know about a graph file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// What it is, for programs: `unknown_key`, `unknown_node`, `not_supported` …
    pub code: &'static str,
    /// What it is, for people.
    pub message: String,
    /// The node it concerns.
    pub node: Option<String>,
    /// The line, from 1.
    pub line: usize,
    /// The column, from 1.
    pub column: usize,
    /// Whether the graph can run.
    pub severity: Severity,
}

impl Finding {
    pub(crate) fn of_yaml(fault: yaml::Fault) -> Self {
        Self {
            code: "yaml",
            message: fault.message,
            node: None,
            line: fault.line,
            column: fault.column,
            severity: Severity::Error,
        }
    }
}

impl fmt::Display for Finding {
    /// `12:7: node `a`: the message`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: ", self.line, self.column)?;
        if let Some(node) = &self.node {
            write!(f, "node `{node}`: ")?;
        }
        f.write_str(&self.message)
    }
}

/// What the file of a graph limits; `None` where it does not say.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Limits {
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

impl Limits {
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
    pub limits: Limits,
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
    list: Vec<Node>,
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

/// One node.
#[derive(Debug, Clone)]
pub struct Node {
    /// Its name.
    pub name: String,
    /// What is done at it.
    pub work: Work,
    /// State keys and the templates they get, in the order they are written; later ones see earlier ones.
    pub assign: Vec<(String, Value)>,
    /// Where to continue.
    pub next: Next,
    /// Where to continue if its action fails.
    pub on_error: Option<String>,
    /// What running it a second time would mean.
    pub effect: Effect,
    /// Tries after a failure, before any hook is asked.
    pub retry: Option<Retry>,
    /// How long one try of its action (of one item, in a foreach) may take.
    pub timeout: Option<Duration>,
    /// Whether an earlier result of the same action will do.
    pub caching: Caching,
    /// Names of environment variables that must be set before a run begins.
    pub env_requires: Vec<String>,
}

/// Whether an earlier result of the same action will do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Caching {
    /// The action is carried out every time.
    #[default]
    Off,
    /// A result of the same graph, node, action and policy is taken from the cache.
    On,
}

/// What is done at a node.
#[derive(Debug, Clone, PartialEq)]
pub enum Work {
    /// An item is used.
    Action(Action),
    /// An item is used for each value of a list.
    Foreach(Foreach),
    /// Nothing: it assigns and chooses an edge.
    Gate,
    /// The graph ends.
    Return {
        /// The template of what it returns; an empty object if there is none.
        output: Option<Value>,
    },
    /// The graph ends, and has failed.
    Fail(Fail),
    /// Nothing, until a time is over.
    Wait(Pause),
    /// A person is asked.
    Approval(Ask),
    /// Several items are used side by side.
    Parallel(Parallel),
}

impl Work {
    /// The use of an item, if there is one and no other.
    pub const fn action(&self) -> Option<&Action> {
        match self {
            Self::Action(action) => Some(action),
            Self::Foreach(foreach) => Some(&foreach.action),
            Self::Gate
            | Self::Return { .. }
            | Self::Fail(_)
            | Self::Wait(_)
            | Self::Approval(_)
            | Self::Parallel(_) => None,
        }
    }

    /// Every use of an item.
    pub fn actions(&self) -> impl Iterator<Item = &Action> {
        let branches = match self {
            Self::Parallel(parallel) => parallel.branches.as_slice(),
            Self::Action(_)
            | Self::Foreach(_)
            | Self::Gate
            | Self::Return { .. }
            | Self::Fail(_)
            | Self::Wait(_)
            | Self::Approval(_) => &[],
        };
        let branches = branches.iter().map(|(_, action)| action);
        self.action().into_iter().chain(branches)
    }
}

/// The use of an item.
#[derive(Debug, Clone, PartialEq)]
pub struct Action {
    /// What is done to it.
    pub primary: Primary,
    /// Its type; an id that turns out to carry a type (`tool:a/b`) must agree.
    pub kind: ItemKind,
    /// The template of its id, without type.
    pub id: String,
    /// The template of the parameters, an object.
    pub params: Value,
}

impl Action {
    /// Whether it is about items that it does not name.
    pub fn is_of_many(&self) -> bool {
        action::of_many(self.primary)
            .is_some_and(|(tool, key)| self.id == tool && self.params.get(key).is_some())
    }

    /// The item it uses, whatever the state is; `None` if a template decides, or the id is none.
    pub fn named(&self) -> Option<ItemRef> {
        if !expr::references(&self.id.as_str().into(), &|_| true).is_empty() {
            return None;
        }
        let item = ItemRef::parse(&self.id, self.kind).ok()?;
        Some(item.canonical())
    }
}

/// The use of an item for each value of a list.
#[derive(Debug, Clone, PartialEq)]
pub struct Foreach {
    /// The template of the list.
    pub over: Value,
    /// The name a value has inside the action, also below `state`.
    pub variable: String,
    /// What is done with each value.
    pub action: Action,
    /// The state key that receives the results, in the order of the list.
    pub collect: Option<String>,
    /// The template of what is collected of an item; its whole result if there is none.
    pub collect_value: Option<Value>,
    /// How the values take turns.
    pub order: ItemOrder,
    /// What a failed item means for the node.
    pub on_item_error: OnItemError,
}

/// A failure that the author of the graph declares.
#[derive(Debug, Clone, PartialEq)]
pub struct Fail {
    /// The template of what went wrong.
    pub message: Value,
    /// Its code, for programs.
    pub code: Option<String>,
    /// The template of what the graph returns all the same.
    pub output: Option<Value>,
}

/// How long a node waits.
#[derive(Debug, Clone, PartialEq)]
pub enum Pause {
    /// For a duration: a template of seconds, or of a text like `1h30m`.
    For(Value),
    /// Until a time: a template of RFC 3339.
    Until(Value),
}

/// A question to a person. How long it may be answered is the `timeout` of its node.
#[derive(Debug, Clone, PartialEq)]
pub struct Ask {
    /// The template of what is asked.
    pub message: Value,
    /// JSON schema of what an answer may hold.
    pub schema: Option<Arc<Value>>,
}

/// Uses of items that know nothing of each other.
#[derive(Debug, Clone, PartialEq)]
pub struct Parallel {
    /// By name, in the order of the file.
    pub branches: Vec<(Name, Action)>,
    /// Most at once, if the node says.
    pub at_once: Option<NonZeroU32>,
    /// What a failed branch means for the node.
    pub on_item_error: OnItemError,
}

/// How the items of a foreach take turns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ItemOrder {
    /// One after the other.
    Sequential,
    /// Side by side.
    Parallel {
        /// Most items at once, if the node says.
        at_once: Option<NonZeroU32>,
    },
}

/// What a failed item means for its foreach.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnItemError {
    /// No further item starts, and the node fails.
    #[default]
    Fail,
    /// Its error is collected in its place, and the others continue.
    Collect,
}

/// Where a node leads.
#[derive(Debug, Clone)]
pub enum Next {
    /// Nowhere: the graph returns.
    End,
    /// To this node.
    Always(String),
    /// Along the first edge that holds; if none does, the graph returns.
    Edges(Vec<Edge>),
}

/// One way on.
#[derive(Debug, Clone)]
pub struct Edge {
    /// The node it leads to.
    pub to: String,
    /// When it may be taken; `None` always.
    pub when: Option<Condition>,
}

impl Edge {
    /// Whether it may be taken whatever the state is.
    pub fn always(&self) -> bool {
        self.when.as_ref().is_none_or(Condition::always_holds)
    }
}

/// Reads a graph file: the graph with its warnings, or all errors and warnings.
pub fn parse(text: &str) -> Result<(Graph, Vec<Finding>), Vec<Finding>> {
    parse_among(text, &|_| false)
}

/// Why a graph is refused: the errors among `findings`, without the warnings beside them.
pub fn errors(findings: &[Finding]) -> impl Iterator<Item = &Finding> {
    findings
        .iter()
        .filter(|finding| finding.severity == Severity::Error)
}

/// As [`parse`], among other items: warns too of what has no effect on those that start a run, as `is_run` says. It is
/// asked only of items where it matters.
pub fn parse_among(
    text: &str,
    is_run: &dyn Fn(&ItemRef) -> bool,
) -> Result<(Graph, Vec<Finding>), Vec<Finding>> {
    let document = yaml::parse(text).map_err(|fault| vec![Finding::of_yaml(fault)])?;
    let mut reader = read::Reader::new(&document);
    let graph = reader.graph();
    if let Some(graph) = &graph {
        surprises(&mut reader, graph, &paths::Reads::of(graph));
        uses::check_caching(&mut reader, graph, is_run);
    }
    let findings = reader.finish();
    match graph {
        Some(graph) if findings.iter().all(|f| f.severity == Severity::Warning) => {
            Ok((graph, findings))
        }
        Some(_) | None => Err(findings),
    }
}

/// What a look at all nodes together tells every reader of a graph.
fn surprises(reader: &mut read::Reader<'_>, graph: &Graph, reads: &paths::Reads) {
    flow::check(reader, graph);
    state::check_reads(reader, graph, reads);
}

#[cfg(test)]
mod tests;
