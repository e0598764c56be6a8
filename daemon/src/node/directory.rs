//! The state directory: its owner, its lock, and the check that it is the one in which its records were made.
//!
//! **Owns** the lock, which is on the directory itself and not on a file in it that could be removed; `served-at`, by
//! which clients find the daemon that holds the lock; and `node.json`, which names the keys that sign and have signed
//! here, and identifies the directory within this boot of the machine. **Never** touches the log or a key.
//!
//! **Order.** Lock, then [`Directory::check`], then the signing key, then [`Directory::record`]. That record is also
//! the moment at which a copy is adopted. It counts as a copy with runs to be suspended until a further record confirms
//! that. **Failure.** A directory that is in use, of another user, a copy, or without its key stops the start with an
//! error that names the fix; nothing is changed.

use std::fs::{self, DirBuilder, File, Permissions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use nix::unistd::{Pid, getpid, getppid};
use rye_core::clock::Timestamp;
use rye_core::seal::Fingerprint;
use rye_core::served_at::{self, Holder, Lock, Phase, Process, ServedAt};
use rye_host::safe_path::{Dir, Draft};
use rye_process as process;
use serde::{Deserialize, Serialize};

use super::Error;

/// Time limit for an ending daemon to release its state directory.
const PATIENCE: Duration = Duration::from_secs(5);
/// Time limit for the greeting of a serving daemon.
const GREETING: Duration = Duration::from_millis(500);

const RECORD: &str = "node.json";
/// Format version of `node.json`.
const VERSION: u32 = 1;

/// A locked state directory; dropping it releases the lock.
#[derive(Debug)]
pub(super) struct Directory {
    path: PathBuf,
    lock: Flock<File>,
    daemon: Process,
    parent: Option<Process>,
}

/// Content of `node.json`.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Record {
    v: u32,
    #[serde(flatten)]
    signers: Signers,
    /// True if runs of the original directory are still to be suspended.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    adopting: bool,
    /// Boot of the machine in which the numbers below were read: they mean nothing after it.
    boot_id: String,
    device: u64,
    inode: u64,
}

impl Record {
    /// True if only the identity of the directory differs.
    fn is_same_record(&self, other: &Self) -> bool {
        (&self.signers, self.adopting) == (&other.signers, other.adopting)
    }
}

/// Keys whose signatures occur in a state directory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Signers {
    /// The current signing key.
    pub(super) fingerprint: Fingerprint,
    /// Earlier signing keys, of the directories that this one is a copy of; the oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) former: Vec<Former>,
}

impl Signers {
    /// Time of the adoption; `None` if the directory is not a copy.
    pub(super) fn adopted(&self) -> Option<Timestamp> {
        self.former.last().map(|former| former.until)
    }
}

/// A former signing key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Former {
    pub(super) fingerprint: Fingerprint,
    /// Time of its replacement.
    pub(super) until: Timestamp,
}

/// Origin of the records in a state directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum RecordsOrigin {
    /// There are no records yet.
    New,
    /// They were made in this directory.
    Own(Signers),
    /// They were adopted by an earlier start, which did not suspend all runs.
    Adopted(Signers),
    /// They were copied from another directory, with its signers if they are known; the directory is to be adopted.
    Copied(Option<Signers>),
}

impl RecordsOrigin {
    /// True if a daemon may still work on the same runs elsewhere.
    pub(super) fn is_copy(&self) -> bool {
        matches!(self, Self::Adopted(_) | Self::Copied(_))
    }
}

impl Directory {
    /// Creates the directory, readable by its owner alone, and locks it.
    ///
    /// A daemon that is just ending still holds the lock but no longer answers a greeting. This waits for its end.
    pub(super) fn claim(path: &Path, socket: &Path, parent: Pid) -> Result<Self, Error> {
        let failed = |operation| {
            move |source| Error::Io {
                operation,
                path: path.to_owned(),
                source,
            }
        };
        let mut builder = DirBuilder::new();
        let made = builder.recursive(true).mode(0o700).create(path);
        made.map_err(failed("create"))?;
        let owner = fs::metadata(path).map_err(failed("look at"))?.uid();
        let us = nix::unistd::geteuid().as_raw();
        if owner != us {
            return Err(Error::Foreign {
                path: path.to_owned(),
                owner,
                us,
            });
        }
        fs::set_permissions(path, Permissions::from_mode(0o700)).map_err(failed("protect"))?;
        let deadline = Instant::now() + PATIENCE;
        loop {
            let directory = File::open(path).map_err(failed("open"))?;
            match Flock::lock(directory, FlockArg::LockExclusiveNonblock) {
                Ok(lock) => {
                    let claimed = Self {
                        path: path.to_owned(),
                        lock,
                        daemon: process_of(getpid()).unwrap_or(Process { pid: 0, started: 0 }),
                        // Read last: a pid that is still the parent's was the parent's before.
                        parent: process_of(parent).filter(|_| getppid() == parent),
                    };
                    if let Err(error) = claimed.publish(socket, Phase::Recovering) {
                        tracing::warn!(%error, path = %path.display(), "the state directory does not say where the daemon listens");
                    }
                    return Ok(claimed);
                }
                Err((_, Errno::EWOULDBLOCK)) => {}
                Err((_, errno)) => return Err(failed("lock")(errno.into())),
            }
            let holder = holder(path);
            if greets(&holder) || Instant::now() > deadline {
                return Err(Error::InUse {
                    path: path.to_owned(),
                    pid: holder.pid(),
                });
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Writes the address of this daemon. A failure, as of a full disk, does not stop the start.
    pub(super) fn publish(&self, socket: &Path, phase: Phase) -> io::Result<()> {
        let record = ServedAt::new(
            socket.to_owned(),
            phase,
            self.daemon,
            self.parent,
            process::pid_host(),
            env!("CARGO_PKG_VERSION"),
        );
        Dir::follow(&self.path)?.replace(served_at::FILE, &record.to_json()?)
    }

    /// True if the record exists by which clients find this daemon.
    pub(super) fn is_published(&self) -> bool {
        let record = read_served_at(&self.path);
        record.is_some_and(|record| record.daemon == self.daemon)
    }

    pub(super) fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Finds the origin of the records. A copy is refused, unless `adopt` requests its adoption.
    pub(super) fn check(&self, adopt: bool) -> Result<RecordsOrigin, Error> {
        let Some(record) = self.read()? else {
            return match (self.has_records()?, adopt) {
                (false, _) => Ok(RecordsOrigin::New),
                (true, true) => Ok(RecordsOrigin::Copied(None)),
                (true, false) => Err(Error::Unnamed {
                    path: self.record_path(),
                }),
            };
        };
        let (device, inode) = self.place()?;
        let is_this_boot = record.boot_id == process::boot_id();
        // The device number of a file system may change over a boot; inode numbers do not.
        let is_elsewhere = record.inode != inode || (is_this_boot && record.device != device);
        match (is_elsewhere, adopt) {
            (true, true) => Ok(RecordsOrigin::Copied(Some(record.signers))),
            (true, false) if is_this_boot => Err(Error::Copy {
                path: self.path.clone(),
            }),
            _ if record.adopting => Ok(RecordsOrigin::Adopted(record.signers)),
            _ => Ok(RecordsOrigin::Own(record.signers)),
        }
    }

    /// Records the identity of this directory, its signers, and whether copied runs are still to be suspended.
    pub(super) fn record(&self, signers: &Signers, adopting: bool) -> Result<(), Error> {
        let (device, inode) = self.place()?;
        let record = Record {
            v: VERSION,
            signers: signers.clone(),
            adopting,
            boot_id: process::boot_id(),
            device,
            inode,
        };
        let before = self.read()?;
        if before.as_ref() == Some(&record) {
            return Ok(());
        }
        let path = self.record_path();
        let written = || -> io::Result<()> {
            let mut draft = Draft::new(Dir::follow(&self.path)?, format!("{RECORD}.tmp"))?;
            draft
                .file
                .write_all(serde_json::to_string(&record)?.as_bytes())?;
            // The directory entry of a key must be durable before the record that names the key.
            self.lock.sync_all()?;
            draft.commit(RECORD)
        };
        match written() {
            Ok(()) => Ok(()),
            // Then only a copy made during this boot is not recognised; a full disk must not stop the start.
            Err(error) if before.is_some_and(|before| before.is_same_record(&record)) => {
                tracing::warn!(%error, path = %path.display(), "the state directory is not described anew");
                Ok(())
            }
            Err(source) => Err(Error::Io {
                operation: "write",
                path,
                source,
            }),
        }
    }

    fn record_path(&self) -> PathBuf {
        self.path.join(RECORD)
    }

    fn read(&self) -> Result<Option<Record>, Error> {
        let path = self.record_path();
        let failed = |source| Error::Io {
            operation: "read",
            path: path.clone(),
            source,
        };
        let text = match fs::read(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(failed(error)),
        };
        let record: Record = serde_json::from_slice(&text).map_err(|e| failed(e.into()))?;
        if record.v == VERSION {
            Ok(Some(record))
        } else {
            let text = format!("it has the form {}, which a later version wrote", record.v);
            Err(failed(io::Error::other(text)))
        }
    }

    /// Device and inode number of the directory.
    fn place(&self) -> Result<(u64, u64), Error> {
        let found = self.lock.metadata().map_err(|source| Error::Io {
            operation: "look at",
            path: self.path.clone(),
            source,
        })?;
        Ok((found.dev(), found.ino()))
    }

    /// True if a daemon has stored anything here.
    fn has_records(&self) -> Result<bool, Error> {
        let log = self.path.join("log");
        fs::exists(&log).map_err(|source| Error::Io {
            operation: "look for",
            path: log.clone(),
            source,
        })
    }
}

fn served_at(directory: &Path) -> PathBuf {
    directory.join(served_at::FILE)
}

/// Recorded socket of the daemon that has the state directory `path`.
pub(super) fn socket_in_use(path: &Path) -> Option<PathBuf> {
    read_served_at(path).map(|record| record.socket)
}

/// The process `pid`, if it lives.
fn process_of(pid: Pid) -> Option<Process> {
    let started = process::start_time(pid.as_raw())?;
    Some(Process {
        pid: pid.as_raw(),
        started,
    })
}

fn read_served_at(directory: &Path) -> Option<ServedAt> {
    let mut text = Vec::new();
    let file = File::open(served_at(directory)).ok()?;
    file.take(served_at::MAX_BYTES)
        .read_to_end(&mut text)
        .ok()?;
    ServedAt::parse(&text)
}

/// The daemon that holds the lock on `directory`.
fn holder(directory: &Path) -> Holder {
    let host = process::pid_host();
    let record = read_served_at(directory);
    Holder::judge(Lock::Held, record, &host, process::start_time)
}

/// True if `holder` answers a greeting on the recorded socket. A killed daemon still accepts connections until it is
/// gone, but no longer answers.
fn greets(holder: &Holder) -> bool {
    let Some(record) = holder.record() else {
        return false;
    };
    let greeting = || {
        let mut stream = UnixStream::connect(&record.socket)?;
        stream.set_read_timeout(Some(GREETING))?;
        stream.write_all(served_at::GREETING)?;
        stream.read_exact(&mut [0])
    };
    greeting().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn signers(seed: u8) -> Signers {
        let key = rye_core::seal::SecretKey::from_seed(&[seed; 32]);
        Signers {
            fingerprint: key.public().fingerprint().clone(),
            former: Vec::new(),
        }
    }

    /// A directory that records itself, and the content of its record.
    fn recorded(home: &Path) -> (Directory, serde_json::Value) {
        let path = home.join("state");
        let directory = Directory::claim(&path, &home.join("sock"), getppid()).unwrap();
        assert_eq!(directory.check(false).unwrap(), RecordsOrigin::New);
        fs::create_dir(path.join("log")).unwrap();
        directory.record(&signers(1), false).unwrap();
        let text = fs::read(directory.record_path()).unwrap();
        (directory, serde_json::from_slice(&text).unwrap())
    }

    #[test]
    fn directory_is_recognized_and_copy_is_not_judged_across_boots() {
        let home = tempfile::tempdir().unwrap();
        let (directory, record) = recorded(home.path());
        let own = RecordsOrigin::Own(signers(1));
        assert_eq!(directory.check(false).unwrap(), own);
        assert_eq!(
            directory.check(true).unwrap(),
            own,
            "there is nothing to adopt"
        );
        let with = |changes: &[(&str, serde_json::Value)]| {
            let mut record = record.clone();
            for (field, value) in changes {
                record[*field] = value.clone();
            }
            fs::write(directory.record_path(), record.to_string()).unwrap();
        };
        let another_boot = ("boot_id", "another".into());
        for moved in ["device", "inode"] {
            let number = record[moved].as_u64().unwrap() + 1;
            with(&[(moved, number.into())]);
            assert!(matches!(
                directory.check(false),
                Err(Error::Copy { path }) if path == directory.path
            ));
            let copied = RecordsOrigin::Copied(Some(signers(1)));
            assert_eq!(directory.check(true).unwrap(), copied);
            with(&[(moved, number.into()), another_boot.clone()]);
            assert_eq!(directory.check(false).unwrap(), own, "{moved}");
        }
        // An explicit request adopts a copy made at any time.
        let inode = record["inode"].as_u64().unwrap() + 1;
        with(&[("inode", inode.into()), another_boot]);
        assert!(directory.check(true).unwrap().is_copy());
    }

    #[test]
    fn copy_remains_copy_until_suspension_is_recorded() {
        let home = tempfile::tempdir().unwrap();
        let (directory, _) = recorded(home.path());
        directory.record(&signers(2), true).unwrap();
        assert_eq!(
            directory.check(false).unwrap(),
            RecordsOrigin::Adopted(signers(2))
        );
        directory.record(&signers(2), false).unwrap();
        assert_eq!(
            directory.check(false).unwrap(),
            RecordsOrigin::Own(signers(2))
        );
    }
}
