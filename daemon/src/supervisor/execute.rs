//! Items that are run for their result, and single nodes of graphs.
//!
//! A tool returns its envelope. A graph becomes a run; control parameters among its parameters decide how it runs, and
//! the result of the run is returned. **Failure.** The caller may be dropped at any time; the run continues.

use std::path::Path;
use std::sync::Arc;

use rye_core::callers::Caller;
use rye_core::capability::{self, Layer, Primary};
use rye_core::definition::Authority;
use rye_core::id::{ItemRef, RunId};
use rye_core::model::{Object, Run, Verdict};
use serde_json::Value;
use tokio::sync::oneshot;

use super::admission::{inherited_layers, refused};
use super::error::Error;
use super::graph_params::GraphParams;
use super::handle::{EnvelopeRequest, Supervisor};
use super::request::{Start, StartAt, Started};
use crate::chain::{self, CallOrigin, Chain, Terminal};
use crate::inspect::runnable;
use crate::projects::ProjectView;
use crate::services::{Envelope, Order, TraceMode};

#[derive(Debug)]
pub enum Executed {
    /// The result of a tool, and its run.
    Tool(Box<Envelope>, RunId),
    /// A run that has ended or is suspended.
    Run(Arc<Run>),
    /// A run that the caller does not wait for (`async: true`).
    Launched(Arc<Run>),
    /// A result without a run (`validate: true`).
    Document(Value),
    /// The description of a call, or its refusal; no run was made.
    NoRun(Box<Envelope>),
}

/// The resolution of an item, as shown in an envelope.
#[derive(Debug)]
pub struct Lookup {
    /// The links of the tool chain.
    pub chain: Vec<Value>,
    /// Decisions of the resolution; `None` if no trace was requested.
    pub trace: Option<Vec<Value>>,
}

/// A single node of a graph to run.
#[derive(Debug, Clone)]
pub struct Step {
    pub node: String,
    /// Merged into the initial state.
    pub inject_state: Object,
    /// The run whose state and inputs are taken over.
    pub resume_from: Option<RunId>,
    /// Verdicts on attempts of `resume_from` with unknown outcome.
    pub verdicts: Vec<(String, Verdict)>,
}

impl Supervisor {
    /// Runs an item for its result. The [`Lookup`] repeats what the envelope of a tool contains.
    pub async fn execute(
        &self,
        request: Start,
        trace: TraceMode,
    ) -> Result<(Executed, Lookup), Error> {
        let (item, directory) = (&request.item, &request.directory);
        let (chain, noted) = self.resolve_traced(item, directory, trace).await?;
        let found = Lookup {
            chain: chain.links(),
            trace: noted,
        };
        let terminal = chain.terminal;
        // The chain holds all files of the tool in memory.
        drop(chain);
        let executed = match terminal {
            Terminal::Graph => self.execute_graph(request).await?,
            Terminal::Native(_)
            | Terminal::Process
            | Terminal::Http
            | Terminal::Mcp(_)
            | Terminal::Thread(_) => self.execute_tool(request, trace).await?,
        };
        Ok((executed, found))
    }

    /// Prepares an item without running it; makes no run. Returns a description of the call, and how the item was
    /// found. The description reveals the item's content, so the caller must have the capability to execute it.
    pub async fn rehearse(&self, request: Start) -> Result<(Executed, Lookup), Error> {
        let asked = runnable(&request.item)?;
        permit(&inherited_layers(&request), Primary::Execute, &asked)?;
        let (item, directory) = (&request.item, &request.directory);
        let (chain, noted) = self.resolve_traced(item, directory, TraceMode::On).await?;
        let found = Lookup {
            chain: chain.links(),
            trace: noted,
        };
        let (item, directory) = (request.item.clone(), request.directory.clone());
        if chain.terminal == Terminal::Graph {
            let checked = self.inspector().validate(&item, &directory, false).await?;
            return Ok((Executed::Document(checked.report.to_json()), found));
        }
        let random = self.journal().random();
        let run = RunId::generate(&item.id, self.journal().now().seconds(), random);
        let spec = Arc::new(self.admit(&run, request).await?.spec);
        let order = Order {
            params: spec.inputs.clone(),
            origin: CallOrigin {
                run,
                spec,
                attempt: 1,
                key: "dry-run".to_owned(),
            },
            project: self.projects().open(&directory).await?,
            primary: Primary::Execute,
            item,
            trace: TraceMode::On,
            caller: Caller::Person,
            authority: Authority::Run,
            timeout: None,
        };
        let mut prepared = self.shared.services.dispatch.prepare(vec![order]).await;
        let mut prepared = prepared.pop().expect("each order is answered");
        let mut envelope = prepared.envelope();
        match prepared.plan {
            Ok(plan) => envelope.data = plan.described(),
            Err(failure) => envelope.failure = Some(*failure),
        }
        Ok((Executed::NoRun(Box::new(envelope)), found))
    }

    async fn execute_tool(&self, request: Start, trace: TraceMode) -> Result<Executed, Error> {
        let (envelope, receiver) = oneshot::channel();
        let asker = EnvelopeRequest { trace, envelope };
        let started = self.admit_and_launch(request, Some(asker)).await?;
        let envelope = receiver.await.ok();
        self.settled(&started.run).await?;
        match envelope {
            Some(envelope) => Ok(Executed::Tool(Box::new(envelope), started.run)),
            None => Ok(Executed::Run(self.run_of(&started.run).await?)),
        }
    }

    async fn execute_graph(&self, mut request: Start) -> Result<Executed, Error> {
        let asked = GraphParams::read(std::mem::take(&mut request.inputs));
        let asked = asked.map_err(|failure| Error::Params {
            message: failure.message,
        })?;
        if asked.validate {
            let checked = self
                .inspector()
                .validate(&request.item, &request.directory, false)
                .await?;
            return Ok(Executed::Document(checked.report.to_json()));
        }
        request.inputs = asked.inputs;
        request.capabilities = asked.capabilities;
        request.limits.steps = asked.max_steps;
        request.limits.depth = asked.depth;
        let run = match (asked.node, asked.resume) {
            (Some(node), resume_from) => {
                let step = Step {
                    node,
                    inject_state: asked.inject_state,
                    resume_from,
                    verdicts: Vec::new(),
                };
                self.start_step(request, step).await?.run
            }
            (None, Some(run)) => self.start_again(&run, request).await?.id.clone(),
            (None, None) => {
                request.start_at = GraphParams::start_at(None, asked.inject_state);
                self.start(request).await?.run
            }
        };
        if asked.detached {
            return Ok(Executed::Launched(self.run_of(&run).await?));
        }
        self.settled(&run).await?;
        Ok(Executed::Run(self.run_of(&run).await?))
    }

    /// Runs one node of a graph as a run of its own; returns when it has ended or is suspended.
    pub async fn step(&self, request: Start, step: Step) -> Result<(Started, Arc<Run>), Error> {
        let started = self.start_step(request, step).await?;
        self.settled(&started.run).await?;
        let run = self.run_of(&started.run).await?;
        Ok((started, run))
    }

    async fn start_step(&self, mut request: Start, step: Step) -> Result<Started, Error> {
        let from = match &step.resume_from {
            Some(run) => Some(self.run_to_take_over(run, &request).await?),
            None if step.verdicts.is_empty() => None,
            None => {
                let message = "an answer to what is uncertain goes with the run that the step takes over (`--resume-from`)";
                return Err(Error::Params {
                    message: message.to_owned(),
                });
            }
        };
        request.start_at = StartAt::Node {
            node: step.node,
            inject_state: step.inject_state,
            from,
            verdicts: step.verdicts,
        };
        self.start(request).await
    }

    /// Returns the verified chain of an item that can run.
    pub(super) async fn resolve(&self, item: &ItemRef, directory: &Path) -> Result<Chain, Error> {
        let resolved = self.resolve_traced(item, directory, TraceMode::Off);
        Ok(resolved.await?.0)
    }

    /// Returns the content of a lock of `item`, and how it compares with the existing lock. This reveals hashes of
    /// files, so `caller` must be allowed to fetch the item.
    pub async fn lock(
        &self,
        caller: Layer,
        directory: &Path,
        item: ItemRef,
    ) -> Result<chain::Draft, Error> {
        let item = runnable(&item)?;
        permit(&[caller], Primary::Fetch, &item)?;
        let work = move |inside: &ProjectView<'_>| {
            chain::draft(inside.library, &item)
                .map_err(|source| refused(&item, source.suggesting(inside.library)))
        };
        self.projects().visit(directory, "lock a tool", work).await
    }

    /// Returns the verified chain, and with [`TraceMode::On`] the decisions of the resolution.
    pub(super) async fn resolve_traced(
        &self,
        item: &ItemRef,
        directory: &Path,
        trace: TraceMode,
    ) -> Result<(Chain, Option<Vec<Value>>), Error> {
        let item = runnable(item)?;
        let work = move |inside: &ProjectView<'_>| {
            let mut noted = (trace == TraceMode::On).then(chain::Trace::default);
            let chain = chain::resolve(inside.library, &item, noted.as_mut());
            let chain =
                chain.map_err(|source| refused(&item, source.suggesting(inside.library)))?;
            Ok((chain, noted.map(|noted| noted.steps)))
        };
        self.projects()
            .visit(directory, "resolve an item", work)
            .await
    }
}

fn permit(layers: &[Layer], primary: Primary, item: &ItemRef) -> Result<(), Error> {
    let permitted = capability::permit(layers, primary, item);
    permitted.map_err(|denied| Error::Denied {
        message: denied.to_string(),
    })
}
