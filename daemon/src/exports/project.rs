//! Exports of the runs of one project: its state, and the work of its thread.
//!
//! **Owns** the open files of the project, and the derived state of the runs that are not suspended or ended. The state
//! remains when the thread ends. **Never** works for two projects, and never holds a lock during file access.
//! **Order**: queued runs first, then scans. **Failure**: a missing project is skipped and counted; the queue retries
//! after other errors.

use std::collections::HashMap;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use rye_core::error::with_sources;
use rye_core::id::{Lsn, Name, RunId};
use rye_core::model::{DirectoryIdentity, Spec};
use tokio::sync::oneshot;

use super::common::{Change, Rebuilt, Shared, Trouble, Writes};
use super::made::Outlines;
use super::queue::{Queue, Turn};
use super::removal;
use super::run::{Context, Progress, RunFiles};
use rye_host::safe_path::Dir;
use rye_host::task;
use rye_journal::{ExportSource, Touch, TouchKind, Touched};

/// Maximum duration of a turn; the run in progress may exceed it.
const PIECE: Duration = Duration::from_millis(10);
/// Interval between checks of the identity of the project's directory.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Maximum number of open runs of a project.
const MAX_OPEN: usize = 64;
/// Maximum number of open runs of all projects, besides the one that each works on.
const MAX_OPEN_IN_ALL: usize = 256;

#[derive(Debug)]
pub(super) struct Project {
    pub(super) shared: Arc<Shared>,
    files: Name,
    pub(super) queue: Arc<Queue>,
    root: Option<Root>,
    runs: HashMap<RunId, RunFiles>,
    /// Open runs, the most recently used last.
    used: Vec<RunId>,
    outlines: Outlines,
    scans: Vec<Scan>,
    /// True if it was reported that the project is missing or its files cannot be written.
    is_reported: bool,
    /// Number of runs skipped since the project was last present.
    passed_over: u64,
}

/// The `files` directory of a project.
#[derive(Debug)]
struct Root {
    dir: Dir,
    /// Identity of the project; `None` if its `files` are not below it.
    project: Option<DirectoryIdentity>,
    checked: Instant,
}

/// Scan of history for changed runs.
#[derive(Debug)]
struct Scan {
    touched: Touched,
    /// Last position of the range.
    upto: Lsn,
    /// Callers that wait for a rebuild, which compares all files, and its result so far.
    rebuild: Option<(Vec<oneshot::Sender<Rebuilt>>, Rebuilt)>,
    /// A run in progress.
    current: Option<Touch>,
    /// True if the current run has had a turn.
    is_begun: bool,
}

impl Project {
    pub(super) fn new(shared: Arc<Shared>, files: Name, queue: Arc<Queue>) -> Self {
        Self {
            shared,
            files,
            queue,
            root: None,
            runs: HashMap::new(),
            used: Vec::new(),
            outlines: Outlines::default(),
            scans: Vec::new(),
            is_reported: false,
            passed_over: 0,
        }
    }

    pub(super) const fn files(&self) -> &Name {
        &self.files
    }

    pub(super) fn queue(&self) -> &Queue {
        &self.queue
    }

    /// True if it holds no state that a later thread would need.
    pub(super) fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// Closes all descriptors.
    pub(super) fn close(&mut self) {
        for run in self.used.drain(..) {
            if let Some(files) = self.runs.get_mut(&run) {
                files.close();
            }
            self.shared.open.fetch_sub(1, Ordering::Relaxed);
        }
        self.root = None;
    }

    /// Works until the turn is over. Blocks.
    pub(super) fn turn(&mut self) {
        self.shared.faults.before_files(&self.files);
        let until = Instant::now() + PIECE;
        self.begin_scans();
        loop {
            let worked = match self.queue.next() {
                Some(turn) => {
                    self.work(&turn, until);
                    true
                }
                None => self.scan(until),
            };
            if !worked || Instant::now() >= until {
                return;
            }
        }
    }

    fn work(&mut self, turn: &Turn, until: Instant) {
        if let Some(item) = &turn.removed {
            match self.remove(&turn.run, item) {
                Err(trouble) if self.is_passing(&turn.run, &trouble) => self.queue.failed(turn),
                Ok(()) | Err(_) => self.queue.done(turn),
            }
            return;
        }
        match self.advance(&turn.run, until, false) {
            Ok(Progress::Rested) => {
                self.forget(&turn.run);
                self.queue.done(turn);
            }
            Ok(Progress::Done) => self.queue.done(turn),
            Ok(Progress::Due(due)) => self.queue.later(turn, due),
            Ok(Progress::More) => self.queue.later(turn, Instant::now()),
            Err(trouble) => {
                self.forget(&turn.run);
                if self.is_passing(&turn.run, &trouble) {
                    self.queue.failed(turn);
                } else {
                    self.queue.done(turn);
                }
            }
        }
    }

    /// Removes the files of a removed run.
    fn remove(&mut self, run: &RunId, item: &str) -> Result<(), Trouble> {
        self.forget(run);
        let root = Root::of(Path::new(&*self.files), Path::new(&*self.files));
        let root = root.map_err(Root::trouble)?;
        let writes = Writes {
            faults: &self.shared.faults,
            files: &self.files,
        };
        Ok(removal::remove(&root.dir, run, item, &writes)?)
    }

    /// Reports `trouble`. Returns true if it may be temporary, so that the run is retried.
    fn is_passing(&mut self, run: &RunId, trouble: &Trouble) -> bool {
        match trouble {
            Trouble::Gone(error) => {
                self.passed_over += 1;
                if !std::mem::replace(&mut self.is_reported, true) {
                    tracing::warn!(files = %self.files, %error,
                        "a project is not there: the files of its runs are not written; `ryed rebuild` writes them later");
                }
                false
            }
            Trouble::Lost(error) => {
                tracing::warn!(%run, error = %with_sources(error),
                    "a run cannot be read: its files are left as they are");
                false
            }
            Trouble::Files(error) => {
                if !std::mem::replace(&mut self.is_reported, true) {
                    tracing::warn!(%run, files = %self.files, %error,
                        "the files of a run cannot be written; they are tried again");
                }
                true
            }
            Trouble::Stale(_) | Trouble::Journal(_) => true,
        }
    }

    /// Writes the new events of `run`; with `verify`, compares all of its files.
    fn advance(&mut self, run: &RunId, until: Instant, verify: bool) -> Result<Progress, Trouble> {
        match self.try_advance(run, until, verify) {
            // The written files were removed, moved or changed: all are written again.
            Err(Trouble::Stale(_)) => {
                self.forget(run);
                self.try_advance(run, until, verify)
            }
            advanced => advanced,
        }
    }

    fn try_advance(
        &mut self,
        run: &RunId,
        until: Instant,
        verify: bool,
    ) -> Result<Progress, Trouble> {
        let mut files = match self.runs.remove(run) {
            Some(files) => files,
            None => match self.shared.source.find(run)? {
                Some(found) => RunFiles::new(run, found, &self.outlines),
                None => return Ok(Progress::Rested),
            },
        };
        let root = self.look(files.spec())?;
        let counted = files.change;
        let advanced = files.advance(&Context {
            source: &self.shared.source,
            signer: &*self.shared.signer,
            root: &root.dir,
            writes: Writes {
                faults: &self.shared.faults,
                files: &self.files,
            },
            until,
            verify,
            is_last: self.queue.is_closing(),
            adopted: self.shared.adopted,
        });
        if !verify {
            // A turn of its own between two turns of a rebuild is not a change of the rebuild.
            files.change = counted;
        }
        let advanced = advanced.map_err(|trouble| if_gone(files.spec()).unwrap_or(trouble));
        self.root = Some(root);
        self.count(run, files.is_open());
        self.runs.insert(run.clone(), files);
        self.make_room();
        if advanced.is_ok() && std::mem::take(&mut self.is_reported) {
            tracing::info!(files = %self.files, passed_over = self.passed_over,
                "the files of runs are written again");
            self.passed_over = 0;
        }
        advanced
    }

    /// Opens the `files` directory, if the project is still the one in which a run with `spec` began.
    fn look(&mut self, spec: &Spec) -> Result<Root, Trouble> {
        let root = match self.root.take() {
            Some(root) if root.checked.elapsed() < LOOK_EVERY => root,
            Some(_) | None => Root::open(spec)?,
        };
        let known = spec.directory.as_ref().zip(root.project.as_ref());
        if known.is_some_and(|(known, found)| known.is_other(found)) {
            let text = "another directory is in the place of the project";
            return Err(Trouble::Gone(io::Error::new(io::ErrorKind::NotFound, text)));
        }
        Ok(root)
    }

    /// Drops the state of `run`.
    fn forget(&mut self, run: &RunId) -> Option<RunFiles> {
        self.count(run, false);
        self.runs.remove(run)
    }

    /// Records `run` as open and most recently used, or as closed.
    fn count(&mut self, run: &RunId, is_open: bool) {
        if let Some(at) = self.used.iter().position(|used| used == run) {
            self.used.remove(at);
            self.shared.open.fetch_sub(1, Ordering::Relaxed);
        }
        if is_open {
            self.used.push(run.clone());
            self.shared.open.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Closes the least recently used runs if too many are open.
    fn make_room(&mut self) {
        while self.used.len() > MAX_OPEN
            || self.used.len() > 1 && self.shared.open.load(Ordering::Relaxed) > MAX_OPEN_IN_ALL
        {
            let oldest = self.used.remove(0);
            self.shared.open.fetch_sub(1, Ordering::Relaxed);
            if let Some(files) = self.runs.get_mut(&oldest) {
                files.close();
            }
        }
    }

    /// Advances a scan. Returns false if there is none.
    fn scan(&mut self, until: Instant) -> bool {
        let Some(mut scan) = self.scans.pop() else {
            return false;
        };
        let Some(touch) = scan.next(&self.shared.source, &self.files) else {
            self.end(scan);
            return true;
        };
        if let Some(item) = &touch.item {
            if let Err(trouble) = self.remove(&touch.run, item)
                && self.is_passing(&touch.run, &trouble)
            {
                self.queue.failed(&Turn::of(&touch));
            }
            scan.count(None);
            self.scans.push(scan);
            return true;
        }
        let verify = scan.rebuild.is_some();
        if verify && !std::mem::replace(&mut scan.is_begun, true) {
            // The derived state does not show whether the files are correct.
            self.forget(&touch.run);
        }
        let advanced = self.advance(&touch.run, until, verify);
        match advanced {
            Ok(Progress::More) => {}
            Ok(Progress::Rested) => {
                let files = self.forget(&touch.run);
                scan.count(files.map(|files| files.change));
            }
            Ok(Progress::Done | Progress::Due(_)) => {
                let files = self.runs.get_mut(&touch.run);
                scan.count(files.map(|files| std::mem::take(&mut files.change)));
            }
            Err(trouble) => {
                self.forget(&touch.run);
                let passes = self.is_passing(&touch.run, &trouble);
                match &mut scan.rebuild {
                    Some((_, rebuilt)) => rebuilt.fail(&touch.run, &trouble),
                    None if passes => self.queue.failed(&Turn::of(&touch)),
                    None => {}
                }
                scan.count(None);
            }
        }
        self.scans.push(scan);
        true
    }

    fn end(&self, scan: Scan) {
        match scan.rebuild {
            None => self.queue.scanned(),
            Some((callers, rebuilt)) => {
                self.queue.rebuilt();
                for caller in callers {
                    task::reply(caller, rebuilt.clone());
                }
            }
        }
    }

    fn begin_scans(&mut self) {
        let source = &self.shared.source;
        if let Some(range) = self.queue.begin_scan(source.sealed()) {
            self.scans.push(Scan {
                touched: source.touched(range.after),
                upto: range.upto,
                rebuild: None,
                current: None,
                is_begun: false,
            });
        }
        let callers = self.queue.take_rebuilds();
        if !callers.is_empty() {
            self.scans.push(Scan {
                touched: source.all(),
                upto: Lsn(u64::MAX),
                rebuild: Some((callers, Rebuilt::default())),
                current: None,
                is_begun: false,
            });
        }
    }
}

impl Scan {
    /// The run to be written: the current one until it is done, then the next one of the project in `files`.
    fn next(&mut self, source: &ExportSource, files: &str) -> Option<Touch> {
        if self.current.is_none() {
            let (upto, is_all) = (self.upto, self.rebuild.is_some());
            let mut touched = self.touched.by_ref().take_while(|touch| touch.lsn <= upto);
            self.current = touched.find(|touch| {
                // A run that ended later appears again at that position.
                let is_last = || touch.kind >= TouchKind::Ended || source.is_live(&touch.run);
                *touch.files == *files && (is_all || is_last())
            });
            self.is_begun = false;
        }
        self.current.clone()
    }

    /// Records that the run is done.
    fn count(&mut self, change: Option<Change>) {
        self.current = None;
        if let (Some((_, rebuilt)), Some(change)) = (&mut self.rebuild, change) {
            rebuilt.count(change);
        }
    }
}

/// Error that the project of `spec` is missing, if it was removed meanwhile.
fn if_gone(spec: &Spec) -> Option<Trouble> {
    let opened = Root::open(spec).err();
    opened.filter(|trouble| matches!(trouble, Trouble::Gone(_)))
}

impl Root {
    fn open(spec: &Spec) -> Result<Self, Trouble> {
        let opened = Self::of(Path::new(&spec.project), Path::new(&spec.files));
        opened.map_err(Self::trouble)
    }

    fn trouble(error: io::Error) -> Trouble {
        let gone = [io::ErrorKind::NotFound, io::ErrorKind::NotADirectory];
        if gone.contains(&error.kind()) {
            Trouble::Gone(error)
        } else {
            Trouble::Files(error)
        }
    }

    fn of(project: &Path, files: &Path) -> io::Result<Self> {
        let looked = Instant::now();
        let Ok(below) = files.strip_prefix(project) else {
            return Ok(Self {
                dir: Dir::root(files)?,
                project: None,
                checked: looked,
            });
        };
        let root = Dir::root(project)?;
        Ok(Self {
            project: Some(root.identity()?),
            dir: root.enter(below)?,
            checked: looked,
        })
    }
}
