//! Money that is left for a thread.

use crate::ledger::{AccountId, CallNo, Metered};
use crate::money::Usd;

/// What may be spent on the next call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Funds {
    /// The number of the next paid call of the account.
    pub next: CallNo,
    /// What is left where the least is left; `None` without any limit.
    pub left: Option<RemainingFunds>,
    /// The meters in force.
    pub meters: Vec<Metered>,
}

/// What is left in an account, open calls not counted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemainingFunds {
    /// How much.
    pub amount: Usd,
    /// The account: that of the thread, or one above it.
    pub account: AccountId,
    /// What is used of it.
    pub used: Usd,
    /// Its limit.
    pub limit: Usd,
    /// The highest limit that the accounts above it bear; `None` if none of them has a limit.
    pub bearable: Option<Usd>,
}
