//! The hierarchical budget ledger: who may still spend how much, and what was spent.
//!
//! **Owns** the open accounts, the meters of the node, and every rule by which they change ([`Sheet::perform`]). **Never** knows
//! a run, a tool or a price: money comes in as amounts, and the caller says of which account. Of the time it knows what the names of
//! meters tell.
//!
//! Every chain of runs has one account, named by its first run. Of an account, from what it stores:
//!
//! | | |
//! | --- | --- |
//! | used | own + hold + open + closed |
//! | floor | own + open floor + closed: what would be used if every open hold settled at nothing |
//! | claim | max(reserved, used): what its parent counts for it as long as it is open |
//! | floor claim | max(reserved, floor) |
//! | total | own + closed, once nothing below is open: what its parent counts for it when it is closed |
//! | remaining | limit − used, or nothing |
//! | overrun | used − limit, or nothing |
//!
//! **Order.** An operation changes one account; what its claim and floor claim change by is added to the parent's `open` and
//! `open_floor`, and so on until both changes are zero: the cost is the depth of the tree, and the calls of a child with a
//! reservation do not touch anything above it. Operations of one commit are performed on a [`Sheet`] over the ledger, in order,
//! and all of them take hold or none ([`Ledger::enter`]).
//!
//! **Failure.** An operation that is not granted leaves its sheet unfit for further use and the ledger as it was. One that lacks
//! money is a [`Shortfall`], which says where it lacks and whether only open holds stand in the way; one that makes no sense is a
//! [`Misuse`]: a bug, or somebody who forges events.
//!
//! A settlement above its hold is recorded whole, and is the only way in which more can be used than a limit allows. It is
//! worth a warning, as is one that uses up most of a limit ([`Notice`]).

mod account;
mod meter;
mod notice;
mod recount;
mod sheet;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;

use serde::{Deserialize, Serialize};

pub use self::account::{Account, Cost, Hold, Usage};
pub use self::meter::{Caps, Meter, Metered};
pub use self::notice::{Crossing, Marks, Notice, Overrun};
pub use self::recount::Miscount;
pub use self::sheet::Sheet;
use crate::error::{ErrorKind, Kinded};
use crate::id::RunId;
use crate::money::Usd;

#[cfg(test)]
mod tests;

/// The name of an account: the first run of its chain.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct AccountId(pub RunId);

impl fmt::Display for AccountId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The number of a paid call of an account, from 1 on without a gap. Each settles once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct CallNo(pub u32);

impl fmt::Display for CallNo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The name of a meter: `day/2026-11-22`, `month/2026-11`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct MeterId(pub String);

impl fmt::Display for MeterId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What happens to an account.
#[derive(Debug, Clone, PartialEq)]
pub enum Operation {
    /// A chain of runs begins. With a limit and a parent, the limit is reserved there.
    Open {
        /// The account of the run that starts the chain.
        parent: Option<AccountId>,
        /// The most it may spend.
        limit: Option<Usd>,
    },
    /// A paid call is about to be made.
    Hold {
        /// Its number: the one after the last.
        call: CallNo,
        /// The most it may cost.
        amount: Usd,
        /// The meters it counts in.
        meters: Vec<Metered>,
    },
    /// The open call is over.
    Settle {
        /// Its number.
        call: CallNo,
        /// What it came to.
        usage: Usage,
        /// Whether its price is an estimate.
        estimated: bool,
    },
    /// The limit becomes a higher one.
    Raise {
        /// The limit from now on.
        to: Usd,
    },
    /// The chain is over. The account is closed as soon as none below it is open.
    End,
    /// The chain continues, while the account is open or ended.
    Adopt,
    /// The chain continues after its account was closed.
    Reopen {
        /// The account as it was closed.
        closed: Box<Account>,
        /// The limit from now on.
        limit: Option<Usd>,
    },
}

/// Where money lacks.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Lacking {
    /// An account: that of the operation, or one above it.
    Account(AccountId),
    /// A meter.
    Meter(MeterId),
}

impl fmt::Display for Lacking {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Account(id) => write!(f, "run `{id}`"),
            Self::Meter(id) => write!(f, "the limit of this node for the {id}"),
        }
    }
}

/// There is not enough money.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{lacking} may spend {limit} USD, of which {used} are used or reserved: that leaves too little for {asked}"
)]
pub struct Shortfall {
    /// How much more was to be used there.
    pub asked: Usd,
    /// Who has too little.
    pub lacking: Lacking,
    /// Its limit.
    pub limit: Usd,
    /// How much of that is used, held or reserved.
    pub used: Usd,
    /// Whether only open holds, or older requests that wait for such, stand in the way: then it is worth waiting.
    pub wait: bool,
}

impl Kinded for Shortfall {
    fn kind(&self) -> ErrorKind {
        ErrorKind::Precondition
    }
}

/// An operation that makes no sense where its account stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Misuse {
    /// There is no such account, or it is closed.
    #[error("there is no such open account")]
    NoAccount,
    /// An account of that name is open.
    #[error("the account is open already")]
    Exists,
    /// Its chain is over.
    #[error("the account has ended")]
    Ended,
    /// A chain makes one paid call at a time.
    #[error("a call of the account is open")]
    CallOpen,
    /// No such call is open.
    #[error("the account has no such open call")]
    NoSuchCall,
    /// Calls are numbered without a gap.
    #[error("the number of the call is not the next one")]
    CallNumber,
    /// A limit is raised to more than it was, and to no less than what is used.
    #[error("the new limit is not above the old one, or below what is used")]
    NotARaise,
    /// A root without a limit has none to raise.
    #[error("the account has no limit, and nothing above it")]
    Unlimited,
    /// A sum does not fit.
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

/// Why an operation is not granted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Denied {
    /// There is not enough money.
    #[error(transparent)]
    Short(#[from] Shortfall),
    /// It makes no sense.
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

/// What a sheet leaves behind: the accounts and meters as they are after its operations.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Rows {
    /// Accounts that are open.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub open: BTreeMap<AccountId, Account>,
    /// Accounts that were closed.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub closed: BTreeMap<AccountId, Account>,
    /// Meters.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub meters: BTreeMap<MeterId, Meter>,
}

impl Rows {
    /// Whether nothing has changed.
    pub fn is_empty(&self) -> bool {
        self.open.is_empty() && self.closed.is_empty() && self.meters.is_empty()
    }
}

/// All open accounts and the meters. See the module.
#[derive(Debug, Clone, Default)]
pub struct Ledger {
    accounts: HashMap<AccountId, Account>,
    /// Those that draw on an account.
    below: HashMap<AccountId, BTreeSet<AccountId>>,
    /// How many chains of a tree are not over, by the account at its root; none is 0.
    live: HashMap<AccountId, usize>,
    meters: BTreeMap<MeterId, Meter>,
}

impl Ledger {
    /// An account that is open, or whose chain is over while accounts below it are open.
    pub fn account(&self, id: &AccountId) -> Option<&Account> {
        self.accounts.get(id)
    }

    /// All of these, in no order.
    pub fn accounts(&self) -> impl Iterator<Item = (&AccountId, &Account)> {
        self.accounts.iter()
    }

    /// A meter; one in which nothing counts yet is empty.
    pub fn meter(&self, id: &MeterId) -> Meter {
        self.meters.get(id).copied().unwrap_or_default()
    }

    /// The meters in which something counts, or has counted.
    pub const fn meters(&self) -> &BTreeMap<MeterId, Meter> {
        &self.meters
    }

    /// The account and those above it, up to the root of its tree.
    pub fn path<'a>(
        &'a self,
        id: &AccountId,
    ) -> impl Iterator<Item = (&'a AccountId, &'a Account)> {
        let first = self.accounts.get_key_value(id);
        std::iter::successors(first, |(_, account)| {
            self.accounts.get_key_value(account.parent.as_ref()?)
        })
    }

    /// The open accounts that draw on `id`.
    pub fn below(&self, id: &AccountId) -> impl Iterator<Item = &AccountId> {
        self.below.get(id).into_iter().flatten()
    }

    /// What an open account and all below it have spent.
    pub fn cost(&self, id: &AccountId) -> Option<Cost> {
        let own = self.account(id)?.cost().ok()?;
        self.below(id)
            .try_fold(own, |cost, below| cost.plus(&self.cost(below)?))
    }

    /// The limits that the accounts from `id` upwards need so that `id` may spend `to`: its own, and those of the accounts above
    /// that would have too little. The topmost first.
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

    /// Makes what a sheet over this ledger came to, or came to before a restart, what is.
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
        // What is above an account is known only when all of them are there.
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

    /// The account at the root of the tree of `id`.
    pub fn root<'a>(&'a self, id: &'a AccountId) -> &'a AccountId {
        self.path(id).last().map_or(id, |(root, _)| root)
    }

    /// How many chains of runs of the tree whose root is `root` are not over.
    pub fn live(&self, root: &AccountId) -> usize {
        self.live.get(root).copied().unwrap_or_default()
    }

    /// Counts a chain of runs that is not over, or that is.
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
