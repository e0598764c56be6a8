//! Commits of all runs, for cursors over several runs.
//!
//! **Owns** the position up to which everything is published. **Order.** The publisher publishes each commit under this
//! lock, to listeners of all runs and of single runs. A holder of the lock sees all heads as they are at one position
//! of the log.

use std::sync::{Arc, Mutex, MutexGuard};

use rye_core::id::Lsn;
use tokio::sync::broadcast;

use crate::record::Line;
use crate::stream::run_stream::RunStream;
use crate::watermark::lock;

/// Commits that a listener may be late before it reads them from the log.
pub(crate) const FEED_COMMITS: usize = 256;

/// Subscription to commits.
pub(crate) type Receiver = broadcast::Receiver<Arc<Commit>>;

#[derive(Debug)]
pub(crate) struct AllRuns(Mutex<Position>);

/// State of the publisher.
#[derive(Debug)]
pub(crate) struct Position {
    lsn: Lsn,
    /// Exists from the first listener until the first commit without listeners.
    feed: Option<broadcast::Sender<Arc<Commit>>>,
}

#[derive(Debug)]
pub(crate) struct Commit {
    pub(crate) lsn: Lsn,
    pub(crate) events: Vec<Event>,
}

#[derive(Debug)]
pub(crate) struct Event {
    pub(crate) stream: Arc<RunStream>,
    pub(crate) line: Line,
    /// True if the run ends with it.
    pub(crate) last: bool,
}

impl AllRuns {
    /// Returns the state in which nothing after `lsn` is published.
    pub(crate) const fn new(lsn: Lsn) -> Self {
        let feed = None;
        Self(Mutex::new(Position { lsn, feed }))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Position> {
        lock(&self.0)
    }

    /// True if there are listeners, or were before the last commit.
    #[cfg(test)]
    pub(crate) fn has_listeners(&self) -> bool {
        self.lock().feed.is_some()
    }

    /// Publishes everything up to `lsn`. The position stays there until the guard is dropped.
    pub(crate) fn show(
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
    pub(crate) const fn lsn(&self) -> Lsn {
        self.lsn
    }

    /// Subscribes to all commits after this position.
    pub(crate) fn listen(&mut self) -> Receiver {
        let feed = &mut self.feed;
        let feed = feed.get_or_insert_with(|| broadcast::Sender::new(FEED_COMMITS));
        feed.subscribe()
    }
}
