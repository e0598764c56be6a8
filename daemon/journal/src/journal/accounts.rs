//! Accounts as readers get them: the open ones from memory, the closed ones from the record of the run whose end closed them.

use std::sync::Arc;

use rye_core::id::Lsn;
use rye_core::ledger::{Account, AccountId, CallNo, Cost, Denied, Meter, MeterId, Operation};
use rye_core::money::Usd;
use rye_core::thread::Left;

use super::handle::Journal;
use crate::error::Error;
use crate::index::Index;
use crate::sequencer::SLICE;
use crate::sequencer::Ticket;

/// An account.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AccountRow {
    /// What is stored of it.
    pub account: Arc<Account>,
    /// Whether it is closed: nothing will be spent on it unless its chain continues.
    pub closed: bool,
}

impl Journal {
    /// An account, as far as it is durable; `None` if there is none of that name.
    pub async fn account(&self, id: &AccountId) -> Result<Option<AccountRow>, Error> {
        let (known, lsn) = {
            let sequencer = self.sequencer.lock();
            let open = sequencer.state.ledger().account(id);
            let row = match (open, sequencer.state.closed(id)) {
                (Some(open), _) => Some(AccountRow {
                    account: Arc::new(open.clone()),
                    closed: false,
                }),
                (None, closed) => closed.map(|account| AccountRow {
                    account: Arc::clone(account),
                    closed: true,
                }),
            };
            (row, sequencer.last)
        };
        if known.is_some() {
            self.durable(Ticket { lsn }).await?;
            return Ok(known);
        }
        let closed = self.runs.closed(id).await?;
        Ok(closed.map(|account| AccountRow {
            account: Arc::new(account),
            closed: true,
        }))
    }

    /// The account and those above it, up to the root of its tree.
    pub async fn account_path(
        &self,
        id: &AccountId,
    ) -> Result<Vec<(AccountId, AccountRow)>, Error> {
        let mut path = Vec::new();
        let mut next = Some(id.clone());
        while let Some(id) = next.take() {
            let Some(row) = self.account(&id).await? else {
                break;
            };
            next.clone_from(&row.account.parent);
            path.push((id, row));
        }
        Ok(path)
    }

    /// The number of the next paid call of an account, and what is left for it where the first limit stands; `None` if there is no
    /// such account. It is what the next commit is based on, and no answer to anybody outside.
    pub fn spendable(&self, id: &AccountId) -> Option<(CallNo, Option<Left>)> {
        let sequencer = self.sequencer.lock();
        let ledger = sequencer.state.ledger();
        let CallNo(calls) = ledger.account(id)?.calls;
        // Within the limit of an account the accounts above it have set that money aside.
        let mut limited = ledger
            .path(id)
            .filter_map(|(id, account)| Some((id, account, account.limit?)));
        let own = limited.next();
        let above = limited.next();
        let left = own.map(|(id, account, limit)| Left {
            amount: limit.saturating_sub(account.floor()),
            account: id.clone(),
            used: account.used(),
            limit,
            bearable: above
                .and_then(|(_, above, most)| limit.checked_add(most.saturating_sub(above.floor()))),
        });
        Some((CallNo(calls + 1), left))
    }

    /// What the account of a run that has not ended and all below it have spent by now, durable or not: it is what the next
    /// commit of that run is based on, and no answer to anybody outside.
    pub fn cost_so_far(&self, id: &AccountId) -> Cost {
        let known = self.sequencer.lock().state.cost(id);
        known.unwrap_or_default()
    }

    /// What an account and all below it have spent, as far as that is durable; nothing if there is none of that name.
    pub async fn cost(&self, id: &AccountId) -> Result<Cost, Error> {
        let mut costs = self.costs(std::slice::from_ref(id)).await?;
        Ok(costs.pop().unwrap_or_default())
    }

    /// The same of each of `ids`, which waits once for all of them.
    pub async fn costs(&self, ids: &[AccountId]) -> Result<Vec<Cost>, Error> {
        let (known, shown) = self.costs_in_memory(ids);
        if known.iter().any(Option::is_some) {
            self.durable(Ticket { lsn: shown }).await?;
        }
        let of_closed = ids.iter().zip(&known).filter(|(_, known)| known.is_none());
        let of_closed: Vec<AccountId> = of_closed.map(|(id, _)| id.clone()).collect();
        let mut closed = Vec::new();
        if !of_closed.is_empty() {
            let look = move |index: &Index| of_closed.iter().map(|id| index.closed(id)).collect();
            closed = self.runs.look_up(look).await?;
        }
        let mut closed = closed
            .into_iter()
            .map(|closed| closed.map(|closed| closed.cost));
        let cost = |known: Option<Cost>| {
            known
                .or_else(|| closed.next().flatten())
                .unwrap_or_default()
        };
        Ok(known.into_iter().map(cost).collect())
    }

    /// What the accounts `ids` have spent as far as they are in memory, and the last position that this shows.
    pub(crate) fn costs_in_memory(&self, ids: &[AccountId]) -> (Vec<Option<Cost>>, Lsn) {
        let mut known = Vec::with_capacity(ids.len());
        let mut shown = Lsn::default();
        for ids in ids.chunks(SLICE) {
            let sequencer = self.sequencer.lock();
            known.extend(ids.iter().map(|id| sequencer.state.cost(id)));
            shown = sequencer.last;
        }
        (known, shown)
    }

    /// The limits that the accounts from `id` upwards need so that it may spend `to`, the topmost first.
    pub fn raises(&self, id: &AccountId, to: Usd) -> Vec<(AccountId, Usd)> {
        let raises = self.sequencer.lock().state.ledger().raises(id, to);
        // What is wrong with it is for the commit to say.
        raises.unwrap_or_else(|_| vec![(id.clone(), to)])
    }

    /// What `operation` on the account `id` would be answered now. Nothing changes.
    pub fn try_on_accounts(&self, id: &AccountId, operation: &Operation) -> Result<(), Denied> {
        let sequencer = self.sequencer.lock();
        sequencer.state.try_on_accounts(id, operation)
    }

    /// The meters in which something counts, or has counted.
    pub fn meters(&self) -> Vec<(MeterId, Meter)> {
        let sequencer = self.sequencer.lock();
        let meters = sequencer.state.ledger().meters();
        meters
            .iter()
            .map(|(id, meter)| (id.clone(), *meter))
            .collect()
    }
}
