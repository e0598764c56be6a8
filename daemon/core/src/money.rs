//! Money as whole nano-dollars: no float ever holds an amount.
//!
//! Amounts in files and requests are read through their decimal text, so that `0.1` is a tenth of a dollar and nothing else.
//! All sums are checked; one that does not fit is an error.

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

/// Nano-dollars of a dollar.
const NANOS: u64 = 1_000_000_000;
/// Decimals of an amount: those of a nano-dollar.
const DECIMALS: i64 = 9;
/// The largest amount that is read from a file or a request, in dollars: sums of millions of them fit.
pub const MOST_DOLLARS: u64 = 1_000_000;

/// An amount of US dollars in nano-dollars (10⁻⁹ USD). Records and events hold it as it is shown: a text with nine decimals.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Usd {
    nanos: u64,
}

/// Why a text or a JSON value is not an amount of money.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidUsd {
    /// It is no decimal number.
    #[error("`{0}` is not an amount in US dollars such as 0.25")]
    NotANumber(String),
    /// It is below zero.
    #[error("`{0}` is less than zero")]
    Negative(String),
    /// It has parts of a nano-dollar.
    #[error("`{0}` has more than nine decimals")]
    TooFine(String),
    /// It is beyond what is read.
    #[error("`{0}` is more than {MOST_DOLLARS} US dollars")]
    TooLarge(String),
    /// It is beyond any price.
    #[error("`{0}` is more than {most} US dollars for a million tokens", most = price::MOST_DOLLARS)]
    TooDear(String),
}

impl Kinded for InvalidUsd {
    fn kind(&self) -> ErrorKind {
        ErrorKind::Invalid
    }
}

impl Usd {
    /// No money.
    pub const ZERO: Self = Self { nanos: 0 };

    /// So many nano-dollars.
    pub const fn from_nanos(nanos: u64) -> Self {
        Self { nanos }
    }

    /// The amount in nano-dollars.
    pub const fn nanos(self) -> u64 {
        self.nanos
    }

    /// The amount that the decimal `text` names: digits, a fraction of up to nine digits, an exponent if need be.
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

    /// The amount that a number, or a text, of a YAML or JSON file names.
    pub fn from_json(value: &Value) -> Result<Self, InvalidUsd> {
        match value {
            Value::Number(number) => Self::parse(&number.to_string()),
            Value::String(text) => Self::parse(text),
            Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => Err(
                InvalidUsd::NotANumber(excerpt(&value.to_string()).to_string()),
            ),
        }
    }

    /// The amount as a number, with which graphs and models calculate.
    pub fn to_number(self) -> Value {
        serde_json::from_str(&self.to_string()).expect("an amount is shown as a decimal number")
    }

    /// The sum; `None` if it does not fit.
    pub fn checked_add(self, other: Self) -> Option<Self> {
        self.nanos.checked_add(other.nanos).map(Self::from_nanos)
    }

    /// The difference; `None` if it is below zero.
    pub fn checked_sub(self, other: Self) -> Option<Self> {
        self.nanos.checked_sub(other.nanos).map(Self::from_nanos)
    }

    /// The difference, or nothing.
    #[must_use]
    pub const fn saturating_sub(self, other: Self) -> Self {
        Self::from_nanos(self.nanos.saturating_sub(other.nanos))
    }
}

impl fmt::Display for Usd {
    /// Dollars with all nine decimals, as the wire and the `--json` output carry them.
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
    /// The amount exactly as it is shown, however large: sums are larger than what anybody may ask for.
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

/// A decimal number of any length that is not below zero: `digits` × 10^`exponent`, without zeros at either end of the digits.
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

    /// The number × 10^`power`, if it is whole and fits.
    fn times_ten_to(&self, power: i64) -> Option<u64> {
        let zeros = u32::try_from(self.exponent + power).ok()?;
        let digits = self.digits.iter().try_fold(0_u64, |number, digit| {
            number.checked_mul(10)?.checked_add(u64::from(*digit))
        })?;
        digits.checked_mul(10_u64.checked_pow(zeros)?)
    }
}
