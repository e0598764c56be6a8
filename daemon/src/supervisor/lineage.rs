//! Child runs: their creation, and the supervisor's interface for drivers and native tools.
//!
//! A child run has the authority of its parent, narrowed by its own declaration and by the action. It stays within the
//! depth of its parent and may start no more runs. A thread gets no more turns, tokens and time than its parent has. If
//! the parent does not wait for it (`async: true`), the kinds of both and the parent's options decide what the end of
//! the parent does.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use rye_core::capability::Layer;
use rye_core::definition::MISFIT;
use rye_core::error::with_sources;
use rye_core::id::{ItemRef, RunId};
use rye_core::ledger::{Cost, Denied};
use rye_core::model::event::Emitted;
use rye_core::model::{
    Event, Failure, Fate, Kill, Killed, Life, Limits, LogCursor, Object, ParentEnd, Run, RunKind,
    Spec, SuspendReason, WatchRule,
};
use rye_core::money::Usd;
use rye_core::thread::ThreadOrder;
use serde_json::{Value, json};

use super::error::Error;
use super::graph_params::GraphParams;
use super::handle::{Shared, Supervisor};
use super::request::{Lineage, Reach, Start, StartAt};
use super::resume::continuation_key;
use crate::directives;
use crate::port::{AccountView, ChildRequest, Nest, Nested, ProcessStart, Refusal, Resume, Runs};
use crate::projects::ProjectRef;
use crate::stop::CancelMode;
use rye_journal::{Change, Filter, Summary};

/// Runs per page of a listing.
const PAGE: usize = 1000;

/// The limits of each child run: at most those of `run`, with one level of depth less. The time in turns is what `run`
/// has left.
fn limits_below(run: &Run) -> Limits {
    let own = &run.spec.limits;
    let mut limits = Limits {
        steps: None,
        spend: None,
        depth: Some(run.below.levels().saturating_sub(1)),
        spawns: run.below.spawns,
        ..own.clone()
    };
    if let Some(thread) = run.thread() {
        limits.turns = thread.limits.turns;
        limits.tokens = thread.limits.tokens;
        let most = thread.limits.duration_ms;
        limits.duration_ms = most.map(|most| most.saturating_sub(thread.used.active_ms));
    }
    limits
}

/// The limits `asked`, completed by those of the item, and capped by `above`, the limits that the parent leaves.
pub(super) fn limits_of_child(asked: &Limits, item: &Limits, above: Option<&Limits>) -> Limits {
    fn least<T: Copy + Ord>(of: impl Fn(&Limits) -> Option<T>, all: [&Limits; 3]) -> Option<T> {
        let [asked, item, above] = all;
        let own = of(asked).or_else(|| of(item));
        own.into_iter().chain(of(above)).min()
    }
    let unlimited = Limits::default();
    let all = [asked, item, above.unwrap_or(&unlimited)];
    Limits {
        depth: least(|limits| limits.depth, all),
        spawns: least(|limits| limits.spawns, all),
        turns: least(|limits| limits.turns, all),
        tokens: least(|limits| limits.tokens, all),
        duration_ms: least(|limits| limits.duration_ms, all),
        ..asked.clone()
    }
}

/// The effect of every end of a run on its managed processes: they are stopped.
pub(super) const ALWAYS: ParentEnd = ParentEnd::Follow {
    on_complete: Fate::Cancel,
    on_error: Fate::Cancel,
    on_cancel: Fate::Cancel,
};

/// The effect of the end of `parent` on a child run that it does not wait for. Graphs outlive a graph, because a user
/// started it and looks after them. Threads cost money while they live, so they follow the setting of the parent; so do
/// all child runs of a thread.
const fn unwaited(parent: &Spec, child: RunKind) -> ParentEnd {
    match (parent.kind(), child) {
        (_, RunKind::Process) | (RunKind::Process, _) => ALWAYS,
        (RunKind::Graph | RunKind::Tool, RunKind::Graph | RunKind::Tool) => ParentEnd::Detach,
        (RunKind::Thread, _) | (_, RunKind::Thread) => parent.children.follow,
    }
}

/// The refusal of a child run, as the failure of the call.
fn not_admitted(error: Error) -> Failure {
    let is_invalid = |error: &directives::Error| !matches!(error, directives::Error::Item(_));
    let code = if matches!(error, Error::Inputs { .. }) {
        MISFIT
    } else if matches!(&error, Error::Directive(error) if is_invalid(error)) {
        "directive_validation_failed"
    } else if matches!(error, Error::NoModel(_)) {
        "model_unusable"
    } else {
        return Refusal::from(error).of_item();
    };
    Failure::permanent(code, with_sources(&error))
}

/// The error of a user who starts a tool that only runs may use to start threads.
pub(super) fn of_runs_only(item: &ItemRef) -> Error {
    let message = format!(
        "`{item}` is for graphs and threads; start a directive with `ryectl thread run DIRECTIVE`"
    );
    Error::NotSupported { message }
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Self {
        Self::from(&error)
    }
}

impl Supervisor {
    async fn admit_nested(&self, order: &Nest<'_>) -> Result<Nested, Failure> {
        let Nest {
            parent,
            child: wanted,
            ..
        } = order;
        if parent.below.levels() == 0 {
            let text = format!(
                "`{}` would be too deep: at most {} levels of child runs are allowed here",
                wanted.item(),
                parent.spec.depth
            );
            return Err(Failure::permanent("depth_exceeded", text));
        }
        match wanted {
            ChildRequest::Graph { item, params } => self.nest_graph(order, item, params).await,
            ChildRequest::Thread(thread) => self.nest_thread(order, thread).await,
            ChildRequest::Tool { params, .. } => {
                let run = self.new_id(wanted.item());
                let start = Start {
                    inputs: params.clone(),
                    ..child(order, RunKind::Tool, false)
                };
                self.create_nested(run, start, Vec::new()).await
            }
        }
    }

    async fn nest_graph(
        &self,
        order: &Nest<'_>,
        item: &ItemRef,
        params: &Object,
    ) -> Result<Nested, Failure> {
        if GraphParams::resumes(params) {
            let text = "`resume`: a run is resumed by `ryectl resume` or by the orchestrator's `resume_thread`, not by a node or a call of a model";
            return Err(Failure::permanent("invalid_params", text));
        }
        let mut asked = GraphParams::read(params.clone())?;
        if asked.validate {
            return self.validated(item, order.parent).await;
        }
        let id = self.new_id(item);
        let id = asked.node.as_ref().map_or(id.clone(), |_| id.single_step());
        let continues = order.continues.clone().filter(|_| asked.node.is_none());
        let start = Start {
            inputs: std::mem::take(&mut asked.inputs),
            capabilities: asked.capabilities,
            limits: Limits {
                steps: asked.max_steps,
                depth: asked.depth,
                ..Limits::default()
            },
            start_key: start_key(order, continues.as_deref()),
            start_at: continued(continues)
                .unwrap_or_else(|| GraphParams::start_at(asked.node, asked.inject_state)),
            ..child(order, RunKind::Graph, asked.detached)
        };
        self.create_nested(id, start, Vec::new()).await
    }

    async fn nest_thread(&self, order: &Nest<'_>, thread: &ThreadOrder) -> Result<Nested, Failure> {
        let id = self.new_id(&thread.directive);
        let continues = order.continues.clone();
        let start = Start {
            inputs: thread.inputs.clone(),
            capabilities: thread.capabilities.clone(),
            limits: thread.limits.clone(),
            model: thread.model.clone(),
            provider: thread.provider.clone(),
            start_key: start_key(order, continues.as_deref()),
            start_at: continued(continues).unwrap_or_default(),
            ..child(order, RunKind::Thread, thread.is_async)
        };
        if thread.is_only_checked {
            self.admit(&id, start).await.map_err(not_admitted)?;
            return Ok(Nested::Answer(json!({
                "success": true,
                "status": "validated",
                "directive": thread.directive.id,
            })));
        }
        let warnings = thread.warning.iter().cloned().collect();
        self.create_nested(id, start, warnings).await
    }

    fn new_id(&self, item: &ItemRef) -> RunId {
        let journal = self.journal();
        RunId::generate(&item.id, journal.now().seconds(), journal.random())
    }

    async fn create_nested(
        &self,
        run: RunId,
        start: Start,
        mut warnings: Vec<String>,
    ) -> Result<Nested, Failure> {
        let admitted = self.admit(&run, start).await.map_err(not_admitted)?;
        warnings.extend(admitted.warnings);
        Ok(Nested::Create {
            run,
            spec: Arc::new(admitted.spec),
            fault: admitted.fault,
            warnings,
        })
    }

    /// Returns the descendants of `id`, each after its parent, siblings oldest first.
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

    /// Returns the runs that `run` started, newest first.
    async fn children(&self, run: &Run) -> Result<Vec<Arc<Run>>, Error> {
        let mut children = Vec::new();
        let filter = Filter {
            parent: Some(run.id.clone()),
            ..Filter::default()
        };
        for child in self.journal().list_all(&filter, PAGE).await? {
            children.push(self.run_of(&child.id).await?);
        }
        Ok(children)
    }

    async fn validated(&self, item: &ItemRef, parent: &Run) -> Result<Nested, Failure> {
        let site = ProjectRef::from(&*parent.spec);
        match self.inspector().validate(item, site, false).await {
            Ok(checked) => Ok(Nested::Answer(checked.report.to_json())),
            Err(error) => Err(Refusal::from(&error).of_item()),
        }
    }
}

/// Returns the start of a child run that continues `earlier`, the one of an earlier attempt.
fn continued(earlier: Option<Arc<Run>>) -> Option<StartAt> {
    earlier.map(|run| StartAt::Continue {
        run,
        layers: Vec::new(),
        message: None,
        same_text: false,
        failed: false,
        within: None,
    })
}

/// Returns the start key of the child run that `order` requests and that continues `earlier`.
fn start_key(order: &Nest<'_>, earlier: Option<&Run>) -> Option<String> {
    let shared = || order.callback.as_ref()?.start_key.clone();
    let continued = earlier.map(|run| continuation_key(&run.id));
    continued.or_else(shared)
}

/// A start of the child run that `order` requests, with defaults for the rest.
fn child(order: &Nest<'_>, kind: RunKind, is_async: bool) -> Start {
    let parent = order.parent;
    let caller = Layer {
        source: parent.spec.principal.clone(),
        patterns: Vec::new(),
    };
    let lineage = Lineage {
        parent: parent.id.clone(),
        spec: Arc::clone(&parent.spec),
        limits: limits_below(parent),
        key: order.key.to_owned(),
        attempt: order.attempt.clone(),
        parent_end: if is_async {
            unwaited(&parent.spec, kind)
        } else {
            ParentEnd::Wait
        },
        callback: order
            .callback
            .as_ref()
            .map(|nested| nested.callback.clone()),
    };
    let directory = PathBuf::from(&parent.spec.project);
    Start {
        lineage: Some(lineage),
        start_key: start_key(order, None),
        ..Start::of(order.child.item().clone(), directory, caller)
    }
}

impl Shared {
    fn supervisor(&self) -> Supervisor {
        let shared = self.this.upgrade();
        Supervisor {
            shared: shared.expect("the caller holds it"),
        }
    }
}

impl Runs for Shared {
    fn nest<'a>(&'a self, order: Nest<'a>) -> BoxFuture<'a, Result<Nested, Failure>> {
        let this = self.supervisor();
        Box::pin(async move { this.admit_nested(&order).await })
    }

    fn launch(&self, run: RunId) -> BoxFuture<'_, ()> {
        let this = self.supervisor();
        Box::pin(async move {
            let record = match this.run_of(&run).await {
                Ok(record) if !record.status().is_terminal() => record,
                Ok(_) => return,
                Err(error) => {
                    tracing::error!(%run, error = %with_sources(&error), "a run was not launched");
                    return;
                }
            };
            if let Err(error) = this.launch_created(record).await {
                tracing::info!(%run, error = %with_sources(&error), "a run is recovered at the next start");
            }
        })
    }

    fn settled(&self, run: RunId) -> BoxFuture<'_, Result<Arc<Run>, Refusal>> {
        let this = self.supervisor();
        Box::pin(async move {
            loop {
                this.settled(&run).await?;
                let record = this.run_of(&run).await?;
                match &record.life {
                    Life::Ended(_) => return Ok(record),
                    Life::Suspended(why) if why.reason != SuspendReason::Storage => {
                        return Ok(record);
                    }
                    Life::Suspended(_) => this.moved_on(&record).await?,
                    // It has been resumed since.
                    Life::Created | Life::Running => {}
                }
            }
        })
    }

    fn get(&self, run: RunId) -> BoxFuture<'_, Result<Arc<Run>, Refusal>> {
        let this = self.supervisor();
        Box::pin(async move { Ok(this.run_of(&run).await?) })
    }

    fn list(&self, filter: Filter) -> BoxFuture<'_, Result<Vec<Summary>, Refusal>> {
        let this = self.supervisor();
        Box::pin(async move {
            let runs = this.journal().list_all(&filter, PAGE).await;
            Ok(runs.map_err(Error::Journal)?)
        })
    }

    fn steps(&self, run: RunId) -> BoxFuture<'_, Result<Vec<Value>, Refusal>> {
        let this = self.supervisor();
        Box::pin(async move {
            let steps = this.journal().steps(&run).await.map_err(Error::Journal)?;
            Ok(steps.into_iter().map(|step| json!(step)).collect())
        })
    }

    fn newest(&self, run: RunId) -> BoxFuture<'_, Result<Arc<Run>, Refusal>> {
        let this = self.supervisor();
        Box::pin(async move { Ok(this.newest(&run).await?) })
    }

    fn has_unknown(&self, run: Arc<Run>) -> BoxFuture<'_, bool> {
        let this = self.supervisor();
        Box::pin(async move {
            let unknown = this.unknown(&run).await;
            unknown.map_or(true, |unknown| !unknown.is_empty()) || this.has_unknown_call(&run).await
        })
    }

    fn cancel(
        &self,
        run: RunId,
        cause: String,
        mode: CancelMode,
    ) -> BoxFuture<'_, Result<Arc<Run>, Refusal>> {
        let this = self.supervisor();
        Box::pin(async move { Ok(this.cancel_as(&run, &cause, mode).await?) })
    }

    fn kill(&self, run: RunId, asked: Kill) -> BoxFuture<'_, Result<(Arc<Run>, Killed), Refusal>> {
        let this = self.supervisor();
        Box::pin(async move { Ok(this.kill(&run, asked).await?) })
    }

    fn start_process(
        &self,
        request: ProcessStart,
    ) -> BoxFuture<'_, Result<(Arc<Run>, bool), Refusal>> {
        let this = self.supervisor();
        Box::pin(async move { Ok(this.start_process(request).await?) })
    }

    fn restart_process(&self, run: RunId, by: String) -> BoxFuture<'_, Result<Arc<Run>, Refusal>> {
        let this = self.supervisor();
        Box::pin(async move { Ok(this.restart_process(&run, &by).await?) })
    }

    fn process_started(&self, run: RunId) -> BoxFuture<'_, Result<Arc<Run>, Refusal>> {
        let this = self.supervisor();
        Box::pin(async move { Ok(this.process_started(&run).await?) })
    }

    fn process_ready(
        &self,
        run: RunId,
        most: Duration,
    ) -> BoxFuture<'_, Result<Arc<Run>, Refusal>> {
        let this = self.supervisor();
        Box::pin(async move { Ok(this.process_ready(&run, most).await?) })
    }

    fn watch_process(
        &self,
        run: RunId,
        rules: Vec<WatchRule>,
        from: LogCursor,
    ) -> BoxFuture<'_, Result<Arc<Run>, Refusal>> {
        let this = self.supervisor();
        Box::pin(async move { Ok(this.watch_process(&run, rules, from).await?) })
    }

    fn lines_queued(&self, process: RunId) -> BoxFuture<'_, Result<(), Refusal>> {
        let this = self.supervisor();
        Box::pin(async move { Ok(this.lines_queued(&process).await?) })
    }

    fn emit(&self, run: RunId, name: String, content: Value) -> BoxFuture<'_, Result<(), Refusal>> {
        let this = self.supervisor();
        Box::pin(async move {
            let event = Change::event(&run, Event::from(Emitted { name, content }));
            let committed = this.journal().commit(vec![event]).await;
            committed.map_err(Error::Journal)?;
            Ok(())
        })
    }

    fn resume(&self, run: RunId, request: Resume) -> BoxFuture<'_, Result<Arc<Run>, Refusal>> {
        let this = self.supervisor();
        Box::pin(async move { Ok(this.resume(&run, request).await?) })
    }

    fn cost(&self, run: Arc<Run>) -> BoxFuture<'_, Result<Cost, Refusal>> {
        let this = self.supervisor();
        Box::pin(async move {
            let cost = this.journal().cost(&run.spec.budget.account).await;
            Ok(cost.map_err(Error::Journal)?)
        })
    }

    fn budget_path(&self, run: Arc<Run>) -> BoxFuture<'_, Result<Vec<AccountView>, Refusal>> {
        let this = self.supervisor();
        Box::pin(async move { Ok(this.budget_path(&run).await?) })
    }

    fn budget_tree(
        &self,
        run: Arc<Run>,
    ) -> BoxFuture<'_, Result<Vec<(u32, AccountView)>, Refusal>> {
        let this = self.supervisor();
        Box::pin(async move { Ok(this.budget_tree(&run).await?) })
    }

    fn affords(&self, run: &Run, share: Usd) -> Result<(), Denied> {
        self.supervisor().affords(run, share)
    }
}
