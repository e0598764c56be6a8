//! Size limits of a call, and the amount held for it.

use serde::{Deserialize, Serialize};

use super::choice::ResolvedModel;
use crate::money::Usd;

/// Known facts before a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CallContext {
    /// Tokens of the last call of this conversation: all its input, and its output, which is input from now on. 0 for a
    /// new conversation.
    pub reported: u64,
    /// Bytes added since the last call; all bytes of a new conversation.
    pub new_bytes: usize,
    /// Tokens that the limits leave; `None` without a limit.
    pub tokens_left: Option<u64>,
    /// Money that the limits leave, without subtracting other holds; `None` without a limit.
    pub money_left: Option<Usd>,
}

/// Size of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Size {
    /// Estimated number of input tokens.
    pub input: u64,
    /// Largest number of tokens of the answer.
    pub max_output: u32,
    /// Largest cost of the call.
    pub hold: Usd,
}

/// Resource that is too scarce for the smallest useful answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TooSmall {
    #[error("{left} tokens are left, the least answer takes {least}")]
    Tokens {
        left: u64,
        /// Smallest number of tokens of an answer.
        least: u32,
    },
    #[error("{left} US dollars are left, the least answer costs up to {least}")]
    Money {
        left: Usd,
        /// Lowest cost of a call.
        least: Usd,
    },
    /// The cost overflows.
    #[error("the call is too large for any price")]
    Cost,
}

impl ResolvedModel {
    /// Computes the size of the next call. If the limits leave too little for the smallest answer, it fails.
    pub fn size(&self, ahead: &CallContext) -> Result<Size, TooSmall> {
        let new = self.token_size.tokens(ahead.new_bytes);
        let input = ahead.reported.saturating_add(new);
        let least = self.least_output();
        let mut most = u64::from(self.max_output);
        if let Some(left) = ahead.tokens_left {
            most = most.min(left);
            if most < u64::from(least) {
                return Err(TooSmall::Tokens { left, least });
            }
        }
        let cost = |output: u64| self.prices.hold(input, output).ok_or(TooSmall::Cost);
        if let Some(left) = ahead.money_left {
            let least = cost(least.into())?;
            if least > left {
                return Err(TooSmall::Money { left, least });
            }
            most = self.prices.affordable(left, input, most);
        }
        Ok(Size {
            input,
            max_output: u32::try_from(most).unwrap_or(self.max_output),
            hold: cost(most)?,
        })
    }
}
