//! The gate of a project: the only way from a task to the project's files.
//!
//! **Owns** the bound on how many threads work in one project at once. **Never** runs work on a worker of the runtime: the
//! file system of a project may hang for as long as it likes, and then it holds up that project and nothing else.
//!
//! **Order.** Whoever comes first is let in first. A task that is dropped while it waits gives its place up; work that has
//! begun keeps its place until it returns, whether or not somebody still waits for it. So a file system that hangs holds
//! [`AT_ONCE`] threads of a project and no more. **Failure.** A panic of the work is a panic of its caller.

use std::sync::Arc;

use tokio::sync::Semaphore;

use crate::task;

/// Threads that work in one project at once.
pub const AT_ONCE: usize = 4;

/// The gate of one project; clones are the same gate.
#[derive(Debug, Clone)]
pub struct Gate {
    places: Arc<Semaphore>,
}

impl Default for Gate {
    fn default() -> Self {
        Self {
            places: Arc::new(Semaphore::new(AT_ONCE)),
        }
    }
}

impl Gate {
    /// Does `work`, which may block, away from the runtime's workers. Cancel safe until the work begins.
    pub async fn pass<T: Send + 'static>(
        &self,
        name: &'static str,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> T {
        let places = Arc::clone(&self.places);
        let place = places.acquire_owned().await;
        let place = place.expect("the places of a gate are never taken away");
        task::blocking(name, move || {
            let _place = place;
            work()
        })
        .await
    }

    /// Whether nobody else holds this gate.
    pub fn is_unused(&self) -> bool {
        Arc::strong_count(&self.places) == 1
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

    /// Work that says that it has begun, and returns when its other end is dropped.
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
    async fn a_project_that_hangs_holds_so_many_threads_and_no_other_project() {
        let (gate, other) = (Gate::default(), Gate::default());
        let (begun, begins) = mpsc::channel();
        let mut tasks = Scope::new();
        let mut releases = Vec::new();
        for _ in 0..AT_ONCE {
            let (release, work) = stuck(&begun);
            releases.push(release);
            let gate = gate.clone();
            tasks.spawn("hangs", |_| async move { gate.pass("hang", work).await });
        }
        tokio::task::yield_now().await;
        for _ in 0..AT_ONCE {
            begins.recv_timeout(PATIENCE).unwrap();
        }
        let mut waits = Box::pin(gate.pass("wait", || ()));
        assert_eq!(waits.as_mut().now_or_never(), None);
        assert_eq!(other.pass("elsewhere", || 7).await, 7);
        // Nobody waits for the work that hangs any more: it keeps its places all the same.
        drop(tasks);
        assert_eq!(waits.as_mut().now_or_never(), None);
        drop(releases.pop());
        waits.await;
        drop(releases);
    }

    #[tokio::test]
    async fn who_is_dropped_while_it_waits_gives_its_place_to_the_next() {
        let gate = Gate::default();
        let (begun, begins) = mpsc::channel();
        let mut tasks = Scope::new();
        let mut releases = Vec::new();
        for _ in 0..AT_ONCE {
            let (release, work) = stuck(&begun);
            releases.push(release);
            let gate = gate.clone();
            tasks.spawn("hangs", |_| async move { gate.pass("hang", work).await });
        }
        tokio::task::yield_now().await;
        for _ in 0..AT_ONCE {
            begins.recv_timeout(PATIENCE).unwrap();
        }
        let mut first = Box::pin(gate.pass("first", || 1));
        let mut second = Box::pin(gate.pass("second", || 2));
        assert_eq!(first.as_mut().now_or_never(), None);
        assert_eq!(second.as_mut().now_or_never(), None);
        drop(first);
        drop(releases.pop());
        assert_eq!(second.await, 2);
        drop(releases);
        while tasks.next_ended().await.is_some() {}
        assert!(gate.is_unused());
    }
}
