//! Warnings about a settled call: it cost more than its hold, or it brought a limit to 80 % or more.
//!
//! An account counts with its floor, a meter with its settled amount. Money that may still come back causes no warning.

use std::fmt;

use super::{Account, AccountId, CallNo, Hold, LimitId, Metered, Transaction};
use crate::money::Usd;

/// Warning about a settlement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Notice {
    Overrun(Overrun),
    /// A settlement brought a limit to 80 % or more.
    Crossing(Crossing),
}

impl fmt::Display for Notice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Overrun(overrun) => overrun.fmt(f),
            Self::Crossing(crossing) => crossing.fmt(f),
        }
    }
}

/// A call that cost more than its hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Overrun {
    pub call: CallNo,
    pub held: Usd,
    pub cost: Usd,
    /// Limits that are exceeded now, the nearest first. Nothing more is granted there.
    pub beyond: Vec<LimitId>,
}

impl fmt::Display for Overrun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            call,
            held,
            cost,
            beyond,
        } = self;
        write!(
            f,
            "call {call} cost {cost} USD, more than the {held} that were held for it"
        )?;
        for (number, at) in beyond.iter().enumerate() {
            let before = if number == 0 {
                "; that is beyond "
            } else {
                ", "
            };
            write!(f, "{before}{}", limit_of(at))?;
        }
        Ok(())
    }
}

/// A limit, and the amount that counts against it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Crossing {
    pub at: LimitId,
    pub counted: Usd,
    pub limit: Usd,
}

impl fmt::Display for Crossing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { at, counted, limit } = self;
        write!(
            f,
            "80 % or more of {} are used: {counted} of {limit} USD",
            limit_of(at)
        )
    }
}

fn limit_of(at: &LimitId) -> String {
    match at {
        LimitId::Account(_) => format!("what {at} may spend"),
        LimitId::Meter(_) => at.to_string(),
    }
}

/// Hold of an account's open call, and the limits that its settlement counts against, as they were before it.
#[derive(Debug)]
pub struct LimitSnapshot {
    hold: Option<Hold>,
    limits: Vec<Crossing>,
}

impl LimitSnapshot {
    /// Collects the limits of the open call of `id`.
    pub fn of(sheet: &Transaction<'_>, id: &AccountId) -> Self {
        let mut limits = Vec::new();
        let mut next = Some(id);
        while let Some((id, account)) = next.and_then(|id| Some((id, sheet.account(id).ok()?))) {
            let at = || LimitId::Account(id.clone());
            limits.extend(account.limit.map(|limit| (at(), limit)));
            next = account.parent.as_ref();
        }
        let hold = sheet.account(id).ok().and_then(|own| own.hold.clone());
        let meters = hold.iter().flat_map(|hold| &hold.meters);
        limits.extend(meters.map(|Metered { id, limit }| (LimitId::Meter(id.clone()), *limit)));
        let marks = limits.into_iter().map(|(at, limit)| Crossing {
            counted: counted(sheet, &at),
            at,
            limit,
        });
        Self {
            limits: marks.collect(),
            hold,
        }
    }

    /// Returns the warnings after the call was settled at `cost` on `sheet`.
    pub fn notices(self, sheet: &Transaction<'_>, cost: Usd) -> Vec<Notice> {
        let overrun = self.hold.filter(|hold| cost > hold.amount).map(|hold| {
            let beyond = self.limits.iter().filter(|mark| is_beyond(sheet, mark));
            Notice::Overrun(Overrun {
                call: hold.call,
                held: hold.amount,
                cost,
                beyond: beyond.map(|mark| mark.at.clone()).collect(),
            })
        });
        let crossed = self.limits.into_iter().filter_map(|mark| {
            let now = Crossing {
                counted: counted(sheet, &mark.at),
                ..mark.clone()
            };
            (!mark.is_crossed() && now.is_crossed()).then_some(Notice::Crossing(now))
        });
        overrun.into_iter().chain(crossed).collect()
    }
}

impl Crossing {
    fn is_crossed(&self) -> bool {
        u128::from(self.counted.nanos()) * 5 >= u128::from(self.limit.nanos()) * 4
    }
}

fn counted(sheet: &Transaction<'_>, at: &LimitId) -> Usd {
    match at {
        LimitId::Account(id) => sheet.account(id).map_or(Usd::ZERO, Account::floor),
        LimitId::Meter(id) => sheet.meter(id).spent,
    }
}

/// Returns true if the use exceeds the limit.
fn is_beyond(sheet: &Transaction<'_>, mark: &Crossing) -> bool {
    match &mark.at {
        LimitId::Account(id) => {
            let account = sheet.account(id);
            account.is_ok_and(|account| account.overrun() > Usd::ZERO)
        }
        LimitId::Meter(id) => sheet.meter(id).spent > mark.limit,
    }
}
