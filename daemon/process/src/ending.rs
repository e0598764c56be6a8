//! Stop requests, and the end of a process.

use std::cmp::{Ordering, Reverse};
use std::fmt;
use std::time::Duration;

use nix::sys::signal::Signal;
use rye_core::memory::Charge;
use rye_core::model::KillReceipt;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

/// End of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Exit {
    /// Exit code.
    Code(i32),
    /// Number of the signal that ended it.
    Signal(i32),
}

impl Exit {
    /// The exit code, or the number of the signal.
    pub const fn code_or_signal(self) -> (Option<i32>, Option<i32>) {
        match self {
            Self::Code(code) => (Some(code), None),
            Self::Signal(signal) => (None, Some(signal)),
        }
    }

    /// Exit code as shown by a shell: 128 plus the number for a signal.
    pub fn shell_code(self) -> u8 {
        let code = match self {
            Self::Code(code) => code & 0xff,
            Self::Signal(number) => 128 | (number & 0x7f),
        };
        u8::try_from(code).unwrap_or(u8::MAX)
    }
}

impl fmt::Display for Exit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Code(code) => write!(f, "exit code {code}"),
            Self::Signal(number) => match Signal::try_from(*number) {
                Ok(signal) => write!(f, "signal {signal}"),
                Err(_) => write!(f, "signal {number}"),
            },
        }
    }
}

/// Reason of a stop, ordered by force: only a stronger reason replaces an earlier one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StopReason {
    /// On request: TERM, the grace period of the plan, KILL.
    Cancel,
    /// After its timeout: TERM, the grace period of the plan, KILL.
    Timeout,
    /// On request with a grace period: TERM, this grace period, KILL; KILL at once if it is zero. A shorter one is
    /// stronger.
    Kill {
        /// Time between TERM and KILL.
        grace: Duration,
    },
}

impl StopReason {
    const fn force(self) -> (u8, Reverse<Duration>) {
        match self {
            Self::Cancel => (0, Reverse(Duration::ZERO)),
            Self::Timeout => (1, Reverse(Duration::ZERO)),
            Self::Kill { grace } => (2, Reverse(grace)),
        }
    }
}

impl Ord for StopReason {
    fn cmp(&self, other: &Self) -> Ordering {
        self.force().cmp(&other.force())
    }
}

impl PartialOrd for StopReason {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// Sender of stop requests to one or several processes.
#[derive(Debug, Clone)]
pub struct Stopper(watch::Sender<Option<StopReason>>);

/// Receiver of stop requests, for [`Running::finish`](super::Running::finish).
pub type Stop = watch::Receiver<Option<StopReason>>;

impl Stopper {
    pub fn new() -> Self {
        Self(watch::Sender::new(None))
    }

    /// Makes a receiver; it also receives the current request.
    pub fn listen(&self) -> Stop {
        self.0.subscribe()
    }

    /// Requests a stop for `reason`; no effect if an earlier request is as strong.
    pub fn stop(&self, reason: StopReason) {
        self.0.send_if_modified(|asked| {
            let stronger = *asked < Some(reason);
            if stronger {
                *asked = Some(reason);
            }
            stronger
        });
    }
}

impl Default for Stopper {
    fn default() -> Self {
        Self::new()
    }
}

/// Output of one stream of a process.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Captured {
    /// First bytes, up to the limit of the plan.
    pub bytes: Vec<u8>,
    /// Number of bytes written to the stream in total.
    pub total: u64,
    /// True if the memory limit prevented keeping more.
    pub is_starved: bool,
}

impl Captured {
    /// True if bytes are missing at the end.
    pub fn is_truncated(&self) -> bool {
        u64::try_from(self.bytes.len()).is_ok_and(|kept| kept < self.total)
    }
}

impl fmt::Debug for Captured {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Captured")
            .field("kept", &self.bytes.len())
            .field("total", &self.total)
            .field("is_starved", &self.is_starved)
            .finish()
    }
}

/// Resources that a child used, with its own children that it waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Usage {
    pub cpu: Duration,
    /// Most resident memory of one process, in KiB. `None` if it is not above that of the daemon so far: a child begins
    /// in the memory of the daemon, which the kernel counts as its own.
    pub max_rss_kib: Option<u64>,
}

/// Limit of a cgroup.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CgroupLimit {
    Memory,
    Pids,
}

/// Result of a process.
#[derive(Debug)]
pub struct Exited {
    /// End of the leader. For a leader that hangs in the kernel and is in `receipt.survivors`, the pending KILL.
    pub exit: Exit,
    /// Standard output, including that of its descendants.
    pub stdout: Captured,
    /// Standard error, including that of its descendants.
    pub stderr: Captured,
    /// Memory charge for the bytes of both.
    pub charge: Charge,
    /// Time from its start to its end.
    pub elapsed: Duration,
    /// Resources of the leader and of all that it started, as far as the host can tell.
    pub usage: Usage,
    /// The limit of its cgroup that it reached.
    pub limit: Option<CgroupLimit>,
    /// True if the kernel has ended processes of this host for lack of memory since about its start.
    pub was_memory_short: bool,
    /// Reason of a stop; `None` if it ended by itself.
    pub ended_by: Option<StopReason>,
    /// Processes that were ended: the leader if it was stopped, and the rest of its group and its adopted descendants.
    /// Also lists those that do not end.
    pub receipt: KillReceipt,
    /// True if a process still held an output open one second after all known processes were gone.
    pub pipe_leak: bool,
}

/// The kernel's number of `signal`.
#[expect(clippy::as_conversions, reason = "the discriminant of a C-like enum")]
pub(super) const fn number(signal: Signal) -> i32 {
    signal as i32
}
