//! How large a call may be, and what is set aside for it.

use serde::{Deserialize, Serialize};

use super::choice::ResolvedModel;
use crate::money::Usd;

/// What is known before a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Ahead {
    /// Tokens that the last call of this conversation reported: all input, and the output, which is input from now on. None for a
    /// fresh conversation.
    pub reported: u64,
    /// Bytes that were added since; all of them for a fresh conversation.
    pub new_bytes: usize,
    /// Tokens that the limits leave; `None` without a limit.
    pub tokens_left: Option<u64>,
    /// Money that the limits leave, holds of others not counted; `None` without a limit.
    pub money_left: Option<Usd>,
}

/// The size of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Size {
    /// About how many tokens are sent.
    pub input: u64,
    /// The most tokens of the answer.
    pub max_output: u32,
    /// The most that the call may cost.
    pub hold: Usd,
}

/// What does not leave enough for an answer that is worth a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TooSmall {
    /// The tokens.
    #[error("{left} tokens are left, the least answer takes {least}")]
    Tokens {
        /// How many there are.
        left: u64,
        /// The fewest that an answer takes.
        least: u32,
    },
    /// The money.
    #[error("{left} US dollars are left, the least answer costs up to {least}")]
    Money {
        /// How much there is.
        left: Usd,
        /// The least that a call costs.
        least: Usd,
    },
    /// No amount of money would be enough.
    #[error("the call is too large for any price")]
    Cost,
}

impl ResolvedModel {
    /// The size of the next call. An answer below the least is a limit reached, not a smaller call.
    pub fn size(&self, ahead: &Ahead) -> Result<Size, TooSmall> {
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
