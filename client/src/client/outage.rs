//! Outage of the daemon while a call waits: notification, restart, and time limit.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::PATIENCE;
use crate::error::Error;

/// Length of an outage after which the user is notified. A restart takes less.
const NOTIFY_AFTER: Duration = Duration::from_secs(1);

/// Time that a parent or a service manager has to restart a daemon that died.
const REVIVED_AFTER: Duration = Duration::from_secs(3);

/// Callback that is called once per outage, when a call keeps waiting for the daemon.
#[derive(Clone, Default)]
pub struct OutageNotifier(Option<Arc<dyn Fn() + Send + Sync>>);

impl OutageNotifier {
    pub fn new(tell: impl Fn() + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(tell)))
    }

    fn notify(&self) {
        if let Some(tell) = &self.0 {
            tell();
        }
    }
}

/// One attempt to start the daemon.
pub type Revival = Pin<Box<dyn Future<Output = Result<(), Error>> + Send>>;

/// Callback that starts a daemon which died while a call waits for it, where that is allowed.
#[derive(Clone, Default)]
pub struct Reviver(Option<Arc<dyn Fn() -> Revival + Send + Sync>>);

impl Reviver {
    /// The callback is called until it succeeds once in an outage.
    pub fn new(revive: impl Fn() -> Revival + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(revive)))
    }
}

impl fmt::Debug for Reviver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Reviver").field(&self.0.is_some()).finish()
    }
}

impl fmt::Debug for OutageNotifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Teller").field(&self.0.is_some()).finish()
    }
}

/// Length of the current outage, and pause before the next try.
#[derive(Debug)]
pub(crate) struct Outage {
    since: Option<Instant>,
    pause: Duration,
    notified: Notified,
    notifier: OutageNotifier,
    reviver: Reviver,
    /// True if the reviver started a daemon in this outage.
    revived: bool,
    /// Length of the outage after which the reviver is called next.
    revive_after: Duration,
    /// Error of the last failed start.
    refused: Option<Box<Error>>,
}

/// Notification of the user about the current outage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Notified {
    NotYet,
    Already,
}

impl Outage {
    const FIRST_PAUSE: Duration = Duration::from_millis(20);
    const LONGEST_PAUSE: Duration = Duration::from_millis(500);

    pub(super) const fn new(teller: OutageNotifier, reviver: Reviver) -> Self {
        Self {
            since: None,
            pause: Self::FIRST_PAUSE,
            notified: Notified::NotYet,
            notifier: teller,
            reviver,
            revived: false,
            revive_after: REVIVED_AFTER,
            refused: None,
        }
    }

    /// Ends the outage: the daemon answers.
    pub(crate) fn over(&mut self) {
        self.since = None;
        self.pause = Self::FIRST_PAUSE;
        self.notified = Notified::NotYet;
        self.revived = false;
        self.revive_after = REVIVED_AFTER;
        self.refused = None;
    }

    /// Ends the outage if a call made at `asked` was open for longer than the longest pause: the daemon was back
    /// meanwhile.
    pub(super) fn note_success_until(&mut self, asked: Instant) {
        if asked.elapsed() > Self::LONGEST_PAUSE {
            self.over();
        }
    }

    /// Waits before the next try. Returns an error once the outage has lasted for [`PATIENCE`].
    pub(crate) async fn pause(&mut self, error: Error) -> Result<(), Error> {
        let since = *self.since.get_or_insert_with(Instant::now);
        if since.elapsed() >= PATIENCE {
            return Err(self.refused.take().map_or(error, |refused| *refused));
        }
        // A daemon that refuses a call answers, and is not away.
        if self.notified == Notified::NotYet && since.elapsed() >= NOTIFY_AFTER && error.is_outage()
        {
            self.notified = Notified::Already;
            self.notifier.notify();
        }
        let died = matches!(error, Error::Lost { died: true, .. });
        if died
            && !self.revived
            && since.elapsed() >= self.revive_after
            && let Reviver(Some(revive)) = &self.reviver
        {
            match revive().await {
                Ok(()) => {
                    self.revived = true;
                    return Ok(());
                }
                // Another process may start it, and the cause of the failure may pass.
                Err(refused) => self.refused = Some(Box::new(refused)),
            }
            self.revive_after *= 2;
        }
        tokio::time::sleep(self.pause).await;
        self.pause = (self.pause * 2).min(Self::LONGEST_PAUSE);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    #[tokio::test]
    async fn outage_waits_for_daemon_that_fails_to_start() {
        let asked = Arc::new(AtomicU32::new(0));
        let count = Arc::clone(&asked);
        let reviver = Reviver::new(move || {
            let first = count.fetch_add(1, Ordering::Relaxed) == 0;
            let refused = || Error::Malformed {
                what: "a first try".to_owned(),
            };
            Box::pin(async move { if first { Err(refused()) } else { Ok(()) } })
        });
        let mut outage = Outage {
            notified: Notified::Already,
            revive_after: Duration::ZERO,
            ..Outage::new(OutageNotifier::default(), reviver)
        };
        let lost = || Error::Lost {
            socket: PathBuf::new(),
            why: String::new(),
            died: true,
        };
        outage.pause(lost()).await.unwrap();
        assert!(matches!(
            outage.refused.as_deref(),
            Some(Error::Malformed { .. })
        ));
        outage.pause(lost()).await.unwrap();
        outage.pause(lost()).await.unwrap();
        assert_eq!(asked.load(Ordering::Relaxed), 2, "until it succeeds once");
    }
}
