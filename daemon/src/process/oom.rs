//! Number of processes of this cgroup that the kernel ended for lack of memory.

use std::fs;
use std::path::{Path, PathBuf};

/// The count; `None` if the kernel does not report it.
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
