//! Looking at graphs without running them, and at the runs below a run.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use rye_core::definition;
use rye_core::definition::show::{self, Format, NodeState, NodeStatus};
use rye_core::id::{ItemRef, RunId};
use rye_core::model::graph::At;
use rye_core::model::{Run, RunKind, StepStatus};
use serde_json::Value;

use super::admission::{refused, runnable};
use super::validate::graph_only;
use super::{Error, Supervisor};
use crate::chain::{self, Chain};
use crate::graphs::Graphs;
use crate::journal::{Filter, Walked};
use crate::projects::{Inside, Project};
use crate::services::TraceMode;
use crate::task;

/// Records asked of the journal in one go.
const PAGE: usize = 1000;

/// How far down the runs below a run are told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    /// Those it started itself.
    Children,
    /// All of them.
    Tree,
}

impl Supervisor {
    /// The project that `directory` belongs to.
    pub async fn project_of(&self, directory: &Path) -> Result<Arc<Project>, Error> {
        Ok(self.projects().open(directory).await?)
    }

    /// Draws a graph; with a run, the graph as that run walks it and what the run did.
    pub async fn show(
        &self,
        item: &ItemRef,
        directory: &Path,
        format: Format,
        run: Option<&RunId>,
    ) -> Result<String, Error> {
        let Some(run) = run else {
            return self.draw_file(item, directory, format).await;
        };
        let run = self.run_of(run).await?;
        let same = run.spec.item == item.canonical();
        if !same || run.spec.graph.is_none() {
            return Err(Error::Unfit {
                run: run.id.clone(),
                problem: format!("it runs `{}`, not `{item}`", run.spec.item),
            });
        }
        let walked = self.journal().walked(&run.id).await?;
        let name = format!("the graph of run {}", run.id);
        let graphs = self.shared.services.graphs.clone();
        let (item, run) = (item.canonical(), Arc::clone(&run));
        task::blocking("draw a graph", move || {
            let text = run.spec.graph.as_ref().map(|graph| graph.text.as_str());
            let nodes = overlay(&run, &walked);
            draw(
                &graphs,
                text.unwrap_or_default(),
                &item,
                &name,
                format,
                &nodes,
            )
        })
        .await
    }

    async fn draw_file(
        &self,
        item: &ItemRef,
        directory: &Path,
        format: Format,
    ) -> Result<String, Error> {
        let item = runnable(item)?;
        let graphs = self.shared.services.graphs.clone();
        let work = move |inside: &Inside<'_>| {
            let chain = chain::resolve(inside.library, &item, None);
            let chain = chain.map_err(|source| Error::Unseen {
                item: item.clone(),
                wanted: "shown",
                source: Box::new(source),
            })?;
            graph_only(&item, &chain, "shown")?;
            let (file, nodes) = (chain.tool(), BTreeMap::new());
            let path = file.path.display().to_string();
            draw(&graphs, &file.text, &item, &path, format, &nodes)
        };
        self.projects().visit(directory, "show a graph", work).await
    }

    /// The runs below `id`: each behind its parent, siblings oldest first.
    pub async fn below(&self, id: &RunId, reach: Reach) -> Result<Vec<Arc<Run>>, Error> {
        let root = self.run_of(id).await?;
        let mut found = Vec::new();
        let mut open = self.children(&root).await?;
        while let Some(run) = open.pop() {
            if reach == Reach::Tree {
                open.extend(self.children(&run).await?);
            }
            found.push(run);
        }
        Ok(found)
    }

    /// The runs that `run` started, newest first.
    async fn children(&self, run: &Run) -> Result<Vec<Arc<Run>>, Error> {
        let mut children = Vec::new();
        if run.spec.kind == RunKind::Tool {
            return Ok(children);
        }
        let filter = Filter {
            parent: Some(run.id.clone()),
            ..Filter::default()
        };
        for child in self.journal().list_all(&filter, PAGE).await? {
            children.push(self.run_of(&child.id).await?);
        }
        Ok(children)
    }

    /// The verified chain of an item that can run.
    pub(super) async fn resolve(&self, item: &ItemRef, directory: &Path) -> Result<Chain, Error> {
        let resolved = self.resolve_traced(item, directory, TraceMode::Off);
        Ok(resolved.await?.0)
    }

    /// The same, with what was decided on the way if that is wanted.
    pub(super) async fn resolve_traced(
        &self,
        item: &ItemRef,
        directory: &Path,
        trace: TraceMode,
    ) -> Result<(Chain, Option<Vec<Value>>), Error> {
        let item = runnable(item)?;
        let work = move |inside: &Inside<'_>| {
            let mut noted = (trace == TraceMode::On).then(Vec::new);
            let chain = chain::resolve(inside.library, &item, noted.as_mut());
            let chain = chain.map_err(|source| refused(&item, source))?;
            Ok((chain, noted))
        };
        self.projects()
            .visit(directory, "resolve an item", work)
            .await
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

/// What `run` did at each node.
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
        };
        nodes.insert(node, state);
    }
    if let (true, Some(node)) = (run.status().is_terminal(), &walked.open) {
        let visits = nodes.get(node).map_or(0, |seen| seen.visits);
        let state = NodeState {
            status: NodeStatus::Interrupted,
            visits: visits + 1,
            elapsed_ms: 0,
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
        StepStatus::Cached => NodeStatus::Cached,
    }
}
