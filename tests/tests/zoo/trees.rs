//! Random trees of processes, ended in a random way. The daemon keeps nothing of them.

use std::fs;
use std::path::{Path, PathBuf};

use rye_tests::until::{PATIENCE, within};
use rye_tests::{World, processes};

use super::{ENDS, Host, end_survivors, start};
use crate::crash::Random;

/// Number of trees. `RYE_ZOO_TREES` overrides it.
const TREES: u64 = 20;
/// Trees before the first count: caches and threads of the daemon have their size after them.
const WARM_UP: u64 = 4;

/// What a daemon holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Held {
    descriptors: usize,
    /// Without those of the index, whose number grows to a bound of its own.
    threads: usize,
    /// Dead children of the daemon and of its parent.
    zombies: usize,
    cgroups: usize,
}

impl Held {
    /// Counts what the daemon `pid` and its parent hold. `cgroups` is the directory of the attempts.
    pub(super) fn count(pid: i32, parent: i32, cgroups: Option<&Path>) -> Self {
        let entries = |directory: &Path| {
            let entries = fs::read_dir(directory).into_iter().flatten().flatten();
            entries.map(|entry| entry.path()).collect::<Vec<PathBuf>>()
        };
        let of = |pid: i32, name: &str| entries(Path::new(&format!("/proc/{pid}/{name}"))).len();
        let tasks = |pid: i32| entries(Path::new(&format!("/proc/{pid}/task")));
        let threads = [tasks(pid), tasks(parent)].concat().into_iter();
        let is_of_index = |path: &Path| {
            let name = fs::read_to_string(path.join("comm")).unwrap_or_default();
            name.starts_with("sled-io")
        };
        let cgroups = cgroups.map_or_else(Vec::new, entries);
        Self {
            descriptors: of(pid, "fd") + of(parent, "fd"),
            threads: threads.filter(|path| !is_of_index(path)).count(),
            zombies: processes::zombies_of(&[pid, parent]),
            cgroups: cgroups.iter().filter(|path| path.is_dir()).count(),
        }
    }

    /// True if there is not more than `before` of anything.
    pub(super) fn is_within(self, before: Self) -> bool {
        self.descriptors <= before.descriptors
            && self.threads <= before.threads
            && self.zombies <= before.zombies
            && self.cgroups <= before.cgroups
    }
}

fn daemon_keeps_nothing_of_random_trees(has_cgroups: bool) {
    let world = World::new();
    let Some(daemon) = start(&world, has_cgroups) else {
        return;
    };
    let host = Host::new(&world, has_cgroups);
    let record = fs::read_to_string(world.state().join("cgroup")).unwrap_or_default();
    let cgroups = record
        .split_once(' ')
        .map(|(_, path)| Path::new(path).join("runs"));
    let count = || Held::count(daemon.pid(), daemon.parent_pid(), cgroups.as_deref());
    let trees = std::env::var_os("RYE_ZOO_TREES").and_then(|trees| trees.to_str()?.parse().ok());
    let trees = trees.unwrap_or(TREES);
    let seed = u64::from(std::process::id()) << 32 | 1;
    let mut random = Random(seed);
    let mut before = None;
    for tree in 0..trees {
        if tree == WARM_UP {
            before = Some(count());
        }
        let end = ENDS[usize::try_from(random.below(4)).unwrap()];
        let formed = host.form("tree", end, &random.below(u64::MAX).to_string());
        host.recycler
            .watch(&processes::with_argument(&formed.marker));
        let _receipt = host.end(&formed, end);
        let left = processes::with_argument(&formed.marker);
        let is_found = has_cgroups;
        assert!(
            left.is_empty() || !is_found,
            "{tree} of {seed}, {end:?}: {left:?}"
        );
        end_survivors(&formed.marker, &host.recycler);
        for kind in ["", "ready", "end"] {
            fs::remove_file(formed.marker.with_added_extension(kind)).unwrap();
        }
    }
    let before = before.expect("there are more trees than those before the count");
    let mut after = count();
    let settled = within(PATIENCE, || {
        after = count();
        after.is_within(before).then_some(())
    });
    assert!(settled.is_some(), "{after:?} after {before:?}; seed {seed}");
}

#[test]
fn daemon_holds_as_much_after_random_trees_as_before() {
    daemon_keeps_nothing_of_random_trees(true);
}

#[test]
fn without_cgroups_daemon_holds_as_much_after_random_trees_as_before() {
    daemon_keeps_nothing_of_random_trees(false);
}
