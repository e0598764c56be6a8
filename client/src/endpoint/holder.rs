//! Finds the daemon that uses a state directory, by its lock and its record.

use std::fs::{self, File, OpenOptions};
use std::io::Read as _;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use rye_core::served_at::{self, Holder, Host, Lock, Process, ServedAt};

/// Permission bits that let others create files in a directory.
const WRITABLE_BY_OTHERS: u32 = 0o022;

/// Returns the daemon that uses `state_dir`. A directory that others own or may write has none, because they could
/// forge its record.
pub(super) fn of(state_dir: &Path) -> Holder {
    let Some(lock) = own(state_dir).and_then(lock_on) else {
        return Holder::None;
    };
    Holder::judge(lock, read(state_dir), &host(), started)
}

/// Returns the record of a daemon that has died and whose parent lives, which starts it again.
pub(super) fn restarting(state_dir: &Path) -> Option<ServedAt> {
    own(state_dir)?;
    let record = read(state_dir).filter(|record| record.host == host())?;
    record.parent.is_some_and(lives).then_some(record)
}

/// True if `process` is alive.
pub(super) fn lives(process: Process) -> bool {
    started(process.pid) == Some(process.started)
}

/// Opens the directory if only this user may write to it.
fn own(state_dir: &Path) -> Option<File> {
    let directory = File::open(state_dir).ok()?;
    let found = directory.metadata().ok()?;
    let us = nix::unistd::geteuid().as_raw();
    let is_own = found.is_dir() && found.uid() == us && found.mode() & WRITABLE_BY_OTHERS == 0;
    is_own.then_some(directory)
}

/// Tests the lock by taking it for a moment. A daemon that starts in that moment tries again.
fn lock_on(directory: File) -> Option<Lock> {
    match Flock::lock(directory, FlockArg::LockSharedNonblock) {
        Ok(_released) => Some(Lock::Free),
        Err((_, Errno::EWOULDBLOCK)) => Some(Lock::Held),
        Err(_) => None,
    }
}

fn read(state_dir: &Path) -> Option<ServedAt> {
    let mut options = OpenOptions::new();
    // `O_NONBLOCK`, because a pipe of that name would block.
    options
        .read(true)
        .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK);
    let file = options.open(state_dir.join(served_at::FILE)).ok()?;
    let mut text = Vec::new();
    file.take(served_at::MAX_BYTES)
        .read_to_end(&mut text)
        .ok()?;
    ServedAt::parse(&text)
}

/// Returns the boot and the pid namespace in which the pids visible to this process are valid.
fn host() -> Host {
    let boot_id = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    Host {
        boot_id: boot_id.trim().to_owned(),
        pid_namespace: fs::metadata("/proc/self/ns/pid").map_or(0, |found| found.ino()),
    }
}

/// Returns the start time of the process `pid`, or `None` if it has ended, reaped or not.
fn started(pid: i32) -> Option<u64> {
    let stat = fs::read(format!("/proc/{pid}/stat")).ok()?;
    // The command name is in parentheses and may hold any byte, so the fields begin after the last `)`.
    let name_end = stat.iter().rposition(|&byte| byte == b')')?;
    let fields = std::str::from_utf8(stat.get(name_end + 1..)?).ok()?;
    let mut fields = fields.split_ascii_whitespace();
    let state = fields.next()?;
    let started = fields.nth(18)?.parse().ok()?;
    (!matches!(state, "Z" | "X" | "x")).then_some(started)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    use rye_core::served_at::Phase;

    /// Makes the record of a daemon that serves as the process `pid`.
    pub(in crate::endpoint) fn record(socket: &Path, pid: u32) -> ServedAt {
        let pid = i32::try_from(pid).unwrap();
        let started = started(pid).unwrap();
        let daemon = Process { pid, started };
        ServedAt::new(socket.to_owned(), Phase::Serving, daemon, None, host(), "0")
    }

    #[test]
    fn a_record_counts_while_the_lock_is_held_and_no_one_else_can_write_it() {
        let home = tempfile::tempdir().unwrap();
        let state_dir = home.path().join("state");
        assert_eq!(of(&state_dir), Holder::None);
        fs::create_dir(&state_dir).unwrap();
        let permit = |mode| fs::set_permissions(&state_dir, fs::Permissions::from_mode(mode));
        permit(0o700).unwrap();
        let socket = home.path().join("s");
        let written = record(&socket, std::process::id());
        let file = state_dir.join(served_at::FILE);
        fs::write(&file, written.to_json().unwrap()).unwrap();
        assert_eq!(of(&state_dir), Holder::None);
        let directory = File::open(&state_dir).unwrap();
        let lock = Flock::lock(directory, FlockArg::LockExclusiveNonblock).unwrap();
        assert_eq!(of(&state_dir), Holder::Here(written));
        permit(0o770).unwrap();
        assert_eq!(of(&state_dir), Holder::None);
        permit(0o700).unwrap();
        fs::remove_file(&file).unwrap();
        assert_eq!(of(&state_dir), Holder::Unnamed);
        drop(lock);
        assert_eq!(of(&state_dir), Holder::None);
    }
}
