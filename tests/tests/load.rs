//! Many short runs: what the daemon holds does not grow with what it has done.

use std::fs;
use std::thread;

use rye_tests::{Daemon, World};

const SHORT: &str = "start: a\nnodes:\n  a: {type: return, output: {}}";
/// Runs, unless `RYE_LOAD_RUNS` says otherwise; 200,000 take an hour.
const RUNS: usize = 400;
/// How often is looked.
const LOOKS: usize = 8;

/// Memory in KB, open files and threads of the daemon.
#[derive(Debug, Clone, Copy)]
struct Held {
    memory: u64,
    files: u64,
    threads: u64,
}

impl Held {
    fn by(daemon: &Daemon) -> Self {
        let process = format!("/proc/{}", daemon.pid());
        let status = fs::read_to_string(format!("{process}/status")).unwrap();
        let number = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            line.unwrap()
                .trim()
                .trim_end_matches(" kB")
                .parse()
                .unwrap()
        };
        let files = fs::read_dir(format!("{process}/fd")).unwrap().count();
        Self {
            memory: number("VmRSS:"),
            files: u64::try_from(files).unwrap(),
            threads: number("Threads:"),
        }
    }
}

#[test]
#[expect(clippy::disallowed_methods, reason = "who wants more of it says so")]
fn what_the_daemon_holds_does_not_grow_with_the_runs_that_have_ended() {
    let asked = std::env::var("RYE_LOAD_RUNS").ok();
    let runs = asked.map_or(RUNS, |runs| runs.parse().unwrap());
    let world = World::measured();
    let daemon = world.start("");
    world.graph("t/short", SHORT);
    let mut looks = Vec::new();
    for _ in 0..LOOKS {
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..runs / LOOKS / 4 {
                        let _run = world.ryectl("run t/short --quiet").ok();
                    }
                });
            }
        });
        let held = Held::by(&daemon);
        println!("{held:?}");
        looks.push(held);
    }
    // The first half fills what is kept for speed; the second must not add to it as it did.
    let (middle, last) = (looks[LOOKS / 2 - 1], looks[LOOKS - 1]);
    let second_half = u64::try_from(runs / 2).unwrap();
    let grown = last.memory.saturating_sub(middle.memory);
    assert!(grown < 24_000 + second_half / 4, "{looks:?}");
    assert!(last.files <= middle.files.max(600) + 32, "{looks:?}");
    assert!(last.threads <= middle.threads + 16, "{looks:?}");
}
