//! Cursor over the events of a run, of a tree of runs, or of all runs: first past events, then new ones, without gap or
//! duplicate.
//!
//! **Owns** the position of a reader. **Never** retains the log or the journal for a reader: a slow reader reads the
//! events that it missed from log and history, and takes no more memory than a fast one. **Order.** Past events are
//! read a page at a time ([`crate::reader::run_pages`]). At their end the reader subscribes under the lock of the publisher,
//! so that both parts meet exactly. **Failure.** After an error the cursor is at its end.

mod many;
mod one;

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Weak};

use futures_util::future::BoxFuture;
use rye_core::id::{RunId, Seq};
use rye_core::memory::Charge;
use rye_core::model::Spec;
use rye_core::seal::{Fingerprint, Signature};

use self::many::{Many, Range};
use self::one::One;
use super::event_store::EventStore;
use super::run_pages::{self, Source};
use super::spot::Spot;
use crate::error::Error;
use crate::record::Line;
use crate::stream::{all_runs, run_stream};

/// Predicate that selects the runs that a reader may see.
pub type Sees = Box<dyn Fn(&Spec) -> bool + Send + Sync>;

/// The runs whose events are read.
pub enum Of {
    Run(RunId),
    /// These runs, each after its parent, and all their descendants.
    Tree(Vec<RunId>, Sees),
    All(Sees),
}

impl fmt::Debug for Of {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Run(run) => f.debug_tuple("Run").field(run).finish(),
            Self::Tree(runs, _) => f.debug_tuple("Tree").field(runs).finish_non_exhaustive(),
            Self::All(_) => f.write_str("All"),
        }
    }
}

/// Start of a cursor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Since {
    /// Before the first event of the run, or of each run of the tree. For all runs this is [`Since::Now`].
    Begin,
    /// After this event of the run. For several runs this is [`Since::Begin`].
    Seq(Seq),
    /// After this position among the events of all runs. For one run this is [`Since::Begin`].
    Spot(Spot),
    /// After the events that are published now.
    Now,
}

/// End of a cursor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Until {
    /// After the events that are published now.
    Now,
    /// After the end of the run or of the last run of the tree; never for all runs.
    Ended,
}

/// An item of a cursor.
#[derive(Debug, Clone, PartialEq)]
pub enum Read {
    Event {
        run: RunId,
        /// Position after it; `None` if the events of each run are read separately.
        spot: Option<Spot>,
        line: Line,
        /// Signature of the checkpoint that follows it in the transcript, and its key. Always `None` for new events and
        /// for events in the order of the log.
        signed: Option<(Signature, Fingerprint)>,
    },
    /// The cursor is at this position, and the next items are after it.
    At(Spot),
}

impl Read {
    /// Returns the event, if it is one.
    pub fn line(self) -> Option<Line> {
        match self {
            Self::Event { line, .. } => Some(line),
            Self::At(_) => None,
        }
    }
}

/// Reads events in order, without gap or duplicate.
pub struct Cursor {
    /// Weak, so that cursors end with the journal.
    store: Weak<EventStore>,
    kind: Kind,
    ready: VecDeque<Read>,
    /// Memory of the items in `ready`.
    charge: Option<Charge>,
    state: State,
}

enum Kind {
    One(One),
    Many(Box<Many>),
}

enum State {
    /// The source of the next events is not determined yet.
    Idle,
    Reading(BoxFuture<'static, Result<Fetched, Error>>),
    Listening(Listener),
    Over,
}

enum Listener {
    One(run_stream::Listener),
    Many(all_runs::Receiver),
}

/// A page that was read.
enum Fetched {
    /// The source of one run.
    Source(Source),
    /// Events of one run.
    Events(RunId, Vec<run_pages::Event>, Charge),
    /// Events of all runs in a range of the log.
    Range(Range),
}

impl Cursor {
    /// Opens a cursor and reads the first page, so that the caller gets the error if that cannot be read.
    pub(crate) async fn open(
        store: &Arc<EventStore>,
        of: Of,
        since: Since,
        until: Until,
    ) -> Result<Self, Error> {
        // Right after the start the publisher is still publishing the replayed log.
        let published = store.published.watermark.reach(store.log.durable.get());
        published.await.map_err(Error::Failed)?;
        let kind = match of {
            Of::Run(run) => Kind::One(One::new(store, run, since, until).await?),
            Of::Tree(runs, sees) => {
                let many = Many::new(store, Some(&runs), sees, since, until)?;
                Kind::Many(Box::new(many))
            }
            Of::All(sees) => {
                let many = Many::new(store, None, sees, since, until)?;
                Kind::Many(Box::new(many))
            }
        };
        let mut cursor = Self {
            store: Arc::downgrade(store),
            kind,
            ready: VecDeque::new(),
            charge: None,
            state: State::Idle,
        };
        cursor.begin().await?;
        Ok(cursor)
    }

    async fn begin(&mut self) -> Result<(), Error> {
        while self.ready.is_empty() && matches!(self.state, State::Idle | State::Reading(_)) {
            self.advance().await?;
        }
        Ok(())
    }

    /// Returns the next item, or `None` at the end. Cancel safe.
    pub async fn next(&mut self) -> Option<Result<Read, Error>> {
        loop {
            if let Some(read) = self.ready.pop_front() {
                return Some(Ok(read));
            }
            self.charge = None;
            if matches!(self.state, State::Over) {
                return None;
            }
            if let Err(error) = self.advance().await {
                self.state = State::Over;
                return Some(Err(error));
            }
        }
    }

    /// Returns all items that were read together, or `None` at the end. Their memory is counted until the next call.
    /// Cancel safe.
    pub async fn next_page(&mut self) -> Result<Option<Vec<Read>>, Error> {
        let Some(first) = self.next().await.transpose()? else {
            return Ok(None);
        };
        let mut page = vec![first];
        page.extend(self.ready.drain(..));
        Ok(Some(page))
    }

    /// Takes one step: determines the source of the next events, waits for a page, or waits for new events.
    async fn advance(&mut self) -> Result<(), Error> {
        match &mut self.state {
            State::Over => {}
            State::Idle => {
                let store = self.store.upgrade().ok_or(Error::Closed)?;
                self.state = match &mut self.kind {
                    Kind::One(one) => one.turn(&store),
                    Kind::Many(many) => many.turn(&store, &mut self.ready),
                };
            }
            State::Reading(reading) => {
                let fetched = reading.await;
                self.state = State::Idle;
                self.take(fetched?);
            }
            State::Listening(Listener::One(listener)) => {
                let heard = listener.next().await;
                if let (Kind::One(one), Ok(message)) = (&mut self.kind, &heard) {
                    self.ready.extend(one.receive(message));
                    if message.last {
                        self.state = State::Over;
                    }
                } else {
                    // It was too slow, or there was no memory for its messages, or the journal has ended.
                    self.state = State::Idle;
                }
            }
            State::Listening(Listener::Many(listener)) => {
                let heard = listener.recv().await;
                if let (Kind::Many(many), Ok(commit)) = (&mut self.kind, &heard) {
                    if many.receive(commit, &mut self.ready) {
                        self.state = State::Idle;
                    }
                } else {
                    self.state = State::Idle;
                }
            }
        }
        Ok(())
    }

    fn take(&mut self, fetched: Fetched) {
        match (fetched, &mut self.kind) {
            (Fetched::Source(source), Kind::One(one)) => one.source = Some(source),
            (Fetched::Source(source), Kind::Many(many)) => many.enter(source),
            (Fetched::Events(run, events, charge), kind) => {
                self.charge = Some(charge);
                if let Some(last) = events.last() {
                    match kind {
                        Kind::One(one) => one.next = last.line.seq.next(),
                        Kind::Many(many) => many.passed(last.line.seq),
                    }
                }
                let read = |event: run_pages::Event| Read::Event {
                    run: run.clone(),
                    spot: None,
                    line: event.line,
                    signed: event.signed,
                };
                self.ready.extend(events.into_iter().map(read));
            }
            (Fetched::Range(range), Kind::Many(many)) => many.take(range, &mut self.ready),
            (Fetched::Range(_), Kind::One(_)) => {}
        }
    }
}

impl fmt::Debug for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cursor").finish_non_exhaustive()
    }
}
