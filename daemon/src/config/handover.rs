//! Variables that no process of a run can read in `/proc`.
//!
//! `/proc/PID/environ` shows the memory that holds the environment of a process at its start. A tool of the same user
//! could read keys there, if this user is root. So the first process takes its environment out of that memory, keeps
//! only the variables of [`is_visible`] there, and passes the others to each daemon in sealed memory.
#![expect(
    unsafe_code,
    reason = "the first environment is overwritten in place, and an inherited descriptor is taken over"
)]

use std::collections::BTreeMap;
use std::ffi::{CStr, OsStr, OsString, c_char};
use std::fs::File;
use std::io::{self, Read as _, Seek as _, Write as _};
use std::os::fd::{BorrowedFd, FromRawFd as _, OwnedFd, RawFd};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::ptr;

use nix::fcntl::{FcntlArg, SealFlag, fcntl};
use nix::sys::memfd::{MFdFlags, memfd_create};

/// Variables that the C library, the loader, Rust or the service manager read from the environment itself.
const VISIBLE: [&str; 18] = [
    "CREDENTIALS_DIRECTORY",
    "GLIBC_TUNABLES",
    "HOME",
    "INVOCATION_ID",
    "JOURNAL_STREAM",
    "LANG",
    "LANGUAGE",
    "LOGNAME",
    "NOTIFY_SOCKET",
    "PATH",
    "PWD",
    "SHELL",
    "SSL_CERT_DIR",
    "SSL_CERT_FILE",
    "TMPDIR",
    "TZ",
    "USER",
    "USER_SPACE",
];
const VISIBLE_STARTS: [&str; 8] = [
    "LC_",
    "LD_",
    "LLVM_",
    "MIMALLOC_",
    "RUST_",
    "RYE",
    "TOKIO_",
    "XDG_",
];

unsafe extern "C" {
    /// The environment of this process, as the C library sees it.
    static mut environ: *mut *mut c_char;
}

/// True if the variable stays in the environment of the daemon and of its parent.
fn is_visible(name: &[u8]) -> bool {
    VISIBLE.iter().any(|visible| visible.as_bytes() == name)
        || VISIBLE_STARTS
            .iter()
            .any(|start| name.starts_with(start.as_bytes()))
}

/// Name of the variable in the entry `NAME=VALUE`.
fn name_of(entry: &[u8]) -> &[u8] {
    let end = memchr::memchr(b'=', entry).unwrap_or(entry.len());
    &entry[..end]
}

/// Entry of the environment at `list`; `None` at its end.
fn entry(list: *mut *mut c_char) -> Option<*mut c_char> {
    if list.is_null() {
        return None;
    }
    // SAFETY: the list ends with a null pointer, and no caller goes beyond it.
    let entry = unsafe { *list };
    (!entry.is_null()).then_some(entry)
}

/// Removes all variables but the visible ones from the environment of this process, and overwrites them. Must be called
/// before any thread is started.
pub fn hide() {
    // SAFETY: no other thread changes the environment.
    let mut from = unsafe { environ };
    let mut to = from;
    while let Some(variable) = entry(from) {
        // SAFETY: each entry is a text that ends with 0.
        let text = unsafe { CStr::from_ptr(variable) }.to_bytes();
        let (is_kept, length) = (is_visible(name_of(text)), text.len());
        if is_kept {
            // SAFETY: entries only move towards the start of the list.
            unsafe { *to = variable };
            // SAFETY: the list has at least as many entries as are kept.
            to = unsafe { to.add(1) };
        } else {
            // SAFETY: this process may write the memory of its first environment, and nothing refers to the entry.
            unsafe { ptr::write_bytes(variable.cast::<u8>(), 0, length) };
        }
        // SAFETY: the entry is not the end of the list.
        from = unsafe { from.add(1) };
    }
    if !to.is_null() {
        // SAFETY: this is an entry of the list, or its end.
        unsafe { *to = ptr::null_mut() };
    }
}

/// Writes the hidden ones of `variables` to sealed memory, which a started process inherits.
pub(super) fn seal(variables: &BTreeMap<OsString, OsString>) -> io::Result<OwnedFd> {
    let mut file = File::from(memfd_create(c"rye-variables", MFdFlags::MFD_ALLOW_SEALING)?);
    for (name, value) in variables {
        if !is_visible(name.as_bytes()) {
            for part in [name.as_bytes(), b"=", value.as_bytes(), b"\0"] {
                file.write_all(part)?;
            }
        }
    }
    file.rewind()?;
    fcntl(&file, FcntlArg::F_ADD_SEALS(SealFlag::all()))?;
    Ok(file.into())
}

/// Takes over the variables in the sealed memory that this process has inherited as `descriptor`, and closes it. Fails
/// if that is something else.
pub(super) fn unseal(descriptor: RawFd) -> io::Result<BTreeMap<OsString, OsString>> {
    // SAFETY: the descriptor is only asked about; an invalid one is an error of the call.
    let inherited = unsafe { BorrowedFd::borrow_raw(descriptor) };
    let seals = fcntl(inherited, FcntlArg::F_GET_SEALS)?;
    if !SealFlag::from_bits_truncate(seals).contains(SealFlag::F_SEAL_WRITE) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    // SAFETY: the parent process made this descriptor for this purpose, so nothing else owns it.
    let mut file = unsafe { File::from_raw_fd(descriptor) };
    let mut text = Vec::new();
    file.read_to_end(&mut text)?;
    let entries = text
        .split(|byte| *byte == 0)
        .filter(|entry| !entry.is_empty());
    let variables = entries.map(|entry| {
        let name = name_of(entry);
        let value = entry.get(name.len() + 1..).unwrap_or_default();
        (
            OsStr::from_bytes(name).to_owned(),
            OsString::from_vec(value.to_vec()),
        )
    });
    Ok(variables.collect())
}

#[cfg(test)]
mod tests {
    use std::os::fd::IntoRawFd as _;

    use super::*;

    #[test]
    fn hidden_variables_pass_through_sealed_memory() {
        let variables: BTreeMap<OsString, OsString> = [
            ("ANTHROPIC_API_KEY", "sk-1=2\n3"),
            ("EMPTY", ""),
            ("HOME", "/root"),
            ("LC_ALL", "C"),
            ("RYE_STATE_DIR", "/state"),
        ]
        .map(|(name, value)| (name.into(), value.into()))
        .into();
        let sealed = seal(&variables).unwrap();
        let received = unseal(sealed.into_raw_fd()).unwrap();
        let names: Vec<_> = received.keys().map(|name| name.to_str().unwrap()).collect();
        assert_eq!(names, ["ANTHROPIC_API_KEY", "EMPTY"]);
        assert!(
            received
                .iter()
                .all(|(name, value)| variables[name] == *value)
        );
    }

    #[test]
    fn descriptor_that_is_not_sealed_memory_is_left_alone() {
        let file = File::open("/dev/null").unwrap();
        let descriptor = file.into_raw_fd();
        assert!(unseal(descriptor).is_err());
        // SAFETY: `unseal` has not taken it over.
        let file = unsafe { File::from_raw_fd(descriptor) };
        assert!(file.metadata().is_ok());
    }
}
