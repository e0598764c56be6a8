//! Cost of a step, compared with the same work without Rye in the same process.
//!
//! `cargo bench -p rye-tests --bench steps` prints medians with the smallest and the largest value, and compares them
//! with the goals of the project. The numbers are valid only on an otherwise idle machine.
#![expect(clippy::print_stdout, reason = "a benchmark prints its result")]

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use rye_client::Client;
use rye_client::events::Follow;
use rye_proto::v1;
use rye_tests::command::program;
use rye_tests::measure::{
    Goal, Series, append_and_sync, compare, milliseconds, resident, start_until_ready,
};
use rye_tests::{World, until};

/// Measurements of each kind.
const ROUNDS: usize = 7;
/// Steps of the single run.
const STEPS: u32 = 2000;
/// Concurrent runs, and steps of each.
const CROWD: (u32, u32) = (64, 200);
/// Steps of the run of shell commands.
const SHELL_STEPS: u32 = 100;
/// Appends of one measurement.
const APPENDS: u32 = 1000;

/// Two nodes that call each other until the step limit ends the run.
fn endless(item: &str) -> String {
    format!(
        "start: a\nmax_steps: 1000000\nnodes:\n  a: {{action: {{{item}}}, assign: {{n: \"${{result}}\"}}, next: b}}\n  b: {{action: {{{item}}}, next: a}}"
    )
}

fn main() {
    let world = World::measured();
    world.graph(
        "bench/echo",
        &endless("item_id: rye/core/echo, params: {n: 1}"),
    );
    world.graph(
        "bench/bash",
        &endless("item_id: rye/bash, params: {command: \"true\"}"),
    );
    let runtime = tokio::runtime::Runtime::new().expect("a runtime can be had");
    runtime.block_on(measure(&world));
}

async fn measure(world: &World) {
    let mut boot = Series::new("boot to ready, fresh state directory", "ms");
    let mut daemon = None;
    for _ in 0..ROUNDS {
        drop(daemon.take());
        let _stopped = world.ryectl("daemon stop").ok();
        until("the daemon to be gone", || {
            world.processes().is_empty().then_some(())
        });
        drop(fs::remove_dir_all(world.state()));
        let began = Instant::now();
        daemon = Some(start_until_ready(world).await);
        boot.add(milliseconds(began.elapsed()));
    }
    let client = Client::connect(world.socket())
        .await
        .expect("the daemon serves");
    let idle = resident(world);

    // The first run loads the items, so it is not measured.
    run(&client, world, "bench/echo", 50).await;
    let before = log_bytes(world);
    run(&client, world, "bench/echo", STEPS).await;
    let bytes =
        usize::try_from((log_bytes(world) - before) / u64::from(STEPS)).expect("a step is small");

    let mut append = Series::new("append + fdatasync of the bytes of a step", "per s");
    let mut one = Series::new("durable steps of one run", "per s");
    let mut crowd = Series::new("durable steps of 64 runs", "per s");
    let mut spawn = Series::new("spawn and wait of `bash -c true` + one sync", "ms");
    let mut shell = Series::new("bash step", "ms");
    let mut first = Series::new("start to first step", "ms");
    let mut walking = Series::new("one run / append + fdatasync", "");
    let mut calling = Series::new("bash step / (spawn + sync)", "");
    for _ in 0..ROUNDS {
        let appends =
            f64::from(APPENDS) / append_and_sync(world.root(), bytes, APPENDS).as_secs_f64();
        let steps = f64::from(STEPS) / run(&client, world, "bench/echo", STEPS).await.as_secs_f64();
        append.add(appends);
        one.add(steps);
        walking.add(steps / appends);
        crowd.add(
            f64::from(CROWD.0 * CROWD.1) / Box::pin(run_crowd(&client, world)).await.as_secs_f64(),
        );
        let bare = milliseconds(spawn_and_sync(world.root(), bytes)) / f64::from(SHELL_STEPS);
        let ours = milliseconds(run(&client, world, "bench/bash", SHELL_STEPS).await)
            / f64::from(SHELL_STEPS);
        spawn.add(bare);
        shell.add(ours);
        calling.add(ours / bare);
        first.add(milliseconds(first_step(&client, world).await));
    }

    println!("\nbytes of a step in the log: {bytes}\n");
    for series in [
        &boot, &append, &one, &walking, &crowd, &spawn, &shell, &calling, &first,
    ] {
        series.print();
    }
    println!(
        "{:<46} {:>9.1} MB (after everything {:.1} MB)",
        "idle memory, both processes",
        idle,
        resident(world)
    );
    println!();
    compare(walking.name(), walking.median(), &Goal::AtLeast(0.5));
    compare(
        "64 runs, steps per s",
        crowd.median(),
        &Goal::AtLeast(6000.0),
    );
    compare(calling.name(), calling.median(), &Goal::AtMost(1.5));
    compare("idle memory, MB", idle, &Goal::AtMost(30.0));
    compare("boot to ready, ms", boot.median(), &Goal::AtMost(100.0));
    drop(daemon);
}

fn request(world: &World, item: &str, steps: u32) -> v1::StartRequest {
    v1::StartRequest {
        item: Some(v1::ItemRef {
            r#type: v1::ItemType::Tool.into(),
            id: item.to_owned(),
        }),
        project: world.project().display().to_string(),
        limits: Some(v1::Limits {
            steps: Some(steps),
            ..v1::Limits::default()
        }),
        ..v1::StartRequest::default()
    }
}

/// Runs `item` for `steps` steps. Returns the time from its acceptance to its end.
async fn run(client: &Client, world: &World, item: &str, steps: u32) -> Duration {
    let began = Instant::now();
    let started = client
        .start(request(world, item, steps))
        .await
        .expect("the run starts");
    finish(client, vec![started.run_id], steps).await;
    began.elapsed()
}

async fn run_crowd(client: &Client, world: &World) -> Duration {
    let began = Instant::now();
    let starts = (0..CROWD.0).map(|_| client.start(request(world, "bench/echo", CROWD.1)));
    let mut runs = Vec::new();
    for start in starts {
        runs.push(start.await.expect("the run starts").run_id);
    }
    finish(client, runs, CROWD.1).await;
    began.elapsed()
}

async fn finish(client: &Client, runs: Vec<String>, steps: u32) {
    let ended = client.wait(&runs, None).await.expect("the runs end");
    for run in ended.runs {
        assert_eq!(run.steps, steps, "{:?}", run.error);
    }
}

/// Measures the time from the call to the first event of a step.
async fn first_step(client: &Client, world: &World) -> Duration {
    let began = Instant::now();
    let started = client
        .start(request(world, "bench/echo", 2))
        .await
        .expect("the run starts");
    let mut events = client.events(&started.run_id, "", Follow::UntilEnd);
    while let Some(event) = events.next().await.expect("events come") {
        if event.event_type == "step_started" {
            break;
        }
    }
    let elapsed = began.elapsed();
    finish(client, vec![started.run_id], 2).await;
    elapsed
}

fn spawn_and_sync(directory: &Path, bytes: usize) -> Duration {
    let began = Instant::now();
    for _ in 0..SHELL_STEPS {
        let status = program("/bin/bash")
            .args(["-c", "true"])
            .status()
            .expect("bash starts");
        assert!(status.success());
    }
    began.elapsed() + append_and_sync(directory, bytes, SHELL_STEPS)
}

/// Returns the bytes of frames in the log. The preallocated rest of a segment is zero, up to the marker at its end.
fn log_bytes(world: &World) -> u64 {
    let entries = fs::read_dir(world.state().join("log")).expect("there is a log");
    entries
        .filter_map(|entry| fs::read(entry.ok()?.path()).ok())
        .filter_map(|bytes| {
            let frames = bytes.strip_suffix(b"rye log segment\n")?;
            frames.iter().rposition(|byte| *byte != 0)
        })
        .filter_map(|last| u64::try_from(last + 1).ok())
        .sum()
}
