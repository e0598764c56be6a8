//! Who is computing: a small file that still says so when the daemon was killed.
//!
//! A run whose own move brings the daemon down does it at every start again, and has to be told from those beside it that wait for a
//! tool, a model, a person or a time. The log cannot tell: what happened last is not in it. So whoever computes for a run stands in
//! `<state>/acting` meanwhile, which is mapped into memory: two stores and no system call, and the kernel keeps the page whatever kills us.
//!
//! **Owns** the file. **Never** decides what becomes of a run that stands there. **Order.** A task stands there while it is polled, and
//! work that it hands to another thread ([`carried`]) while that does it; not while it waits. Several compute at once, so an innocent run
//! may stand there beside the one at fault: it takes several such deaths to be held against a run ([`rye_core::model::Death`]), and none
//! counts of which the parent process says that it came from outside. What
//! the last life left is kept until each run is settled ([`Suspects::settle`]), so that a daemon that dies at its start forgets nothing.
//! **Failure.** Without the file nobody is ever suspected, and that is logged. After a crash of the machine the file says who computed when the
//! kernel last wrote it back, which is as good as any.
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

/// Who can stand there at once; more compute unseen.
const PLACES: usize = 512;
/// Places in a line of the processor's cache: threads begin to look in different ones.
const APART: usize = 8;
/// With a name of those that computed: that life ended by the daemon's own fault.
const FAULT: u64 = 1;
/// Bytes of a place.
const WIDTH: usize = size_of::<u64>();

/// Those who compute, by a hash of their names; 0 is nobody.
pub struct Suspects {
    /// Those who computed when the last life ended and are not settled, and those who compute now.
    map: Option<MmapMut>,
}

/// What stands in the file.
struct Sheet<'a> {
    before: &'a [AtomicU64],
    now: &'a [AtomicU64],
}

/// One who computes now and then.
#[derive(Clone)]
pub struct Actor {
    board: Arc<Suspects>,
    name: u64,
}

thread_local! {
    /// For whom this thread computes.
    static CURRENT: RefCell<Option<Actor>> = const { RefCell::new(None) };
    /// Where this thread begins to look for a place.
    static FIRST: usize = {
        static THREADS: AtomicUsize = AtomicUsize::new(0);
        THREADS.fetch_add(APART, Ordering::Relaxed) % PLACES
    };
}

impl Suspects {
    /// Opens the file in the state directory `dir`. Of those that computed when the last life ended, by `death`, the ones among `live` are
    /// kept; none if it was killed from outside.
    pub fn open<'a>(dir: &Path, live: impl IntoIterator<Item = &'a RunId>, death: Death) -> Self {
        let map = map(&dir.join("acting"));
        if let Err(error) = &map {
            tracing::warn!(error = %with_sources(error), "nobody is suspected when a run brings the daemon down");
        }
        let board = Self { map: map.ok() };
        board.turn(live, death);
        board
    }

    /// A new life begins.
    fn turn<'a>(&self, live: impl IntoIterator<Item = &'a RunId>, death: Death) {
        let Some(sheet) = self.sheet() else { return };
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
        // Kept first, then cleared: a kill in between finds them twice.
        let kept = kept.into_values().chain(std::iter::repeat(0));
        for (place, name) in sheet.before.iter().zip(kept) {
            place.store(name, Ordering::SeqCst);
        }
        for place in sheet.now {
            place.store(0, Ordering::SeqCst);
        }
    }

    /// How an earlier life of the daemon ended in which it computed for `run`, if there was one and that was not settled.
    pub fn death_in(&self, run: &RunId) -> Option<Death> {
        let name = hash(run.as_str());
        let before = self.sheet()?.before.iter();
        let mut before = before.map(|place| place.load(Ordering::Relaxed));
        let found = before.find(|found| found & !FAULT == name)?;
        Some(if found & FAULT == 0 {
            Death::Unknown
        } else {
            Death::Fault
        })
    }

    /// What follows for `run` from where it stood is on record.
    pub fn settle(&self, run: &RunId) {
        let name = hash(run.as_str());
        for place in self.sheet().map(|sheet| sheet.before).into_iter().flatten() {
            for name in [name, name | FAULT] {
                // Nobody else writes that name there; another one stays.
                let _held = place.compare_exchange(name, 0, Ordering::Relaxed, Ordering::Relaxed);
            }
        }
    }

    /// The one that computes for `run`.
    pub fn actor(self: &Arc<Self>, run: &RunId) -> Actor {
        Actor {
            board: Arc::clone(self),
            name: hash(run.as_str()),
        }
    }

    fn sheet(&self) -> Option<Sheet<'_>> {
        let map = self.map.as_ref()?;
        #[expect(clippy::cast_ptr_alignment, reason = "a map begins at a page")]
        let first = map.as_ptr().cast::<u64>().cast_mut();
        // SAFETY: the map has this length, begins at a page, lives as long as the slice, and is only ever reached through atomics.
        let places = unsafe { std::slice::from_raw_parts(first.cast::<AtomicU64>(), 2 * PLACES) };
        let (before, now) = places.split_at(PLACES);
        Some(Sheet { before, now })
    }
}

impl fmt::Debug for Suspects {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Suspects")
            .field("mapped", &self.map.is_some())
            .finish()
    }
}

impl fmt::Debug for Actor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Actor").field(&self.name).finish()
    }
}

impl Actor {
    /// `task`, which stands on the board while it is polled.
    pub fn runs<F: Future>(self, task: F) -> impl Future<Output = F::Output> {
        let mut task = Box::pin(task);
        std::future::poll_fn(move |context| {
            let _standing = self.clone().stand();
            task.as_mut().poll(context)
        })
    }

    /// From now on this thread computes for it.
    fn stand(self) -> Standing {
        let now = self.board.sheet().map(|sheet| sheet.now);
        let place = now.and_then(|now| take(now, self.name));
        let before = CURRENT.replace(Some(self));
        Standing { place, before }
    }
}

/// The first free one of `places`, which is `name`'s from now on.
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

/// A thread computes for somebody, until this is dropped.
struct Standing {
    place: Option<usize>,
    /// For whom it did before.
    before: Option<Actor>,
}

impl Drop for Standing {
    fn drop(&mut self) {
        let actor = CURRENT.replace(self.before.take());
        let sheet = actor.as_ref().and_then(|actor| actor.board.sheet());
        if let (Some(place), Some(sheet)) = (self.place, sheet) {
            sheet.now[place].store(0, Ordering::Release);
        }
    }
}

/// `work` for another thread, which computes there for whom this thread computes now.
pub fn carried<T>(work: impl FnOnce() -> T) -> impl FnOnce() -> T {
    let actor = CURRENT.with_borrow(Clone::clone);
    move || {
        let _standing = actor.map(Actor::stand);
        work()
    }
}

/// Never 0, the same in every life, and without [`FAULT`].
fn hash(name: &str) -> u64 {
    let digest = sha256(name);
    let first = digest.first_chunk().copied().unwrap_or_default();
    (u64::from_be_bytes(first) & !FAULT).max(FAULT << 1)
}

fn map(path: &Path) -> io::Result<MmapMut> {
    let mut options = File::options();
    let options = options.read(true).write(true).create(true).truncate(false);
    let file = options.mode(0o600).open(path)?;
    let length = 2 * PLACES * WIDTH;
    let bytes = libc::off_t::try_from(length).map_err(io::Error::other)?;
    // A store to a page that the disk has no space for would end us.
    nix::fcntl::posix_fallocate(&file, 0, bytes)?;
    if file.metadata()?.len() != u64::try_from(length).map_err(io::Error::other)? {
        fs::remove_file(path)?;
        return Err(io::Error::other("the file `acting` has an unknown form"));
    }
    // SAFETY: the state directory is locked, so nobody of ours truncates the file.
    let map = unsafe { memmap2::MmapOptions::new().len(length).map_mut(&file) }?;
    // Read from the disk again it could fail, and that would end us; most hosts let us lock two pages.
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
    async fn who_computes_when_the_life_ends_is_known_and_who_waits_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let live = ["computes", "hands-on", "waits", "is-done"].map(run);
        let board = open(dir.path(), &live);
        let [computes, hands_on, waits, is_done] = &live;
        board.actor(is_done).runs(async {}).await;
        let mut waiting = Box::pin(board.actor(waits).runs(std::future::pending::<()>()));
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
        let thread = board.actor(hands_on).runs(task).await;
        begins.recv().unwrap();
        let next = board.actor(computes).runs(async {
            // As a kill at this instant would leave it.
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
        // A life that ends before it settled anything forgets nothing; what is settled, or over, is forgotten.
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
    fn a_run_is_suspected_by_the_death_in_which_it_computed_until_that_is_settled() {
        let dir = tempfile::tempdir().unwrap();
        let live = ["first", "second", "third"].map(run);
        let [first, second, third] = &live;
        // Leaves `run` on the board, as a death would.
        let computes =
            |board: &Arc<Suspects>, run: &RunId| std::mem::forget(board.actor(run).stand());
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
    fn a_file_that_cannot_be_used_hinders_nobody() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("acting")).unwrap();
        let one = run("one");
        let board = open(dir.path(), std::slice::from_ref(&one));
        drop(board.actor(&one).stand());
        assert_eq!(board.death_in(&one), None);
    }

    #[test]
    fn who_finds_no_place_computes_unseen() {
        let dir = tempfile::tempdir().unwrap();
        let board = open(dir.path(), &[]);
        let mut held: Vec<_> = (0..=PLACES)
            .map(|n| board.actor(&run(&format!("r{n}"))).stand())
            .collect();
        assert_eq!(
            held.iter()
                .filter(|standing| standing.place.is_none())
                .count(),
            1
        );
        while held.pop().is_some() {}
        let now = board.sheet().unwrap().now;
        assert!(now.iter().all(|place| place.load(Ordering::Relaxed) == 0));
    }
}
