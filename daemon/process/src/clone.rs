//! Starts a child that shares the memory of its caller, in a cgroup.
//!
//! The C library has no wrapper for `clone3`, and its `clone` knows no cgroups. A process that writes itself into a
//! cgroup instead costs 12 ms where `clone3` costs nothing, and runs outside for a moment.
#![expect(unsafe_code, reason = "a system call after which two processes return")]

use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

use nix::errno::Errno;
use nix::unistd::Pid;

/// Body of a child; returns its exit code. It runs in the memory of its caller.
pub(super) type Body<'a> = dyn FnMut() -> i32 + 'a;

/// Starts `body` as a child in the cgroup of the open directory `cgroup`. Returns its pid and a handle on it as soon as
/// it has executed a program or ended.
///
/// Fails with `ENOSYS` on processors for which the call is not written, and before Linux 5.7.
///
/// # Safety
///
/// All signals are blocked. `body` allocates nothing, takes no lock, and does not panic.
#[cfg(target_arch = "x86_64")]
pub(super) unsafe fn into_cgroup(
    body: &mut Body<'_>,
    stack: &mut [u8],
    cgroup: BorrowedFd<'_>,
) -> Result<(Pid, OwnedFd), Errno> {
    use std::arch::asm;
    use std::os::fd::FromRawFd as _;

    /// The stack pointer of a function call.
    const ALIGNMENT: usize = 16;

    /// First function of the child.
    extern "C" fn enter(body: *mut &mut Body<'_>) -> ! {
        // SAFETY: the caller of `into_cgroup` keeps the body, and is stopped.
        let code = unsafe { (*body)() };
        // SAFETY: it ends this child without any clean-up, which would be that of the caller.
        unsafe { libc::_exit(code) }
    }

    let mut body: &mut Body<'_> = body;
    let mut pidfd: libc::c_int = -1;
    let bottom = stack.as_mut_ptr().addr();
    let top = (bottom + stack.len()) & !(ALIGNMENT - 1);
    let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::CLONE_PIDFD;
    let number = |value: usize| u64::try_from(value).expect("addresses have 64 bits");
    let args = libc::clone_args {
        flags: u64::from(flags.cast_unsigned()) | CLONE_INTO_CGROUP,
        pidfd: number((&raw mut pidfd).expose_provenance()),
        child_tid: 0,
        parent_tid: 0,
        exit_signal: u64::from(libc::SIGCHLD.cast_unsigned()),
        stack: number(stack.as_mut_ptr().expose_provenance()),
        stack_size: number(top - bottom),
        tls: 0,
        set_tid: 0,
        set_tid_size: 0,
        cgroup: u64::from(cgroup.as_raw_fd().cast_unsigned()),
    };
    let mut result: isize;
    // SAFETY: the child begins with an empty stack of its own and never leaves the block; the caller, which shares its
    // memory, is stopped until then. The kernel changes only the listed registers of the caller.
    unsafe {
        asm!(
            "syscall",
            "test rax, rax",
            "jnz 2f",
            "xor ebp, ebp",
            "mov rdi, {body}",
            "call {enter}",
            "ud2",
            "2:",
            body = in(reg) &raw mut body,
            enter = sym enter,
            inlateout("rax") isize::try_from(libc::SYS_clone3).expect("it is small") => result,
            in("rdi") &raw const args,
            in("rsi") size_of::<libc::clone_args>(),
            out("rcx") _,
            out("r11") _,
        );
    }
    if result < 0 {
        let errno = i32::try_from(-result).unwrap_or(libc::EINVAL);
        return Err(Errno::from_raw(errno));
    }
    let pid = i32::try_from(result).expect("pids have 32 bits");
    // SAFETY: the kernel has just returned this descriptor; it has no other owner.
    let pidfd = unsafe { OwnedFd::from_raw_fd(pidfd) };
    Ok((Pid::from_raw(pid), pidfd))
}

#[cfg(target_arch = "x86_64")]
const CLONE_INTO_CGROUP: u64 = 0x2_0000_0000;

/// See the variant for x86-64.
///
/// # Safety
///
/// It does nothing.
#[cfg(not(target_arch = "x86_64"))]
pub(super) unsafe fn into_cgroup(
    _body: &mut Body<'_>,
    _stack: &mut [u8],
    _cgroup: BorrowedFd<'_>,
) -> Result<(Pid, OwnedFd), Errno> {
    Err(Errno::ENOSYS)
}
