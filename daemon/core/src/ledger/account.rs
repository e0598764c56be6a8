//! One account: its stored fields, and the figures derived from them.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::{AccountId, CallNo, Metered, Misuse};
use crate::money::Usd;

/// Totals of paid calls. Tokens are only counted; only money is limited over a tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Usage {
    #[serde(rename = "usd", skip_serializing_if = "is_default")]
    pub money: Usd,
    /// Number of calls.
    #[serde(skip_serializing_if = "is_default")]
    pub calls: u32,
    /// Number of calls that were turns of a thread.
    #[serde(skip_serializing_if = "is_default")]
    pub turns: u32,
    /// Tokens of input that were not cached.
    #[serde(skip_serializing_if = "is_default")]
    pub input: u64,
    /// Tokens of output, reasoning included.
    #[serde(skip_serializing_if = "is_default")]
    pub output: u64,
    /// Tokens of input that were read from a cache.
    #[serde(skip_serializing_if = "is_default")]
    pub cache_read: u64,
    /// Tokens of input that were written to a cache.
    #[serde(skip_serializing_if = "is_default")]
    pub cache_write: u64,
    /// Tokens of output that were reasoning.
    #[serde(skip_serializing_if = "is_default")]
    pub reasoning: u64,
}

impl Usage {
    /// Returns the sum; `None` if it overflows.
    pub fn plus(&self, other: &Self) -> Option<Self> {
        Some(Self {
            money: self.money.checked_add(other.money)?,
            calls: self.calls.checked_add(other.calls)?,
            turns: self.turns.checked_add(other.turns)?,
            input: self.input.checked_add(other.input)?,
            output: self.output.checked_add(other.output)?,
            cache_read: self.cache_read.checked_add(other.cache_read)?,
            cache_write: self.cache_write.checked_add(other.cache_write)?,
            reasoning: self.reasoning.checked_add(other.reasoning)?,
        })
    }

    /// Returns the difference; `None` if `earlier` is not a part of this.
    pub(super) fn minus(&self, earlier: &Self) -> Option<Self> {
        Some(Self {
            money: self.money.checked_sub(earlier.money)?,
            calls: self.calls.checked_sub(earlier.calls)?,
            turns: self.turns.checked_sub(earlier.turns)?,
            input: self.input.checked_sub(earlier.input)?,
            output: self.output.checked_sub(earlier.output)?,
            cache_read: self.cache_read.checked_sub(earlier.cache_read)?,
            cache_write: self.cache_write.checked_sub(earlier.cache_write)?,
            reasoning: self.reasoning.checked_sub(earlier.reasoning)?,
        })
    }
}

/// Settled usage, with the part of its money that is an estimate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Cost {
    #[serde(flatten)]
    pub usage: Usage,
    /// Part of the money that is an estimate.
    #[serde(default, skip_serializing_if = "is_default")]
    pub estimated: Usd,
}

impl Cost {
    /// Returns the sum; `None` if it overflows.
    pub fn plus(&self, other: &Self) -> Option<Self> {
        Some(Self {
            usage: self.usage.plus(&other.usage)?,
            estimated: self.estimated.checked_add(other.estimated)?,
        })
    }

    /// Returns the figures under the names of documents: `turns`, `input_tokens` and so on, and the money as `spend`, a
    /// decimal text.
    pub fn figures(&self) -> Map<String, Value> {
        let usage = &self.usage;
        let figures = [
            ("turns", json!(usage.turns)),
            ("input_tokens", json!(usage.input)),
            ("output_tokens", json!(usage.output)),
            ("cache_read_tokens", json!(usage.cache_read)),
            ("cache_write_tokens", json!(usage.cache_write)),
            ("reasoning_tokens", json!(usage.reasoning)),
            ("spend", json!(usage.money)),
            ("estimated", json!(self.estimated > Usd::ZERO)),
        ];
        let figures = figures.into_iter();
        figures
            .map(|(name, figure)| (name.to_owned(), figure))
            .collect()
    }

    /// Returns the figures for the calculations of graphs and models: the money is a number too.
    pub fn numbers(&self) -> Map<String, Value> {
        let mut figures = self.figures();
        figures.insert("spend".to_owned(), self.usage.money.to_number());
        figures
    }
}

/// Money reserved for a call under way.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hold {
    pub call: CallNo,
    pub amount: Usd,
    /// Meters in which the call counts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub meters: Vec<Metered>,
}

/// One account, as it is stored.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Account {
    /// Account that this one draws on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parent: Option<AccountId>,
    /// Limit of the spending of this account and of all below it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<Usd>,
    /// Settled calls of the chain itself.
    #[serde(skip_serializing_if = "is_default")]
    pub own: Usage,
    /// Part of the money in `own` that is an estimate.
    #[serde(skip_serializing_if = "is_default")]
    pub estimated: Usd,
    /// Totals of the closed accounts directly below.
    #[serde(skip_serializing_if = "is_default")]
    pub closed: Usage,
    /// Part of the money in `closed` that is an estimate.
    #[serde(skip_serializing_if = "is_default")]
    pub closed_estimated: Usd,
    /// Hold of the open call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hold: Option<Hold>,
    /// Last number assigned to a call.
    #[serde(skip_serializing_if = "is_default")]
    pub calls: CallNo,
    /// Number of open accounts directly below.
    #[serde(skip_serializing_if = "is_default")]
    pub below: u32,
    /// Sum of the claims of the open accounts directly below.
    #[serde(skip_serializing_if = "is_default")]
    pub open: Usd,
    /// Sum of the floor claims of the open accounts directly below.
    #[serde(skip_serializing_if = "is_default")]
    pub open_floor: Usd,
    /// True if the chain is over while accounts below are still open.
    #[serde(skip_serializing_if = "is_default")]
    pub ended: bool,
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

impl Account {
    /// Returns the amount set aside for the account at its parent.
    pub fn reserved(&self) -> Usd {
        match (&self.parent, self.limit) {
            (Some(_), Some(limit)) => limit,
            (None, _) | (_, None) => Usd::ZERO,
        }
    }

    /// Returns the amount held for the open call.
    pub fn held(&self) -> Usd {
        self.hold.as_ref().map_or(Usd::ZERO, |hold| hold.amount)
    }

    /// Returns the amount that counts against the limit.
    pub fn used(&self) -> Usd {
        sum([self.own.money, self.held(), self.open, self.closed.money])
    }

    /// Returns the use if every open hold, here and below, settled at nothing.
    pub fn floor(&self) -> Usd {
        sum([self.own.money, self.open_floor, self.closed.money])
    }

    /// Returns the amount that the parent counts for the account.
    pub fn claim(&self) -> Usd {
        self.reserved().max(self.used())
    }

    /// Returns the claim if every open hold settled at nothing.
    pub fn floor_claim(&self) -> Usd {
        self.reserved().max(self.floor())
    }

    /// Returns the spending of the account and of the closed accounts below it.
    pub fn total(&self) -> Result<Usage, Misuse> {
        self.own.plus(&self.closed).ok_or(Misuse::Overflow)
    }

    /// Returns the part of the money in `total` that is an estimate.
    pub(super) fn total_estimated(&self) -> Usd {
        sum([self.estimated, self.closed_estimated])
    }

    /// Returns the total with its estimated part.
    pub fn cost(&self) -> Result<Cost, Misuse> {
        Ok(Cost {
            usage: self.total()?,
            estimated: self.total_estimated(),
        })
    }

    /// Returns the amount that may still be spent; `None` without a limit.
    pub fn remaining(&self) -> Option<Usd> {
        Some(self.limit?.saturating_sub(self.used()))
    }

    /// Returns the amount in use beyond the limit.
    pub fn overrun(&self) -> Usd {
        match self.limit {
            Some(limit) => self.used().saturating_sub(limit),
            None => Usd::ZERO,
        }
    }
}

/// Adds up the parts, which were checked to fit together when they grew.
fn sum<const N: usize>(parts: [Usd; N]) -> Usd {
    let fits = |total: Usd, part| total.checked_add(part);
    parts
        .into_iter()
        .try_fold(Usd::ZERO, fits)
        .unwrap_or(Usd::from_nanos(u64::MAX))
}
