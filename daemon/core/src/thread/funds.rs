//! Money that is left for a thread.

use crate::ledger::{AccountId, CallNo, Metered};
use crate::money::Usd;

/// Funds for the next call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Funds {
    /// The number of the next paid call of the account.
    pub next: CallNo,
    /// The rest under the nearest limit, which is the least; `None` without any limit.
    pub left: Option<RemainingFunds>,
    /// The meters in force.
    pub meters: Vec<Metered>,
}

/// The rest of an account, with open calls not subtracted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemainingFunds {
    pub amount: Usd,
    /// The account: that of the thread, or one above it.
    pub account: AccountId,
    /// The used part.
    pub used: Usd,
    pub limit: Usd,
    /// The highest limit that the accounts above it allow; `None` if none of them has a limit.
    pub bearable: Option<Usd>,
}
