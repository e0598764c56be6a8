//! State of a run beyond its record: published events and their positions, and listeners.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, Weak};

use rye_core::id::{Lsn, RunId, Seq};
use rye_core::memory::{Charge, Memory};
use rye_core::model::Spec;
use rye_core::transcript::Head;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::{broadcast, watch};

use super::deltas::DeltaListeners;
use crate::base::Span;
use crate::record::Line;
use crate::watermark::lock;

/// Lines that a subscriber may be late before it has to read them from the log: some seconds of a fast run.
const FEED_LINES: usize = 1024;

#[derive(Debug)]
pub(crate) struct RunStream {
    pub(crate) id: RunId,
    pub(crate) spec: Arc<Spec>,
    published: Mutex<Published>,
    /// The last published suspension or end.
    pub(crate) rest: watch::Sender<Rest>,
    /// Its last event as committed, which may not be durable yet.
    pub(crate) committed: watch::Sender<Seq>,
    /// Listeners to the deltas of its model.
    pub(crate) delta_listeners: Arc<DeltaListeners>,
}

/// Event that suspended or ended a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Rest {
    /// The event; 0 if there was none since the daemon started.
    pub(crate) at: Seq,
    /// True if the run ended.
    pub(crate) ended: bool,
}

#[derive(Debug)]
pub(crate) struct Published {
    /// End of the transcript after the last published event.
    pub(crate) head: Head,
    /// The last event in history: the log may have dropped it.
    pub(crate) sealed: Seq,
    /// The sections of history with its events, in order.
    pub(crate) spans: Vec<Span>,
    /// Positions of the events after `sealed`, one by one.
    pub(crate) lsns: VecDeque<Lsn>,
    /// Exists while there are listeners, because it takes as much memory as the rest of a run.
    pub(crate) feed: Option<broadcast::Sender<Message>>,
}

/// A listener to the published events of a run.
#[derive(Debug)]
pub(crate) struct Listener {
    /// Weak, because a listener learns of the end of the journal by the end of the feed.
    stream: Weak<RunStream>,
    /// `None` while it is dropped.
    messages: Option<broadcast::Receiver<Message>>,
}

/// A message to the subscribers of a run.
#[derive(Debug, Clone)]
pub(crate) struct Message {
    line: Arc<(Line, Charge)>,
    /// True if the run ends with it.
    pub(crate) last: bool,
}

impl Message {
    /// Returns `None` if the memory limit leaves no room for it.
    fn new(line: Line, last: bool, memory: &Arc<Memory>) -> Option<Self> {
        let mut charge = memory.open();
        charge.grow(line.payload.len()).then(|| Self {
            line: Arc::new((line, charge)),
            last,
        })
    }

    pub(crate) fn line(&self) -> &Line {
        &self.line.0
    }
}

impl RunStream {
    /// Returns the stream of a run that is published up to `head`, with all events in the sections `spans`.
    pub(crate) fn new(id: RunId, spec: Arc<Spec>, head: Head, spans: Vec<Span>) -> Self {
        Self {
            id,
            spec,
            published: Mutex::new(Published {
                head,
                sealed: head.seq,
                spans,
                lsns: VecDeque::new(),
                feed: None,
            }),
            rest: watch::Sender::default(),
            committed: watch::Sender::new(head.seq),
            delta_listeners: Arc::default(),
        }
    }

    pub(crate) fn published(&self) -> MutexGuard<'_, Published> {
        lock(&self.published)
    }

    pub(crate) fn head(&self) -> Head {
        self.published().head
    }

    /// Publishes the event at `lsn`, after which the transcript ends with `head`. `rest` is given if the event
    /// suspended or ended the run. `line` is called only for listeners, and its memory is counted until all of them
    /// have received it. If the memory limit leaves no room for it, the feed is closed, and the listeners read the
    /// event from the log.
    pub(crate) fn publish(
        &self,
        (lsn, head): (Lsn, Head),
        rest: Option<Rest>,
        memory: &Arc<Memory>,
        line: impl FnOnce() -> Line,
    ) {
        let last = rest.is_some_and(|rest| rest.ended);
        let mut published = self.published();
        published.head = head;
        published.lsns.push_back(lsn);
        if let Some(feed) = &published.feed {
            let message = Message::new(line(), last, memory);
            let is_sent = message.is_some_and(|message| feed.send(message).is_ok());
            if !is_sent || last {
                published.feed = None;
            }
        }
        // Under the lock: a subscriber sees either the end or a feed that will bring it.
        if let Some(rest) = rest {
            self.rest.send_replace(rest);
        }
    }

    /// Subscribes to everything after the head in `published`, which is of this stream.
    pub(crate) fn listen(self: &Arc<Self>, published: &mut Published) -> Listener {
        let feed = &mut published.feed;
        let feed = feed.get_or_insert_with(|| broadcast::Sender::new(FEED_LINES));
        Listener {
            stream: Arc::downgrade(self),
            messages: Some(feed.subscribe()),
        }
    }

    /// Records that history has the events of the run up to position `span.lsn`.
    pub(crate) fn seal(&self, span: Span) {
        let mut published = self.published();
        let is_known = |known: &Span| known.lsn >= span.lsn;
        if !published.spans.last().is_some_and(is_known) {
            published.spans.push(span);
        }
        let sealed = published.lsns.partition_point(|lsn| *lsn <= span.lsn);
        published.lsns.drain(..sealed);
        published.sealed.0 += u64::try_from(sealed).expect("a count in memory fits 64 bits");
    }
}

impl Published {
    /// Returns the positions of the events from `first` to `last` that are not sealed.
    pub(crate) fn places(&self, first: Seq, last: Seq) -> Vec<(Seq, Lsn)> {
        let begin = self.sealed.0 + 1;
        let place = |seq: u64| {
            let place = usize::try_from(seq.saturating_sub(begin)).unwrap_or(usize::MAX);
            place.min(self.lsns.len())
        };
        let (from, to) = (place(first.0), place(last.0.saturating_add(1)));
        let lsns = self.lsns.range(from..to.max(from));
        lsns.zip(first.0.max(begin)..)
            .map(|(lsn, seq)| (Seq(seq), *lsn))
            .collect()
    }
}

impl Listener {
    /// Returns the next message. Cancel safe.
    pub(crate) async fn next(&mut self) -> Result<Message, RecvError> {
        match &mut self.messages {
            Some(messages) => messages.recv().await,
            None => Err(RecvError::Closed),
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        let Some(stream) = self.stream.upgrade() else {
            return;
        };
        let mut published = stream.published();
        // Under the lock: of two that are dropped at the same time, the second sees that it is the last.
        drop(self.messages.take());
        published.feed.take_if(|feed| feed.receiver_count() == 0);
    }
}
