//! Crash suspects: a small file that shows which runs were computed when the daemon was killed.
//!
//! A run whose own step crashes the daemon crashes it again after every start. It has to be distinguished from other
//! runs that wait for a tool, a model, a person or a time. The log cannot show it, because the last step is not in the
//! log. So each run is entered in `<state>/acting` while the daemon computes it. The file is mapped into memory: an
//! entry takes two stores and no system call, and the kernel keeps the page however the process is killed.
//!
//! **Owns** the file. **Never** decides the consequences for a run in it. **Order.** A task is entered while it is
//! polled, and work that it passes to another thread ([`carried`]) while that executes it; not while they wait. Several
//! runs are computed at the same time, so an innocent run may be entered next to the one at fault. So several such
//! deaths are needed before a run is treated as the cause ([`rye_core::model::Death`]), and none counts that came from
//! outside according to the parent process. Entries of the previous process are kept until each run is settled
//! ([`Suspects::settle`]), so that a daemon that dies during its start loses none. **Failure.** Without the file no run
//! is ever suspected, and that is logged. After a crash of the machine the file has the state of the last write-back by
//! the kernel, which is accurate enough.
#![expect(unsafe_code, reason = "shared memory of a file")]

use std::cell::RefCell;
use std::collections::{BTreeMap, HashSet};
use std::fmt;
use std::fs::{self, File};
use std::future::Future;
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use memmap2::MmapMut;
use rye_core::error::with_sources;
use rye_core::id::RunId;
use rye_core::model::Death;
use rye_core::seal::sha256;

/// Number of entries; further runs are computed without one.
const MAX_ENTRIES: usize = 512;
/// Number of entries in a cache line of the processor: threads begin their search in different lines.
const APART: usize = 8;
/// Bit in an entry of the previous process: that process died by a fault of the daemon.
const FAULT: u64 = 1;
const WIDTH: usize = size_of::<u64>();

/// The crash suspects, by a hash of their names; 0 is an empty entry.
pub struct Suspects {
    /// The unsettled entries of previous processes, followed by those of runs that are computed now.
    map: Option<MmapMut>,
}

/// The two halves of the file.
struct MappedHalves<'a> {
    before: &'a [AtomicU64],
    now: &'a [AtomicU64],
}

/// Enters one run in the file while it is computed.
#[derive(Clone)]
pub struct SuspectHandle {
    suspects: Arc<Suspects>,
    name: u64,
}

thread_local! {
    /// The run that this thread computes.
    static CURRENT: RefCell<Option<SuspectHandle>> = const { RefCell::new(None) };
    /// Index at which this thread begins to search for an empty entry.
    static FIRST: usize = {
        static THREADS: AtomicUsize = AtomicUsize::new(0);
        THREADS.fetch_add(APART, Ordering::Relaxed) % MAX_ENTRIES
    };
}

impl Suspects {
    /// Opens the file in the state directory `dir`. Keeps the entries of the previous process, which ended by `death`,
    /// for runs in `live`. It keeps no new ones if the process was killed from outside.
    pub fn open<'a>(dir: &Path, live: impl IntoIterator<Item = &'a RunId>, death: Death) -> Self {
        let map = map(&dir.join("acting"));
        if let Err(error) = &map {
            tracing::warn!(error = %with_sources(error), "nobody is suspected when a run brings the daemon down");
        }
        let board = Self { map: map.ok() };
        board.rotate(live, death);
        board
    }

    /// Moves the entries of the previous process to the unsettled ones.
    fn rotate<'a>(&self, live: impl IntoIterator<Item = &'a RunId>, death: Death) {
        let Some(sheet) = self.halves() else { return };
        let live: HashSet<u64> = live.into_iter().map(|run| hash(run.as_str())).collect();
        let load = |name: &AtomicU64| name.load(Ordering::SeqCst);
        let mut kept: BTreeMap<u64, u64> = BTreeMap::new();
        let before = sheet.before.iter().map(load);
        let now = sheet.now.iter().map(load);
        let now = now.filter_map(|name| match death {
            Death::Unknown => Some(name),
            Death::Fault => Some(name | FAULT),
            Death::Outside => None,
        });
        for name in before.chain(now) {
            if live.contains(&(name & !FAULT)) {
                *kept.entry(name & !FAULT).or_default() |= name;
            }
        }
        // Kept first, then cleared: after a kill in between they are in both halves.
        let kept = kept.into_values().chain(std::iter::repeat(0));
        for (place, name) in sheet.before.iter().zip(kept) {
            place.store(name, Ordering::SeqCst);
        }
        for place in sheet.now {
            place.store(0, Ordering::SeqCst);
        }
    }

    /// Returns how an earlier process of the daemon died while it computed `run`, if it did and that is not settled.
    pub fn death_in(&self, run: &RunId) -> Option<Death> {
        let name = hash(run.as_str());
        let before = self.halves()?.before.iter();
        let mut before = before.map(|place| place.load(Ordering::Relaxed));
        let found = before.find(|found| found & !FAULT == name)?;
        Some(if found & FAULT == 0 {
            Death::Unknown
        } else {
            Death::Fault
        })
    }

    /// Removes the unsettled entry of `run`, after its consequences are on record.
    pub fn settle(&self, run: &RunId) {
        let name = hash(run.as_str());
        for place in self
            .halves()
            .map(|sheet| sheet.before)
            .into_iter()
            .flatten()
        {
            for name in [name, name | FAULT] {
                // Only this name may be removed; no other thread writes it there.
                let _held = place.compare_exchange(name, 0, Ordering::Relaxed, Ordering::Relaxed);
            }
        }
    }

    /// Returns the handle that enters `run` while it is computed.
    pub fn handle(self: &Arc<Self>, run: &RunId) -> SuspectHandle {
        SuspectHandle {
            suspects: Arc::clone(self),
            name: hash(run.as_str()),
        }
    }

    fn halves(&self) -> Option<MappedHalves<'_>> {
        let map = self.map.as_ref()?;
        #[expect(clippy::cast_ptr_alignment, reason = "a map begins at a page")]
        let first = map.as_ptr().cast::<u64>().cast_mut();
        // SAFETY: the map has this length, begins at a page, lives as long as the slice, and is accessed only through
        // atomics.
        let places =
            unsafe { std::slice::from_raw_parts(first.cast::<AtomicU64>(), 2 * MAX_ENTRIES) };
        let (before, now) = places.split_at(MAX_ENTRIES);
        Some(MappedHalves { before, now })
    }
}

impl fmt::Debug for Suspects {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Suspects")
            .field("mapped", &self.map.is_some())
            .finish()
    }
}

impl fmt::Debug for SuspectHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Actor").field(&self.name).finish()
    }
}

impl SuspectHandle {
    /// Returns `task`, which is entered while it is polled.
    pub fn entered<F: Future>(self, task: F) -> impl Future<Output = F::Output> {
        let mut task = Box::pin(task);
        std::future::poll_fn(move |context| {
            let _standing = self.clone().enter();
            task.as_mut().poll(context)
        })
    }

    /// Enters the run for this thread until the result is dropped.
    fn enter(self) -> EntryGuard {
        let now = self.suspects.halves().map(|sheet| sheet.now);
        let place = now.and_then(|now| take(now, self.name));
        let before = CURRENT.replace(Some(self));
        EntryGuard {
            entry: place,
            before,
        }
    }
}

/// Claims the first empty one of `places` for `name`, and returns its index.
fn take(places: &[AtomicU64], name: u64) -> Option<usize> {
    let first = FIRST.with(|first| *first);
    let mut order = (first..places.len()).chain(0..first);
    order.find(|place| {
        let place = &places[*place];
        place.load(Ordering::Relaxed) == 0
            && place
                .compare_exchange(0, name, Ordering::SeqCst, Ordering::Relaxed)
                .is_ok()
    })
}

/// The entry of the run that a thread computes. Dropping it clears the entry.
struct EntryGuard {
    entry: Option<usize>,
    /// The run that the thread computed before.
    before: Option<SuspectHandle>,
}

impl Drop for EntryGuard {
    fn drop(&mut self) {
        let actor = CURRENT.replace(self.before.take());
        let sheet = actor.as_ref().and_then(|actor| actor.suspects.halves());
        if let (Some(place), Some(sheet)) = (self.entry, sheet) {
            sheet.now[place].store(0, Ordering::Release);
        }
    }
}

/// Returns `work` for another thread. It is entered there for the run that this thread computes now.
pub fn carried<T>(work: impl FnOnce() -> T) -> impl FnOnce() -> T {
    let actor = CURRENT.with_borrow(Clone::clone);
    move || {
        let _standing = actor.map(SuspectHandle::enter);
        work()
    }
}

/// Returns the hash of a name: never 0, the same in every process, and without [`FAULT`].
fn hash(name: &str) -> u64 {
    let digest = sha256(name);
    let first = digest.first_chunk().copied().unwrap_or_default();
    (u64::from_be_bytes(first) & !FAULT).max(FAULT << 1)
}

fn map(path: &Path) -> io::Result<MmapMut> {
    let mut options = File::options();
    let options = options.read(true).write(true).create(true).truncate(false);
    let file = options.mode(0o600).open(path)?;
    let length = 2 * MAX_ENTRIES * WIDTH;
    let bytes = libc::off_t::try_from(length).map_err(io::Error::other)?;
    // A store to a page for which the disk has no space would kill the process.
    nix::fcntl::posix_fallocate(&file, 0, bytes)?;
    if file.metadata()?.len() != u64::try_from(length).map_err(io::Error::other)? {
        fs::remove_file(path)?;
        return Err(io::Error::other("the file `acting` has an unknown form"));
    }
    // SAFETY: the state directory is locked, so no process of ryed truncates the file.
    let map = unsafe { memmap2::MmapOptions::new().len(length).map_mut(&file) }?;
    // Reading an evicted page again could fail, and would kill the process. Most hosts allow locking two pages.
    if let Err(error) = map.lock() {
        tracing::debug!(%error, "the file `acting` is not locked into memory");
    }
    Ok(map)
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use futures_util::FutureExt as _;

    use super::*;

    fn run(name: &str) -> RunId {
        RunId::new(name).unwrap()
    }

    fn open(dir: &Path, live: &[RunId]) -> Arc<Suspects> {
        Arc::new(Suspects::open(dir, live, Death::Unknown))
    }

    #[tokio::test]
    async fn crash_suspects_are_computing_runs_not_waiting_ones() {
        let dir = tempfile::tempdir().unwrap();
        let live = ["computes", "hands-on", "waits", "is-done"].map(run);
        let board = open(dir.path(), &live);
        let [computes, hands_on, waits, is_done] = &live;
        board.handle(is_done).entered(async {}).await;
        let mut waiting = Box::pin(board.handle(waits).entered(std::future::pending::<()>()));
        assert!(waiting.as_mut().now_or_never().is_none());
        let (begun, begins) = mpsc::channel();
        let (release, held) = mpsc::channel::<()>();
        let task = async {
            let work = carried(move || {
                begun.send(()).unwrap();
                held.recv().unwrap_err();
            });
            crate::task::worker("computes", work)
        };
        let thread = board.handle(hands_on).entered(task).await;
        begins.recv().unwrap();
        let next = board.handle(computes).entered(async {
            // The state after a kill at this instant.
            let copy = tempfile::tempdir().unwrap();
            fs::copy(dir.path().join("acting"), copy.path().join("acting")).unwrap();
            copy
        });
        let next = next.await;
        drop(release);
        thread.join().unwrap();

        let suspected = |board: &Suspects| {
            let is_suspected = |run| board.death_in(run).is_some();
            live.each_ref().map(is_suspected)
        };
        let board = open(next.path(), &live);
        assert_eq!(suspected(&board), [true, true, false, false]);
        // A process that dies before it has settled any run loses no entry. Settled and ended runs are removed.
        drop(board);
        let board = open(next.path(), &live);
        assert_eq!(suspected(&board), [true, true, false, false]);
        board.settle(computes);
        assert_eq!(suspected(&board), [false, true, false, false]);
        drop(board);
        let board = open(next.path(), &live);
        assert_eq!(suspected(&board), [false, true, false, false]);
        drop(board);
        let board = open(next.path(), &live[..1]);
        assert_eq!(suspected(&board), [false; 4]);
    }

    #[test]
    fn crash_suspect_keeps_its_death_until_settled() {
        let dir = tempfile::tempdir().unwrap();
        let live = ["first", "second", "third"].map(run);
        let [first, second, third] = &live;
        // Leaves the entry of `run`, as a death would.
        let computes =
            |board: &Arc<Suspects>, run: &RunId| std::mem::forget(board.handle(run).enter());
        let deaths = |board: &Suspects| live.each_ref().map(|run| board.death_in(run));
        computes(&open(dir.path(), &live), first);
        let board = Arc::new(Suspects::open(dir.path(), &live, Death::Fault));
        assert_eq!(deaths(&board), [Some(Death::Fault), None, None]);
        computes(&board, second);
        let board = Arc::new(Suspects::open(dir.path(), &live, Death::Outside));
        assert_eq!(deaths(&board), [Some(Death::Fault), None, None]);
        computes(&board, third);
        let board = Arc::new(Suspects::open(dir.path(), &live, Death::Unknown));
        let unknown = Some(Death::Unknown);
        assert_eq!(deaths(&board), [Some(Death::Fault), None, unknown]);
        board.settle(first);
        assert_eq!(deaths(&board), [None, None, unknown]);
    }

    #[test]
    fn crash_suspects_work_without_their_file() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("acting")).unwrap();
        let one = run("one");
        let board = open(dir.path(), std::slice::from_ref(&one));
        drop(board.handle(&one).enter());
        assert_eq!(board.death_in(&one), None);
    }

    #[test]
    fn crash_suspects_skip_runs_beyond_capacity() {
        let dir = tempfile::tempdir().unwrap();
        let board = open(dir.path(), &[]);
        let mut held: Vec<_> = (0..=MAX_ENTRIES)
            .map(|n| board.handle(&run(&format!("r{n}"))).enter())
            .collect();
        assert_eq!(
            held.iter()
                .filter(|standing| standing.entry.is_none())
                .count(),
            1
        );
        while held.pop().is_some() {}
        let now = board.halves().unwrap().now;
        assert!(now.iter().all(|place| place.load(Ordering::Relaxed) == 0));
    }
}
