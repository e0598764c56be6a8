//! Numbers of processes that the kernel ended for lack of memory, of this cgroup and of the host.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Maximum age of the count of the host at the start of a process. The file costs 0.1 ms.
const LOOK_EVERY: Duration = Duration::from_secs(10);

/// The count of the host, as last seen.
#[derive(Debug, Default)]
pub(super) struct Shortages {
    seen: Mutex<Option<(Instant, Option<u64>)>>,
}

impl Shortages {
    /// Looks at the count if the last look is old. Must be called before a process starts.
    pub(super) fn look_if_due(&self) {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        if seen.is_none_or(|(at, _)| at.elapsed() >= LOOK_EVERY) {
            *seen = Some((Instant::now(), kills_of_host()));
        }
    }

    /// True if the count is higher than when it was last seen.
    pub(super) fn have_increased(&self) -> bool {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let now = kills_of_host();
        let before = seen.replace((Instant::now(), now));
        before.is_some_and(|(_, before)| before.is_some() && before < now)
    }
}

fn kills_of_host() -> Option<u64> {
    count(&fs::read_to_string("/proc/vmstat").ok()?)
}

/// The count of this cgroup; `None` if the kernel does not report it.
pub(super) fn kills() -> Option<u64> {
    let cgroups = fs::read_to_string("/proc/self/cgroup").ok()?;
    let read = |file: PathBuf| count(&fs::read_to_string(file).ok()?);
    files(&cgroups).into_iter().find_map(read)
}

/// Files that may have the count, the most likely first; `cgroups` is the content of `/proc/self/cgroup`. In a
/// container its paths may be those of the host, and the container's own cgroup is then at the root.
fn files(cgroups: &str) -> Vec<PathBuf> {
    let of_line = |line: &str| {
        let mut parts = line.splitn(3, ':').skip(1);
        let (controllers, path) = (parts.next()?, parts.next()?.trim_start_matches('/'));
        let (root, file) = if controllers.is_empty() {
            ("/sys/fs/cgroup", "memory.events")
        } else if controllers.split(',').any(|name| name == "memory") {
            ("/sys/fs/cgroup/memory", "memory.oom_control")
        } else {
            return None;
        };
        let root = Path::new(root);
        Some([root.join(path).join(file), root.join(file)])
    };
    cgroups.lines().filter_map(of_line).flatten().collect()
}

fn count(text: &str) -> Option<u64> {
    let mut lines = text.lines();
    let count = lines.find_map(|line| line.strip_prefix("oom_kill "))?;
    count.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn oom_count_is_found_for_both_cgroup_versions() {
        let paths = |cgroups| {
            let files = files(cgroups);
            let files = files.iter().map(|file| file.to_string_lossy().into_owned());
            files.collect::<Vec<_>>()
        };
        assert_eq!(
            paths("0::/user.slice/ryed.service\n"),
            [
                "/sys/fs/cgroup/user.slice/ryed.service/memory.events",
                "/sys/fs/cgroup/memory.events"
            ]
        );
        assert_eq!(
            paths("12:cpu,cpuacct:/x\n11:memory:/docker/1\n"),
            [
                "/sys/fs/cgroup/memory/docker/1/memory.oom_control",
                "/sys/fs/cgroup/memory/memory.oom_control"
            ]
        );
        assert_eq!(paths("garbage\n\n"), [""; 0]);
        assert_eq!(
            count("low 0\nhigh 0\nmax 7\noom 2\noom_kill 1\noom_group_kill 0\n"),
            Some(1)
        );
        assert_eq!(
            count("oom_kill_disable 0\nunder_oom 0\noom_kill 3\n"),
            Some(3)
        );
        assert_eq!(count("low 0\n"), None);
    }
}
