//! Process settings of the daemon, and those that its children get back.

use std::ffi::CString;
use std::{fs, io};

use nix::sys::prctl;
use nix::sys::resource::{RLIM_INFINITY, Resource, getrlimit, rlim_t, setrlimit};
use nix::sys::signal::{SigSet, Signal};
use serde::{Deserialize, Serialize};

/// Process name of the daemon, which also identifies other daemons.
pub(super) const NAME: &str = "ryed";

/// Limit on open files as inherited by the daemon. Children get it back: a high limit slows programs that walk all
/// descriptors, and breaks those that use `select`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenFiles {
    pub(super) soft: rlim_t,
    pub(super) hard: rlim_t,
}

/// Properties that children inherit from the daemon, besides variables.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Inheritance {
    /// In octal digits.
    pub umask: String,
    /// From -20 to 19; a higher one gets less time of the processors.
    pub nice: i32,
    /// Names and units of limits, and their soft values; `None` for no limit.
    pub limits: Vec<(&'static str, Option<u64>)>,
}

impl Inheritance {
    /// Reads the settings of this process. Its children get the limit `open_files`.
    pub fn of_children(open_files: OpenFiles) -> io::Result<Self> {
        let soft = |resource| match getrlimit(resource) {
            Ok((soft, _)) if soft != RLIM_INFINITY => Some(soft),
            Ok(_) | Err(_) => None,
        };
        Ok(Self {
            umask: umask()?,
            nice: nice()?,
            limits: vec![
                ("open files", Some(open_files.soft)),
                ("processor seconds", soft(Resource::RLIMIT_CPU)),
                ("bytes of a file", soft(Resource::RLIMIT_FSIZE)),
                ("bytes of memory", soft(Resource::RLIMIT_AS)),
                ("processes", soft(Resource::RLIMIT_NPROC)),
            ],
        })
    }
}

/// Hardens this process; must be called on its first thread. Disables core dumps, prevents other processes of the user
/// from inspecting it, and raises the limit on open files to the maximum. Failures are logged and do not prevent the
/// start.
pub fn harden() -> OpenFiles {
    // Started as `/proc/self/exe`, it would have the name `exe`.
    let name = CString::new(NAME).expect("it holds no NUL");
    if let Err(error) = prctl::set_name(&name) {
        tracing::warn!(%error, "the daemon could not be named");
    }
    if let Err(error) = prctl::set_dumpable(false) {
        tracing::warn!(%error, "the daemon could not be made undumpable");
    }
    if let Err(error) = setrlimit(Resource::RLIMIT_CORE, 0, 0) {
        tracing::warn!(%error, "core dumps could not be turned off");
    }
    // Pidfds notify of the ends of children. The spawner must block the signal, so the kernel queues it, and would wake
    // this thread for each one without need.
    let mut ends = SigSet::empty();
    ends.add(Signal::SIGCHLD);
    if let Err(error) = ends.thread_block() {
        tracing::warn!(%error, "the signals of ending children could not be blocked");
    }
    let files = inherited_open_files();
    if let Err(error) = setrlimit(Resource::RLIMIT_NOFILE, files.hard, files.hard) {
        tracing::warn!(%error, limit = files.hard, "the limit on open files could not be raised");
    }
    files
}

/// Maximum number of open files of this process.
pub fn most_open_files() -> usize {
    usize::try_from(inherited_open_files().soft).unwrap_or(usize::MAX)
}

/// Memory limit of this process in bytes: the least of the machine's memory, its cgroup's limit, and its limit on
/// addresses.
pub fn memory_of_host() -> usize {
    let mut host = sysinfo::System::new();
    host.refresh_memory();
    let cgroup = host.cgroup_limits().map(|limits| limits.total_memory);
    let addresses = getrlimit(Resource::RLIMIT_AS).map(|(soft, _)| soft);
    let bounds = [Some(host.total_memory()), cgroup, addresses.ok()];
    let least = bounds
        .into_iter()
        .flatten()
        .filter(|bytes| *bytes > 0)
        .min();
    least.map_or(usize::MAX, |bytes| {
        usize::try_from(bytes).unwrap_or(usize::MAX)
    })
}

/// Current limit on open files.
pub(super) fn inherited_open_files() -> OpenFiles {
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap_or((1024, 1024));
    OpenFiles { soft, hard }
}

/// Mask of permissions of new files of this process, in octal digits.
fn umask() -> io::Result<String> {
    let status = fs::read_to_string("/proc/self/status")?;
    let mask = status.lines().find_map(|line| line.strip_prefix("Umask:"));
    let mask = mask.ok_or_else(|| io::Error::other("/proc/self/status has no umask"))?;
    Ok(mask.trim().to_owned())
}

/// Niceness of this process.
fn nice() -> io::Result<i32> {
    let line = fs::read_to_string("/proc/self/stat")?;
    // The name of the process may hold blanks and parentheses.
    let fields = line.rsplit_once(')').map(|(_, fields)| fields);
    let nice = fields.and_then(|fields| fields.split_ascii_whitespace().nth(16)?.parse().ok());
    nice.ok_or_else(|| io::Error::other("/proc/self/stat has no niceness"))
}
