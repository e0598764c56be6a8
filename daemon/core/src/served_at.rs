//! The record by which clients find a daemon: `served-at` in its state directory.
//!
//! **Owns** the format of the record, and the choice of the daemon that a client uses. **Never** reads a file or a
//! process: callers pass the facts.
//!
//! The lock on the state directory is authoritative: a daemon holds it for its whole life. The record holds the address
//! of the lock's holder. It counts only while the lock is held and the process that wrote it lives. Pids are reused
//! after a process ends and after a boot, and differ in another pid namespace. So the record also holds the start time,
//! the boot and the namespace.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// Name of the file in the state directory.
pub const FILE: &str = "served-at";

/// Size limit of the record in bytes. The path of a socket has at most 107 bytes.
pub const MAX_BYTES: u64 = 4096;

/// Format of the records that this version writes.
const VERSION: u32 = 1;

/// First bytes of an HTTP/2 client, with empty settings. A serving daemon answers them at once.
pub const GREETING: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";

/// A process in one pid namespace and one boot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Process {
    pub pid: i32,
    /// Clock ticks between the boot and the start of the process.
    pub started: u64,
}

/// Progress of a daemon's start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// The daemon reads its log and answers no calls yet.
    Recovering,
    Serving,
}

/// Pid namespace of one boot of the machine, in which pids are unique.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Host {
    /// Content of `/proc/sys/kernel/random/boot_id`.
    pub boot_id: String,
    /// Inode of `/proc/self/ns/pid`; 0 if it cannot be read.
    pub pid_namespace: u64,
}

/// The record of a daemon.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServedAt {
    v: u32,
    pub socket: PathBuf,
    pub phase: Phase,
    /// The daemon, which holds the lock.
    pub daemon: Process,
    /// Parent of the daemon, which restarts it if it dies. `None` if the parent has ended.
    pub parent: Option<Process>,
    /// Host on which the pids are valid.
    #[serde(flatten)]
    pub host: Host,
    pub version: String,
}

impl ServedAt {
    pub fn new(
        socket: PathBuf,
        phase: Phase,
        daemon: Process,
        parent: Option<Process>,
        host: Host,
        version: &str,
    ) -> Self {
        Self {
            v: VERSION,
            socket,
            phase,
            daemon,
            parent,
            host,
            version: version.to_owned(),
        }
    }

    /// Reads a record of [`ServedAt::to_json`]. Returns `None` for anything else, and for another format version.
    pub fn parse(text: &[u8]) -> Option<Self> {
        let record: Self = serde_json::from_slice(text).ok()?;
        (record.v == VERSION && record.socket.is_absolute()).then_some(record)
    }

    /// Returns the text of the file.
    ///
    /// # Errors
    /// Fails if the path of the socket is not UTF-8.
    pub fn to_json(&self) -> serde_json::Result<Vec<u8>> {
        serde_json::to_vec(self)
    }
}

/// Lock on a state directory, as another process finds it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lock {
    /// No daemon uses the directory.
    Free,
    Held,
}

/// Known facts about the daemon that uses a state directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Holder {
    None,
    /// A daemon without a valid record: it has just taken the lock, or could not write.
    Unnamed,
    /// The daemon of this record, in another pid namespace. Its pids mean nothing here.
    Elsewhere(ServedAt),
    /// The daemon of this record, whose processes are visible from here.
    Here(ServedAt),
}

impl Holder {
    /// Identifies the holder by the lock, the record, the caller's own host, and the start time of the process with a
    /// pid.
    pub fn judge(
        lock: Lock,
        record: Option<ServedAt>,
        host: &Host,
        started: impl Fn(i32) -> Option<u64>,
    ) -> Self {
        if lock == Lock::Free {
            return Self::None;
        }
        let Some(record) = record else {
            return Self::Unnamed;
        };
        // The record predates this boot, so the holder did not write it.
        if record.host.boot_id != host.boot_id {
            return Self::Unnamed;
        }
        if record.host.pid_namespace != host.pid_namespace {
            return Self::Elsewhere(record);
        }
        if started(record.daemon.pid) == Some(record.daemon.started) {
            Self::Here(record)
        } else {
            Self::Unnamed
        }
    }

    /// Returns the record, if it is valid.
    pub const fn record(&self) -> Option<&ServedAt> {
        match self {
            Self::None | Self::Unnamed => None,
            Self::Elsewhere(record) | Self::Here(record) => Some(record),
        }
    }

    /// Returns the pid of the daemon, if it is valid here.
    pub const fn pid(&self) -> Option<i32> {
        match self {
            Self::Here(record) => Some(record.daemon.pid),
            Self::None | Self::Unnamed | Self::Elsewhere(_) => None,
        }
    }

    /// Returns true if `listener`, a process that listens on the recorded socket, is another daemon than the holder.
    pub fn is_other(&self, listener: Option<i32>) -> bool {
        matches!((self.pid(), listener), (Some(own), Some(found)) if own != found)
    }

    /// Returns true while the daemon reports that it reads its log.
    pub fn is_recovering(&self) -> bool {
        self.record()
            .is_some_and(|record| record.phase == Phase::Recovering)
    }

    /// Restricts the holder to one socket: for this caller, a daemon on another socket does not exist.
    #[must_use]
    pub fn on(self, socket: &Path) -> Self {
        match self.record() {
            Some(record) if record.socket == socket => self,
            Some(_) | None => Self::None,
        }
    }

    /// Decides the client's next step after an attempt to reach the daemon.
    pub const fn next(&self, attempt: Attempt) -> Next {
        match (attempt, self) {
            (Attempt::Silent, _)
            // The daemon lives: it rebinds its socket, or accepts no more connections.
            | (Attempt::Nothing | Attempt::Closed, Self::Here(_)) => Next::Wait,
            (Attempt::Answers | Attempt::Closed, _) => Next::Use,
            (Attempt::Nothing, Self::None | Self::Unnamed | Self::Elsewhere(_)) => Next::Absent,
        }
    }

    /// Returns the record of a daemon that may be killed after it has not answered: its processes are known, and it
    /// does not report that it recovers.
    pub fn endable(&self) -> Option<&ServedAt> {
        match self {
            Self::Here(record) if record.phase == Phase::Serving => Some(record),
            Self::None | Self::Unnamed | Self::Elsewhere(_) | Self::Here(_) => None,
        }
    }
}

/// Result of an attempt to reach a daemon on a socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Attempt {
    Answers,
    /// A process listens but has not answered yet.
    Silent,
    /// The listener closed the connection without an answer.
    Closed,
    /// No process listens.
    Nothing,
}

/// Next step of a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// Make the calls, and report their results.
    Use,
    /// Wait, and try again.
    Wait,
    /// Try another socket, or start a daemon.
    Absent,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host() -> Host {
        Host {
            boot_id: "b1".to_owned(),
            pid_namespace: 7,
        }
    }

    fn record(phase: Phase) -> ServedAt {
        let daemon = Process {
            pid: 12,
            started: 900,
        };
        let parent = Process {
            pid: 11,
            started: 890,
        };
        let socket = "/run/user/1/rye/ryed.sock".into();
        ServedAt::new(socket, phase, daemon, Some(parent), host(), "0.1.0")
    }

    fn judge(lock: Lock, record: Option<ServedAt>, host: &Host, started: Option<u64>) -> Holder {
        Holder::judge(lock, record, host, |pid| started.filter(|_| pid == 12))
    }

    #[test]
    fn record_counts_only_while_locked_and_alive() {
        let serving = || Some(record(Phase::Serving));
        let at = |boot_id: &str, pid_namespace| Host {
            boot_id: boot_id.to_owned(),
            pid_namespace,
        };
        let here = Holder::Here(record(Phase::Serving));
        let elsewhere = Holder::Elsewhere(record(Phase::Serving));
        for (lock, record, host, started, holder) in [
            (Lock::Held, serving(), at("b1", 7), Some(900), here),
            (Lock::Free, serving(), at("b1", 7), Some(900), Holder::None),
            (Lock::Free, None, at("b1", 7), None, Holder::None),
            (Lock::Held, None, at("b1", 7), None, Holder::Unnamed),
            // The process has ended, or its pid was reused.
            (Lock::Held, serving(), at("b1", 7), None, Holder::Unnamed),
            (
                Lock::Held,
                serving(),
                at("b1", 7),
                Some(901),
                Holder::Unnamed,
            ),
            (
                Lock::Held,
                serving(),
                at("b2", 7),
                Some(900),
                Holder::Unnamed,
            ),
            // In another namespace, the pid is another process.
            (Lock::Held, serving(), at("b1", 8), Some(900), elsewhere),
        ] {
            assert_eq!(judge(lock, record, &host, started), holder);
        }
    }

    #[test]
    fn client_waits_for_living_daemon() {
        let here = |phase| Holder::Here(record(phase));
        let holders = [
            (Holder::None, Next::Absent),
            (Holder::Unnamed, Next::Absent),
            (Holder::Elsewhere(record(Phase::Serving)), Next::Absent),
            (here(Phase::Serving), Next::Wait),
            (here(Phase::Recovering), Next::Wait),
        ];
        for (holder, without_socket) in holders {
            assert_eq!(holder.next(Attempt::Answers), Next::Use);
            let when_closed = match without_socket {
                Next::Wait => Next::Wait,
                Next::Use | Next::Absent => Next::Use,
            };
            assert_eq!(holder.next(Attempt::Closed), when_closed, "{holder:?}");
            assert_eq!(holder.next(Attempt::Silent), Next::Wait);
            assert_eq!(holder.next(Attempt::Nothing), without_socket, "{holder:?}");
        }
    }

    #[test]
    fn other_listener_is_not_the_holder() {
        let here = Holder::Here(record(Phase::Serving));
        for (listener, is_other) in [(Some(13), true), (Some(12), false), (None, false)] {
            assert_eq!(here.is_other(listener), is_other);
        }
        let elsewhere = Holder::Elsewhere(record(Phase::Serving));
        assert!(!elsewhere.is_other(Some(13)));
    }

    #[test]
    fn only_visible_serving_daemon_may_be_killed() {
        let serving = record(Phase::Serving);
        assert_eq!(Holder::Here(serving.clone()).endable(), Some(&serving));
        for holder in [
            Holder::Here(record(Phase::Recovering)),
            Holder::Elsewhere(serving),
            Holder::Unnamed,
            Holder::None,
        ] {
            assert_eq!(holder.endable(), None, "{holder:?}");
        }
    }

    #[test]
    fn caller_of_a_socket_ignores_daemon_on_another() {
        let here = Holder::Here(record(Phase::Serving));
        let socket = record(Phase::Serving).socket;
        assert_eq!(here.clone().on(&socket), here);
        assert_eq!(here.on("/tmp/s".as_ref()), Holder::None);
        assert_eq!(Holder::Unnamed.on(&socket), Holder::None);
    }

    #[test]
    fn invalid_records_are_ignored() {
        let written = record(Phase::Recovering);
        let text = written.to_json().unwrap();
        assert_eq!(ServedAt::parse(&text), Some(written));
        for cut in 0..text.len() {
            assert_eq!(ServedAt::parse(&text[..cut]), None);
        }
        let text = String::from_utf8(text).unwrap();
        for other in [
            text.replace("\"v\":1", "\"v\":2"),
            text.replace("/run/", "run/"),
            "/home/u/.local/state/rye/ryed.sock".to_owned(),
        ] {
            assert_eq!(ServedAt::parse(other.as_bytes()), None, "{other}");
        }
    }
}
