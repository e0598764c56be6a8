//! Many short runs: what the daemon holds does not grow with what it has done.

use std::fs;
use std::time::Duration;

use rye_proto::v1;
use rye_proto::v1::runs_client::RunsClient;
use rye_tests::until::within;
use rye_tests::{Daemon, World};
use tokio_stream::StreamExt as _;

use super::rpc::{channel, start_request};

const SHORT: &str = "start: a\nnodes:\n  a: {type: return, output: {}}";
/// Runs, unless `RYE_LOAD_RUNS` says otherwise.
const RUNS: usize = 400;
/// How often is looked while half of them come.
const PARTS: usize = 4;
/// Runs that are started before the first of them is waited for.
const AT_ONCE: usize = 25;
/// What the daemon may keep of a run that has ended, in bytes: its place in the index, as far as that is in memory.
const KEPT: u64 = 1024;
/// What else may come and go meanwhile, in KB.
const SLACK: u64 = 24_000;

/// For how long the files of half the runs may be written after these have ended.
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

/// Starts so many runs, and waits until they have ended and their files are written.
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
    // Those of a project are written in turn.
    let file = |run: &String| format!(".ai/state/threads/{run}/transcript.jsonl");
    within(CATCHING_UP, || {
        let mut files = last.iter().map(|run| world.project().join(file(run)));
        files.all(|file| file.exists()).then_some(())
    })
    .expect("the files of all runs are written");
}

#[tokio::test]
#[expect(clippy::disallowed_methods, reason = "who wants more of it says so")]
async fn what_the_daemon_holds_does_not_grow_with_the_runs_that_have_ended() {
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
    // The first half fills what is kept for speed; the second must not add to it as it did.
    let (middle, last) = (looks[0], looks[1]);
    let second_half = u64::try_from(runs / 2).unwrap();
    let grown = last.memory.saturating_sub(middle.memory);
    assert!(grown < SLACK + second_half * KEPT / 1024, "{looks:?}");
    assert!(last.files <= middle.files.max(600) + 32, "{looks:?}");
    assert!(last.threads <= middle.threads + 16, "{looks:?}");
}
