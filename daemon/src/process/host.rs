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
    return_large_blocks();
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

/// Bytes of memory in use, as the kernel counts them for this process.
fn resident() -> u64 {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = pages
        .split(' ')
        .nth(1)
        .and_then(|pages| pages.parse::<u64>().ok());
    pages.unwrap_or(0).saturating_mul(PAGE_BYTES)
}

/// Bytes of a page, or fewer where pages are larger.
const PAGE_BYTES: u64 = 4096;
/// Growth at which it is worth looking for memory that is free.
const GROWTH: u64 = 32 << 20;

/// Most looks that are left out after one that found little.
const MOST_LEFT_OUT: u32 = 5;

/// Gives memory back that the allocator keeps although it is free. That takes some milliseconds: it looks when the process has grown since it
/// last did, and less and less often while that gives little back. A peak may pass just after a look.
#[derive(Debug, Default)]
pub struct Trimmer {
    /// What was in use when it had looked.
    after: u64,
    /// Looks to leave out behind one that found little, and those of them that are left.
    pause: u32,
    left: u32,
}

impl Trimmer {
    /// Looks, if it is worth it. Blocks.
    pub fn look(&mut self) {
        let before = resident();
        let grown = before >= self.after.saturating_add(GROWTH);
        if before < GROWTH || (self.left > 0 && !grown) {
            self.left = self.left.saturating_sub(1);
            self.after = self.after.min(before);
            return;
        }
        trim();
        self.after = resident();
        let given = before.saturating_sub(self.after);
        self.pause = if given < GROWTH {
            (2 * self.pause + 1).min(MOST_LEFT_OUT)
        } else {
            0
        };
        self.left = self.pause;
        tracing::debug!(megabytes = given >> 20, "memory was given back");
    }
}

/// Blocks of memory of at least so many bytes go back to the system when they are free.
#[cfg(target_env = "gnu")]
const LARGE: libc::c_int = 4 << 20;

/// Has the allocator return large blocks at once. Of itself it learns to keep those of up to 32 MiB: what a run that has
/// ended left would stay.
#[cfg(target_env = "gnu")]
#[expect(unsafe_code, reason = "the allocator is that of the C library")]
fn return_large_blocks() {
    // SAFETY: it takes its own locks, and changes nothing that is in use.
    let set = |name, value| unsafe { libc::mallopt(name, value) } != 0;
    if !(set(libc::M_MMAP_THRESHOLD, LARGE) && set(libc::M_TRIM_THRESHOLD, 2 * LARGE)) {
        tracing::warn!("the allocator keeps large blocks of memory that are free");
    }
}

#[cfg(not(target_env = "gnu"))]
const fn return_large_blocks() {}

#[cfg(target_env = "gnu")]
#[expect(unsafe_code, reason = "the allocator is that of the C library")]
fn trim() {
    // SAFETY: it takes its own locks, and changes nothing that is in use.
    let _any = unsafe { libc::malloc_trim(0) };
}

#[cfg(not(target_env = "gnu"))]
const fn trim() {}

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
