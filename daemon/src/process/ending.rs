//! How a process is stopped, and how it ended.

use std::cmp::{Ordering, Reverse};
use std::fmt;
use std::time::Duration;

use nix::sys::signal::Signal;
use rye_core::memory::Charge;
use rye_core::model::KillReceipt;
use tokio::sync::watch;

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// It exited with this code.
    Code(i32),
    /// This signal ended it.
    Signal(i32),
}

impl Exit {
    /// The code a shell shows for it: 128 and the number for a signal.
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

/// Why a process is stopped. The order is that of force: a reason gives way only to a stronger one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StopReason {
    /// Somebody asked: TERM, the grace of the plan, KILL.
    Cancel,
    /// Its time is up: TERM, the grace of the plan, KILL.
    Timeout,
    /// Somebody who says how long it may take: TERM, this grace, KILL; without a grace KILL at once. The shorter, the
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

/// The side that asks a process, or a row of them, to stop.
#[derive(Debug, Clone)]
pub struct Stopper(watch::Sender<Option<StopReason>>);

/// The side that [`Running::finish`](super::Running::finish) listens to.
pub type Stop = watch::Receiver<Option<StopReason>>;

impl Stopper {
    /// A stopper that has asked for nothing yet.
    pub fn new() -> Self {
        Self(watch::Sender::new(None))
    }

    /// A listener; it also hears what was asked before it came.
    pub fn listen(&self) -> Stop {
        self.0.subscribe()
    }

    /// Asks to stop for `reason`; a weaker one than already asked for changes nothing.
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

/// What one stream of a process came to.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Captured {
    /// Its first bytes, as many as the plan allows.
    pub bytes: Vec<u8>,
    /// How many bytes were written to it in all.
    pub total: u64,
    /// Whether there was no memory to keep more of them.
    pub is_starved: bool,
}

impl Captured {
    /// Whether bytes are missing at the end.
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

/// What a process came to.
#[derive(Debug)]
pub struct Exited {
    /// How the leader ended; of one that hangs in the kernel and is in `receipt.survivors`, the KILL that awaits it.
    pub exit: Exit,
    /// Its standard output, and that of its descendants.
    pub stdout: Captured,
    /// Its standard error, and that of its descendants.
    pub stderr: Captured,
    /// What is charged for the bytes of both.
    pub charge: Charge,
    /// From the start of the process to its end.
    pub elapsed: Duration,
    /// Why it was stopped; `None` if it ended by itself.
    pub ended_by: Option<StopReason>,
    /// What we ended: the leader if it was stopped, and whatever of its group or its adopted descendants was left; and what
    /// does not end.
    pub receipt: KillReceipt,
    /// Whether something still held an output open a second after everything we know of was gone.
    pub pipe_leak: bool,
}

/// The kernel's number of `signal`.
#[expect(clippy::as_conversions, reason = "the discriminant of a C-like enum")]
pub(super) const fn number(signal: Signal) -> i32 {
    signal as i32
}
