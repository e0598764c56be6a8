//! Processes: the parent process that outlives the daemon, tool processes in groups of their own, and the origin of API
//! callers.
//!
//! **Owns** every fork of the daemon. [`parent`] runs `ryed` as two processes. [`Spawner`] starts a [`Plan`], and
//! [`Running::finish`] follows the process to its end. [`end_leftovers`] ends processes of an earlier daemon. [`Peer`]
//! finds the origin of a caller. A [`shim`] keeps a process while the daemon is away. **Never** decides what to run or what a result means.
//!
//! ```text
//! ryed (parent: subreaper, waits, forwards signals)
//!  └─ ryed (daemon)                        dies ⇒ the parent ends all that is left, exits with its code
//!      ├─ leader of a group and session    PDEATHSIG=KILL: never outlives the daemon
//!      │   └─ its children                 orphaned ⇒ adopted by the parent, which reaps them
//!      └─ leader …
//! ```
//!
//! Where the host allows it, each attempt has a cgroup ([`AttemptCgroups`]), and all of the following only finds what
//! root moved out of it. With a [`SignalScope`] an attempt can only signal its own processes.
//!
//! **States** of a running process: free → terminating (TERM, grace) → killed. Reasons only escalate, and the rest of a
//! grace period only shrinks.
//!
//! **Order and races.** A pidfd is opened before the child can be reaped. When it reports the end of the leader, the
//! leader stays a zombie until the rest of its group has been killed. Its group id can therefore not be reused before
//! that; only then is the leader reaped. Any other process is signalled through a pidfd whose start time was checked
//! after it was opened. Processes that left the group (`setsid`, double fork) are found in two ways. Either the parent
//! has adopted the process and its environment carries the tag of the attempt, or the process was a descendant of the
//! leader when the leader was stopped. During an exec, the environment of a process cannot be read completely. A
//! process that has just died may have passed on children since the list of adopted processes was read. A sweep is
//! therefore complete only when one look has classified every adopted process. Exit and end of output are separate
//! events: after the exit, output gets one more second, then it counts as a leak.
//!
//! **Failure.** An [`Error`] of [`Spawner::start`] means that the program was not executed. A dropped [`Running`] kills
//! its group; its leader is reaped before the next start. If the daemon is killed, its leaders die with it (PDEATHSIG)
//! and the parent ends the rest. If both are killed, [`end_leftovers`] ends the rest at the next start of the daemon.

pub mod masking;

mod ending;
mod error;
mod host;
mod oom;
mod plan;
mod procfs;

mod clone;
mod controllers;
mod ladder;
mod output;
mod pidfd;
mod reap;

mod freezer;

mod cgroup;

mod members;
mod signal_scope;

mod image;
mod peer;
mod sweep;

pub mod shim;

pub mod parent;

mod running;

mod sandbox;

mod spawn;

#[cfg(test)]
mod tests;

pub use cgroup::{AttemptCgroups, Unavailable, cgroup_name, end_recorded};
pub use controllers::Unenforced;
pub use ending::{Captured, CgroupLimit, Exit, Exited, Stop, StopReason, Stopper, Usage};
pub use error::Error;
pub use freezer::Freezer;
pub use host::{Inheritance, OpenFiles, harden, memory_of_host, most_open_files};
pub use image::file_path;
pub use members::{Listener, Load, Members, PortOwner};
pub use peer::{Lineage, Peer};
pub use plan::{
    ATTEMPT_VARIABLE, Confinement, DEFAULT_GRACE, Input, KILL_GRACE, MAX_ARGUMENT_BYTES, Plan,
    SandboxView, Source, Tap,
};
pub use procfs::{boot_id, pid_host, start_time};
pub use running::Running;
pub use signal_scope::{NoScope, SignalScope};
pub use spawn::Spawner;
pub use sweep::{Leftover, end_leftovers};

/// First containment mechanism, where there are [`AttemptCgroups`].
pub const CGROUP: &str = "cgroup of the attempt";
/// Last containment mechanism, where there is a [`SignalScope`].
pub const SIGNALS: &str = "signal scope";
/// Containment mechanisms of every host, strongest first, as shown by `daemon info`.
pub const CONTAINMENT: [&str; 4] = [
    "pidfd and start time",
    "subreaper parent",
    "process group",
    "PDEATHSIG",
];
