//! Recount of the sums and numbers that the ledger maintains, from the own fields of each account.
//!
//! The cost is linear in the number of accounts: it is for tests and for the boot of a debug build.

use std::collections::{BTreeMap, HashMap};
use std::fmt;

use super::{Account, AccountId, Ledger, MeterId};
use crate::money::Usd;

/// A maintained value differs from the recounted one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what} of {of} is kept as {kept}, and comes out as {counted}")]
pub struct Miscount {
    of: String,
    what: &'static str,
    kept: String,
    counted: String,
}

impl Miscount {
    /// Fails if `kept` and `counted` differ.
    pub(crate) fn check<T: PartialEq + fmt::Debug>(
        of: &dyn fmt::Display,
        what: &'static str,
        kept: &T,
        counted: &T,
    ) -> Result<(), Self> {
        if kept == counted {
            return Ok(());
        }
        Err(Self {
            of: of.to_string(),
            what,
            kept: format!("{kept:?}"),
            counted: format!("{counted:?}"),
        })
    }
}

/// Sums over the open accounts directly below one account.
#[derive(Debug, Default, PartialEq, Eq)]
struct Below {
    number: u32,
    open: Usd,
    open_floor: Usd,
}

impl Ledger {
    /// Checks all maintained values: the sums over the accounts below each account, the number of live chains of each
    /// tree, and the holds of each meter.
    pub fn recount(&self) -> Result<(), Miscount> {
        let mut below: HashMap<&AccountId, Below> = HashMap::new();
        let mut live: HashMap<AccountId, usize> = HashMap::new();
        let mut by_meter: BTreeMap<&MeterId, Usd> = BTreeMap::new();
        for (id, account) in self.accounts() {
            if let Some(parent) = &account.parent {
                let is_known = (self.account(parent).is_some(), self.is_below(parent, id));
                Miscount::check(id, "what is known above it", &is_known, &(true, true))?;
                let sums = below.entry(parent).or_default();
                sums.number += 1;
                sums.open = plus(sums.open, account.claim());
                sums.open_floor = plus(sums.open_floor, account.floor_claim());
            }
            if !account.ended {
                *live.entry(self.root(id).clone()).or_default() += 1;
            }
            let hold = account.hold.iter();
            for (hold, metered) in hold.flat_map(|hold| hold.meters.iter().map(move |m| (hold, m)))
            {
                let sum = by_meter.entry(&metered.id).or_default();
                *sum = plus(*sum, hold.amount);
            }
        }
        for (id, account) in self.accounts() {
            agree(id, account, &below.remove(id).unwrap_or_default())?;
        }
        Miscount::check(&"the ledger", "what lives by tree", &self.live, &live)?;
        for (id, meter) in self.meters() {
            let counted = by_meter.remove(id).unwrap_or_default();
            Miscount::check(id, "what is held", &meter.held, &counted)?;
        }
        let unknown = by_meter.keys().next().copied();
        Miscount::check(&"the ledger", "a meter that is unknown", &None, &unknown)
    }

    fn is_below(&self, parent: &AccountId, id: &AccountId) -> bool {
        self.below
            .get(parent)
            .is_some_and(|below| below.contains(id))
    }
}

/// Checks the fields of `account` against each other and against the sums over the accounts below it.
fn agree(id: &AccountId, account: &Account, below: &Below) -> Result<(), Miscount> {
    let kept = Below {
        number: account.below,
        open: account.open,
        open_floor: account.open_floor,
    };
    let is_over = account.ended && (account.hold.is_some() || account.below == 0);
    Miscount::check(id, "what is below it", &kept, below)?;
    Miscount::check(id, "whether it should be closed", &is_over, &false)?;
    let is_within = account.floor() <= account.used();
    Miscount::check(id, "whether its floor is within its use", &is_within, &true)
}

fn plus(a: Usd, b: Usd) -> Usd {
    a.checked_add(b).unwrap_or(Usd::from_nanos(u64::MAX))
}
