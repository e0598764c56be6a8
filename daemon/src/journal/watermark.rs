//! How far the journal has got, and who waits for it: a position that only grows, or a failure that is final.

use std::fmt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};

use rye_core::id::Lsn;
use tokio::sync::watch;

/// Why the journal gave up. Nothing is answered after it; the daemon ends its processes and exits.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Failure {
    /// The log could not be written or synced: what is on disk is unknown from here on.
    #[error("failed to write the log")]
    Write(#[source] Arc<std::io::Error>),
    /// A thread of the journal panicked.
    #[error("the journal's {0} panicked")]
    Panicked(&'static str),
    /// The journal was dropped while somebody waited.
    #[error("the journal was closed")]
    Closed,
}

#[derive(Debug, Clone, Default)]
struct Reached {
    lsn: Lsn,
    failure: Option<Failure>,
}

/// A position that tasks and threads wait for.
pub(super) struct Watermark {
    reached: watch::Sender<Reached>,
    /// The failure once more: who waits for that alone is not woken by each step forward.
    failed: watch::Sender<Option<Failure>>,
    /// Held while threads look and begin to wait, so that no wake-up is lost.
    gate: Mutex<()>,
    changed: Condvar,
}

impl Watermark {
    pub(super) fn new(lsn: Lsn) -> Self {
        Self {
            reached: watch::Sender::new(Reached { lsn, failure: None }),
            failed: watch::Sender::new(None),
            gate: Mutex::new(()),
            changed: Condvar::new(),
        }
    }

    pub(super) fn get(&self) -> Lsn {
        self.reached.borrow().lsn
    }

    pub(super) fn failure(&self) -> Option<Failure> {
        self.reached.borrow().failure.clone()
    }

    pub(super) fn advance(&self, lsn: Lsn) {
        self.reached
            .send_modify(|reached| reached.lsn = reached.lsn.max(lsn));
        self.wake_threads();
    }

    /// The first failure stays.
    pub(super) fn fail(&self, failure: Failure) {
        self.reached.send_modify(|reached| {
            let first = reached.failure.get_or_insert(failure);
            self.failed.send_replace(Some(first.clone()));
        });
        self.wake_threads();
    }

    fn wake_threads(&self) {
        // Whoever looked before has begun to wait when this has passed; woken behind the gate, it need not wait for that too.
        drop(lock(&self.gate));
        self.changed.notify_all();
    }

    pub(super) async fn reach(&self, lsn: Lsn) -> Result<(), Failure> {
        let mut receiver = self.reached.subscribe();
        let reached = receiver
            .wait_for(|reached| reached.lsn >= lsn || reached.failure.is_some())
            .await;
        match reached {
            Ok(reached) if reached.lsn >= lsn => Ok(()),
            Ok(reached) => Err(reached.failure.clone().unwrap_or(Failure::Closed)),
            Err(_) => Err(Failure::Closed),
        }
    }

    pub(super) async fn failed(&self) -> Failure {
        let mut receiver = self.failed.subscribe();
        match receiver.wait_for(Option::is_some).await {
            Ok(failure) => failure.clone().unwrap_or(Failure::Closed),
            Err(_) => Failure::Closed,
        }
    }

    /// For threads of our own. Blocks.
    pub(super) fn reach_blocking(&self, lsn: Lsn) -> Result<(), Failure> {
        let mut gate = lock(&self.gate);
        loop {
            {
                let reached = self.reached.borrow();
                if reached.lsn >= lsn {
                    return Ok(());
                }
                if let Some(failure) = &reached.failure {
                    return Err(failure.clone());
                }
            }
            gate = self.changed.wait(gate).expect(POISON);
        }
    }
}

impl fmt::Debug for Watermark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Watermark").field(&self.get()).finish()
    }
}

pub(super) const POISON: &str = "a lock is poisoned only by a panic, which ends the journal";

/// Locks; a poisoned lock means a thread of the journal panicked inside, so what it guards is not to be trusted.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect(POISON)
}
