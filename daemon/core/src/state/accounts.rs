//! The accounts of the runs in memory: what a commit does to them, and which of them are closed.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use super::waiting::{Arrival, Waiting};
use super::{Change, Draft, Fact, Refused, Why};
use crate::id::RunId;
use crate::ledger::{Account, AccountId, Denied, Ledger, Marks, Notice, Operation, Rows, Sheet};
use crate::model::{Funding, Run, Spec};

/// Closed accounts, as they are kept with the run whose end closed them.
pub type Closed = BTreeMap<AccountId, Account>;

/// The ledger, and the accounts that were closed by runs that are still in memory.
#[derive(Debug, Default)]
pub(super) struct Accounts {
    ledger: Ledger,
    /// Each with the run whose end closed it: it leaves memory with that one.
    closed: HashMap<AccountId, (RunId, Arc<Account>)>,
    closed_by: HashMap<RunId, Vec<AccountId>>,
    waiting: Waiting,
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

    /// Refuses a draft with which more chains of runs of one tree would not be over than `full` says of a run that is created there. What
    /// ends in the same draft counts still.
    pub(super) fn check_trees(
        &self,
        draft: &Draft,
        full: impl Fn(&Spec) -> (usize, Why),
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

    /// What the changes of `draft` come to, all or none, for who stands in that place of the line.
    pub(super) fn plan(&self, draft: &Draft, asker: Option<Arrival>) -> Result<Rows, Refused> {
        let mut sheet = self.sheet(asker);
        for (number, (change, fact)) in draft.facts().enumerate() {
            let own = &draft.runs[fact.run].record.spec.budget.account;
            perform(&mut sheet, own, change, fact).map_err(|denied| Refused {
                change: number,
                run: change.run.clone(),
                why: Why::Budget(denied),
            })?;
        }
        Ok(sheet.into_rows())
    }

    /// What there is to say about settlements of `draft`, which was planned; each with how many settlements stand before its own.
    pub(super) fn notices(&self, draft: &Draft) -> Vec<(usize, Notice)> {
        let mut notices = Vec::new();
        if !draft
            .changes
            .iter()
            .any(|change| change.settles().is_some())
        {
            return notices;
        }
        let mut sheet = Sheet::new(&self.ledger);
        let mut settlement = 0;
        for (change, fact) in draft.facts() {
            let own = &draft.runs[fact.run].record.spec.budget.account;
            let settled = change.settles();
            let settled = settled.map(|usage| (Marks::of(&sheet, own), usage.money));
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

    /// A sheet for who stands in that place of the line, or behind all who wait.
    pub(super) fn sheet(&self, asker: Option<Arrival>) -> Sheet<'_> {
        Sheet::behind(&self.ledger, self.waiting.before(asker))
    }

    pub(super) const fn waiting(&mut self) -> &mut Waiting {
        &mut self.waiting
    }

    /// Makes `rows`, which were planned for `draft`, what is. Answers with those who wait and should ask again.
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

    /// Forgets the accounts that the end of `run` closed: they are kept where it is.
    pub(super) fn evict(&mut self, run: &RunId) {
        for id in self.closed_by.remove(run).into_iter().flatten() {
            if self.closed.get(&id).is_some_and(|(by, _)| by == run) {
                self.closed.remove(&id);
            }
        }
    }
}

/// What has to be stored beside the records of `runs`, all that are not over, so that `ledger` is what it is: the meters, and the
/// accounts on which something has happened.
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

/// The account of a run on which nothing has happened yet, if its own record tells it.
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

/// What `change`, which came to `fact`, does to `own`, the account of its run, or to another one.
fn perform(
    sheet: &mut Sheet<'_>,
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
