//! A cgroup for each attempt: no process leaves it by a new session, a double fork, or an empty environment.
//!
//! **Owns** the cgroups `<cgroup of the daemon>/rye-<state directory>/runs/<attempt>`, those of surviving processes in `keep`
//! beside `runs`, and the file `cgroup` in the state directory, which has the path in use. **Never** makes anything outside the daemon's own cgroup, so an enclosing limit
//! holds, and never moves a process but the daemon and its parent, to `daemon` beside `runs`, if that gives the others controllers.
//!
//! **Order.** The path is recorded before the first cgroup is made: the next daemon may start in another cgroup (another
//! terminal, another service), and must find what this one left. **Failure.** [`AttemptCgroups::prepare`] tries a real
//! start and a real kill, so a host where one fails has no cgroups for attempts. A process of root can move itself out;
//! [`sweep`](super::sweep) looks for it as on such a host.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{SigSet, Signal};
use nix::unistd::{Pid, getpid};
use rye_core::model::{EndedProcess, KillReceipt, Resource, Resources};
use rye_core::seal::sha256_hex;
use rye_host::safe_path::{Dir, Draft};

use super::controllers::{self, Unenforced, number_in};
use super::ending::{CgroupLimit, Usage, number};
use super::freezer::Freezer;
use super::pidfd::ProcessHandle;
use super::procfs::Stat;
use super::{clone, reap};

/// File in the state directory with the path of the cgroups.
const RECORD: &str = "cgroup";
/// Cgroup of the attempts, below that of the state directory.
const RUNS: &str = "runs";
/// Cgroup of the processes that survive the daemon, beside that of the attempts.
const KEEP: &str = "keep";
/// Cgroup of the shim of such a process, beside that of the process.
const SHIM: &str = "shim";
/// Cgroup of the daemon and its parent, beside that of the attempts, on a host with controllers.
const DAEMON: &str = "daemon";
/// Name of the cgroup of the test at the start.
const PROBE: &str = "probe";
/// Digits of a hash in the name of a cgroup.
const DIGITS: usize = 16;
/// Stack of the child of that test, in bytes.
const PROBE_STACK: usize = 64 * 1024;
/// Time limit for the end of killed processes. Only one that hangs in the kernel takes this long.
const PATIENCE: Duration = Duration::from_secs(10);
/// Pause between looks at a cgroup whose processes were killed.
const LOOK_AGAIN: Duration = Duration::from_millis(1);

/// Reason why attempts have no cgroups.
#[derive(Debug, thiserror::Error)]
pub enum Unavailable {
    #[error("the setting `containment.cgroup` is `off`")]
    Off,
    #[error(
        "no cgroup of version 2 is mounted here, or it has no place for this process: mount one, such as with `mount -t cgroup2 none /sys/fs/cgroup/unified`"
    )]
    NotMounted,
    #[error(
        "`{path}` takes no cgroups ({source}): start the daemon as a service with `Delegate=yes`, or with \
         `systemd-run --user --scope -p Delegate=yes ryed`"
    )]
    NotDelegated { path: PathBuf, source: io::Error },
    #[error("a test in `{path}` failed ({source}): Linux 5.14 or later is needed, on x86-64")]
    Failed { path: PathBuf, source: io::Error },
    #[error("the state directory cannot be used ({source})")]
    State { source: io::Error },
}

/// The cgroups of the attempts of a daemon, or of a shim. Dropping it removes what is empty.
#[derive(Debug)]
pub struct AttemptCgroups {
    /// Cgroup with all others.
    base: PathBuf,
    runs: PathBuf,
    /// Tags of the attempts in progress, by the names of their cgroups.
    tags: Mutex<HashMap<String, String>>,
    /// Reason why some limits are not enforced.
    unenforced: Option<Unenforced>,
}

impl AttemptCgroups {
    /// Makes their cgroup for the daemon that holds the state directory `state`, and tests it. `parent` is the parent
    /// process of the daemon.
    pub fn prepare(state: &Path, parent: Pid) -> Result<Arc<Self>, Unavailable> {
        let name = name_of(state).map_err(|source| Unavailable::State { source })?;
        let own = own_cgroup().ok_or(Unavailable::NotMounted)?;
        // An earlier daemon of the same parent has moved it.
        let moved = Path::new(&name).join(DAEMON);
        let own = if own.ends_with(&moved) {
            own.ancestors().nth(2).unwrap_or(&own).to_owned()
        } else {
            own
        };
        let base = own.join(name);
        let record = Record { parent, base };
        record
            .write(state)
            .map_err(|source| Unavailable::State { source })?;
        let runs = record.base.join(RUNS);
        fs::create_dir_all(&runs).map_err(|source| Unavailable::NotDelegated {
            path: own.clone(),
            source,
        })?;
        let members = [parent, getpid()];
        let daemon = record.base.join(DAEMON);
        if let Err(error) = controllers::enable_in_own(&own, &daemon, &members) {
            tracing::warn!(cgroup = %own.display(), %error, "the daemon stays in its cgroup");
        }
        controllers::enable(&record.base);
        controllers::enable(&runs);
        let unenforced = controllers::unenforced(&own, &runs, &members);
        let cgroups = Arc::new(Self {
            base: record.base,
            runs,
            tags: Mutex::default(),
            unenforced,
        });
        cgroups.probe().map_err(|source| {
            if source.kind() == ErrorKind::PermissionDenied {
                Unavailable::NotDelegated { path: own, source }
            } else {
                Unavailable::Failed { path: own, source }
            }
        })?;
        Ok(cgroups)
    }

    /// Makes the cgroup of the surviving process `handle`, and in it one for its shim, which is returned too.
    pub(super) fn keep(&self, handle: &str) -> io::Result<(PathBuf, PathBuf)> {
        let keep = self.base.join(KEEP);
        let kept = keep.join(cgroup_name(handle));
        let shim = kept.join(SHIM);
        fs::create_dir_all(&shim)?;
        controllers::enable(&keep);
        controllers::enable(&kept);
        Ok((kept, shim))
    }

    /// The cgroups below `kept`, the cgroup of a surviving process, for its shim.
    pub fn of_shim(kept: PathBuf) -> Arc<Self> {
        Arc::new(Self {
            base: kept.clone(),
            runs: kept,
            tags: Mutex::default(),
            unenforced: None,
        })
    }

    /// Resources whose limits the host enforces for attempts.
    pub fn enforced(&self) -> Vec<Resource> {
        controllers::enforced_below(&self.runs)
    }

    /// Reason why it does not enforce the others.
    pub fn unenforced(&self) -> Option<&Unenforced> {
        self.unenforced.as_ref()
    }

    /// Starts a child in a cgroup, and kills the cgroup.
    fn probe(self: &Arc<Self>) -> io::Result<()> {
        let cgroup = self.create(PROBE, &Resources::default())?;
        let directory = cgroup.open()?;
        let mut stack = vec![0; PROBE_STACK];
        let mask = SigSet::all().thread_swap_mask(nix::sys::signal::SigmaskHow::SIG_BLOCK)?;
        #[expect(unsafe_code, reason = "the body of the child returns a number")]
        // SAFETY: all signals are blocked, and the body does nothing.
        let started = unsafe { clone::into_cgroup(&mut || 0, &mut stack, directory.as_fd()) };
        mask.thread_set_mask()?;
        let (_pid, pidfd) = started?;
        reap::child(pidfd.as_fd(), reap::Wait::UntilEnd)?;
        kill(&cgroup.path)
    }

    /// Makes the cgroup of the attempt `tag`, whose processes have `limits` together.
    pub(super) fn create(
        self: &Arc<Self>,
        tag: &str,
        limits: &Resources,
    ) -> io::Result<AttemptCgroup> {
        let name = cgroup_name(tag);
        let path = self.runs.join(&name);
        let made = match fs::create_dir(&path) {
            // Processes that an earlier life of the attempt left are ended with it.
            Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
            // Somebody has removed the empty cgroups.
            Err(error) if error.kind() == ErrorKind::NotFound => fs::create_dir_all(&path),
            made => made,
        };
        made?;
        self.tags().insert(name.clone(), tag.to_owned());
        let made = AttemptCgroup {
            path,
            name,
            all: Arc::clone(self),
        };
        controllers::limit(&made.path, limits)?;
        Ok(made)
    }

    /// Finds the attempt in whose cgroup `pid` is. Returns its tag, which is empty for an attempt that has ended.
    pub(super) fn attempt_of(&self, pid: i32) -> Option<Vec<u8>> {
        let cgroups = fs::read_to_string(format!("/proc/{pid}/cgroup")).ok()?;
        let base = self.base.file_name()?;
        let mut parts = Path::new(path_in(&cgroups)?).components();
        parts.find(|part| part.as_os_str() == base)?;
        let (runs, attempt) = (parts.next()?, parts.next()?);
        let name = attempt.as_os_str().to_str()?;
        // The callers below a surviving process belong to no attempt that may call.
        let is_attempt = [RUNS, KEEP].map(|of| Component::Normal(of.as_ref()));
        is_attempt.contains(&runs).then(|| {
            let tags = self.tags();
            let tag = tags.get(name).map(|tag| tag.as_bytes().to_vec());
            tag.unwrap_or_default()
        })
    }

    fn tags(&self) -> MutexGuard<'_, HashMap<String, String>> {
        // Every use changes one entry, so a panic elsewhere leaves the map valid.
        self.tags.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for AttemptCgroups {
    fn drop(&mut self) {
        remove(&self.base);
    }
}

/// The cgroup of one attempt. Dropping it removes it once it is empty; else the next start of the daemon does.
#[derive(Debug)]
pub(super) struct AttemptCgroup {
    path: PathBuf,
    name: String,
    all: Arc<AttemptCgroups>,
}

impl AttemptCgroup {
    /// Opens its directory, for a start into it.
    pub(super) fn open(&self) -> io::Result<OwnedFd> {
        Ok(File::open(&self.path)?.into())
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// True if a process in it is alive.
    pub(super) fn is_populated(&self) -> bool {
        is_populated(&self.path)
    }

    /// Its living processes. A concurrent fork may be missing.
    pub(super) fn members(&self) -> Vec<Stat> {
        members(&self.path)
    }

    /// Raises `usage` to that of all processes which were ever in it.
    pub(super) fn raise(&self, usage: &mut Usage) {
        if let Some(micros) = number_in(&self.path.join("cpu.stat"), "usage_usec ") {
            usage.cpu = usage.cpu.max(Duration::from_micros(micros));
        }
        if let Some(bytes) = number_in(&self.path.join("memory.peak"), "") {
            usage.max_rss_kib = usage.max_rss_kib.max(Some(bytes >> 10));
        }
    }

    /// The limit that its processes reached.
    pub(super) fn limit_reached(&self) -> Option<CgroupLimit> {
        controllers::limit_reached(&self.path)
    }

    /// Thaws its processes, so that they handle the signals that they have got.
    pub(super) fn thaw(&self) {
        let freezer = Freezer::new(&self.path);
        if freezer.is_set()
            && let Err(error) = freezer.set(false)
        {
            tracing::warn!(cgroup = %self.path.display(), %error, "a cgroup could not be thawed");
        }
    }

    /// Kills all its processes at once, those that are being forked too.
    pub(super) fn kill(&self) {
        if let Err(error) = kill(&self.path) {
            tracing::warn!(cgroup = %self.path.display(), %error, "a cgroup could not be killed");
        }
    }
}

impl Drop for AttemptCgroup {
    fn drop(&mut self) {
        remove(&self.path);
        self.all.tags().remove(&self.name);
    }
}

/// Name of the cgroup of the attempt `tag`.
pub fn cgroup_name(tag: &str) -> String {
    let mut name = sha256_hex(tag);
    name.truncate(DIGITS);
    name
}

/// Kills what an earlier daemon of the state directory `state` left in its cgroups, and removes them. Returns the
/// receipts by the names of the cgroups. Blocks, usually for milliseconds.
pub fn end_recorded(state: &Path) -> Vec<(String, KillReceipt)> {
    let Some(Record { base, .. }) = Record::read(state) else {
        return Vec::new();
    };
    let runs = base.join(RUNS);
    let held: Vec<(String, Vec<ProcessHandle>)> = directories(&runs)
        .map(|path| {
            let name = path.file_name().unwrap_or_default();
            let held = members(&path).into_iter().filter_map(ProcessHandle::take);
            (name.to_string_lossy().into_owned(), held.collect())
        })
        .collect();
    if is_populated(&runs) {
        kill_and_wait(&runs);
    }
    let complete = !is_populated(&runs);
    remove(&base);
    let receipts = held.into_iter();
    receipts
        .map(|(name, held)| (name, receipt(held, complete)))
        .collect()
}

/// Kills the processes in a cgroup, and waits until they have ended.
fn kill_and_wait(cgroup: &Path) {
    if let Err(error) = kill(cgroup) {
        tracing::error!(cgroup = %cgroup.display(), %error, "the processes of an earlier daemon could not be killed");
    }
    let deadline = Instant::now() + PATIENCE;
    while is_populated(cgroup) && Instant::now() < deadline {
        thread::sleep(LOOK_AGAIN);
    }
}

/// Receipt for killed processes.
fn receipt(held: Vec<ProcessHandle>, complete: bool) -> KillReceipt {
    let (ended, left): (Vec<_>, Vec<_>) = held
        .into_iter()
        .partition(|held| held.has_ended_by(Instant::now()));
    let processes = ended.into_iter().map(|held| EndedProcess {
        pid: held.stat.pid,
        comm: held.stat.comm,
        signal: Some(number(Signal::SIGKILL)),
        exit: None,
    });
    KillReceipt {
        processes: processes.collect(),
        survivors: left.iter().map(|held| held.stat.pid).collect(),
        complete,
        adopted: Vec::new(),
    }
}

/// Kills all processes in `kept`, the cgroup of the surviving process `handle` of the state directory `state`, and
/// removes it. Another cgroup is left as it is. Returns the processes and the survivors among them. Blocks.
pub(super) fn end_kept(state: &Path, handle: &str, kept: &Path) -> KillReceipt {
    let own = name_of(state).ok().map(PathBuf::from);
    let is_own = own.is_some_and(|own| kept.ends_with(own.join(KEEP).join(cgroup_name(handle))));
    if !is_own || !kept.exists() {
        return KillReceipt::default();
    }
    let held = members(kept).into_iter().filter_map(ProcessHandle::take);
    let held = held.collect();
    if is_populated(kept) {
        kill_and_wait(kept);
    }
    let complete = !is_populated(kept);
    remove(kept);
    receipt(held, complete)
}

/// Kills what the dead daemon of this process, its parent, left in its cgroups. Does not wait. A daemon that could not
/// have the state directory `state`, because another one has it, left nothing.
pub(super) fn kill_recorded(state: &Path) {
    let Some(runs) = Record::of_own_daemon(state).map(|record| record.base.join(RUNS)) else {
        return;
    };
    match kill(&runs) {
        Ok(()) => {}
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        Err(error) => {
            tracing::warn!(cgroup = %runs.display(), %error, "a cgroup could not be killed");
        }
    }
}

/// Removes the empty cgroups of the dead daemon of this process.
pub(super) fn remove_recorded(state: &Path) {
    if let Some(record) = Record::of_own_daemon(state) {
        remove(&record.base);
    }
}

/// The cgroups of the latest daemon of a state directory.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Record {
    /// Parent process of that daemon.
    parent: Pid,
    /// Cgroup of the state directory.
    base: PathBuf,
}

impl Record {
    /// Reads the record in the state directory `state`. One that was copied from another directory has another name in
    /// it, and does not count.
    fn read(state: &Path) -> Option<Self> {
        let text = fs::read_to_string(state.join(RECORD)).ok()?;
        let (parent, base) = text.split_once(' ')?;
        let record = Self {
            parent: Pid::from_raw(parent.parse().ok()?),
            base: PathBuf::from(base),
        };
        let is_own = record.base.file_name()?.to_str()? == name_of(state).ok()?;
        (is_own && record.base.join("cgroup.kill").exists()).then_some(record)
    }

    /// Reads the record of the daemon whose parent is this process.
    fn of_own_daemon(state: &Path) -> Option<Self> {
        Self::read(state).filter(|record| record.parent == getpid())
    }

    /// Replaces the record. It means nothing after a reboot, so it is not synced.
    fn write(&self, state: &Path) -> io::Result<()> {
        let mut draft = Draft::new(Dir::follow(state)?, format!("{RECORD}.tmp"))?;
        write!(draft.file, "{} {}", self.parent, self.base.display())?;
        draft.rename(RECORD)?;
        Ok(())
    }
}

/// Name of the cgroup of the state directory `state`. It identifies the directory on this host, not its path, which may
/// mean another directory in another mount namespace.
fn name_of(state: &Path) -> io::Result<String> {
    let found = fs::metadata(state)?;
    let identity = cgroup_name(&format!("{}:{}", found.dev(), found.ino()));
    Ok(format!("rye-{identity}"))
}

/// Directory of the cgroup of this process.
fn own_cgroup() -> Option<PathBuf> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
    let cgroups = fs::read_to_string("/proc/self/cgroup").ok()?;
    locate(&mounts, &cgroups)
}

/// Directory of the cgroup that `cgroups`, the content of a `/proc/<pid>/cgroup`, names, on one of the mounts.
fn locate(mounts: &str, cgroups: &str) -> Option<PathBuf> {
    let path = path_in(cgroups)?;
    mounts.lines().find_map(|mount| {
        let (place, kind) = mount.split_once(" - ")?;
        let mut fields = place.split(' ').skip(3);
        let (root, point) = (fields.next()?, fields.next()?);
        let is_version_2 = kind.split(' ').next() == Some("cgroup2");
        let below = Path::new(path).strip_prefix(root).ok()?;
        // A path with an escape is not one that anybody chooses for this.
        let parts = || Path::new(point).components().chain(below.components());
        (is_version_2 && !point.contains('\\')).then(|| parts().collect())
    })
}

/// Path of the cgroup of version 2 in `cgroups`, the content of a `/proc/<pid>/cgroup`.
fn path_in(cgroups: &str) -> Option<&str> {
    let path = cgroups.lines().find_map(|line| line.strip_prefix("0::"))?;
    // Outside of the namespace of this process, or removed.
    let is_usable = !path.starts_with("/..") && !path.ends_with(" (deleted)");
    is_usable.then_some(path)
}

fn is_populated(cgroup: &Path) -> bool {
    fs::read_to_string(cgroup.join("cgroup.events"))
        .is_ok_and(|events| events.lines().any(|line| line == "populated 1"))
}

/// Living processes in a cgroup and below. A concurrent fork may be missing.
pub(super) fn members(cgroup: &Path) -> Vec<Stat> {
    let list = fs::read_to_string(cgroup.join("cgroup.procs")).unwrap_or_default();
    let own = list.lines().filter_map(|pid| pid.parse().ok());
    let mut members: Vec<Stat> = own.filter_map(Stat::read).filter(Stat::is_alive).collect();
    members.extend(directories(cgroup).flat_map(|below| self::members(&below)));
    members
}

fn kill(cgroup: &Path) -> io::Result<()> {
    controllers::write(&cgroup.join("cgroup.kill"), "1")
}

/// Removes a cgroup and all below it. One that has living processes stays.
fn remove(cgroup: &Path) {
    for below in directories(cgroup) {
        remove(&below);
    }
    match fs::remove_dir(cgroup) {
        Ok(()) => {}
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        Err(error) => {
            tracing::debug!(cgroup = %cgroup.display(), %error, "a cgroup stays");
        }
    }
}

fn directories(path: &Path) -> impl Iterator<Item = PathBuf> {
    let entries = fs::read_dir(path).into_iter().flatten();
    let entries = entries.filter_map(Result::ok);
    let directories = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    directories.map(|entry| entry.path())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_cgroup_is_found_on_its_mount() {
        let v1 = "24 1 0:20 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n";
        let hybrid =
            format!("{v1}42 24 0:39 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw\n");
        let part = "42 24 0:39 /docker/1 /sys/fs/cgroup rw shared:9 - cgroup2 cgroup rw\n";
        for (mounts, cgroups, expected) in [
            (
                &*hybrid,
                "4:memory:/x\n0::/a/b\n",
                Some("/sys/fs/cgroup/unified/a/b"),
            ),
            (&hybrid, "0::/\n", Some("/sys/fs/cgroup/unified")),
            (part, "0::/docker/1/c\n", Some("/sys/fs/cgroup/c")),
            (part, "0::/other\n", None),
            (&hybrid, "0::/../out\n", None),
            (&hybrid, "0::/gone (deleted)\n", None),
            (&hybrid, "4:memory:/x\n", None),
            (v1, "0::/a\n", None),
            ("garbage", "0::/a\n", None),
        ] {
            let found = locate(mounts, cgroups);
            assert_eq!(
                found.as_deref(),
                expected.map(Path::new),
                "{mounts} {cgroups}"
            );
        }
    }

    #[test]
    fn record_of_another_directory_does_not_count() {
        let state = tempfile::tempdir().unwrap();
        assert_eq!(Record::read(state.path()), None);
        let record = Record {
            parent: getpid(),
            base: PathBuf::from("/sys/fs/cgroup/rye-0123456789abcdef"),
        };
        record.write(state.path()).unwrap();
        assert_eq!(Record::read(state.path()), None);
        kill_recorded(state.path());
        assert_eq!(end_recorded(state.path()), []);
    }
}
