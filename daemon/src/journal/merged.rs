//! The events of several runs, in the order of the log: of all runs, of some of them, or of a tree.
//!
//! **Owns** a place in the log. What stands behind it is read from the log, and where the log ends the publisher is listened to. Of a tree
//! what its runs have done before can come first, run by run. **Never** keeps the log for a reader: one who falls behind the publisher reads
//! what it missed from the log, and one who is so far behind that the log no longer holds it is cut ([`Error::Passed`]). What waits for
//! a reader is a page and the [`FEED_COMMITS`] that all listeners share, however slow it is.
//!
//! **Order.** The publisher shows each commit under one lock, to listeners of many runs and of single ones. Whoever holds that lock sees all
//! heads as they are at one position of the log, so that what was before and what comes meet without gap or duplicate.

use std::collections::{HashMap, HashSet, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, Weak};

use futures_util::future::BoxFuture;
use rye_core::id::{Lsn, RunId, Seq};
use rye_core::model::Spec;
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;

use super::record::Body;
use super::replay::{Pages, Replay};
use super::run_stream::RunStream;
use super::watermark::lock;
use super::{Error, Journal, Line, Shared, log};
use crate::task;

/// Commits that a listener may be behind before it looks into the log.
pub(super) const FEED_COMMITS: usize = 256;
/// Events at which a page is full.
const PAGE_EVENTS: usize = 512;
/// Bytes of the log at which a page is full.
const PAGE_BYTES: usize = 256 << 10;

/// What is shown of all runs.
#[derive(Debug)]
pub(super) struct Wide(Mutex<Position>);

/// How far the publisher is.
#[derive(Debug)]
pub(super) struct Position {
    lsn: Lsn,
    /// There with the first listener; gone with the first commit that nobody listens to.
    feed: Option<broadcast::Sender<Arc<Commit>>>,
}

/// A commit as listeners get it.
#[derive(Debug)]
pub(super) struct Commit {
    lsn: Lsn,
    events: Vec<Event>,
}

/// An event of it.
#[derive(Debug)]
pub(super) struct Event {
    pub(super) stream: Arc<RunStream>,
    pub(super) line: Line,
    /// Whether the run ends with it.
    pub(super) last: bool,
}

impl Wide {
    /// Nothing is shown that comes after `lsn`.
    pub(super) const fn new(lsn: Lsn) -> Self {
        let feed = None;
        Self(Mutex::new(Position { lsn, feed }))
    }

    /// Whether there are listeners, or were before the last commit.
    #[cfg(test)]
    pub(super) fn is_heard(&self) -> bool {
        lock(&self.0).feed.is_some()
    }

    /// Everything up to `lsn` is shown, and held there until the guard goes.
    pub(super) fn show(
        &self,
        lsn: Lsn,
        events: impl FnOnce() -> Vec<Event>,
    ) -> MutexGuard<'_, Position> {
        let mut position = lock(&self.0);
        position.lsn = lsn;
        if let Some(feed) = &position.feed {
            let events = events();
            if feed.send(Arc::new(Commit { lsn, events })).is_err() {
                position.feed = None;
            }
        }
        position
    }
}

/// A place among the events of all runs: behind a commit and the first events of the next one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Spot {
    /// The commit.
    pub behind: Lsn,
    /// How many events of the next one.
    pub more: usize,
}

impl Spot {
    /// Behind the event `place` of the `count` in the commit `lsn`.
    fn after(lsn: Lsn, place: usize, count: usize) -> Self {
        if place + 1 == count {
            let more = 0;
            return Self { behind: lsn, more };
        }
        Self {
            behind: Lsn(lsn.0.saturating_sub(1)),
            more: place + 1,
        }
    }
}

/// The runs whose events are wanted, and where they begin.
pub struct Wanted {
    /// Whether events of a run may be told: asked of each run.
    pub sees: Box<dyn Fn(&Spec) -> bool + Send + Sync>,
    /// Of these runs and those that they start, and not of others: a tree, each behind its parent.
    pub tree: Option<Vec<RunId>>,
    /// Behind this; else with what a tree has done before, and of other runs with what comes.
    pub since: Option<Spot>,
    /// Whether to stay for what comes: until the tree has ended, or without end.
    pub follow: bool,
}

impl fmt::Debug for Wanted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Wanted")
            .field("tree", &self.tree)
            .field("since", &self.since)
            .field("follow", &self.follow)
            .finish_non_exhaustive()
    }
}

/// What is told of several runs.
#[derive(Debug, Clone, PartialEq)]
pub enum Merge {
    /// Something happened to a run; the place is missing of what a tree has done before.
    Event(RunId, Option<Spot>, Line),
    /// The reader is at this place.
    At(Spot),
}

/// The runs of a tree.
#[derive(Debug)]
struct Tree {
    members: HashSet<RunId>,
    /// Those that may not have ended. Not kept alive.
    live: HashMap<RunId, Weak<RunStream>>,
}

impl Tree {
    fn enter(&mut self, run: &RunId, stream: &Arc<RunStream>) {
        self.members.insert(run.clone());
        self.live.insert(run.clone(), Arc::downgrade(stream));
    }

    /// Whether all its runs have ended, as far as is shown.
    fn is_over(&mut self) -> bool {
        let runs = |stream: &Weak<RunStream>| {
            let stream = stream.upgrade();
            stream.is_some_and(|stream| !stream.rest.borrow().ended)
        };
        self.live.retain(|_, stream| runs(stream));
        self.live.is_empty()
    }
}

/// What was read.
enum Read {
    /// A page of what a run of a tree has done before.
    Before(RunId, Option<Box<Pages>>, Vec<Line>),
    /// What the log holds up to a position.
    Log(Lsn, Vec<(Found, Whose)>),
}

/// An event of the log.
struct Found {
    run: RunId,
    spot: Spot,
    line: Line,
}

/// What is known of a run.
#[derive(Clone)]
struct Whose {
    /// `None` if it has left memory.
    stream: Option<Arc<RunStream>>,
    spec: Arc<Spec>,
}

/// Where the next events come from.
enum From {
    /// To be found out.
    Next,
    /// A page that is being read.
    Reading(BoxFuture<'static, Result<Read, Error>>),
    /// What comes.
    Present(broadcast::Receiver<Arc<Commit>>),
    /// There are no more.
    Over,
}

/// A subscription to several runs. See the module.
pub struct Merged {
    /// Not kept alive: a listener hears of the end of the journal by the end of the feed.
    shared: Weak<Shared>,
    sees: Box<dyn Fn(&Spec) -> bool + Send + Sync>,
    tree: Option<Tree>,
    /// Runs of the tree whose past is still to be told, each up to an event if it was in memory.
    before: VecDeque<(RunId, Option<Seq>)>,
    /// The past that is being told.
    pages: Option<(RunId, Box<Pages>)>,
    page: VecDeque<Merge>,
    from: From,
    /// What was told, or passed over.
    at: Spot,
    /// Whether the reader is still to be told where it is.
    announces: bool,
    /// Where it ends; `None` if it stays.
    until: Option<Lsn>,
}

impl Journal {
    /// The events of several runs; a place that the log does not hold is refused.
    pub async fn merged(&self, wanted: Wanted) -> Result<Merged, Error> {
        // Right after the start the publisher is still at what the log held.
        let published = self.shared.published.reach(self.shared.durable.get());
        published.await.map_err(Error::Failed)?;
        let Wanted {
            sees,
            tree,
            since,
            follow,
        } = wanted;
        let known: Vec<(RunId, Option<Arc<RunStream>>)> = {
            let runs = tree.iter().flatten();
            runs.map(|id| (id.clone(), self.shared.stream(id)))
                .collect()
        };
        let (now, heads) = {
            let position = lock(&self.shared.wide.0);
            let head = |stream: &Option<Arc<RunStream>>| Some(stream.as_ref()?.head().seq);
            let heads = known.iter().map(|(id, stream)| (id.clone(), head(stream)));
            (position.lsn, heads.collect())
        };
        let before = if since.is_none() {
            heads
        } else {
            VecDeque::new()
        };
        let at = since.unwrap_or(Spot {
            behind: now,
            more: 0,
        });
        if at.behind > now {
            return Err(Error::Passed);
        }
        let mut merged = Merged {
            shared: Arc::downgrade(&self.shared),
            sees,
            tree: tree.map(|members| Tree {
                members: members.into_iter().collect(),
                live: known
                    .into_iter()
                    .filter_map(|(id, stream)| Some((id, Arc::downgrade(&stream?))))
                    .collect(),
            }),
            before,
            pages: None,
            page: VecDeque::new(),
            from: From::Next,
            at,
            announces: true,
            until: (!follow).then_some(now),
        };
        merged.begin().await?;
        Ok(merged)
    }
}

impl Merged {
    /// Reads the first page, so that whoever asked is told if it cannot be read.
    async fn begin(&mut self) -> Result<(), Error> {
        self.turn()?;
        self.read().await
    }

    /// What is told next; `None` when there is no more. After an error there is no more. Cancel safe.
    pub async fn next(&mut self) -> Option<Result<Merge, Error>> {
        loop {
            if let Some(told) = self.page.pop_front() {
                return Some(Ok(told));
            }
            let done = match &mut self.from {
                From::Over => return None,
                From::Next => self.turn(),
                From::Reading(_) => self.read().await,
                From::Present(feed) => match feed.recv().await {
                    Ok(commit) => {
                        self.hear(&commit);
                        Ok(())
                    }
                    Err(RecvError::Lagged(_)) => {
                        self.from = From::Next;
                        Ok(())
                    }
                    Err(RecvError::Closed) => Err(Error::Closed),
                },
            };
            if let Err(error) = done {
                self.from = From::Over;
                return Some(Err(error));
            }
        }
    }

    /// Finds out where the next events come from.
    fn turn(&mut self) -> Result<(), Error> {
        let shared = self.shared.upgrade().ok_or(Error::Closed)?;
        if let Some((run, pages)) = self.pages.take() {
            self.from = From::Reading(Box::pin(page_before(run, pages)));
            return Ok(());
        }
        if let Some((run, head)) = self.before.pop_front() {
            self.from = From::Reading(Box::pin(async move {
                let replay = Replay::open(&shared, &run).await?;
                page_before(run, Box::new(Pages::up_to(replay, head))).await
            }));
            return Ok(());
        }
        if std::mem::take(&mut self.announces) {
            self.page.push_back(Merge::At(self.at));
        }
        let mut position = lock(&shared.wide.0);
        let until = self.until.unwrap_or(position.lsn);
        self.from = if self.at.behind < until {
            From::Reading(Box::pin(page_of_log(Arc::clone(&shared), self.at, until)))
        } else if self.until.is_some() || self.tree.as_mut().is_some_and(Tree::is_over) {
            From::Over
        } else {
            let feed = &mut position.feed;
            let feed = feed.get_or_insert_with(|| broadcast::Sender::new(FEED_COMMITS));
            From::Present(feed.subscribe())
        };
        Ok(())
    }

    /// Waits for the page that is being read. Cancel safe: it goes on being read.
    async fn read(&mut self) -> Result<(), Error> {
        let From::Reading(reading) = &mut self.from else {
            return Ok(());
        };
        let read = reading.await;
        self.from = From::Next;
        match read? {
            Read::Before(run, pages, lines) => {
                self.pages = pages.map(|pages| (run.clone(), pages));
                let lines = lines.into_iter();
                self.page
                    .extend(lines.map(|line| Merge::Event(run.clone(), None, line)));
            }
            Read::Log(at, found) => {
                for (Found { run, spot, line }, of) in found {
                    if self.wants(&run, &of.spec, of.stream.as_ref()) {
                        self.page.push_back(Merge::Event(run, Some(spot), line));
                    }
                }
                self.at = Spot {
                    behind: at,
                    more: 0,
                };
            }
        }
        Ok(())
    }

    /// Takes in what the publisher shows.
    fn hear(&mut self, commit: &Commit) {
        if commit.lsn <= self.at.behind {
            return;
        }
        let count = commit.events.len();
        for (place, event) in commit.events.iter().enumerate() {
            let stream = &event.stream;
            if !self.wants(&stream.id, &stream.spec, Some(stream)) {
                continue;
            }
            let spot = Spot::after(commit.lsn, place, count);
            let told = Merge::Event(stream.id.clone(), Some(spot), event.line.clone());
            self.page.push_back(told);
            if event.last && self.tree.is_some() {
                // It may have been the last run of the tree.
                self.from = From::Next;
            }
        }
        self.at = Spot {
            behind: commit.lsn,
            more: 0,
        };
    }

    /// Whether the events of a run are wanted; one that a run of the tree started belongs to the tree from then on.
    fn wants(&mut self, run: &RunId, spec: &Spec, stream: Option<&Arc<RunStream>>) -> bool {
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
        if !parent.is_some_and(|parent| tree.members.contains(parent)) {
            return false;
        }
        match stream {
            Some(stream) => tree.enter(run, stream),
            // It has ended.
            None => drop(tree.members.insert(run.clone())),
        }
        true
    }
}

impl fmt::Debug for Merged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Merged")
            .field("at", &self.at)
            .finish_non_exhaustive()
    }
}

/// The next page of what `run` has done before.
async fn page_before(run: RunId, mut pages: Box<Pages>) -> Result<Read, Error> {
    Ok(match pages.next().await? {
        Some(lines) => Read::Before(run, Some(pages), lines),
        None => Read::Before(run, None, Vec::new()),
    })
}

/// A page of what the log holds behind `at`, up to `until`.
async fn page_of_log(shared: Arc<Shared>, at: Spot, until: Lsn) -> Result<Read, Error> {
    let log = Arc::clone(&shared);
    let read = task::blocking("read the log", move || read_log(&log, at, until));
    let (read_to, events) = read.await?;
    // Behind this, the streams of the runs show what was read.
    let published = shared.published.reach(read_to);
    published.await.map_err(Error::Failed)?;
    let mut runs: HashMap<RunId, Option<Whose>> = HashMap::new();
    let mut found = Vec::with_capacity(events.len());
    for event in events {
        let of = if let Some(known) = runs.get(&event.run) {
            known.clone()
        } else {
            let of = whose(&shared, &event.run).await?;
            runs.insert(event.run.clone(), of.clone());
            of
        };
        // A run that is nowhere has been removed.
        found.extend(of.map(|of| (event, of)));
    }
    Ok(Read::Log(read_to, found))
}

/// What is known of a run, in memory or in the archive.
async fn whose(shared: &Arc<Shared>, run: &RunId) -> Result<Option<Whose>, Error> {
    if let Some(stream) = shared.stream(run) {
        let spec = Arc::clone(&stream.spec);
        let stream = Some(stream);
        return Ok(Some(Whose { stream, spec }));
    }
    let stored = shared.archived(run).await?;
    Ok(stored.map(|stored| Whose {
        stream: None,
        spec: Arc::clone(&stored.run.spec),
    }))
}

/// The events of whole commits behind `at`, until there are enough for a page, and the position of the last commit. Blocks.
fn read_log(shared: &Shared, at: Spot, until: Lsn) -> Result<(Lsn, Vec<Found>), Error> {
    let failed = |source| Error::Files {
        what: "read",
        path: log::directory(&shared.dir),
        source,
    };
    let (mut lsn, mut skip) = (at.behind, at.more);
    let (mut found, mut bytes) = (Vec::new(), 0);
    while lsn < until && found.len() < PAGE_EVENTS && bytes < PAGE_BYTES {
        lsn = lsn.next();
        let frame = shared.log.read(lsn).map_err(failed)?.ok_or(Error::Passed)?;
        bytes += frame.len();
        let body = serde_json::from_slice(&frame).map_err(|error| failed(error.into()))?;
        if let Body::Commit { at, records } = body {
            let count = records.len();
            let records = records.into_iter().enumerate().skip(skip);
            found.extend(records.map(|(place, record)| Found {
                spot: Spot::after(lsn, place, count),
                line: Line {
                    seq: record.seq,
                    lsn,
                    timestamp: at,
                    payload: record.event.shown().into(),
                    event_type: record.event.event_type,
                },
                run: record.run,
            }));
        }
        skip = 0;
    }
    Ok((lsn, found))
}
