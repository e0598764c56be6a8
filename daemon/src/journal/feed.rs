//! The events of a run as they come: what has been, then what comes, without gap or duplicate.

use std::collections::VecDeque;
use std::fmt;

use rye_core::error::{ErrorKind, Kinded};
use rye_core::id::Seq;
use tokio::sync::broadcast::error::RecvError;

use super::Line;
use super::run_stream::Listener;

/// Why a feed ended before its run did.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FeedError {
    /// The reader was too slow; a feed from the event after `last` continues.
    #[error("the reader fell behind after event {last}")]
    Lagged {
        /// The last event it was given.
        last: Seq,
    },
    /// The journal was closed.
    #[error("the journal was closed after event {last}")]
    Closed {
        /// The last event it was given.
        last: Seq,
    },
}

impl Kinded for FeedError {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::Lagged { .. } => ErrorKind::Exhausted,
            Self::Closed { .. } => ErrorKind::Unavailable,
        }
    }
}

/// A subscription to one run.
pub struct Feed {
    replay: VecDeque<Line>,
    live: Option<Listener>,
    /// The last event given out, or the one before the first.
    last: Seq,
}

impl Feed {
    pub(super) fn new(replay: Vec<Line>, live: Option<Listener>, last: Seq) -> Self {
        Self {
            replay: replay.into(),
            live,
            last,
        }
    }

    /// The next event; `None` after the one that ended the run. After an error the feed is over. Cancel safe.
    pub async fn next(&mut self) -> Option<Result<Line, FeedError>> {
        if let Some(line) = self.replay.pop_front() {
            self.last = line.seq;
            return Some(Ok(line));
        }
        loop {
            let last = self.last;
            let failure = match self.live.as_mut()?.next().await {
                Ok(message) => {
                    if message.last {
                        self.live = None;
                    }
                    if message.line.seq <= last {
                        // The reader asked for later events only.
                        continue;
                    }
                    self.last = message.line.seq;
                    return Some(Ok(message.line.as_ref().clone()));
                }
                Err(RecvError::Lagged(_)) => FeedError::Lagged { last },
                Err(RecvError::Closed) => FeedError::Closed { last },
            };
            self.live = None;
            return Some(Err(failure));
        }
    }
}

impl fmt::Debug for Feed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Feed")
            .field("last", &self.last)
            .finish_non_exhaustive()
    }
}
