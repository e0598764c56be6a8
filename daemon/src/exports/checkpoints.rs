//! Checkpoints of the exports of all projects, kept over restarts: the file `exports` in the state directory.
//!
//! **Owns** that file. Files of projects are never synced, so the file holds two checkpoints: the newest one, for a
//! restart of the daemon, and one that is at least [`SETTLED`] older, for a restart of the machine. By then the system
//! has written back all earlier writes. **Never** is synced itself. **Failure**: a file that is missing or unreadable
//! means that no position is known. Then all runs are compared with their files.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rye_core::clock::Timestamp;
use rye_core::id::Lsn;
use serde::{Deserialize, Serialize};

use rye_host::safe_path::{self, Dir};

const NAME: &str = "exports";
/// Time after which writes are on disk; the kernel's own bound is 35 s.
const SETTLED: Duration = Duration::from_mins(1);

/// Position in the log up to which all files are written.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(super) struct Checkpoint {
    pub(super) lsn: Lsn,
    /// Time of the checkpoint.
    pub(super) at: Timestamp,
    /// True if the daemon that wrote it published nothing after it.
    #[serde(default, skip_serializing_if = "is_false")]
    pub(super) is_last: bool,
    /// Earlier positions of projects that are behind, by `files` directory.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) behind: BTreeMap<String, Lsn>,
}

impl Checkpoint {
    /// Position up to which the files of a project are written.
    pub(super) fn of(&self, files: &str) -> Lsn {
        let behind = self.behind.get(files).copied();
        behind.map_or(self.lsn, |behind| behind.min(self.lsn))
    }

    /// Position up to which the files of all projects are written.
    pub(super) fn lowest(&self) -> Lsn {
        let behind = self.behind.values().copied();
        behind.chain([self.lsn]).min().unwrap_or_default()
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
const fn is_false(value: &bool) -> bool {
    !*value
}

/// Content of the file.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Stored {
    #[serde(flatten)]
    newest: Checkpoint,
    before: Checkpoint,
    /// Boot id of the machine at the time of the write.
    boot: String,
}

#[derive(Debug)]
pub(super) struct Checkpoints {
    dir: PathBuf,
    newest: Checkpoint,
    settled: Checkpoint,
    /// The checkpoint that becomes `before` next, and the time at which it was written.
    settling: (Checkpoint, Instant),
}

impl Checkpoints {
    /// Reads the checkpoints in the state directory `dir`. Blocks.
    pub(super) fn open(dir: &Path) -> Self {
        let path = dir.join(NAME);
        let stored = match fs::read(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Stored::default()),
            read => read.and_then(|text| Ok(serde_json::from_slice(&text)?)),
        };
        let stored = stored.unwrap_or_else(|error: io::Error| {
            tracing::warn!(path = %path.display(), %error,
                "the checkpoints of exports cannot be read: all runs are compared with their files");
            Stored::default()
        });
        let is_same_boot = stored.boot == safe_path::boot_id();
        let newest = if is_same_boot {
            stored.newest
        } else {
            stored.before.clone()
        };
        Self {
            dir: dir.to_owned(),
            settling: (newest.clone(), Instant::now()),
            newest,
            settled: stored.before,
        }
    }

    /// Checkpoint at which this daemon starts.
    pub(super) const fn newest(&self) -> &Checkpoint {
        &self.newest
    }

    /// Replaces the newest checkpoint. Blocks.
    pub(super) fn write(&mut self, mark: Checkpoint) -> io::Result<()> {
        self.write_at(mark, Instant::now())
    }

    fn write_at(&mut self, mark: Checkpoint, now: Instant) -> io::Result<()> {
        let (settling, since) = &self.settling;
        if now.saturating_duration_since(*since) >= SETTLED {
            self.settled = settling.clone();
            self.settling = (mark.clone(), now);
        }
        let stored = Stored {
            newest: mark,
            before: self.settled.clone(),
            boot: safe_path::boot_id().to_owned(),
        };
        Dir::follow(&self.dir)?.replace(NAME, &serde_json::to_vec(&stored)?)?;
        self.newest = stored.newest;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checkpoint(lsn: u64) -> Checkpoint {
        Checkpoint {
            lsn: Lsn(lsn),
            ..Checkpoint::default()
        }
    }

    /// Makes the file one of an earlier boot of the machine.
    fn reboot(dir: &Path) {
        let path = dir.join(NAME);
        let text = fs::read_to_string(&path).unwrap();
        fs::write(path, text.replace(safe_path::boot_id(), "earlier")).unwrap();
    }

    #[test]
    fn newest_checkpoint_reads_back_with_late_projects() {
        let dir = tempfile::tempdir().unwrap();
        let mut marks = Checkpoints::open(dir.path());
        assert_eq!(*marks.newest(), Checkpoint::default());
        let behind = BTreeMap::from([("/p".to_owned(), Lsn(3))]);
        let written = Checkpoint {
            behind,
            ..checkpoint(9)
        };
        marks.write(written.clone()).unwrap();
        let read = Checkpoints::open(dir.path());
        assert_eq!(*read.newest(), written);
        assert_eq!(written.of("/p"), Lsn(3));
        assert_eq!(written.of("/q"), Lsn(9));
        assert_eq!(written.lowest(), Lsn(3));
    }

    #[test]
    fn boot_begins_at_settled_checkpoint() {
        let dir = tempfile::tempdir().unwrap();
        let mut marks = Checkpoints::open(dir.path());
        let begun = Instant::now();
        // Frequent checkpoints do not prevent each other from settling.
        for second in 1..=130 {
            let at = begun + Duration::from_secs(second);
            marks.write_at(checkpoint(second), at).unwrap();
        }
        reboot(dir.path());
        let settled = Checkpoints::open(dir.path()).newest().lsn;
        assert!((Lsn(1)..=Lsn(70)).contains(&settled), "{settled:?}");
    }

    #[test]
    fn boot_without_settled_checkpoint_begins_at_zero() {
        let dir = tempfile::tempdir().unwrap();
        Checkpoints::open(dir.path()).write(checkpoint(5)).unwrap();
        reboot(dir.path());
        assert_eq!(Checkpoints::open(dir.path()).newest().lsn, Lsn(0));
    }

    #[test]
    fn damaged_file_counts_as_nothing_written() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join(NAME), "{\"lsn\":").unwrap();
        assert_eq!(
            *Checkpoints::open(dir.path()).newest(),
            Checkpoint::default()
        );
    }
}
