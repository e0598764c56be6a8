//! Reaping of dead children. Signals are numbers here: a real-time signal, which can end a child too, has no name in
//! [`nix`].
#![expect(unsafe_code, reason = "`waitid` and `waitpid` with any signal number")]

use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::resource::{UsageWho, getrusage};

use super::ending::{Exit, Usage};

/// Blocking mode of [`child`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wait {
    UntilEnd,
    No,
}

/// Reaps the child of `pidfd`; `None` if it still runs and `wait` is `Wait::No`.
pub(super) fn child(pidfd: BorrowedFd<'_>, wait: Wait) -> Result<Option<(Exit, Usage)>, Errno> {
    let fd = libc::id_t::try_from(pidfd.as_raw_fd()).expect("descriptors are not negative");
    let flags = match wait {
        Wait::UntilEnd => libc::WEXITED,
        Wait::No => libc::WEXITED | libc::WNOHANG,
    };
    let mut info = MaybeUninit::<libc::siginfo_t>::zeroed();
    let mut used = MaybeUninit::<libc::rusage>::zeroed();
    loop {
        let (info, used) = (info.as_mut_ptr(), used.as_mut_ptr());
        // SAFETY: both are owned here and large enough; the descriptor is open while it is borrowed. The wrapper of the C
        // library lacks the last argument.
        let result =
            unsafe { libc::syscall(libc::SYS_waitid, libc::P_PIDFD, fd, info, flags, used) };
        match Errno::result(result) {
            Ok(_) => break,
            Err(Errno::EINTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    // SAFETY: every bit pattern is a siginfo, and all bits were set to zero before the call.
    let info = unsafe { info.assume_init() };
    // SAFETY: as above.
    let used = unsafe { used.assume_init() };
    // SAFETY: `waitid` fills the child fields, or leaves them zero when there was nothing to report.
    let pid = unsafe { info.si_pid() };
    // SAFETY: as above.
    let status = unsafe { info.si_status() };
    let exit = if info.si_code == libc::CLD_EXITED {
        Exit::Code(status)
    } else {
        Exit::Signal(status)
    };
    Ok((pid != 0).then_some((exit, Usage::from(used))))
}

impl From<libc::rusage> for Usage {
    fn from(used: libc::rusage) -> Self {
        let time = |time: libc::timeval| {
            let seconds = u64::try_from(time.tv_sec).unwrap_or_default();
            let micros = u64::try_from(time.tv_usec).unwrap_or_default();
            Duration::from_secs(seconds) + Duration::from_micros(micros)
        };
        Self {
            cpu: time(used.ru_utime) + time(used.ru_stime),
            max_rss_kib: u64::try_from(used.ru_maxrss)
                .ok()
                .filter(|peak| *peak > own_peak()),
        }
    }
}

/// Most resident memory of this process so far, in KiB.
pub(super) fn own_peak() -> u64 {
    let usage = getrusage(UsageWho::RUSAGE_SELF).map(|usage| usage.max_rss());
    usage.map_or(u64::MAX, |peak| u64::try_from(peak).unwrap_or(u64::MAX))
}

/// Reaps any child that has ended; `None` if none has. Fails with `ECHILD` if there are no children.
pub(super) fn any() -> Result<Option<(i32, Exit)>, Errno> {
    let mut status = 0;
    loop {
        // SAFETY: `status` is owned here and outlives the call.
        let result = unsafe { libc::waitpid(-1, &raw mut status, libc::WNOHANG) };
        match Errno::result(result) {
            Ok(0) => return Ok(None),
            Ok(pid) if libc::WIFEXITED(status) => {
                return Ok(Some((pid, Exit::Code(libc::WEXITSTATUS(status)))));
            }
            Ok(pid) if libc::WIFSIGNALED(status) => {
                return Ok(Some((pid, Exit::Signal(libc::WTERMSIG(status)))));
            }
            // Stopped or continued: not requested, and not an end.
            Ok(_) | Err(Errno::EINTR) => {}
            Err(errno) => return Err(errno),
        }
    }
}
