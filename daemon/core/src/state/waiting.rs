//! Queue of requests for money that only open calls hold, in order of arrival.
//!
//! A request waits at the account or the meter that lacks money. A later request for money from the same place waits
//! too, however small it is; requests with different places are independent. No deadlock is possible: a request waits
//! for open calls and for older requests only, and an open call waits for nothing.

use std::collections::{BTreeMap, BTreeSet};

use crate::ledger::{LimitId, Rows};

/// Position in the queue; a smaller one is earlier.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Arrival(u64);

/// Queued requests, each with the limit that lacks money.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    requests: BTreeMap<Arrival, LimitId>,
    last: u64,
}

impl Waiting {
    /// Returns the limits at which requests earlier than `asker` wait, or all requests if it is `None`.
    pub(super) fn contended_before(&self, asker: Option<Arrival>) -> BTreeSet<LimitId> {
        let earlier = self
            .requests
            .iter()
            .take_while(|(arrival, _)| asker.is_none_or(|asker| **arrival < asker));
        earlier.map(|(_, lacking)| lacking.clone()).collect()
    }

    /// Queues a request at its position, or at the end. Returns the position, and the requests at the limit where it
    /// waited previously, if that is another one.
    pub(super) fn wait(
        &mut self,
        asker: Option<Arrival>,
        lacking: &LimitId,
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

    /// Removes a request. Returns the requests that waited at the same limit.
    pub(super) fn remove(&mut self, arrival: Arrival) -> Vec<Arrival> {
        let Some(left) = self.requests.remove(&arrival) else {
            return Vec::new();
        };
        self.at(|lacking| *lacking == left)
    }

    /// Returns the requests that should be retried after the change of `rows`.
    pub(super) fn concerned(&self, rows: &Rows) -> Vec<Arrival> {
        self.at(|lacking| match lacking {
            LimitId::Account(id) => rows.open.contains_key(id) || rows.closed.contains_key(id),
            LimitId::Meter(id) => rows.meters.contains_key(id),
        })
    }

    fn at(&self, is_meant: impl Fn(&LimitId) -> bool) -> Vec<Arrival> {
        let meant = self.requests.iter().filter(|(_, at)| is_meant(at));
        meant.map(|(arrival, _)| *arrival).collect()
    }
}
