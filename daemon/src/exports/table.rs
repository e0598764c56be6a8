//! Projects with pending exports, and their threads.
//!
//! **Owns** the queue of each project, and the state of those without a thread. **Never** joins a thread, because it
//! may hang for ever.

use std::collections::{BTreeMap, HashMap};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rye_core::id::{Lsn, Name};
use tokio::sync::oneshot;

use super::common::{Rebuilt, Shared};
use super::project::Project;
use super::queue::{Queue, Waiting, Wake};
use rye_host::task;
use rye_journal::{RemovedRun, Touch, TouchKind};

/// Time after which a thread without work ends.
const IDLE: Duration = Duration::from_secs(5);
/// Duration after which a turn is reported as hanging.
const HANGS: Duration = Duration::from_secs(10);

#[derive(Debug, Default)]
pub(super) struct Table {
    content: Mutex<Content>,
    ended: Condvar,
}

#[derive(Debug, Default)]
struct Content {
    projects: HashMap<Name, Entry>,
    /// Number of running threads.
    threads: usize,
}

#[derive(Debug)]
struct Entry {
    queue: Arc<Queue>,
    /// `None` while a thread owns it.
    parked: Option<Project>,
    is_reported: bool,
}

impl Table {
    fn content(&self) -> MutexGuard<'_, Content> {
        self.content.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Queues the run of a touch.
    pub(super) fn enqueue(self: &Arc<Self>, shared: &Arc<Shared>, touch: &Touch) {
        let is_urgent = touch.kind != TouchKind::Moved;
        self.enter(shared, &touch.files, |queue| match &touch.item {
            Some(item) => queue.remove(&touch.run, item, touch.lsn, None),
            None => queue.enqueue(&touch.run, touch.lsn, is_urgent),
        });
    }

    /// Queues the removal of a run's files. `waiting` is dropped when they are removed.
    pub(super) fn remove(
        self: &Arc<Self>,
        shared: &Arc<Shared>,
        removed: &RemovedRun,
        waiting: Waiting,
    ) {
        let RemovedRun {
            run, files, item, ..
        } = removed;
        self.enter(shared, files, |queue| {
            queue.remove(run, item, shared.source.published(), Some(waiting));
        });
    }

    /// Queues a comparison of all files of a project. The result goes to `reply`.
    pub(super) fn rebuild(
        self: &Arc<Self>,
        shared: &Arc<Shared>,
        files: &Name,
        reply: oneshot::Sender<Rebuilt>,
    ) {
        self.enter(shared, files, |queue| queue.rebuild(reply));
    }

    /// Runs `enter` on the queue of a project, and starts its thread if it has none. Runs under the lock, because a
    /// thread checks its queue under the lock before it ends.
    fn enter(self: &Arc<Self>, shared: &Arc<Shared>, files: &Name, enter: impl FnOnce(&Queue)) {
        let mut content = self.content();
        let content = &mut *content;
        let entry = content
            .projects
            .entry(Arc::clone(files))
            .or_insert_with(|| {
                let queue = Arc::<Queue>::default();
                let project =
                    Project::new(Arc::clone(shared), Arc::clone(files), Arc::clone(&queue));
                Entry {
                    queue,
                    parked: Some(project),
                    is_reported: false,
                }
            });
        enter(&entry.queue);
        if let Some(project) = entry.parked.take() {
            content.threads += 1;
            self.start(shared, Arc::clone(files), project);
        }
    }

    fn start(self: &Arc<Self>, shared: &Arc<Shared>, files: Name, project: Project) {
        let (table, shared) = (Arc::clone(self), Arc::clone(shared));
        // Not joined, because it may hang.
        let _thread = task::worker("export", move || {
            let work = || run(project, &table);
            let worked = catch_unwind(AssertUnwindSafe(work));
            let mut content = table.content();
            if worked.is_err() {
                tracing::error!(%files, "the thread that writes the files of a project panicked");
                if let Some(entry) = content.projects.get_mut(&files) {
                    let queue = Arc::clone(&entry.queue);
                    entry.parked = Some(Project::new(shared, files, queue));
                }
            }
            content.threads -= 1;
            table.ended.notify_all();
        });
    }

    /// Stores the state of a project whose thread ends. Returns it if there is new work.
    pub(super) fn park(&self, project: Project) -> Option<Project> {
        let mut content = self.content();
        if !project.queue().is_empty() {
            return Some(project);
        }
        let files = Arc::clone(project.files());
        if project.is_empty() {
            content.projects.remove(&files);
        } else if let Some(entry) = content.projects.get_mut(&files) {
            entry.parked = Some(project);
        }
        None
    }

    /// Projects whose files are out of date, with the positions up to which they are written.
    pub(super) fn written_positions(&self) -> BTreeMap<String, Lsn> {
        let content = self.content();
        let projects = content.projects.iter();
        let behind = projects.filter_map(|(files, entry)| {
            let lsn = entry.queue.written_up_to()?;
            Some((files.to_string(), lsn))
        });
        behind.collect()
    }

    /// Reports each project whose turn takes too long, once.
    pub(super) fn report_hangs(&self) {
        for (files, entry) in &mut self.content().projects {
            let hangs = entry.queue.turn_time().is_some_and(|time| time >= HANGS);
            if hangs && !entry.is_reported {
                tracing::warn!(%files, "a project has not answered for {} s", HANGS.as_secs());
            }
            entry.is_reported = hangs;
        }
    }

    /// Closes all queues, and waits until `end` for the threads to finish pending work. Blocks.
    pub(super) fn close(&self, end: Instant) {
        let mut content = self.content();
        content
            .projects
            .values()
            .for_each(|entry| entry.queue.close());
        while content.threads > 0 {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                let open = content.threads;
                tracing::warn!(
                    open,
                    "the files of some projects are not written: the next start writes them"
                );
                return;
            }
            let waited = self.ended.wait_timeout(content, left);
            content = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    #[cfg(test)]
    pub(super) fn threads(&self) -> usize {
        self.content().threads
    }
}

/// Body of a project's thread. Returns when there was no work for [`IDLE`], or the queue is closed.
fn run(mut project: Project, table: &Table) {
    task::lower_priority();
    let queue = Arc::clone(&project.queue);
    let shared = Arc::clone(&project.shared);
    loop {
        match queue.wait(IDLE, || shared.source.sealed()) {
            Wake::Work => {
                let _slot = shared.slots.enter();
                queue.begin_turn();
                project.turn();
                queue.end_turn();
            }
            Wake::Idle => {
                project.close();
                match table.park(project) {
                    Some(again) => project = again,
                    None => return,
                }
            }
            Wake::Closed => {
                project.close();
                return;
            }
        }
    }
}
