//! Comparison of all that readers of a journal find with the model.

use std::collections::BTreeSet;

use rye_core::id::Lsn;
use rye_core::ledger::{AccountId, Meter, Usage};

use super::{Known, Model, ReadEvent};
use crate::error::Error;
use crate::history::RunEntry;
use crate::record::Line;
use crate::tests::reader::{self, ALL};
use crate::{Filter, Journal, KeyOwner, Of, Read, Since, Spot, Summary, Until};

/// Reads the events of all runs after `since`.
pub(super) async fn read_all(journal: &Journal, since: Spot) -> Vec<ReadEvent> {
    let of = Of::All(Box::new(|_| true));
    let cursor = journal.read(of, Since::Spot(since), Until::Now).await;
    let mut cursor = cursor.unwrap();
    let mut events = Vec::new();
    while let Some(page) = cursor.next_page().await.unwrap() {
        events.extend(page.into_iter().filter_map(event));
    }
    events
}

pub(super) fn event(read: Read) -> Option<ReadEvent> {
    match read {
        Read::Event {
            run, spot, line, ..
        } => Some((run, spot.unwrap(), line)),
        Read::At(_) => None,
    }
}

impl Model {
    /// Asserts that history has the living runs, and nothing of others.
    pub(super) fn assert_purged(&self, journal: &Journal) {
        for section in journal.runs.history.sections(Lsn(0)) {
            for RunEntry { run, .. } in &section.read().unwrap().directory().runs {
                let is_living = self.living().any(|known| known.id() == run);
                assert!(is_living, "{run}");
            }
        }
    }

    /// Compares all that readers find with the model. Events of all runs are also read from event `from` on.
    pub(super) async fn check(&self, journal: &Journal, from: usize) {
        let listed = journal.list_all(&Filter::default(), 3).await.unwrap();
        let expected = self.living().rev();
        let expected: Vec<Summary> = expected.map(|known| Summary::of(&known.record)).collect();
        assert_eq!(listed, expected);
        for from in BTreeSet::from([0, from % (self.events.len() + 1)]) {
            let events = self.events[from..].iter();
            let events = events.filter(|(run, ..)| self.living().any(|known| known.id() == run));
            let events: Vec<ReadEvent> = events.cloned().collect();
            assert_eq!(read_all(journal, self.spot(from)).await, events);
        }
        for known in &self.runs {
            if known.is_removed {
                let run = known.id();
                assert_eq!(journal.run(run).await.unwrap(), None);
                let read = journal.read(Of::Run(run.clone()), Since::Begin, Until::Now);
                assert!(matches!(read.await, Err(Error::Unknown { .. })));
            } else {
                self.check_run(journal, known).await;
            }
            if let Some(key) = &known.record.spec.start_key {
                let owner = journal.by_start_key("uid:0", key).await.unwrap();
                let (run, is_removed) = match owner.unwrap() {
                    KeyOwner::Run(run) => (run, false),
                    KeyOwner::Removed(run, _) => (run, true),
                };
                assert_eq!((&run, is_removed), (known.id(), known.is_removed));
            }
        }
        let meters = journal.meters();
        let meter = meters.first().map(|(_, meter)| *meter).unwrap_or_default();
        let mut expected = Meter::default();
        for known in &self.runs {
            let held = known.record.open_call.as_ref().map(|call| call.amount);
            let held = expected.held.checked_add(held.unwrap_or_default());
            expected.held = held.unwrap();
            expected.spent = expected.spent.checked_add(known.usage.money).unwrap();
        }
        assert_eq!(meter, expected);
        assert_eq!(journal.sequencer.lock().state.recount(), Ok(()));
    }

    async fn check_run(&self, journal: &Journal, known: &Known) {
        let run = known.id();
        assert_eq!(journal.record(run).await, known.record);
        let own = self.events.iter().filter(|(of, ..)| of == run);
        let lines: Vec<Line> = own.map(|(_, _, line)| line.clone()).collect();
        assert_eq!(journal.history(run).await.unwrap(), lines);
        for line in lines.iter().filter(|line| line.is_spilled()) {
            journal.whole(run, line.clone()).await.unwrap();
        }
        let seqs: Vec<u64> = lines.iter().map(|line| line.seq.0).collect();
        assert_eq!(seqs, (1..=known.record.seq.0).collect::<Vec<_>>());
        let (_, verdict) = reader::read(journal, run, ALL).await;
        let problem = verdict.problem;
        assert_eq!((problem, verdict.events), (None, known.record.seq.0));
        let account = AccountId(run.clone());
        let cost = journal.cost(&account).await.unwrap();
        assert_eq!(cost.usage, self.usage(known), "{run}");
    }

    /// Returns the usage of the account of a run and of all accounts below it.
    fn usage(&self, known: &Known) -> Usage {
        let account = AccountId(known.id().clone());
        let below = self.runs.iter();
        let below = below.filter(|run| run.record.spec.budget.parent() == Some(&account));
        below.fold(known.usage, |sum, run| sum.plus(&self.usage(run)).unwrap())
    }
}
