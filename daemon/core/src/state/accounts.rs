//! The accounts of the runs in memory: what a commit does to them, and which of them are closed.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use super::{Change, Draft, Fact, Refused, Why};
use crate::id::RunId;
use crate::ledger::{Account, AccountId, Denied, Ledger, Operation, Rows, Sheet};
use crate::model::{Funding, Run};

/// What a commit did to the accounts.
pub type Closed = BTreeMap<AccountId, Account>;

/// The ledger, and the accounts that were closed by runs that are still in memory.
#[derive(Debug, Default)]
pub(super) struct Accounts {
    ledger: Ledger,
    /// Each with the run whose end closed it: it leaves memory with that one.
    closed: HashMap<AccountId, (RunId, Arc<Account>)>,
    closed_by: HashMap<RunId, Vec<AccountId>>,
}

impl Accounts {
    /// The accounts of `runs`, of which `rows` are those on which something happened.
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

    /// What the changes of `draft` come to, all or none.
    pub(super) fn plan(&self, draft: &Draft) -> Result<Rows, Refused> {
        let mut sheet = Sheet::new(&self.ledger);
        for (number, (change, fact)) in draft.facts().enumerate() {
            perform(&mut sheet, change, fact).map_err(|denied| Refused {
                change: number,
                run: change.run.clone(),
                why: Why::Budget(denied),
            })?;
        }
        Ok(sheet.into_rows())
    }

    /// Makes what was planned what is; `by` is the run whose end closed accounts. Hands out what was closed.
    pub(super) fn enter(&mut self, rows: Rows, by: Option<&RunId>) -> Closed {
        let closed = rows.closed.clone();
        for id in rows.open.keys() {
            self.closed.remove(id);
        }
        self.ledger.enter(rows);
        if let Some(by) = by.filter(|_| !closed.is_empty()) {
            for (id, account) in &closed {
                let account = Arc::new(account.clone());
                self.closed.insert(id.clone(), (by.clone(), account));
            }
            let ids = closed.keys().cloned();
            self.closed_by.entry(by.clone()).or_default().extend(ids);
        }
        closed
    }

    /// Forgets the accounts that the end of `run` closed: they are kept where it is.
    pub(super) fn evict(&mut self, run: &RunId) {
        for id in self.closed_by.remove(run).into_iter().flatten() {
            if self.closed.get(&id).is_some_and(|(by, _)| by == run) {
                self.closed.remove(&id);
            }
        }
    }
}

/// The account of a run on which nothing has happened yet, if its own record tells it.
pub fn untouched(run: &Run) -> Option<Account> {
    match &run.spec.budget.funding {
        Funding::Open { parent, limit } => Some(Account {
            parent: parent.clone(),
            limit: *limit,
            ..Account::default()
        }),
        Funding::Adopt | Funding::Reopen { .. } => None,
    }
}

fn perform(sheet: &mut Sheet<'_>, change: &Change, fact: &Fact) -> Result<(), Denied> {
    if let Some((account, operation)) = change.event.money() {
        sheet.perform(account, &operation)?;
    }
    match &fact.settled {
        Some(run) if run.status().is_terminal() => {
            sheet.perform(&run.spec.budget.account, &Operation::End)
        }
        Some(_) | None => Ok(()),
    }
}
