//! Pages of published events of one run: from the log while it holds them, otherwise from history.
//!
//! **Owns** the choice between log and history. It is made again for each page, because between two pages a range may
//! move from the log to history, and a run may leave memory. **Order.** The sealer enters a span in the stream of its
//! run before it drops the signatures in it, and before the log drops its frames. A reader of the log that finds the
//! span afterwards reads the page again, from history. **Failure.** Events that neither holds are lost; the error names
//! the run, its events and the file.

use std::error::Error as StdError;
use std::sync::Arc;

use crate::history;
use rye_core::clock::Timestamp;
use rye_core::id::{Lsn, RunId, Seq};
use rye_core::memory::Charge;
use rye_core::seal::{Fingerprint, Signature};
use rye_core::transcript::Head;

use super::event_store::EventStore;
use crate::base::{Span, Stored};
use crate::error::Error;
use crate::record::{Body, Line, Record};
use crate::stream::run_stream::RunStream;
use rye_host::task;

/// Bytes of payloads after which a page is full.
const PAGE_BYTES: usize = 128 << 10;
/// Events after which a page is full.
const PAGE_EVENTS: usize = 512;

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Event {
    pub(crate) line: Line,
    /// Signature of the checkpoint that follows it in the transcript, and its key.
    pub(crate) signed: Option<(Signature, Fingerprint)>,
}

/// Events and the number of bytes in their payloads.
#[derive(Debug, Default)]
pub(crate) struct Page {
    pub(crate) events: Vec<Event>,
    bytes: usize,
}

impl Page {
    fn push(&mut self, event: Event) {
        self.bytes += event.line.payload.len();
        self.events.push(event);
    }

    const fn is_full(&self) -> bool {
        self.bytes >= PAGE_BYTES || self.events.len() >= PAGE_EVENTS
    }
}

/// A run whose events are read.
#[derive(Debug, Clone)]
pub(crate) enum Source {
    Live(Arc<RunStream>),
    /// The run has ended and left memory.
    Ended(Arc<Stored>),
}

impl Source {
    pub(crate) async fn find(store: &Arc<EventStore>, run: &RunId) -> Result<Self, Error> {
        if let Some(stream) = store.runs.sequencer.stream(run) {
            return Ok(Self::Live(stream));
        }
        let stored = store.runs.ended(run).await?;
        let stored = stored.ok_or_else(|| Error::Unknown { run: run.clone() })?;
        Ok(Self::Ended(Arc::new(stored)))
    }

    pub(crate) fn run(&self) -> &RunId {
        match self {
            Self::Live(stream) => &stream.id,
            Self::Ended(stored) => &stored.run.id,
        }
    }

    /// Directory with the files of its project.
    pub(crate) fn files(&self) -> &str {
        match self {
            Self::Live(stream) => &stream.spec.files,
            Self::Ended(stored) => &stored.run.spec.files,
        }
    }

    /// Returns the published end of its transcript.
    pub(crate) fn head(&self) -> Head {
        match self {
            Self::Live(stream) => stream.head(),
            Self::Ended(stored) => stored.head,
        }
    }

    /// Reads the events from `next` to `last`, as many as fit on a page, and at least one. Such events have to exist.
    /// Fails if the memory limit leaves no room for a page.
    pub(crate) async fn page(
        &self,
        store: &Arc<EventStore>,
        next: Seq,
        last: Seq,
    ) -> Result<(Vec<Event>, Charge), Error> {
        let mut charge = store.memory.open();
        if !charge.grow(PAGE_BYTES) {
            return Err(Error::memory_full(&store.memory));
        }
        let (own, store) = (self.clone(), Arc::clone(store));
        let read = task::blocking("read the events of a run", move || {
            own.read(&store, next, last)
        });
        let page = read.await?;
        charge.shrink(PAGE_BYTES.saturating_sub(page.bytes));
        Ok((page.events, charge))
    }

    /// As [`Source::page`], without the memory limit. Blocks.
    pub(crate) fn read(&self, store: &EventStore, next: Seq, last: Seq) -> Result<Page, Error> {
        let failed = |source| Error::DataLoss {
            run: self.run().clone(),
            source,
        };
        loop {
            let place = self.locate(next, last);
            let is_in_log = matches!(place, EventLocation::Log(_));
            let read = match place {
                EventLocation::Section(span) => of_history(store, self.run(), span, next, last),
                EventLocation::Log(places) => of_log(store, self.run(), &places),
            };
            // It was sealed in between: its signatures were dropped, and its frames may have been.
            if is_in_log && matches!(self.locate(next, last), EventLocation::Section(_)) {
                continue;
            }
            if read.is_err() && store.runs.sequencer.is_gone(self.run()) {
                let run = self.run().clone();
                return Err(Error::Unknown { run });
            }
            return read.map_err(failed);
        }
    }

    fn locate(&self, next: Seq, last: Seq) -> EventLocation {
        let in_section = |spans: &[Span]| {
            let span = spans
                .partition_point(|span| span.first <= next)
                .checked_sub(1)?;
            Some(EventLocation::Section(spans[span]))
        };
        match self {
            Self::Ended(stored) => in_section(&stored.spans),
            Self::Live(stream) => {
                let published = stream.published();
                if next > published.sealed {
                    let most = u64::try_from(PAGE_EVENTS).unwrap_or(u64::MAX);
                    let last = last.min(Seq(next.0.saturating_add(most)));
                    Some(EventLocation::Log(published.places(next, last)))
                } else {
                    in_section(&published.spans)
                }
            }
        }
        .unwrap_or(EventLocation::Log(Vec::new()))
    }
}

/// Reason why an event cannot be read.
type Cause = Box<dyn StdError + Send + Sync>;

/// Location of an event.
enum EventLocation {
    Section(Span),
    /// The log: positions of the event and of those after it.
    Log(Vec<(Seq, Lsn)>),
}

/// Returns the error that no section and no frame holds the event.
fn missing(seq: Seq) -> Cause {
    format!("event {seq} is neither in the log nor in history").into()
}

fn of_history(
    store: &EventStore,
    run: &RunId,
    span: Span,
    next: Seq,
    last: Seq,
) -> Result<Page, Cause> {
    let section = store
        .runs
        .history
        .find(span.lsn)
        .ok_or_else(|| missing(next))?;
    let section = section.read()?;
    let mut page = Page::default();
    for event in section.events_of(run, next..=last) {
        let event = event?;
        let key = section.directory().fingerprint(event.lsn).cloned();
        let signed = event.signature.zip(key);
        let line = line_of(&event);
        page.push(Event { line, signed });
        if page.is_full() {
            break;
        }
    }
    if page.events.is_empty() {
        return Err(missing(next));
    }
    Ok(page)
}

/// Reads the records of `run` at `places`, which are in order. Each frame is read once.
fn of_log(store: &EventStore, run: &RunId, places: &[(Seq, Lsn)]) -> Result<Page, Cause> {
    let mut page = Page::default();
    for frame in places.chunk_by(|(_, one), (_, next)| one == next) {
        let Some(&(first, lsn)) = frame.first() else {
            continue;
        };
        let body = store.log.read(lsn)?.ok_or_else(|| missing(first))?;
        let Body::Commit { at, records } = serde_json::from_slice(&body)? else {
            return Err(missing(first));
        };
        let records = records.into_iter().enumerate();
        let mut own = records.filter(|(_, record)| record.run == *run);
        for &(seq, _) in frame {
            let found = own.find(|(_, record)| record.seq == seq);
            let (place, record) = found.ok_or_else(|| missing(seq))?;
            let signed = store.published.signatures.of((lsn, place));
            let line = line(lsn, at, record);
            page.push(Event { line, signed });
            if page.is_full() {
                return Ok(page);
            }
        }
    }
    if page.events.is_empty() {
        return Err("there are no such events".into());
    }
    Ok(page)
}

/// Returns the event of a record in the form for readers.
pub(crate) fn line(lsn: Lsn, at: Timestamp, record: Record) -> Line {
    Line {
        seq: record.seq,
        lsn,
        timestamp: at,
        payload: record.event.shown().into(),
        event_type: record.event.event_type,
    }
}

/// Returns an event of history in the form for readers.
pub(crate) fn line_of(event: &history::Event) -> Line {
    Line {
        seq: event.seq,
        lsn: event.lsn,
        timestamp: event.at,
        event_type: event.event_type.to_string(),
        payload: event.payload.get().into(),
    }
}
