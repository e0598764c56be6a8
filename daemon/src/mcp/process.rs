//! The process of a server, on its way from the session that needs it to the managed process that runs it.
//!
//! **Owns** the plans of processes that were requested and not started. They stay in memory, because they may hold secrets.
//! **Never** starts or ends a process. **Races.** A session that is given up takes its plan back, and a process that starts
//! without one ends at once. A session that ends ends its process, and the other way round.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rye_process::{Exited, Plan};
use tokio::net::unix::pipe;
use tokio::sync::{oneshot, watch};
use tokio::time::timeout;

use super::inbox::{Inbox, SessionEnd};
use super::session::Tail;

/// Time for a server to exit after its input is closed, before it gets a signal; and for its last output to be read.
const END_OF_INPUT: Duration = Duration::from_secs(1);

/// Pipes to and from a server.
pub(super) type Pipes = (pipe::Sender, pipe::Receiver);

/// A process that a session has requested.
#[derive(Debug)]
pub struct ServerProcess {
    pub plan: Plan,
    /// Receives the pipes, or the reason why there is no process.
    pub(super) connection: oneshot::Sender<Result<Pipes, String>>,
    pub(super) link: ServerLink,
}

impl ServerProcess {
    /// Reports the start to the session.
    pub fn started(self, pipes: Result<Pipes, String>) -> ServerLink {
        // A session that was given up has ended.
        let _unsent = self.connection.send(pipes);
        self.link
    }
}

/// The side of a session that its process sees. The session ends when it is dropped.
#[derive(Debug)]
pub struct ServerLink {
    pub(super) inbox: Inbox,
    pub(super) tail: Arc<Tail>,
    /// Exit of the process as text, once it has ended; empty if the daemon ended it.
    pub(super) exit: watch::Sender<Option<String>>,
}

impl ServerLink {
    /// Returns the receiver of the server's stderr.
    pub fn stderr(&self) -> impl Fn(&[u8]) + Send + 'static {
        let tail = Arc::clone(&self.tail);
        move |piece| tail.receive(piece)
    }

    /// Resolves when the process is to get a signal: the session is over, or `stopped` has resolved, and the process had
    /// time to see the end of its input.
    pub async fn over(&self, stopped: impl Future<Output = ()>) {
        tokio::select! {
            () = self.inbox.broken() => {}
            () = stopped => self.inbox.end(SessionEnd::Unneeded("it was stopped".to_owned())),
        }
        tokio::time::sleep(END_OF_INPUT).await;
    }

    /// Returns the reason why the session is over, if it is.
    pub fn end(&self) -> Option<SessionEnd> {
        self.inbox.session_end()
    }

    /// Reports the end of the process to the session.
    pub async fn ended(self, exited: &Exited) {
        if exited.ended_by.is_none() {
            // Its last output is still to be read.
            let _read = timeout(END_OF_INPUT, self.inbox.broken()).await;
            let told = format!("its process ended with {}", exited.exit);
            self.exit.send_replace(Some(told));
        }
    }
}

impl Drop for ServerLink {
    fn drop(&mut self) {
        self.inbox.break_off("its process ended");
        self.exit.send_modify(|exit| {
            exit.get_or_insert_default();
        });
    }
}

/// The processes that were requested and not started, by their sessions.
#[derive(Debug, Default)]
pub(super) struct Requested(Mutex<HashMap<String, ServerProcess>>);

impl Requested {
    fn lock(&self) -> MutexGuard<'_, HashMap<String, ServerProcess>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps `process` for `session`, until it is taken or the result is dropped.
    pub(super) fn keep(&self, session: String, process: ServerProcess) -> Kept<'_> {
        self.lock().insert(session.clone(), process);
        Kept {
            requested: self,
            session,
        }
    }

    pub(super) fn take(&self, session: &str) -> Option<ServerProcess> {
        self.lock().remove(session)
    }
}

/// Takes a process back that was not started.
#[derive(Debug)]
pub(super) struct Kept<'r> {
    requested: &'r Requested,
    session: String,
}

impl Drop for Kept<'_> {
    fn drop(&mut self) {
        let _untaken = self.requested.take(&self.session);
    }
}
