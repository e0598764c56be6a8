//! Injects faults of the system into a program. `LD_PRELOAD` loads this library between the program and the kernel.
//!
//! **Owns** the functions of the C library that it replaces, and the rules by which they fail. The variable
//! `RYE_FAULTS` names a file of rules, which is read again after each change. Each rule that fires is written as a line
//! to `<file>.fired`. Without the variable nothing fails. **Never** fails a call that no rule names.
//!
//! ```text
//! CALL  PART-OF-THE-PATH|*  FAULT  [TIMES]
//! fdatasync  /state/log/  EIO  1
//! write      /state/base  short
//! clock      *            +3600
//! pwrite64   /transcript  hang
//! ```
//!
//! A fault is the name of an error, `short` (half of the bytes are written), or `hang` (the call returns only after the
//! rules have changed). For `clock` it is an offset of the wall clock in seconds.
#![expect(
    unsafe_code,
    clippy::as_conversions,
    clippy::cast_possible_truncation,
    reason = "functions of the C library have its types, and the kernel answers within them"
)]

mod rules;

use std::ffi::{CStr, c_char, c_int, c_long, c_uint, c_void};

use libc::{
    SYS_accept4, SYS_clock_gettime, SYS_fdatasync, SYS_fsync, SYS_memfd_create, SYS_openat,
    SYS_pipe2, SYS_pwrite64, SYS_sync_file_range, SYS_write,
};
use libc::{clockid_t, mode_t, off_t, off64_t, size_t, sockaddr, socklen_t, ssize_t, timespec};

use rules::{Fault, fault_of_descriptor, fault_of_path};

/// Makes a call to the kernel with the result of the C library: -1, with the error in `errno`.
macro_rules! kernel {
    ($number:expr $(, $argument:expr)*) => {
        // SAFETY: the arguments are those with which the program called the function of that name.
        unsafe { libc::syscall($number $(, $argument)*) }
    };
}

fn fail(error: c_int) -> c_long {
    // SAFETY: the call has no preconditions.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: `errno` is memory of the calling thread.
    unsafe { *errno = error };
    -1
}

/// Makes a call on the descriptor `fd`, or fails it.
fn on_descriptor(call: &str, fd: c_int, kernel: impl FnOnce() -> c_long) -> c_long {
    match fault_of_descriptor(call, fd) {
        Some(Fault::Error(error)) => fail(error),
        Some(Fault::Short | Fault::Seconds(_) | Fault::Hang) | None => kernel(),
    }
}

/// Writes `length` bytes to `fd`, or half of them, or fails the call.
fn written(
    call: &str,
    fd: c_int,
    length: size_t,
    kernel: impl FnOnce(size_t) -> c_long,
) -> ssize_t {
    let result = match fault_of_descriptor(call, fd) {
        Some(Fault::Error(error)) => fail(error),
        Some(Fault::Short) => kernel(length.div_ceil(2)),
        Some(Fault::Seconds(_) | Fault::Hang) | None => kernel(length),
    };
    result as ssize_t
}

/// See `write(2)`.
///
/// # Safety
///
/// `bytes` points to `length` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn write(fd: c_int, bytes: *const c_void, length: size_t) -> ssize_t {
    written("write", fd, length, |length| {
        kernel!(SYS_write, fd, bytes, length)
    })
}

/// See `pwrite(2)`.
///
/// # Safety
///
/// `bytes` points to `length` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pwrite64(
    fd: c_int,
    bytes: *const c_void,
    length: size_t,
    at: off_t,
) -> ssize_t {
    written("pwrite64", fd, length, |length| {
        kernel!(SYS_pwrite64, fd, bytes, length, at)
    })
}

/// See `pwrite(2)`.
///
/// # Safety
///
/// `bytes` points to `length` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pwrite(
    fd: c_int,
    bytes: *const c_void,
    length: size_t,
    at: off_t,
) -> ssize_t {
    // SAFETY: it is the same function with the same arguments.
    unsafe { pwrite64(fd, bytes, length, at) }
}

/// See `fdatasync(2)`.
#[unsafe(no_mangle)]
pub extern "C" fn fdatasync(fd: c_int) -> c_int {
    on_descriptor("fdatasync", fd, || kernel!(SYS_fdatasync, fd)) as c_int
}

/// See `fsync(2)`.
#[unsafe(no_mangle)]
pub extern "C" fn fsync(fd: c_int) -> c_int {
    on_descriptor("fsync", fd, || kernel!(SYS_fsync, fd)) as c_int
}

/// See `sync_file_range(2)`.
#[unsafe(no_mangle)]
pub extern "C" fn sync_file_range(fd: c_int, at: off64_t, length: off64_t, flags: c_uint) -> c_int {
    on_descriptor("sync_file_range", fd, || {
        kernel!(SYS_sync_file_range, fd, at, length, flags)
    }) as c_int
}

/// See `accept(2)`.
///
/// # Safety
///
/// `address` and `length` are null, or `address` points to as many bytes as `length` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn accept4(
    fd: c_int,
    address: *mut sockaddr,
    length: *mut socklen_t,
    flags: c_int,
) -> c_int {
    on_descriptor("accept4", fd, || {
        kernel!(SYS_accept4, fd, address, length, flags)
    }) as c_int
}

/// Makes a call that opens `path`, or fails it.
fn opened(path: *const c_char, kernel: impl FnOnce() -> c_long) -> c_int {
    // SAFETY: a program opens only NUL-terminated paths.
    let path = unsafe { CStr::from_ptr(path) };
    let result = match fault_of_path("openat", &path.to_string_lossy()) {
        Some(Fault::Error(error)) => fail(error),
        Some(Fault::Short | Fault::Seconds(_) | Fault::Hang) | None => kernel(),
    };
    result as c_int
}

/// See `openat(2)`. The mode is valid only with certain flags; the kernel reads it only with them.
///
/// # Safety
///
/// `path` is NUL-terminated.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn openat(
    directory: c_int,
    path: *const c_char,
    flags: c_int,
    mode: mode_t,
) -> c_int {
    opened(path, || kernel!(SYS_openat, directory, path, flags, mode))
}

/// See `openat(2)`.
///
/// # Safety
///
/// `path` is NUL-terminated.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn openat64(
    directory: c_int,
    path: *const c_char,
    flags: c_int,
    mode: mode_t,
) -> c_int {
    // SAFETY: it is the same function with the same arguments.
    unsafe { openat(directory, path, flags, mode) }
}

/// See `open(2)`.
///
/// # Safety
///
/// `path` is NUL-terminated.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn open(path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
    // SAFETY: the path is one that the program opens.
    unsafe { openat(libc::AT_FDCWD, path, flags, mode) }
}

/// See `open(2)`.
///
/// # Safety
///
/// `path` is NUL-terminated.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn open64(path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
    // SAFETY: the path is one that the program opens.
    unsafe { openat(libc::AT_FDCWD, path, flags, mode) }
}

/// See `pipe(2)`.
///
/// # Safety
///
/// `ends` points to two descriptors.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pipe2(ends: *mut c_int, flags: c_int) -> c_int {
    let result = match fault_of_path("pipe2", "") {
        Some(Fault::Error(error)) => fail(error),
        Some(Fault::Short | Fault::Seconds(_) | Fault::Hang) | None => {
            kernel!(SYS_pipe2, ends, flags)
        }
    };
    result as c_int
}

/// See `memfd_create(2)`.
///
/// # Safety
///
/// `name` is NUL-terminated.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn memfd_create(name: *const c_char, flags: c_uint) -> c_int {
    let result = match fault_of_path("memfd_create", "") {
        Some(Fault::Error(error)) => fail(error),
        Some(Fault::Short | Fault::Seconds(_) | Fault::Hang) | None => {
            kernel!(SYS_memfd_create, name, flags)
        }
    };
    result as c_int
}

/// See `clock_gettime(2)`.
///
/// # Safety
///
/// `time` points to a `timespec`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn clock_gettime(clock: clockid_t, time: *mut timespec) -> c_int {
    let result = kernel!(SYS_clock_gettime, clock, time) as c_int;
    if clock == libc::CLOCK_REALTIME
        && result == 0
        && let Some(Fault::Seconds(seconds)) = fault_of_path("clock", "")
    {
        // SAFETY: the kernel has just written to `time`.
        unsafe { (*time).tv_sec += seconds };
    }
    result
}
