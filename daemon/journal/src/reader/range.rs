//! Pages of the events of all runs in a range of the log: from the log while it holds the range, otherwise from
//! history.
//!
//! **Owns** the decoded section of history that is being read: a reader keeps it from page to page. Its memory is
//! counted in the limit of all runs. **Failure.** A range that neither log nor history holds is lost
//! ([`Error::Passed`]).

use std::sync::Arc;

use crate::history;
use rye_core::id::{Lsn, RunId};
use rye_core::memory::Charge;

use super::event_store::EventStore;
use super::run_pages;
use super::spot::{Found, Spot};
use crate::error::Error;
use crate::record::Body;
use rye_host::task;

/// Events after which a page is full.
const PAGE_EVENTS: usize = 512;
/// Bytes of the log after which a page is full.
const PAGE_BYTES: usize = 256 << 10;

/// A section of history with its events in the order of the log.
#[derive(Debug)]
pub(crate) struct Decoded {
    last: Lsn,
    events: Vec<(RunId, history::Event)>,
    _charge: Charge,
}

/// Position of the last commit that was read, events of whole commits, and the section that holds them.
type Page = (Lsn, Vec<Found>, Option<Arc<Decoded>>);

/// Reads a page of events of whole commits after `at`, up to `until` at most. `section` is the section that was read
/// last.
pub(crate) async fn read(
    store: &Arc<EventStore>,
    at: Spot,
    until: Lsn,
    section: Option<Arc<Decoded>>,
) -> Result<Page, Error> {
    let store = Arc::clone(store);
    let read = task::blocking("read what was published", move || {
        read_page(&store, at, until, section)
    });
    read.await
}

fn read_page(
    store: &Arc<EventStore>,
    at: Spot,
    until: Lsn,
    section: Option<Arc<Decoded>>,
) -> Result<Page, Error> {
    if let Some((upto, found)) = of_log(store, at, until)? {
        return Ok((upto, found, None));
    }
    let next = at.commit.next();
    let section = match section {
        Some(section) if section.last >= next => section,
        Some(_) | None => Arc::new(Decoded::read(store, next)?),
    };
    let (upto, found) = section.page(at, until);
    Ok((upto, found, Some(section)))
}

/// Returns `None` if the log does not hold the commit after `at`.
fn of_log(store: &EventStore, at: Spot, until: Lsn) -> Result<Option<(Lsn, Vec<Found>)>, Error> {
    let failed = |source| Error::Files {
        what: "read",
        path: store.log.dir.clone(),
        source,
    };
    let (mut upto, mut skip) = (at.commit, at.more);
    let (mut found, mut bytes) = (Vec::new(), 0);
    while upto < until && found.len() < PAGE_EVENTS && bytes < PAGE_BYTES {
        let frames = store.log.read_many(upto.next(), PAGE_BYTES);
        let frames = frames.map_err(failed)?;
        let before = upto;
        for (lsn, body) in frames.iter().take_while(|(lsn, _)| *lsn <= until) {
            let body_of = serde_json::from_slice(body).map_err(|error| failed(error.into()))?;
            if let Body::Commit { at, records } = body_of {
                let count = records.len();
                for (place, record) in records.into_iter().enumerate().skip(skip) {
                    found.push(Found {
                        run: record.run.clone(),
                        spot: Spot::after(lsn, place, count),
                        line: run_pages::line(lsn, at, record),
                    });
                }
            }
            (upto, skip, bytes) = (lsn, 0, bytes + body.len());
        }
        if upto == before {
            break;
        }
    }
    Ok((upto > at.commit).then_some((upto, found)))
}

impl Decoded {
    /// Reads the section that holds the first existing position from `next` on.
    fn read(store: &EventStore, next: Lsn) -> Result<Self, Error> {
        let section = store.runs.history.find(next).ok_or(Error::Passed)?;
        let read = section.read().map_err(Error::History)?;
        let mut charge = store.memory.open();
        if !charge.grow(read.directory().raw_bytes()) {
            return Err(Error::memory_full(&store.memory));
        }
        let events = read.events(|_| true).map_err(Error::History)?;
        Ok(Self {
            last: section.last(),
            events,
            _charge: charge,
        })
    }

    /// Returns the events of whole commits after `at`, up to `until`, that fit on a page, and the position that they
    /// reach.
    fn page(&self, at: Spot, until: Lsn) -> (Lsn, Vec<Found>) {
        let (behind, more) = (at.commit, at.more);
        let begin = self.events.partition_point(|(_, event)| {
            event.lsn <= behind || event.lsn == behind.next() && place(event) < more
        });
        let mut found = Vec::new();
        let mut bytes = 0;
        for (run, event) in &self.events[begin..] {
            let is_new_commit = found
                .last()
                .is_none_or(|last: &Found| last.line.lsn != event.lsn);
            if event.lsn > until {
                break;
            }
            if is_new_commit && (found.len() >= PAGE_EVENTS || bytes >= PAGE_BYTES) {
                return (Lsn(event.lsn.0 - 1), found);
            }
            bytes += event.payload.get().len();
            found.push(Found {
                run: run.clone(),
                spot: Spot::after_event(event.lsn, place(event), event.is_last_of_commit),
                line: run_pages::line_of(event),
            });
        }
        (self.last.min(until), found)
    }
}

/// Index of an event in its commit.
fn place(event: &history::Event) -> usize {
    usize::try_from(event.place).unwrap_or(usize::MAX)
}
