//! Runs, removals, compaction and crashes, compared with a model that holds what the journal acknowledged.
//!
//! A crash is a drop of the journal. Before it, the disk may fail: the log from a sync on, of which any part of the
//! last frame may be lost, or history from a call on, as if the daemon had died there.

mod check;
mod steps;

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use proptest::prelude::*;
use rye_core::id::{Lsn, RunId};
use rye_core::ledger::{AccountId, Usage};
use rye_core::model::{Budget, Event, Funding, Object, Run, RunEvent, Spec};
use rye_core::state::{Change, RefusalReason};
use serde_json::json;

use self::check::{event, read_all};
use self::steps::{Commit, End, Life, Link, Step, life};
use super::accounts::{held, settled};
use super::recovery::{tail, tear};
use super::removal::why;
use crate::record::{Line, Rendered};
use crate::testing::*;
use crate::{Cursor, Journal, Of, Read, Recovered, Since, Spot, Syncs, Until};

#[derive(Debug)]
struct Known {
    record: Arc<Run>,
    is_removed: bool,
    /// Settled calls of its own account.
    usage: Usage,
}

impl Known {
    fn id(&self) -> &RunId {
        &self.record.id
    }

    fn is_live(&self) -> bool {
        !self.record.status().is_terminal()
    }

    fn is_ended(&self) -> bool {
        !self.is_live() && !self.is_removed
    }

    fn names(&self, run: &RunId) -> bool {
        let spec = &self.record.spec;
        let mut names = spec.parent.iter().chain(&spec.continuation_of);
        names.any(|name| name == run) || spec.chain_root == *run && self.id() != run
    }
}

/// An event: its run, the position after it, and its line.
type ReadEvent = (RunId, Spot, Line);

/// State that the journal has acknowledged.
#[derive(Debug, Default)]
struct Model {
    /// All runs in the order of their creation.
    runs: Vec<Known>,
    /// The events of all runs in the order of the log.
    events: Vec<ReadEvent>,
    /// Changes of a commit that was not acknowledged.
    pending: Vec<Change>,
    /// Reader of the events of all runs.
    follower: Option<Cursor>,
}

fn hold(call: u32) -> Event {
    held(call, "0.1", &[("day/2026-11-22", "1000")])
}

impl Model {
    fn select(&self, number: usize, is_eligible: impl Fn(&Known) -> bool) -> Option<&Known> {
        let eligible: Vec<_> = self.runs.iter().filter(|run| is_eligible(run)).collect();
        eligible.get(number % eligible.len().max(1)).copied()
    }

    fn living(&self) -> impl DoubleEndedIterator<Item = &Known> {
        self.runs.iter().filter(|known| !known.is_removed)
    }

    /// Returns the position after the first `events` events.
    fn spot(&self, events: usize) -> Spot {
        let (commit, more) = (Lsn(0), 0);
        let last = events.checked_sub(1).map(|last| self.events[last].1);
        last.unwrap_or(Spot { commit, more })
    }

    fn end_spot(&self) -> Spot {
        self.spot(self.events.len())
    }

    fn text(&self, length: usize) -> String {
        format!("text {}{}", self.events.len(), "-".repeat(length))
    }

    fn create(
        &self,
        rig: &Rig,
        link: Option<(Link, usize)>,
        has_key: bool,
        length: usize,
    ) -> Change {
        let run = id(&format!("run-{}", self.runs.len()));
        let of = link.and_then(|(link, of)| Some((link, self.select(of, |of| !of.is_removed)?)));
        let parent = of.and_then(|(link, of)| (link == Link::Parent).then_some(of));
        let continued = of.and_then(|(link, of)| (link == Link::Continues).then_some(of));
        let root = continued.map(|of| &of.record.spec.chain_root);
        let is_removed = |id: &RunId| self.runs.iter().any(|run| run.id() == id && run.is_removed);
        let root = root.filter(|root| !is_removed(root));
        let payer = parent.filter(|parent| parent.is_live());
        let text = json!(self.text(length));
        let spec = Spec {
            parent: parent.map(|parent| parent.id().clone()),
            depth: parent.map_or(0, |parent| parent.record.spec.depth + 1),
            continuation_of: continued.map(|of| of.id().clone()),
            chain_root: root.or(continued.map(Known::id)).unwrap_or(&run).clone(),
            start_key: has_key.then(|| format!("key-{run}")),
            inputs: Object::from_iter([("text".to_owned(), text)]),
            budget: Budget {
                account: AccountId(run.clone()),
                funding: Funding::Open {
                    parent: payer.map(|payer| AccountId(payer.id().clone())),
                    limit: None,
                },
            },
            ..rig.spec(&run)
        };
        Change::create(&run, Arc::new(spec))
    }

    /// Returns the changes of `commit`; none if no run is eligible.
    fn changes(&self, rig: &Rig, journal: &Journal, commit: &Commit) -> Vec<Change> {
        match commit {
            Commit::Create {
                link,
                has_key,
                ends,
                length,
            } => {
                let created = self.create(rig, *link, *has_key, *length);
                let run = created.run.clone();
                let paid = [hold(1), settled(1, "0.1", "0.01")].into_iter();
                let rest = paid.chain(ends.then(finish));
                let rest = rest.map(|event| change(&run, event));
                [vec![created], begin(&run), rest.collect()].concat()
            }
            Commit::Events(events) => {
                let mut steps: BTreeMap<&RunId, u32> = BTreeMap::new();
                let mut changes = Vec::new();
                for (run, is_step, length) in events {
                    let Some(known) = self.select(*run, Known::is_live) else {
                        break;
                    };
                    let text = json!(self.text(*length));
                    if *is_step {
                        let step = steps.entry(known.id()).or_insert(known.record.steps());
                        *step += 1;
                        changes.push(change(known.id(), completed(*step, text)));
                        changes.push(change(known.id(), started(*step + 1)));
                    } else {
                        changes.push(change(known.id(), emits(text)));
                    }
                }
                changes
            }
            Commit::Pay(run, cents) => {
                let Some(known) = self.select(*run, Known::is_live) else {
                    return Vec::new();
                };
                let spendable = journal.spendable(&known.record.spec.budget.account);
                let call = spendable.unwrap().0.0;
                let is_held = known.record.open_call.is_some();
                let call = if is_held { call - 1 } else { call };
                let settlement = cents.map(|cents| settled(call, "0.1", &format!("0.0{cents}")));
                let events = (!is_held).then(|| hold(call)).into_iter();
                let events = events.chain(settlement);
                events.map(|event| change(known.id(), event)).collect()
            }
            Commit::End(run) => {
                let Some(known) = self.select(*run, Known::is_live) else {
                    return Vec::new();
                };
                let events = known.record.with_settlement(finish()).into_iter();
                events.map(|event| change(known.id(), event)).collect()
            }
        }
    }

    /// Enters `events`, which the journal showed, as those of `changes`.
    async fn enter(&mut self, journal: &Journal, changes: Vec<Change>, events: Vec<ReadEvent>) {
        assert_eq!(changes.len(), events.len(), "{changes:?} {events:?}");
        for (Change { run, event, .. }, shown) in changes.into_iter().zip(events) {
            let expected = Rendered::of(&event);
            let (line, _charge) = journal.whole(&run, shown.2.clone()).await.unwrap();
            assert_eq!((&run, event.name()), (&shown.0, &*line.event_type));
            assert_eq!(expected.payload, *line.payload);
            self.events.push(shown);
            let record = journal.record(&run).await;
            if let Event::Run(RunEvent::RunCreated(_)) = event {
                self.runs.push(Known {
                    record,
                    is_removed: false,
                    usage: Usage::default(),
                });
                continue;
            }
            let known = self.runs.iter_mut().find(|known| *known.id() == run);
            let known = known.unwrap();
            known.record = record;
            if let Event::Run(RunEvent::BudgetSettled(settled)) = event {
                known.usage = known.usage.plus(&settled.usage).unwrap();
            }
        }
    }

    /// Commits `changes`, and waits for the events that followers of all runs get.
    async fn commit(&mut self, journal: &Journal, changes: Vec<Change>) {
        if changes.is_empty() {
            return;
        }
        let committed = journal.commit(changes.clone()).await.unwrap();
        journal.published(committed.ticket).await.unwrap();
        let follower = self.follower.as_mut().unwrap();
        let mut events = Vec::new();
        while events.len() < changes.len() {
            let next = tokio::time::timeout(Duration::from_mins(1), follower.next()).await;
            events.extend(event(next.expect("it is published").unwrap().unwrap()));
        }
        self.enter(journal, changes, events).await;
    }

    /// Returns the legal reasons to refuse the removal of a run; none if it can be removed.
    fn refusals(&self, known: &Known) -> Vec<RefusalReason> {
        if known.is_live() {
            return vec![RefusalReason::Live];
        }
        let users = self.runs.iter();
        let users = users.filter(|user| user.is_live() && user.names(known.id()));
        users
            .map(|user| RefusalReason::Named(user.id().clone()))
            .collect()
    }

    async fn remove(&mut self, journal: &Journal, runs: Vec<RunId>) {
        let mut known: Vec<usize> = Vec::new();
        for run in &runs {
            let at = self.runs.iter().position(|known| known.id() == run);
            known.extend(at.filter(|at| !known.contains(at) && !self.runs[*at].is_removed));
        }
        let refusals = known.iter().map(|at| self.refusals(&self.runs[*at]));
        // The first run that cannot be removed decides.
        let refusals = refusals.into_iter().find(|reasons| !reasons.is_empty());
        let removed = journal.remove(&runs, "uid:0").await;
        if let Some(reasons) = refusals {
            let why = why(removed);
            assert!(reasons.contains(&why), "{why:?} {reasons:?}");
        } else {
            let removed = removed.unwrap().into_iter().map(|removed| removed.run);
            let expected = known.iter().map(|at| self.runs[*at].id().clone());
            assert!(removed.eq(expected), "{runs:?}");
            for at in known {
                self.runs[at].is_removed = true;
            }
        }
        if !runs.is_empty() {
            self.check(journal, 0).await;
        }
    }

    async fn step(&mut self, rig: &Rig, journal: &Journal, step: &Step, is_broken: bool) {
        match step {
            Step::Commit(commit) => {
                let changes = self.changes(rig, journal, commit);
                self.commit(journal, changes).await;
            }
            Step::Remove { runs, has_unknown } => {
                let runs = runs.iter().filter_map(|run| self.select(*run, |_| true));
                let runs = runs.map(|known| known.id().clone());
                let unknown = has_unknown.then(|| id("unknown"));
                self.remove(journal, runs.chain(unknown).collect()).await;
            }
            Step::RemoveEnded(run) => {
                let run = self.select(*run, Known::is_ended);
                let run = run.map(|known| known.id().clone());
                self.remove(journal, run.into_iter().collect()).await;
            }
            Step::Seal => {
                assert!(journal.seal().await || is_broken);
                self.check(journal, 0).await;
            }
            Step::Compact => {
                let purged = journal.purge().await;
                if !is_broken {
                    purged.unwrap();
                    self.assert_purged(journal);
                }
                self.check(journal, 0).await;
            }
            Step::Read(from) => self.check(journal, *from).await,
        }
    }

    /// Begins a life: a commit that was not acknowledged is there as a whole, or not at all.
    async fn begin(&mut self, journal: &Journal, recovered: &Recovered) {
        let events = read_all(journal, self.end_spot()).await;
        let pending = std::mem::take(&mut self.pending);
        if !events.is_empty() {
            self.enter(journal, pending, events).await;
        }
        let live = self.runs.iter().filter(|known| known.is_live());
        let live: Vec<_> = live.map(|known| Arc::clone(&known.record)).collect();
        assert_eq!(recovered.live, live);
        let (of, since) = (Of::All(Box::new(|_| true)), Since::Spot(self.end_spot()));
        self.follower = Some(journal.read(of, since, Until::Ended).await.unwrap());
        self.check(journal, 0).await;
    }

    async fn end(&mut self, rig: &Rig, journal: Journal, end: &End) {
        match end {
            End::Close => journal.close().await.unwrap(),
            End::Crash => {}
            End::History {
                calls,
                step,
                keeps_index,
            } => {
                assert!(journal.seal().await);
                let directory = rig.state().join("index");
                let index = image(&directory);
                let mut left = *calls;
                journal.runs.history.hooks().set(move |_| {
                    left = left.checked_sub(1).ok_or(io::ErrorKind::StorageFull)?;
                    Ok(())
                });
                self.step(rig, &journal, step, true).await;
                drop(journal);
                if !keeps_index {
                    restore(&directory, &index);
                }
            }
            End::Log(commit, share) => self.fail_log(rig, journal, commit, *share).await,
        }
    }

    async fn fail_log(&mut self, rig: &Rig, journal: Journal, commit: &Commit, share: u8) {
        let changes = self.changes(rig, &journal, commit);
        if changes.is_empty() {
            return;
        }
        let syncs = rig.faults.inner.syncs();
        rig.faults.inner.sync(Syncs::Hangs);
        let ticket = journal.commit(changes.clone()).await.unwrap().ticket;
        eventually(async || (rig.faults.inner.syncs() > syncs).then_some(())).await;
        let early = [
            journal.durable(ticket).now_or_never().is_some(),
            journal.published(ticket).now_or_never().is_some(),
        ];
        let spot = self.end_spot();
        let since = Since::Spot(spot);
        let read = journal.read(Of::All(Box::new(|_| true)), since, Until::Now);
        let read = read.await.unwrap().next().await;
        // Released before an assertion can fail: the drop of the journal waits for the writer.
        rig.faults.inner.sync(Syncs::Fails);
        assert_eq!(early, [false; 2]);
        assert_eq!(read.unwrap().unwrap(), Read::At(spot));
        journal.durable(ticket).await.unwrap_err();
        drop(journal);
        rig.faults.inner.sync(Syncs::Works);
        let (path, bytes, ends) = tail(rig);
        if let [.., first, last] = ends[..] {
            let cut = first + (last - first) * usize::from(share) / 255;
            tear(&path, &bytes, cut, 0);
        }
        self.pending = changes;
    }
}

async fn live(rig: Rig, lives: Vec<Life>) {
    let mut model = Model::default();
    let last = Life {
        loses_index: false,
        steps: vec![Step::Compact],
        end: End::Close,
    };
    for life in lives.into_iter().chain([last]) {
        let index = rig.state().join("index");
        if life.loses_index && index.exists() {
            fs::remove_dir_all(index).unwrap();
        }
        let (journal, recovered) = rig.try_open().await.unwrap();
        model.begin(&journal, &recovered).await;
        for step in &life.steps {
            model.step(&rig, &journal, step, false).await;
        }
        model.end(&rig, journal, &life.end).await;
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(20))]

    #[test]
    fn acknowledged_events_and_removals_survive_compaction_and_crashes(
        lives in proptest::collection::vec(life(), 1..4),
        segment in 4_u64..32,
    ) {
        let mut rig = Rig::with_segments_of(segment * 1024);
        rig.seal.idle = Duration::from_hours(1);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(live(rig, lives));
    }
}
