//! Processes of this machine that belong to a test.

use std::fs;
use std::path::Path;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::command::signal_number;
use crate::until::{PATIENCE, within};

/// A live process; zombies do not count.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Process {
    pub pid: i32,
    /// Pid of its parent.
    pub parent: i32,
    /// Name in the kernel.
    pub name: String,
    /// Command line, for messages.
    pub command: String,
}

/// Lists the processes whose environment, command line or current directory refers to `root`.
pub fn below(root: &Path) -> Vec<Process> {
    let Ok(entries) = fs::read_dir("/proc") else {
        return Vec::new();
    };
    let mine = std::process::id().to_string();
    entries
        .filter_map(Result::ok)
        .filter_map(|entry| entry.file_name().into_string().ok())
        .filter(|name| name.bytes().all(|byte| byte.is_ascii_digit()) && *name != mine)
        .filter(|pid| belongs(pid, root))
        .filter_map(|pid| read(&pid))
        .collect()
}

/// Lists the processes that have `marker` as an argument. Those that are ending have no arguments any more.
pub fn with_argument(marker: &Path) -> Vec<i32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let has_marker = |pid: &i32| {
        let command = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let mut arguments = command.split(|byte| *byte == 0);
        arguments.any(|argument| argument == marker.as_os_str().as_encoded_bytes())
    };
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter(has_marker).collect()
}

fn belongs(pid: &str, root: &Path) -> bool {
    let needle = root.as_os_str().as_encoded_bytes();
    let mentions = |file: &str| {
        fs::read(format!("/proc/{pid}/{file}"))
            .is_ok_and(|bytes| bytes.windows(needle.len()).any(|window| window == needle))
    };
    let stands_in =
        || fs::read_link(format!("/proc/{pid}/cwd")).is_ok_and(|cwd| cwd.starts_with(root));
    mentions("environ") || mentions("cmdline") || stands_in()
}

/// Returns the process `pid`, if it is alive.
pub fn read(pid: &str) -> Option<Process> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // `pid (name) state ppid …`; the name may hold any character, even parentheses.
    let (before, after) = stat.rsplit_once(") ")?;
    let mut fields = after.split(' ');
    if matches!(fields.next()?, "Z" | "X") {
        return None;
    }
    let command = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    Some(Process {
        pid: pid.parse().ok()?,
        parent: fields.next()?.parse().ok()?,
        name: before.split_once('(')?.1.to_owned(),
        command: String::from_utf8_lossy(&command).replace('\0', " "),
    })
}

/// Counts the zombies whose parent is one of `parents`.
pub fn zombies_of(parents: &[i32]) -> usize {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let is_zombie = |path: &Path| {
        let stat = fs::read_to_string(path.join("stat")).unwrap_or_default();
        let mut fields = stat
            .rsplit_once(") ")
            .map_or("", |(_, after)| after)
            .split(' ');
        let (state, parent) = (
            fields.next(),
            fields.next().and_then(|pid| pid.parse().ok()),
        );
        state == Some("Z") && parent.is_some_and(|parent| parents.contains(&parent))
    };
    entries.filter(|entry| is_zombie(&entry.path())).count()
}

pub fn lives(pid: i32) -> bool {
    read(&pid.to_string()).is_some()
}

/// True if every thread of `pid` is stopped, as after SIGSTOP.
pub fn is_stopped(pid: i32) -> bool {
    let threads = fs::read_dir(format!("/proc/{pid}/task"));
    let mut threads = threads.into_iter().flatten().flatten();
    threads.all(|thread| {
        let stat = fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
        stat.rsplit_once(") ")
            .is_some_and(|(_, after)| after.starts_with('T'))
    })
}

/// True if `pid` has a handler for `signal`. Without one it would end or ignore the signal.
pub fn catches(pid: i32, signal: Signal) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    field(&status, "SigCgt:") & bit(signal) != 0
}

/// True if a process ignores `signal`, by the text of its `/proc/<pid>/status`.
pub fn ignores(status: &str, signal: Signal) -> bool {
    field(status, "SigIgn:") & bit(signal) != 0
}

fn field(status: &str, name: &str) -> u64 {
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    line.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .unwrap_or_default()
}

fn bit(signal: Signal) -> u64 {
    1 << (signal_number(signal) - 1)
}

/// Sends `signal`. A process that is gone is no error.
pub fn send(pid: i32, signal: Signal) {
    match kill(Pid::from_raw(pid), signal) {
        Ok(()) | Err(nix::errno::Errno::ESRCH) => {}
        Err(error) => assert!(
            error == nix::errno::Errno::ESRCH,
            "failed to signal {pid}: {error}"
        ),
    }
}

/// Lists the processes that are still alive below `root` after the usual wait.
pub fn left(root: &Path) -> Vec<Process> {
    left_after(PATIENCE, root)
}

/// Lists the processes that are still alive below `root` after a wait of up to `limit`.
pub fn left_after(limit: Duration, root: &Path) -> Vec<Process> {
    within(limit, || below(root).is_empty().then(Vec::new)).unwrap_or_else(|| below(root))
}
