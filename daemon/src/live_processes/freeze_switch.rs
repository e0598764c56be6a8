//! Freezing of an attempt in flight.
//!
//! **Races.** A stop closes the switch before it signals the process: from then on the process is thawed and stays so. A
//! freeze and its record are one turn, so the last record says what the processes do.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rye_host::task;
use rye_process::Freezer;
use tokio::sync::{MutexGuard, watch};
use tokio::time::{Instant, sleep};

/// Reason why an attempt is not frozen or thawed.
#[derive(Debug, thiserror::Error)]
pub enum FreezeError {
    #[error("the attempt has no cgroup")]
    Unavailable,
    #[error("it is being stopped")]
    Stopping,
    #[error("the cgroup of the attempt cannot be written: {0}")]
    Refused(#[from] io::Error),
}

#[derive(Debug)]
pub struct FreezeSwitch {
    /// Number of the attempt.
    pub attempt: u32,
    /// `None` on a host without cgroups for attempts.
    freezer: Option<Freezer>,
    frozen: watch::Sender<bool>,
    /// True once the attempt is being stopped. Held while the request is written.
    is_closed: Mutex<bool>,
    turn: tokio::sync::Mutex<()>,
}

impl FreezeSwitch {
    pub fn new(attempt: u32, freezer: Option<Freezer>) -> Self {
        let is_frozen = freezer.as_ref().is_some_and(Freezer::is_set);
        Self {
            attempt,
            freezer,
            frozen: watch::Sender::new(is_frozen),
            is_closed: Mutex::default(),
            turn: tokio::sync::Mutex::default(),
        }
    }

    /// The turn of a freeze or thaw and its record.
    pub async fn turn(&self) -> MutexGuard<'_, ()> {
        self.turn.lock().await
    }

    pub fn is_frozen(&self) -> bool {
        *self.frozen.borrow()
    }

    /// Requests that the processes freeze, or that they thaw.
    pub fn set(&self, frozen: bool) -> Result<(), FreezeError> {
        let freezer = self.freezer.as_ref().ok_or(FreezeError::Unavailable)?;
        let is_closed = self
            .is_closed
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if *is_closed {
            return Err(FreezeError::Stopping);
        }
        freezer.set(frozen)?;
        self.frozen.send_replace(frozen);
        Ok(())
    }

    /// Thaws the processes, which are about to be stopped, for good.
    pub fn close(&self) {
        let mut is_closed = self
            .is_closed
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        *is_closed = true;
        if let Some(freezer) = self.freezer.as_ref().filter(|freezer| freezer.is_set())
            && let Err(error) = freezer.set(false)
        {
            tracing::warn!(%error, "a process could not be thawed");
        }
        self.frozen.send_replace(false);
    }

    /// Waits until the kernel has frozen the processes.
    pub async fn settled(&self) {
        if let Some(freezer) = self.freezer.clone() {
            task::blocking("freeze a process", move || freezer.wait()).await;
        }
    }

    async fn until(&self, frozen: bool) {
        let mut state = self.frozen.subscribe();
        // The sender is this switch.
        let _state = state.wait_for(|is| *is == frozen).await;
    }

    /// Resolves after the processes were not frozen for `time` in total.
    pub async fn active(&self, time: Duration) {
        let mut left = time;
        loop {
            self.until(false).await;
            let begun = Instant::now();
            tokio::select! {
                () = sleep(left) => return,
                () = self.until(true) => left = left.saturating_sub(begun.elapsed()),
            }
        }
    }

    /// Returns the result of a `probe` during which the processes were not frozen.
    pub async fn thawed<T, F>(&self, probe: impl Fn() -> F) -> T
    where
        F: Future<Output = T>,
    {
        loop {
            self.until(false).await;
            tokio::select! {
                biased;
                () = self.until(true) => {}
                result = probe() => return result,
            }
        }
    }
}

/// A shared switch.
pub type SharedSwitch = Arc<FreezeSwitch>;

#[cfg(test)]
mod tests {
    use std::fs;
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    /// A switch whose cgroup is a directory.
    fn switch(directory: &tempfile::TempDir, request: &str) -> SharedSwitch {
        fs::write(directory.path().join("cgroup.freeze"), request).unwrap();
        let freezer = Freezer::new(directory.path());
        Arc::new(FreezeSwitch::new(1, Some(freezer)))
    }

    fn request(directory: &tempfile::TempDir) -> String {
        fs::read_to_string(directory.path().join("cgroup.freeze")).unwrap()
    }

    #[test]
    fn stop_thaws_and_later_freezes_are_refused() {
        let directory = tempfile::tempdir().unwrap();
        let switch = switch(&directory, "0");
        switch.set(true).unwrap();
        switch.set(true).unwrap();
        assert_eq!(
            (request(&directory).as_str(), switch.is_frozen()),
            ("1", true)
        );
        switch.close();
        assert_eq!(
            (request(&directory).as_str(), switch.is_frozen()),
            ("0", false)
        );
        for frozen in [true, false] {
            let refused = switch.set(frozen);
            assert!(matches!(refused, Err(FreezeError::Stopping)));
        }
        assert_eq!(request(&directory), "0");
        let none = FreezeSwitch::new(1, None);
        assert!(matches!(none.set(true), Err(FreezeError::Unavailable)));
        none.close();
    }

    #[test]
    fn attempt_that_an_earlier_daemon_froze_is_found_frozen() {
        let directory = tempfile::tempdir().unwrap();
        assert!(switch(&directory, "1\n").is_frozen());
        assert!(!switch(&directory, "0\n").is_frozen());
    }

    #[tokio::test(start_paused = true)]
    async fn time_and_probes_of_a_frozen_process_do_not_count() {
        let directory = tempfile::tempdir().unwrap();
        let switch = switch(&directory, "0");
        let seconds = Duration::from_secs;
        let (begun, timed) = (Instant::now(), Arc::clone(&switch));
        let probes = AtomicU32::new(0);
        let clock = async {
            timed.active(seconds(10)).await;
            begun.elapsed()
        };
        let probe = switch.thawed(|| async {
            let number = probes.fetch_add(1, Ordering::Relaxed) + 1;
            sleep(seconds(5)).await;
            number
        });
        let hand = async {
            sleep(seconds(4)).await;
            switch.set(true).unwrap();
            sleep(seconds(100)).await;
            switch.set(false).unwrap();
        };
        let (elapsed, number, ()) = tokio::join!(clock, probe, hand);
        assert_eq!(elapsed, seconds(110));
        assert_eq!(number, 2, "the probe that the freeze met is made again");
    }
}
