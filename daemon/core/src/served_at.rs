//! The record by which a daemon is found: `served-at` in its state directory.
//!
//! **Owns** the form of the record, and the decision which daemon a client talks to. **Never** reads a file or a process: the facts are
//! handed in.
//!
//! The lock on the state directory is the truth: a daemon holds it from its first to its last moment. The record says how to reach the
//! holder, and counts only while the lock is held and its process is the one that wrote it. Pids are reused after a process ends and after a
//! boot, and mean something else in another pid namespace; so the record has the start time, the boot and the namespace as well.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// Name of the file in the state directory.
pub const FILE: &str = "served-at";

/// Bytes of the longest record: the path of a socket has at most 107 bytes.
pub const MAX_BYTES: u64 = 4096;

/// The form of the record that this version writes.
const VERSION: u32 = 1;

/// The first bytes of an HTTP/2 client, with empty settings; a daemon that serves answers them at once.
pub const GREETING: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";

/// A process of one pid namespace and one boot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Process {
    /// Its pid.
    pub pid: i32,
    /// Clock ticks between the boot and its start.
    pub started: u64,
}

/// How far the start of a daemon is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// It reads its log, and answers no call yet.
    Recovering,
    /// It answers calls.
    Serving,
}

/// The pid namespace of one boot of the machine, in which pids are unique.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Host {
    /// `/proc/sys/kernel/random/boot_id`.
    pub boot_id: String,
    /// Inode of `/proc/self/ns/pid`; 0 if it cannot be read.
    pub pid_namespace: u64,
}

/// The record.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServedAt {
    v: u32,
    /// Path of the socket.
    pub socket: PathBuf,
    /// How far its start is.
    pub phase: Phase,
    /// The daemon, which holds the lock.
    pub daemon: Process,
    /// Its parent, which starts it again if it dies. `None` if the parent has ended.
    pub parent: Option<Process>,
    /// Where the pids are valid.
    #[serde(flatten)]
    pub host: Host,
    /// Version of `ryed`.
    pub version: String,
}

impl ServedAt {
    /// A record of this version.
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

    /// Reads what [`ServedAt::to_json`] wrote. `None` for anything else, and for the form of another version.
    pub fn parse(text: &[u8]) -> Option<Self> {
        let record: Self = serde_json::from_slice(text).ok()?;
        (record.v == VERSION && record.socket.is_absolute()).then_some(record)
    }

    /// The text of the file.
    ///
    /// # Errors
    /// If the path of the socket is not UTF-8.
    pub fn to_json(&self) -> serde_json::Result<Vec<u8>> {
        serde_json::to_vec(self)
    }
}

/// The lock on a state directory, as another process finds it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lock {
    /// No daemon uses the directory.
    Free,
    /// One does.
    Held,
}

/// The daemon that uses a state directory, as far as it is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Holder {
    /// There is none.
    None,
    /// There is one, and no record that is its own: it has just taken the lock, or could not write.
    Unnamed,
    /// The one of this record. Its pids mean nothing here.
    Elsewhere(ServedAt),
    /// The one of this record, whose processes can be seen from here.
    Here(ServedAt),
}

impl Holder {
    /// Decides by the lock, the record, the caller's own host, and the start time of the process with a given pid.
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
        // Written before this boot, so not by the holder.
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

    /// The record, if it counts.
    pub const fn record(&self) -> Option<&ServedAt> {
        match self {
            Self::None | Self::Unnamed => None,
            Self::Elsewhere(record) | Self::Here(record) => Some(record),
        }
    }

    /// Pid of the daemon, if it is valid here.
    pub const fn pid(&self) -> Option<i32> {
        match self {
            Self::Here(record) => Some(record.daemon.pid),
            Self::None | Self::Unnamed | Self::Elsewhere(_) => None,
        }
    }

    /// True if `listener`, a process that listens on the socket of the record, is another daemon than the holder.
    pub fn is_other(&self, listener: Option<i32>) -> bool {
        matches!((self.pid(), listener), (Some(own), Some(found)) if own != found)
    }

    /// True while the daemon reports that it reads its log.
    pub fn is_recovering(&self) -> bool {
        self.record()
            .is_some_and(|record| record.phase == Phase::Recovering)
    }

    /// The same holder for a caller who asks for one socket: a daemon on another one does not exist for it.
    #[must_use]
    pub fn on(self, socket: &Path) -> Self {
        match self.record() {
            Some(record) if record.socket == socket => self,
            Some(_) | None => Self::None,
        }
    }

    /// Decides what follows an attempt to reach the daemon.
    pub const fn next(&self, attempt: Attempt) -> Next {
        match (attempt, self) {
            (Attempt::Silent, _)
            // It lives: it binds its socket again, or has no place for one more connection.
            | (Attempt::Nothing | Attempt::Closed, Self::Here(_)) => Next::Wait,
            (Attempt::Answers | Attempt::Closed, _) => Next::Use,
            (Attempt::Nothing, Self::None | Self::Unnamed | Self::Elsewhere(_)) => Next::Absent,
        }
    }

    /// The daemon that may be ended by force after it has not answered: its processes are known, and it does not report that it recovers.
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
    /// It answers.
    Answers,
    /// Something listens, and has not answered yet.
    Silent,
    /// What listened has closed the connection without an answer.
    Closed,
    /// Nothing listens.
    Nothing,
}

/// What a client does next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// Makes its calls, and reports what comes of them.
    Use,
    /// Waits, and tries again.
    Wait,
    /// Looks elsewhere, or starts a daemon.
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
    fn a_record_is_believed_only_while_the_lock_is_held_and_its_process_lives() {
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
            // The process is gone, or its pid has been given to another one.
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
            // In another namespace the pid is another process.
            (Lock::Held, serving(), at("b1", 8), Some(900), elsewhere),
        ] {
            assert_eq!(judge(lock, record, &host, started), holder);
        }
    }

    #[test]
    fn a_client_waits_for_a_living_daemon_and_starts_none_before_it() {
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
    fn another_daemon_on_the_recorded_socket_is_not_taken_for_the_holder() {
        let here = Holder::Here(record(Phase::Serving));
        for (listener, is_other) in [(Some(13), true), (Some(12), false), (None, false)] {
            assert_eq!(here.is_other(listener), is_other);
        }
        let elsewhere = Holder::Elsewhere(record(Phase::Serving));
        assert!(!elsewhere.is_other(Some(13)));
    }

    #[test]
    fn only_a_daemon_that_serves_and_is_seen_may_be_ended() {
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
    fn a_caller_who_names_a_socket_does_not_find_a_daemon_on_another_one() {
        let here = Holder::Here(record(Phase::Serving));
        let socket = record(Phase::Serving).socket;
        assert_eq!(here.clone().on(&socket), here);
        assert_eq!(here.on("/tmp/s".as_ref()), Holder::None);
        assert_eq!(Holder::Unnamed.on(&socket), Holder::None);
    }

    #[test]
    fn what_is_no_record_of_this_form_is_none() {
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
