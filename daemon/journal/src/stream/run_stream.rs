//! What the journal knows about a run beyond its record: how far it is published, where its events lie, who listens.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, Weak};

use rye_core::id::{Lsn, RunId, Seq};
use rye_core::memory::{Charge, Memory};
use rye_core::model::Spec;
use rye_core::transcript::Head;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::{broadcast, watch};

use super::deltas::Ears;
use crate::base::Span;
use crate::record::Line;
use crate::watermark::lock;

/// Lines a subscriber may be behind before it is cut: some seconds of a fast run.
const FEED_LINES: usize = 1024;

#[derive(Debug)]
pub(crate) struct RunStream {
    pub(crate) id: RunId,
    pub(crate) spec: Arc<Spec>,
    published: Mutex<Published>,
    /// Where it last came to rest, as published.
    pub(crate) rest: watch::Sender<Rest>,
    /// Its last event as committed, which may not be durable yet.
    pub(crate) committed: watch::Sender<Seq>,
    /// Who listens to what is said in it.
    pub(crate) ears: Arc<Ears>,
}

/// Where a run was suspended or ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Rest {
    /// The event by which it did; 0 if it has not in this life of the daemon.
    pub(crate) at: Seq,
    /// Whether it ended.
    pub(crate) ended: bool,
}

#[derive(Debug)]
pub(crate) struct Published {
    /// The last event that is durable and shown.
    pub(crate) head: Head,
    /// The last event in history: the log may have dropped it.
    pub(crate) sealed: Seq,
    /// The sections of history with its events, in order.
    pub(crate) spans: Vec<Span>,
    /// Positions of the events after `sealed`, one by one.
    pub(crate) lsns: VecDeque<Lsn>,
    /// There with the first listener, gone with the last: it takes as much memory as all else about a run.
    pub(crate) feed: Option<broadcast::Sender<Message>>,
}

/// Who listens to what is published of a run.
#[derive(Debug)]
pub(crate) struct Listener {
    /// Not kept alive: a listener hears of the end of the journal by the end of the feed.
    stream: Weak<RunStream>,
    /// `None` once it goes.
    messages: Option<broadcast::Receiver<Message>>,
}

/// What subscribers get.
#[derive(Debug, Clone)]
pub(crate) struct Message {
    line: Arc<(Line, Charge)>,
    /// Whether the run ends with it.
    pub(crate) last: bool,
}

impl Message {
    /// `None` if there is no room for it among what all runs hold.
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
    /// A run that was published up to `head` before, all of which is in the sections `spans`.
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
            ears: Arc::default(),
        }
    }

    pub(crate) fn published(&self) -> MutexGuard<'_, Published> {
        lock(&self.published)
    }

    pub(crate) fn head(&self) -> Head {
        self.published().head
    }

    /// Shows the event at `lsn`, after which the transcript ends with `head`; `rest` if it suspended or ended the run.
    /// `line` is made only for listeners, and counted as long as one of them may still hear it; where there is no room for it they read
    /// it as what has been.
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
        // Under the lock: who subscribes sees either the end or a feed that will bring it.
        if let Some(rest) = rest {
            self.rest.send_replace(rest);
        }
    }

    /// Listens to everything after what `published`, its own, shows.
    pub(crate) fn listen(self: &Arc<Self>, published: &mut Published) -> Listener {
        let feed = &mut published.feed;
        let feed = feed.get_or_insert_with(|| broadcast::Sender::new(FEED_LINES));
        Listener {
            stream: Arc::downgrade(self),
            messages: Some(feed.subscribe()),
        }
    }

    /// Enters that history has the events of the run up to position `span.lsn`.
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
    /// Positions of the events from `first` to `last` that are not sealed.
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
    /// The next message. Cancel safe.
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
        // Under the lock: of two that go at once, the second sees that it is the last.
        drop(self.messages.take());
        published.feed.take_if(|feed| feed.receiver_count() == 0);
    }
}
