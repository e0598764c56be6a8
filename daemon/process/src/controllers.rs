//! Limits of cgroups: the controllers of the kernel that enforce them, and the files in which they are written.
//!
//! **Owns** the choice of controllers ([`enable`]), and the files `cgroup.subtree_control`, `memory.max`, `pids.max` and
//! `cpu.max`. **Order.** A cgroup has the controllers that the one above it enables for its children, and enables them
//! only if no process is in it itself. Limits are written before the first process starts in a cgroup. **Failure.** A
//! controller that cannot be enabled is left out; [`enforced_below`] returns those that are there.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Write as _};
use std::path::{Path, PathBuf};

use nix::unistd::Pid;
use rye_core::model::{Resource, Resources};

use super::ending::CgroupLimit;

/// Period of the processor limit in microseconds, which is the kernel's default.
const PERIOD: u64 = 100_000;
/// Thousandths of a processor.
const MILLI: u64 = 1000;

/// Reason why limits are not enforced.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unenforced {
    #[error(
        "`{path}` has no controllers {missing}: start the daemon as a service with `Delegate=yes`, or with \
         `systemd-run --user --scope -p Delegate=yes ryed`; a host whose controllers are those of cgroup version 1 needs the boot parameter \
         `systemd.unified_cgroup_hierarchy=1`"
    )]
    NoControllers { path: PathBuf, missing: String },
    #[error(
        "`{path}` has processes besides the daemon, so the controllers {missing} stay off: start the daemon as a service with `Delegate=yes`, or with \
         `systemd-run --user --scope -p Delegate=yes ryed`"
    )]
    Shared { path: PathBuf, missing: String },
    #[error("the controllers {missing} cannot be used in `{path}`")]
    Refused { path: PathBuf, missing: String },
}

/// Returns the controllers that the children of `cgroup` have.
pub(super) fn enforced_below(cgroup: &Path) -> Vec<Resource> {
    listed(&cgroup.join("cgroup.subtree_control"))
}

/// Enables all controllers of `cgroup` for its children.
pub(super) fn enable(cgroup: &Path) {
    let (there, enabled) = (
        listed(&cgroup.join("cgroup.controllers")),
        enforced_below(cgroup),
    );
    for resource in there.into_iter().filter(|one| !enabled.contains(one)) {
        let word = format!("+{}", resource.as_str());
        if let Err(error) = write(&cgroup.join("cgroup.subtree_control"), &word) {
            tracing::debug!(cgroup = %cgroup.display(), %error, "a controller stays off");
        }
    }
}

/// Enables all controllers of `own`, the cgroup of the daemon and its parent process, for its children. If no others are in it, both move to
/// its child `daemon`, which is made.
pub(super) fn enable_in_own(own: &Path, daemon: &Path, members: &[Pid]) -> io::Result<()> {
    // The root cgroup enables them although processes are in it.
    enable(own);
    let there = listed(&own.join("cgroup.controllers"));
    let enabled = enforced_below(own);
    if there.iter().all(|one| enabled.contains(one)) || !has_only(own, members) {
        return Ok(());
    }
    fs::create_dir_all(daemon)?;
    for member in members {
        write(&daemon.join("cgroup.procs"), &member.to_string())?;
    }
    enable(own);
    Ok(())
}

/// Returns the reason why the children of `runs` do not have all controllers; `own` is the cgroup of the daemon.
pub(super) fn unenforced(own: &Path, runs: &Path, members: &[Pid]) -> Option<Unenforced> {
    let enforced = enforced_below(runs);
    let missing = |among: &[Resource]| {
        let mut missing = Resource::ALL.to_vec();
        missing.retain(|one| !among.contains(one));
        (!missing.is_empty()).then(|| Resource::list(&missing))
    };
    let absent = missing(&listed(&own.join("cgroup.controllers")));
    let path = own.to_owned();
    let all = missing(&enforced)?;
    Some(match absent {
        Some(missing) => Unenforced::NoControllers { path, missing },
        None if has_others(own, members) => Unenforced::Shared { path, missing: all },
        None => Unenforced::Refused { path, missing: all },
    })
}

/// True if `cgroup` has processes, and they are `members`.
fn has_only(cgroup: &Path, members: &[Pid]) -> bool {
    let procs = procs(cgroup);
    !procs.is_empty() && procs.iter().all(|pid| members.contains(pid))
}

fn has_others(cgroup: &Path, members: &[Pid]) -> bool {
    procs(cgroup).iter().any(|pid| !members.contains(pid))
}

fn procs(cgroup: &Path) -> Vec<Pid> {
    let list = fs::read_to_string(cgroup.join("cgroup.procs")).unwrap_or_default();
    let pids = list.lines().filter_map(|pid| pid.parse().ok());
    pids.map(Pid::from_raw).collect()
}

/// Writes `limits` for the processes of `cgroup`.
pub(super) fn limit(cgroup: &Path, limits: &Resources) -> io::Result<()> {
    if let Some(bytes) = limits.memory {
        write(&cgroup.join("memory.max"), &bytes.to_string())?;
        // A kernel without swap has no such file.
        match write(&cgroup.join("memory.swap.max"), "0") {
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            written => written?,
        }
    }
    if let Some(count) = limits.pids {
        write(&cgroup.join("pids.max"), &count.to_string())?;
    }
    if let Some(milli) = limits.cpu_milli {
        let quota = milli * PERIOD / MILLI;
        write(&cgroup.join("cpu.max"), &format!("{quota} {PERIOD}"))?;
    }
    Ok(())
}

/// Returns the limit that the processes of `cgroup` reached.
pub(super) fn limit_reached(cgroup: &Path) -> Option<CgroupLimit> {
    let reached = |file, count| number_in(&cgroup.join(file), count).is_some_and(|n| n > 0);
    if reached("memory.events", "oom_kill ") {
        Some(CgroupLimit::Memory)
    } else {
        reached("pids.events", "max ").then_some(CgroupLimit::Pids)
    }
}

/// Number after `name` in a file of a cgroup.
pub(super) fn number_in(file: &Path, name: &str) -> Option<u64> {
    let text = fs::read_to_string(file).ok()?;
    let number = text.lines().find_map(|line| line.strip_prefix(name))?;
    number.trim().parse().ok()
}

/// Controllers of limits in a list of controllers.
fn listed(file: &Path) -> Vec<Resource> {
    let list = fs::read_to_string(file).unwrap_or_default();
    let names: Vec<&str> = list.split_whitespace().collect();
    let mut all = Resource::ALL.to_vec();
    all.retain(|one| names.contains(&one.as_str()));
    all
}

/// Writes a file of a cgroup. It is not made: a kernel that lacks it cannot do what it is for.
pub(super) fn write(file: &Path, text: &str) -> io::Result<()> {
    File::options()
        .write(true)
        .open(file)?
        .write_all(text.as_bytes())
}

#[cfg(test)]
mod tests {
    //! Directories stand for cgroups: the hosts of the tests may have no controllers of version 2. So these tests show
    //! what is written and read, not that the kernel enforces it.

    use serde_json::json;

    use super::*;

    /// A directory with these files.
    fn cgroup(files: &[(&str, &str)]) -> tempfile::TempDir {
        let directory = tempfile::tempdir().unwrap();
        for (name, text) in files {
            fs::write(directory.path().join(name), text).unwrap();
        }
        directory
    }

    fn content(cgroup: &tempfile::TempDir, name: &str) -> String {
        fs::read_to_string(cgroup.path().join(name)).unwrap()
    }

    fn limits() -> Resources {
        Resources::from_json(&json!({"memory": "1MiB", "pids": 7, "cpu": 1.5})).unwrap()
    }

    #[test]
    fn limits_are_written_to_their_files() {
        let names = ["memory.max", "memory.swap.max", "pids.max", "cpu.max"];
        let leaf = cgroup(&names.map(|name| (name, "")));
        limit(leaf.path(), &limits()).unwrap();
        let written = names.map(|name| content(&leaf, name));
        assert_eq!(written, ["1048576", "0", "7", "150000 100000"]);
        let free = cgroup(&[]);
        limit(free.path(), &Resources::default()).unwrap();
        let no_swap = cgroup(&[("memory.max", "")]);
        limit(no_swap.path(), &limits().only(&[Resource::Memory])).unwrap();
        assert_eq!(content(&no_swap, "memory.max"), "1048576");
        // A file that is missing is not made.
        let error = limit(free.path(), &limits().only(&[Resource::Pids])).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound);
        assert!(!free.path().join("pids.max").exists());
    }

    #[test]
    fn reached_limit_is_read_from_the_counts() {
        for (files, expected) in [
            (vec![], None),
            (vec![("memory.events", "oom 3\noom_kill 0\n")], None),
            (
                vec![("memory.events", "oom 3\noom_kill 1\noom_group_kill 0\n")],
                Some(CgroupLimit::Memory),
            ),
            (vec![("pids.events", "max 0\n")], None),
            (vec![("pids.events", "max 2\n")], Some(CgroupLimit::Pids)),
            (
                vec![
                    ("pids.events", "max 2\n"),
                    ("memory.events", "oom_kill 1\n"),
                ],
                Some(CgroupLimit::Memory),
            ),
        ] {
            assert_eq!(limit_reached(cgroup(&files).path()), expected, "{files:?}");
        }
    }

    #[test]
    fn controllers_of_a_cgroup_are_enabled_unless_they_are() {
        let half = cgroup(&[
            ("cgroup.controllers", "cpuset cpu hugetlb\n"),
            ("cgroup.subtree_control", ""),
        ]);
        enable(half.path());
        assert_eq!(content(&half, "cgroup.subtree_control"), "+cpu");
        let done = cgroup(&[
            ("cgroup.controllers", "memory pids cpu\n"),
            ("cgroup.subtree_control", "memory cpu pids\n"),
        ]);
        enable(done.path());
        assert_eq!(enforced_below(done.path()), Resource::ALL);
        assert_eq!(enforced_below(cgroup(&[]).path()), []);
    }

    #[test]
    fn daemon_moves_only_out_of_a_cgroup_of_its_own() {
        let members = [Pid::from_raw(10), Pid::from_raw(11)];
        for (procs, has_moved) in [
            ("10\n11\n", true),
            ("10\n", true),
            ("10\n12\n", false),
            ("", false),
        ] {
            let own = cgroup(&[
                ("cgroup.controllers", "memory pids cpu\n"),
                ("cgroup.subtree_control", ""),
                ("cgroup.procs", procs),
            ]);
            let daemon = cgroup(&[("cgroup.procs", "")]);
            enable_in_own(own.path(), daemon.path(), &members).unwrap();
            let moved = content(&daemon, "cgroup.procs");
            assert_eq!(!moved.is_empty(), has_moved, "{procs:?}");
        }
        // Nothing is to enable: nobody moves.
        let bare = cgroup(&[
            ("cgroup.controllers", "hugetlb\n"),
            ("cgroup.procs", "10\n11\n"),
        ]);
        let daemon = bare.path().join("daemon");
        enable_in_own(bare.path(), &daemon, &members).unwrap();
        assert!(!daemon.exists());
    }

    #[test]
    fn reason_names_the_controllers_that_are_missing() {
        let members = [Pid::from_raw(10)];
        let runs = cgroup(&[("cgroup.subtree_control", "pids\n")]);
        let reason = |controllers: &str, procs: &str| {
            let own = cgroup(&[("cgroup.controllers", controllers), ("cgroup.procs", procs)]);
            unenforced(own.path(), runs.path(), &members).unwrap()
        };
        let Unenforced::NoControllers { missing, .. } = reason("cpu pids\n", "10\n") else {
            panic!("memory is not there");
        };
        assert_eq!(missing, "`memory`");
        let Unenforced::Shared { missing, .. } = reason("cpu pids memory\n", "10\n12\n") else {
            panic!("another process is there");
        };
        assert_eq!(missing, "`memory`, `cpu`");
        let refused = reason("cpu pids memory\n", "");
        assert!(matches!(refused, Unenforced::Refused { .. }));
        let all = cgroup(&[("cgroup.subtree_control", "cpu memory pids\n")]);
        assert_eq!(unenforced(all.path(), all.path(), &members), None);
    }
}
