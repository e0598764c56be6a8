//! Who waits for money that only open calls hold, in the order of arrival.
//!
//! A request waits where it lacks money: at an account or at a meter. A request that comes later and would take money from the same place waits
//! behind it, however little that is; requests that do not meet do not know of each other. Nobody waits in a circle: a request waits for
//! open calls and for older requests alone, and an open call waits for nothing.

use std::collections::{BTreeMap, BTreeSet};

use crate::ledger::{Lacking, Rows};

/// A place in the line: the smaller, the earlier.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Arrival(u64);

/// The requests that wait, each with where it lacks money.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    requests: BTreeMap<Arrival, Lacking>,
    last: u64,
}

impl Waiting {
    /// Where those who came before `asker`, or anybody, lack money.
    pub(super) fn before(&self, asker: Option<Arrival>) -> BTreeSet<Lacking> {
        let earlier = self
            .requests
            .iter()
            .take_while(|(arrival, _)| asker.is_none_or(|asker| **arrival < asker));
        earlier.map(|(_, lacking)| lacking.clone()).collect()
    }

    /// `asker` waits from now on, in the place that it has, or else behind all others. Answers with its place, and with those that stood
    /// behind it somewhere else.
    pub(super) fn wait(
        &mut self,
        asker: Option<Arrival>,
        lacking: &Lacking,
    ) -> (Arrival, Vec<Arrival>) {
        let arrival = asker.unwrap_or_else(|| {
            self.last += 1;
            Arrival(self.last)
        });
        let before = self.requests.insert(arrival, lacking.clone());
        let left = before.filter(|before| before != lacking);
        let behind = left.map(|left| self.at(|lacking| *lacking == left));
        (arrival, behind.unwrap_or_default())
    }

    /// A request waits no longer. Answers with those that stood behind it.
    pub(super) fn leave(&mut self, arrival: Arrival) -> Vec<Arrival> {
        let Some(left) = self.requests.remove(&arrival) else {
            return Vec::new();
        };
        self.at(|lacking| *lacking == left)
    }

    /// Those who should ask again now that `rows` have changed.
    pub(super) fn concerned(&self, rows: &Rows) -> Vec<Arrival> {
        self.at(|lacking| match lacking {
            Lacking::Account(id) => rows.open.contains_key(id) || rows.closed.contains_key(id),
            Lacking::Meter(id) => rows.meters.contains_key(id),
        })
    }

    fn at(&self, is_meant: impl Fn(&Lacking) -> bool) -> Vec<Arrival> {
        let meant = self.requests.iter().filter(|(_, at)| is_meant(at));
        meant.map(|(arrival, _)| *arrival).collect()
    }
}
