//! Who pays for a run, as it is fixed when the run is accepted.

use serde::{Deserialize, Serialize};

use crate::id::RunId;
use crate::ledger::{Account, AccountId, Operation};
use crate::money::Usd;

/// The account of a run, and what the run's creation does to it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Budget {
    /// The account: that of the chain of runs.
    pub account: AccountId,
    /// Whether it is a new one.
    pub funding: Funding,
}

/// What the creation of a run does to its account.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Funding {
    /// A chain of runs begins, and its account is opened.
    Open {
        /// The account above it: that of the run that starts the chain.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        parent: Option<AccountId>,
        /// The most it may spend; without one, what the account above it may.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        limit: Option<Usd>,
    },
    /// The chain continues, and its account was not closed.
    Adopt,
    /// The chain continues after its account was closed.
    Reopen {
        /// The account as it was closed.
        closed: Box<Account>,
        /// Its limit from now on, if it is another one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        limit: Option<Usd>,
    },
}

impl Budget {
    /// An account of its own for the chain that begins with `run`, with nothing above it and no limit.
    pub const fn open(run: RunId) -> Self {
        Self {
            account: AccountId(run),
            funding: Funding::Open {
                parent: None,
                limit: None,
            },
        }
    }

    /// Gives a new account the limit that its item or the configuration names, if the request named none: an item names one for
    /// any account, the configuration only for one with nothing above it.
    pub fn limit_by(&mut self, of_item: Option<Usd>, by_default: Option<Usd>) {
        if let Funding::Open { parent, limit } = &mut self.funding {
            let by_default = by_default.filter(|_| parent.is_none());
            *limit = limit.or(of_item).or(by_default);
        }
    }

    /// What the creation of the run does to the account.
    pub fn operation(&self) -> Operation {
        match &self.funding {
            Funding::Open { parent, limit } => Operation::Open {
                parent: parent.clone(),
                limit: *limit,
            },
            Funding::Adopt => Operation::Adopt,
            Funding::Reopen { closed, limit } => Operation::Reopen {
                closed: closed.clone(),
                limit: *limit,
            },
        }
    }
}
