//! Reads `/proc`. Every result may be out of date when it is returned. Code that acts on it holds a pidfd and checks
//! the start time again (see [`super::pidfd`]).

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::os::unix::fs::MetadataExt as _;

use rye_core::served_at::Host;

use rye_host::safe_path;

/// Used fields of `/proc/<pid>/stat`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Stat {
    pub(super) pid: i32,
    /// Name of the command, at most 15 bytes.
    pub(super) comm: String,
    /// `R`, `S`, `D`, `Z` …
    state: u8,
    pub(super) parent: i32,
    pub(super) group: i32,
    pub(super) session: i32,
    /// Clock ticks between boot and the start of the process.
    pub(super) start_time: u64,
    /// Virtual memory in bytes; 0 for a kernel thread or a process that is just ending.
    memory: u64,
    /// Size of its initial environment in bytes. `None` during an exec, and if access is denied.
    environment: Option<usize>,
}

/// Result of reading a variable in the environment of a process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Variable {
    Is(Vec<u8>),
    Absent,
    /// Access is denied.
    Hidden,
    /// The process is in an exec, or ending; the read must be repeated.
    Unsettled,
}

impl Stat {
    /// Reads the entry of `pid`; `None` if there is no such process.
    pub(super) fn read(pid: i32) -> Option<Self> {
        // Far longer than the line, so that one read returns all of it.
        let mut line = [0; 4096];
        let mut file = File::open(format!("/proc/{pid}/stat")).ok()?;
        let length = file.read(&mut line).ok()?;
        Self::parse(line.get(..length)?)
    }

    /// The command name is in parentheses and may hold any byte, `)` included: the fields begin after the last.
    fn parse(line: &[u8]) -> Option<Self> {
        let open = line.iter().position(|&byte| byte == b'(')?;
        let close = line.iter().rposition(|&byte| byte == b')')?;
        let pid = std::str::from_utf8(line.get(..open)?).ok()?;
        let fields: Vec<&str> = std::str::from_utf8(line.get(close + 1..)?)
            .ok()?
            .split_ascii_whitespace()
            .collect();
        // Set last when a program is loaded; 1 for readers without access.
        let code_start: u64 = fields.get(23)?.parse().ok()?;
        let environment_start: usize = fields.get(47)?.parse().ok()?;
        let environment_end: usize = fields.get(48)?.parse().ok()?;
        Some(Self {
            pid: pid.trim().parse().ok()?,
            comm: String::from_utf8_lossy(line.get(open + 1..close)?).into_owned(),
            state: *fields.first()?.as_bytes().first()?,
            parent: fields.get(1)?.parse().ok()?,
            group: fields.get(2)?.parse().ok()?,
            session: fields.get(3)?.parse().ok()?,
            start_time: fields.get(19)?.parse().ok()?,
            memory: fields.get(20)?.parse().ok()?,
            environment: environment_end
                .checked_sub(environment_start)
                .filter(|_| code_start > 1),
        })
    }

    /// True if it runs code now or later; a zombie does not.
    pub(super) fn is_alive(&self) -> bool {
        !matches!(self.state, b'Z' | b'X' | b'x')
    }

    /// True if it has memory of its own. A kernel thread has none, nor has a process that is just ending.
    pub(super) fn has_memory(&self) -> bool {
        self.memory > 0
    }

    /// Variable `name` in its initial environment.
    ///
    /// During an exec, the environment reads as empty or is cut short. So a variable is absent only from an environment
    /// that was read completely, and its value counts only if its end was read.
    pub(super) fn variable(&self, name: &str) -> Variable {
        let environment = match fs::read(format!("/proc/{}/environ", self.pid)) {
            Ok(environment) => environment,
            Err(error) if is_gone(&error) => return Variable::Unsettled,
            Err(_) => return Variable::Hidden,
        };
        // Text after the last NUL was cut off.
        let mut entries: Vec<&[u8]> = environment.split(|&byte| byte == 0).collect();
        entries.pop();
        let value = entries
            .into_iter()
            .find_map(|entry| entry.strip_prefix(name.as_bytes())?.strip_prefix(b"="));
        match value {
            Some(value) => Variable::Is(value.to_vec()),
            None if self.has_environment_of(environment.len()) => Variable::Absent,
            None => Variable::Unsettled,
        }
    }

    /// True if its environment has `length` bytes, now or when this entry was read.
    fn has_environment_of(&self, length: usize) -> bool {
        self.environment == Some(length)
            || Self::read(self.pid).is_some_and(|now| now.environment == Some(length))
    }
}

/// True if an entry could not be read because its process has ended.
fn is_gone(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(libc::ESRCH)
}

/// All processes.
pub(super) fn all() -> Vec<Stat> {
    let Ok(entries) = fs::read_dir("/proc") else {
        return Vec::new();
    };
    entries
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter_map(Stat::read)
        .collect()
}

/// Pids of the children of the single-threaded process `pid`, unreaped zombies included.
///
/// This is the kernel's own list, in the order in which they became its children. It has all processes that are
/// children when the last one is listed, with one exception: if a process that was just listed is reaped, the next may
/// be skipped. So the list is complete if all listed processes still exist afterwards.
pub(super) fn children_of_single_thread(pid: i32) -> Vec<i32> {
    match fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")) {
        Ok(list) => list
            .split_ascii_whitespace()
            .filter_map(|child| child.parse().ok())
            .collect(),
        // A kernel that was built without these lists.
        Err(_) => all()
            .into_iter()
            .filter(|stat| stat.parent == pid)
            .map(|stat| stat.pid)
            .collect(),
    }
}

/// `root`, if it exists, and all of its descendants, parents before children.
pub(super) fn tree(root: i32) -> Vec<Stat> {
    let mut rest = all();
    let mut known = BTreeSet::from([root]);
    let mut tree = Vec::new();
    loop {
        let (found, others): (Vec<_>, Vec<_>) = rest
            .into_iter()
            .partition(|stat| stat.pid == root || known.contains(&stat.parent));
        if found.is_empty() {
            return tree;
        }
        known.extend(found.iter().map(|stat| stat.pid));
        tree.extend(found);
        rest = others;
    }
}

/// Boot id of the machine; empty if the kernel does not report one.
pub fn boot_id() -> String {
    safe_path::boot_id().to_owned()
}

/// Start time of the process `pid`, in clock ticks since the boot; `None` if there is no such process, or it has ended.
pub fn start_time(pid: i32) -> Option<u64> {
    let stat = Stat::read(pid).filter(Stat::is_alive)?;
    Some(stat.start_time)
}

/// Host and namespace in which pids of this process are valid.
pub fn pid_host() -> Host {
    Host {
        boot_id: boot_id(),
        pid_namespace: fs::metadata("/proc/self/ns/pid").map_or(0, |found| found.ino()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_name_cannot_forge_stat_fields() {
        let head = "12 (a) R 1 (b) S 7 12 11 0 -1 4194304 0 0 0 0 0 0 0 0 20 0 1 0 987654 4096 ";
        let line = format!("{head}{}1000 1234 0\n", "7 ".repeat(26));
        let line = line.as_bytes();
        let stat = Stat::parse(line).unwrap();
        assert_eq!(stat.comm, "a) R 1 (b");
        assert_eq!(
            (
                stat.pid,
                stat.parent,
                stat.group,
                stat.session,
                stat.start_time
            ),
            (12, 7, 12, 11, 987_654)
        );
        assert!(stat.is_alive());
        assert!(stat.has_memory());
        assert_eq!(stat.environment, Some(234));
        for cut in 0..line.len() - "1234 0\n".len() {
            assert_eq!(Stat::parse(&line[..cut]), None);
        }
    }

    #[test]
    fn own_process_is_found() {
        let pid = nix::unistd::getpid().as_raw();
        let stat = Stat::read(pid).unwrap();
        assert_eq!(stat.pid, pid);
        assert!(
            all()
                .iter()
                .any(|other| other.start_time == stat.start_time)
        );
        assert!(tree(stat.parent).iter().any(|other| other.pid == pid));
        assert!(!boot_id().is_empty());
    }
}
