//! Many short runs: what the daemon holds does not grow with what it has done, and the history of none of them is lost.

use std::fs;

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
/// How long the files of so many runs may take, in seconds, beside a minute.
const FILES_PER_SECOND: usize = 20;

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

/// Starts so many runs, and waits until they have ended; their ids.
async fn load(world: &World, runs: usize) -> Vec<String> {
    let client = RunsClient::new(channel(world));
    let mut ids = Vec::with_capacity(runs);
    while ids.len() < runs {
        let starts = (0..AT_ONCE.min(runs - ids.len())).map(|_| {
            let mut client = client.clone();
            async move { client.start(start_request(world, "t/short")).await }
        });
        let starts: futures_util::stream::FuturesUnordered<_> = starts.collect();
        let started: Vec<_> = starts.collect().await;
        let batch = started.into_iter();
        let batch: Vec<String> = batch
            .map(|answer| answer.unwrap().into_inner().run_id)
            .collect();
        let wait = v1::WaitRequest {
            run_ids: batch.clone(),
            ..v1::WaitRequest::default()
        };
        let _ended = client.clone().wait(wait).await.unwrap();
        ids.extend(batch);
    }
    ids
}

/// Waits until the end of each of `runs` stands in its transcript.
fn await_files(world: &World, runs: &[String]) {
    let seconds = u64::try_from(60 + runs.len() / FILES_PER_SECOND).unwrap();
    let has_end = |run: &String| {
        let path = format!(".ai/state/threads/{run}/transcript.jsonl");
        let text = fs::read_to_string(world.project().join(path));
        text.is_ok_and(|text| text.contains("graph_completed"))
    };
    let mut next = 0;
    let all = within(std::time::Duration::from_secs(seconds), || {
        next += runs[next..].iter().take_while(|run| has_end(run)).count();
        (next == runs.len()).then_some(())
    });
    assert!(
        all.is_some(),
        "{} of {} have files: {}",
        next,
        runs.len(),
        world.log()
    );
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
        let mut ended = Vec::new();
        for _ in 0..PARTS {
            ended.extend(load(&world, runs / 2 / PARTS).await);
            println!("while they come: {:?}", Held::by(&daemon));
        }
        await_files(&world, &ended);
        let held = Held::by(&daemon);
        println!("behind {} of them: {held:?}", ended.len());
        looks.push(held);
    }
    // The first half fills what is kept for speed; the second must not add to it as it did.
    let (middle, last) = (looks[0], looks[1]);
    let second_half = u64::try_from(runs / 2).unwrap();
    let grown = last.memory.saturating_sub(middle.memory);
    assert!(grown < SLACK + second_half * KEPT / 1024, "{looks:?}");
    assert!(last.files <= middle.files.max(600) + 32, "{looks:?}");
    assert!(last.threads <= middle.threads + 16, "{looks:?}");
}
