//! Process file descriptors: handles that always refer to the same process, even after its pid is reused.
#![expect(unsafe_code, reason = "the C library has no wrapper for two calls")]

use super::ending::number;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::time::Instant;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::Signal;

use super::procfs::Stat;

/// Opens a handle on `pid`, close-on-exec.
pub(super) fn open(pid: i32) -> Result<OwnedFd, Errno> {
    // SAFETY: the call takes two integers and touches no memory of this process.
    let fd = Errno::result(unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) })?;
    let fd = i32::try_from(fd).expect("descriptors are small integers");
    // SAFETY: the kernel has just returned this descriptor; it has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Sends `signal` to the process. Fails with `ESRCH` if it is gone.
pub(super) fn send(pidfd: BorrowedFd<'_>, signal: Signal) -> Result<(), Errno> {
    let signal = number(signal);
    let info = std::ptr::null::<libc::siginfo_t>();
    // SAFETY: the descriptor is open while it is borrowed; a null siginfo means "as kill(2) fills it".
    let sent = unsafe {
        libc::syscall(
            libc::SYS_pidfd_send_signal,
            pidfd.as_raw_fd(),
            signal,
            info,
            0,
        )
    };
    Errno::result(sent).map(drop)
}

/// Waits until the process has ended (a zombie has), at most until `deadline`. Returns true if it has ended.
pub(super) fn has_ended_by(pidfd: BorrowedFd<'_>, deadline: Instant) -> bool {
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let timeout = PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX);
        let mut fds = [PollFd::new(pidfd, PollFlags::POLLIN)];
        match poll(&mut fds, timeout) {
            Ok(0) if left.is_zero() => return false,
            Ok(0) | Err(Errno::EINTR) => {}
            Ok(_) => return true,
            Err(_) => return false,
        }
    }
}

/// One process with a handle for signals.
#[derive(Debug)]
pub(super) struct ProcessHandle {
    pub(super) stat: Stat,
    pidfd: OwnedFd,
}

impl ProcessHandle {
    /// Opens a handle on the process that `stat` describes; `None` if it is gone.
    ///
    /// The start time is read again *after* the descriptor is open. If it is the same, the pid meant this process
    /// before and after, so the descriptor does too.
    pub(super) fn take(stat: Stat) -> Option<Self> {
        let pidfd = open(stat.pid).ok()?;
        let now = Stat::read(stat.pid)?;
        (now.start_time == stat.start_time && now.is_alive()).then_some(Self { stat, pidfd })
    }

    /// Sends `signal`; no effect on a process that has ended.
    pub(super) fn signal(&self, signal: Signal) {
        match send(self.pidfd.as_fd(), signal) {
            Ok(()) | Err(Errno::ESRCH) => {}
            Err(error) => {
                tracing::warn!(pid = self.stat.pid, %error, "a process could not be signalled");
            }
        }
    }

    /// Waits for its end, at most until `deadline`. Returns true if it has ended.
    pub(super) fn has_ended_by(&self, deadline: Instant) -> bool {
        has_ended_by(self.pidfd.as_fd(), deadline)
    }
}
