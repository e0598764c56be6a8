//! Authentication of callers when a connection is accepted: see `daemon/docs/capabilities.md`.
//!
//! A peer that descends from the daemon or its parent, or carries the tag of an attempt, **is a run** and never a
//! principal. It is refused until runs have tokens. A peer whose lineage cannot be determined is refused too, and so is
//! one of another uid, which has no grant.
//!
//! **Bounds.** Connections take descriptors, which runs need as well. Principals have at most half of them. Refused
//! callers share [`MOST_REFUSED`] connections of at most [`MOST_OF_ATTEMPT`] per attempt, each open for
//! [`REFUSED_FOR`], long enough to read the reason.

use std::collections::HashMap;
use std::future::Future as _;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use nix::unistd::Pid;
use rye_core::capability::Layer;
use rye_core::error::with_sources;
use rye_process::{self as process, AttemptCgroups, Lineage};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::UnixStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Sleep;
use tokio_util::sync::CancellationToken;
use tonic::service::Interceptor;
use tonic::transport::server::Connected;
use tonic::{Request, Status};

use super::status::with_reason;

/// The process at the other end of a connection.
#[derive(Debug, Clone)]
pub(super) struct Caller {
    uid: Option<u32>,
    lineage: Lineage,
}

impl Caller {
    /// Returns the caller's authority: every capability, since only the daemon's own user is admitted.
    pub(super) fn layer(&self) -> Layer {
        let uid = self
            .uid
            .map_or_else(|| "unknown".to_owned(), |uid| uid.to_string());
        Layer::person(uid)
    }
}

/// Most concurrent connections of refused callers.
const MOST_REFUSED: usize = 16;
/// Most of those per attempt of a run.
const MOST_OF_ATTEMPT: usize = 4;
const REFUSED_FOR: Duration = Duration::from_secs(2);

/// Limits on concurrent connections.
#[derive(Debug)]
pub(super) struct ConnectionLimits {
    guard: Guard,
    principals: Arc<Semaphore>,
    refused: Arc<Semaphore>,
    attempts: Attempts,
}

/// Number of connections per attempt, by its tag. No entry is 0.
#[derive(Debug, Clone, Default)]
struct Attempts(Arc<Mutex<HashMap<Vec<u8>, usize>>>);

impl Attempts {
    /// Returns `None` if `attempt` has [`MOST_OF_ATTEMPT`] connections already.
    fn take(&self, attempt: &[u8]) -> Option<AttemptSlot> {
        let mut taken = self.taken();
        let count = taken.entry(attempt.to_vec()).or_default();
        if *count == MOST_OF_ATTEMPT {
            return None;
        }
        *count += 1;
        Some(AttemptSlot {
            attempts: self.clone(),
            attempt: attempt.to_vec(),
        })
    }

    fn taken(&self) -> MutexGuard<'_, HashMap<Vec<u8>, usize>> {
        // Every use changes one number, so a panic elsewhere leaves the map valid.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Debug)]
struct AttemptSlot {
    attempts: Attempts,
    attempt: Vec<u8>,
}

impl Drop for AttemptSlot {
    fn drop(&mut self) {
        let mut taken = self.attempts.taken();
        let left = taken.get(&self.attempt).map_or(0, |count| count - 1);
        if left == 0 {
            taken.remove(&self.attempt);
        } else {
            taken.insert(std::mem::take(&mut self.attempt), left);
        }
    }
}

impl ConnectionLimits {
    /// Principals get half of `descriptors`.
    pub(super) fn new(guard: Guard, descriptors: usize) -> Self {
        Self {
            guard,
            principals: Arc::new(Semaphore::new(
                (descriptors / 2).min(Semaphore::MAX_PERMITS),
            )),
            refused: Arc::new(Semaphore::new(MOST_REFUSED)),
            attempts: Attempts::default(),
        }
    }

    /// Returns `None` if no slot is left for `caller`; that closes `stream`.
    pub(super) fn take(&self, stream: UnixStream, caller: Caller) -> Option<Peer> {
        let is_refused = self.guard.admit(Some(&caller)).is_err();
        let places = if is_refused {
            &self.refused
        } else {
            &self.principals
        };
        let of_attempt = match &caller.lineage {
            Lineage::Inside { attempt } => Some(self.attempts.take(attempt)?),
            Lineage::Outside | Lineage::Unknown => None,
        };
        let place = Arc::clone(places).try_acquire_owned().ok()?;
        Some(Peer {
            stream,
            caller,
            ends: is_refused.then(|| Box::pin(tokio::time::sleep(REFUSED_FOR))),
            _slot: (place, of_attempt),
        })
    }
}

#[derive(Debug)]
pub(super) struct Peer {
    stream: UnixStream,
    caller: Caller,
    /// Closes the connection of a refused caller at this time, whatever the peer does.
    ends: Option<Pin<Box<Sleep>>>,
    _slot: (OwnedSemaphorePermit, Option<AttemptSlot>),
}

impl Caller {
    pub(super) fn of(stream: &UnixStream, parent: Pid, cgroups: Option<&AttemptCgroups>) -> Self {
        let (uid, lineage) = match process::Peer::of(stream) {
            Ok(found) => (Some(found.uid()), found.lineage(Some(parent), cgroups)),
            Err(error) => {
                tracing::warn!(error = %with_sources(&error), "a caller could not be identified");
                (None, Lineage::Unknown)
            }
        };
        Self { uid, lineage }
    }
}

impl Connected for Peer {
    type ConnectInfo = Caller;

    fn connect_info(&self) -> Caller {
        self.caller.clone()
    }
}

impl AsyncRead for Peer {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        let is_over = |ends: &mut Pin<Box<Sleep>>| ends.as_mut().poll(cx).is_ready();
        if self.ends.as_mut().is_some_and(is_over) {
            // A read of 0 bytes is the end of the stream.
            return Poll::Ready(Ok(()));
        }
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for Peer {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<std::io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[std::io::IoSlice<'_>],
    ) -> Poll<std::io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

/// Admits only principals, and no caller once the daemon stops. Every service is called through it.
#[derive(Debug, Clone)]
pub(super) struct Guard {
    uid: u32,
    stopping: CancellationToken,
}

impl Guard {
    pub(super) fn new(uid: u32, stopping: CancellationToken) -> Self {
        Self { uid, stopping }
    }

    fn admit<'c>(&self, caller: Option<&'c Caller>) -> Result<&'c Caller, Status> {
        let refuse = |text: String| with_reason(Status::permission_denied(text), "denied");
        match caller {
            Some(Caller {
                lineage: Lineage::Inside { .. },
                ..
            }) => {
                let text = "a process that a run started cannot call the daemon: it has no token of its own";
                Err(with_reason(Status::permission_denied(text), "inside_a_run"))
            }
            None
            | Some(
                Caller {
                    lineage: Lineage::Unknown,
                    ..
                }
                | Caller { uid: None, .. },
            ) => Err(refuse(
                "the daemon cannot tell which process is calling: it has ended, runs in another pid namespace, or hides its environment; a daemon in a container is called from inside it, as by `docker exec CONTAINER ryectl …`"
                    .to_owned(),
            )),
            Some(Caller { uid: Some(uid), .. }) if *uid != self.uid => Err(refuse(format!(
                "uid {uid} has no grant on this daemon, which serves uid {}",
                self.uid
            ))),
            Some(_) if self.stopping.is_cancelled() => {
                let text = "the daemon is stopping; try again when it is up";
                Err(with_reason(Status::unavailable(text), "stopping"))
            }
            Some(caller) => Ok(caller),
        }
    }
}

impl Interceptor for Guard {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        let layer = self.admit(request.extensions().get::<Caller>())?.layer();
        request.extensions_mut().insert(layer);
        Ok(request)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_own_user_outside_runs_is_admitted() {
        let guard = Guard::new(1000, CancellationToken::new());
        for (uid, lineage, admitted) in [
            (Some(1000), Lineage::Outside, true),
            (Some(1000), inside("a"), false),
            (Some(1000), Lineage::Unknown, false),
            (Some(1001), Lineage::Outside, false),
            (Some(0), Lineage::Outside, false),
            (None, Lineage::Outside, false),
        ] {
            let told = format!("{uid:?} {lineage:?}");
            assert_eq!(
                guard.admit(Some(&Caller { uid, lineage })).is_ok(),
                admitted,
                "{told}"
            );
        }
        assert!(guard.admit(None).is_err());
    }

    #[test]
    fn caller_inside_run_is_refused_with_reason() {
        let run = caller(1000, inside("a"));
        let refused = Guard::new(1000, CancellationToken::new()).admit(Some(&run));
        let refused = refused.unwrap_err();
        assert_eq!(refused.code(), tonic::Code::PermissionDenied);
        assert_eq!(
            refused.metadata().get("rye-reason").unwrap(),
            "inside_a_run"
        );
    }

    #[test]
    fn stopping_daemon_refuses_callers_with_reason() {
        let stopping = CancellationToken::new();
        let guard = Guard::new(1000, stopping.clone());
        let outside = caller(1000, Lineage::Outside);
        assert!(guard.admit(Some(&outside)).is_ok());
        stopping.cancel();
        let refused = guard.admit(Some(&outside)).unwrap_err();
        assert_eq!(refused.code(), tonic::Code::Unavailable);
        assert_eq!(refused.metadata().get("rye-reason").unwrap(), "stopping");
        let other = caller(1001, Lineage::Outside);
        let other = guard.admit(Some(&other));
        assert_eq!(other.unwrap_err().code(), tonic::Code::PermissionDenied);
    }

    fn inside(attempt: &str) -> Lineage {
        let attempt = attempt.as_bytes().to_vec();
        Lineage::Inside { attempt }
    }

    fn caller(uid: u32, lineage: Lineage) -> Caller {
        Caller {
            uid: Some(uid),
            lineage,
        }
    }

    #[tokio::test]
    async fn connection_slots_are_limited_and_released() {
        let places = ConnectionLimits::new(Guard::new(1000, CancellationToken::new()), 8);
        let take = |uid, lineage| {
            let (ours, theirs) = UnixStream::pair().unwrap();
            places
                .take(ours, caller(uid, lineage))
                .map(|peer| (peer, theirs))
        };
        for (uid, lineage, most) in [
            (1000, Lineage::Outside, 4),
            (1000, inside("a"), MOST_OF_ATTEMPT),
            (1000, Lineage::Unknown, MOST_REFUSED),
            (1001, Lineage::Outside, MOST_REFUSED),
        ] {
            let mut held: Vec<_> = std::iter::from_fn(|| take(uid, lineage.clone()))
                .take(100)
                .collect();
            assert_eq!(held.len(), most, "{lineage:?}");
            held.pop();
            assert!(take(uid, lineage.clone()).is_some(), "{lineage:?}");
        }
        // Other attempts still get connections, and all attempts together as many as all refused callers.
        let own: Vec<_> = std::iter::from_fn(|| take(1000, inside("a")))
            .take(100)
            .collect();
        let others = (0..100).map_while(|n| take(1000, inside(&n.to_string())));
        assert_eq!(
            others.collect::<Vec<_>>().len(),
            MOST_REFUSED - MOST_OF_ATTEMPT
        );
        drop(own);
        assert!(places.attempts.taken().is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn refused_connection_is_closed() {
        use tokio::io::AsyncReadExt as _;

        let places = ConnectionLimits::new(Guard::new(1000, CancellationToken::new()), 8);
        for (lineage, ends) in [(inside("a"), true), (Lineage::Outside, false)] {
            let (ours, _theirs) = UnixStream::pair().unwrap();
            let mut peer = places.take(ours, caller(1000, lineage.clone())).unwrap();
            let mut byte = [0];
            let read = tokio::time::timeout(REFUSED_FOR * 2, peer.read(&mut byte));
            assert_eq!(
                read.await.is_ok_and(|read| read.unwrap() == 0),
                ends,
                "{lineage:?}"
            );
        }
    }
}
