use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{InvalidUsd, Usd};

/// Highest valid price, in dollars for 1,000,000 tokens.
pub(super) const MOST_DOLLARS: u64 = 10_000;

/// Number of tokens that a price is for.
const TOKENS: u128 = 1_000_000;

/// Price of 1,000,000 tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Price {
    of_a_million: Usd,
}

impl Price {
    pub const FREE: Self = Self {
        of_a_million: Usd::ZERO,
    };

    pub const fn of_a_million(self) -> Usd {
        self.of_a_million
    }

    /// Parses a decimal price.
    pub fn parse(text: &str) -> Result<Self, InvalidUsd> {
        Self::bounded(Usd::parse(text)?, || text.to_owned())
    }

    /// Reads a price from a number or a text of a YAML file.
    pub fn from_json(value: &Value) -> Result<Self, InvalidUsd> {
        Self::bounded(Usd::from_json(value)?, || value.to_string())
    }

    fn bounded(of_a_million: Usd, said: impl FnOnce() -> String) -> Result<Self, InvalidUsd> {
        if of_a_million.nanos() > MOST_DOLLARS * super::NANOS {
            return Err(InvalidUsd::TooDear(said()));
        }
        Ok(Self { of_a_million })
    }

    /// Returns the cost of `tokens` tokens in millionths of a nano-dollar, unrounded, for [`total`](Self::total).
    pub fn of(self, tokens: u64) -> u128 {
        u128::from(self.of_a_million.nanos()) * u128::from(tokens)
    }

    /// Sums results of [`of`](Self::of), rounded up once to nano-dollars; `None` if the sum overflows.
    pub fn total(parts: impl IntoIterator<Item = u128>) -> Option<Usd> {
        let mut parts = parts.into_iter();
        let sum = parts.try_fold(0_u128, u128::checked_add)?;
        let nanos = u64::try_from(sum.div_ceil(TOKENS)).ok()?;
        Some(Usd::from_nanos(nanos))
    }
}
