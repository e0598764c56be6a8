//! Deltas: the output of the model of a thread, streamed to listeners while the model produces it.
//!
//! **Owns** the queue of each listener. A delta is not in the log and has no number. It is the only data that leaves
//! the daemon before it is durable, and it may be reset; the `cognition_out` event at the end is authoritative.
//!
//! **Order.** A delta names the event after which it may be shown: a listener gets it after that event, and before each
//! later event. **Never** blocks a speaker: if the queue of a listener is full, it is replaced by the text so far.
//! Without listeners nothing is produced and nothing is stored.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use rye_core::id::Seq;
use tokio::sync::Notify;

use crate::watermark::lock;

/// Limit in bytes on the queue of one listener.
const MOST_WAITING: usize = 32 << 10;
/// Overhead of a delta in bytes.
const FRAME: usize = 64;

/// A piece of the output of a model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delta {
    /// The event after which it may be shown.
    pub after: Seq,
    pub turn: u32,
    /// Number of the attempt at the turn.
    pub attempt: u32,
    pub kind: DeltaKind,
    /// Its position in the message.
    pub position: u32,
    /// The name of a tool, the id of a complete call, or a piece of a text.
    pub text: String,
    /// Of a reset: number of bytes at the start of the text so far that it omits.
    pub left_out: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeltaKind {
    /// A piece of a text.
    Text,
    /// A piece of the model's reasoning.
    Thinking,
    /// A call begins: the name of its tool.
    CallBegun,
    /// A piece of the arguments of a call.
    CallArgs,
    /// A call is complete: its id.
    CallReady,
    /// Replaces all earlier deltas of this turn: its texts so far.
    Reset,
}

impl Delta {
    fn weight(&self) -> usize {
        FRAME + self.text.len()
    }

    /// Appends `next` if it continues the same text. Returns true if it does.
    fn join(&mut self, next: &Self) -> bool {
        let place = |delta: &Self| {
            let call = (delta.after, delta.turn, delta.attempt);
            (call, delta.kind, delta.position)
        };
        let is_text = matches!(
            next.kind,
            DeltaKind::Text | DeltaKind::Thinking | DeltaKind::CallArgs
        );
        let joins = is_text && place(self) == place(next);
        if joins {
            self.text.push_str(&next.text);
        }
        joins
    }
}

/// The listeners to the deltas of one run.
#[derive(Debug, Default)]
pub(crate) struct DeltaListeners {
    listeners: Mutex<Vec<Arc<DeltaQueue>>>,
    /// Notified when a listener joins.
    joined: Notify,
}

/// The queue of one listener.
#[derive(Debug, Default)]
pub(crate) struct DeltaQueue {
    waiting: Mutex<Waiting>,
    /// Notified when a delta is added.
    pub(crate) added: Notify,
}

#[derive(Debug, Default)]
struct Waiting {
    deltas: VecDeque<Delta>,
    /// Bytes that the deltas take together.
    bytes: usize,
    /// True if a delta was produced that is not in the queue.
    has_missed: bool,
}

impl Waiting {
    fn push(&mut self, delta: &Delta, so_far: impl FnOnce() -> Delta) {
        let overflows = self.bytes + delta.weight() > MOST_WAITING;
        if delta.kind == DeltaKind::Reset {
            self.replace(delta.clone());
        } else if self.has_missed || overflows {
            self.replace(so_far());
        } else if self.deltas.back_mut().is_some_and(|last| last.join(delta)) {
            self.bytes += delta.text.len();
        } else {
            self.bytes += delta.weight();
            self.deltas.push_back(delta.clone());
        }
    }

    fn replace(&mut self, delta: Delta) {
        self.deltas.clear();
        self.bytes = delta.weight();
        self.deltas.push_back(delta);
        self.has_missed = false;
    }

    /// Returns the next delta that may be shown to a listener that was shown the event `last`.
    fn take(&mut self, last: Seq) -> Option<Delta> {
        let delta = self.deltas.pop_front_if(|delta| delta.after <= last)?;
        self.bytes -= delta.weight();
        Some(delta)
    }
}

impl DeltaQueue {
    /// Returns the next delta that may be shown to a listener that was shown the event `last`.
    pub(crate) fn take(&self, last: Seq) -> Option<Delta> {
        lock(&self.waiting).take(last)
    }
}

impl DeltaListeners {
    pub(crate) fn join(&self) -> Arc<DeltaQueue> {
        let ear = Arc::new(DeltaQueue::default());
        lock(&ear.waiting).has_missed = true;
        lock(&self.listeners).push(Arc::clone(&ear));
        self.joined.notify_one();
        ear
    }

    pub(crate) fn remove(&self, gone: &Arc<DeltaQueue>) {
        lock(&self.listeners).retain(|ear| !Arc::ptr_eq(ear, gone));
    }
}

/// Sends the output of a model in one call to the listeners of its run.
#[derive(Debug)]
pub struct DeltaSender(Arc<DeltaListeners>);

impl DeltaSender {
    /// Starts a call. It has no output yet, so no listener has missed any.
    pub(crate) fn begin(ears: Arc<DeltaListeners>) -> Self {
        for ear in lock(&ears.listeners).iter() {
            lock(&ear.waiting).has_missed = false;
        }
        Self(ears)
    }

    /// True if there are listeners.
    pub fn has_listeners(&self) -> bool {
        !lock(&self.0.listeners).is_empty()
    }

    /// Sends `delta`. A listener that has missed a delta or whose queue is full gets `so_far` instead, which includes
    /// it.
    pub fn send(&self, delta: &Delta, so_far: impl Fn() -> Delta) {
        for ear in lock(&self.0.listeners).iter() {
            lock(&ear.waiting).push(delta, &so_far);
            ear.added.notify_one();
        }
    }

    /// Sends the output so far to the listeners that joined during the call.
    pub fn catch_up(&self, so_far: impl Fn() -> Delta) {
        for ear in lock(&self.0.listeners).iter() {
            let mut waiting = lock(&ear.waiting);
            if waiting.has_missed {
                waiting.replace(so_far());
                ear.added.notify_one();
            }
        }
    }

    /// Resolves when a listener joins. Cancel safe.
    pub async fn joined(&self) {
        self.0.joined.notified().await;
    }
}
