//! Money as whole nano-dollars: no float ever holds an amount.

use std::fmt;

use serde::{Deserialize, Serialize};

/// An amount of US dollars in nano-dollars (10⁻⁹ USD).
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Usd {
    nanos: u64,
}

impl Usd {
    /// No money.
    pub const ZERO: Self = Self { nanos: 0 };
}

impl fmt::Display for Usd {
    /// Dollars with all nine decimals, as the wire and the `--json` output carry them.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}.{:09}",
            self.nanos / 1_000_000_000,
            self.nanos % 1_000_000_000
        )
    }
}
