//! Child runs: how they are created, and what drivers and native tools may ask of the owner of all runs.
//!
//! A child run has the authority of its parent, narrowed by what it declares and by what the action names, lies within
//! its parent's depth, and may start no more runs than its parent may. A run that its parent does not wait for (`async: true`) is left alone when its parent is stopped.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use futures_util::future::BoxFuture;
use rye_core::definition;
use rye_core::error::with_sources;
use rye_core::id::RunId;
use rye_core::ledger::{Cost, Denied};
use rye_core::model::{
    Event, Failure, Fate, Kill, KillReceipt, Life, Limits, ParentEnd, Run, RunEvent, RunKind, Spec,
    SuspendReason,
};
use rye_core::money::Usd;
use serde_json::{Value, json};

use super::asked::Asked;
use super::resume::continuation_key;
use super::{Error, Lineage, Shared, Start, StartAt, Supervisor};
use crate::journal::{Change, Filter, Summary};
use crate::port::{AccountView, Nest, Nested, Refusal, Resume, Runs};

/// Levels of child runs of a run that nobody limited.
const MOST_DEPTH: u32 = 10;
/// Runs that are gathered in one go.
const PAGE: usize = 1000;

/// How far down the descendants of a run are listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    /// Those it started itself.
    Children,
    /// All of them.
    Tree,
}

/// How many levels of child runs a run may have.
fn levels_below(spec: &Spec) -> u32 {
    spec.limits.depth.unwrap_or(MOST_DEPTH)
}

/// The limits of a run for which these are `asked`, with those of its graph where they name none of its child runs; and never more of
/// these than the run `above`, which asks for it, has.
pub(super) fn limits_of_children(
    asked: &Limits,
    graph: definition::Limits,
    above: Option<&Spec>,
) -> Limits {
    let least = |own: Option<u32>, above: Option<u32>| own.into_iter().chain(above).min();
    let depth_left = above.map(|above| levels_below(above).saturating_sub(1));
    Limits {
        depth: least(asked.depth.or(graph.depth), depth_left),
        spawns: least(
            asked.spawns.or(graph.spawns),
            above.and_then(|above| above.limits.spawns),
        ),
        ..asked.clone()
    }
}

/// What the end of a run of this kind means for one that it does not wait for. A person who started a graph looks after what that
/// left; a thread that fails or is cancelled leaves nothing running that its model began.
const fn detached(parent: RunKind) -> ParentEnd {
    match parent {
        RunKind::Graph | RunKind::Tool => ParentEnd::Detach,
        RunKind::Thread => ParentEnd::Follow {
            on_complete: Fate::Leave,
            on_error: Fate::Cancel,
            on_cancel: Fate::Cancel,
        },
    }
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Self {
        Self::from(&error)
    }
}

impl Supervisor {
    async fn admit_nested(&self, order: &Nest<'_>) -> Result<Nested, Failure> {
        let parent = order.parent;
        if levels_below(&parent.spec) == 0 {
            let text = format!(
                "`{}` would be too deep: at most {} levels of child runs are allowed here",
                order.item, parent.spec.depth
            );
            return Err(Failure::permanent("depth_exceeded", text));
        }
        if Asked::resumes(&order.params) {
            let text = "`resume`: a run is resumed by `ryectl resume` or by the orchestrator's `resume_thread`, not by a node or a call of a model";
            return Err(Failure::permanent("invalid_params", text));
        }
        let mut asked = Asked::read(order.params.clone())?;
        if asked.validate {
            return self.validated(order).await;
        }
        let journal = self.journal();
        let id = RunId::generate(&order.item.id, journal.now().seconds(), journal.random());
        let id = asked.node.as_ref().map_or(id.clone(), |_| id.single_step());
        let continues = order.continues.clone().filter(|_| asked.node.is_none());
        let start = Start {
            item: order.item.clone(),
            directory: PathBuf::from(&parent.spec.project),
            inputs: std::mem::take(&mut asked.inputs),
            text_inputs: BTreeMap::new(),
            capabilities: asked.capabilities,
            limits: Limits {
                steps: asked.max_steps,
                depth: asked.depth,
                ..Limits::default()
            },
            model: None,
            provider: None,
            durability: None,
            start_key: continues.as_ref().map(|run| continuation_key(&run.id)),
            caller: rye_core::capability::Layer {
                source: parent.spec.principal.clone(),
                patterns: Vec::new(),
            },
            start_at: match continues {
                Some(run) => StartAt::Continue {
                    run,
                    layers: Vec::new(),
                },
                None => Asked::start_at(asked.node, asked.inject_state),
            },
            lineage: Some(Lineage {
                parent: parent.id.clone(),
                spec: Arc::clone(&parent.spec),
                key: order.key.to_owned(),
                parent_end: if asked.detached {
                    detached(parent.spec.kind)
                } else {
                    ParentEnd::Wait
                },
            }),
        };
        let admitted = self.admit(&id, start).await;
        let admitted = admitted.map_err(|error| Refusal::from(error).of_item())?;
        for warning in &admitted.warnings {
            tracing::warn!(run = %id, "{warning}");
        }
        Ok(Nested::Create {
            run: id,
            spec: Arc::new(admitted.spec),
            fault: admitted.fault,
        })
    }

    /// The descendants of `id`: each behind its parent, siblings oldest first.
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

    async fn validated(&self, order: &Nest<'_>) -> Result<Nested, Failure> {
        let directory = Path::new(&order.parent.spec.project);
        match self.inspector().validate(order.item, directory).await {
            Ok(checked) => Ok(Nested::Answer(checked.report.to_json())),
            Err(error) => Err(Refusal::from(&error).of_item()),
        }
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
                    // It was suspended, and somebody has resumed it already.
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
            unknown.map_or(true, |unknown| !unknown.is_empty())
        })
    }

    fn cancel(&self, run: RunId, cause: String) -> BoxFuture<'_, Result<Arc<Run>, Refusal>> {
        let this = self.supervisor();
        Box::pin(async move { Ok(this.cancel(&run, &cause).await?) })
    }

    fn kill(
        &self,
        run: RunId,
        asked: Kill,
    ) -> BoxFuture<'_, Result<(Arc<Run>, KillReceipt), Refusal>> {
        let this = self.supervisor();
        Box::pin(async move { Ok(this.kill(&run, asked).await?) })
    }

    fn emit(&self, run: RunId, name: String, content: Value) -> BoxFuture<'_, Result<(), Refusal>> {
        let this = self.supervisor();
        Box::pin(async move {
            let event = Change::event(&run, Event::Run(RunEvent::Emitted { name, content }));
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
