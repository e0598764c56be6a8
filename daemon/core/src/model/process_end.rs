//! The end of a process of an attempt: cause, use of resources, and what it left running.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::kill::EndedProcess;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessEnd {
    /// Exit code, if it exited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// Number of the signal that ended it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<i32>,
    pub cause: EndCause,
    /// Wall time in milliseconds.
    pub wall_ms: u64,
    /// Processor time of the process and all that it started, in milliseconds. Without a cgroup of the attempt, only of
    /// those that were waited for.
    pub cpu_ms: u64,
    /// Most resident memory of one of these processes, in KiB; absent if the host cannot tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_rss_kib: Option<u64>,
    pub stdout_bytes: u64,
    pub stderr_bytes: u64,
    /// Other processes that were ended with it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ended: Vec<EndedProcess>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EndCause {
    /// It exited by itself.
    Exited,
    /// Its time limit.
    Timeout,
    /// Its run, or its call, was to stop.
    Cancelled,
    /// Its run was killed.
    Killed,
    /// The daemon stopped.
    Shutdown,
    /// It waits for a suspended run, and is started again when that run is resumed.
    Parked,
    /// The kernel ended it at the memory limit of its cgroup.
    OutOfMemory,
    /// It failed when the limit on processes of its cgroup was reached.
    PidsLimit,
    /// Probes of its health failed, several in a row.
    Unhealthy,
    /// Another process had the port that was chosen for it.
    PortForeign,
    /// Any other signal.
    Signal,
}

impl EndCause {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Exited => "exited",
            Self::Timeout => "timeout",
            Self::Cancelled => "cancelled",
            Self::Killed => "killed",
            Self::Shutdown => "shutdown",
            Self::Parked => "parked",
            Self::OutOfMemory => "out_of_memory",
            Self::PidsLimit => "pids_limit",
            Self::Unhealthy => "unhealthy",
            Self::PortForeign => "port_foreign",
            Self::Signal => "signal",
        }
    }
}

/// One line for people.
impl fmt::Display for ProcessEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.cause, self.exit_code, self.signal) {
            (EndCause::Exited, Some(code), _) => write!(f, "exit code {code}")?,
            (EndCause::Signal, _, Some(signal)) => write!(f, "signal {signal}")?,
            (cause, ..) => f.write_str(cause.as_str())?,
        }
        write!(f, " after {} ms; {} ms of CPU", self.wall_ms, self.cpu_ms)?;
        if let Some(peak) = self.max_rss_kib {
            write!(f, ", {} MiB", peak.div_ceil(1024))?;
        }
        for (at, process) in self.ended.iter().enumerate() {
            let separator = if at == 0 { "; ended with it:" } else { "," };
            write!(f, "{separator} {} (pid {})", process.comm, process.pid)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn end_is_one_line() {
        let process = |comm: &str, pid| EndedProcess {
            pid,
            comm: comm.to_owned(),
            signal: Some(9),
            exit: None,
        };
        let end = ProcessEnd {
            exit_code: Some(0),
            signal: None,
            cause: EndCause::Exited,
            wall_ms: 12,
            cpu_ms: 8,
            max_rss_kib: Some(1500),
            stdout_bytes: 3,
            stderr_bytes: 0,
            ended: Vec::new(),
        };
        assert_eq!(
            end.to_string(),
            "exit code 0 after 12 ms; 8 ms of CPU, 2 MiB"
        );
        let timeout = ProcessEnd {
            cause: EndCause::Timeout,
            signal: Some(15),
            max_rss_kib: None,
            ..end.clone()
        };
        assert_eq!(timeout.to_string(), "timeout after 12 ms; 8 ms of CPU");
        let signal = ProcessEnd {
            exit_code: None,
            signal: Some(11),
            cause: EndCause::Signal,
            ended: vec![process("node", 7), process("sh", 8)],
            ..end
        };
        assert_eq!(
            signal.to_string(),
            "signal 11 after 12 ms; 8 ms of CPU, 2 MiB; ended with it: node (pid 7), sh (pid 8)"
        );
    }

    #[test]
    fn cause_is_named_as_it_is_stored() {
        for cause in [
            EndCause::Exited,
            EndCause::Timeout,
            EndCause::Cancelled,
            EndCause::Killed,
            EndCause::Shutdown,
            EndCause::OutOfMemory,
            EndCause::PidsLimit,
            EndCause::Unhealthy,
            EndCause::PortForeign,
            EndCause::Signal,
        ] {
            assert_eq!(serde_json::to_value(cause).unwrap(), cause.as_str());
        }
    }
}
