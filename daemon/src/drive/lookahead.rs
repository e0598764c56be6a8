//! Joint lookup of the calls of one turn. Each lookup takes a visit to the files of the project, and the items of a
//! foreach node need no visit each.

use std::collections::VecDeque;

use rye_core::cas::InputHashes;
use rye_core::clock::Tick;
use rye_core::machine::{Call, Machine, Move};
use rye_core::model::Slot;

use super::Job;

/// Maximum number of calls in one lookup.
const MOST: usize = 64;

/// Calls that were looked up before the machine offered them, in the expected order.
pub(super) struct Lookahead<P>(VecDeque<(Call, Job<P>)>);

impl<P> Lookahead<P> {
    pub(super) const fn new() -> Self {
        Self(VecDeque::new())
    }

    pub(super) fn extend(&mut self, looked_up: impl Iterator<Item = (Call, Job<P>)>) {
        self.0.extend(looked_up);
    }

    /// Returns the job of `call` if it is the expected next one. Any other call clears the rest.
    pub(super) fn take(&mut self, call: &Call) -> Option<Job<P>> {
        let (known, job) = self.0.pop_front()?;
        if is_same(&known, call) {
            return Some(job);
        }
        self.0.clear();
        None
    }
}

/// True if `known` was looked up for the same call. The remaining time may differ, because it decreases meanwhile.
fn is_same(known: &Call, call: &Call) -> bool {
    let place = |call: &Call| (call.slot, call.step, call.visit, call.attempt);
    place(known) == place(call) && known.key == call.key && known.params == call.params
}

/// Returns the items that `machine` will offer after the item `call` without waiting for the end of one.
pub(super) fn following<M: Machine>(machine: &M, now: Tick, call: &Call) -> Vec<Call> {
    let mut calls = Vec::new();
    if !matches!(call.slot, Slot::Part(_)) {
        return calls;
    }
    let mut scout = machine.clone();
    drop(scout.start(now, call, None, InputHashes::default()));
    while calls.len() + 1 < MOST {
        let Move::Call(_, call) = scout.next(now) else {
            break;
        };
        drop(scout.start(now, &call, None, InputHashes::default()));
        calls.push(*call);
    }
    calls
}

#[cfg(test)]
mod tests {
    use rye_core::clock::Timestamp;
    use rye_core::id::{ItemId, ItemRef};
    use rye_core::model::Object;
    use serde_json::json;

    use super::*;

    fn part(number: u32) -> Call {
        let item = ItemRef::tool(ItemId::new("t/tool").unwrap());
        let params = Object::from_iter([("n".to_owned(), json!(number))]);
        Call::new(Slot::Part(number), item, params, Timestamp::default())
    }

    fn lookahead(numbers: [u32; 3]) -> Lookahead<u32> {
        let job = |number| Job::Begin {
            plan: number,
            child: None,
            creates: Vec::new(),
            hashes: InputHashes::default(),
        };
        let mut ahead = Lookahead::new();
        ahead.extend(
            numbers
                .map(|number| (part(number), job(number)))
                .into_iter(),
        );
        ahead
    }

    fn plan(job: Option<Job<u32>>) -> Option<u32> {
        match job? {
            Job::Begin { plan, .. } => Some(plan),
            Job::Known(..) | Job::Exhausted(_) => None,
        }
    }

    #[test]
    fn joint_lookup_returns_jobs_in_order() {
        let mut ahead = lookahead([1, 2, 3]);
        assert_eq!(plan(ahead.take(&part(1))), Some(1));
        assert_eq!(plan(ahead.take(&part(2))), Some(2));
        assert_eq!(plan(ahead.take(&part(3))), Some(3));
        assert_eq!(plan(ahead.take(&part(4))), None);
    }

    #[test]
    fn unexpected_call_clears_joint_lookup() {
        let other: [fn(&mut Call); 5] = [
            |call| call.slot = Slot::Part(7),
            |call| call.attempt += 1,
            |call| call.visit += 1,
            |call| call.step += 1,
            |call| call.params = Object::new(),
        ];
        for change in other {
            let mut ahead = lookahead([1, 2, 3]);
            let mut call = part(1);
            change(&mut call);
            assert_eq!(plan(ahead.take(&call)), None);
            assert_eq!(plan(ahead.take(&part(2))), None);
        }
    }
}
