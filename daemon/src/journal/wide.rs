//! What is published of all runs, for cursors over several of them.
//!
//! **Owns** the position up to which everything is published. **Order.** The publisher shows each commit under this lock, to listeners of
//! all runs and of single ones. Who holds the lock sees all heads as they are at one position of the log.

use std::sync::{Arc, Mutex, MutexGuard};

use rye_core::id::Lsn;
use tokio::sync::broadcast;

use super::Line;
use super::run_stream::RunStream;
use super::watermark::lock;

/// Commits that a listener may be behind before it reads them from the log.
pub(super) const FEED_COMMITS: usize = 256;

/// Where a listener hears commits.
pub(super) type Receiver = broadcast::Receiver<Arc<Commit>>;

#[derive(Debug)]
pub(super) struct Wide(Mutex<Position>);

/// How far the publisher is.
#[derive(Debug)]
pub(super) struct Position {
    lsn: Lsn,
    /// There with the first listener; gone with the first commit that none hears.
    feed: Option<broadcast::Sender<Arc<Commit>>>,
}

/// A commit as listeners get it.
#[derive(Debug)]
pub(super) struct Commit {
    pub(super) lsn: Lsn,
    pub(super) events: Vec<Event>,
}

#[derive(Debug)]
pub(super) struct Event {
    pub(super) stream: Arc<RunStream>,
    pub(super) line: Line,
    /// True if the run ends with it.
    pub(super) last: bool,
}

impl Wide {
    /// Nothing after `lsn` is published.
    pub(super) const fn new(lsn: Lsn) -> Self {
        let feed = None;
        Self(Mutex::new(Position { lsn, feed }))
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Position> {
        lock(&self.0)
    }

    /// True if there are listeners, or were before the last commit.
    #[cfg(test)]
    pub(super) fn is_heard(&self) -> bool {
        self.lock().feed.is_some()
    }

    /// Publishes everything up to `lsn`. The position stays there until the guard goes.
    pub(super) fn show(
        &self,
        lsn: Lsn,
        events: impl FnOnce() -> Vec<Event>,
    ) -> MutexGuard<'_, Position> {
        let mut position = self.lock();
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

impl Position {
    pub(super) const fn lsn(&self) -> Lsn {
        self.lsn
    }

    /// Hears all commits that come after this position.
    pub(super) fn listen(&mut self) -> Receiver {
        let feed = &mut self.feed;
        let feed = feed.get_or_insert_with(|| broadcast::Sender::new(FEED_COMMITS));
        feed.subscribe()
    }
}
