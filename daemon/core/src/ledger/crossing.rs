//! When most of what a limit allows is gone: a settlement that crosses four fifths of it.
//!
//! Of an account counts what would be used if every open hold settled at nothing, of a meter what is settled: what may still come back
//! warns nobody.

use std::fmt;

use super::{Account, AccountId, Lacking, Metered, Sheet};
use crate::money::Usd;

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
        let whose = match at {
            Lacking::Account(_) => format!("what {at} may spend"),
            Lacking::Meter(_) => at.to_string(),
        };
        write!(
            f,
            "80 % or more of {whose} are used: {counted} of {limit} USD"
        )
    }
}

/// The limits that the settlement of a call counts against, each with what counted before it.
#[derive(Debug)]
pub struct Marks(Vec<Crossing>);

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
        let hold = sheet.account(id).ok().and_then(|own| own.hold.as_ref());
        let meters = hold.into_iter().flat_map(|hold| &hold.meters);
        limits.extend(meters.map(|Metered { id, limit }| (Lacking::Meter(id.clone()), *limit)));
        let marks = limits.into_iter().map(|(at, limit)| Crossing {
            counted: counted(sheet, &at),
            at,
            limit,
        });
        Self(marks.collect())
    }

    /// Those that are crossed on `sheet`, on which the call is settled.
    pub fn crossed(self, sheet: &Sheet<'_>) -> impl Iterator<Item = Crossing> {
        self.0.into_iter().filter_map(|mark| {
            let now = Crossing {
                counted: counted(sheet, &mark.at),
                ..mark.clone()
            };
            (!mark.is_beyond() && now.is_beyond()).then_some(now)
        })
    }
}

impl Crossing {
    fn is_beyond(&self) -> bool {
        u128::from(self.counted.nanos()) * 5 >= u128::from(self.limit.nanos()) * 4
    }
}

fn counted(sheet: &Sheet<'_>, at: &Lacking) -> Usd {
    match at {
        Lacking::Account(id) => sheet.account(id).map_or(Usd::ZERO, Account::floor),
        Lacking::Meter(id) => sheet.meter(id).spent,
    }
}
