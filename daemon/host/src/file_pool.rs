//! The file pool of a project: the only way from a task to the project's files.
//!
//! **Owns** the queued work of a project, and the bound on the threads that execute it at the same time. **Never** runs
//! work on a worker of the runtime: the file system of a project may hang indefinitely, and then blocks only that
//! project. **Never** depends on its caller: queued work is started even if the task that waits for it is not polled,
//! so that no task can occupy a slot without using it.
//!
//! **Order.** First come, first served. Work whose waiting task is dropped before the work begins is not executed. Work
//! that has begun keeps its thread until it returns, even if no task waits for it. So a file system that hangs occupies
//! at most [`AT_ONCE`] threads of a project. **Failure.** A panic of the work is a panic of its caller.

use std::collections::VecDeque;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

use crate::crash_suspects::carried;
use crate::task;

/// Number of threads that work in one project at the same time.
pub const AT_ONCE: usize = 4;

/// The file pool of one project. A clone is another handle on the same pool.
#[derive(Clone, Default)]
pub struct FilePool {
    queue: Arc<Mutex<Queue>>,
}

/// Work that reports its own end.
type Job = Box<dyn FnOnce() + Send>;

#[derive(Default)]
struct Queue {
    waiting: VecDeque<(u64, Job)>,
    /// Number of threads that take work from this queue.
    threads: usize,
    /// Number of the next work.
    next: u64,
}

impl FilePool {
    /// Runs `work`, which may block, on a thread of the pool. Cancel safe until the work begins.
    pub async fn run<T: Send + 'static>(
        &self,
        name: &'static str,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> T {
        let (reply, done) = oneshot::channel();
        let job = move || {
            // If no task waits any more, the result is dropped.
            drop(reply.send(catch_unwind(AssertUnwindSafe(work))));
        };
        let job = carried(job);
        let _waiting = self.enter(name, Box::new(job));
        match done.await {
            Ok(Ok(value)) => value,
            Ok(Err(panic)) => resume_unwind(panic),
            // The runtime is being shut down, and this task with it.
            Err(_dropped) => std::future::pending().await,
        }
    }

    fn enter(&self, name: &'static str, job: Job) -> Waiting<'_> {
        let (number, needs_thread) = {
            let mut queue = self.queue();
            let number = queue.next;
            queue.next += 1;
            queue.waiting.push_back((number, job));
            let needs_thread = queue.threads < AT_ONCE;
            queue.threads += usize::from(needs_thread);
            (number, needs_thread)
        };
        if needs_thread {
            let gate = self.clone();
            task::blocking_detached(name, move || gate.work());
        }
        Waiting { pool: self, number }
    }

    /// Executes queued work until the queue is empty.
    fn work(&self) {
        while let Some((_, job)) = self.take() {
            job();
        }
    }

    /// Returns the next work. If there is none, the calling thread leaves the pool.
    fn take(&self) -> Option<(u64, Job)> {
        let mut queue = self.queue();
        let next = queue.waiting.pop_front();
        queue.threads -= usize::from(next.is_none());
        next
    }

    /// True if there is no other handle on this pool.
    pub fn is_unused(&self) -> bool {
        Arc::strong_count(&self.queue) == 1
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        // Work is executed without the lock, so a panic leaves the queue consistent.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for FilePool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let queue = self.queue();
        f.debug_struct("FilePool")
            .field("waiting", &queue.waiting.len())
            .field("threads", &queue.threads)
            .finish()
    }
}

/// A task that waits for queued work. Dropping it removes work that has not begun.
struct Waiting<'a> {
    pool: &'a FilePool,
    number: u64,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let job = {
            let mut queue = self.pool.queue();
            let place = queue
                .waiting
                .binary_search_by_key(&self.number, |(number, _)| *number);
            place.ok().and_then(|place| queue.waiting.remove(place))
        };
        // Dropped without the lock, because the destructor of the work may do anything.
        drop(job);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;

    use futures_util::FutureExt as _;

    use super::*;
    use crate::task::Scope;

    const PATIENCE: Duration = Duration::from_secs(30);

    /// Returns work that reports its start, and returns when the returned sender is dropped.
    fn stuck(begun: &mpsc::Sender<()>) -> (mpsc::Sender<()>, impl FnOnce() + Send + use<>) {
        let (release, held) = mpsc::channel::<()>();
        let begun = begun.clone();
        let work = move || {
            begun.send(()).unwrap();
            held.recv_timeout(PATIENCE).unwrap_err();
        };
        (release, work)
    }

    #[tokio::test]
    async fn file_pool_bounds_threads_of_hanging_project() {
        let (gate, other) = (FilePool::default(), FilePool::default());
        let (begun, begins) = mpsc::channel();
        let mut tasks = Scope::new();
        let mut releases = Vec::new();
        for _ in 0..AT_ONCE {
            let (release, work) = stuck(&begun);
            releases.push(release);
            let gate = gate.clone();
            tasks.spawn("hangs", |_| async move { gate.run("hang", work).await });
        }
        tokio::task::yield_now().await;
        for _ in 0..AT_ONCE {
            begins.recv_timeout(PATIENCE).unwrap();
        }
        let mut waits = Box::pin(gate.run("wait", || ()));
        assert_eq!(waits.as_mut().now_or_never(), None);
        assert_eq!(other.run("elsewhere", || 7).await, 7);
        // No task waits for the hanging work any more, but it keeps its threads.
        drop(tasks);
        assert_eq!(waits.as_mut().now_or_never(), None);
        drop(releases.pop());
        waits.await;
        drop(releases);
    }

    #[tokio::test]
    async fn file_pool_runs_work_of_unpolled_caller() {
        let gate = FilePool::default();
        let (begun, begins) = mpsc::channel();
        let mut ahead = Vec::new();
        for _ in 0..3 * AT_ONCE {
            let begun = begun.clone();
            let work = move || begun.send(()).unwrap();
            let mut waits = Box::pin(gate.run("not polled again", work));
            let _done_already = waits.as_mut().now_or_never();
            ahead.push(waits);
        }
        let last = tokio::time::timeout(PATIENCE, gate.run("last", || 1));
        assert_eq!(last.await, Ok(1));
        drop(ahead);
        drop(begun);
        assert_eq!(begins.iter().count(), 3 * AT_ONCE);
    }

    #[tokio::test]
    async fn file_pool_skips_work_of_dropped_caller() {
        let gate = FilePool::default();
        let (begun, begins) = mpsc::channel();
        let mut tasks = Scope::new();
        let mut releases = Vec::new();
        for _ in 0..AT_ONCE {
            let (release, work) = stuck(&begun);
            releases.push(release);
            let gate = gate.clone();
            tasks.spawn("hangs", |_| async move { gate.run("hang", work).await });
        }
        tokio::task::yield_now().await;
        for _ in 0..AT_ONCE {
            begins.recv_timeout(PATIENCE).unwrap();
        }
        let mut first = Box::pin(gate.run("first", || 1));
        let mut second = Box::pin(gate.run("second", || 2));
        assert_eq!(first.as_mut().now_or_never(), None);
        assert_eq!(second.as_mut().now_or_never(), None);
        drop(first);
        drop(releases.pop());
        assert_eq!(second.await, 2);
        drop(releases);
        while tasks.next_ended().await.is_some() {}
        // The threads leave when the queue is empty.
        while !gate.is_unused() {
            tokio::task::yield_now().await;
        }
    }
}
