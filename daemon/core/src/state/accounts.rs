//! Accounts of the runs in memory: the effect of a commit on them, and the closed ones.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use super::waiting::{Arrival, Waiting};
use super::{Change, Draft, Fact, RefusalReason, Refused};
use crate::id::RunId;
use crate::ledger::{
    Account, AccountId, Denied, Ledger, LimitSnapshot, Notice, Operation, Rows, Transaction,
};
use crate::model::{Funding, Run, Spec};

/// Closed accounts, stored with the run whose end closed them.
pub type Closed = BTreeMap<AccountId, Account>;

/// The ledger, and the accounts closed by runs that are still in memory.
#[derive(Debug, Default)]
pub(super) struct Accounts {
    ledger: Ledger,
    /// Closed accounts with the run whose end closed them. They are evicted with that run.
    closed: HashMap<AccountId, (RunId, Arc<Account>)>,
    closed_by: HashMap<RunId, Vec<AccountId>>,
    waiting: Waiting,
}

impl Accounts {
    /// Creates the accounts of `runs`. `rows` are the accounts that were changed after their creation.
    pub(super) fn new<'r>(runs: impl Iterator<Item = &'r Arc<Run>>, rows: Rows) -> Self {
        let mut accounts = Self::default();
        accounts.ledger.enter(rows);
        for run in runs.filter(|run| !run.status().is_terminal()) {
            let budget = &run.spec.budget;
            if let Some(untouched) = untouched(run)
                && accounts.ledger.account(&budget.account).is_none()
            {
                let open = BTreeMap::from([(budget.account.clone(), untouched)]);
                accounts.ledger.enter(Rows {
                    open,
                    ..Rows::default()
                });
            }
        }
        accounts
    }

    pub(super) const fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    pub(super) fn closed(&self, id: &AccountId) -> Option<&Arc<Account>> {
        self.closed.get(id).map(|(_, account)| account)
    }

    /// Refuses a draft with which a tree would have more live chains of runs than `full` allows for the created run.
    /// Chains that end in the same draft still count.
    pub(super) fn check_trees(
        &self,
        draft: &Draft,
        full: impl Fn(&Spec) -> (usize, RefusalReason),
    ) -> Result<(), Refused> {
        let mut added: HashMap<&AccountId, usize> = HashMap::new();
        for (number, (change, _)) in draft.facts().enumerate() {
            let Some(spec) = change.created() else {
                continue;
            };
            let Some(parent) = spec.budget.parent() else {
                continue;
            };
            let root = self.ledger.root(parent);
            let added = added.entry(root).or_default();
            *added += 1;
            let (most, why) = full(spec);
            if self.ledger.live(root) + *added > most {
                return Err(Refused {
                    change: number,
                    run: change.run.clone(),
                    why,
                });
            }
        }
        Ok(())
    }

    /// Computes the changes of accounts by `draft`, for a request at the queue position `asker`. Fails if one is
    /// refused.
    pub(super) fn plan(&self, draft: &Draft, asker: Option<Arrival>) -> Result<Rows, Refused> {
        let mut sheet = self.transaction(asker);
        for (number, (change, fact)) in draft.facts().enumerate() {
            let own = &draft.runs[fact.run].record.spec.budget.account;
            perform(&mut sheet, own, change, fact).map_err(|denied| Refused {
                change: number,
                run: change.run.clone(),
                why: RefusalReason::Budget(denied),
            })?;
        }
        Ok(sheet.into_rows())
    }

    /// Returns the notices about settlements of a planned `draft`, each with the index of its settlement.
    pub(super) fn notices(&self, draft: &Draft) -> Vec<(usize, Notice)> {
        let mut notices = Vec::new();
        if !draft
            .changes
            .iter()
            .any(|change| change.settles().is_some())
        {
            return notices;
        }
        let mut sheet = Transaction::new(&self.ledger);
        let mut settlement = 0;
        for (change, fact) in draft.facts() {
            let own = &draft.runs[fact.run].record.spec.budget.account;
            let settled = change.settles();
            let settled = settled.map(|usage| (LimitSnapshot::of(&sheet, own), usage.money));
            if perform(&mut sheet, own, change, fact).is_err() {
                break;
            }
            if let Some((marks, cost)) = settled {
                let told = marks.notices(&sheet, cost).into_iter();
                notices.extend(told.map(|notice| (settlement, notice)));
                settlement += 1;
            }
        }
        notices
    }

    /// Returns a sheet for the request at that queue position, or for one at the end of the queue.
    pub(super) fn transaction(&self, asker: Option<Arrival>) -> Transaction<'_> {
        Transaction::queued_after(&self.ledger, self.waiting.contended_before(asker))
    }

    pub(super) const fn waiting(&mut self) -> &mut Waiting {
        &mut self.waiting
    }

    /// Applies `rows`, which were planned for `draft`. Returns the queued requests that should be retried.
    pub(super) fn enter(&mut self, draft: &Draft, rows: Rows) -> Vec<Arrival> {
        let concerned = self.waiting.concerned(&rows);
        for id in rows.open.keys() {
            self.closed.remove(id);
        }
        let mut ended = draft.facts().filter(|(_, fact)| fact.ended().is_some());
        if let Some((Change { run: by, .. }, _)) = ended.next()
            && !rows.closed.is_empty()
        {
            for (id, account) in &rows.closed {
                let account = Arc::new(account.clone());
                self.closed.insert(id.clone(), (by.clone(), account));
            }
            let ids = rows.closed.keys().cloned();
            self.closed_by.entry(by.clone()).or_default().extend(ids);
        }
        self.ledger.enter(rows);
        concerned
    }

    /// Evicts the accounts that the end of `run` closed; they are stored with the run.
    pub(super) fn evict(&mut self, run: &RunId) {
        for id in self.closed_by.remove(run).into_iter().flatten() {
            if self.closed.get(&id).is_some_and(|(by, _)| by == run) {
                self.closed.remove(&id);
            }
        }
    }
}

/// Returns the rows that must be stored in addition to the live `runs` to restore `ledger`: the meters, and the
/// accounts that were changed after their creation.
pub fn to_store<'r>(ledger: &Ledger, runs: impl Iterator<Item = &'r Run>) -> Rows {
    let untouched: HashMap<_, _> = runs
        .filter_map(|run| Some((&run.spec.budget.account, untouched(run)?)))
        .collect();
    let open = ledger
        .accounts()
        .filter(|(id, account)| untouched.get(id) != Some(account));
    Rows {
        open: open
            .map(|(id, account)| (id.clone(), account.clone()))
            .collect(),
        meters: ledger.meters().clone(),
        ..Rows::default()
    }
}

/// Returns the unchanged account of a new run, if the run's own record determines it.
fn untouched(run: &Run) -> Option<Account> {
    match &run.spec.budget.funding {
        Funding::Open { parent, limit } => Some(Account {
            parent: parent.clone(),
            limit: *limit,
            ..Account::default()
        }),
        Funding::Adopt | Funding::Reopen { .. } => None,
    }
}

/// Performs the operations of `change`, whose result is `fact`, on `own`, the account of its run, or on another
/// account.
fn perform(
    sheet: &mut Transaction<'_>,
    own: &AccountId,
    change: &Change,
    fact: &Fact,
) -> Result<(), Denied> {
    if let Some((account, operation)) = change.event.money(own) {
        sheet.perform(account, &operation)?;
    }
    match fact.ended() {
        Some(_) => sheet.perform(own, &Operation::End),
        None => Ok(()),
    }
}
