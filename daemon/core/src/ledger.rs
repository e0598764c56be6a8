//! The hierarchical budget ledger: limits and spending of all chains of runs.
//!
//! **Owns** the open accounts, the meters of the node, and every rule by which they change ([`Transaction::perform`]).
//! **Never** knows a run, a tool or a price: callers pass amounts and name the account. Of time it knows only the names
//! of meters.
//!
//! Every chain of runs has one account, named by its first run. These figures follow from the stored fields of an
//! account:
//!
//! | | |
//! | --- | --- |
//! | used | own + hold + open + closed |
//! | floor | own + open floor + closed: the use if every open hold settled at nothing |
//! | claim | max(reserved, used): the amount that its parent counts for it while it is open |
//! | floor claim | max(reserved, floor) |
//! | total | own + closed, once nothing below is open: the amount that its parent counts for it after it is closed |
//! | remaining | max(limit − used, 0) |
//! | overrun | max(used − limit, 0) |
//!
//! **Order.** An operation changes one account. The changes of its claim and floor claim are added to the parent's
//! `open` and `open_floor`, and so on upwards until both changes are zero. The cost is the depth of the tree; calls of
//! a child with a reservation change nothing above it. Operations of one commit are performed in order on a [`Transaction`]
//! over the ledger, and take effect together or not at all ([`Ledger::enter`]).
//!
//! **Failure.** A refused operation makes its sheet unusable and leaves the ledger unchanged. A [`Shortfall`] is a lack
//! of money; it names the limit, and shows if only open holds are the cause. A [`Misuse`] is an invalid operation:
//! a bug or forged events.
//!
//! A settlement above its hold is recorded in full. Only that can take use beyond a limit. It causes a warning, as does
//! a settlement that uses up most of a limit ([`Notice`]).

mod account;
mod meter;
mod notice;
mod recount;
mod transaction;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;

use serde::{Deserialize, Serialize};

pub use self::account::{Account, Cost, Hold, Usage};
pub use self::meter::{Caps, Meter, Metered};
pub use self::notice::{Crossing, LimitSnapshot, Notice, Overrun};
pub use self::recount::Miscount;
pub use self::transaction::Transaction;
use crate::error::{ErrorKind, Kinded};
use crate::id::RunId;
use crate::money::Usd;

#[cfg(test)]
mod tests;

/// Name of an account: the first run of its chain.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct AccountId(pub RunId);

impl fmt::Display for AccountId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Number of a paid call of an account, starting at 1 without gaps. Each call settles once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct CallNo(pub u32);

impl fmt::Display for CallNo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Name of a meter: `day/2026-11-22`, `month/2026-11`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct MeterId(pub String);

impl fmt::Display for MeterId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Change of an account.
#[derive(Debug, Clone, PartialEq)]
pub enum Operation {
    /// A chain of runs begins. If it has a limit and a parent, the limit is reserved at the parent.
    Open {
        /// Account of the run that starts the chain.
        parent: Option<AccountId>,
        limit: Option<Usd>,
    },
    /// A paid call is about to be made.
    Hold {
        /// Number of the call: the last number plus 1.
        call: CallNo,
        /// Largest possible cost of the call.
        amount: Usd,
        /// Meters in which the call counts.
        meters: Vec<Metered>,
    },
    /// The open call is over.
    Settle {
        call: CallNo,
        usage: Usage,
        /// True if the price is an estimate.
        estimated: bool,
    },
    /// The limit is raised.
    Raise {
        /// New limit.
        to: Usd,
    },
    /// The chain is over. The account is closed as soon as no account below it is open.
    End,
    /// The chain continues while its account is open or ended.
    Adopt,
    /// The chain continues after its account was closed.
    Reopen {
        /// Account as it was closed.
        closed: Box<Account>,
        /// New limit; `None` keeps the old one.
        limit: Option<Usd>,
    },
}

/// Limit that a request exceeds.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum LimitId {
    /// Account of the operation, or one above it.
    Account(AccountId),
    Meter(MeterId),
}

impl fmt::Display for LimitId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Account(id) => write!(f, "run `{id}`"),
            Self::Meter(id) => write!(f, "the limit of this node for the {id}"),
        }
    }
}

/// A request exceeds a limit.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{at} may spend {limit} USD, of which {used} are used or reserved: that leaves too little for {requested}"
)]
pub struct Shortfall {
    /// Additional amount that the request needs there.
    pub requested: Usd,
    pub at: LimitId,
    pub limit: Usd,
    /// Amount that is used, held or reserved there.
    pub used: Usd,
    /// True if only open holds, or older requests that wait for them, block the request: waiting may help.
    pub wait: bool,
}

impl Kinded for Shortfall {
    fn kind(&self) -> ErrorKind {
        ErrorKind::Precondition
    }
}

/// An operation that is invalid in the state of its account.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Misuse {
    /// The account does not exist, or is closed.
    #[error("there is no such open account")]
    NoAccount,
    #[error("the account is open already")]
    Exists,
    /// The chain of the account is over.
    #[error("the account has ended")]
    Ended,
    /// A chain makes one paid call at a time.
    #[error("a call of the account is open")]
    CallOpen,
    #[error("the account has no such open call")]
    NoSuchCall,
    /// Calls are numbered without gaps.
    #[error("the number of the call is not the next one")]
    CallNumber,
    /// A new limit must exceed the old one and be at least the amount in use.
    #[error("the new limit is not above the old one, or below what is used")]
    NotARaise,
    /// A root without a limit has none to raise.
    #[error("the account has no limit, and nothing above it")]
    Unlimited,
    #[error("an amount does not fit")]
    Overflow,
}

impl Kinded for Misuse {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::NotARaise | Self::Unlimited | Self::Ended | Self::NoAccount => {
                ErrorKind::Precondition
            }
            Self::Exists
            | Self::CallOpen
            | Self::NoSuchCall
            | Self::CallNumber
            | Self::Overflow => ErrorKind::Bug,
        }
    }
}

/// Refusal of an operation.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Denied {
    #[error(transparent)]
    Short(#[from] Shortfall),
    #[error(transparent)]
    Misuse(#[from] Misuse),
}

impl Kinded for Denied {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::Short(shortfall) => shortfall.kind(),
            Self::Misuse(misuse) => misuse.kind(),
        }
    }
}

/// Accounts and meters that the operations of a sheet changed, in their new state.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Rows {
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub open: BTreeMap<AccountId, Account>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub closed: BTreeMap<AccountId, Account>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub meters: BTreeMap<MeterId, Meter>,
}

impl Rows {
    pub fn is_empty(&self) -> bool {
        self.open.is_empty() && self.closed.is_empty() && self.meters.is_empty()
    }
}

/// All open accounts and all meters. See the module.
#[derive(Debug, Clone, Default)]
pub struct Ledger {
    accounts: HashMap<AccountId, Account>,
    /// Open accounts by the parent that they draw on.
    below: HashMap<AccountId, BTreeSet<AccountId>>,
    /// Number of chains that are not over, by the account at the root of their tree. It holds no zeros.
    live: HashMap<AccountId, usize>,
    meters: BTreeMap<MeterId, Meter>,
}

impl Ledger {
    /// Returns an account that is open, or whose chain is over while accounts below it are open.
    pub fn account(&self, id: &AccountId) -> Option<&Account> {
        self.accounts.get(id)
    }

    /// Returns the same accounts, in no order.
    pub fn accounts(&self) -> impl Iterator<Item = (&AccountId, &Account)> {
        self.accounts.iter()
    }

    /// Returns a meter; an unknown one is empty.
    pub fn meter(&self, id: &MeterId) -> Meter {
        self.meters.get(id).copied().unwrap_or_default()
    }

    /// Returns the meters that a call counted in.
    pub const fn meters(&self) -> &BTreeMap<MeterId, Meter> {
        &self.meters
    }

    /// Returns the account and those above it, up to the root of its tree.
    pub fn path<'a>(
        &'a self,
        id: &AccountId,
    ) -> impl Iterator<Item = (&'a AccountId, &'a Account)> {
        let first = self.accounts.get_key_value(id);
        std::iter::successors(first, |(_, account)| {
            self.accounts.get_key_value(account.parent.as_ref()?)
        })
    }

    /// Returns the open accounts that draw directly on `id`.
    pub fn below(&self, id: &AccountId) -> impl Iterator<Item = &AccountId> {
        self.below.get(id).into_iter().flatten()
    }

    /// Returns the spending of an open account and of all accounts below it.
    pub fn cost(&self, id: &AccountId) -> Option<Cost> {
        let own = self.account(id)?.cost().ok()?;
        self.below(id)
            .try_fold(own, |cost, below| cost.plus(&self.cost(below)?))
    }

    /// Returns the limits that `id` and the accounts above it need so that `id` may spend `to`, topmost first: the new
    /// limit of `id`, and higher limits of those accounts above whose limits would be too low.
    pub fn raises(&self, id: &AccountId, to: Usd) -> Result<Vec<(AccountId, Usd)>, Misuse> {
        let own = self.account(id).ok_or(Misuse::NoAccount)?;
        let mut raises = vec![(id.clone(), to)];
        let mut growth = to.saturating_sub(own.claim());
        for (id, account) in self.path(id).skip(1) {
            let used = account.used().checked_add(growth).ok_or(Misuse::Overflow)?;
            if account.limit.is_some_and(|limit| used > limit) {
                raises.insert(0, (id.clone(), used));
                growth = used.saturating_sub(account.claim());
                continue;
            }
            growth = used.max(account.reserved()).saturating_sub(account.claim());
        }
        Ok(raises)
    }

    /// Applies the rows of a sheet over this ledger, or those restored at boot.
    pub fn enter(&mut self, rows: Rows) {
        let mut opened = Vec::new();
        for (id, account) in rows.open {
            let is_live = !account.ended;
            if let Some(known) = self.accounts.get_mut(&id) {
                let before = std::mem::replace(known, account);
                if before.ended == is_live {
                    opened.push((id, is_live));
                }
                continue;
            }
            if let Some(parent) = &account.parent {
                let siblings = self.below.entry(parent.clone()).or_default();
                siblings.insert(id.clone());
            }
            self.accounts.insert(id.clone(), account);
            if is_live {
                opened.push((id, true));
            }
        }
        // The root of an account is known only after all new accounts are inserted.
        for (id, is_live) in opened {
            self.count(&id, is_live);
        }
        for id in rows.closed.keys() {
            if self.account(id).is_some_and(|account| !account.ended) {
                self.count(id, false);
            }
        }
        for (id, account) in rows.closed {
            self.accounts.remove(&id);
            if let Some(parent) = account.parent
                && let Some(siblings) = self.below.get_mut(&parent)
            {
                siblings.remove(&id);
                if siblings.is_empty() {
                    self.below.remove(&parent);
                }
            }
        }
        if !rows.meters.is_empty() {
            self.meters.extend(rows.meters);
            meter::forget_old(&mut self.meters);
        }
    }

    /// Returns the account at the root of the tree of `id`.
    pub fn root<'a>(&'a self, id: &'a AccountId) -> &'a AccountId {
        self.path(id).last().map_or(id, |(root, _)| root)
    }

    /// Returns the number of chains in the tree of `root` that are not over.
    pub fn live(&self, root: &AccountId) -> usize {
        self.live.get(root).copied().unwrap_or_default()
    }

    /// Adds a chain to the count of its tree if `is_live`, and removes it otherwise.
    fn count(&mut self, id: &AccountId, is_live: bool) {
        let root = self.root(id).clone();
        let before = self.live(&root);
        let now = if is_live {
            before + 1
        } else {
            before.saturating_sub(1)
        };
        if now == 0 {
            self.live.remove(&root);
        } else {
            self.live.insert(root, now);
        }
    }
}
