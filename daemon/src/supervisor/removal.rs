//! Removal of ended runs: the runs that are removed together, and the trees that a prune selects.
//!
//! **Owns** the definition of a tree: the runs that a run started, those that continue it, and so on. They are removed
//! with it, deepest first, so an interrupted removal leaves whole trees. A top-level run that continues none is the
//! root of a tree. **Never** removes a run that has not ended, or that a live run above it may still need.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use rye_core::clock::Timestamp;
use rye_core::id::RunId;
use rye_core::model::Status;
use serde::{Deserialize, Serialize};

use super::error::Error;
use super::handle::Supervisor;
use rye_host::task;
use rye_journal::{Filter, RemovedRun, Summary};

/// Number of runs in one listing.
const PAGE: usize = 1000;
/// Number of runs after which a page of a prune ends.
const PRUNED_TOGETHER: usize = 1000;

/// Selection of trees for a prune.
#[derive(Debug, Clone, Default)]
pub struct Prune {
    /// Filter for the roots.
    pub filter: Filter,
    /// Minimum time since the last event in the tree.
    pub older_than: Duration,
    /// Number of newest trees to keep in each project.
    pub keep: usize,
    /// Permitted final statuses of the newest run; an empty list permits all.
    pub statuses: Vec<Status>,
    /// True if nothing is removed.
    pub dry_run: bool,
}

/// One page of a prune.
#[derive(Debug, Default)]
pub struct Pruned {
    /// The runs that were removed, or would be in a dry run.
    pub runs: Vec<RemovedRun>,
    /// Start of the next page; `None` on the last one.
    pub next: Option<PruneToken>,
}

/// Position of a prune.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PruneToken {
    list: Option<String>,
    /// Number of visited trees in each project.
    passed: HashMap<String, usize>,
}

/// A run and all runs that are removed with it, deepest first.
#[derive(Debug, Default)]
struct Tree {
    runs: Vec<Summary>,
}

impl Tree {
    /// The first of its runs that has not ended.
    fn live(&self) -> Option<&Summary> {
        self.runs.iter().find(|run| !run.status.is_terminal())
    }

    fn newest(&self) -> Option<&Summary> {
        self.runs.iter().max_by_key(|run| run.updated_at)
    }

    fn ids(&self) -> impl Iterator<Item = &RunId> {
        self.runs.iter().map(|run| &run.id)
    }
}

impl Prune {
    fn selects(&self, tree: &Tree, now: Timestamp) -> bool {
        let Some(newest) = tree.newest().filter(|_| tree.live().is_none()) else {
            return false;
        };
        let age = u128::from(now.ms_since(newest.updated_at));
        let has_status = self.statuses.is_empty() || self.statuses.contains(&newest.status);
        age >= self.older_than.as_millis() && has_status
    }
}

impl Supervisor {
    /// Removes the trees of `roots` on behalf of `by`. The removal is durable when this returns.
    pub async fn remove(&self, roots: &[RunId], by: &str) -> Result<Vec<RemovedRun>, Error> {
        let mut runs: Vec<RunId> = Vec::new();
        let mut known = HashSet::new();
        let mut parents = Vec::new();
        for root in roots {
            let root = Summary::of(&*self.run_of(root).await?);
            parents.extend(root.parent.clone().map(|parent| (root.id.clone(), parent)));
            let tree = self.tree(root).await?;
            if let Some(live) = tree.live() {
                let problem = "it has not ended; `ryectl kill` ends it".to_owned();
                let run = live.id.clone();
                return Err(Error::Unfit { run, problem });
            }
            let new = tree.ids().filter(|id| known.insert((*id).clone()));
            runs.extend(new.cloned());
        }
        for (run, parent) in parents {
            self.refuse_live_parent(run, parent).await?;
        }
        Ok(self.remove_runs(&runs, by).await?)
    }

    /// Removes `runs`, and the output of managed processes among them.
    async fn remove_runs(
        &self,
        runs: &[RunId],
        by: &str,
    ) -> Result<Vec<RemovedRun>, rye_journal::Error> {
        let removed = self.journal().remove(runs, by).await?;
        let ids = removed.iter().map(|removed| removed.run.clone()).collect();
        self.remove_output(ids).await;
        Ok(removed)
    }

    /// Removes what processes of the removed `runs` have printed. What cannot be removed is swept at the next start.
    async fn remove_output(&self, runs: Vec<RunId>) {
        let services = Arc::clone(self.services());
        let work = move || {
            for run in runs {
                if let Err(error) = services.process_logs.remove(&run) {
                    tracing::warn!(%run, %error, "the output of a removed process is still there");
                }
            }
        };
        task::blocking("remove the output of processes", work).await;
    }

    /// Removes the output of processes whose runs were removed, by a daemon that was interrupted.
    pub(super) async fn sweep_output(&self) -> Result<(), Error> {
        let services = Arc::clone(self.services());
        let list = move || services.process_logs.runs();
        let kept = task::blocking("list the output of processes", list).await;
        let kept = kept.unwrap_or_else(|error| {
            tracing::warn!(%error, "the output of processes cannot be listed");
            Vec::new()
        });
        let mut gone = Vec::new();
        for run in kept {
            if self.journal().run(&run).await?.is_none() {
                gone.push(run);
            }
        }
        self.remove_output(gone).await;
        Ok(())
    }

    /// Fails if a run above `run` has not ended.
    async fn refuse_live_parent(&self, run: RunId, parent: RunId) -> Result<(), Error> {
        let mut next = Some(parent);
        while let Some(id) = next.take() {
            let Some(above) = self.journal().run(&id).await? else {
                return Ok(());
            };
            if !above.status().is_terminal() {
                let problem = format!("run {id}, which is above it, has not ended and may need it");
                return Err(Error::Unfit { run, problem });
            }
            next.clone_from(&above.spec.parent);
        }
        Ok(())
    }

    /// Removes one page of the trees that `prune` selects, newest first.
    pub async fn prune(&self, prune: &Prune, token: PruneToken, by: &str) -> Result<Pruned, Error> {
        let PruneToken { list, mut passed } = token;
        let now = self.journal().now();
        let page = self.journal().list(&prune.filter, list.as_deref(), PAGE);
        let page = page.await?;
        let mut selected: Vec<Tree> = Vec::new();
        let mut count = 0;
        let mut next = page.next;
        for run in page.runs {
            if run.parent.is_some() || run.continuation_of.is_some() {
                continue;
            }
            let position = rye_journal::page_token(&run);
            let passed = passed.entry(run.project.clone()).or_default();
            *passed += 1;
            if *passed <= prune.keep {
                continue;
            }
            let tree = self.tree(run).await?;
            if prune.selects(&tree, now) {
                count += tree.runs.len();
                selected.push(tree);
            }
            if count >= PRUNED_TOGETHER {
                next = Some(position);
                break;
            }
        }
        let runs = if prune.dry_run {
            let runs = selected.iter().flat_map(|tree| &tree.runs);
            runs.map(|run| RemovedRun {
                run: run.id.clone(),
                files: run.project.as_str().into(),
                item: run.item.id.as_str().into(),
                start_key: None,
            })
            .collect()
        } else {
            self.remove_trees(&selected, by).await?
        };
        let next = next.map(|list| PruneToken {
            list: Some(list),
            passed,
        });
        Ok(Pruned { runs, next })
    }

    /// Removes `trees` together. If that is refused, removes them one by one, and keeps those that are needed.
    async fn remove_trees(&self, trees: &[Tree], by: &str) -> Result<Vec<RemovedRun>, Error> {
        let all: Vec<RunId> = trees.iter().flat_map(Tree::ids).cloned().collect();
        match self.remove_runs(&all, by).await {
            Err(rye_journal::Error::Refused(_)) => {}
            removed => return Ok(removed?),
        }
        let mut removed = Vec::new();
        for tree in trees {
            let runs: Vec<RunId> = tree.ids().cloned().collect();
            match self.remove_runs(&runs, by).await {
                Ok(runs) => removed.extend(runs),
                Err(rye_journal::Error::Refused(refused)) => {
                    tracing::info!(%refused, "runs are kept that were to be pruned");
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(removed)
    }

    /// Returns the tree of `root`: the runs it started, those that continue it, and so on.
    async fn tree(&self, root: Summary) -> Result<Tree, Error> {
        let mut known = HashSet::from([root.id.clone()]);
        let mut runs = vec![root];
        let mut next = 0;
        while let Some(run) = runs.get(next).cloned() {
            next += 1;
            let below = Filter {
                parent: Some(run.id.clone()),
                ..Filter::default()
            };
            let mut found = self.journal().list_all(&below, PAGE).await?;
            if let Some(continued) = self.continued_by(&run).await?
                && let Some(continued) = self.journal().run(&continued).await?
            {
                found.push(Summary::of(&continued));
            }
            let new = found.into_iter().filter(|run| known.insert(run.id.clone()));
            runs.extend(new);
        }
        runs.reverse();
        Ok(Tree { runs })
    }
}
