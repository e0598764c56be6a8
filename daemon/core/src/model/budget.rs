//! The payer of a run, fixed when the run is accepted, and the traces of its paid calls in its record.

use serde::{Deserialize, Serialize};

use crate::id::RunId;
use crate::ledger::{Account, AccountId, CallNo, Operation};
use crate::money::Usd;

/// The account of a run, and the operation of the run's creation on it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Budget {
    /// The account of the chain of runs.
    pub account: AccountId,
    pub funding: Funding,
}

/// The operation of a run's creation on its account.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Funding {
    /// A chain of runs begins, and its account is opened.
    Open {
        /// The account above it: that of the run that starts the chain.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        parent: Option<AccountId>,
        /// Spending limit; without one, that of the account above applies.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        limit: Option<Usd>,
    },
    /// The chain continues, and its account was not closed.
    Adopt,
    /// The chain continues after its account was closed.
    Reopen {
        /// The account at its closing.
        closed: Box<Account>,
        /// New limit, if it changes.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        limit: Option<Usd>,
    },
}

/// A paid call in flight, whose price is held in the account of the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenCall {
    /// Number of the call in the account.
    pub call: CallNo,
    /// The held amount: the highest possible cost.
    pub amount: Usd,
}

/// Source of the price of a paid call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Because {
    /// The provider reported the usage.
    Usage,
    /// Nothing was sent: it cost nothing.
    NothingSent,
    /// The provider refused it: it cost nothing.
    Refused,
    /// The answer broke off: the known usage counts, or else the whole held amount.
    Cut,
    /// The daemon went down meanwhile: the whole held amount counts, as an estimate.
    Crash,
    /// The run was ended or suspended meanwhile: the known usage counts, or else the whole held amount.
    Stopped,
}

impl Budget {
    /// Opens an account for the chain that begins with `run`, with nothing above it and no limit.
    pub const fn open(run: RunId) -> Self {
        Self {
            account: AccountId(run),
            funding: Funding::Open {
                parent: None,
                limit: None,
            },
        }
    }

    /// Returns the account above a new one.
    pub const fn parent(&self) -> Option<&AccountId> {
        match &self.funding {
            Funding::Open { parent, .. } => parent.as_ref(),
            Funding::Adopt | Funding::Reopen { .. } => None,
        }
    }

    /// Returns the spending limit that the creation of the run sets, if it sets one.
    pub const fn limit(&self) -> Option<Usd> {
        match &self.funding {
            Funding::Open { limit, .. } | Funding::Reopen { limit, .. } => *limit,
            Funding::Adopt => None,
        }
    }

    /// Gives a new account the limit that its item or the configuration names, if the request named none. An item names
    /// one for any account, the configuration only for one with nothing above it.
    pub fn limit_by(&mut self, of_item: Option<Usd>, by_default: Option<Usd>) {
        if let Funding::Open { parent, limit } = &mut self.funding {
            let by_default = by_default.filter(|_| parent.is_none());
            *limit = limit.or(of_item).or(by_default);
        }
    }

    /// Returns the operation of the run's creation on the account.
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
