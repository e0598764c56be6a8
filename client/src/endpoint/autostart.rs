//! Starts the daemon in the background.
//!
//! **Owns** the only place of the client that starts a process. The daemon gets its own session and none of our
//! descriptors. Its output goes to `ryed.log` in its state directory.
//! **Failure.** A daemon that ends before it answers is reported with the last line of its log. If another daemon holds
//! the state directory, that daemon is waited for instead.

#![expect(
    unsafe_code,
    reason = "a session of its own and closed descriptors are set between fork and exec"
)]

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::Signal;
use nix::sys::stat::{Mode, umask};
use tokio::time::Instant;

use rye_core::served_at::Holder;

use super::{Endpoint, Pause};
use crate::client::Client;
use crate::error::Error;
use crate::exit::Exit;

/// Longest start, including the recovery of a long log.
const PATIENCE: Duration = Duration::from_secs(30);
/// Longest wait for a daemon that another client started.
const OTHER_PATIENCE: Duration = Duration::from_secs(10);
/// Length of the end of the log that is searched for its last line.
const LOG_TAIL_BYTES: u64 = 4096;

/// Starts the daemon next to this program. Returns a client once the daemon that holds the state directory answers.
pub(super) async fn start(endpoint: &Endpoint) -> Result<Client, Error> {
    let log = endpoint.state_dir.join("ryed.log");
    let mut child = spawn(endpoint, &log)?;
    let mut deadline = Instant::now() + PATIENCE;
    let mut pause = Pause::default();
    let mut ended = None;
    loop {
        if let Some(client) = ready(endpoint, deadline).await? {
            return Ok(client);
        }
        if ended.is_none()
            && let Some(status) = child.try_wait().map_err(|source| Error::CannotStart {
                what: "look after",
                path: PathBuf::from("ryed"),
                source,
            })?
        {
            if !is_refused(status) || endpoint.holder() == Holder::None {
                return Err(not_ready(describe(status), log));
            }
            // Another daemon holds the state directory; most likely another client has just started it.
            ended = Some(status);
            deadline = deadline.min(Instant::now() + OTHER_PATIENCE);
        }
        if Instant::now() >= deadline {
            let why = match ended {
                Some(_) => another(endpoint),
                None if endpoint.holder().is_recovering() => format!(
                    "it is still recovering its runs after {} s",
                    PATIENCE.as_secs()
                ),
                None => format!("no answer within {} s", PATIENCE.as_secs()),
            };
            return Err(not_ready(why, log));
        }
        pause.rest().await;
    }
}

/// True if the daemon refused to start, and said why in its log.
fn is_refused(status: ExitStatus) -> bool {
    status.code() == Some(i32::from(Exit::Precondition.code()))
}

/// Describes the end of a daemon that did not start. Its parent reports the signal that ended it as exit code.
fn describe(status: ExitStatus) -> String {
    if is_refused(status) {
        return "it refused to start".to_owned();
    }
    let code = status.code().filter(|code| *code > 128);
    let signal = status.signal().or(code.map(|code| code - 128));
    let Some(Ok(signal)) = signal.map(Signal::try_from) else {
        return format!("it ended with {status}");
    };
    let limit = if signal == Signal::SIGXFSZ {
        ": this shell limits the size of files (`ulimit -Hf`)"
    } else if signal == Signal::SIGXCPU {
        ": this shell limits the time of processes (`ulimit -Ht`)"
    } else {
        ""
    };
    format!("{signal} ended it{limit}")
}

/// Explains that another daemon holds the state directory and does not answer.
fn another(endpoint: &Endpoint) -> String {
    let holder = endpoint.holder();
    let pid = holder.pid().map(|pid| format!(" (pid {pid})"));
    format!(
        "another one{} uses `{}` and does not answer on `{}`",
        pid.unwrap_or_default(),
        endpoint.state_dir.display(),
        endpoint.socket_of(&holder).display()
    )
}

/// Returns a client if the daemon answers. Waiting does not fix an error that this returns.
async fn ready(endpoint: &Endpoint, deadline: Instant) -> Result<Option<Client>, Error> {
    let client = match Client::connect(endpoint.socket()).await {
        Ok(client) => client,
        Err(Error::NotRunning { .. }) => return Ok(None),
        Err(error) => return Err(error),
    };
    match tokio::time::timeout_at(deadline, client.info()).await {
        Ok(Ok(_)) => Ok(Some(client)),
        Ok(Err(error)) if !error.is_outage() => Err(error),
        Ok(Err(_)) | Err(_) => Ok(None),
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "the client starts one process, the daemon, and does so here"
)]
fn spawn(endpoint: &Endpoint, log: &Path) -> Result<Child, Error> {
    let Endpoint {
        socket,
        state_dir,
        daemon_path,
        ..
    } = endpoint;
    let program = sibling_ryed().map_err(|source| Error::CannotStart {
        what: "find the directory of",
        path: PathBuf::from("ryectl"),
        source,
    })?;
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(state_dir)
        .map_err(|source| Error::CannotStart {
            what: "create the directory",
            path: state_dir.clone(),
            source,
        })?;
    let cannot_log = |source| Error::CannotStart {
        what: "open the log",
        path: log.to_owned(),
        source,
    };
    let output = OpenOptions::new()
        .create(true)
        .append(true)
        .mode(0o600)
        .open(log)
        .map_err(cannot_log)?;
    let errors = output.try_clone().map_err(cannot_log)?;
    let mut command = Command::new(&program);
    command
        .arg("--state-dir")
        .arg(state_dir)
        .arg("--socket")
        .arg(socket)
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(output)
        .stderr(errors);
    if let Some(path) = daemon_path {
        command.env("PATH", path);
    }
    // SAFETY: `detach` only makes system calls and touches no memory, so it is async-signal-safe.
    unsafe {
        command.pre_exec(detach);
    }
    command.spawn().map_err(|source| Error::CannotStart {
        what: "run",
        path: program,
        source,
    })
}

/// Runs in the child between fork and exec. The new session keeps a hang-up of our terminal from the daemon. Closed
/// descriptors keep a pipe or lock that we inherited from living on in the daemon.
fn detach() -> io::Result<()> {
    nix::unistd::setsid()?;
    forget_shell();
    // CLOEXEC instead of closing: the pipe that reports a failed exec is among them. Kernels before 5.11 refuse the
    // flag. Then inherited descriptors stay open, which harms only their other ends.
    // SAFETY: the call only changes flags of descriptors.
    let _best_effort = unsafe {
        libc::close_range(
            3,
            libc::c_uint::MAX,
            libc::CLOSE_RANGE_CLOEXEC.cast_signed(),
        )
    };
    Ok(())
}

/// Settings of the shell that happens to start the daemon must not be in force for all runs of all projects. Runs in the
/// child between fork and exec. Hard limits stay: they are the administrator's.
fn forget_shell() {
    umask(Mode::from_bits_truncate(0o022));
    for resource in [
        Resource::RLIMIT_CPU,
        Resource::RLIMIT_FSIZE,
        Resource::RLIMIT_AS,
        Resource::RLIMIT_DATA,
        Resource::RLIMIT_RSS,
        Resource::RLIMIT_NPROC,
    ] {
        if let Ok((_, hard)) = getrlimit(resource) {
            let _best_effort = setrlimit(resource, hard, hard);
        }
    }
    // SAFETY: the call only changes the priority of this process. Without privileges the kernel may refuse a higher one.
    let _best_effort = unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, 0) };
}

fn sibling_ryed() -> io::Result<PathBuf> {
    let mut path = std::env::current_exe()?;
    path.set_file_name("ryed");
    Ok(path)
}

fn not_ready(why: String, log: PathBuf) -> Error {
    Error::NotReady {
        why,
        last_line: last_line(&log).unwrap_or_default(),
        log,
    }
}

fn last_line(log: &Path) -> io::Result<String> {
    let mut file = File::open(log)?;
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(LOG_TAIL_BYTES)))?;
    let mut tail = Vec::new();
    file.read_to_end(&mut tail)?;
    let tail = String::from_utf8_lossy(&tail);
    let line = tail.lines().rev().find(|line| !line.trim().is_empty());
    Ok(text_of_log_line(line.unwrap_or_default().trim()))
}

/// Returns the text of a log line for people: message and error of a JSON entry, else the line itself.
fn text_of_log_line(line: &str) -> String {
    let entry: Option<serde_json::Value> = serde_json::from_str(line).ok();
    let text = |key: &str| entry.as_ref()?.get(key)?.as_str();
    match (text("message"), text("error")) {
        (Some(message), Some(error)) => format!("{message}: {error}"),
        (Some(message), None) => message.to_owned(),
        (None, _) => line.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signal_of_failed_start_is_named_with_limit_of_shell() {
        for (status, expected) in [
            (5 << 8, "it refused to start"),
            (1 << 8, "it ended with exit status: 1"),
            (
                153 << 8,
                "SIGXFSZ ended it: this shell limits the size of files (`ulimit -Hf`)",
            ),
            (
                24,
                "SIGXCPU ended it: this shell limits the time of processes (`ulimit -Ht`)",
            ),
            (139 << 8, "SIGSEGV ended it"),
        ] {
            assert_eq!(describe(ExitStatus::from_raw(status)), expected);
        }
    }

    #[test]
    fn failed_start_reports_last_nonempty_log_line() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("ryed.log");
        std::fs::write(
            &log,
            format!("{}\nerror: no space left\n\n", "x".repeat(9000)),
        )
        .unwrap();
        assert_eq!(last_line(&log).unwrap(), "error: no space left");
        let entry = r#"{"timestamp":"t","level":"ERROR","message":"the log cannot be opened","error":"no space"}"#;
        std::fs::write(&log, format!("{entry}\n")).unwrap();
        assert_eq!(
            last_line(&log).unwrap(),
            "the log cannot be opened: no space"
        );
        std::fs::write(&log, "").unwrap();
        assert_eq!(last_line(&log).unwrap(), "");
    }
}
