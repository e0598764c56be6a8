//! The program of a shim: starts one process, keeps its output and its end, and obeys the daemon.
//!
//! One thread serves all, beside the one that starts the process and those that write files. **Failure.** If the process
//! cannot be started, the daemon receives the reason, and no file says that there was an attempt. A file that cannot be
//! written costs its content; the process continues.

use std::convert::Infallible;
use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::{AsRawFd as _, RawFd};
use std::os::unix::net::UnixListener as StdListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use nix::unistd::getpid;
use rye_core::model::Failure;
use rye_host::clock::HostClock;
use rye_host::task::{self, Group};
use rye_process::masking::Masker;
use rye_process::shim::{self, ShimRecord, ShimSignals};
use rye_process::{
    self as process, AttemptCgroups, Running, SignalScope, Spawner, StopReason, Stopper, Tap,
};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{UnixListener, UnixStream};

use super::messages::{self, Answer, Growth, Request, ShimPlan, Start, State, Status};
use crate::process_log::ProcessLog;

/// Maximum length of a request in bytes.
const LONGEST_REQUEST: u64 = 4096;
/// Attempts to write the end of a process, with a pause between them.
const STATUS_TRIES: u32 = 30;
const STATUS_PAUSE: Duration = Duration::from_secs(1);

/// Runs a shim with the descriptors of its plan, of the pipe for its first message, and of its lock. `unstarted` makes
/// the failure of a process that did not start. Returns when the process has ended, or was not started.
pub fn keep(
    [plan, ready, lock]: [RawFd; 3],
    unstarted: impl Fn(&process::Error) -> Failure,
) -> io::Result<()> {
    process::harden();
    let _lock = shim::inherited(lock)?;
    let mut content = Vec::new();
    File::from(shim::inherited(plan)?).read_to_end(&mut content)?;
    let plan: ShimPlan = serde_json::from_slice(&content)?;
    let ready = File::from(shim::inherited(ready)?);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(keep_attempt(plan, ready, unstarted))
}

async fn keep_attempt(
    plan: ShimPlan,
    mut ready: File,
    unstarted: impl Fn(&process::Error) -> Failure,
) -> io::Result<()> {
    let signals = ShimSignals::listen()?;
    let ShimPlan {
        directory,
        attempt,
        tag,
        process,
        secrets,
        open_files,
        is_scoped,
        cgroup,
    } = plan;
    let listener = listen(&directory)?;
    let mut record = ShimRecord::of_this_process(attempt, tag.clone(), cgroup.clone());
    record.write(&directory)?;
    let scope = is_scoped.then(SignalScope::prepare).transpose();
    let scope = scope.map_err(io::Error::other)?;
    let cgroups = cgroup.map(AttemptCgroups::of_shim);
    let spawner = Spawner::new(Some(getpid()), open_files, cgroups, scope);
    let running = match spawner.start(process, &tag).await {
        Ok(running) => running,
        Err(error) => {
            ShimRecord::remove(&directory)?;
            let failure = Box::new(unstarted(&error));
            return Ok(serde_json::to_writer(ready, &Start::Failed { failure })?);
        }
    };
    let child = running.identity().clone();
    record.child = Some(child.clone());
    record.write(&directory)?;
    let log = ProcessLog::alone(directory.clone(), Arc::new(HostClock));
    log.begin(attempt, None).await;
    let pid = child.pid;
    serde_json::to_writer(&mut ready, &Start::Running { child })?;
    drop(ready);
    let masker = Arc::new(Masker::of_texts(secrets));
    let exited = follow(running, masker, &log, &signals, listener).await;
    log.close().await;
    let status = Status::new(attempt, pid, exited.map_err(io::Error::other)?);
    for _ in 0..STATUS_TRIES {
        // The disk may be full.
        if status.write(&directory).is_ok() {
            break;
        }
        tokio::time::sleep(STATUS_PAUSE).await;
    }
    Ok(())
}

/// Opens the socket in `directory`, whose path may be longer than that of a socket may be.
fn listen(directory: &Path) -> io::Result<UnixListener> {
    let directory = File::open(directory)?;
    let path = PathBuf::from(format!("/proc/self/fd/{}", directory.as_raw_fd()));
    let listener = StdListener::bind(path.join(messages::SOCKET))?;
    listener.set_nonblocking(true)?;
    UnixListener::from_std(listener)
}

/// Follows the process to its end, and obeys the daemon meanwhile.
async fn follow(
    running: Running,
    masker: Arc<Masker>,
    log: &Arc<ProcessLog>,
    signals: &ShimSignals,
    listener: UnixListener,
) -> Result<process::Exited, process::Error> {
    let pid = running.identity().pid;
    let stopper = Arc::new(Stopper::new());
    let kept = Arc::clone(log);
    let running = running
        .with_tap(Tap::new(move |source, piece, _| {
            kept.receive(source, piece);
        }))
        .with_masker(masker);
    let asked = async {
        loop {
            match signals.stop_requested(pid).await {
                Ok(()) => stopper.stop(StopReason::Cancel),
                // Orphans that have ended stay zombies.
                Err(_error) => std::future::pending::<()>().await,
            }
        }
    };
    tokio::select! {
        exited = running.finish(stopper.listen()) => exited,
        never = log.write() => match never {},
        never = serve(listener, &stopper, log) => match never {},
        never = asked => never,
    }
}

/// Answers on every connection.
async fn serve(
    listener: UnixListener,
    stopper: &Arc<Stopper>,
    log: &Arc<ProcessLog>,
) -> Infallible {
    let mut connections = Group::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => {
                    connections.spawn(converse(stream, Arc::clone(stopper), Arc::clone(log)));
                }
                // Too many open files.
                Err(_error) => task::sleep(Some(STATUS_PAUSE)).await,
            },
            Some(_ended) = connections.next() => {}
        }
    }
}

/// Serves one connection until it is closed. A connection that fails is a daemon that has ended.
async fn converse(stream: UnixStream, stopper: Arc<Stopper>, log: Arc<ProcessLog>) {
    let (reader, mut writer) = stream.into_split();
    let mut reader = BufReader::new(reader);
    let mut growth = log.writes();
    let (mut is_following, mut line) = (false, Vec::new());
    loop {
        let mut requests = (&mut reader).take(LONGEST_REQUEST);
        let answer = tokio::select! {
            read = requests.read_until(b'\n', &mut line) => match read {
                Ok(read) if read > 0 => {
                    let request = Request::read(&line);
                    line.clear();
                    is_following |= request == Ok(Request::Follow);
                    answer(request, &stopper)
                }
                Ok(_) | Err(_) => return,
            },
            grown = growth.changed(), if is_following => match grown {
                Ok(()) => Answer::Output(Growth::More),
                Err(_) => return,
            },
        };
        if writer.write_all(&messages::line(answer)).await.is_err() {
            return;
        }
    }
}

fn answer(request: Result<Request, messages::RequestError>, stopper: &Stopper) -> Answer {
    let stop = |grace| stopper.stop(StopReason::Kill { grace });
    match request {
        Ok(Request::Stop { grace_ms }) => stop(Duration::from_millis(grace_ms)),
        Ok(Request::Kill) => stop(Duration::ZERO),
        Ok(Request::Status | Request::Follow) => {}
        Err(error) => return Answer::Error(error),
    }
    let is_stopping = stopper.listen().borrow().is_some();
    Answer::State(if is_stopping {
        State::Stopping
    } else {
        State::Running
    })
}
