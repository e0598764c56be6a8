//! Reaping of dead children. Signals are numbers here: a real-time signal, which can end a child too, has no name in
//! [`nix`].
#![expect(unsafe_code, reason = "`waitid` and `waitpid` with any signal number")]

use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd};

use nix::errno::Errno;

use super::ending::Exit;

/// Blocking mode of [`child`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wait {
    UntilEnd,
    No,
}

/// Reaps the child of `pidfd`; `None` if it still runs and `wait` is `Wait::No`.
pub(super) fn child(pidfd: BorrowedFd<'_>, wait: Wait) -> Result<Option<Exit>, Errno> {
    let fd = libc::id_t::try_from(pidfd.as_raw_fd()).expect("descriptors are not negative");
    let flags = match wait {
        Wait::UntilEnd => libc::WEXITED,
        Wait::No => libc::WEXITED | libc::WNOHANG,
    };
    let mut info = MaybeUninit::<libc::siginfo_t>::zeroed();
    loop {
        // SAFETY: `info` is owned here and large enough; the descriptor is open while it is borrowed.
        let result = unsafe { libc::waitid(libc::P_PIDFD, fd, info.as_mut_ptr(), flags) };
        match Errno::result(result) {
            Ok(_) => break,
            Err(Errno::EINTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    // SAFETY: every bit pattern is a siginfo, and all bits were set to zero before the call.
    let info = unsafe { info.assume_init() };
    // SAFETY: `waitid` fills the child fields, or leaves them zero when there was nothing to report.
    let pid = unsafe { info.si_pid() };
    // SAFETY: as above.
    let status = unsafe { info.si_status() };
    let exit = if info.si_code == libc::CLD_EXITED {
        Exit::Code(status)
    } else {
        Exit::Signal(status)
    };
    Ok((pid != 0).then_some(exit))
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
