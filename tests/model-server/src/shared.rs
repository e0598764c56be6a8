//! State that the server shares with the test.

use std::collections::BTreeSet;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Instant;

use tokio::sync::watch;

use super::history::History;
use super::request::{ParsedRequest, Request};
use super::script::{Reply, Script};
use crate::PATIENCE;

pub(super) struct Shared {
    script: Script,
    record: Mutex<RequestLog>,
    /// Signals a change of `seen`.
    changed: Condvar,
    /// Names that the test has released.
    releases: watch::Sender<BTreeSet<String>>,
}

/// Record of all requests so far.
#[derive(Default)]
pub(super) struct RequestLog {
    /// Valid requests in the order of their arrival.
    pub(super) requests: Vec<Request>,
    pub(super) breaches: Vec<String>,
    /// Names at which an answer holds or held.
    pub(super) held: BTreeSet<String>,
    /// Number of answers that the client abandoned.
    pub(super) abandoned: usize,
    /// Number of connections that have ended.
    pub(super) ended: usize,
    /// Number of requests that each rule answered.
    hits: Vec<u32>,
    pub(super) history: History,
}

impl Shared {
    pub(super) fn new(script: Script) -> Self {
        let hits = vec![0; script.rules.len()];
        Self {
            script,
            record: Mutex::new(RequestLog {
                hits,
                ..RequestLog::default()
            }),
            changed: Condvar::new(),
            releases: watch::Sender::default(),
        }
    }

    /// Locks the record.
    pub(super) fn record(&self) -> MutexGuard<'_, RequestLog> {
        self.record.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a request. Returns its reply with the line of the rule, or the breach.
    pub(super) fn take(
        &self,
        asked: &ParsedRequest,
        request: Request,
    ) -> Result<(Reply, usize), String> {
        let mut seen = self.record();
        seen.history.check(asked)?;
        let rules = self.script.rules.iter().enumerate();
        let mut open = rules.filter(|(at, rule)| {
            let is_used_up = rule.times.is_some_and(|times| seen.hits[*at] >= times);
            !is_used_up && rule.matches(asked)
        });
        let found = open.next();
        let (at, rule) = found.ok_or("no rule of the script matches it")?;
        seen.hits[at] = seen.hits[at].saturating_add(1);
        seen.history.add(asked);
        seen.requests.push(request);
        self.changed.notify_all();
        Ok((rule.reply.clone(), rule.line))
    }

    /// Counts a connection that has ended.
    pub(super) fn ended(&self) {
        self.record().ended += 1;
        self.changed.notify_all();
    }

    pub(super) fn breach(&self, text: String) {
        self.record().breaches.push(text);
        self.changed.notify_all();
    }

    /// Releases a name, which must be in the script.
    pub(super) fn release(&self, name: &str) {
        let names = &self.script.holds;
        assert!(
            names.contains(name),
            "nothing in the script waits for `{name}`, but for {names:?}"
        );
        self.releases.send_modify(|released| {
            released.insert(name.to_owned());
        });
    }

    pub(super) async fn released(&self, name: &str) {
        self.record().held.insert(name.to_owned());
        self.changed.notify_all();
        let mut releases = self.releases.subscribe();
        let waited = releases.wait_for(|released| released.contains(name)).await;
        drop(waited.expect("the sender lives as long as this"));
    }

    /// Waits until `look` accepts the record.
    ///
    /// # Panics
    /// After [`PATIENCE`], and if a request breaks a rule meanwhile.
    pub(super) fn wait(&self, what: &str, mut look: impl FnMut(&RequestLog) -> bool) {
        let deadline = Instant::now() + PATIENCE;
        let mut seen = self.record();
        while !look(&seen) {
            let breaches = seen.breaches.join("\n");
            let left = deadline.saturating_duration_since(Instant::now());
            if !breaches.is_empty() || left.is_zero() {
                // The panic comes after the lock is released; otherwise the server could not end.
                drop(seen);
                assert!(breaches.is_empty(), "while waiting for {what}: {breaches}");
                assert!(!left.is_zero(), "waited {PATIENCE:?} for {what}");
                return;
            }
            let waited = self.changed.wait_timeout(seen, left);
            seen = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

/// Detects an abandoned answer: the client drops it before it is done.
pub(super) struct Watch {
    shared: Arc<Shared>,
    sent: Arc<Mutex<Vec<Instant>>>,
    ended: Arc<OnceLock<Instant>>,
    is_done: bool,
}

impl Watch {
    pub(super) fn new(shared: &Arc<Shared>) -> Self {
        Self {
            shared: Arc::clone(shared),
            sent: Arc::default(),
            ended: Arc::default(),
            is_done: false,
        }
    }

    pub(super) fn shared(&self) -> &Shared {
        &self.shared
    }

    /// Returns the times at which events of the answer were sent.
    pub(super) fn sent(&self) -> Arc<Mutex<Vec<Instant>>> {
        Arc::clone(&self.sent)
    }

    /// Records that an event of the answer is sent.
    pub(super) fn sends(&self) {
        let mut sent = self.sent.lock().unwrap_or_else(PoisonError::into_inner);
        sent.push(Instant::now());
    }

    /// Returns the time at which the answer ended, once it has.
    pub(super) fn ended(&self) -> Arc<OnceLock<Instant>> {
        Arc::clone(&self.ended)
    }

    /// Records that the answer ended by itself.
    pub(super) fn done(&mut self) {
        self.ended.get_or_init(Instant::now);
        self.is_done = true;
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        if !self.is_done {
            self.shared.record().abandoned += 1;
            self.shared.changed.notify_all();
        }
    }
}
