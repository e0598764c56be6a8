//! The state directory: who may use it, who uses it, and whether it is the one that its records were made in.
//!
//! **Owns** the lock, which is on the directory itself and not on a file in it that could be removed; `served-at`, by which clients
//! find the daemon that holds it; and `node.json`, which names the keys that sign and have signed here and the directory as this boot of
//! the machine knows it. **Never** touches the log or a key.
//!
//! **Order.** Lock, then [`Directory::check`], then the key that is to sign; [`Directory::record`] when all of that is well, which is also the
//! moment at which a copy is adopted. It stays a copy whose runs are to be suspended until a further record says that they are.
//! **Failure.** A directory in use, somebody else's, a copy, or one whose key is missing stops the start with an error that says what to
//! do; nothing is changed.

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
use serde::{Deserialize, Serialize};

use super::Error;
use crate::process;

/// How long a daemon that is ending may keep its state directory.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long a daemon that serves may take to greet.
const GREETING: Duration = Duration::from_millis(500);

/// The number of the form of `node.json`.
const VERSION: u32 = 1;

/// A state directory that nobody else uses, as long as this value lives.
#[derive(Debug)]
pub(super) struct Directory {
    path: PathBuf,
    lock: Flock<File>,
    daemon: Process,
    parent: Option<Process>,
}

/// What `node.json` says.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Record {
    v: u32,
    #[serde(flatten)]
    signers: Signers,
    /// Whether runs of the directory that this one is a copy of are still to be suspended.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    adopting: bool,
    /// The boot of the machine on which the numbers below were read: they mean nothing after it.
    boot_id: String,
    device: u64,
    inode: u64,
}

impl Record {
    /// Whether nothing but the numbers of the machine differs.
    fn says_the_same(&self, other: &Self) -> bool {
        (&self.signers, self.adopting) == (&other.signers, other.adopting)
    }
}

/// Whose signatures there are in a state directory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Signers {
    /// The key that signs now.
    pub(super) fingerprint: Fingerprint,
    /// Those that signed before, in the directories that this one is a copy of; the first one first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) former: Vec<Former>,
}

impl Signers {
    /// When the directory was adopted; `None` if it is no copy.
    pub(super) fn adopted(&self) -> Option<Timestamp> {
        self.former.last().map(|former| former.until)
    }
}

/// A key that has signed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Former {
    pub(super) fingerprint: Fingerprint,
    /// When it was replaced.
    pub(super) until: Timestamp,
}

/// Whose the records in a state directory are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Origin {
    /// There are none yet.
    New,
    /// This directory's.
    Own(Signers),
    /// This directory's since a start that adopted them and did not come to suspend all runs.
    Adopted(Signers),
    /// Those of a directory it was copied from, and who signed there, if that is known: it is to become one of its own.
    Copied(Option<Signers>),
}

impl Origin {
    /// Whether a daemon may still work on the same runs elsewhere.
    pub(super) fn is_copy(&self) -> bool {
        matches!(self, Self::Adopted(_) | Self::Copied(_))
    }
}

impl Directory {
    /// Makes the directory, readable by its owner alone, and locks it.
    ///
    /// A daemon that is just ending still holds the lock but greets nobody any more: it is waited for.
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

    /// Writes down where this daemon can be reached. A failure, as of a full disk, is no reason to stop the start.
    pub(super) fn publish(&self, socket: &Path, phase: Phase) -> io::Result<()> {
        let record = ServedAt::new(
            socket.to_owned(),
            phase,
            self.daemon,
            self.parent,
            process::pid_host(),
            env!("CARGO_PKG_VERSION"),
        );
        let path = served_at(&self.path);
        let draft = path.with_extension("tmp");
        fs::write(&draft, record.to_json()?)?;
        fs::rename(&draft, &path)
    }

    /// True if the record is there that clients find this daemon by.
    pub(super) fn is_published(&self) -> bool {
        let record = read_served_at(&self.path);
        record.is_some_and(|record| record.daemon == self.daemon)
    }

    /// Path of a file in the directory.
    pub(super) fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Whose the records in it are. A copy is refused, unless `adopt` says that it is to be a directory of its own.
    pub(super) fn check(&self, adopt: bool) -> Result<Origin, Error> {
        let Some(record) = self.read()? else {
            return match (self.has_records()?, adopt) {
                (false, _) => Ok(Origin::New),
                (true, true) => Ok(Origin::Copied(None)),
                (true, false) => Err(Error::Unnamed {
                    path: self.record_path(),
                }),
            };
        };
        let (device, inode) = self.place()?;
        let is_this_boot = record.boot_id == process::boot_id();
        // Over a boot a file system may get another number, and keeps those of its files.
        let is_elsewhere = record.inode != inode || (is_this_boot && record.device != device);
        match (is_elsewhere, adopt) {
            (true, true) => Ok(Origin::Copied(Some(record.signers))),
            (true, false) if is_this_boot => Err(Error::Copy {
                path: self.path.clone(),
            }),
            _ if record.adopting => Ok(Origin::Adopted(record.signers)),
            _ => Ok(Origin::Own(record.signers)),
        }
    }

    /// Writes down that this is the directory, who signs here, and whether runs that were copied are still to be suspended.
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
        let (path, draft) = (self.record_path(), self.path.join("node.json.tmp"));
        let written = || -> io::Result<()> {
            let mut file = File::create(&draft)?;
            file.write_all(serde_json::to_string(&record)?.as_bytes())?;
            file.sync_all()?;
            // A key that the record names has its name in the directory first.
            self.lock.sync_all()?;
            fs::rename(&draft, &path)?;
            self.lock.sync_all()
        };
        match written() {
            Ok(()) => Ok(()),
            // Only a copy that is made in this boot is not recognised then; a full disk must not stop the start.
            Err(error) if before.is_some_and(|before| before.says_the_same(&record)) => {
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
        self.path.join("node.json")
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

    /// The numbers by which the machine knows the directory.
    fn place(&self) -> Result<(u64, u64), Error> {
        let found = self.lock.metadata().map_err(|source| Error::Io {
            operation: "look at",
            path: self.path.clone(),
            source,
        })?;
        Ok((found.dev(), found.ino()))
    }

    /// Whether a daemon has kept anything here.
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

/// Socket of the daemon that has the state directory `path`, if that is on record.
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

/// True if `holder` serves on the socket of its record. One that was killed still takes connections until it is gone, but says nothing any
/// more.
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

    /// A directory that records itself, and what its record says.
    fn recorded(home: &Path) -> (Directory, serde_json::Value) {
        let path = home.join("state");
        let directory = Directory::claim(&path, &home.join("sock"), getppid()).unwrap();
        assert_eq!(directory.check(false).unwrap(), Origin::New);
        fs::create_dir(path.join("log")).unwrap();
        directory.record(&signers(1), false).unwrap();
        let text = fs::read(directory.record_path()).unwrap();
        (directory, serde_json::from_slice(&text).unwrap())
    }

    #[test]
    fn a_directory_is_its_own_and_over_a_boot_no_number_tells_a_copy() {
        let home = tempfile::tempdir().unwrap();
        let (directory, record) = recorded(home.path());
        let own = Origin::Own(signers(1));
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
            let copied = Origin::Copied(Some(signers(1)));
            assert_eq!(directory.check(true).unwrap(), copied);
            with(&[(moved, number.into()), another_boot.clone()]);
            assert_eq!(directory.check(false).unwrap(), own, "{moved}");
        }
        // By name a copy is adopted whenever it was made.
        let inode = record["inode"].as_u64().unwrap() + 1;
        with(&[("inode", inode.into()), another_boot]);
        assert!(directory.check(true).unwrap().is_copy());
    }

    #[test]
    fn a_copy_stays_one_until_it_is_on_record_that_its_runs_are_suspended() {
        let home = tempfile::tempdir().unwrap();
        let (directory, _) = recorded(home.path());
        directory.record(&signers(2), true).unwrap();
        assert_eq!(directory.check(false).unwrap(), Origin::Adopted(signers(2)));
        directory.record(&signers(2), false).unwrap();
        assert_eq!(directory.check(false).unwrap(), Origin::Own(signers(2)));
    }
}
