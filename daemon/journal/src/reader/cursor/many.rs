//! A cursor over several runs, in the order of the log.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::{Arc, Weak};

use rye_core::id::{Lsn, RunId, Seq};
use rye_core::model::Spec;

use super::{Fetched, Listener, Read, Sees, Since, State, Until};
use crate::error::Error;
use crate::reader::event_store::EventStore;
use crate::reader::range::{self, Decoded};
use crate::reader::run_pages::Source;
use crate::reader::spot::{Found, Spot};
use crate::record::Line;
use crate::stream::all_runs::Commit;
use crate::stream::run_stream::RunStream;

pub(crate) struct Many {
    sees: Sees,
    tree: Option<Tree>,
    /// Runs of the tree whose past events are still to be read; for a run in memory up to this event.
    past: VecDeque<(RunId, Option<Seq>)>,
    /// The run whose past events are being read: its next event and its last.
    reading: Option<(Source, Seq, Seq)>,
    /// Position up to which events were read or skipped.
    at: Spot,
    /// True if the reader has not yet received its position ([`Read::At`]).
    announces: bool,
    /// Last position to read; `None` for a cursor without end.
    until: Option<Lsn>,
    /// The section of history that is being read.
    section: Option<Arc<Decoded>>,
}

struct Tree {
    members: HashSet<RunId>,
    /// Runs that may not have ended. The references are weak.
    live: HashMap<RunId, Weak<RunStream>>,
}

impl Tree {
    fn enter(&mut self, run: &RunId, stream: Option<&Arc<RunStream>>) {
        self.members.insert(run.clone());
        if let Some(stream) = stream {
            self.live.insert(run.clone(), Arc::downgrade(stream));
        }
    }

    /// True if all its runs have ended, as far as is published.
    fn is_over(&mut self) -> bool {
        let runs = |stream: &Weak<RunStream>| {
            let stream = stream.upgrade();
            stream.is_some_and(|stream| !stream.rest.borrow().ended)
        };
        self.live.retain(|_, stream| runs(stream));
        self.live.is_empty()
    }
}

/// A page of the events of all runs.
pub(crate) struct Range {
    upto: Lsn,
    found: Vec<(Found, Owner)>,
    section: Option<Arc<Decoded>>,
}

/// Data of a run that decides if the reader may see it.
#[derive(Clone)]
struct Owner {
    /// `None` if it has left memory.
    stream: Option<Arc<RunStream>>,
    spec: Arc<Spec>,
}

impl Many {
    pub(crate) fn new(
        store: &Arc<EventStore>,
        tree: Option<&[RunId]>,
        sees: Sees,
        since: Since,
        until: Until,
    ) -> Result<Self, Error> {
        let runs = tree.into_iter().flatten();
        let known: Vec<_> = runs
            .map(|id| (id.clone(), store.runs.sequencer.stream(id)))
            .collect();
        let (now, heads) = {
            let position = store.published.wide.lock();
            let head = |stream: &Option<Arc<RunStream>>| Some(stream.as_ref()?.head().seq);
            let heads = known.iter().map(|(id, stream)| (id.clone(), head(stream)));
            (position.lsn(), heads.collect())
        };
        let (at, past) = match since {
            Since::Spot(spot) => (spot, VecDeque::new()),
            Since::Begin | Since::Seq(_) => (Spot::after_commit(now), heads),
            Since::Now => (Spot::after_commit(now), VecDeque::new()),
        };
        if at.commit > now {
            return Err(Error::Passed);
        }
        let enter = |mut tree: Tree, (run, stream): &(RunId, Option<Arc<RunStream>>)| {
            tree.enter(run, stream.as_ref());
            tree
        };
        let none = Tree {
            members: HashSet::new(),
            live: HashMap::new(),
        };
        Ok(Self {
            sees,
            tree: tree.is_some().then(|| known.iter().fold(none, enter)),
            past,
            reading: None,
            at,
            announces: true,
            until: (until == Until::Now).then_some(now),
            section: None,
        })
    }

    /// Determines the source of the next events.
    pub(crate) fn turn(&mut self, store: &Arc<EventStore>, ready: &mut VecDeque<Read>) -> State {
        if let Some((source, next, last)) = self.reading.clone() {
            if next <= last {
                let store = Arc::clone(store);
                return State::Reading(Box::pin(async move {
                    let (events, charge) = source.page(&store, next, last).await?;
                    Ok(Fetched::Events(source.run().clone(), events, charge))
                }));
            }
            self.reading = None;
        }
        if let Some((run, _)) = self.past.front() {
            let (store, run) = (Arc::clone(store), run.clone());
            return State::Reading(Box::pin(async move {
                Source::find(&store, &run).await.map(Fetched::Source)
            }));
        }
        if std::mem::take(&mut self.announces) {
            ready.push_back(Read::At(self.at));
        }
        let mut position = store.published.wide.lock();
        let until = self.until.unwrap_or(position.lsn());
        if self.at.commit < until {
            let (store, at, section) = (Arc::clone(store), self.at, self.section.take());
            return State::Reading(Box::pin(async move {
                fetch(&store, at, until, section).await.map(Fetched::Range)
            }));
        }
        if self.until.is_some() || self.tree.as_mut().is_some_and(Tree::is_over) {
            return State::Over;
        }
        self.section = None;
        State::Listening(Listener::Many(position.listen()))
    }

    /// Begins to read the past events of the next run.
    pub(crate) fn enter(&mut self, source: Source) {
        if let Some((_, last)) = self.past.pop_front() {
            let last = last.unwrap_or_else(|| source.head().seq);
            self.reading = Some((source, Seq(1), last));
        }
    }

    /// Records that the past events of the current run were read up to `seq`.
    pub(crate) const fn passed(&mut self, seq: Seq) {
        if let Some((_, next, _)) = &mut self.reading {
            *next = seq.next();
        }
    }

    pub(crate) fn take(&mut self, range: Range, ready: &mut VecDeque<Read>) {
        for (Found { run, spot, line }, owner) in range.found {
            if self.includes(&run, &owner.spec, owner.stream.as_ref()) {
                ready.push_back(event(run, spot, line));
            }
        }
        self.section = range.section;
        self.at = Spot::after_commit(range.upto);
    }

    /// Adds the events of a commit that was published. Returns true if it may have ended the tree.
    pub(crate) fn receive(&mut self, commit: &Commit, ready: &mut VecDeque<Read>) -> bool {
        if commit.lsn <= self.at.commit {
            return false;
        }
        let count = commit.events.len();
        let mut may_be_over = false;
        for (place, heard) in commit.events.iter().enumerate() {
            let stream = &heard.stream;
            if self.includes(&stream.id, &stream.spec, Some(stream)) {
                let spot = Spot::after(commit.lsn, place, count);
                ready.push_back(event(stream.id.clone(), spot, heard.line.clone()));
                may_be_over |= heard.last && self.tree.is_some();
            }
        }
        self.at = Spot::after_commit(commit.lsn);
        may_be_over
    }

    /// True if the reader gets the events of a run. A run that was started by one of the tree is added to the tree.
    fn includes(&mut self, run: &RunId, spec: &Spec, stream: Option<&Arc<RunStream>>) -> bool {
        if !(self.sees)(spec) {
            return false;
        }
        let Some(tree) = &mut self.tree else {
            return true;
        };
        if tree.members.contains(run) {
            return true;
        }
        let parent = spec.parent.as_ref();
        let belongs = parent.is_some_and(|parent| tree.members.contains(parent));
        if belongs {
            tree.enter(run, stream);
        }
        belongs
    }
}

const fn event(run: RunId, spot: Spot, line: Line) -> Read {
    Read::Event {
        run,
        spot: Some(spot),
        line,
        signed: None,
    }
}

/// Reads a page of the events of all runs after `at`, up to `until`. `section` is the section of history that was read
/// last.
async fn fetch(
    store: &Arc<EventStore>,
    at: Spot,
    until: Lsn,
    section: Option<Arc<Decoded>>,
) -> Result<Range, Error> {
    let (upto, events, section) = range::read(store, at, until, section).await?;
    // The next step uses the streams of the runs, which have to include the events that were read.
    let published = store.published.watermark.reach(upto);
    published.await.map_err(Error::Failed)?;
    let mut owners: HashMap<RunId, Option<Owner>> = HashMap::new();
    let mut found = Vec::with_capacity(events.len());
    for event in events {
        let owner = if let Some(known) = owners.get(&event.run) {
            known.clone()
        } else {
            let owner = owner(store, &event.run).await?;
            owners.insert(event.run.clone(), owner.clone());
            owner
        };
        // A run that is in neither was removed.
        found.extend(owner.map(|owner| (event, owner)));
    }
    Ok(Range {
        upto,
        found,
        section,
    })
}

async fn owner(store: &Arc<EventStore>, run: &RunId) -> Result<Option<Owner>, Error> {
    if let Some(stream) = store.runs.sequencer.stream(run) {
        let spec = Arc::clone(&stream.spec);
        let stream = Some(stream);
        return Ok(Some(Owner { stream, spec }));
    }
    let stored = store.runs.ended(run).await?;
    Ok(stored.map(|stored| Owner {
        stream: None,
        spec: Arc::clone(&stored.run.spec),
    }))
}
