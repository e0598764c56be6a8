//! Meters: what the node as a whole may spend in a day and in a month, in UTC.
//!
//! A call counts in the meters that are in force when its hold is made, and is settled there, also when that is another day by then.

use std::collections::BTreeMap;

use jiff::ToSpan as _;
use jiff::civil::Date;
use serde::{Deserialize, Serialize};

use super::MeterId;
use crate::clock::Timestamp;
use crate::money::Usd;

/// How long what was spent is kept, in days.
const KEPT_DAYS: i64 = 62;

/// What the node has spent in a day or a month, and has on hold; its limit is named by each hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Meter {
    /// Settled.
    pub spent: Usd,
    /// Σ of the open holds that count here.
    pub held: Usd,
}

/// A meter in force, with its limit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Metered {
    /// Which.
    pub id: MeterId,
    /// How much may be spent there.
    pub limit: Usd,
}

/// The most that the node may spend; `None` is no limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Caps {
    /// In a day.
    pub day: Option<Usd>,
    /// In a month.
    pub month: Option<Usd>,
}

impl Caps {
    /// The meters in force at `at`, in which every hold that is made then has to count.
    pub fn in_force(&self, at: Timestamp) -> Vec<Metered> {
        let metered = |id, limit| Metered {
            id: MeterId(id),
            limit,
        };
        let day = self.day;
        let day = day.map(|cap| metered(format!("{DAY}{}", at.to_day_string()), cap));
        let month = self.month;
        let month = month.map(|cap| metered(format!("{MONTH}{}", at.to_month_string()), cap));
        day.into_iter().chain(month).collect()
    }
}

const DAY: &str = "day/";
const MONTH: &str = "month/";

/// The last day that counts in a meter; `None` if it is none of a day or a month.
fn last_day(id: &MeterId) -> Option<Date> {
    if let Some(day) = id.0.strip_prefix(DAY) {
        return day.parse().ok();
    }
    let month = id.0.strip_prefix(MONTH)?;
    let first: Date = format!("{month}-01").parse().ok()?;
    Some(first.last_of_month())
}

/// Forgets the meters that ended more than [`KEPT_DAYS`] days before the latest day there is; none in which something is held.
pub(super) fn forget_old(meters: &mut BTreeMap<MeterId, Meter>) {
    let days = meters.keys().filter(|id| id.0.starts_with(DAY));
    let latest = days.filter_map(last_day).max();
    let months = || meters.keys().filter_map(last_day).map(Date::first_of_month);
    let Some(latest) = latest.max(months().max()) else {
        return;
    };
    let Ok(oldest) = latest.checked_sub(KEPT_DAYS.days()) else {
        return;
    };
    meters.retain(|id, meter| {
        meter.held > Usd::ZERO || last_day(id).is_none_or(|last| last >= oldest)
    });
}
