//! Tasks and threads with an owner.
//!
//! **Owns** the only places where the daemon spawns a task or a thread. **Never** leaves an end unseen: a [`Scope`]
//! hands every end of its tasks to the caller that polls [`Scope::next_ended`] or closes it, and dropping it cancels and aborts.

use std::fmt;
use std::future::Future;
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// How a task ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// It returned.
    Returned,
    /// It panicked: a bug.
    Panicked,
    /// It was aborted by its owner.
    Aborted,
}

/// The end of one task of a scope.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ended {
    /// The name it was spawned under.
    pub name: &'static str,
    /// How it ended.
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
    /// An empty scope.
    pub fn new() -> Self {
        Self::default()
    }

    /// Starts a task; it gets a token that is cancelled with the scope.
    pub fn spawn<F>(&mut self, name: &'static str, task: impl FnOnce(CancellationToken) -> F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let handle = self.tasks.spawn(task(self.token.child_token()));
        self.names.insert(handle.id(), name);
    }

    /// The next task that ends; `None` when the scope is empty. Cancel safe.
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

    /// Cancels, waits up to `grace`, aborts what is left, and reports every end.
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

/// Tasks of one owner that each hand over a result. Dropping it aborts those that are left.
pub struct Group<T> {
    tasks: JoinSet<T>,
}

impl<T: Send + 'static> Group<T> {
    /// No tasks yet.
    pub fn new() -> Self {
        Self {
            tasks: JoinSet::new(),
        }
    }

    /// Starts a task.
    pub fn spawn(&mut self, task: impl Future<Output = T> + Send + 'static) {
        self.tasks.spawn(task);
    }

    /// What the next task that ends came to; `None` when there are none. A panic in a task is a panic here. Cancel safe.
    pub async fn next(&mut self) -> Option<T> {
        self.tasks.join_next().await.map(result)
    }

    /// The same, of a task that has ended already.
    pub fn try_next(&mut self) -> Option<T> {
        self.tasks.try_join_next().map(result)
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
            .field("tasks", &self.tasks.len())
            .finish_non_exhaustive()
    }
}

fn result<T>(joined: Result<T, tokio::task::JoinError>) -> T {
    match joined {
        Ok(result) => result,
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

/// Runs `work`, which blocks, away from the runtime's workers. A panic in it is a panic here.
pub async fn blocking<T: Send + 'static>(
    name: &'static str,
    work: impl FnOnce() -> T + Send + 'static,
) -> T {
    #[expect(clippy::disallowed_methods, reason = "this is the one place that may")]
    let task = tokio::task::spawn_blocking(work);
    match task.await {
        Ok(value) => value,
        Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
        Err(_) => unreachable!("blocking work `{name}` is never aborted"),
    }
}

/// Starts `work`, which blocks, away from the runtime's workers, and waits for nothing: the work itself has
/// to report its end, and must not panic.
pub fn blocking_detached(name: &'static str, work: impl FnOnce() + Send + 'static) {
    #[expect(clippy::disallowed_methods, reason = "this is the one place that may")]
    let task = tokio::task::spawn_blocking(work);
    drop(task);
    tracing::trace!(name, "blocking work begins");
}

/// Starts a named thread of our own; the owner joins it.
pub fn worker<T: Send + 'static>(
    name: &'static str,
    work: impl FnOnce() -> T + Send + 'static,
) -> JoinHandle<T> {
    std::thread::Builder::new()
        .name(name.to_owned())
        .spawn(work)
        .expect("the system can start a thread")
}

/// Resolves after `pause`; never, if there is none.
pub async fn sleep(pause: Option<Duration>) {
    match pause {
        Some(pause) => tokio::time::sleep(pause).await,
        None => std::future::pending().await,
    }
}

/// Answers the asker that waits; one that is gone is logged, nothing more.
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
}
