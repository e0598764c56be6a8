//! Accounts of new runs, and the display and raising of budgets.
//!
//! A top-level run has its own account. A child run has one below that of its parent. A continuation has the account of
//! its chain as long as the accounts above are open. So a run cannot spend money outside its tree by continuing one
//! whose parents have ended.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use rye_core::error::with_sources;
use rye_core::id::RunId;
use rye_core::ledger::{AccountId, Denied, Metered, Operation};
use rye_core::model::event::BudgetRaised;
use rye_core::model::{Budget, Funding, Run};
use rye_core::money::Usd;

use super::error::Error;
use super::handle::Supervisor;
use super::raises::{is_short, too_little_above};
use super::request::{Reach, Start, StartAt};
use crate::port::{AccountView, MeterView};
use rye_journal::{AccountRow, Change};

impl Supervisor {
    /// Returns the account of the run `id` that `start` requests, with the requested limit.
    pub(super) async fn budget(&self, id: &RunId, start: &Start) -> Result<Budget, Error> {
        if let StartAt::Continue { run, within, .. } = &start.start_at {
            let within = within.as_ref();
            return self.budget_of_continuation(id, run, within, start).await;
        }
        Ok(Budget {
            account: AccountId(id.clone()),
            funding: Funding::Open {
                parent: parent(start),
                limit: start.limits.spend,
            },
        })
    }

    async fn budget_of_continuation(
        &self,
        id: &RunId,
        run: &Run,
        within: Option<&AccountId>,
        start: &Start,
    ) -> Result<Budget, Error> {
        let account = run.spec.budget.account.clone();
        let closed = match self.journal().account(&account).await? {
            Some(row) if row.closed => row.account,
            Some(_) if start.limits.spend.is_some() => {
                return Err(Error::Unfit {
                    run: run.id.clone(),
                    problem: "runs below it are not over, so its limit cannot be set with its continuation; continue it, \
                              and raise the limit with `ryectl budget raise`"
                        .to_owned(),
                });
            }
            Some(_) => {
                let funding = Funding::Adopt;
                return Ok(Budget { account, funding });
            }
            None => {
                return Err(Error::Unfit {
                    run: run.id.clone(),
                    problem: "what it has spent is not on record any more".to_owned(),
                });
            }
        };
        if self.is_open(closed.parent.as_ref()).await? {
            let closed = Box::new(closed.as_ref().clone());
            let limit = start.limits.spend;
            let funding = Funding::Reopen { closed, limit };
            return Ok(Budget { account, funding });
        }
        // The total of a closed account is still counted. The new account gets the rest of its limit.
        let spent = closed.total().map_or(Usd::ZERO, |total| total.money);
        Ok(Budget {
            account: AccountId(id.clone()),
            funding: Funding::Open {
                parent: match parent(start) {
                    Some(parent) => Some(parent),
                    None => self.nearest_open(closed.parent.as_ref(), within).await?,
                },
                limit: start
                    .limits
                    .spend
                    .or(closed.limit.map(|limit| limit.saturating_sub(spent))),
            },
        })
    }

    /// True if the account `above` is not closed. No account above counts as open.
    async fn is_open(&self, above: Option<&AccountId>) -> Result<bool, Error> {
        let Some(id) = above else { return Ok(true) };
        let row = self.journal().account(id).await?;
        Ok(row.is_some_and(|row| !row.closed))
    }

    /// Returns the first open account from `above` upwards. Returns `within` if the open accounts do not include it.
    async fn nearest_open(
        &self,
        above: Option<&AccountId>,
        within: Option<&AccountId>,
    ) -> Result<Option<AccountId>, Error> {
        let path = match above {
            Some(id) => self.journal().account_path(id).await?,
            None => Vec::new(),
        };
        let open = path.into_iter().filter(|(_, row)| !row.closed);
        let open: Vec<AccountId> = open.map(|(id, _)| id).collect();
        Ok(match within {
            Some(within) if !open.contains(within) => Some(within.clone()),
            Some(_) | None => open.into_iter().next(),
        })
    }
}

/// Account of the parent run.
fn parent(start: &Start) -> Option<AccountId> {
    let lineage = start.lineage.as_ref()?;
    Some(lineage.spec.budget.account.clone())
}

impl Supervisor {
    async fn account_view(&self, id: AccountId, row: AccountRow) -> Result<AccountView, Error> {
        let cost = self.journal().cost(&id).await?;
        let run = self.newest(&id.0).await?.id.clone();
        Ok(AccountView { id, run, row, cost })
    }

    /// Returns the account of `run` and those above it, up to the root of its tree.
    pub async fn budget_path(&self, run: &Run) -> Result<Vec<AccountView>, Error> {
        let path = self
            .journal()
            .account_path(&run.spec.budget.account)
            .await?;
        let mut views = Vec::with_capacity(path.len());
        for (id, row) in path {
            views.push(self.account_view(id, row).await?);
        }
        Ok(views)
    }

    /// Returns the accounts of `run` and of its descendants in depth-first order, each with its depth.
    pub async fn budget_tree(&self, run: &Run) -> Result<Vec<(u32, AccountView)>, Error> {
        let mut rows = HashMap::new();
        let mut below: BTreeMap<AccountId, Vec<AccountId>> = BTreeMap::new();
        let runs = self.below(&run.id, Reach::Tree).await?;
        let accounts = runs.iter().map(|run| &run.spec.budget.account);
        let accounts = std::iter::once(&run.spec.budget.account).chain(accounts);
        for id in accounts.collect::<BTreeSet<_>>() {
            if let Some(row) = self.journal().account(id).await? {
                if let Some(parent) = &row.account.parent {
                    below.entry(parent.clone()).or_default().push(id.clone());
                }
                rows.insert(id.clone(), row);
            }
        }
        let mut tree = Vec::with_capacity(rows.len());
        let mut open = vec![(0, run.spec.budget.account.clone())];
        while let Some((depth, id)) = open.pop() {
            let Some(row) = rows.remove(&id) else {
                continue;
            };
            let next = below.remove(&id).unwrap_or_default().into_iter().rev();
            open.extend(next.map(|id| (depth + 1, id)));
            tree.push((depth, self.account_view(id, row).await?));
        }
        Ok(tree)
    }

    /// Returns the meters in force, and those with money on hold.
    pub fn meters(&self) -> Vec<MeterView> {
        let services = &self.shared.services;
        let in_force = services.caps.in_force(services.journal.now());
        let mut rows: BTreeMap<_, _> = services.journal.meters().into_iter().collect();
        let mut views: Vec<_> = in_force
            .into_iter()
            .map(|Metered { id, limit }| MeterView {
                meter: rows.remove(&id).unwrap_or_default(),
                id,
                limit: Some(limit),
            })
            .collect();
        rows.retain(|_, meter| meter.held > Usd::ZERO);
        views.extend(rows.into_iter().map(|(id, meter)| MeterView {
            id,
            meter,
            limit: None,
        }));
        views
    }

    /// Checks that a child run of `run` with the reservation `share` can be paid now. Reserves nothing.
    pub(super) fn affords(&self, run: &Run, share: Usd) -> Result<(), Denied> {
        let journal = self.journal();
        let child = RunId::generate(&run.spec.item.id, journal.now().seconds(), journal.random());
        let open = Operation::Open {
            parent: Some(run.spec.budget.account.clone()),
            limit: Some(share),
        };
        journal.try_on_accounts(&AccountId(child), &open)
    }

    /// Raises the limit of `run`. With `through`, also raises the accounts above that would be too small. Returns the
    /// raised accounts, topmost first.
    pub async fn raise_budget(
        &self,
        run: &Run,
        to: Usd,
        through: bool,
        by: &str,
    ) -> Result<Vec<AccountView>, Error> {
        let account = &run.spec.budget.account;
        let raises = if through {
            self.journal().raises(account, to)
        } else {
            vec![(account.clone(), to)]
        };
        let changes = raises.iter().map(|(account, to)| {
            let event = BudgetRaised {
                account: account.clone(),
                to: *to,
                by: by.to_owned(),
            };
            Change::event(&run.id, event.into())
        });
        let committed = match self.journal().commit(changes.collect()).await {
            Err(rye_journal::Error::Refused(refused)) if is_short(&refused) => {
                return Err(too_little_above(
                    run,
                    &refused,
                    Some(to).filter(|_| !through),
                ));
            }
            Err(rye_journal::Error::Refused(refused)) => {
                return Err(Error::Unfit {
                    run: run.id.clone(),
                    problem: with_sources(&refused),
                });
            }
            committed => committed?,
        };
        self.journal().published(committed.ticket).await?;
        let mut views = Vec::with_capacity(raises.len());
        for (id, _) in raises {
            if let Some(row) = self.journal().account(&id).await? {
                views.push(self.account_view(id, row).await?);
            }
        }
        Ok(views)
    }
}
