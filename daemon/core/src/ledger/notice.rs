//! What the settlement of a call is worth a warning for: it cost more than was held, or it used up four fifths of a limit.
//!
//! Of an account counts towards the four fifths what would be used if every open hold settled at nothing, of a meter what is settled: what
//! may still come back warns nobody.

use std::fmt;

use super::{Account, AccountId, CallNo, Hold, Lacking, Metered, Sheet};
use crate::money::Usd;

/// What there is to say about a settlement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Notice {
    /// The call cost more than was held for it.
    Overrun(Overrun),
    /// Four fifths of a limit are used up.
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

/// A call that cost more than was held for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Overrun {
    /// The call.
    pub call: CallNo,
    /// What was held.
    pub held: Usd,
    /// What it cost.
    pub cost: Usd,
    /// The limits beyond which more is used by now, the nearest first: nothing more is granted there.
    pub beyond: Vec<Lacking>,
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

/// A limit of which a settlement used up the fourth fifth.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Crossing {
    /// Whose limit.
    pub at: Lacking,
    /// What counts against it now.
    pub counted: Usd,
    /// The limit.
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

fn limit_of(at: &Lacking) -> String {
    match at {
        Lacking::Account(_) => format!("what {at} may spend"),
        Lacking::Meter(_) => at.to_string(),
    }
}

/// The open call of an account, and the limits that its settlement counts against, each with what counted before it.
#[derive(Debug)]
pub struct Marks {
    hold: Option<Hold>,
    limits: Vec<Crossing>,
}

impl Marks {
    /// Those of the open call of `id`.
    pub fn of(sheet: &Sheet<'_>, id: &AccountId) -> Self {
        let mut limits = Vec::new();
        let mut next = Some(id);
        while let Some((id, account)) = next.and_then(|id| Some((id, sheet.account(id).ok()?))) {
            let at = || Lacking::Account(id.clone());
            limits.extend(account.limit.map(|limit| (at(), limit)));
            next = account.parent.as_ref();
        }
        let hold = sheet.account(id).ok().and_then(|own| own.hold.clone());
        let meters = hold.iter().flat_map(|hold| &hold.meters);
        limits.extend(meters.map(|Metered { id, limit }| (Lacking::Meter(id.clone()), *limit)));
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

    /// What there is to say on `sheet`, on which the call is settled at `cost`.
    pub fn notices(self, sheet: &Sheet<'_>, cost: Usd) -> Vec<Notice> {
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

fn counted(sheet: &Sheet<'_>, at: &Lacking) -> Usd {
    match at {
        Lacking::Account(id) => sheet.account(id).map_or(Usd::ZERO, Account::floor),
        Lacking::Meter(id) => sheet.meter(id).spent,
    }
}

/// Whether more than a limit allows is used there.
fn is_beyond(sheet: &Sheet<'_>, mark: &Crossing) -> bool {
    match &mark.at {
        Lacking::Account(id) => {
            let account = sheet.account(id);
            account.is_ok_and(|account| account.overrun() > Usd::ZERO)
        }
        Lacking::Meter(id) => sheet.meter(id).spent > mark.limit,
    }
}
