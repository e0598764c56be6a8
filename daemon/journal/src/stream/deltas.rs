//! What the model of a thread says while it says it, for those who listen.
//!
//! **Owns** what waits for each listener. A delta is in no log and has no number: it is the one thing that leaves the daemon before it
//! is durable, it may be taken back, and the `cognition_out` it leads to is what counts.
//!
//! **Order.** A delta names the event behind which it may be shown: a listener is given it after that event, and before each event that
//! comes later. **Never** keeps a speaker waiting: for a listener who falls behind, what waits is replaced by the text so far. Where
//! nobody listens, nothing is made and nothing is kept.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use rye_core::id::Seq;
use tokio::sync::Notify;

use crate::watermark::lock;

/// Most bytes that wait for one listener.
const MOST_WAITING: usize = 32 << 10;
/// What a delta takes up beside its text.
const FRAME: usize = 64;

/// More of what a model says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delta {
    /// The event behind which it may be shown.
    pub after: Seq,
    /// The turn.
    pub turn: u32,
    /// Which try of it.
    pub attempt: u32,
    /// What it is.
    pub kind: DeltaKind,
    /// Its place in the message.
    pub position: u32,
    /// The name of a tool, the id of a complete call, or more of a text.
    pub text: String,
    /// For a reset: how many bytes of the text so far are not in it, which came before it.
    pub left_out: u64,
}

/// What a delta is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeltaKind {
    /// More of a text.
    Text,
    /// More of what the model thinks.
    Thinking,
    /// A call begins: the name of its tool.
    CallBegun,
    /// More of its arguments.
    CallArgs,
    /// A call is complete: its id.
    CallReady,
    /// What came before of this turn does not count: its texts so far are this.
    Reset,
}

impl Delta {
    fn weight(&self) -> usize {
        FRAME + self.text.len()
    }

    /// Takes `next` in, if it continues the same text.
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

/// Those who listen to one run.
#[derive(Debug, Default)]
pub(crate) struct Ears {
    ears: Mutex<Vec<Arc<Ear>>>,
    /// Told when somebody begins to listen.
    joined: Notify,
}

/// What waits for one listener.
#[derive(Debug, Default)]
pub(crate) struct Ear {
    waiting: Mutex<Waiting>,
    /// Told when something comes.
    pub(crate) comes: Notify,
}

#[derive(Debug, Default)]
struct Waiting {
    deltas: VecDeque<Delta>,
    /// What they take together.
    bytes: usize,
    /// Whether something was said that is not among them.
    is_behind: bool,
}

impl Waiting {
    fn push(&mut self, delta: &Delta, so_far: impl FnOnce() -> Delta) {
        let overflows = self.bytes + delta.weight() > MOST_WAITING;
        if delta.kind == DeltaKind::Reset {
            self.replace(delta.clone());
        } else if self.is_behind || overflows {
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
        self.is_behind = false;
    }

    /// The next that may be shown to somebody who was shown the event `last`.
    fn take(&mut self, last: Seq) -> Option<Delta> {
        let delta = self.deltas.pop_front_if(|delta| delta.after <= last)?;
        self.bytes -= delta.weight();
        Some(delta)
    }
}

impl Ear {
    /// The next delta that may be shown to a listener that was shown the event `last`.
    pub(crate) fn take(&self, last: Seq) -> Option<Delta> {
        lock(&self.waiting).take(last)
    }
}

impl Ears {
    pub(crate) fn join(&self) -> Arc<Ear> {
        let ear = Arc::new(Ear::default());
        lock(&ear.waiting).is_behind = true;
        lock(&self.ears).push(Arc::clone(&ear));
        self.joined.notify_one();
        ear
    }

    pub(crate) fn leave(&self, gone: &Arc<Ear>) {
        lock(&self.ears).retain(|ear| !Arc::ptr_eq(ear, gone));
    }
}

/// Who tells the listeners of a run what the model says in one call.
#[derive(Debug)]
pub struct Speaker(Arc<Ears>);

impl Speaker {
    /// Nothing was said yet in the call that begins: a listener has missed nothing.
    pub(crate) fn begin(ears: Arc<Ears>) -> Self {
        for ear in lock(&ears.ears).iter() {
            lock(&ear.waiting).is_behind = false;
        }
        Self(ears)
    }

    /// Whether anybody listens.
    pub fn is_heard(&self) -> bool {
        !lock(&self.0.ears).is_empty()
    }

    /// Tells `delta`. Who has missed something, or has too much to hear, gets `so_far` in its place, which holds it.
    pub fn tell(&self, delta: &Delta, so_far: impl Fn() -> Delta) {
        for ear in lock(&self.0.ears).iter() {
            lock(&ear.waiting).push(delta, &so_far);
            ear.comes.notify_one();
        }
    }

    /// Tells those who began to listen in the middle what was said so far.
    pub fn catch_up(&self, so_far: impl Fn() -> Delta) {
        for ear in lock(&self.0.ears).iter() {
            let mut waiting = lock(&ear.waiting);
            if waiting.is_behind {
                waiting.replace(so_far());
                ear.comes.notify_one();
            }
        }
    }

    /// Resolves when somebody begins to listen. Cancel safe.
    pub async fn joined(&self) {
        self.0.joined.notified().await;
    }
}
