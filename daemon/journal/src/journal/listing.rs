//! Finds runs: one by id or start key, many by filter. Runs in memory come first, ended ones are found through the
//! index. While the index is opened, requests wait for it, and fail after a while with that reason.

use std::collections::{HashMap, HashSet};
use std::ops::ControlFlow;
use std::sync::Arc;

use rye_core::access::{Caller, Scope};
use rye_core::clock::Timestamp;
use rye_core::id::{ItemId, Lsn, RunId};
use rye_core::ledger::{AccountId, Cost};
use rye_core::model::{Run, RunKind, Status};
use rye_core::state::{self, Age};

use super::handle::Journal;
use crate::error::Error;
use crate::index::{KeyOwner, Summary};
use crate::sequencer::{Order, Ticket};

/// Filter on listed runs; an empty or absent field matches all runs.
#[derive(Debug, Clone, Default)]
pub struct Filter {
    /// Any of these.
    pub statuses: Vec<Status>,
    /// Parent run.
    pub parent: Option<RunId>,
    pub project: Option<String>,
    pub principal: Option<String>,
    pub item: Option<ItemId>,
    pub kind: Option<RunKind>,
}

impl Filter {
    /// Restricts the filter to the runs that `caller` may see.
    #[must_use]
    pub fn visible_to(self, caller: Caller<'_>) -> Self {
        let Scope { principal, project } = caller.scope();
        Self {
            principal: Some(principal.to_owned()),
            project: project.map(str::to_owned).or(self.project),
            ..self
        }
    }

    /// True if the filter can match a run that has ended.
    fn admits_ended(&self) -> bool {
        self.statuses.is_empty() || self.statuses.iter().any(|status| status.is_terminal())
    }

    fn passes(&self, run: &Traits<'_>) -> bool {
        let has =
            |wanted: Option<&String>, value: &str| wanted.is_none_or(|wanted| wanted == value);
        (self.statuses.is_empty() || self.statuses.contains(&run.status))
            && self.parent.as_ref().is_none_or(|id| run.parent == Some(id))
            && has(self.project.as_ref(), run.project)
            && has(self.principal.as_ref(), run.principal)
            && self.item.as_ref().is_none_or(|item| run.item == item)
            && self.kind.is_none_or(|kind| run.kind == kind)
    }
}

/// Properties that a filter checks, of a record or of its short form.
struct Traits<'a> {
    status: Status,
    parent: Option<&'a RunId>,
    project: &'a str,
    principal: &'a str,
    item: &'a ItemId,
    kind: RunKind,
}

impl<'a> From<&'a Run> for Traits<'a> {
    fn from(run: &'a Run) -> Self {
        let spec = &run.spec;
        Self {
            status: run.status(),
            parent: spec.parent.as_ref(),
            project: &spec.project,
            principal: &spec.principal,
            item: &spec.item.id,
            kind: spec.kind(),
        }
    }
}

impl<'a> From<&'a Summary> for Traits<'a> {
    fn from(run: &'a Summary) -> Self {
        Self {
            status: run.status,
            parent: run.parent.as_ref(),
            project: &run.project,
            principal: &run.principal,
            item: &run.item.id,
            kind: run.kind,
        }
    }
}

/// Runs, newest first.
#[derive(Debug, Clone, PartialEq)]
pub struct Page {
    pub runs: Vec<Summary>,
    /// Token of the next page; `None` on the last one.
    pub next: Option<String>,
}

/// Returns the token of the page that follows `run`.
pub fn page_token(run: &Summary) -> String {
    format!("{}.{}", run.created_at.ms(), run.id)
}

fn read_token(token: &str) -> Result<Age, Error> {
    token
        .split_once('.')
        .and_then(|(ms, id)| {
            let id = RunId::new(id).ok()?;
            Some((Timestamp::from_ms(ms.parse().ok()?), id))
        })
        .ok_or_else(|| Error::PageToken {
            token: token.to_owned(),
        })
}

impl Journal {
    /// Returns the record of a run after it is durable; `None` if there is no such run.
    pub async fn run(&self, id: &RunId) -> Result<Option<Arc<Run>>, Error> {
        if let Some((run, lsn)) = self.sequencer.snapshot(id) {
            self.durable(Ticket { lsn }).await?;
            return Ok(Some(run));
        }
        Ok(self.runs.ended_whole(id).await?.map(|stored| stored.run))
    }

    /// Returns the run that `principal` started with `key` after it is durable.
    pub async fn by_start_key(
        &self,
        principal: &str,
        key: &str,
    ) -> Result<Option<KeyOwner>, Error> {
        let live = {
            let sequencer = self.sequencer.lock();
            let id = sequencer.state.by_key(principal, key);
            id.and_then(|id| Some((id.clone(), sequencer.positions.get(id)?.lsn)))
        };
        if let Some((id, lsn)) = live {
            self.durable(Ticket { lsn }).await?;
            return Ok(Some(KeyOwner::Run(id)));
        }
        let (principal, key) = (principal.to_owned(), key.to_owned());
        let owner = self
            .runs
            .look_up(move |index| index.by_start_key(&principal, &key))
            .await?;
        // The index may still list a removed run.
        let owner = match owner {
            Some(KeyOwner::Run(run)) if self.sequencer.is_gone(&run) => {
                Some(KeyOwner::Removed(run, self.now()))
            }
            Some(KeyOwner::Run(_) | KeyOwner::Removed(..)) | None => owner,
        };
        let kept_since = self.compactor.keys_kept_since();
        Ok(owner.filter(|owner| match owner {
            KeyOwner::Run(_) => true,
            KeyOwner::Removed(_, at) => *at >= kept_since,
        }))
    }

    /// Returns at most `limit` runs that match `filter`, newest first, from `page_token` on.
    pub async fn list(
        &self,
        filter: &Filter,
        page_token: Option<&str>,
        limit: usize,
    ) -> Result<Page, Error> {
        let before = page_token.map(read_token).transpose()?;
        let (runs, shown) = self.list_memory(filter, before.as_ref(), limit.saturating_add(1));
        let page = self.with_ended(runs, filter, before, limit).await?;
        self.durable(Ticket { lsn: shown }).await?;
        Ok(page)
    }

    /// As [`Journal::list`], with the cost of the account of each run and all accounts below it.
    pub async fn list_with_costs(
        &self,
        filter: &Filter,
        page_token: Option<&str>,
        limit: usize,
    ) -> Result<(Page, Vec<Cost>), Error> {
        let before = page_token.map(read_token).transpose()?;
        let (runs, shown) = self.list_memory(filter, before.as_ref(), limit.saturating_add(1));
        // The state of runs in memory becomes durable while the index is read.
        let accounts: Vec<AccountId> = runs.iter().map(|run| run.account.clone()).collect();
        let (known, spent) = self.costs_in_memory(&accounts);
        let page = self.with_ended(runs, filter, before, limit).await?;
        let mut costs: HashMap<AccountId, Cost> = accounts
            .into_iter()
            .zip(known)
            .filter_map(|(account, cost)| Some((account, cost?)))
            .collect();
        let shown_accounts = page.runs.iter().map(|run| &run.account);
        let others: Vec<AccountId> = shown_accounts
            .filter(|account| !costs.contains_key(*account))
            .cloned()
            .collect();
        let costs_of_others = self.costs(&others).await?;
        costs.extend(others.into_iter().zip(costs_of_others));
        let lsn = shown.max(spent);
        self.durable(Ticket { lsn }).await?;
        let costs = page.runs.iter().map(|run| costs[&run.account]).collect();
        Ok((page, costs))
    }

    /// Returns a page of `runs`, which are in memory, and of runs that have ended.
    async fn with_ended(
        &self,
        mut runs: Vec<Summary>,
        filter: &Filter,
        before: Option<Age>,
        limit: usize,
    ) -> Result<Page, Error> {
        let wanted = limit.saturating_add(1);
        // The index holds only ended runs: it is searched only if these can match.
        let ended = if filter.admits_ended() {
            let filter = filter.clone();
            // A run that ends during the search may be found in both places.
            let found_before: HashSet<RunId> = runs.iter().map(|run| run.id.clone()).collect();
            let sequencer = Arc::clone(&self.sequencer);
            self.runs
                .look_up(move |index| {
                    let mut found = Vec::new();
                    index.newest_first(filter.parent.as_ref(), before.as_ref(), |run| {
                        let is_new = !found_before.contains(&run.id) && !sequencer.is_gone(&run.id);
                        if filter.passes(&Traits::from(&run)) && is_new {
                            found.push(run);
                        }
                        if found.len() < wanted {
                            ControlFlow::Continue(())
                        } else {
                            ControlFlow::Break(())
                        }
                    })?;
                    Ok(found)
                })
                .await?
        } else {
            Vec::new()
        };
        runs.extend(ended);
        runs.sort_by(|a, b| (b.created_at, &b.id).cmp(&(a.created_at, &a.id)));
        let more = runs.len() > limit;
        runs.truncate(limit);
        let next = runs.last().filter(|_| more).map(page_token);
        Ok(Page { runs, next })
    }

    /// Returns all runs that match `filter`, newest first, read in pages of `page` runs.
    pub async fn list_all(&self, filter: &Filter, page: usize) -> Result<Vec<Summary>, Error> {
        let mut runs = Vec::new();
        let mut token: Option<String> = None;
        loop {
            let found = self.list(filter, token.as_deref(), page).await?;
            runs.extend(found.runs);
            token = found.next;
            if token.is_none() {
                return Ok(runs);
            }
        }
    }

    /// Returns the present record of a run in memory, which may not be durable yet.
    pub fn snapshot(&self, id: &RunId) -> Option<Arc<Run>> {
        Some(self.sequencer.snapshot(id)?.0)
    }

    /// Returns the run whose kill covers the live run `id`: itself, or an ancestor. It may not be durable yet.
    pub fn fence(&self, id: &RunId) -> Option<Arc<Run>> {
        let sequencer = self.sequencer.lock();
        let killed = sequencer.state.fence(sequencer.state.run(id)?)?.id.clone();
        sequencer.state.run(&killed).map(Arc::clone)
    }

    /// Returns the present records of the child runs of `id` that have not ended, which may not be durable yet.
    pub fn children(&self, id: &RunId) -> Vec<Arc<Run>> {
        let mut children = Vec::new();
        self.newest_first(Some(id), None, |run, _| {
            if !run.status().is_terminal() {
                children.push(Arc::clone(run));
            }
            ControlFlow::Continue(())
        });
        children
    }

    /// Number of runs that are created or running.
    pub fn active(&self) -> usize {
        self.sequencer.lock().state.active()
    }

    /// Returns the present records of the runs that have neither ended nor a cancel request.
    pub fn cancellable(&self) -> Vec<Arc<Run>> {
        let mut cancellable = Vec::new();
        let next = |sequencer: &Order, last: Option<&Arc<Run>>| {
            let after = last.map(|run| &run.id);
            sequencer.slice(sequencer.state.cancellable(after))
        };
        self.sequencer.in_slices(next, |run, _| {
            cancellable.push(Arc::clone(run));
            ControlFlow::Continue(())
        });
        cancellable
    }

    /// Passes the runs in memory older than `before` to `look`, newest first, each with the position of its last event.
    /// With `parent`, only the child runs of that run.
    fn newest_first(
        &self,
        parent: Option<&RunId>,
        before: Option<&Age>,
        look: impl FnMut(&Arc<Run>, Lsn) -> ControlFlow<()>,
    ) {
        let next = |sequencer: &Order, last: Option<&Arc<Run>>| {
            let last = last.map(|run| state::age(run));
            let before = last.as_ref().or(before);
            sequencer.slice(sequencer.state.newest_first(parent, before))
        };
        self.sequencer.in_slices(next, look);
    }

    /// Returns the newest `most` runs in memory that match, and the last position that they include.
    fn list_memory(
        &self,
        filter: &Filter,
        before: Option<&Age>,
        most: usize,
    ) -> (Vec<Summary>, Lsn) {
        let mut shown = Lsn::default();
        let mut runs = Vec::new();
        self.newest_first(filter.parent.as_ref(), before, |run, lsn| {
            if filter.passes(&Traits::from(&**run)) {
                shown = shown.max(lsn);
                runs.push(Summary::of(run));
            }
            if runs.len() < most {
                ControlFlow::Continue(())
            } else {
                ControlFlow::Break(())
            }
        });
        (runs, shown)
    }
}
