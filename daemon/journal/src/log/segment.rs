//! Segment files: `<state>/log/<id>.seg`. A file is zeroed and synced at its full length before its first frame, so
//! that a sync of the log never waits for the file system to allocate. It ends with a trailer that no frame overwrites.
//! A segment without the trailer was cut, and frames that it lost may have been acknowledged.
//!
//! **Owns** the pool of prepared files (`spare-<n>.ready`). It keeps two: the next segment, and one that is reserved
//! for endings when the disk is full. **Never** touches a file that holds frames. **Crashes.** A file enters the pool
//! by a rename after its sync and leaves it by a rename before its first byte. So a crash leaves only whole files and
//! `.tmp` files, which the next open removes. **Failure** to prepare a file is not final: [`Storage::Full`] is
//! announced and preparation is retried.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Condvar, Mutex};
use std::time::Duration;

use rye_core::frame::SegmentId;
use rye_host::safe_path::{Dir, Draft};
use tokio::sync::watch;

use crate::faults::Faults;
use crate::watermark::{POISON, lock};

/// Converts a length in memory to a length in a file.
pub(crate) fn size(length: usize) -> u64 {
    u64::try_from(length).expect("a length in memory fits 64 bits")
}

/// Number of prepared files that are kept: the next segment, and one for endings.
const KEPT: usize = 2;
/// Pause between attempts while the disk is full.
const RETRY: Duration = Duration::from_secs(1);

/// Trailer of each segment file, after its capacity.
pub(crate) const TRAILER: &[u8] = b"rye log segment\n";

/// State of the storage of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Storage {
    Ok,
    /// No further segment could be prepared, or history has not been written for so long that the log holds many
    /// segments. New work is refused; runs may still end or be suspended.
    Full,
}

/// An open segment file.
#[derive(Debug)]
pub(crate) struct Segment {
    pub(crate) id: SegmentId,
    pub(crate) file: File,
    /// Bytes for frames, zeroed before the first frame.
    pub(crate) capacity: u64,
}

pub(crate) fn path(dir: &Path, id: SegmentId) -> PathBuf {
    dir.join(format!("{:016x}.seg", id.0))
}

/// Lists the segments in `dir`, ordered by id.
pub(crate) fn list(dir: &Path) -> io::Result<Vec<SegmentId>> {
    let mut ids = Vec::new();
    for entry in fs::read_dir(dir)? {
        let name = entry?.file_name();
        let id = name
            .to_str()
            .and_then(|name| name.strip_suffix(".seg"))
            .and_then(|stem| u64::from_str_radix(stem, 16).ok());
        ids.extend(id.map(SegmentId));
    }
    ids.sort_unstable();
    Ok(ids)
}

pub(crate) fn sync_dir(dir: &Path) -> io::Result<()> {
    Dir::follow(dir)?.sync()
}

#[derive(Debug)]
pub(crate) struct Pool {
    dir: PathBuf,
    segment_bytes: u64,
    stock: Mutex<Stock>,
    changed: Condvar,
    storage: watch::Sender<Storage>,
    faults: Faults,
}

#[derive(Debug, Default)]
struct Stock {
    files: Vec<PathBuf>,
    made: u64,
    full: bool,
    /// True if the log holds too many segments that history lacks.
    has_unsealed_backlog: bool,
    stopped: bool,
}

impl Pool {
    /// Opens the pool in `dir` with the prepared files of an earlier process.
    pub(crate) fn open(dir: &Path, segment_bytes: u64, faults: Faults) -> io::Result<Self> {
        let mut stock = Stock::default();
        for entry in fs::read_dir(dir)? {
            let entry = entry?;
            let path = entry.path();
            let part = |part: Option<&std::ffi::OsStr>| {
                part.and_then(|part| part.to_str()).map(str::to_owned)
            };
            let number = part(path.file_stem())
                .and_then(|stem| stem.strip_prefix("spare-")?.parse::<u64>().ok());
            match (number, part(path.extension()).as_deref()) {
                (_, Some("tmp")) => fs::remove_file(path)?,
                (Some(number), Some("ready")) => {
                    stock.made = stock.made.max(number);
                    if entry.metadata()?.len() == segment_bytes + size(TRAILER.len()) {
                        stock.files.push(path);
                    } else {
                        fs::remove_file(path)?;
                    }
                }
                _ => {}
            }
        }
        Ok(Self {
            dir: dir.to_owned(),
            segment_bytes,
            stock: Mutex::new(stock),
            changed: Condvar::new(),
            storage: watch::Sender::new(Storage::Ok),
            faults,
        })
    }

    pub(crate) fn storage(&self) -> &watch::Sender<Storage> {
        &self.storage
    }

    /// Ends [`Pool::maintain`] and the waits in [`Pool::take`].
    pub(crate) fn stop(&self) {
        lock(&self.stock).stopped = true;
        self.changed.notify_all();
    }

    /// Keeps the pool filled until [`Pool::stop`]. The body of the preparer thread.
    pub(crate) fn maintain(&self) {
        let mut stock = lock(&self.stock);
        while !stock.stopped {
            if stock.files.len() >= KEPT {
                stock = self.changed.wait(stock).expect(POISON);
                continue;
            }
            stock.made += 1;
            let number = stock.made;
            drop(stock);
            let prepared = self.prepare(number, self.segment_bytes);
            stock = lock(&self.stock);
            match prepared {
                Ok(path) => {
                    stock.files.push(path);
                    self.announce(&mut stock, Storage::Ok);
                }
                Err(error) => {
                    if !stock.full {
                        tracing::warn!(%error, dir = %self.dir.display(), "no log segment could be prepared");
                    }
                    self.announce(&mut stock, Storage::Full);
                    if !stock.stopped {
                        stock = self.changed.wait_timeout(stock, RETRY).expect(POISON).0;
                    }
                }
            }
        }
    }

    /// Sets the flag that the log holds too many unsealed segments. It counts as a full disk.
    pub(crate) fn set_unsealed_backlog(&self, is_behind: bool) {
        let mut stock = lock(&self.stock);
        if stock.has_unsealed_backlog != is_behind {
            stock.has_unsealed_backlog = is_behind;
            self.publish(&stock);
        }
    }

    fn announce(&self, stock: &mut Stock, storage: Storage) {
        stock.full = storage == Storage::Full;
        self.publish(stock);
    }

    fn publish(&self, stock: &Stock) {
        let storage = if stock.full || stock.has_unsealed_backlog {
            Storage::Full
        } else {
            Storage::Ok
        };
        self.storage.send_if_modified(|told| {
            let news = *told != storage;
            *told = storage;
            news
        });
        self.changed.notify_all();
    }

    /// Creates a file of `bytes` zeros and the trailer, synced with its directory.
    fn prepare(&self, number: u64, bytes: u64) -> io::Result<PathBuf> {
        self.faults.before_prepare()?;
        let ready = format!("spare-{number}.ready");
        let zeros = vec![0_u8; 1 << 20];
        // A draft that fails is removed: it would occupy the space that is missing.
        let mut draft = Draft::new(Dir::follow(&self.dir)?, format!("spare-{number}.tmp"))?;
        let mut left = usize::try_from(bytes).map_err(io::Error::other)?;
        while left > 0 {
            let piece = left.min(zeros.len());
            draft.file.write_all(&zeros[..piece])?;
            left -= piece;
        }
        draft.file.write_all(TRAILER)?;
        draft.commit(&ready)?;
        Ok(self.dir.join(ready))
    }

    /// Returns a file for at least `bytes` and its capacity, taken from the pool or created now. It has a temporary
    /// name, and the caller renames it. Does not wait for the preparer thread.
    pub(crate) fn take_now(&self, bytes: u64) -> io::Result<(PathBuf, u64)> {
        let from_stock = if bytes <= self.segment_bytes {
            lock(&self.stock).files.pop()
        } else {
            None
        };
        self.changed.notify_all();
        let capacity = bytes.max(self.segment_bytes);
        let ready = if let Some(path) = from_stock {
            path
        } else {
            let number = {
                let mut stock = lock(&self.stock);
                stock.made += 1;
                stock.made
            };
            self.prepare(number, capacity)?
        };
        let taken = ready.with_extension("tmp");
        fs::rename(&ready, &taken)?;
        Ok((taken, capacity))
    }

    /// Returns the next segment, for a frame of `bytes`; `None` once the pool is stopped. Waits for the preparer
    /// thread. While the disk is full it uses the last file too, because then only endings are committed.
    pub(crate) fn take(&self, id: SegmentId, bytes: u64) -> io::Result<Option<Segment>> {
        if bytes <= self.segment_bytes {
            let mut stock = lock(&self.stock);
            let enough = |stock: &Stock| {
                stock.files.len() >= KEPT || (stock.full && !stock.files.is_empty())
            };
            while !enough(&stock) {
                if stock.stopped {
                    return Ok(None);
                }
                stock = self.changed.wait(stock).expect(POISON);
            }
        }
        let (taken, capacity) = self.take_now(bytes)?;
        self.install(&taken, id, capacity).map(Some)
    }

    /// Opens the segment `id` with its present content.
    pub(crate) fn reopen(&self, id: SegmentId) -> io::Result<Segment> {
        let path = path(&self.dir, id);
        let file = OpenOptions::new().read(true).write(true).open(path)?;
        let capacity = file.metadata()?.len().saturating_sub(size(TRAILER.len()));
        Ok(Segment { id, file, capacity })
    }

    /// Renames a taken file to segment `id`, which atomically replaces an older file of that id.
    pub(crate) fn install(
        &self,
        taken: &Path,
        id: SegmentId,
        capacity: u64,
    ) -> io::Result<Segment> {
        let path = path(&self.dir, id);
        fs::rename(taken, &path)?;
        sync_dir(&self.dir)?;
        let file = OpenOptions::new().read(true).write(true).open(&path)?;
        Ok(Segment { id, file, capacity })
    }
}
