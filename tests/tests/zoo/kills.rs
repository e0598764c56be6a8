//! Kills of the daemon while runs have live trees of processes: a graph with a service, a thread with managed processes,
//! and one that survives.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};

use nix::sys::signal::Signal;
use rye_tests::model_server::ModelServer;
use rye_tests::until::{PATIENCE, within};
use rye_tests::{Daemon, World, processes, until};
use serde_json::{Value, json};

use super::trees::Held;
use super::{PROGRAM, start};
use crate::crash::Random;

/// Number of kills. `RYE_TREE_KILLS` overrides it.
const KILLS: usize = 6;
/// Kills before the first count.
const WARM_UP: usize = 3;

/// One process: its pid and the time of its start, which no later process with the pid has.
type Identity = (i32, String);

fn identity(pid: i32) -> Option<Identity> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, fields) = stat.rsplit_once(") ")?;
    let mut fields = fields.split(' ');
    let is_dead = matches!(fields.next()?, "Z" | "X");
    let started = fields.nth(18)?.to_owned();
    (!is_dead).then_some((pid, started))
}

/// Processes that have an argument with this beginning.
fn with_prefix(prefix: &Path) -> Vec<i32> {
    let prefix = prefix.as_os_str().as_encoded_bytes();
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let is_of_tree = |pid: &i32| {
        let command = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let mut arguments = command.split(|byte| *byte == 0);
        arguments.any(|argument| argument.starts_with(prefix))
    };
    pids.filter(is_of_tree).collect()
}

/// A command that makes a tree and writes its marker to `name.now`, and then waits for the file `name.go.N`, where N is
/// the number of lines of the file `name.done`.
fn tree(name: &str, trees: &Path, seed: u64) -> String {
    let trees = trees.display();
    format!(
        "n=$(grep -c . {name}.done); m=$(mktemp -u {trees}/{name}.XXXXXXXX); {PROGRAM} tree $m ends {seed}; \
         echo $m > {name}.now.tmp; mv {name}.now.tmp {name}.now; until [ -e {name}.go.$n ]; do sleep 0.02; done"
    )
}

/// The world of the test: its runs, and what may outlive a daemon.
struct Rig {
    server: ModelServer,
    world: World,
    trees: PathBuf,
}

impl Rig {
    fn new(random: &mut Random) -> Self {
        let trees = tempfile::tempdir().unwrap().keep();
        let mut seed = || random.below(u64::MAX);
        let tool = "rye/agent/threads/managed_subprocess";
        let call = |item: &str, parameters: &Value| {
            let input = json!({"item_id": item, "parameters": parameters});
            format!("  reply: {{calls: [{{name: rye_execute, input: {input}}}]}}\n")
        };
        let managed = tree("managed", &trees, seed()) + "; exit 1";
        let managed = json!({"action": "start", "name": "managed", "restart": "on-failure", "command": managed});
        let survivor = json!({"action": "start", "name": "survivor", "survive": true, "command": "exec sleep 600"});
        let bash = json!({"command": tree("thread", &trees, seed()), "timeout": 3000});
        let script = format!(
            "- when: {{turn: 1}}\n{}- when: {{turn: 2}}\n{}- when: {{turn: 3}}\n{}- reply: {{text: Done.}}\n",
            call(tool, &managed),
            call(tool, &survivor),
            call("rye/bash", &bash)
        );
        let server = ModelServer::start(&script);
        let world = World::with_models(&server);
        for name in ["managed", "thread"] {
            world.write(&format!("{name}.done"), "begun\n");
        }
        world.directive(
            "t/threads",
            "<model tier=\"general\"/><permissions><execute effect=\"idempotent\"><tool>rye/bash</tool></execute>\
             <execute><tool>rye/agent/threads/*</tool></execute></permissions>",
            "",
            "Work.",
        );
        let permissions = "permissions: [rye.execute.*]\n";
        let config = format!(
            "max_steps: 1000\nstart: web\nnodes:\n  web: {{type: service, command: exec sleep 600, next: mark}}\n  \
             mark: {{action: {{item_id: rye/bash, params: {{command: 'echo done >> graph.done'}}}}, effect: at_most_once, next: tree}}\n  \
             tree:\n    action: {{item_id: rye/bash, params: {{command: {}, timeout: 3000}}}}\n    effect: idempotent\n    next: mark\n",
            json!(tree("graph", &trees, seed()))
        );
        world.graph_with("t/graph", permissions, &config);
        Self {
            server,
            world,
            trees,
        }
    }

    /// Waits until each tree has its form.
    fn formed(&self) {
        for name in ["graph", "thread", "managed"] {
            until(&format!("the tree of the {name}"), || {
                let now = self.world.project().join(format!("{name}.now"));
                now.exists().then_some(())
            });
        }
    }

    fn forget_trees(&self) {
        for name in ["graph", "thread", "managed"] {
            fs::remove_file(self.world.project().join(format!("{name}.now"))).unwrap();
        }
    }

    /// Every process of the world and of its trees, without those in `spared`.
    fn processes(&self, spared: &[i32]) -> HashSet<Identity> {
        let below = processes::below(self.world.root()).into_iter();
        let pids = below
            .map(|process| process.pid)
            .chain(with_prefix(&self.trees));
        pids.filter(|pid| !spared.contains(pid))
            .filter_map(identity)
            .collect()
    }

    fn done(&self, name: &str) -> usize {
        let done = fs::read_to_string(self.world.project().join(format!("{name}.done")));
        done.unwrap_or_default().lines().count()
    }
}

fn child(world: &World, run: &str, name: &str) -> String {
    until(name, || {
        let tree = world.ryectl("tree --json").arg(run).ok().json();
        let children = tree[0]["children"].as_array().unwrap().iter();
        let mut ids = children.filter_map(|child| child["run_id"].as_str());
        ids.find(|id| id.starts_with(name)).map(ToOwned::to_owned)
    })
}

/// Ends the daemon in one of three ways. Returns true if nothing but the next start ends its processes.
fn end(daemon: Daemon, way: usize) -> bool {
    match way {
        0 => daemon.kill(),
        1 => processes::send(daemon.parent_pid(), Signal::SIGKILL),
        _ => daemon.kill_both(),
    }
    let pid = daemon.pid();
    let _status = daemon.ended();
    until("the daemon to end", || {
        (!processes::lives(pid)).then_some(())
    });
    way > 1
}

#[test]
fn no_live_tree_outlives_kills_and_no_finished_step_is_repeated() {
    let kills = std::env::var_os("RYE_TREE_KILLS");
    let kills = kills.and_then(|kills| kills.to_str()?.parse().ok());
    let kills = kills.unwrap_or(KILLS);
    let seed = u64::from(std::process::id()) << 32 | 1;
    let mut random = Random(seed);
    let rig = Rig::new(&mut random);
    let world = &rig.world;
    let Some(mut daemon) = start(world, true) else {
        return;
    };
    let graph = world.start_run("t/graph");
    let thread = world.ryectl("run --detach directive:t/threads").ok().line();
    rig.formed();
    let survivor = child(world, &thread, "survivor");
    let shim = world
        .state()
        .join("procs")
        .join(&survivor)
        .join("shim.json");
    let shim: Value = serde_json::from_slice(&fs::read(shim).unwrap()).unwrap();
    let spared = ["/pid", "/child/pid"].map(|pid| {
        let pid = shim.pointer(pid).and_then(Value::as_i64);
        i32::try_from(pid.expect("a shim has its pid and that of its process")).unwrap()
    });
    let kept = spared.map(|pid| identity(pid).unwrap());
    let cgroups = fs::read_to_string(world.state().join("cgroup")).unwrap();
    let cgroups = Path::new(cgroups.split_once(' ').unwrap().1).join("runs");
    let count = |daemon: &Daemon| Held::count(daemon.pid(), daemon.parent_pid(), Some(&cgroups));
    let mut before = None;
    for kill in 0..kills {
        if kill == WARM_UP {
            before = Some(count(&daemon));
        }
        // Each time the graph has finished one more step; the tree of the step before is gone.
        assert_eq!(rig.done("graph"), kill + 1, "kill {kill} of {seed}");
        let old = rig.processes(&spared);
        assert!(old.len() > 5, "{old:?}");
        rig.forget_trees();
        let needs_start = end(daemon, kill % 3);
        let left = || {
            let now = rig.processes(&spared);
            old.intersection(&now).cloned().collect::<Vec<_>>()
        };
        if !needs_start {
            assert_eq!(
                rig.processes(&spared),
                HashSet::new(),
                "kill {kill} of {seed}"
            );
        }
        daemon = start(world, true).unwrap();
        assert_eq!(left(), [], "kill {kill} of {seed}");
        assert_eq!(spared.map(|pid| identity(pid).unwrap()), kept);
        rig.formed();
        assert_eq!(rig.server.requests().len(), 3, "kill {kill} of {seed}");
        if kill + 1 < kills {
            fs::remove_file(world.project().join("graph.now")).unwrap();
            world.write(&format!("graph.go.{}", kill + 1), "");
            rig.formed();
        }
    }
    let before = before.expect("there are more kills than those before the count");
    let mut after = count(&daemon);
    let settled = within(PATIENCE, || {
        after = count(&daemon);
        after.is_within(before).then_some(())
    });
    assert!(settled.is_some(), "{after:?} after {before:?}; seed {seed}");
    assert_eq!(rig.done("graph"), kills);
    let record = world.record(&thread);
    assert_eq!(record["spawn_count"], 2, "{record}");
    world.write("thread.go.1", "");
    assert_eq!(world.settled(&thread)["status"], "completed");
    let _killed = world.ryectl("kill").arg(&graph).ok();
    assert_eq!(world.settled(&survivor)["status"], "cancelled");
    until("all to end", || {
        let ours = [daemon.pid(), daemon.parent_pid()];
        rig.processes(&ours).is_empty().then_some(())
    });
    fs::remove_dir_all(&rig.trees).unwrap();
}
