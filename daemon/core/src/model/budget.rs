//! Who pays for a run, as it is fixed when the run is accepted, and what its paid calls leave in its record.

use serde::{Deserialize, Serialize};

use crate::id::RunId;
use crate::ledger::{Account, AccountId, CallNo, Operation};
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

/// A paid call in flight, whose price is held in the account of the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenCall {
    /// Its number in the account.
    pub call: CallNo,
    /// What is held for it: the most it may cost.
    pub amount: Usd,
}

/// Why a paid call came to the price it came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Because {
    /// The provider said what was used.
    Usage,
    /// Nothing was sent: it cost nothing.
    NothingSent,
    /// The provider refused it: it cost nothing.
    Refused,
    /// The answer broke off: what is known of it counts, or all that was held.
    Cut,
    /// The daemon went down meanwhile: all that was held counts, as an estimate.
    Crash,
    /// The run was ended or suspended meanwhile: what is known of the answer counts, or all that was held.
    Stopped,
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

    /// The account above a new one.
    pub const fn parent(&self) -> Option<&AccountId> {
        match &self.funding {
            Funding::Open { parent, .. } => parent.as_ref(),
            Funding::Adopt | Funding::Reopen { .. } => None,
        }
    }

    /// What the account may spend from the creation of the run on, if that says so.
    pub const fn limit(&self) -> Option<Usd> {
        match &self.funding {
            Funding::Open { limit, .. } | Funding::Reopen { limit, .. } => *limit,
            Funding::Adopt => None,
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
