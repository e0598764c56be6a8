//! Many short runs: the resources of the daemon do not grow with the number of ended runs.

use std::fs;
use std::time::Duration;

use rye_proto::v1;
use rye_proto::v1::runs_client::RunsClient;
use rye_tests::until::within;
use rye_tests::{Daemon, World};
use tokio_stream::StreamExt as _;

use super::rpc::{channel, start_request};

const SHORT: &str = "start: a\nnodes:\n  a: {type: return, output: {}}";
/// Number of runs. `RYE_LOAD_RUNS` overrides it.
const RUNS: usize = 400;
/// Number of measurements during the second half.
const PARTS: usize = 4;
/// Runs that are started before the first of them is waited for.
const AT_ONCE: usize = 25;
/// Most bytes of memory for each ended run: its entry in the index.
const KEPT: u64 = 1024;
/// Tolerance for other memory in KB.
const SLACK: u64 = 24_000;

/// Longest wait for the files of half of the runs after their ends.
const CATCHING_UP: Duration = Duration::from_mins(10);

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

/// Starts `runs` runs. Waits until they have ended and their files are written.
async fn load(world: &World, runs: usize) {
    let client = RunsClient::new(channel(world));
    let (mut begun, mut last) = (0, Vec::new());
    while begun < runs {
        let starts = (0..AT_ONCE.min(runs - begun)).map(|_| {
            let mut client = client.clone();
            async move { client.start(start_request(world, "t/short")).await }
        });
        let starts: futures_util::stream::FuturesUnordered<_> = starts.collect();
        let started: Vec<_> = starts.collect().await;
        let batch = started.into_iter();
        let batch: Vec<String> = batch
            .map(|answer| answer.unwrap().into_inner().run_id)
            .collect();
        begun += batch.len();
        let wait = v1::WaitRequest {
            run_ids: batch.clone(),
            ..v1::WaitRequest::default()
        };
        let _ended = client.clone().wait(wait).await.unwrap();
        last = batch;
    }
    // The daemon writes the files of a project in order.
    let file = |run: &String| format!(".ai/state/threads/{run}/transcript.jsonl");
    within(CATCHING_UP, || {
        let mut files = last.iter().map(|run| world.project().join(file(run)));
        files.all(|file| file.exists()).then_some(())
    })
    .expect("the files of all runs are written");
}

#[tokio::test]
#[expect(clippy::disallowed_methods, reason = "who wants more of it says so")]
async fn daemon_resources_do_not_grow_with_ended_runs() {
    let asked = std::env::var("RYE_LOAD_RUNS").ok();
    let runs = asked.map_or(RUNS, |runs| runs.parse().unwrap());
    // Many runs fill many segments.
    let world = if runs > RUNS {
        World::measured()
    } else {
        World::new()
    };
    let daemon = world.start("");
    world.graph("t/short", SHORT);
    let mut looks = Vec::new();
    for _ in 0..2 {
        for _ in 0..PARTS {
            load(&world, runs / 2 / PARTS).await;
            println!("{:?}", Held::by(&daemon));
        }
        looks.push(Held::by(&daemon));
    }
    // The first half fills the caches; the second half must not add to them.
    let (middle, last) = (looks[0], looks[1]);
    let second_half = u64::try_from(runs / 2).unwrap();
    let grown = last.memory.saturating_sub(middle.memory);
    assert!(grown < SLACK + second_half * KEPT / 1024, "{looks:?}");
    assert!(last.files <= middle.files.max(600) + 32, "{looks:?}");
    assert!(last.threads <= middle.threads + 16, "{looks:?}");
}
