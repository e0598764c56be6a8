//! Costs of processes: their containment, their end, managed processes and their shims, and calls from programs.
//!
//! `cargo bench -p rye-tests --bench processes` prints medians with the smallest and the largest value, and compares
//! them with the goals of the project. It needs `python3`, and a host with cgroups of version 2.

use std::fs;
use std::time::{Duration, Instant};

use rye_client::Client;
use rye_proto::v1;
use rye_tests::measure::{Goal, Series, compare, milliseconds, resident};
use rye_tests::{World, processes, until};
use serde_json::Value;

/// Measurements of each kind.
const ROUNDS: usize = 7;
/// Steps of a run.
const STEPS: u32 = 50;
/// Processes of a tree that is killed.
const TREE: usize = 600;
/// Idle managed processes.
const IDLE: usize = 500;
/// Bytes of output.
const OUTPUT: u64 = 400 << 20;
/// Lines for which a client waits.
const LINES: usize = 200;

const WITHOUT_CGROUPS: &str = "containment: {cgroup: off}";

fn main() {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime can be had");
    runtime.block_on(async {
        steps().await;
        kills().await;
        managed().await;
        callbacks().await;
    });
}

async fn client(world: &World) -> Client {
    let client = Client::connect(world.socket()).await;
    client.expect("the daemon serves")
}

/// A step of `rye/bash` with a cgroup for each attempt beside one without.
async fn steps() {
    let mut worlds = Vec::new();
    for config in ["", WITHOUT_CGROUPS] {
        let world = World::measured();
        let step = "item_id: rye/bash, params: {command: 'true'}";
        world.graph(
            "bench/bash",
            &format!(
                "start: a\nmax_steps: 1000000\nnodes:\n  a: {{action: {{{step}}}, next: b}}\n  b: {{action: {{{step}}}, next: a}}"
            ),
        );
        let daemon = world.start(config);
        worlds.push((world, daemon));
    }
    let mut with = Series::new("a step of rye/bash, with cgroups", "ms");
    let mut without = Series::new("a step of rye/bash, without", "ms");
    let mut ratio = Series::new("with cgroups / without", "");
    for _ in 0..ROUNDS {
        let mut each = Vec::new();
        for (world, _daemon) in &worlds {
            let client = client(world).await;
            each.push(milliseconds(run(&client, world, STEPS).await) / f64::from(STEPS));
        }
        with.add(each[0]);
        without.add(each[1]);
        ratio.add(each[0] / each[1]);
    }
    with.print();
    without.print();
    compare(ratio.name(), ratio.median(), &Goal::AtMost(1.05));
}

/// Runs the graph for `steps` steps. Returns the time from its acceptance to its end.
async fn run(client: &Client, world: &World, steps: u32) -> Duration {
    let began = Instant::now();
    let started = client
        .start(request(world, "bench/bash", Some(steps)))
        .await;
    let started = started.expect("the run starts");
    let ended = client.wait(&[started.run_id], None).await;
    for run in ended.expect("the run ends").runs {
        assert_eq!(run.steps, steps, "{:?}", run.error);
    }
    began.elapsed()
}

fn request(world: &World, item: &str, steps: Option<u32>) -> v1::StartRequest {
    v1::StartRequest {
        item: Some(v1::ItemRef {
            r#type: v1::ItemType::Tool.into(),
            id: item.to_owned(),
        }),
        project: world.project().display().to_string(),
        limits: Some(v1::Limits {
            steps,
            ..v1::Limits::default()
        }),
        ..v1::StartRequest::default()
    }
}

/// The kill of a run with a large tree of processes.
async fn kills() {
    let world = World::measured();
    let command = format!("for i in $(seq {TREE}); do setsid sleep 600 & done; wait");
    world.graph(
        "bench/tree",
        &format!(
            "start: a\nnodes:\n  a: {{action: {{item_id: rye/bash, params: {{command: '{command}'}}}}, next: b}}\n  b: {{type: return}}"
        ),
    );
    let _daemon = world.start("");
    let client = client(&world).await;
    let mut kill = Series::new("kill of a tree of 600 processes", "ms");
    for _ in 0..ROUNDS {
        let started = client.start(request(&world, "bench/tree", None)).await;
        let run = started.expect("the run starts").run_id;
        until("the tree", || {
            let sleeps = world.processes().into_iter();
            let count = sleeps.filter(|process| process.name == "sleep").count();
            (count == TREE).then_some(())
        });
        let began = Instant::now();
        let killed = client.kill(&run, Some(Duration::ZERO), false).await;
        killed.expect("the run is killed");
        kill.add(milliseconds(began.elapsed()));
    }
    kill.print();
    compare(kill.name(), kill.median(), &Goal::AtMost(50.0));
}

fn process(world: &World, name: &str, command: &str) -> v1::StartProcessRequest {
    v1::StartProcessRequest {
        project: world.project().display().to_string(),
        name: name.to_owned(),
        command: command.to_owned(),
        shell: true,
        ..v1::StartProcessRequest::default()
    }
}

/// Nanoseconds since 1970 in a line `WORD NUMBER`.
fn told(line: &str) -> f64 {
    let number = line.rsplit(' ').next().and_then(|word| word.parse().ok());
    number.expect("the line has a time")
}

/// Milliseconds since a time that a line tells.
fn since(line: &str) -> f64 {
    let now = unix_now();
    (now - told(line)) / 1e6
}

/// Nanoseconds since 1970.
#[expect(
    clippy::disallowed_methods,
    reason = "compared with the clock of another program"
)]
fn unix_now() -> f64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    now.expect("it is after 1970").as_secs_f64() * 1e9
}

async fn managed() {
    let world = World::measured();
    let _daemon = world.start("");
    let client = client(&world).await;
    lines(&world, &client).await;
    output(&world, &client).await;
    shim(&world, &client).await;
    idle(&world, &client).await;
}

/// From a line of a process to the answer of a start, and of a wait.
async fn lines(world: &World, client: &Client) {
    let mut start = Series::new("ready line to the answer of the start", "ms");
    let script = "sleep 0.3; echo ready $(date +%s%N); exec sleep 600";
    for _ in 0..ROUNDS * 3 {
        let request = v1::StartProcessRequest {
            ready_pattern: "^ready".to_owned(),
            ..process(world, "ready", script)
        };
        let started = client.start_process(request).await.expect("it starts");
        start.add(since(&started.tail[0].text));
        let handle = started.process.expect("it is there").handle;
        client.stop_process(&handle).await.expect("it stops");
    }
    let ticks = "while :; do echo tick $(date +%s%N); sleep 0.03; done";
    let started = client.start_process(process(world, "ticks", ticks)).await;
    let handle = started
        .expect("it starts")
        .process
        .expect("it is there")
        .handle;
    let mut wait = Series::new("line to the answer of a wait, 99 %", "ms");
    for _ in 0..LINES {
        let request = v1::WaitProcessRequest {
            handle: handle.clone(),
            condition: v1::ProcessCondition::Line.into(),
            pattern: "^tick".to_owned(),
            ..v1::WaitProcessRequest::default()
        };
        let waited = client.wait_process(request, None).await.expect("it prints");
        wait.add(since(&waited.line.expect("a line matches").text));
    }
    client.stop_process(&handle).await.expect("it stops");
    start.print();
    wait.print();
    compare(start.name(), start.median(), &Goal::AtMost(2.0));
    compare(wait.name(), wait.p99(), &Goal::AtMost(5.0));
}

/// Output of a process into its log beside the same into a file.
async fn output(world: &World, client: &Client) {
    let script = format!("yes 'a line of output of some length' | head -c {OUTPUT}");
    let mut logged = Series::new("400 MiB of output into the log", "ms");
    let mut filed = Series::new("400 MiB of output into a file", "ms");
    let mut ratio = Series::new("speed of the log / of a file", "");
    for _ in 0..ROUNDS.div_ceil(2) {
        let mut each = Vec::new();
        for command in [
            script.clone(),
            format!("({script}) | cat > output; sync output"),
        ] {
            let request = process(world, "output", &command);
            let began = Instant::now();
            let started = client.start_process(request).await.expect("it starts");
            let handle = started.process.expect("it is there").handle;
            client.wait(&[handle], None).await.expect("it ends");
            each.push(milliseconds(began.elapsed()));
        }
        logged.add(each[0]);
        filed.add(each[1]);
        ratio.add(each[1] / each[0]);
    }
    logged.print();
    filed.print();
    compare(ratio.name(), ratio.median(), &Goal::AtLeast(0.7));
}

/// Memory of a shim that no other process shares.
async fn shim(world: &World, client: &Client) {
    let request = v1::StartProcessRequest {
        survive: true,
        ..process(world, "survivor", "exec sleep 600")
    };
    let started = client.start_process(request).await.expect("it starts");
    let handle = started.process.expect("it is there").handle;
    let record = world.state().join("procs").join(&handle).join("shim.json");
    let record: Value = serde_json::from_slice(&fs::read(record).expect("it has a record"))
        .expect("a record is JSON");
    let usage = fs::read_to_string(format!("/proc/{}/smaps_rollup", record["pid"]));
    let usage = usage.expect("the shim lives");
    let private = usage.lines().filter(|line| line.starts_with("Private_"));
    let kib = private.filter_map(|line| line.split_ascii_whitespace().nth(1)?.parse::<f64>().ok());
    compare(
        "memory of a shim in MB",
        kib.sum::<f64>() / 1024.0,
        &Goal::AtMost(3.0),
    );
    client.stop_process(&handle).await.expect("it stops");
}

/// Memory of the daemon for each idle process.
async fn idle(world: &World, client: &Client) {
    let before = resident(world);
    let mut handles = Vec::new();
    for number in 0..IDLE {
        let request = process(world, &format!("idle-{number}"), "exec sleep 600");
        let started = client.start_process(request).await.expect("it starts");
        handles.push(started.process.expect("it is there").handle);
    }
    let count = world.processes().len();
    assert!(count >= IDLE, "{count} processes");
    #[expect(
        clippy::as_conversions,
        clippy::cast_precision_loss,
        reason = "a small number"
    )]
    let each = (resident(world) - before) * 1024.0 / IDLE as f64;
    compare("memory of an idle process in KB", each, &Goal::AtMost(60.0));
    for handle in handles {
        client.stop_process(&handle).await.expect("it stops");
    }
    assert_eq!(processes::left(&world.project()), []);
}

/// Calls of an item by a Python program beside an empty call of the daemon.
async fn callbacks() {
    const TOOL: &str = r#"
__version__ = "1.0.0"
__tool_type__ = "python"
__executor_id__ = "rye/core/runtimes/python/function"
__category__ = "bench"
__tool_description__ = "Calls an item often."
__output__ = "json"
PERMISSIONS = ["rye.execute.*"]

import time
import rye_client


def execute(params, project_path):
    times = []
    for n in range(300):
        begun = time.perf_counter()
        rye_client.execute("rye/core/echo", n=n)
        times.append((time.perf_counter() - begun) * 1000)
    times.sort()
    return {"p50": times[150], "each_second": 1000 * len(times) / sum(times)}
"#;
    let world = World::measured();
    world.tool("bench/calls.py", TOOL);
    let _daemon = world.start("");
    let client = client(&world).await;
    let mut call = Series::new("a call of rye/core/echo by a program, p50", "ms");
    let mut rate = Series::new("such calls in a second", "");
    let mut bare = Series::new("an empty call of the daemon, p50", "ms");
    for _ in 0..ROUNDS {
        let mut empty = Series::new("", "ms");
        for _ in 0..300 {
            let began = Instant::now();
            client.info().await.expect("the daemon answers");
            empty.add(milliseconds(began.elapsed()));
        }
        bare.add(empty.median());
        let answer = world.ryectl("execute tool bench/calls --json").ok().json();
        let figure = |name: &str| answer["data"][name].as_f64().expect("a figure");
        call.add(figure("p50"));
        rate.add(figure("each_second"));
    }
    bare.print();
    call.print();
    rate.print();
}
