//! The journal as seen by exports: changed runs, their events, and their records. All functions block.
//!
//! **Never** keeps the journal open, and never shows unpublished events.

use std::collections::HashSet;
use std::fmt;
use std::sync::{Arc, Weak};
use std::time::Duration;

use rye_core::id::{Lsn, Name, RunId, Seq};
use rye_core::ledger::{Account, AccountId, Cost};
use rye_core::model::{Event, Run, Spec};
use rye_core::money::Usd;
use rye_core::seal::{Fingerprint, Signature};
use rye_core::state::Closed;
use tokio::runtime::Handle;

use super::handle::Journal;
use crate::error::Error;
use crate::reader::{EventStore, RunStore, Source};
use crate::record::Line;
use crate::stream::{Reported, Touch, TouchKind, Touches};

/// Budget of a run, as shown in files.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Money {
    /// Cost of its chain and everything below it.
    pub cost: Cost,
    /// Limit of its account; `None` without a limit of its own.
    pub limit: Option<Usd>,
}

/// The record of a run that is published, and its budget at that time.
#[derive(Debug, Clone)]
pub struct PublishedRun {
    pub run: Arc<Run>,
    pub money: Money,
}

/// An event in the form for transcripts.
#[derive(Debug, Clone)]
pub struct Exported {
    pub line: Line,
    /// The signature of the checkpoint that follows it, and the key that made it.
    pub signed: Option<(Signature, Fingerprint)>,
    /// Length of its payload in bytes if an object holds it, otherwise 0.
    pub spilled: usize,
}

/// Source of exports. There is one consumer.
#[derive(Clone)]
pub struct ExportSource {
    store: Weak<EventStore>,
    touches: Arc<Touches>,
    runtime: Handle,
}

/// A run whose events are read.
#[derive(Debug)]
pub struct FoundRun(Source);

/// Iterator over the runs that changed in a range of history, in the order of its sections.
pub struct Touched {
    source: ExportSource,
    after: Lsn,
    /// If all runs are iterated: those that were in memory, which come first.
    live: Option<HashSet<RunId>>,
    /// The remaining runs of a section, or of those in memory.
    found: std::vec::IntoIter<Touch>,
}

impl Journal {
    /// Returns the source of exports. There must be only one consumer. Has to be called inside the runtime.
    pub fn export_source(&self) -> ExportSource {
        ExportSource {
            store: Arc::downgrade(&self.events),
            touches: Arc::clone(&self.published.touches),
            runtime: Handle::current(),
        }
    }
}

impl FoundRun {
    /// Returns the data of the run that never changes.
    pub fn spec(&self) -> &Arc<Spec> {
        match &self.0 {
            Source::Live(stream) => &stream.spec,
            Source::Ended(stored) => &stored.run.spec,
        }
    }
}

impl ExportSource {
    fn store(&self) -> Result<Arc<EventStore>, Error> {
        self.store.upgrade().ok_or(Error::Closed)
    }

    /// Waits at most `patience` for changed runs.
    pub fn take(&self, patience: Duration) -> Reported {
        self.touches.take(patience)
    }

    /// Makes [`ExportSource::take`] return the stored touches, and report nothing after them.
    pub fn close(&self) {
        self.touches.close();
    }

    /// Position of the last commit in history.
    pub fn sealed(&self) -> Lsn {
        let store = self.store.upgrade();
        store.map_or(Lsn(0), |store| store.runs.history.last())
    }

    /// Position up to which the journal is published.
    pub fn published(&self) -> Lsn {
        let store = self.store.upgrade();
        store.map_or(Lsn(0), |store| store.published.watermark.get())
    }

    /// Returns the runs that changed after `after`, as far as history has them; [`TouchKind::Ended`] for runs that
    /// ended.
    pub fn touched(&self, after: Lsn) -> Touched {
        Touched {
            source: self.clone(),
            after,
            live: None,
            found: Vec::new().into_iter(),
        }
    }

    /// Returns all runs, each once.
    pub fn all(&self) -> Touched {
        let live = self.live();
        Touched {
            live: Some(live.iter().map(|touch| touch.run.clone()).collect()),
            found: live.into_iter(),
            ..self.touched(Lsn(0))
        }
    }

    /// Returns the runs in memory.
    fn live(&self) -> Vec<Touch> {
        let Some(store) = self.store.upgrade() else {
            return Vec::new();
        };
        let sequencer = store.runs.sequencer.lock();
        let streams = sequencer.positions.streams().map(|stream| Touch {
            files: Name::from(&*stream.spec.files),
            run: stream.id.clone(),
            lsn: sequencer.last,
            kind: TouchKind::Moved,
            item: None,
        });
        streams.collect()
    }

    /// True if the run is in memory.
    pub fn is_live(&self, run: &RunId) -> bool {
        self.store
            .upgrade()
            .is_some_and(|store| store.runs.sequencer.stream(run).is_some())
    }

    /// True if the event `seq`, its last one that is published, may have suspended or ended the run.
    pub fn may_rest(&self, run: &RunId, seq: Seq) -> bool {
        let store = self.store.upgrade();
        let found = store.and_then(|store| store.runs.sequencer.snapshot(run));
        found.is_none_or(|(run, _)| {
            let rests = run.status().is_terminal() || run.suspension().is_some();
            run.seq == seq && rests
        })
    }

    /// Finds a run; `None` if it does not exist.
    pub fn find(&self, run: &RunId) -> Result<Option<FoundRun>, Error> {
        let store = self.store()?;
        match self.runtime.block_on(Source::find(&store, run)) {
            Ok(source) => Ok(Some(FoundRun(source))),
            Err(Error::Unknown { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Reads the events of a run after `after`, as many as fit on a page; none at the end.
    pub fn events(&self, run: &FoundRun, after: Seq) -> Result<Vec<Exported>, Error> {
        let FoundRun(source) = run;
        let (store, last) = (self.store()?, source.head().seq);
        if after >= last {
            return Ok(Vec::new());
        }
        let page = source.read(&store, after.next(), last)?;
        let events = page.events.into_iter().map(|event| Exported {
            spilled: event.line.spilled_bytes().unwrap_or_default(),
            line: event.line,
            signed: event.signed,
        });
        Ok(events.collect())
    }

    /// Returns the event of `run` that `line` represents, with its payload.
    pub fn event(&self, run: &RunId, line: &Line) -> Result<Event, Error> {
        let store = self.store()?;
        line.event(&store.runs.objects)
            .map_err(|source| Error::DataLoss {
                run: run.clone(),
                source: Box::new(source),
            })
    }

    /// Reads the record of a run; `None` if it does not exist.
    pub fn record(&self, run: &RunId) -> Result<Option<PublishedRun>, Error> {
        let store = self.store()?;
        let known = {
            let sequencer = store.runs.sequencer.lock();
            let found = sequencer.state.run(run).map(Arc::clone);
            found.map(|run| {
                let account = &run.spec.budget.account;
                let open = sequencer.state.ledger().account(account);
                let closed = || sequencer.state.closed(account).map(|account| &**account);
                let money = Money {
                    cost: sequencer.state.cost(account).unwrap_or_default(),
                    limit: open.or_else(closed).and_then(|account| account.limit),
                };
                (PublishedRun { run, money }, sequencer.last)
            })
        };
        if let Some((known, lsn)) = known {
            store
                .published
                .watermark
                .reach_blocking(lsn)
                .map_err(Error::Failed)?;
            return Ok(Some(known));
        }
        self.runtime.block_on(async {
            let Some(stored) = store.runs.ended_whole(run).await? else {
                return Ok(None);
            };
            let money = closed_money(&store.runs, &stored.closed, &stored.run).await?;
            let run = stored.run;
            Ok(Some(PublishedRun { run, money }))
        })
    }
}

/// Returns the budget of `run`, which has left memory. `closed` are the accounts that its end closed; its own may be
/// one of them.
async fn closed_money(runs: &Arc<RunStore>, closed: &Closed, run: &Run) -> Result<Money, Error> {
    let money = |account: &Account| Money {
        cost: account.cost().unwrap_or_default(),
        limit: account.limit,
    };
    let id: &AccountId = &run.spec.budget.account;
    if let Some(account) = closed.get(id) {
        return Ok(money(account));
    }
    let open = {
        let sequencer = runs.sequencer.lock();
        let limit = sequencer
            .state
            .ledger()
            .account(id)
            .map(|account| account.limit);
        limit.zip(sequencer.state.cost(id))
    };
    if let Some((limit, cost)) = open {
        return Ok(Money { cost, limit });
    }
    let closed = runs.closed(id).await?;
    Ok(closed.map_or_else(Money::default, |account| Money {
        cost: account.cost().unwrap_or_default(),
        limit: account.limit,
    }))
}

impl Touched {
    /// Reads the next section. Returns false at the end.
    fn read(&mut self) -> bool {
        let Some(store) = self.source.store.upgrade() else {
            return false;
        };
        let Some(section) = store.runs.history.sections(self.after).next() else {
            return false;
        };
        self.after = section.last();
        let read = match section.read() {
            Ok(read) => read,
            Err(error) => {
                tracing::error!(%error, "a part of history cannot be read: the files of its runs are left as they are");
                return true;
            }
        };
        let directory = read.directory();
        let runs = directory.runs.iter().filter_map(|run| {
            let kind = if run.is_ended() {
                TouchKind::Ended
            } else {
                TouchKind::Moved
            };
            let files = Name::clone(directory.files_of(run)?);
            let run = run.run.clone();
            let lsn = self.after;
            Some(Touch {
                files,
                run,
                lsn,
                kind,
                item: None,
            })
        });
        let runs = runs.filter(|touch| match &self.live {
            Some(live) => touch.kind == TouchKind::Ended && !live.contains(&touch.run),
            None => true,
        });
        let removed = directory.removed.iter().flat_map(|removal| &removal.runs);
        let removed = removed.map(|removed| Touch::of_removal(removed, self.after));
        self.found = runs.chain(removed).collect::<Vec<_>>().into_iter();
        true
    }
}

impl Iterator for Touched {
    type Item = Touch;

    fn next(&mut self) -> Option<Touch> {
        loop {
            if let Some(touch) = self.found.next() {
                return Some(touch);
            }
            if !self.read() {
                return None;
            }
        }
    }
}

impl fmt::Debug for Touched {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Touched")
            .field("after", &self.after)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for ExportSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ExportSource").finish_non_exhaustive()
    }
}
