//! The events of a run as they come: what has been, then what comes, without gap or duplicate.
//!
//! **Owns** a page of what has been, or a place among the listeners of the run. A reader who falls behind the listeners reads what it
//! missed as what has been: it is never cut, and takes no more memory than one who does not.

use std::collections::VecDeque;
use std::fmt;

use futures_util::future::BoxFuture;
use rye_core::id::Seq;
use rye_core::memory::Charge;
use tokio::sync::broadcast::error::RecvError;

use super::replay::{Bookmark, Read, Replay};
use super::run_stream::Listener;
use super::{Error, Line};

/// A page on its way, and who reads it.
type Reading = BoxFuture<'static, Result<(Replay, Option<Read>), Error>>;

/// A subscription to one run.
pub struct Feed {
    page: VecDeque<Line>,
    /// What the page takes.
    charge: Option<Charge>,
    from: From,
    /// The last event given out, or the one before the first.
    last: Seq,
}

/// Where the next events come from.
enum From {
    /// What has been.
    Past(Replay),
    /// A page of it that is being read.
    Reading(Reading),
    /// What comes.
    Present(Bookmark, Listener),
    /// There are no more.
    Over,
}

impl Feed {
    /// The events after `last` that `replay` reads, and those that come then.
    pub(super) const fn new(replay: Replay, last: Seq) -> Self {
        Self {
            page: VecDeque::new(),
            charge: None,
            from: From::Past(replay),
            last,
        }
    }

    /// Reads the first events that have been, so that the caller gets the error if they cannot be read.
    pub(super) async fn begin(&mut self) -> Result<(), Error> {
        self.turn();
        self.read().await
    }

    /// The next event; `None` after the one that ended the run. After an error the feed is over. Cancel safe.
    pub async fn next(&mut self) -> Option<Result<Line, Error>> {
        loop {
            if let Some(line) = self.page.pop_front() {
                self.last = line.seq;
                return Some(Ok(line));
            }
            self.charge = None;
            self.turn();
            match &mut self.from {
                From::Over => return None,
                From::Past(_) => {}
                From::Reading(_) => {
                    if let Err(error) = self.read().await {
                        return Some(Err(error));
                    }
                }
                From::Present(_, listener) => match listener.next().await {
                    Ok(message) => {
                        if message.last {
                            self.from = From::Over;
                        }
                        // The reader may have asked for later events only.
                        let line = message.line();
                        if line.seq > self.last {
                            self.last = line.seq;
                            return Some(Ok(line.clone()));
                        }
                    }
                    // It has fallen behind, or there was no room for what it should hear; or the journal is gone, which it finds then.
                    Err(RecvError::Lagged(_) | RecvError::Closed) => self.look_back(),
                },
            }
        }
    }

    /// Who has missed something reads it as what has been.
    fn look_back(&mut self) {
        self.from = match std::mem::replace(&mut self.from, From::Over) {
            From::Present(bookmark, _) => From::Reading(Box::pin(async {
                let replay = bookmark.open().await?;
                Ok((replay, None))
            })),
            other @ (From::Past(_) | From::Reading(_) | From::Over) => other,
        };
    }

    /// Begins to read the next page of what has been; where there is none, listens.
    fn turn(&mut self) {
        self.from = match std::mem::replace(&mut self.from, From::Over) {
            From::Past(replay) => self.after(replay),
            other @ (From::Reading(_) | From::Present(..) | From::Over) => other,
        };
    }

    fn after(&self, replay: Replay) -> From {
        let next = self.last.next();
        let last = replay.last();
        if next <= last {
            return From::Reading(Box::pin(async move {
                let (replay, page) = replay.page(next, last).await;
                Ok((replay, Some(page?)))
            }));
        }
        let Some(stream) = replay.stream() else {
            return From::Over;
        };
        let mut published = stream.published();
        if published.head.seq >= next {
            drop(published);
            return From::Past(replay);
        }
        // Under the lock: who listens hears all that comes behind this.
        if stream.rest.borrow().ended {
            return From::Over;
        }
        let listener = stream.listen(&mut published);
        drop(published);
        From::Present(replay.bookmark(), listener)
    }

    /// Waits for the page that is being read. Cancel safe: the reading continues.
    async fn read(&mut self) -> Result<(), Error> {
        let From::Reading(reading) = &mut self.from else {
            return Ok(());
        };
        match reading.await {
            Ok((replay, page)) => {
                self.from = From::Past(replay);
                if let Some((page, charge)) = page {
                    self.page = page.into();
                    self.charge = Some(charge);
                }
                Ok(())
            }
            Err(error) => {
                self.from = From::Over;
                Err(error)
            }
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
