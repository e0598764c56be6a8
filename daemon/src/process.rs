//! Processes: the parent that outlives the daemon, tool processes in groups of their own, and who is calling.
//!
//! **Owns** every fork of the daemon. [`parent`] runs `ryed` as two processes; [`Spawner`] starts a [`Plan`], and
//! [`Running::finish`] carries it to its end; [`end_leftovers`] clears up after an earlier life of the daemon;
//! [`Peer`] tells where a caller comes from. **Never** decides what to run or what a result means.
//!
//! ```text
//! ryed (parent: subreaper, waits, forwards signals)
//!  └─ ryed (daemon)                        dies ⇒ the parent ends all that is left, exits with its code
//!      ├─ leader of a group and session    PDEATHSIG=KILL: never outlives the daemon
//!      │   └─ its children                 orphaned ⇒ adopted by the parent, which reaps them
//!      └─ leader …
//! ```
//!
//! **States** of a running process: free → terminating (TERM, grace) → killed. Reasons only
//! escalate, and what is left of a grace only shrinks.
//!
//! **Order and races.** A pidfd is opened before anything can reap the child. When it says that the leader has ended,
//! the leader stays a zombie until the rest of its group has been killed, so its group id cannot have passed to
//! somebody else; only then is it reaped. Any other process is signalled through a pidfd whose start time was checked
//! after it was opened. What left the group (`setsid`, double fork) is found by two facts: the parent has adopted it,
//! and its environment carries the tag of the attempt; or it was seen below the leader when the leader was asked to
//! stop. While a process changes its program, its environment cannot be read whole, and one that has just died may have
//! handed on children since the list of the adopted was read: a sweep is over only when each adopted process was known for
//! ours or somebody else's in one look. Exit and end of output are two facts: after the exit, output gets one more second,
//! then it is a leak.
//!
//! **Failure.** An [`Error`] of [`Spawner::start`] means that the program was not executed. A dropped [`Running`] kills
//! its group; its leader is reaped before the next start. A daemon that is killed takes its leaders along (PDEATHSIG)
//! and the parent ends the rest; if both are killed, [`end_leftovers`] does at the next boot.

mod ending;
mod error;
mod host;
mod oom;
mod plan;
mod procfs;

mod ladder;
mod output;
mod pidfd;
mod reap;

mod image;
pub mod parent;
mod peer;
mod sweep;

mod running;

mod spawn;

#[cfg(test)]
mod tests;

pub use ending::{Captured, Exit, Exited, Stop, StopReason, Stopper};
pub use error::Error;
pub use host::{OpenFiles, harden, memory_of_host, most_open_files};
pub use image::file_path;
pub use peer::{Lineage, Peer};
pub use plan::{ATTEMPT_VARIABLE, DEFAULT_GRACE, Input, KILL_GRACE, Plan, Tap};
pub use procfs::{boot_id, pid_host, start_time};
pub use running::Running;
pub use spawn::Spawner;
pub use sweep::{Leftover, end_leftovers};

/// How processes are kept together, strongest first, as `daemon info` tells it.
pub const CONTAINMENT: [&str; 4] = [
    "pidfd and start time",
    "subreaper parent",
    "process group",
    "PDEATHSIG",
];
