//! A cursor over one run.

use std::sync::Arc;

use rye_core::id::{RunId, Seq};

use super::{Fetched, Listener, Read, Since, State, Until};
use crate::error::Error;
use crate::reader::event_store::EventStore;
use crate::reader::run_pages::Source;
use crate::stream::run_stream::Message;

pub(crate) struct One {
    run: RunId,
    /// `None` while the cursor listens, because a listener must not keep the stream alive.
    pub(crate) source: Option<Source>,
    pub(crate) next: Seq,
    /// The last event to read; `None` to read up to the end of the run.
    last: Option<Seq>,
}

impl One {
    pub(crate) async fn new(
        store: &Arc<EventStore>,
        run: RunId,
        since: Since,
        until: Until,
    ) -> Result<Self, Error> {
        let source = Source::find(store, &run).await?;
        let head = source.head().seq;
        let next = match since {
            Since::Begin | Since::Spot(_) => Seq(1),
            Since::Seq(seq) => seq.next(),
            Since::Now => head.next(),
        };
        Ok(Self {
            run,
            source: Some(source),
            next,
            last: (until == Until::Now).then_some(head),
        })
    }

    /// Determines the source of the next events.
    pub(crate) fn turn(&mut self, store: &Arc<EventStore>) -> State {
        let (store, next) = (Arc::clone(store), self.next);
        let Some(source) = self.source.take() else {
            let run = self.run.clone();
            return State::Reading(Box::pin(async move {
                Source::find(&store, &run).await.map(Fetched::Source)
            }));
        };
        let head = source.head().seq;
        let last = self.last.map_or(head, |last| last.min(head));
        if next <= last {
            self.source = Some(source.clone());
            return State::Reading(Box::pin(async move {
                let (events, charge) = source.page(&store, next, last).await?;
                Ok(Fetched::Events(source.run().clone(), events, charge))
            }));
        }
        match source {
            Source::Live(stream) if self.last.is_none() => {
                let mut published = stream.published();
                if published.head.seq >= next {
                    drop(published);
                    self.source = Some(Source::Live(stream));
                    return State::Idle;
                }
                // Under the lock: the listener gets all events after this.
                if stream.rest.borrow().ended {
                    return State::Over;
                }
                State::Listening(Listener::One(stream.listen(&mut published)))
            }
            Source::Live(_) | Source::Ended(_) => State::Over,
        }
    }

    /// Returns the event of `message`, unless the reader began after it.
    pub(crate) fn receive(&mut self, message: &Message) -> Option<Read> {
        let line = message.line();
        if line.seq < self.next {
            return None;
        }
        self.next = line.seq.next();
        Some(Read::Event {
            run: self.run.clone(),
            spot: None,
            line: line.clone(),
            signed: None,
        })
    }
}
