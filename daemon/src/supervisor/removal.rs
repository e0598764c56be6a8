//! Removing runs that have ended: which runs go together, and which trees are old enough.
//!
//! **Owns** what belongs to a run: the runs that it started, those that continue it, and so on. These are removed with it, deepest first, so
//! that what an interrupted removal leaves is whole. A tree begins at a run that no other run started and that continues none.
//! **Never** removes a run that has not ended, or of whose tree something is live above it: that may still ask for it.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use rye_core::clock::Timestamp;
use rye_core::id::RunId;
use rye_core::model::Status;
use serde::{Deserialize, Serialize};

use super::error::Error;
use super::handle::Supervisor;
use rye_journal::{Filter, RemovedRun, Summary};

/// Runs that are gathered in one go.
const PAGE: usize = 1000;
/// Runs after which a page of a prune ends.
const PRUNED_TOGETHER: usize = 1000;

/// The trees that a prune selects.
#[derive(Debug, Clone, Default)]
pub struct Prune {
    /// Runs of these.
    pub filter: Filter,
    /// Nothing has happened in them for so long.
    pub older_than: Duration,
    /// The newest trees of each project that stay.
    pub keep: usize,
    /// The newest run ended with one of these; with any if there are none.
    pub statuses: Vec<Status>,
    /// Nothing is removed.
    pub dry_run: bool,
}

/// A page of a prune.
#[derive(Debug, Default)]
pub struct Pruned {
    /// The runs that were removed, or would be.
    pub runs: Vec<RemovedRun>,
    /// Where the next page begins; `None` on the last one.
    pub next: Option<PruneToken>,
}

/// Where a prune continues.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PruneToken {
    list: Option<String>,
    /// Trees of each project that were passed.
    passed: HashMap<String, usize>,
}

/// A run, and all that are removed with it, deepest first.
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
    /// Removes `roots` and all that goes with them, on behalf of `by`. On return that is durable.
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
        Ok(self.journal().remove(&runs, by).await?)
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

    /// Removes trees that `prune` selects, some of them at a time, the newest first.
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

    /// Removes `trees` together; those of which a run is needed meanwhile stay.
    async fn remove_trees(&self, trees: &[Tree], by: &str) -> Result<Vec<RemovedRun>, Error> {
        let all: Vec<RunId> = trees.iter().flat_map(Tree::ids).cloned().collect();
        match self.journal().remove(&all, by).await {
            Err(rye_journal::Error::Refused(_)) => {}
            removed => return Ok(removed?),
        }
        let mut removed = Vec::new();
        for tree in trees {
            let runs: Vec<RunId> = tree.ids().cloned().collect();
            match self.journal().remove(&runs, by).await {
                Ok(runs) => removed.extend(runs),
                Err(rye_journal::Error::Refused(refused)) => {
                    tracing::info!(%refused, "runs are kept that were to be pruned");
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(removed)
    }

    /// `root` with the runs that it started and those that continue it, and so on.
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
