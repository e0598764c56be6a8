//! Tasks and threads with an owner.
//!
//! **Owns** the only places where the daemon spawns a task or a thread. **Never** ignores the end of a task: a
//! [`Scope`] reports every end to the caller that polls [`Scope::next_ended`] or closes the scope. Dropping a scope
//! cancels and aborts its tasks.

use std::fmt;
use std::future::Future;
use std::thread::JoinHandle;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::crash_suspects::carried;

/// The way in which a task ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    Returned,
    /// It panicked, which is a bug.
    Panicked,
    Aborted,
}

/// The end of one task of a scope.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ended {
    /// The name under which it was spawned.
    pub name: &'static str,
    pub end: End,
}

/// A group of tasks with one owner and one cancellation token.
#[derive(Default)]
pub struct Scope {
    token: CancellationToken,
    tasks: JoinSet<()>,
    names: std::collections::HashMap<tokio::task::Id, &'static str>,
}

impl Scope {
    pub fn new() -> Self {
        Self::default()
    }

    /// Starts a task. It gets a token that is cancelled with the scope.
    pub fn spawn<F>(&mut self, name: &'static str, task: impl FnOnce(CancellationToken) -> F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let handle = self.tasks.spawn(task(self.token.child_token()));
        self.names.insert(handle.id(), name);
    }

    /// Returns the end of the next task; `None` when the scope is empty. Cancel safe.
    pub async fn next_ended(&mut self) -> Option<Ended> {
        let (id, end) = match self.tasks.join_next_with_id().await? {
            Ok((id, ())) => (id, End::Returned),
            Err(error) => (
                error.id(),
                if error.is_panic() {
                    End::Panicked
                } else {
                    End::Aborted
                },
            ),
        };
        let name = self.names.remove(&id).unwrap_or("task");
        if end == End::Panicked {
            tracing::error!(task = name, "a task panicked");
        }
        Some(Ended { name, end })
    }

    /// Cancels the tasks, waits up to `grace`, aborts the rest, and reports every end.
    pub async fn close(mut self, grace: Duration) -> Vec<Ended> {
        self.token.cancel();
        let mut ends = Vec::new();
        let deadline = tokio::time::Instant::now() + grace;
        while let Ok(Some(ended)) = tokio::time::timeout_at(deadline, self.next_ended()).await {
            ends.push(ended);
        }
        self.tasks.abort_all();
        while let Some(ended) = self.next_ended().await {
            ends.push(ended);
        }
        ends
    }
}

/// Pieces of work of one owner, each of which returns a result. Dropping it aborts the rest.
pub struct Group<T> {
    tasks: JoinSet<()>,
    /// Number of pieces whose results were not returned yet.
    open: usize,
    results: mpsc::UnboundedReceiver<T>,
    sender: mpsc::UnboundedSender<T>,
}

impl<T: Send + 'static> Group<T> {
    #[expect(
        clippy::disallowed_methods,
        reason = "holds one result of each piece of work at most, and the owner starts these"
    )]
    pub fn new() -> Self {
        let (teller, results) = mpsc::unbounded_channel();
        Self {
            tasks: JoinSet::new(),
            open: 0,
            results,
            sender: teller,
        }
    }

    /// Starts a piece of work.
    pub fn spawn(&mut self, work: impl Future<Output = T> + Send + 'static) {
        self.open += 1;
        let teller = self.sender.clone();
        self.tasks.spawn(async move {
            // The owner may have been dropped, and this task is aborted then.
            let _gone = teller.send(work.await);
        });
    }

    /// Starts pieces of work as one task, which is woken once, and wakes the owner once, if many of them become ready.
    pub fn spawn_together<F>(&mut self, mut work: Vec<F>)
    where
        F: Future<Output = T> + Send + 'static,
    {
        // A task with several pieces wakes itself once more, which is avoided for a single one.
        if work.len() <= 1 {
            work.pop().into_iter().for_each(|only| self.spawn(only));
            return;
        }
        self.open += work.len();
        let teller = self.sender.clone();
        self.tasks.spawn(async move {
            let mut work: FuturesUnordered<F> = work.into_iter().collect();
            while let Some(result) = work.next().await {
                let _gone = teller.send(result);
            }
        });
    }

    /// Returns the result of the next piece that ends; `None` if there are no more. A panic in a piece is a panic here.
    /// Cancel safe.
    pub async fn next(&mut self) -> Option<T> {
        while self.open > 0 {
            tokio::select! {
                biased;
                Some(result) = self.results.recv() => {
                    self.open -= 1;
                    return Some(result);
                }
                Some(ended) = self.tasks.join_next() => joined(ended),
            }
        }
        None
    }

    /// Returns the result of a piece that has already ended; `None` if there is none.
    pub fn try_next(&mut self) -> Option<T> {
        let result = self.results.try_recv().ok()?;
        self.open -= 1;
        Some(result)
    }
}

impl<T: Send + 'static> Default for Group<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> fmt::Debug for Group<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Group")
            .field("open", &self.open)
            .finish_non_exhaustive()
    }
}

fn joined(ended: Result<(), tokio::task::JoinError>) {
    match ended {
        Ok(()) => {}
        Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
        Err(_) => unreachable!("a task of a group is aborted only together with the group"),
    }
}

impl Drop for Scope {
    fn drop(&mut self) {
        self.token.cancel();
    }
}

impl fmt::Debug for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scope")
            .field("tasks", &self.tasks.len())
            .finish_non_exhaustive()
    }
}

/// Runs `work`, which blocks, on a thread for blocking work. A panic in it is a panic here.
pub async fn blocking<T: Send + 'static>(
    name: &'static str,
    work: impl FnOnce() -> T + Send + 'static,
) -> T {
    #[expect(clippy::disallowed_methods, reason = "this is the one place that may")]
    let task = tokio::task::spawn_blocking(carried(work));
    match task.await {
        Ok(value) => value,
        Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
        Err(_) => unreachable!("blocking work `{name}` is never aborted"),
    }
}

/// Starts `work`, which blocks, on a thread for blocking work, and does not wait. The work has to report its own end,
/// and must not panic.
pub fn blocking_detached(name: &'static str, work: impl FnOnce() + Send + 'static) {
    #[expect(clippy::disallowed_methods, reason = "this is the one place that may")]
    let task = tokio::task::spawn_blocking(work);
    drop(task);
    tracing::trace!(name, "blocking work begins");
}

/// Starts a named thread; its owner has to join it.
pub fn worker<T: Send + 'static>(
    name: &'static str,
    work: impl FnOnce() -> T + Send + 'static,
) -> JoinHandle<T> {
    std::thread::Builder::new()
        .name(name.to_owned())
        .spawn(work)
        .expect("the system can start a thread")
}

/// Nice value of threads that give all other work precedence.
const LOW_PRIORITY: i32 = 10;

/// Gives all other work precedence over the calling thread. A failure is logged.
pub fn lower_priority() {
    // On Linux this affects only the calling thread.
    if let Err(error) = rustix::process::setpriority_process(None, LOW_PRIORITY) {
        tracing::debug!(%error, "the priority of a thread cannot be lowered");
    }
}

/// Resolves after `pause`; never if it is `None`.
pub async fn sleep(pause: Option<Duration>) {
    match pause {
        Some(pause) => tokio::time::sleep(pause).await,
        None => std::future::pending().await,
    }
}

/// Sends the answer to a waiting caller. If the caller no longer waits, that is only logged.
pub fn reply<T>(asker: oneshot::Sender<T>, answer: T) {
    if asker.send(answer).is_err() {
        tracing::debug!("nobody waits for an answer any more");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn every_end_is_reported() {
        let mut scope = Scope::new();
        scope.spawn("returns", |_| async {});
        assert_eq!(
            scope.next_ended().await,
            Some(Ended {
                name: "returns",
                end: End::Returned
            })
        );
        scope.spawn("panics", |_| async { panic!("on purpose") });
        assert_eq!(
            scope.next_ended().await,
            Some(Ended {
                name: "panics",
                end: End::Panicked
            })
        );
        scope.spawn("waits", |token| async move { token.cancelled().await });
        scope.spawn("hangs", |_| std::future::pending());
        let mut ends = scope.close(Duration::from_millis(50)).await;
        ends.sort_by_key(|ended| ended.name);
        assert_eq!(
            ends,
            [
                Ended {
                    name: "hangs",
                    end: End::Aborted
                },
                Ended {
                    name: "waits",
                    end: End::Returned
                }
            ]
        );
    }

    #[tokio::test]
    async fn group_returns_each_result_once() {
        let mut group = Group::new();
        let (sender, signal) = tokio::sync::watch::channel(false);
        let piece = |number: u32| {
            let mut signal = signal.clone();
            async move {
                signal.wait_for(|given| *given).await.unwrap();
                number
            }
        };
        group.spawn_together((0..3).map(piece).collect());
        group.spawn(async { 9 });
        assert_eq!(group.next().await, Some(9));
        assert_eq!(group.try_next(), None);
        sender.send_replace(true);
        let mut ended = vec![group.next().await.unwrap()];
        ended.extend(std::iter::from_fn(|| group.try_next()));
        ended.sort_unstable();
        assert_eq!(ended, [0, 1, 2]);
        assert_eq!(group.next().await, None);
    }

    #[tokio::test]
    #[should_panic(expected = "on purpose")]
    async fn group_resumes_panic_of_piece() {
        let mut group = Group::<()>::new();
        let pieces = [true, false].map(|panics| async move {
            assert!(!panics, "on purpose");
            std::future::pending::<()>().await;
        });
        group.spawn_together(Vec::from(pieces));
        let _never = group.next().await;
    }
}
