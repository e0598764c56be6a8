//! Tests whether a daemon answers on a socket.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rye_core::served_at::{Attempt, GREETING};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;

use crate::client::{listener_of, open};
use crate::error::Error;

/// Time that one look waits for an answer.
const LOOK: Duration = Duration::from_millis(250);

/// A connection that was greeted and waits for the answer. It is kept between looks, so that a late answer counts.
#[derive(Debug, Default)]
pub(super) struct Probe(Option<Greeted>);

#[derive(Debug)]
struct Greeted {
    socket: PathBuf,
    stream: UnixStream,
    pid: Option<i32>,
}

impl Probe {
    /// Connects to `socket` if there is no connection to it yet, and waits for an answer.
    pub(super) async fn look(&mut self, socket: &Path) -> Result<Attempt, Error> {
        let greeted = match self.0.take().filter(|greeted| greeted.socket == socket) {
            Some(greeted) => greeted,
            None => match greet(socket).await {
                Ok(greeted) => greeted,
                Err(Error::NotRunning { .. }) => return Ok(Attempt::Nothing),
                // The daemon's accept queue is full.
                Err(Error::Connect { source, .. })
                    if source.kind() == io::ErrorKind::WouldBlock =>
                {
                    return Ok(Attempt::Silent);
                }
                Err(error) => return Err(error),
            },
        };
        let greeted = self.0.insert(greeted);
        let mut answer = [0];
        match tokio::time::timeout(LOOK, greeted.stream.read(&mut answer)).await {
            Ok(Ok(1..)) => Ok(Attempt::Answers),
            Ok(Ok(0) | Err(_)) => {
                self.0 = None;
                Ok(Attempt::Closed)
            }
            Err(_elapsed) => Ok(Attempt::Silent),
        }
    }

    /// True if a daemon answers on `socket` now.
    pub(super) async fn answers(&mut self, socket: &Path) -> bool {
        matches!(self.look(socket).await, Ok(Attempt::Answers))
    }

    /// Returns the pid of the listening process, if there is a connection and this process may see the pid.
    pub(super) fn pid(&self) -> Option<i32> {
        self.0.as_ref()?.pid
    }
}

async fn greet(socket: &Path) -> Result<Greeted, Error> {
    let mut stream = open(socket).await?;
    let pid = listener_of(&stream);
    // A failed write shows when the answer is read.
    let _sent = stream.write_all(GREETING).await;
    Ok(Greeted {
        socket: socket.to_owned(),
        stream,
        pid,
    })
}
