//! What `/proc` says about processes. Everything read here may be out of date when it is returned; whoever acts on
//! it holds a pidfd and checks the start time again (see [`super::pidfd`]).

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::Read as _;

/// The line `/proc/<pid>/stat` as far as we use it.
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
}

impl Stat {
    /// Reads the entry of `pid`; `None` if there is no such process.
    pub(super) fn read(pid: i32) -> Option<Self> {
        // Far longer than the line, which one read then takes whole.
        let mut line = [0; 4096];
        let mut file = File::open(format!("/proc/{pid}/stat")).ok()?;
        let length = file.read(&mut line).ok()?;
        Self::parse(line.get(..length)?)
    }

    /// The command name stands in parentheses and may hold any byte, `)` included: the fields begin after the last.
    fn parse(line: &[u8]) -> Option<Self> {
        let open = line.iter().position(|&byte| byte == b'(')?;
        let close = line.iter().rposition(|&byte| byte == b')')?;
        let pid = std::str::from_utf8(line.get(..open)?).ok()?;
        let fields: Vec<&str> = std::str::from_utf8(line.get(close + 1..)?)
            .ok()?
            .split_ascii_whitespace()
            .collect();
        Some(Self {
            pid: pid.trim().parse().ok()?,
            comm: String::from_utf8_lossy(line.get(open + 1..close)?).into_owned(),
            state: *fields.first()?.as_bytes().first()?,
            parent: fields.get(1)?.parse().ok()?,
            group: fields.get(2)?.parse().ok()?,
            session: fields.get(3)?.parse().ok()?,
            start_time: fields.get(19)?.parse().ok()?,
        })
    }

    /// Whether it still runs code, or will: a zombie does not.
    pub(super) fn is_alive(&self) -> bool {
        !matches!(self.state, b'Z' | b'X' | b'x')
    }

    /// Whether the environment it was started with holds the variable `name`, with `value` if one is asked for.
    pub(super) fn has_variable(&self, name: &str, value: Option<&str>) -> bool {
        let found = self.variable(name);
        found.is_some_and(|found| value.is_none_or(|value| found == value.as_bytes()))
    }

    /// The value of the variable `name` in the environment it was started with.
    pub(super) fn variable(&self, name: &str) -> Option<Vec<u8>> {
        let environment = fs::read(format!("/proc/{}/environ", self.pid)).ok()?;
        environment
            .split(|&byte| byte == 0)
            .find_map(|entry| entry.strip_prefix(name.as_bytes())?.strip_prefix(b"="))
            .map(<[u8]>::to_vec)
    }
}

/// Every process there is.
pub(super) fn all() -> Vec<Stat> {
    let Ok(entries) = fs::read_dir("/proc") else {
        return Vec::new();
    };
    entries
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter_map(Stat::read)
        .collect()
}

/// The living children of the single-threaded process `pid`, but for `known`.
///
/// The kernel's own list, oldest first, may skip an entry while others vanish, but not the first, nor the one after a
/// living one. So "nothing but `known`, which lives and came first" is the (cheap) answer, and anything else is looked
/// up in the table of all processes.
pub(super) fn children_of_single_thread(pid: i32, known: Option<i32>) -> Vec<Stat> {
    let list = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
    let is_known = |child: &str| child.parse().ok() == known;
    if list.is_ok_and(|list| list.split_ascii_whitespace().all(is_known)) {
        return Vec::new();
    }
    all()
        .into_iter()
        .filter(|stat| stat.parent == pid && Some(stat.pid) != known && stat.is_alive())
        .collect()
}

/// `root`, if it is there, and everything that descends from it, parents before children.
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

/// The id of this boot of the machine; empty where the kernel does not tell.
pub(super) fn boot_id() -> String {
    fs::read_to_string("/proc/sys/kernel/random/boot_id")
        .map(|id| id.trim().to_owned())
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_name_cannot_forge_fields() {
        let line = b"12 (a) R 1 (b) S 7 12 11 0 -1 4194304 0 0 0 0 0 0 0 0 20 0 1 0 987654 0 0 0\n";
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
        for cut in 0..line.len() - 12 {
            assert!(Stat::parse(&line[..cut]).is_none_or(|stat| stat.start_time != 987_654));
        }
    }

    #[test]
    fn this_process_is_found() {
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
