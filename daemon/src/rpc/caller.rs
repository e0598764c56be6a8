//! Who calls, decided when the connection is accepted: see `daemon/docs/capabilities.md`.
//!
//! A peer that descends from the daemon or its parent **is a run** and never a principal; until runs have tokens it is
//! refused. A peer of another uid has no grant and is refused; so is one whose lineage cannot be found out.

use std::pin::Pin;
use std::task::{Context, Poll};

use nix::unistd::Pid;
use rye_core::capability::Layer;
use rye_core::error::with_sources;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::UnixStream;
use tonic::service::Interceptor;
use tonic::transport::server::Connected;
use tonic::{Request, Status};

use super::status::with_reason;
use crate::process::{self, Lineage};

/// What is known of the process at the other end of a connection.
#[derive(Debug, Clone, Copy)]
pub(super) struct Caller {
    uid: Option<u32>,
    lineage: Lineage,
}

impl Caller {
    /// The authority this caller brings: the daemon's own user may do everything.
    pub(super) fn layer(self) -> Layer {
        let uid = self
            .uid
            .map_or_else(|| "unknown".to_owned(), |uid| uid.to_string());
        Layer {
            source: format!("uid:{uid}"),
            patterns: vec!["rye.*".into()],
        }
    }
}

/// A connection that knows who is at its other end.
#[derive(Debug)]
pub(super) struct Peer {
    stream: UnixStream,
    caller: Caller,
}

impl Peer {
    pub(super) fn of(stream: UnixStream, parent: Pid) -> Self {
        let (uid, lineage) = match process::Peer::of(&stream) {
            Ok(found) => (Some(found.uid()), found.lineage(Some(parent))),
            Err(error) => {
                tracing::warn!(error = %with_sources(&error), "a caller could not be identified");
                (None, Lineage::Unknown)
            }
        };
        Self {
            stream,
            caller: Caller { uid, lineage },
        }
    }
}

impl Connected for Peer {
    type ConnectInfo = Caller;

    fn connect_info(&self) -> Caller {
        self.caller
    }
}

impl AsyncRead for Peer {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
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

/// Lets through only callers that are principals; every service stands behind it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Guard {
    uid: u32,
}

impl Guard {
    pub(super) fn new(uid: u32) -> Self {
        Self { uid }
    }

    fn admit(self, caller: Option<Caller>) -> Result<Caller, Status> {
        let refuse = |text: String| with_reason(Status::permission_denied(text), "denied");
        match caller {
            Some(Caller {
                lineage: Lineage::Inside,
                ..
            }) => Err(refuse(
                "a process that a run started cannot call the daemon: it has no token of its own"
                    .to_owned(),
            )),
            None
            | Some(
                Caller {
                    lineage: Lineage::Unknown,
                    ..
                }
                | Caller { uid: None, .. },
            ) => Err(refuse(
                "the daemon cannot tell which process is calling".to_owned(),
            )),
            Some(Caller { uid: Some(uid), .. }) if uid != self.uid => Err(refuse(format!(
                "uid {uid} has no grant on this daemon, which serves uid {}",
                self.uid
            ))),
            Some(caller) => Ok(caller),
        }
    }
}

impl Interceptor for Guard {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        let caller = self.admit(request.extensions().get::<Caller>().copied())?;
        request.extensions_mut().insert(caller.layer());
        Ok(request)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_daemons_own_user_outside_every_run_is_let_in() {
        let guard = Guard::new(1000);
        for (uid, lineage, admitted) in [
            (Some(1000), Lineage::Outside, true),
            (Some(1000), Lineage::Inside, false),
            (Some(1000), Lineage::Unknown, false),
            (Some(1001), Lineage::Outside, false),
            (Some(0), Lineage::Outside, false),
            (None, Lineage::Outside, false),
        ] {
            assert_eq!(
                guard.admit(Some(Caller { uid, lineage })).is_ok(),
                admitted,
                "{uid:?} {lineage:?}"
            );
        }
        assert!(guard.admit(None).is_err());
    }
}
