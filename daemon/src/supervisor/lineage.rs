//! Runs below runs: how they come to be, and how a request to stop reaches them.
//!
//! **Order.** A run that is cancelled tells the runs it waits for; a run that is killed ends first, so that it starts no further
//! one, then those below it. A run that its parent did not wait for (`async: true`) is left alone.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rye_core::error::{ErrorKind, Kinded as _, chain as told};
use rye_core::id::RunId;
use rye_core::model::{Failure, KillReceipt, Limits, Outcome, Phase, Run, Status, SuspendReason};
use serde_json::{Value, json};

use super::asked::Asked;
use super::{Beginning, Error, Lineage, Start, Supervisor, admission};
use crate::journal::{Filter, Page, Summary};
use crate::port::{Answering, Nest, Nested, Refusal, Resume, Runs};

/// Levels of runs below a run that nobody limited.
const MOST_DEPTH: u32 = 10;
/// Runs below one run that are looked at in one go.
const PAGE: usize = 1000;

impl From<Error> for Refusal {
    fn from(error: Error) -> Self {
        Self {
            kind: error.kind(),
            message: told(&error),
        }
    }
}

impl Supervisor {
    /// Runs that `id` started and waits for, and that have not ended.
    async fn attached(&self, id: &RunId) -> Result<Vec<Arc<Run>>, Error> {
        let filter = Filter {
            statuses: vec![Status::Created, Status::Running, Status::Suspended],
            parent: Some(id.clone()),
            ..Filter::default()
        };
        let page = self.journal().list(&filter, None, PAGE).await?;
        let mut attached = Vec::new();
        for Summary { id, .. } in page.runs {
            let run = self.run_of(&id).await?;
            if !run.birth.detached && !run.status().is_terminal() {
                attached.push(run);
            }
        }
        Ok(attached)
    }

    /// Asks the runs below `id` to stop, because it was.
    pub(super) async fn cancel_below(&self, id: &RunId) -> Result<(), Error> {
        for run in self.attached(id).await? {
            let cause = format!("its parent {id}");
            match Box::pin(self.cancel(&run.id, &cause)).await {
                Ok(_) | Err(Error::Over { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Ends the runs below `id`, which has ended.
    pub(super) async fn kill_below(
        &self,
        id: &RunId,
        grace: Duration,
    ) -> Result<KillReceipt, Error> {
        let mut receipt = KillReceipt::default();
        for run in self.attached(id).await? {
            let cause = format!("its parent {id}");
            match Box::pin(self.kill(&run.id, &cause, grace)).await {
                Ok(run) => {
                    if let Phase::Ended {
                        outcome: Outcome::Killed { receipt: ended },
                    } = &run.phase
                    {
                        receipt.merge(ended.clone());
                    }
                }
                Err(Error::Over { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(receipt)
    }

    /// Whether `run` waits for a parent that is gone: its parent was killed, and the daemon with it before the kill reached it.
    pub(super) async fn is_orphan(&self, run: &Run) -> bool {
        let Some(parent) = run.birth.parent.as_ref().filter(|_| !run.birth.detached) else {
            return false;
        };
        match self.run_of(parent).await {
            Ok(parent) => parent.status().is_terminal(),
            Err(Error::UnknownRun { .. }) => true,
            Err(_) => false,
        }
    }

    fn admit_nested(&self, order: &Nest<'_>) -> Result<Nested, Failure> {
        let parent = order.parent;
        let levels = parent.birth.limits.depth.unwrap_or(MOST_DEPTH);
        let Some(left) = levels.checked_sub(1) else {
            let text = format!(
                "`{}` would lie deeper than its limit of {MOST_DEPTH} levels of runs allows",
                order.item
            );
            return Err(Failure::permanent("depth_exceeded", text));
        };
        let mut asked = Asked::read(order.params.clone())?;
        if asked.resume.is_some() {
            let text = "a run is resumed by `ryectl resume` or by the orchestrator's `resume_thread`, not by a node";
            return Err(Failure::permanent("invalid_params", text));
        }
        if asked.validate {
            return self.validated(order);
        }
        let depth = asked.depth.map_or(left, |depth| depth.min(left));
        let shared = &self.shared;
        let id = RunId::generate(
            &order.item.id,
            shared.journal.now().seconds(),
            shared.journal.random(),
        );
        let id = asked.node.as_ref().map_or(id.clone(), |_| id.single_step());
        let start = Start {
            item: order.item.clone(),
            directory: PathBuf::from(&parent.birth.project),
            inputs: std::mem::take(&mut asked.inputs),
            text_inputs: BTreeMap::new(),
            capabilities: asked.capabilities,
            limits: Limits {
                steps: asked.max_steps,
                depth: Some(depth),
            },
            durability: None,
            start_key: None,
            caller: rye_core::capability::Layer {
                source: parent.birth.principal.clone(),
                patterns: Vec::new(),
            },
            beginning: match asked.node {
                Some(node) => Beginning::Node {
                    node,
                    inject_state: asked.inject_state,
                    from: None,
                },
                None => Beginning::Start,
            },
            lineage: Some(Lineage {
                parent: parent.id.clone(),
                birth: Arc::clone(&parent.birth),
                key: order.key.to_owned(),
                detached: asked.detached,
            }),
        };
        let admitted = admission::admit(&shared.libraries, &shared.config, &id, start)
            .map_err(|error| refused(&error))?;
        for warning in &admitted.warnings {
            tracing::warn!(run = %id, "{warning}");
        }
        Ok(Nested::Create {
            run: id,
            birth: Arc::new(admitted.birth),
            fault: admitted.fault,
        })
    }

    fn validated(&self, order: &Nest<'_>) -> Result<Nested, Failure> {
        let directory = Path::new(&order.parent.birth.project);
        match self.validate(order.item, directory) {
            Ok(checked) => Ok(Nested::Answer(checked.report.to_json())),
            Err(error) => Err(refused(&error)),
        }
    }
}

/// Why a run below was not admitted, as the failure of the step that asked.
fn refused(error: &Error) -> Failure {
    let code = match error.kind() {
        ErrorKind::NotFound => "item_not_found",
        ErrorKind::Invalid | ErrorKind::Exists | ErrorKind::Precondition => "invalid_action",
        ErrorKind::Denied => "item_refused",
        ErrorKind::Exhausted => "resource_exhausted",
        ErrorKind::Unavailable => "unavailable",
        ErrorKind::DataLoss | ErrorKind::Bug => "internal",
    };
    Failure::permanent(code, told(error))
}

impl Runs for Supervisor {
    fn nest(&self, order: Nest<'_>) -> Result<Nested, Failure> {
        self.admit_nested(&order)
    }

    fn launch(&self, run: RunId) -> Answering<'_, ()> {
        Box::pin(async move {
            let record = match self.run_of(&run).await {
                Ok(record) if !record.status().is_terminal() => record,
                Ok(_) => return,
                Err(error) => {
                    tracing::error!(%run, error = %told(&error), "a run was not launched");
                    return;
                }
            };
            if let Err(error) = self.launch_created(record).await {
                tracing::info!(%run, error = %told(&error), "a run goes on at the next start");
            }
        })
    }

    fn settled(&self, run: RunId) -> Answering<'_, Result<Arc<Run>, Refusal>> {
        Box::pin(async move {
            loop {
                Supervisor::settled(self, &run).await?;
                let record = self.run_of(&run).await?;
                let Phase::Suspended { why, .. } = &record.phase else {
                    return Ok(record);
                };
                if why.reason != SuspendReason::Storage {
                    return Ok(record);
                }
                self.moved_on(&record).await?;
            }
        })
    }

    fn get(&self, run: RunId) -> Answering<'_, Result<Arc<Run>, Refusal>> {
        Box::pin(async move { Ok(self.run_of(&run).await?) })
    }

    fn list(&self, filter: Filter) -> Answering<'_, Result<Page, Refusal>> {
        Box::pin(async move {
            let page = self.journal().list(&filter, None, PAGE).await;
            Ok(page.map_err(Error::Journal)?)
        })
    }

    fn steps(&self, run: RunId) -> Answering<'_, Result<Vec<Value>, Refusal>> {
        Box::pin(async move {
            let steps = self.journal().steps(&run).await.map_err(Error::Journal)?;
            Ok(steps.into_iter().map(|step| json!(step)).collect())
        })
    }

    fn newest(&self, run: RunId) -> Answering<'_, Result<Arc<Run>, Refusal>> {
        Box::pin(async move { Ok(Supervisor::newest(self, &run).await?) })
    }

    fn cancel(&self, run: RunId, cause: String) -> Answering<'_, Result<Arc<Run>, Refusal>> {
        Box::pin(async move { Ok(Supervisor::cancel(self, &run, &cause).await?) })
    }

    fn kill(
        &self,
        run: RunId,
        cause: String,
        grace: Duration,
    ) -> Answering<'_, Result<Arc<Run>, Refusal>> {
        Box::pin(async move { Ok(Supervisor::kill(self, &run, &cause, grace).await?) })
    }

    fn resume(&self, run: RunId, request: Resume) -> Answering<'_, Result<Arc<Run>, Refusal>> {
        Box::pin(async move { Ok(Supervisor::resume(self, &run, request).await?) })
    }
}
