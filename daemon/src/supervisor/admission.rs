//! Admission of runs: fixes everything about a run before it exists.
//!
//! **Rule.** An error before the first step creates no run. The causes are an item that is refused (unknown, unsigned,
//! modified, untrusted, not permitted), refused configuration, and an invalid graph or directive. Further causes are
//! inputs that do not fit, missing variables, an unknown start node, and an unusable model. A child run of a graph is
//! created despite such an error (its `fault`), and has failed with zero steps: this is the failure of the node that
//! calls it. A continuation with such an error is not created: the ended run stays as it is, and can be continued
//! later.
//!
//! **Order.** The admission is one visit to the project in its file pool. **Never** on a worker of the runtime.

mod authority;
mod declared;
mod process;
mod repairs;
mod repeated;
mod text;
mod thread;
pub(super) mod variables;

use std::collections::BTreeMap;
use std::sync::Arc;

use rye_core::capability::{self, Layer};
use rye_core::definition::{self, Action, Caching, Finding, Graph};
use rye_core::expr::{did_you_mean, nearest};
use rye_core::id::{ItemKind, ItemRef, RunId};
use rye_core::model::graph::{GraphState, UnfinishedWork};
use rye_core::model::{
    Budget, ChildTerms, Durability, Extent, Failure, GraphTask, Limits, Object, Resources, Run,
    Spec, StartFrom, Task,
};
use rye_core::policy::Policy;
use rye_item::{Library, Snapshot};

pub(super) use self::{process::tool as process_tool, thread::risks};
use super::error::Error;
use super::handle::Supervisor;
use super::lineage::{limits_of_child, of_runs_only};
use super::request::{Admitted, Start, StartAt};
use crate::chain::{self, Chain, Terminal};
use crate::config::Config;
use crate::inspect::runnable;
use crate::projects::{ProjectRef, ProjectView};
use crate::services::Services;
use crate::tool_offer::OmittedTools;

impl Supervisor {
    /// Verifies the item and fixes everything about the run `id`, on a thread of the file pool.
    pub(super) async fn admit(&self, id: &RunId, request: Start) -> Result<Admitted, Error> {
        let item = request.item.canonical();
        if item.kind != ItemKind::Directive {
            runnable(&item)?;
        }
        refuse_foreign(&item, &request)?;
        let admission = Admission {
            services: Arc::clone(&self.shared.services),
            config: Arc::clone(&self.shared.config),
        };
        let budget = self.budget(id, &request).await?;
        // A child run has the directory of its parent.
        let site = match &request.lineage {
            Some(lineage) => ProjectRef::from(&*lineage.spec),
            None => ProjectRef::from(&request.directory),
        };
        let work = move |inside: &ProjectView<'_>| {
            let admitted = match item.kind {
                ItemKind::Directive => admission.admit_thread(inside, budget, &item, &request),
                ItemKind::Tool | ItemKind::Knowledge | ItemKind::Config => {
                    admission.admit(inside, budget, &item, request)
                }
            };
            let mut admitted = admitted?;
            let warning = admission.services.projects.first_warning(inside.project);
            admitted.warnings.extend(warning);
            Ok(admitted)
        };
        self.projects().visit(site, "admit a run", work).await
    }
}

/// Services and settings for admissions.
struct Admission {
    services: Arc<Services>,
    config: Arc<Config>,
}

impl Admission {
    fn admit(
        &self,
        inside: &ProjectView<'_>,
        budget: Budget,
        item: &ItemRef,
        request: Start,
    ) -> Result<Admitted, Error> {
        let resolved = chain::resolve(inside.library, item, None)
            .map_err(|source| refused(item, source.suggesting(inside.library)))?;
        authority::check_person(&request, resolved.tool())?;
        if request.lineage.is_none() && resolved.terminal == Terminal::Process {
            let checked = chain::check_isolation(&resolved, &self.config);
            checked.map_err(|error| Error::NoIsolation {
                message: error.to_string(),
            })?;
            self.check_limits(chain::requested_resources(&resolved, &self.config))?;
        }
        let admitted = match resolved.terminal {
            Terminal::Graph => self.admit_graph(inside, budget, &resolved, request)?,
            Terminal::Native(_) | Terminal::Process | Terminal::Http | Terminal::Mcp(_) => {
                self.admit_tool(inside, budget, &resolved, request)?
            }
            Terminal::Thread(_) => return Err(of_runs_only(item)),
        };
        match (&admitted.spec.continuation_of, &admitted.fault) {
            (Some(run), Some(fault)) => Err(Error::Unfit {
                run: run.clone(),
                problem: format!("it cannot be continued as things are: {}", fault.message),
            }),
            (Some(_) | None, _) => Ok(admitted),
        }
    }

    fn check_limits(&self, requested: Resources) -> Result<(), Error> {
        let checked = self.services.dispatch.check_limits(requested);
        checked.map_err(|message| Error::NoLimits { message })
    }

    /// Returns the specification of a run of any kind, which does `task` with the item of that content hash.
    fn spec(
        &self,
        inside: &ProjectView<'_>,
        task: Task,
        (item, content_hash): (&ItemRef, &str),
        budget: Budget,
        request: &Start,
    ) -> Spec {
        let (project, config) = (inside.project, &self.config);
        let lineage = request.lineage.as_ref();
        let continued = match &request.start_at {
            StartAt::Continue { run, .. } => Some(run),
            StartAt::Start | StartAt::Injected(_) | StartAt::Node { .. } => None,
        };
        // A step that takes over the state of a run is part of its chain, too.
        let member = match &request.start_at {
            StartAt::Node { from, .. } => from.as_ref(),
            StartAt::Start | StartAt::Injected(_) | StartAt::Continue { .. } => continued,
        };
        let chain_root = member.map_or(&budget.account.0, |run| &run.spec.chain_root);
        Spec {
            project: project.directory.to_string_lossy().into_owned(),
            files: project.files.to_string_lossy().into_owned(),
            principal: request.principal().to_owned(),
            parent: lineage.map(|lineage| lineage.parent.clone()),
            parent_attempt: lineage.and_then(|lineage| lineage.attempt.clone()),
            callback: lineage.and_then(|lineage| lineage.callback.clone()),
            directory: Some(project.identity.clone()),
            depth: lineage.map_or(0, |lineage| lineage.spec.depth + 1),
            parent_end: lineage
                .map(|lineage| lineage.parent_end)
                .unwrap_or_default(),
            effect_scope: match (lineage, member) {
                (Some(lineage), _) => Some(lineage.key.clone()),
                (None, Some(run)) => run.spec.effect_scope.clone(),
                (None, None) => None,
            },
            continuation_of: continued.map(|run| run.id.clone()),
            spawned: continued.map_or(0, |run| run.spawn_count),
            limits: request.limits.clone(),
            layers: inherited_layers(request),
            approvals: authority::inherited_approvals(request),
            durability: request.durability.unwrap_or(config.durability),
            recovery: config.recovery,
            content_hash: content_hash.to_owned(),
            start_key: request.start_key.clone(),
            start_digest: request.start_key.is_some().then(|| request.digest()),
            ..Spec::new(task, item.clone(), chain_root.clone(), budget)
        }
    }

    /// Admits a graph run. The graph is parsed and validated, and its `permissions` become a layer.
    fn admit_graph(
        &self,
        inside: &ProjectView<'_>,
        budget: Budget,
        resolved: &Chain,
        request: Start,
    ) -> Result<Admitted, Error> {
        let (library, tool) = (inside.library, resolved.tool());
        let path = tool.path.display();
        let chosen = text::chosen(tool, &request.start_at);
        let what = (&tool.item, &*chosen.content_hash);
        let placed = |finding: &Finding| format!("{path}:{finding}");
        let (graph, findings) = match self.read_graph(&chosen.text, library) {
            Ok(read) => read,
            Err(findings) => {
                let errors: Vec<_> = definition::errors(&findings).map(placed).collect();
                let text = errors.join("\n");
                let mut spec = self.spec(inside, Task::Unreadable, what, budget, &request);
                spec.inputs = request.inputs;
                return Ok(Admitted {
                    omitted_tools: OmittedTools::default(),
                    notes: Vec::new(),
                    spec,
                    fault: Some(Failure::permanent("graph_validation_failed", text)),
                    warnings: Vec::new(),
                });
            }
        };
        authority::refuse_tampered(&graph, library)?;
        repeated::refuse(&graph, library, &request.start_at)?;
        let (snapshot, policy) = self.configuration(&tool.item, library)?;
        let mut warnings: Vec<_> = findings.iter().map(placed).collect();
        warnings.extend(snapshot.ignored.iter().cloned());
        let (mut start_from, astray) = start_from(&graph, &chosen.content_hash, &request.start_at)?;
        let added = text::complete(start_from.as_mut(), &graph);
        let task = Task::Graph(GraphTask {
            source: text::source(chosen.text, &graph, &snapshot),
            start_from: start_from.map(Arc::new),
        });
        let mut spec = self.spec(inside, task, what, budget, &request);
        spec.recovery = graph.recovery.unwrap_or(spec.recovery);
        spec.durability = durability(&request, &graph).unwrap_or(spec.durability);
        spec.budget
            .limit_by(graph.limits.spend, policy.default_spend());
        let above = request.lineage.as_ref().map(|lineage| &lineage.limits);
        spec.limits = limits_of_child(&spec.limits, &graph.limits.of_runs(), above);
        spec.children = children(&policy);
        let default_steps = graph
            .max_steps
            .unwrap_or(self.config.limits.max_steps.get());
        let granted = continued_limit(&request.start_at).max(default_steps);
        let limit = *spec.limits.steps.get_or_insert(granted);
        let used_up = used_up(&request.start_at, limit);
        if request.lineage.is_none() {
            declared::replace(&mut spec.layers, &request.start_at);
        }
        let undeclared = declared::declare(&mut spec, &graph, request.capabilities.is_some())
            .map_err(|problem| {
                Failure::permanent("graph_validation_failed", format!("{path}: {problem}"))
            });
        let misfit = match inputs(
            &graph,
            request.inputs,
            request.text_inputs,
            &request.start_at,
        ) {
            Ok((inputs, undeclared)) => {
                spec.inputs = inputs;
                warnings.extend(undeclared);
                None
            }
            Err((given, failure)) => {
                spec.inputs = given;
                Some(*failure)
            }
        };
        let unset = variables::unset(&spec, &graph, library, &self.config);
        Ok(Admitted {
            omitted_tools: OmittedTools::default(),
            notes: chosen.note.into_iter().chain(added).collect(),
            spec,
            fault: undeclared.err().or(unset).or(misfit).or(used_up).or(astray),
            warnings,
        })
    }

    /// Admits a tool run. Its permissions must cover the execution of the tool. It has a spending limit, because it may
    /// start runs that cost money.
    fn admit_tool(
        &self,
        inside: &ProjectView<'_>,
        budget: Budget,
        resolved: &Chain,
        request: Start,
    ) -> Result<Admitted, Error> {
        let (library, tool) = (inside.library, resolved.tool());
        if !matches!(request.start_at, StartAt::Start) {
            return Err(Error::NotAGraph {
                item: tool.item.clone(),
            });
        }
        let what = (&tool.item, &*tool.content_hash);
        let mut spec = self.spec(inside, Task::Tool, what, budget, &request);
        authority::check_permissions(&spec)?;
        let above = request.lineage.as_ref().map(|lineage| &lineage.limits);
        spec.limits = limits_of_child(&spec.limits, &Limits::default(), above);
        let (snapshot, policy) = self.configuration(&spec.item, library)?;
        spec.budget.limit_by(None, policy.default_spend());
        spec.children = children(&policy);
        let mut params = request.inputs;
        for (key, text) in request.text_inputs {
            let value = definition::coerce(resolved.schema(), &key, &text);
            params.insert(key, value);
        }
        spec.inputs = resolved
            .inputs()
            .and_then(|inputs| resolved.fit(&inputs, params))
            .map_err(|source| refused(&spec.item, source))?;
        let usable = resolved.check_requested_server(&spec.inputs, library);
        usable.map_err(|source| refused(&spec.item, source.suggesting(library)))?;
        Ok(Admitted {
            omitted_tools: OmittedTools::default(),
            notes: Vec::new(),
            spec,
            fault: None,
            warnings: snapshot.ignored.to_vec(),
        })
    }

    /// Returns the configuration for a run of `item`, as text and parsed.
    fn configuration(
        &self,
        item: &ItemRef,
        library: &Library,
    ) -> Result<(Snapshot, Arc<Policy>), Error> {
        let snapshot = library
            .snapshot()
            .map_err(|source| refused(item, chain::Error::Item(Box::new(source))))?;
        let policy = self.services.projects.read_policy(&snapshot.policy)?;
        Ok((snapshot, policy))
    }

    /// Returns the graph in `text`, and its warnings, which depend on the items of `library`.
    fn read_graph(
        &self,
        text: &str,
        library: &Library,
    ) -> Result<(Arc<Graph>, Vec<Finding>), Vec<Finding>> {
        let parsed = self.services.graphs.read(text)?;
        let is_run = |item: &ItemRef| chain::starts_run(library, item);
        let caches_runs = parsed.graph.nodes.iter().any(|node| {
            let mut items = node.work.actions().filter_map(Action::named);
            node.caching == Caching::On && items.any(|item| is_run(&item))
        });
        let findings = if caches_runs {
            // This adds a warning, sorted among those about the text.
            definition::parse_among(text, &is_run)?.1
        } else {
            parsed.findings.clone()
        };
        Ok((Arc::clone(&parsed.graph), findings))
    }
}

pub(super) fn refused(item: &ItemRef, source: chain::Error) -> Error {
    Error::Item {
        item: item.clone(),
        source: Box::new(source),
    }
}

/// Refuses settings for runs of another kind, so that no caller relies on a limit without effect.
fn refuse_foreign(item: &ItemRef, request: &Start) -> Result<(), Error> {
    let limits = &request.limits;
    let of_threads = [
        ("model", request.model.is_some()),
        ("provider", request.provider.is_some()),
        ("limits.turns", limits.turns.is_some()),
        ("limits.tokens", limits.tokens.is_some()),
        ("limits.duration_ms", limits.duration_ms.is_some()),
    ];
    let given = of_threads.into_iter().find(|(_, given)| *given);
    let message = match (item.kind, given) {
        (ItemKind::Directive, _) if limits.steps.is_some() => {
            "`limits.steps` is for graphs; a thread takes turns: write `--limit turns=N`".to_owned()
        }
        (ItemKind::Directive, _) | (_, None) => return Ok(()),
        // The graph passes them on to its threads.
        _ if matches!(request.start_at, StartAt::Continue { .. }) => return Ok(()),
        (_, Some((field, _))) => format!("`{field}` is for threads, and `{item}` is no directive"),
    };
    Err(Error::Params { message })
}

/// Layers of a run before its own declaration: those of the caller or of the original run, and the restrictions of the
/// request.
pub(super) fn inherited_layers(request: &Start) -> Vec<Layer> {
    let mut layers = match (&request.lineage, &request.start_at) {
        (Some(lineage), _) => lineage.spec.layers.clone(),
        (None, StartAt::Continue { run, layers, .. }) => {
            let inherited = run.spec.layers.iter().chain(layers);
            inherited.cloned().collect()
        }
        (None, StartAt::Start | StartAt::Injected(_) | StartAt::Node { .. }) => {
            vec![request.caller.clone()]
        }
    };
    layers.extend(request.capabilities.as_ref().map(|patterns| {
        Layer {
            source: "the caller's capabilities".into(),
            patterns: patterns
                .iter()
                .map(|pattern| capability::normalise(pattern))
                .collect(),
        }
    }));
    layers
}

/// Terms for the child runs of a graph or a tool, which limit the number of parallel child runs themselves.
fn children(policy: &Policy) -> ChildTerms {
    ChildTerms {
        most: None,
        ..policy.children()
    }
}

/// Returns the inputs with warnings about undeclared ones, or the given inputs and the failure. A run that takes over
/// another one has the inputs of that run, which must match the present graph.
fn inputs(
    graph: &Graph,
    mut given: Object,
    texts: BTreeMap<String, String>,
    start_at: &StartAt,
) -> Result<(Object, Vec<String>), (Object, Box<Failure>)> {
    match start_at {
        StartAt::Start | StartAt::Injected(_) | StartAt::Node { from: None, .. } => {}
        StartAt::Node {
            from: Some(run), ..
        }
        | StartAt::Continue { run, .. } => given.clone_from(&run.spec.inputs),
    }
    for (key, text) in texts {
        let value = definition::coerce(graph.inputs.schema(), &key, &text);
        given.insert(key, value);
    }
    let fitted = graph.inputs(given.clone());
    fitted.map_err(|failure| (given, Box::new(failure)))
}

/// Durability set by the caller, the graph or the parent, in this order.
fn durability(request: &Start, graph: &Graph) -> Option<Durability> {
    let above = request.lineage.as_ref();
    let inherited = || above.map(|lineage| lineage.spec.durability);
    request.durability.or(graph.durability).or_else(inherited)
}

/// Returns the start position, or `None` for the start node with the initial state of the graph, and the reason why the
/// run cannot start there.
fn start_from(
    graph: &Graph,
    content_hash: &str,
    start_at: &StartAt,
) -> Result<(Option<StartFrom>, Option<Failure>), Error> {
    let (mut misfit, mut then) = (None, None);
    let (node, (state, left), extent) = match start_at {
        StartAt::Start => return Ok((None, None)),
        StartAt::Continue { run, failed, .. } if *failed || run.failed_after_failures() => {
            repairs::from_failed(run, content_hash)?
        }
        StartAt::Continue { run, .. } if run.is_repairable() => {
            return repairs::of(run, graph, content_hash).map(|start| (Some(start), None));
        }
        StartAt::Continue { run, .. } => {
            let (node, (state, mut left)) = resumption(run, graph)?;
            if run.spec.content_hash != content_hash {
                // The items of another text of the graph may differ from those of this one.
                left.items = None;
            }
            let repairs = run.spec.repairs();
            then = repairs.and_then(|start| start.then.clone());
            let extent = repairs.map_or(Extent::Rest, |_| Extent::Repairs);
            (node, (state, left), extent)
        }
        StartAt::Injected(state) => {
            let mut fresh = fresh(graph);
            misfit = override_state(&mut fresh, state);
            (
                graph.start.clone(),
                (fresh, UnfinishedWork::default()),
                Extent::Rest,
            )
        }
        StartAt::Node {
            node,
            inject_state,
            from,
            verdicts: _,
        } => {
            let inherited = from.as_ref().and_then(|run| run.inherited());
            let (mut state, left) =
                inherited.unwrap_or_else(|| (fresh(graph), UnfinishedWork::default()));
            state.steps = 0;
            misfit = override_state(&mut state, inject_state);
            (node.clone(), (state, left), Extent::OneNode)
        }
    };
    let missing = graph.nodes.get(&node).is_none().then(|| {
        let names = || graph.nodes.iter().map(|node| node.name.as_str());
        let near = nearest(&node, names());
        let near = did_you_mean(near);
        let names: Vec<&str> = names().take(50).collect();
        let text = format!(
            "the graph has no node `{node}` to begin at{near}; its nodes are {}",
            names.join(", ")
        );
        Failure::permanent("target_node_not_found", text).at(&node)
    });
    let start = StartFrom {
        node,
        state,
        left: (left != UnfinishedWork::default()).then_some(left),
        then,
        extent,
    };
    Ok((Some(start), misfit.or(missing)))
}

/// Initial state of the graph.
fn fresh(graph: &Graph) -> GraphState {
    GraphState {
        vars: graph.state.clone().into(),
        ..GraphState::default()
    }
}

/// Sets `vars` in `state`. Returns a failure for the reserved key `inputs`.
fn override_state(state: &mut GraphState, vars: &Object) -> Option<Failure> {
    let mut misfit = None;
    for (key, value) in vars {
        if key == "inputs" {
            let text = "`inject_state` cannot replace `inputs`: give the inputs themselves";
            misfit = Some(Failure::permanent("invalid_inject_state", text));
        } else {
            state.vars.set(key, value.clone());
        }
    }
    misfit
}

/// Step limit of the continued run, raises included. Its continuation never gets a lower one.
fn continued_limit(start_at: &StartAt) -> u32 {
    match start_at {
        StartAt::Start | StartAt::Injected(_) | StartAt::Node { .. } => 0,
        StartAt::Continue { run, .. } => {
            let raised = run.graph().and_then(|state| state.max_steps);
            let raised = raised.or(run.spec.limits.steps);
            raised.unwrap_or(0)
        }
    }
}

/// Returns the reason why a run that failed at its step limit cannot be continued with `limit`. Hooks do not change it.
fn used_up(start_at: &StartAt, limit: u32) -> Option<Failure> {
    let run = match start_at {
        StartAt::Start | StartAt::Injected(_) | StartAt::Node { .. } => return None,
        StartAt::Continue { run, .. } => run,
    };
    let taken = run.steps();
    let failed_there = run
        .failure()
        .is_some_and(|failure| failure.code == "max_steps_exceeded");
    (failed_there && taken >= limit).then(|| {
        let text =
            format!("it has taken {taken} steps of {limit}; raise the limit: --raise steps=N");
        Failure::permanent("max_steps_exceeded", text)
    })
}

/// Returns the node at which an ended run is continued, and the state: the failed node or the one it had reached, or
/// the start if it took no step.
fn resumption(run: &Run, graph: &Graph) -> Result<(String, (GraphState, UnfinishedWork)), Error> {
    let unfit = |problem: &str| Error::Unfit {
        run: run.id.clone(),
        problem: problem.to_owned(),
    };
    if let Some(barrier) = run.approvals.barrier() {
        return Err(unfit(&format!("{barrier}; start a new run")));
    }
    let spec = &run.spec;
    if spec.continuation_of.is_some() && spec.start_from().is_none() {
        return Err(unfit(
            "it took over nothing of the run it was to continue; start it anew",
        ));
    }
    let (Some(state), Some(inherited)) = (run.graph(), run.inherited()) else {
        return Err(unfit("it is no graph run"));
    };
    if let Some(node) = run.resumption_node() {
        return Ok((node.to_owned(), inherited));
    }
    match (&state.last, spec.start_from()) {
        (Some(last), _) if repairs::ended_at(state, last) => Ok((last.node.clone(), inherited)),
        (Some(_), _) => Err(unfit(
            "its nodes were all done when it ended; nothing is left to do",
        )),
        (None, Some(start)) => Ok((start.node.clone(), inherited)),
        // Inputs given as text are converted by the graph's declaration, so they were never read.
        (None, None) if spec.graph().is_none() => Err(unfit(
            "it ended because its graph could not be read; start it anew",
        )),
        (None, None) => Ok((
            graph.start.clone(),
            (fresh(graph), UnfinishedWork::default()),
        )),
    }
}
