//! Accounts for readers: the open ones from memory, the closed ones from the record of the run whose end closed them.

use std::sync::Arc;

use rye_core::id::Lsn;
use rye_core::ledger::{Account, AccountId, CallNo, Cost, Denied, Meter, MeterId, Operation};
use rye_core::money::Usd;
use rye_core::thread::RemainingFunds;

use super::handle::Journal;
use crate::error::Error;
use crate::index::Index;
use crate::sequencer::SLICE;
use crate::sequencer::Ticket;

/// An account, open or closed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AccountRow {
    pub account: Arc<Account>,
    /// True if it is closed: nothing is spent on it unless its chain continues.
    pub closed: bool,
}

impl Journal {
    /// Returns an account after its state is durable; `None` if there is none of that id.
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

    /// Returns the account and its ancestors, up to the root of its tree.
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

    /// Returns the number of the next paid call of an account, and the amount left under the nearest limit; `None` if
    /// there is no such account. It is the basis of the next commit and may not be durable, so it must not be shown
    /// outside.
    pub fn spendable(&self, id: &AccountId) -> Option<(CallNo, Option<RemainingFunds>)> {
        let sequencer = self.sequencer.lock();
        let ledger = sequencer.state.ledger();
        let CallNo(calls) = ledger.account(id)?.calls;
        // The accounts above a limited account have reserved its whole limit.
        let mut limited = ledger
            .path(id)
            .filter_map(|(id, account)| Some((id, account, account.limit?)));
        let own = limited.next();
        let above = limited.next();
        let left = own.map(|(id, account, limit)| RemainingFunds {
            amount: limit.saturating_sub(account.floor()),
            account: id.clone(),
            used: account.used(),
            limit,
            bearable: above
                .and_then(|(_, above, most)| limit.checked_add(most.saturating_sub(above.floor()))),
        });
        Some((CallNo(calls + 1), left))
    }

    /// Returns the cost so far of the account of a live run and all accounts below it. It is the basis of the next
    /// commit and may not be durable, so it must not be shown outside.
    pub fn cost_so_far(&self, id: &AccountId) -> Cost {
        let known = self.sequencer.lock().state.cost(id);
        known.unwrap_or_default()
    }

    /// Returns the cost of an account and all accounts below it after it is durable; zero if there is none of that id.
    pub async fn cost(&self, id: &AccountId) -> Result<Cost, Error> {
        let mut costs = self.costs(std::slice::from_ref(id)).await?;
        Ok(costs.pop().unwrap_or_default())
    }

    /// As [`Journal::cost`] for each of `ids`, with one wait for all of them.
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

    /// Returns the costs of the accounts `ids` that are in memory, and the last position that they include.
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

    /// Returns the limits that `id` and its ancestors need so that `id` may spend `to`, the topmost first.
    pub fn raises(&self, id: &AccountId, to: Usd) -> Vec<(AccountId, Usd)> {
        let raises = self.sequencer.lock().state.ledger().raises(id, to);
        // The commit reports the error.
        raises.unwrap_or_else(|_| vec![(id.clone(), to)])
    }

    /// Checks if `operation` on the account `id` would be accepted now. Changes nothing.
    pub fn try_on_accounts(&self, id: &AccountId, operation: &Operation) -> Result<(), Denied> {
        let sequencer = self.sequencer.lock();
        sequencer.state.try_on_accounts(id, operation)
    }

    /// Returns the meters that count something, or have.
    pub fn meters(&self) -> Vec<(MeterId, Meter)> {
        let sequencer = self.sequencer.lock();
        let meters = sequencer.state.ledger().meters();
        meters
            .iter()
            .map(|(id, meter)| (id.clone(), *meter))
            .collect()
    }
}
