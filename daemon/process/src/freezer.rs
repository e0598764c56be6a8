//! Freezing of the processes of a cgroup: they stand still until they are thawed or killed.
//!
//! **Order.** The kernel freezes one process after the other, usually within a millisecond. A frozen process handles
//! KILL at once, and all other signals when it is thawed.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use super::controllers::write;

/// Time limit of a freeze. Only a process that hangs in the kernel takes this long.
const PATIENCE: Duration = Duration::from_secs(5);
const LOOK_AGAIN: Duration = Duration::from_millis(1);
/// File with the request.
const REQUEST: &str = "cgroup.freeze";
/// File with the state.
const EVENTS: &str = "cgroup.events";

/// Freezes and thaws the processes of one cgroup.
#[derive(Debug, Clone)]
pub struct Freezer(PathBuf);

impl Freezer {
    pub fn new(cgroup: &Path) -> Self {
        Self(cgroup.to_owned())
    }

    /// Requests that the processes freeze, or that they thaw.
    pub fn set(&self, frozen: bool) -> io::Result<()> {
        write(&self.0.join(REQUEST), if frozen { "1" } else { "0" })
    }

    /// True if the processes are to be frozen.
    pub fn is_set(&self) -> bool {
        let request = fs::read_to_string(self.0.join(REQUEST));
        request.is_ok_and(|request| request.trim() == "1")
    }

    /// Waits until all processes are frozen, for five seconds at most. Blocks.
    pub fn wait(&self) {
        let deadline = Instant::now() + PATIENCE;
        while self.is_set() && !self.has_settled() && Instant::now() < deadline {
            thread::sleep(LOOK_AGAIN);
        }
    }

    fn has_settled(&self) -> bool {
        let events = fs::read_to_string(self.0.join(EVENTS)).unwrap_or_default();
        events.lines().any(|line| line == "frozen 1")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn request_is_written_and_read() {
        let cgroup = tempfile::tempdir().unwrap();
        let freezer = Freezer::new(cgroup.path());
        assert!(!freezer.is_set());
        let error = freezer.set(true).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
        fs::write(cgroup.path().join(REQUEST), "0\n").unwrap();
        freezer.wait();
        freezer.set(true).unwrap();
        assert!(freezer.is_set() && !freezer.has_settled());
        fs::write(cgroup.path().join(EVENTS), "populated 1\nfrozen 1\n").unwrap();
        freezer.wait();
        assert!(freezer.has_settled());
        freezer.set(false).unwrap();
        assert!(!freezer.is_set());
    }
}
