//! What the daemon sets on itself, and what its children get back.

use std::ffi::CString;

use nix::sys::prctl;
use nix::sys::resource::{Resource, getrlimit, rlim_t, setrlimit};
use nix::sys::signal::{SigSet, Signal};

/// What a daemon is called among the processes: it knows others by that, too.
pub(super) const NAME: &str = "ryed";

/// The limit on open files as the daemon inherited it. Children get it back: programs that walk all descriptors, or
/// use `select`, do not like a high one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OpenFiles {
    pub(super) soft: rlim_t,
    pub(super) hard: rlim_t,
}

/// Hardens this process, to be called on its first thread: it leaves no core, other processes of its user cannot look into it, and it may open as many
/// files as the system lets it. What the kernel refuses is logged; none of it is worth not starting for.
pub fn harden() -> OpenFiles {
    // It was started as `/proc/self/exe`, and would be called `exe`.
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
    // Their pidfds notify of the ends of children. The spawner must block the signal, so the kernel keeps it, and would wake
    // this thread for each, for nothing.
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

/// How many files this process may have open.
pub fn most_open_files() -> usize {
    usize::try_from(inherited_open_files().soft).unwrap_or(usize::MAX)
}

/// The memory in bytes that this process may take at most: that of the machine, of its cgroup, or of its limit on addresses, whichever
/// is least.
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

/// The limit on open files now in force.
pub(super) fn inherited_open_files() -> OpenFiles {
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap_or((1024, 1024));
    OpenFiles { soft, hard }
}
