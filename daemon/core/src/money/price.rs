//! Prices of tokens.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{InvalidUsd, Usd};

/// The highest price that is read, in dollars for a million tokens.
pub(super) const MOST_DOLLARS: u64 = 10_000;

/// Tokens that a price is for.
const TOKENS: u128 = 1_000_000;

/// What a million tokens cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Price {
    of_a_million: Usd,
}

impl Price {
    /// Nothing.
    pub const FREE: Self = Self {
        of_a_million: Usd::ZERO,
    };

    /// What a million tokens cost.
    pub const fn of_a_million(self) -> Usd {
        self.of_a_million
    }

    /// The price that the decimal `text` names.
    pub fn parse(text: &str) -> Result<Self, InvalidUsd> {
        Self::within(Usd::parse(text)?, || text.to_owned())
    }

    /// The price that a number, or a text, of a YAML file names.
    pub fn from_json(value: &Value) -> Result<Self, InvalidUsd> {
        Self::within(Usd::from_json(value)?, || value.to_string())
    }

    fn within(of_a_million: Usd, said: impl FnOnce() -> String) -> Result<Self, InvalidUsd> {
        if of_a_million.nanos() > MOST_DOLLARS * super::NANOS {
            return Err(InvalidUsd::TooDear(said()));
        }
        Ok(Self { of_a_million })
    }

    /// What so many tokens cost, in millionths of a nano-dollar: not rounded yet, for [`total`](Self::total).
    pub fn of(self, tokens: u64) -> u128 {
        u128::from(self.of_a_million.nanos()) * u128::from(tokens)
    }

    /// The sum of what [`of`](Self::of) gave, rounded up once; `None` if it does not fit.
    pub fn total(parts: impl IntoIterator<Item = u128>) -> Option<Usd> {
        let mut parts = parts.into_iter();
        let sum = parts.try_fold(0_u128, u128::checked_add)?;
        let nanos = u64::try_from(sum.div_ceil(TOKENS)).ok()?;
        Some(Usd::from_nanos(nanos))
    }
}
