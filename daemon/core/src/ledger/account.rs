//! One account: what is stored of it, and what follows from that.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::{AccountId, CallNo, Metered, Misuse};
use crate::money::Usd;

/// What paid calls came to. Tokens are counted, only money is limited over a tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Usage {
    /// What they cost.
    #[serde(rename = "usd", skip_serializing_if = "is_default")]
    pub money: Usd,
    /// How many calls.
    #[serde(skip_serializing_if = "is_default")]
    pub calls: u32,
    /// How many of them were turns of a thread.
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
    /// Both together; `None` if a sum does not fit.
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

    /// What `earlier`, a part of this, leaves of it.
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

/// What was settled, and how much of that money is an estimate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Cost {
    /// What it came to.
    #[serde(flatten)]
    pub usage: Usage,
    /// How much of the money is an estimate.
    #[serde(default, skip_serializing_if = "is_default")]
    pub estimated: Usd,
}

impl Cost {
    /// Both together; `None` if a sum does not fit.
    pub fn plus(&self, other: &Self) -> Option<Self> {
        Some(Self {
            usage: self.usage.plus(&other.usage)?,
            estimated: self.estimated.checked_add(other.estimated)?,
        })
    }

    /// The figures under the names that documents give them: `turns`, `input_tokens` and so on, and the money, as decimal
    /// text, as `spend`.
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

    /// The figures as graphs and models calculate with them: the money is a number as well.
    pub fn numbers(&self) -> Map<String, Value> {
        let mut figures = self.figures();
        figures.insert("spend".to_owned(), self.usage.money.to_number());
        figures
    }
}

/// Money that a call under way may cost.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hold {
    /// The call.
    pub call: CallNo,
    /// How much.
    pub amount: Usd,
    /// The meters it counts in.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub meters: Vec<Metered>,
}

/// One account, as it is stored.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Account {
    /// The account it draws on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parent: Option<AccountId>,
    /// The most it may spend, itself and all below it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<Usd>,
    /// Settled calls of the chain itself.
    #[serde(skip_serializing_if = "is_default")]
    pub own: Usage,
    /// How much of the money in `own` is an estimate.
    #[serde(skip_serializing_if = "is_default")]
    pub estimated: Usd,
    /// Totals of the closed accounts directly below.
    #[serde(skip_serializing_if = "is_default")]
    pub closed: Usage,
    /// How much of the money in `closed` is an estimate.
    #[serde(skip_serializing_if = "is_default")]
    pub closed_estimated: Usd,
    /// The open call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hold: Option<Hold>,
    /// The last number that was given to a call.
    #[serde(skip_serializing_if = "is_default")]
    pub calls: CallNo,
    /// How many accounts directly below are open.
    #[serde(skip_serializing_if = "is_default")]
    pub below: u32,
    /// Σ of the claims of the open accounts directly below.
    #[serde(skip_serializing_if = "is_default")]
    pub open: Usd,
    /// Σ of their floor claims.
    #[serde(skip_serializing_if = "is_default")]
    pub open_floor: Usd,
    /// The chain is over; accounts below are still open.
    #[serde(skip_serializing_if = "is_default")]
    pub ended: bool,
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

impl Account {
    /// What is set aside for it at its parent.
    pub fn reserved(&self) -> Usd {
        match (&self.parent, self.limit) {
            (Some(_), Some(limit)) => limit,
            (None, _) | (_, None) => Usd::ZERO,
        }
    }

    /// What is held for the open call.
    pub fn held(&self) -> Usd {
        self.hold.as_ref().map_or(Usd::ZERO, |hold| hold.amount)
    }

    /// What counts against its limit.
    pub fn used(&self) -> Usd {
        sum([self.own.money, self.held(), self.open, self.closed.money])
    }

    /// What would be used if every open hold, here and below, settled at nothing.
    pub fn floor(&self) -> Usd {
        sum([self.own.money, self.open_floor, self.closed.money])
    }

    /// What its parent counts for it.
    pub fn claim(&self) -> Usd {
        self.reserved().max(self.used())
    }

    /// What its parent would count for it if every open hold settled at nothing.
    pub fn floor_claim(&self) -> Usd {
        self.reserved().max(self.floor())
    }

    /// What was spent: itself and, of those below, by the closed ones.
    pub fn total(&self) -> Result<Usage, Misuse> {
        self.own.plus(&self.closed).ok_or(Misuse::Overflow)
    }

    /// How much of the money in `total` is an estimate.
    pub(super) fn total_estimated(&self) -> Usd {
        sum([self.estimated, self.closed_estimated])
    }

    /// The total, with how much of it is an estimate.
    pub fn cost(&self) -> Result<Cost, Misuse> {
        Ok(Cost {
            usage: self.total()?,
            estimated: self.total_estimated(),
        })
    }

    /// What it may still spend; `None` without a limit of its own.
    pub fn remaining(&self) -> Option<Usd> {
        Some(self.limit?.saturating_sub(self.used()))
    }

    /// By how much it is beyond its limit.
    pub fn overrun(&self) -> Usd {
        match self.limit {
            Some(limit) => self.used().saturating_sub(limit),
            None => Usd::ZERO,
        }
    }
}

/// Σ; the parts were checked to fit together when each of them grew.
fn sum<const N: usize>(parts: [Usd; N]) -> Usd {
    let fits = |total: Usd, part| total.checked_add(part);
    parts
        .into_iter()
        .try_fold(Usd::ZERO, fits)
        .unwrap_or(Usd::from_nanos(u64::MAX))
}
