//! Money in whole nano-dollars; no float ever holds an amount.
//!
//! Amounts in files and requests are read through their decimal text, so `0.1` is exactly a tenth of a dollar. All sums
//! are checked; an overflow is an error.

use std::borrow::Cow;
use std::fmt;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

use crate::error::{ErrorKind, Kinded, excerpt};

mod price;

pub use price::Price;

#[cfg(test)]
mod tests;

/// Nano-dollars in a dollar.
const NANOS: u64 = 1_000_000_000;
/// Decimals of an amount.
const DECIMALS: i64 = 9;
/// Largest amount, in dollars, that a file or a request may contain. Sums of millions of such amounts fit.
pub const MOST_DOLLARS: u64 = 1_000_000;

/// An amount in nano-dollars (10⁻⁹ USD). Records and events store its displayed form: a text with nine decimals.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Usd {
    nanos: u64,
}

/// Reason why a text or a JSON value is not an amount of money.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidUsd {
    #[error("`{0}` is not an amount in US dollars such as 0.25")]
    NotANumber(String),
    #[error("`{0}` is less than zero")]
    Negative(String),
    #[error("`{0}` has more than nine decimals")]
    TooFine(String),
    #[error("`{0}` is more than {MOST_DOLLARS} US dollars")]
    TooLarge(String),
    /// The amount exceeds the largest price.
    #[error("`{0}` is more than {most} US dollars for a million tokens", most = price::MOST_DOLLARS)]
    TooDear(String),
}

impl Kinded for InvalidUsd {
    fn kind(&self) -> ErrorKind {
        ErrorKind::Invalid
    }
}

impl Usd {
    pub const ZERO: Self = Self { nanos: 0 };

    pub const fn from_nanos(nanos: u64) -> Self {
        Self { nanos }
    }

    pub const fn nanos(self) -> u64 {
        self.nanos
    }

    /// Parses a decimal number: digits, a fraction of up to nine digits, and an optional exponent.
    pub fn parse(text: &str) -> Result<Self, InvalidUsd> {
        let said = || excerpt(text).to_string();
        let text = text.trim();
        let (negative, unsigned) = match text.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, text),
        };
        let decimal = Decimal::read(unsigned).ok_or_else(|| InvalidUsd::NotANumber(said()))?;
        if decimal.digits.is_empty() {
            return Ok(Self::ZERO);
        }
        if negative {
            return Err(InvalidUsd::Negative(said()));
        }
        if decimal.exponent < -DECIMALS {
            return Err(InvalidUsd::TooFine(said()));
        }
        let nanos = decimal.times_ten_to(DECIMALS);
        nanos
            .filter(|nanos| *nanos <= MOST_DOLLARS * NANOS)
            .map(Self::from_nanos)
            .ok_or_else(|| InvalidUsd::TooLarge(said()))
    }

    /// Reads an amount from a number or a text of a YAML or JSON file.
    pub fn from_json(value: &Value) -> Result<Self, InvalidUsd> {
        match value {
            Value::Number(number) => Self::parse(&number.to_string()),
            Value::String(text) => Self::parse(text),
            Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => Err(
                InvalidUsd::NotANumber(excerpt(&value.to_string()).to_string()),
            ),
        }
    }

    /// Returns the amount as a number, for calculations of graphs and models.
    pub fn to_number(self) -> Value {
        serde_json::from_str(&self.to_string()).expect("an amount is shown as a decimal number")
    }

    /// Returns the sum; `None` if it overflows.
    pub fn checked_add(self, other: Self) -> Option<Self> {
        self.nanos.checked_add(other.nanos).map(Self::from_nanos)
    }

    /// Returns the difference; `None` if it is below zero.
    pub fn checked_sub(self, other: Self) -> Option<Self> {
        self.nanos.checked_sub(other.nanos).map(Self::from_nanos)
    }

    /// Returns the difference, or zero if it is below zero.
    #[must_use]
    pub const fn saturating_sub(self, other: Self) -> Self {
        Self::from_nanos(self.nanos.saturating_sub(other.nanos))
    }
}

impl fmt::Display for Usd {
    /// Writes dollars with all nine decimals, as the wire and the `--json` output carry them.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:09}", self.nanos / NANOS, self.nanos % NANOS)
    }
}

impl Serialize for Usd {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Usd {
    /// Reads the displayed form, however large: sums may exceed the largest amount of a request.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Cow::<str>::deserialize(deserializer)?;
        let shown = || {
            let (dollars, nanos) = text.split_once('.')?;
            let digits = nanos.len() == 9 && nanos.bytes().all(|byte| byte.is_ascii_digit());
            let nanos = nanos.parse::<u64>().ok().filter(|_| digits)?;
            let whole = dollars.parse::<u64>().ok()?.checked_mul(NANOS)?;
            whole.checked_add(nanos).map(Self::from_nanos)
        };
        shown().ok_or_else(|| D::Error::custom(InvalidUsd::NotANumber(text.clone().into_owned())))
    }
}

/// A decimal number of any length, zero or above: `digits` × 10^`exponent`, without zeros at either end of the digits.
struct Decimal {
    digits: Vec<u8>,
    exponent: i64,
}

impl Decimal {
    fn read(text: &str) -> Option<Self> {
        let (mantissa, exponent) = match text.split_once(['e', 'E']) {
            Some((mantissa, exponent)) => (mantissa, exponent.parse::<i32>().ok()?),
            None => (text, 0),
        };
        let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        let is_number = !whole.is_empty()
            && (!fraction.is_empty() || !mantissa.contains('.'))
            && [whole, fraction]
                .iter()
                .all(|part| part.bytes().all(|byte| byte.is_ascii_digit()));
        if !is_number {
            return None;
        }
        let mut digits: Vec<u8> = whole
            .bytes()
            .chain(fraction.bytes())
            .map(|byte| byte - b'0')
            .collect();
        let mut exponent = i64::from(exponent) - i64::try_from(fraction.len()).ok()?;
        while digits.last() == Some(&0) {
            digits.pop();
            exponent += 1;
        }
        let first = digits.iter().position(|digit| *digit != 0);
        digits.drain(..first.unwrap_or(digits.len()));
        Some(Self { digits, exponent })
    }

    /// Returns the number × 10^`power`, or `None` if it is not whole or overflows.
    fn times_ten_to(&self, power: i64) -> Option<u64> {
        let zeros = u32::try_from(self.exponent + power).ok()?;
        let digits = self.digits.iter().try_fold(0_u64, |number, digit| {
            number.checked_mul(10)?.checked_add(u64::from(*digit))
        })?;
        digits.checked_mul(10_u64.checked_pow(zeros)?)
    }
}
