//! Content-addressed objects: bytes stored under their SHA-256.
//!
//! **Owns** `<state>/objects/ab/<sha256>`. **Never** overwrites or changes an object, and never returns bytes that do
//! not match their name. [`Store::put`] returns when the object is on disk with its directory, so that a log record may
//! name it. **Order**: objects are independent; two writers of the same bytes both succeed, one after the other. A new
//! file is renamed to its name first and synced then. Name and bytes are thus written in one transaction of the file
//! system's journal; a sync before and after the rename would cause two. A file that replaces a damaged one is synced
//! before the rename. **Failure**: an object that cannot be stored leaves no file. A crash may leave a file below
//! `objects/tmp`, which the next [`Store::open`] removes. It may also leave a file with its name and only a part of its
//! bytes. No record names it yet, and the next [`Store::put`] of these bytes replaces it.
//!
//! Objects that nothing names are deleted in `sweep`.

mod sweep;

use std::collections::HashSet;
use std::fs::{self, File};
use std::io::{self, BufReader, BufWriter, Read as _, Seek as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rye_core::digest::Digest;
use rye_core::error::{ErrorKind, Kinded};
use sha2::{Digest as _, Sha256};

pub use self::sweep::Deleted;
use self::sweep::NameSearch;
use crate::safe_path::{Dir, Draft};

/// Failure to store or read an object.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file system refused to store the object.
    #[error("failed to store object {digest}")]
    Store {
        digest: Digest,
        #[source]
        source: io::Error,
    },
    /// The object does not exist, or cannot be read.
    #[error("failed to read object {digest}")]
    Read {
        digest: Digest,
        #[source]
        source: io::Error,
    },
    /// The content of the file does not match its name.
    #[error("object {digest} is damaged: its content is {found}")]
    Damaged {
        digest: Digest,
        /// Digest of its present bytes.
        found: Digest,
    },
}

impl Kinded for Error {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::Store { source, .. } if is_used_up(source) => ErrorKind::Exhausted,
            Self::Store { .. } => ErrorKind::Unavailable,
            Self::Read { .. } | Self::Damaged { .. } => ErrorKind::DataLoss,
        }
    }
}

/// True if the disk or the quota of its owner is used up.
fn is_used_up(error: &io::Error) -> bool {
    let kind = error.kind();
    kind == io::ErrorKind::StorageFull || kind == io::ErrorKind::QuotaExceeded
}

/// Directory of files that are not renamed to their names yet.
const UNFINISHED: &str = "tmp";

/// Bytes of an object that are written or read at once.
pub const PIECE: usize = 128 << 10;

/// Function that writes the bytes of an object.
type Write<'a> = dyn Fn(&mut dyn io::Write) -> io::Result<()> + 'a;

/// Returns the digest of the rest of `file` from its position.
pub fn digest_of_file(file: &mut File) -> io::Result<Digest> {
    DigestWriter::default().read(file)
}

/// A writer that computes the digest of its bytes.
#[derive(Default)]
struct DigestWriter<'s> {
    hasher: Sha256,
    bytes: u64,
    /// Finds the objects that the bytes name, during a sweep.
    search: Option<NameSearch<'s>>,
}

impl DigestWriter<'_> {
    /// Returns the digest of the rest of `file` from its position.
    fn read(mut self, file: &mut File) -> io::Result<Digest> {
        let mut piece = vec![0; PIECE];
        loop {
            match file.read(&mut piece)? {
                0 => return Ok(self.name().0),
                read => self.write_all(&piece[..read])?,
            }
        }
    }

    /// Returns the digest and the number of the written bytes.
    fn name(self) -> (Digest, u64) {
        (<[u8; 32]>::from(self.hasher.finalize()).into(), self.bytes)
    }
}

impl io::Write for DigestWriter<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.hasher.update(bytes);
        if let Some(search) = &mut self.search {
            search.add(bytes);
        }
        self.bytes += u64::try_from(bytes.len()).expect("lengths fit 64 bits");
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The objects below one directory.
#[derive(Debug)]
pub struct Store {
    root: PathBuf,
    temporaries: AtomicU64,
    /// By the first byte of the names of their objects. Each is locked while an object is stored or deleted there: no
    /// writer takes an object for stored that another one fails to sync, or that is being deleted.
    directories: Box<[Mutex<Subdirectory>; 256]>,
    /// False only if no directory has candidates.
    has_candidates: AtomicBool,
    /// Former candidates that something names, and whose own content may name others.
    named: Mutex<Vec<Digest>>,
}

/// The objects with the same first byte in their names.
#[derive(Debug, Default)]
struct Subdirectory {
    /// True if its own name is on disk for certain.
    is_synced: bool,
    /// Objects that are deleted unless something names them.
    candidates: HashSet<Digest>,
}

impl Store {
    /// Opens the store at `root`, which is created with the first object. Removes the unfinished files of an earlier
    /// owner, so there must be only one owner at a time. Blocks.
    pub fn open(root: impl Into<PathBuf>) -> Self {
        let root = root.into();
        // Errors are ignored: a missing or read-only store reports them with the first object.
        drop(fs::remove_dir_all(root.join(UNFINISHED)));
        Self {
            root,
            temporaries: AtomicU64::new(0),
            directories: Box::new(std::array::from_fn(|_| Mutex::default())),
            has_candidates: AtomicBool::new(false),
            named: Mutex::default(),
        }
    }

    /// Stores `bytes`; they are on disk when this returns. Blocks.
    pub fn put(&self, bytes: &[u8]) -> Result<Digest, Error> {
        Ok(self.put_written(|out| out.write_all(bytes))?.0)
    }

    /// Stores the bytes that `write` writes, which must be the same in each call. They are on disk when this returns.
    /// Returns their digest and number. Blocks.
    pub fn put_written(
        &self,
        write: impl Fn(&mut dyn io::Write) -> io::Result<()>,
    ) -> Result<(Digest, u64), Error> {
        let failed = |digest| move |source| Error::Store { digest, source };
        let mut named = BufWriter::with_capacity(PIECE, self.searching_writer());
        let named = write(&mut named).and_then(|()| Ok(named.into_inner()?));
        let (digest, bytes) = named.map_err(failed(Digest::default()))?.name();
        self.write(digest, &write).map_err(failed(digest))?;
        Ok((digest, bytes))
    }

    /// Verifies the bytes named `digest`, and then passes them to `read`, a piece at a time. Blocks.
    pub fn read<T>(
        &self,
        digest: &Digest,
        read: impl FnOnce(&mut dyn io::BufRead) -> T,
    ) -> Result<T, Error> {
        let failed = |source| Error::Read {
            digest: *digest,
            source,
        };
        let mut file = File::open(self.path(digest)).map_err(failed)?;
        let found = digest_of_file(&mut file).map_err(failed)?;
        if found != *digest {
            let digest = *digest;
            return Err(Error::Damaged { digest, found });
        }
        file.rewind().map_err(failed)?;
        Ok(read(&mut BufReader::with_capacity(PIECE, file)))
    }

    /// Reads and verifies the bytes named `digest`. Blocks.
    pub fn get(&self, digest: &Digest) -> Result<Vec<u8>, Error> {
        let bytes = fs::read(self.path(digest)).map_err(|source| Error::Read {
            digest: *digest,
            source,
        })?;
        let found = Digest::of(&bytes);
        if found == *digest {
            Ok(bytes)
        } else {
            Err(Error::Damaged {
                digest: *digest,
                found,
            })
        }
    }

    fn path(&self, digest: &Digest) -> PathBuf {
        let name = digest.to_string();
        self.root.join(&name[..2]).join(name)
    }

    fn directory(&self, digest: &Digest) -> MutexGuard<'_, Subdirectory> {
        lock(&self.directories[usize::from(digest.as_bytes()[0])])
    }

    fn write(&self, digest: Digest, write: &Write<'_>) -> io::Result<()> {
        let path = self.path(&digest);
        let directory = path.parent().expect("an object is in a directory");
        let mut known = self.directory(&digest);
        known.candidates.remove(&digest);
        match File::open(&path).and_then(|mut file| Ok((digest_of_file(&mut file)?, file))) {
            // It may have been written by a process that died before its sync.
            Ok((there, file)) if there == digest => file.sync_all()?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                if !directory.is_dir() {
                    known.is_synced = false;
                    fs::create_dir_all(directory)?;
                }
                let name = digest.to_string();
                let directory = Dir::follow(directory)?;
                let file = self.draft(write)?.rename_into(&directory, &name)?;
                if let Err(error) = file.sync_all() {
                    // After a failed sync the system drops the data, and reports no error the next time.
                    drop(directory.remove(&name));
                    return Err(error);
                }
            }
            // The log may name it: the damaged file is replaced only by one that is completely on disk.
            Ok(_) | Err(_) => {
                let draft = self.draft(write)?;
                draft.sync()?;
                draft.rename_into(&Dir::follow(directory)?, &digest.to_string())?;
            }
        }
        sync(directory)?;
        if !known.is_synced {
            sync(&self.root)?;
            self.root.parent().map_or(Ok(()), sync)?;
            known.is_synced = true;
        }
        Ok(())
    }

    /// Writes a file that has no name of an object yet.
    fn draft(&self, write: &Write<'_>) -> io::Result<Draft<Dir>> {
        let unfinished = self.root.join(UNFINISHED);
        fs::create_dir_all(&unfinished)?;
        let number = self.temporaries.fetch_add(1, Ordering::Relaxed);
        let mut draft = Draft::new(Dir::follow(&unfinished)?, number.to_string())?;
        let mut out = BufWriter::with_capacity(PIECE, &mut draft.file);
        write(&mut out)?;
        out.flush()?;
        drop(out);
        Ok(draft)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Makes the names in `directory` survive a power cut.
fn sync(directory: &Path) -> io::Result<()> {
    Dir::follow(directory)?.sync()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn object_is_read_back_by_digest() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path().join("objects"));
        let digest = store.put(b"abc").unwrap();
        assert_eq!(store.put(b"abc").unwrap(), digest);
        assert_eq!(store.get(&digest).unwrap(), b"abc");
        assert_eq!(digest, Digest::of(b"abc"));
    }

    #[test]
    fn failed_put_leaves_no_file() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path().join("objects"));
        let digest = Digest::of(b"abc");
        fs::create_dir_all(store.path(&digest)).unwrap();
        assert!(matches!(store.put(b"abc"), Err(Error::Store { .. })));
        let left = fs::read_dir(store.root.join(UNFINISHED)).unwrap();
        assert_eq!(left.count(), 0);
        fs::remove_dir(store.path(&digest)).unwrap();
        store.put(b"abc").unwrap();
        assert_eq!(store.get(&digest).unwrap(), b"abc");
    }

    #[test]
    fn put_recreates_missing_directory() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path().join("objects"));
        for root in [dir.path().join("objects/ba"), dir.path().join("objects")] {
            let digest = store.put(b"abc").unwrap();
            assert!(store.directory(&digest).is_synced);
            fs::remove_dir_all(&root).unwrap();
            assert!(matches!(store.get(&digest), Err(Error::Read { .. })));
        }
        let digest = store.put(b"abc").unwrap();
        assert_eq!(store.get(&digest).unwrap(), b"abc");
    }

    #[test]
    fn open_removes_unfinished_objects() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("objects");
        let digest = Store::open(&root).put(b"abc").unwrap();
        fs::write(root.join(UNFINISHED).join("7"), b"half").unwrap();
        let store = Store::open(&root);
        assert!(!root.join(UNFINISHED).join("7").exists());
        assert_eq!(store.get(&digest).unwrap(), b"abc");
    }

    #[test]
    fn put_replaces_truncated_object() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path().join("objects"));
        let digest = store.put(b"abc").unwrap();
        for cut in [&b""[..], b"ab"] {
            fs::write(store.path(&digest), cut).unwrap();
            assert!(matches!(store.get(&digest), Err(Error::Damaged { .. })));
            assert_eq!(store.put(b"abc").unwrap(), digest);
            assert_eq!(store.get(&digest).unwrap(), b"abc");
        }
    }

    #[test]
    fn full_disk_or_quota_is_exhausted() {
        for (kind, means) in [
            (io::ErrorKind::StorageFull, ErrorKind::Exhausted),
            (io::ErrorKind::QuotaExceeded, ErrorKind::Exhausted),
            (io::ErrorKind::NotADirectory, ErrorKind::Unavailable),
        ] {
            let (digest, source) = (Digest::default(), kind.into());
            assert_eq!(Error::Store { digest, source }.kind(), means, "{kind}");
        }
    }

    #[test]
    fn damaged_or_missing_object_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path().join("objects"));
        let digest = store.put(b"abc").unwrap();
        fs::write(store.path(&digest), b"abd").unwrap();
        assert!(matches!(store.get(&digest), Err(Error::Damaged { .. })));
        store.put(b"abc").unwrap();
        assert_eq!(store.get(&digest).unwrap(), b"abc");
        let other = Digest::of(b"other");
        assert!(matches!(store.get(&other), Err(Error::Read { .. })));
    }
}
