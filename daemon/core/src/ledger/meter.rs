//! Meters: the spending of the whole node in a day and in a month, in UTC.
//!
//! A call counts in the meters in force when its hold is made. It is settled in the same meters, even if the day has
//! changed.

use std::collections::BTreeMap;

use jiff::ToSpan as _;
use jiff::civil::Date;
use serde::{Deserialize, Serialize};

use super::MeterId;
use crate::clock::Timestamp;
use crate::money::Usd;

/// Days for which a meter is kept after its last day.
const KEPT_DAYS: i64 = 62;

/// Spending and holds of the node in a day or a month. Each hold names the limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Meter {
    pub spent: Usd,
    /// Sum of the open holds that count in the meter.
    pub held: Usd,
}

/// A meter in force, with its limit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Metered {
    pub id: MeterId,
    pub limit: Usd,
}

/// Limits of the node's spending; `None` means unlimited.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Caps {
    pub day: Option<Usd>,
    pub month: Option<Usd>,
}

impl Caps {
    /// Returns the meters in force at `at`. Every hold made then must count in them.
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

/// Returns the last day that counts in a meter, or `None` if its name is not that of a day or a month.
fn last_day(id: &MeterId) -> Option<Date> {
    if let Some(day) = id.0.strip_prefix(DAY) {
        return day.parse().ok();
    }
    let month = id.0.strip_prefix(MONTH)?;
    let first: Date = format!("{month}-01").parse().ok()?;
    Some(first.last_of_month())
}

/// Drops the meters that ended more than [`KEPT_DAYS`] days before the latest known day, except those with open holds.
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
