//! Static checks of graphs and directives, and drawings of graphs, without running them.
//!
//! **Owns** nothing: it reads the items of a project, through its file pool, and the cache of parsed graphs. **Never**
//! runs anything, and never works on a worker of the runtime. **Failure.** An invalid graph is an answer of
//! [`Inspector::validate`]; an item that is missing or not a graph is an error.

mod check;
mod configuration;
mod directive;
mod head;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rye_core::definition::show::{self, Format, NodeState, NodeStatus};
use rye_core::definition::{self, Finding, Severity, Validation};
use rye_core::error::{ErrorKind, Kinded};
use rye_core::id::{ItemKind, ItemRef, RunId};
use rye_core::memory::Memory;
use rye_core::model::graph::At;
use rye_core::model::{Run, StepStatus};

use crate::chain::{self, Chain, Terminal};
use crate::graphs::Graphs;
use crate::projects::{self, ProjectRef, ProjectView, Projects};
use rye_host::clock::Timer;
use rye_host::task;
use rye_journal::Walked;

/// Time limit of the check of a file.
const MOST_TIME: Duration = Duration::from_secs(1);
/// Memory in bytes that a check may use; bounds on the values and the patterns of a file keep it below.
const MOST_MEMORY: usize = 64 << 20;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Project(#[from] projects::Error),
    /// Items of this type do not run.
    #[error("`{item}` is a {kind}; this version of ryed runs tools and graphs, and directives by `ryectl thread run`", kind = item.kind)]
    NotRunnable { item: ItemRef },
    /// The item is refused or missing.
    #[error("`{item}` cannot be {wanted}")]
    Unseen {
        item: ItemRef,
        /// The requested operation, in the past tense.
        wanted: &'static str,
        #[source]
        source: Box<chain::Error>,
    },
    /// The item is a tool but not a graph.
    #[error(
        "`{item}` is no graph and cannot be {wanted} as one: its `executor_id` does not lead to \
         `rye/core/runtimes/state-graph/runtime`"
    )]
    NoGraph {
        item: ItemRef,
        /// The requested operation, in the past tense.
        wanted: &'static str,
    },
    /// The graph does not parse, so it cannot be drawn.
    #[error("the graph does not validate:\n{findings}")]
    Broken {
        /// The findings, one per line.
        findings: String,
    },
    #[error(
        "the values of all runs take so much of the memory they may have together (`limits.memory_mb`) that no file can be checked \
         beside them now; try again later"
    )]
    NoMemory,
    /// The run does not run the graph that was requested.
    #[error("run `{run}`: it runs `{found}`, not `{item}`")]
    OtherItem {
        run: RunId,
        found: ItemRef,
        /// The requested graph.
        item: ItemRef,
    },
}

impl Kinded for Error {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::Project(source) => source.kind(),
            Self::Unseen { source, .. } => source.kind(),
            Self::NotRunnable { .. } | Self::NoGraph { .. } | Self::Broken { .. } => {
                ErrorKind::Invalid
            }
            Self::OtherItem { .. } => ErrorKind::Precondition,
            Self::NoMemory => ErrorKind::Exhausted,
        }
    }
}

/// Result of a check.
#[derive(Debug)]
pub struct Checked {
    pub path: String,
    pub report: Validation,
}

/// Checks and draws the graphs of projects.
#[derive(Debug, Clone)]
pub struct Inspector {
    pub projects: Arc<Projects>,
    /// Cache of parsed graphs.
    pub graphs: Graphs,
    /// Account for the memory of a check.
    pub memory: Arc<Memory>,
    /// Clock for the time limit of a check.
    pub clock: Arc<dyn Timer>,
}

impl Inspector {
    /// Checks a graph or a directive without running it. An unsigned or changed file is checked too, and the report
    /// mentions it. A strict check requires default edges of graphs.
    pub async fn validate(
        &self,
        item: &ItemRef,
        site: impl Into<ProjectRef>,
        is_strict: bool,
    ) -> Result<Checked, Error> {
        let item = item.canonical();
        let charge = self.memory.take(MOST_MEMORY).ok_or(Error::NoMemory)?;
        let is_directive = item.kind == ItemKind::Directive;
        let item = if is_directive { item } else { runnable(&item)? };
        let (clock, projects) = (Arc::clone(&self.clock), Arc::clone(&self.projects));
        let work = move |inside: &ProjectView<'_>| {
            let _charge = charge;
            let late = clock.up().plus(MOST_TIME);
            let is_late = || clock.up() > late;
            if is_directive {
                directive::check(inside.library, &projects, item, &is_late)
            } else {
                check::check(inside.library, &projects, item, is_strict, &is_late)
            }
        };
        self.projects.visit(site, "validate an item", work).await
    }

    /// Draws a graph from its current file.
    pub async fn show(
        &self,
        item: &ItemRef,
        directory: &Path,
        format: Format,
    ) -> Result<String, Error> {
        let item = runnable(item)?;
        let graphs = self.graphs.clone();
        let work = move |inside: &ProjectView<'_>| {
            let chain = chain::resolve(inside.library, &item, None);
            let chain = chain.map_err(|source| Error::Unseen {
                item: item.clone(),
                wanted: "shown",
                source: Box::new(source.suggesting(inside.library)),
            })?;
            graph_only(&item, &chain, "shown")?;
            let (file, nodes) = (chain.tool(), BTreeMap::new());
            let path = file.path.display().to_string();
            draw(&graphs, &file.text, &item, &path, format, &nodes)
        };
        self.projects.visit(directory, "show a graph", work).await
    }

    /// Draws the graph `item` of `run`, with the state of its nodes from `walked`.
    pub async fn show_run(
        &self,
        item: &ItemRef,
        format: Format,
        run: Arc<Run>,
        walked: Walked,
    ) -> Result<String, Error> {
        let is_of_item = run.spec.item == item.canonical();
        let Some(source) = run.spec.graph().filter(|_| is_of_item) else {
            return Err(Error::OtherItem {
                run: run.id.clone(),
                found: run.spec.item.clone(),
                item: item.clone(),
            });
        };
        let (graphs, text) = (self.graphs.clone(), Arc::clone(&source.text));
        task::blocking("draw a graph", move || {
            let (item, name) = (&run.spec.item, format!("the graph of run {}", run.id));
            draw(&graphs, &text, item, &name, format, &overlay(&run, &walked))
        })
        .await
    }
}

/// Resolves aliases of the item. Fails if items of its type do not run.
pub fn runnable(item: &ItemRef) -> Result<ItemRef, Error> {
    let item = item.canonical();
    if item.kind == ItemKind::Tool {
        Ok(item)
    } else {
        Err(Error::NotRunnable { item })
    }
}

/// Warning about the whole file.
fn warning(code: &'static str, message: String) -> Finding {
    Finding {
        code,
        message,
        node: None,
        line: 1,
        column: 1,
        severity: Severity::Warning,
    }
}

/// Fails if the tool is not a graph.
fn graph_only(item: &ItemRef, chain: &Chain, wanted: &'static str) -> Result<(), Error> {
    match chain.terminal {
        Terminal::Graph => Ok(()),
        Terminal::Native(_)
        | Terminal::Process
        | Terminal::Http
        | Terminal::Mcp(_)
        | Terminal::Thread(_) => Err(Error::NoGraph {
            item: item.clone(),
            wanted,
        }),
    }
}

fn draw(
    graphs: &Graphs,
    text: &str,
    item: &ItemRef,
    name: &str,
    format: Format,
    overlay: &BTreeMap<String, NodeState>,
) -> Result<String, Error> {
    match graphs.read(text) {
        Ok(parsed) => Ok(show::render(&parsed.graph, &item.id, format, overlay)),
        Err(findings) => {
            let told: Vec<_> = definition::errors(&findings)
                .map(|finding| format!("{name}:{finding}"))
                .collect();
            Err(Error::Broken {
                findings: told.join("\n"),
            })
        }
    }
}

/// State of each node in `run`.
fn overlay(run: &Run, walked: &Walked) -> BTreeMap<String, NodeState> {
    let mut nodes = BTreeMap::new();
    for step in &walked.steps {
        let visits = nodes
            .get(&step.node)
            .map_or(0, |seen: &NodeState| seen.visits);
        let state = NodeState {
            status: node_status(step.status),
            visits: visits + 1,
            elapsed_ms: step.elapsed_ms,
            failed: step.items.map_or(0, |items| items.failed),
        };
        nodes.insert(step.node.clone(), state);
    }
    let here = run.current_node().map(|node| {
        let status = match run.graph().map(|state| &state.at) {
            Some(At::Step(_)) => NodeStatus::Running,
            Some(_) | None => NodeStatus::Pending,
        };
        (node.to_owned(), status)
    });
    if let Some((node, status)) = here {
        let visits = nodes.get(&node).map_or(0, |seen| seen.visits);
        let state = NodeState {
            status,
            visits,
            elapsed_ms: 0,
            failed: 0,
        };
        nodes.insert(node, state);
    }
    if let (true, Some(node)) = (run.status().is_terminal(), &walked.open) {
        let visits = nodes.get(node).map_or(0, |seen| seen.visits);
        let state = NodeState {
            status: NodeStatus::Interrupted,
            visits: visits + 1,
            elapsed_ms: 0,
            failed: 0,
        };
        nodes.insert(node.clone(), state);
    }
    nodes
}

const fn node_status(status: StepStatus) -> NodeStatus {
    match status {
        StepStatus::Ok => NodeStatus::Ok,
        StepStatus::Error => NodeStatus::Error,
        StepStatus::Return => NodeStatus::Return,
        StepStatus::Gate => NodeStatus::Gate,
        StepStatus::Foreach => NodeStatus::Foreach,
        StepStatus::Parallel => NodeStatus::Parallel,
        StepStatus::Wait => NodeStatus::Wait,
        StepStatus::Approval => NodeStatus::Approval,
        StepStatus::Service => NodeStatus::Service,
        StepStatus::Cached => NodeStatus::Cached,
        StepStatus::Declared => NodeStatus::Declared,
    }
}
