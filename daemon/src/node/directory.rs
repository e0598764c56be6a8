//! The state directory: who may use it, who uses it, and whether it is the one that its records were made in.
//!
//! **Owns** the lock, which is on the directory itself and not on a file in it that could be removed; `served-at`, which names
//! the socket of who holds it; and `node.json`, which names the key that signs here and the directory as this boot of the machine
//! knows it. **Never** touches the log.
//!
//! **Order.** Lock, then [`Directory::check`], then the key; [`Directory::record`] when all of that is well. **Failure.** A directory
//! in use, somebody else's, a copy, or one whose key is missing stops the start with an error that says what to do; nothing is changed.

use std::ffi::OsStr;
use std::fs::{self, DirBuilder, File, Permissions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use rye_core::seal::Fingerprint;
use serde::{Deserialize, Serialize};

use super::Error;
use crate::process;

/// How long a daemon that is ending may keep its state directory.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long a daemon that serves may take to greet.
const GREETING: Duration = Duration::from_millis(500);

/// What a client of HTTP/2 says first, with settings that ask for nothing; who serves answers it at once.
const HELLO: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";

/// The number of the form of `node.json`.
const VERSION: u32 = 1;

/// A state directory that nobody else uses, as long as this value lives.
#[derive(Debug)]
pub(super) struct Directory {
    path: PathBuf,
    lock: Flock<File>,
}

/// What `node.json` says.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Record {
    v: u32,
    /// The key that signs what is kept here.
    fingerprint: String,
    /// The boot of the machine on which the numbers below were read: they mean nothing after it.
    boot_id: String,
    device: u64,
    inode: u64,
}

/// Whose the records in a state directory are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Origin {
    /// There are none yet.
    New,
    /// This directory's, signed by that key.
    Own(String),
    /// Those of a directory it was copied from, signed by that key, if it is known.
    Copied(Option<String>),
}

impl Directory {
    /// Makes the directory, readable by its owner alone, and locks it.
    ///
    /// A daemon that is just ending still holds the lock but greets nobody any more: it is waited for.
    pub(super) fn claim(path: &Path, socket: &Path) -> Result<Self, Error> {
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
                    };
                    claimed.name_socket(socket);
                    return Ok(claimed);
                }
                Err((_, Errno::EWOULDBLOCK)) => {}
                Err((_, errno)) => return Err(failed("lock")(errno.into())),
            }
            if greets(path) || Instant::now() > deadline {
                return Err(Error::InUse {
                    path: path.to_owned(),
                });
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Writes down where its holder can be reached. Only the next one that wants the lock misses it; a full disk must not stop the start.
    fn name_socket(&self, socket: &Path) {
        let named = fs::write(served_at(&self.path), socket.as_os_str().as_encoded_bytes());
        if let Err(error) = named {
            tracing::warn!(%error, "the state directory does not name the socket");
        }
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
        let here = self.describe(&record.fingerprint)?;
        let is_other = record.boot_id == here.boot_id
            && (record.device, record.inode) != (here.device, here.inode);
        match (is_other, adopt) {
            (false, _) => Ok(Origin::Own(record.fingerprint)),
            (true, true) => Ok(Origin::Copied(Some(record.fingerprint))),
            (true, false) => Err(Error::Copy {
                path: self.path.clone(),
            }),
        }
    }

    /// Writes down that this is the directory, and that the key `fingerprint` signs here.
    pub(super) fn record(&self, fingerprint: &Fingerprint) -> Result<(), Error> {
        let record = self.describe(fingerprint.as_str())?;
        if self.read()?.as_ref() == Some(&record) {
            return Ok(());
        }
        let (path, draft) = (self.record_path(), self.path.join("node.json.tmp"));
        let written = || {
            let mut file = File::create(&draft)?;
            file.write_all(serde_json::to_string(&record)?.as_bytes())?;
            file.sync_all()?;
            fs::rename(&draft, &path)?;
            self.lock.sync_all()
        };
        written().map_err(|source| Error::Io {
            operation: "write",
            path: path.clone(),
            source,
        })
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

    /// This directory as it would be recorded now.
    fn describe(&self, fingerprint: &str) -> Result<Record, Error> {
        let found = self.lock.metadata().map_err(|source| Error::Io {
            operation: "look at",
            path: self.path.clone(),
            source,
        })?;
        Ok(Record {
            v: VERSION,
            fingerprint: fingerprint.to_owned(),
            boot_id: process::boot_id(),
            device: found.dev(),
            inode: found.ino(),
        })
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
    directory.join("served-at")
}

/// Whether the holder of the lock serves on the socket that it named. One that was killed still takes connections until it is gone,
/// but says nothing any more.
fn greets(directory: &Path) -> bool {
    let greeting = || {
        let socket = fs::read(served_at(directory))?;
        let mut stream = UnixStream::connect(OsStr::from_bytes(&socket))?;
        stream.set_read_timeout(Some(GREETING))?;
        stream.write_all(HELLO)?;
        stream.read_exact(&mut [0])
    };
    greeting().is_ok()
}
