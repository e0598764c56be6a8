//! The daemon's side of a shim.

use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::net::UnixStream as StdStream;
use std::path::PathBuf;
use std::process::Child;
use std::time::Duration;

use rye_core::model::ProcessIdentity;
use rye_host::task;
use rye_process::shim::{ShimLock, ShimRecord};
use rye_process::{Members, Stop, StopReason};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::UnixStream;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, sleep_until};

use super::messages::{self, Answer, Line, Request, Status};

/// Time for which a shim may take to end its process, in addition to the grace period.
const END_TIME: Duration = Duration::from_secs(20);
/// Time for which a shim may take to end itself after its process. It waits for space on a full disk.
const CLOSE_TIME: Duration = Duration::from_secs(45);
/// Pause between two looks at its lock.
const LOOK_AGAIN: Duration = Duration::from_millis(5);

/// A living shim, as the daemon sees it. Dropping it leaves the shim and its process alone.
#[derive(Debug)]
pub struct Survivor {
    directory: PathBuf,
    identity: ProcessIdentity,
    members: Members,
    /// The shim, if it is a child of this process, which reaps it.
    child: Option<Child>,
    socket: UnixStream,
}

impl Survivor {
    /// Connects to the shim in `directory`.
    pub(super) async fn connect(directory: PathBuf) -> io::Result<Self> {
        let place = directory.clone();
        let open = move || {
            let record = ShimRecord::read(&place)?;
            let started = record.and_then(|record| Some((record.members()?, record.child?)));
            let started =
                started.ok_or_else(|| io::Error::other("it has not started its process"))?;
            // The path of the directory may be longer than that of a socket may be.
            let directory = std::fs::File::open(place)?;
            let path = format!("/proc/self/fd/{}", directory.as_raw_fd());
            let stream = StdStream::connect(PathBuf::from(path).join(messages::SOCKET))?;
            stream.set_nonblocking(true)?;
            Ok((started, stream))
        };
        let opened: io::Result<_> = task::blocking("call a shim", open).await;
        let ((members, identity), stream) = opened?;
        let mut socket = UnixStream::from_std(stream)?;
        socket.write_all(&messages::line(Request::Follow)).await?;
        Ok(Self {
            directory,
            identity,
            members,
            child: None,
            socket,
        })
    }

    /// Sets the shim, which this process has started.
    pub(super) fn with_child(self, child: Child) -> Self {
        Self {
            child: Some(child),
            ..self
        }
    }

    pub const fn identity(&self) -> &ProcessIdentity {
        &self.identity
    }

    /// Processes of the attempt.
    pub const fn members(&self) -> &Members {
        &self.members
    }

    /// Follows the process until its shim has ended, and forwards `stop`, which has `grace` unless it says otherwise.
    /// Notifies `output` when its log has grown. Returns `None` if the shim was killed, or does not end.
    pub async fn finish(
        self,
        mut stop: Stop,
        grace: Duration,
        output: &Notify,
    ) -> Option<Box<Status>> {
        let Self {
            directory,
            mut child,
            socket,
            ..
        } = self;
        let (answers, mut requests) = socket.into_split();
        let mut answers = BufReader::new(answers).lines();
        let (mut deadline, mut last) = (None, None);
        output.notify_one();
        loop {
            let late = async {
                match deadline {
                    Some(deadline) => sleep_until(deadline).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                answer = answers.next_line() => match answer {
                    Ok(Some(line)) => note(&line, output),
                    Ok(None) | Err(_) => break,
                },
                asked = asked(&mut stop, last) => {
                    last = Some(asked);
                    let (request, grace) = request(asked, grace);
                    let due = Instant::now() + grace + END_TIME;
                    deadline = Some(deadline.map_or(due, |before: Instant| before.min(due)));
                    // A failed write means that the shim has ended.
                    if requests.write_all(&messages::line(request)).await.is_err() {
                        break;
                    }
                }
                () = late => {
                    // What is not a child of this process is killed by the caller.
                    let killed = child.as_mut()?.kill();
                    tracing::error!(?killed, "a shim does not end its process, and is killed");
                    break;
                }
            }
        }
        closed(directory, child).await
    }
}

/// Resolves to a reason to stop that is stronger than `last`.
async fn asked(stop: &mut Stop, last: Option<StopReason>) -> StopReason {
    match stop
        .wait_for(|reason| *reason > last)
        .await
        .map(|reason| *reason)
    {
        Ok(Some(reason)) => reason,
        // Nobody can ask any more.
        Ok(None) | Err(_) => std::future::pending().await,
    }
}

/// Returns the request for `reason`, and the time between TERM and KILL.
fn request(reason: StopReason, grace: Duration) -> (Request, Duration) {
    let grace = match reason {
        StopReason::Cancel | StopReason::Timeout => grace,
        StopReason::Kill { grace } => grace,
    };
    let grace_ms = u64::try_from(grace.as_millis()).unwrap_or(u64::MAX);
    let request = match grace_ms {
        0 => Request::Kill,
        grace_ms => Request::Stop { grace_ms },
    };
    (request, grace)
}

fn note(line: &str, output: &Notify) {
    match serde_json::from_str::<Line<Answer>>(line) {
        Ok(Line {
            message: Answer::Output(_),
            ..
        }) => output.notify_one(),
        Ok(Line {
            message: Answer::Error(error),
            ..
        }) => tracing::warn!(?error, "a shim refuses a request"),
        // What a later version may say.
        Ok(_) | Err(_) => {}
    }
}

/// Waits for the end of a shim that this process has started, and reaps it.
pub(super) async fn reap(mut child: Child) {
    let wait = move || child.wait();
    let waited = task::blocking("wait for a shim", wait).await;
    if let Err(error) = waited {
        tracing::warn!(%error, "a shim could not be reaped");
    }
}

/// Waits for the end of a shim, which has closed its socket, and reads the end of its process.
async fn closed(directory: PathBuf, child: Option<Child>) -> Option<Box<Status>> {
    let end = async {
        if let Some(child) = child {
            reap(child).await;
        }
        loop {
            let place = directory.clone();
            let look = move || ShimLock::is_held(&place);
            if !task::blocking("look at a lock", look)
                .await
                .unwrap_or_default()
            {
                break;
            }
            sleep(LOOK_AGAIN).await;
        }
        let read = move || Status::read(&directory);
        task::blocking("read the end of a process", read).await
    };
    match tokio::time::timeout(CLOSE_TIME, end).await {
        Ok(Ok(status)) => status.map(Box::new),
        Ok(Err(error)) => {
            tracing::error!(%error, "the end of a process cannot be read");
            None
        }
        Err(_elapsed) => None,
    }
}
