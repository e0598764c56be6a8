//! Ends a daemon that does not answer.
//!
//! **Order.** The parent of the daemon gets TERM first. Then both get CONT, in case they were stopped. A daemon that
//! works again ends its runs in order. A daemon that still does not answer is killed; its parent, which has TERM, ends
//! the rest and starts no new daemon.
#![expect(unsafe_code, reason = "the C library has no wrapper for two calls")]

use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, FromRawFd as _, OwnedFd};
use std::time::Duration;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use rye_core::served_at::{Process, ServedAt};
use tokio::time::Instant;

use super::probe::Probe;
use super::{Pause, STOP_PATIENCE, holder};
use crate::error::Error;

/// Time limits of the steps.
#[derive(Debug, Clone, Copy)]
pub(super) struct Patience {
    /// For a continued daemon, until it answers.
    pub(super) wakes: Duration,
    /// For a daemon that answers again, until it has stopped.
    pub(super) stops: Duration,
    /// For a killed process, and for a parent that ends what the daemon has left.
    pub(super) dies: Duration,
}

impl Patience {
    pub(super) const DEFAULT: Self = Self {
        wakes: Duration::from_secs(10),
        stops: STOP_PATIENCE,
        dies: Duration::from_secs(10),
    };
}

/// Ends the daemon of `record`, and its parent.
pub(super) async fn end(record: &ServedAt, patience: Patience) -> Result<(), Error> {
    let daemon = Held::take(record.daemon)?;
    let parent = match record.parent {
        Some(parent) => Held::take(parent)?,
        None => None,
    };
    let both = || parent.iter().chain(&daemon);
    // The parent forwards the signal.
    if let Some(first) = both().next() {
        first.signal(libc::SIGTERM)?;
    }
    for held in both() {
        held.signal(libc::SIGCONT)?;
    }
    if let Some(daemon) = &daemon
        && !stops(daemon, record, patience).await?
    {
        daemon.signal(libc::SIGKILL)?;
        daemon.ended_within(patience.dies).await?;
    }
    if let Some(parent) = &parent
        && !parent.ends_within(patience.dies).await?
    {
        parent.signal(libc::SIGKILL)?;
        parent.ended_within(patience.dies).await?;
    }
    Ok(())
}

/// Waits until the daemon has ended. Returns false if it neither ends nor answers.
async fn stops(daemon: &Held, record: &ServedAt, patience: Patience) -> Result<bool, Error> {
    let deadline = Instant::now() + patience.wakes;
    let mut probe = Probe::default();
    while Instant::now() < deadline {
        if daemon.has_ended()? {
            return Ok(true);
        }
        if probe.answers(&record.socket).await {
            return daemon.ends_within(patience.stops).await;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    daemon.has_ended()
}

/// A process that is signalled through a pidfd, which never refers to another process.
#[derive(Debug)]
struct Held {
    pid: i32,
    descriptor: OwnedFd,
}

impl Held {
    /// Opens a descriptor of `process`; `None` if it has ended. Its start time is read after the descriptor is open, so
    /// the pid was its own before and after.
    fn take(process: Process) -> Result<Option<Self>, Error> {
        let pid = process.pid;
        // SAFETY: the call takes two integers and touches no memory of ours.
        let opened = Errno::result(unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) });
        let descriptor = match opened {
            Ok(descriptor) => i32::try_from(descriptor).expect("descriptors are small integers"),
            Err(Errno::ESRCH) => return Ok(None),
            Err(errno) => return Err(cannot_end(pid, errno)),
        };
        // SAFETY: the kernel has just returned this descriptor, and nothing else owns it.
        let descriptor = unsafe { OwnedFd::from_raw_fd(descriptor) };
        Ok(holder::lives(process).then_some(Self { pid, descriptor }))
    }

    fn signal(&self, number: libc::c_int) -> Result<(), Error> {
        let info = std::ptr::null::<libc::siginfo_t>();
        let descriptor = self.descriptor.as_raw_fd();
        // SAFETY: the descriptor is open, and with a null `info` the call acts as kill(2).
        let sent =
            unsafe { libc::syscall(libc::SYS_pidfd_send_signal, descriptor, number, info, 0) };
        match Errno::result(sent) {
            Ok(_) | Err(Errno::ESRCH) => Ok(()),
            Err(errno) => Err(cannot_end(self.pid, errno)),
        }
    }

    /// True once the process has ended, reaped or not.
    fn has_ended(&self) -> Result<bool, Error> {
        let mut polled = [PollFd::new(self.descriptor.as_fd(), PollFlags::POLLIN)];
        match poll(&mut polled, PollTimeout::ZERO) {
            Ok(ready) => Ok(ready > 0),
            Err(Errno::EINTR) => Ok(false),
            Err(errno) => Err(cannot_end(self.pid, errno)),
        }
    }

    async fn ends_within(&self, limit: Duration) -> Result<bool, Error> {
        let deadline = Instant::now() + limit;
        let mut pause = Pause::default();
        while !self.has_ended()? {
            if Instant::now() >= deadline {
                return Ok(false);
            }
            pause.rest().await;
        }
        Ok(true)
    }

    /// Waits like [`Held::ends_within`] for a killed process. A timeout is an error.
    async fn ended_within(&self, limit: Duration) -> Result<(), Error> {
        if self.ends_within(limit).await? {
            return Ok(());
        }
        let hangs = "it was killed, and hangs in the kernel";
        Err(Error::CannotEnd {
            pid: self.pid,
            source: io::Error::new(io::ErrorKind::TimedOut, hangs),
        })
    }
}

fn cannot_end(pid: i32, errno: Errno) -> Error {
    Error::CannotEnd {
        pid,
        source: errno.into(),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt as _;
    use std::path::Path;
    use std::process::{Child, Command, Stdio};

    use super::*;

    const PATIENCE: Patience = Patience {
        wakes: Duration::from_millis(50),
        stops: Duration::from_secs(20),
        dies: Duration::from_secs(20),
    };

    /// Starts a process that ignores TERM.
    #[expect(clippy::disallowed_methods, reason = "a test needs a process to end")]
    fn stubborn() -> Child {
        let mut command = Command::new("sh");
        command.args(["-c", "trap '' TERM; echo ready; exec sleep 600"]);
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut ready = [0; 6];
        let stdout = child.stdout.as_mut().unwrap();
        io::Read::read_exact(stdout, &mut ready).unwrap();
        child
    }

    #[tokio::test]
    async fn a_daemon_that_ignores_the_request_is_killed() {
        let mut child = stubborn();
        let record = holder::tests::record(Path::new("/nowhere"), child.id());
        end(&record, PATIENCE).await.unwrap();
        let status = child.wait().unwrap();
        assert_eq!(status.signal(), Some(libc::SIGKILL));
    }

    #[tokio::test]
    async fn forced_stop_spares_process_with_reused_pid() {
        let mut child = stubborn();
        let mut record = holder::tests::record(Path::new("/nowhere"), child.id());
        record.daemon.started -= 1;
        end(&record, PATIENCE).await.unwrap();
        assert_eq!(child.try_wait().unwrap(), None);
        child.kill().unwrap();
        let _status = child.wait().unwrap();
    }
}
