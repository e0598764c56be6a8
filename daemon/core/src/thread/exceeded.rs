//! A limit that leaves nothing for another turn, in the form of the record.

use crate::model::event::LimitEscalationRequested;
use crate::model::{Failure, Raisable, SuspendReason, Suspension, proposed};
use crate::money::Usd;

use super::funds::RemainingFunds;

#[derive(Debug, Clone, PartialEq)]
pub(super) struct Exceeded {
    /// The suspension of the thread at this limit.
    pub(super) why: Suspension,
    /// A limit with which it could continue, if it can be raised: twice as much, or the most that the accounts above
    /// allow.
    proposed: Option<String>,
}

impl Exceeded {
    /// A limit that is a number.
    pub(super) fn number(code: &str, used: u64, max: u64) -> Self {
        let more = proposed(used, max);
        Self::at(code, used.to_string(), max.to_string(), more.to_string())
    }

    /// The limit of tokens, which leaves fewer than the `least` that the next answer needs.
    pub(super) fn tokens(used: u64, max: u64, least: u64) -> Self {
        let code = Raisable::Tokens.code();
        let enough = used.saturating_add(least);
        let more = proposed(used, max).max(enough);
        let mut exceeded = Self::at(code, used.to_string(), max.to_string(), more.to_string());
        let text = format!(
            "a limit is reached ({code}): {used} of {max} are used, and the next call needs {least} for its answer; \
             it begins with a limit of {enough} or more"
        );
        exceeded.why.failure = Some(Box::new(Failure::permanent(code, text)));
        exceeded
    }

    /// A limit that is an amount of money. If the accounts above allow no higher one, there is no proposal.
    pub(super) fn money(code: &str, left: &RemainingFunds) -> Self {
        let (used, max) = (left.used, left.limit);
        let twice = Usd::from_nanos(proposed(used.nanos(), max.nanos()));
        let more = left.bearable.map_or(twice, |most| twice.min(most));
        let reached = Self::at(code, used.to_string(), max.to_string(), more.to_string());
        Self {
            proposed: reached.proposed.filter(|_| more > max),
            ..reached
        }
    }

    fn at(code: &str, current: String, max: String, proposed: String) -> Self {
        Self {
            why: Suspension {
                code: Some(code.to_owned()),
                current: Some(current),
                max: Some(max),
                ..Suspension::new(SuspendReason::Limit)
            },
            proposed: Some(proposed),
        }
    }

    /// A limit that cannot be raised here.
    pub(super) const fn of(why: Suspension) -> Self {
        Self {
            why,
            proposed: None,
        }
    }

    /// Returns the request for a higher limit.
    pub(super) fn request(&self) -> Option<LimitEscalationRequested> {
        let why = &self.why;
        Some(LimitEscalationRequested {
            limit_code: why.code.clone()?,
            current_value: why.current.clone()?,
            current_max: why.max.clone()?,
            proposed_max: self.proposed.clone()?,
        })
    }

    /// Returns the failure of a thread that ends without a request.
    pub(super) fn failure(&self) -> Failure {
        let why = &self.why;
        if let Some(failure) = &why.failure {
            return Failure::clone(failure);
        }
        let word = |word: &Option<String>| word.clone().unwrap_or_default();
        let (code, current, max) = (word(&why.code), word(&why.current), word(&why.max));
        let text = format!("a limit is reached ({code}): {current} are used, and {max} may be");
        Failure::permanent(&code, text)
    }
}
