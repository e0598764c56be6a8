//! Costs of large graphs, long runs, wide nodes and many runs. Ratios are measured in one process at the same time.
//!
//! `cargo bench -p rye-tests --bench graphs` prints medians with the smallest and the largest value, and compares them
//! with the goals of the project. The numbers are valid only on an otherwise idle machine.
#![expect(clippy::print_stdout, reason = "a benchmark prints its result")]

use std::fmt::Write as _;
use std::hint::black_box;
use std::time::{Duration, Instant};

use rye_client::Client;
use rye_client::events::Follow;
use rye_core::{definition, yaml};
use rye_proto::v1;
use rye_tests::World;
use rye_tests::measure::{Goal, Series, compare, milliseconds, resident};
use rye_tests::world::graph_text;
use serde_json::json;

/// Measurements of each kind.
const ROUNDS: usize = 5;
/// Nodes of the large graph.
const NODES: u32 = 1000;
/// Steps of the long run, and number of its first and last steps that are compared.
const LONG: (u32, u32) = (10_000, 1000);
/// Items of the wide node, and of a narrower one.
const ITEMS: (u32, u32) = (10_000, 1000);
/// Number of runs that wait at the same time.
const CROWD: u32 = 1000;

/// Two nodes that call each other until the step limit ends the run.
const ENDLESS: &str = "start: a\nmax_steps: 1000000\nstate: {n: 0}\nnodes:\n  \
    a: {action: {item_id: rye/core/echo, params: {n: \"${state.n}\", text: \"step of a long run\"}}, assign: {last: \"${result}\"}, next: b}\n  \
    b: {action: {item_id: rye/core/echo, params: {last: \"${state.last}\"}}, next: a}";

/// Waits an hour after its first try.
const WAITS: &str = "start: try\nnodes:\n  try:\n    \
    retry: {max: 100, backoff: fixed, delay: 3600}\n    \
    action: {item_id: rye/core/echo, params: {success: false, error: \"not yet\"}}\n    next: done\n  \
    done: {type: return, output: {}}";

/// A node over the input `items`; `how` sets the order.
fn wide(how: &str) -> String {
    format!(
        "start: each\nnodes:\n  each:\n    type: foreach\n    over: \"${{inputs.items}}\"\n    {how}\n    \
         action: {{item_id: rye/core/echo, params: {{n: \"${{item}}\"}}}}\n    collect: out\n    next: done\n  \
         done: {{type: return, output: {{}}}}"
    )
}

/// A chain of nodes with the usual parts of a graph.
fn large() -> String {
    let mut config = format!(
        "start: n0\nmax_steps: {}\nstate: {{n: 0}}\nnodes:\n",
        NODES * 2
    );
    for node in 0..NODES - 1 {
        let next = node + 1;
        write!(
            config,
            "  n{node}:\n    action:\n      primary: execute\n      item_type: tool\n      item_id: rye/core/echo\n      \
             params: {{n: \"${{state.n}}\", text: \"node {node} of ${{inputs.name}}\"}}\n    effect: pure\n    \
             assign: {{n: \"${{result.n}}\"}}\n    next:\n      - to: n{next}\n        when: {{path: state.n, op: gte, value: 0}}\n      \
             - to: n{last}\n",
            last = NODES - 1
        )
        .expect("a string takes all text");
    }
    writeln!(
        config,
        "  n{}: {{type: return, output: \"${{state.n}}\"}}",
        NODES - 1
    )
    .expect("a string takes all text");
    let head = "permissions: [\"rye.execute.tool.*\"]\nconfig_schema: {type: object, properties: {name: {type: string}}}";
    graph_text("bench/large", head, &config)
}

fn main() {
    definitions();
    let world = World::measured();
    world.graph("bench/endless", ENDLESS);
    world.graph("bench/waits", WAITS);
    world.graph("bench/parallel", &wide("parallel: true"));
    world.graph("bench/sequential", &wide("parallel: false"));
    let runtime = tokio::runtime::Runtime::new().expect("a runtime can be had");
    runtime.block_on(runs(&world));
}

/// Compares reading the large graph with reading it as plain YAML.
fn definitions() {
    let text = large();
    let mut bare = Series::new("1,000 nodes: YAML alone", "ms");
    let mut parse = Series::new("1,000 nodes: parse", "ms");
    let mut validate = Series::new("1,000 nodes: parse + validate", "ms");
    let mut ratio = Series::new("parse + validate / YAML alone", "");
    for _ in 0..ROUNDS * 3 {
        let yaml = timed(|| drop(black_box(yaml::parse(&text))));
        let parsed = timed(|| drop(black_box(definition::parse(&text))));
        let validated = timed(|| drop(black_box(definition::validate(&text))));
        bare.add(yaml);
        parse.add(parsed);
        validate.add(validated);
        ratio.add(validated / yaml);
    }
    let report = definition::validate(&text);
    assert_eq!(report.errors, [], "the large graph is sound");
    for series in [&bare, &parse, &validate, &ratio] {
        series.print();
    }
}

fn timed(work: impl FnOnce()) -> f64 {
    let began = Instant::now();
    work();
    milliseconds(began.elapsed())
}

async fn runs(world: &World) {
    // The first measurement uses a fresh daemon, because freed memory stays resident.
    many_runs(world).await;
    let _daemon = world.start("");
    let client = connect(world).await;
    long_runs(&client, world).await;
    wide_nodes(&client, world).await;
}

async fn connect(world: &World) -> Client {
    let client = Client::connect(world.socket()).await;
    client.expect("the daemon serves")
}

/// Compares the last steps of a long run with its first steps.
async fn long_runs(client: &Client, world: &World) {
    let (steps, part) = LONG;
    let mut first = Series::new("step of the first 1,000", "ms");
    let mut last = Series::new("step of the last 1,000", "ms");
    let mut growth = Series::new("last 1,000 / first 1,000", "");
    for _ in 0..ROUNDS {
        let mut started = request(world, "bench/endless");
        started.limits = Some(v1::Limits {
            steps: Some(steps),
            ..v1::Limits::default()
        });
        let run = start(client, started).await;
        let mut ends = Vec::new();
        let mut events = client.events(&run, "", Follow::UntilEnd);
        while let Some(event) = events.next().await.expect("events come") {
            if event.event_type == "step_completed" {
                ends.push(Instant::now());
            }
        }
        let part = usize::try_from(part).expect("it is small");
        assert_eq!(ends.len(), usize::try_from(steps).expect("it is small"));
        let per_step = |from: usize| milliseconds(ends[from + part - 1] - ends[from]) / 999.0;
        let (head, tail) = (per_step(0), per_step(ends.len() - part));
        first.add(head);
        last.add(tail);
        growth.add(tail / head);
    }
    for series in [&first, &last, &growth] {
        series.print();
    }
    compare(growth.name(), growth.median(), &Goal::AtMost(1.2));
}

/// Compares parallel with sequential items, and many items with fewer.
async fn wide_nodes(client: &Client, world: &World) {
    let (many, fewer) = ITEMS;
    let mut parallel = Series::new("foreach over 10,000, parallel", "items/s");
    let mut sequential = Series::new("foreach over 10,000, sequential", "items/s");
    let mut narrow = Series::new("foreach over 1,000, parallel", "items/s");
    let mut gain = Series::new("parallel / sequential", "");
    let mut growth = Series::new("an item of 10,000 / an item of 1,000", "");
    for _ in 0..ROUNDS {
        let at_once = items_per_second(client, world, "bench/parallel", many).await;
        let in_turn = items_per_second(client, world, "bench/sequential", many).await;
        let of_fewer = items_per_second(client, world, "bench/parallel", fewer).await;
        parallel.add(at_once);
        sequential.add(in_turn);
        narrow.add(of_fewer);
        gain.add(at_once / in_turn);
        growth.add(of_fewer / at_once);
    }
    for series in [&parallel, &sequential, &narrow, &gain, &growth] {
        series.print();
    }
}

async fn items_per_second(client: &Client, world: &World, graph: &str, count: u32) -> f64 {
    let items: Vec<u32> = (0..count).collect();
    let mut wanted = request(world, graph);
    wanted.inputs_json = json!({"items": items}).to_string();
    let began = Instant::now();
    let run = start(client, wanted).await;
    let ended = client.wait(&[run], None).await.expect("the run ends");
    for run in ended.runs {
        assert!(run.error.is_none(), "{:?}", run.error);
    }
    f64::from(count) / began.elapsed().as_secs_f64()
}

/// Measures runs that wait for their next try.
async fn many_runs(world: &World) {
    let daemon = world.start("");
    let client = connect(world).await;
    // The first run loads the items.
    let first = start(&client, request(world, "bench/waits")).await;
    until_it_waits(&client, &first).await;
    let before = resident(world);
    let began = Instant::now();
    let mut runs = Vec::new();
    for _ in 0..CROWD {
        runs.push(start(&client, request(world, "bench/waits")).await);
    }
    for run in &runs {
        until_it_waits(&client, run).await;
    }
    let took = began.elapsed();
    let after = resident(world);
    println!(
        "{:<46} {:>9.1} KB a run ({before:.1} MB before, {after:.1} MB with {CROWD})",
        "1,000 live waiting runs, resident memory",
        (after - before) * 1024.0 / f64::from(CROWD)
    );
    println!(
        "{:<46} {:>9.1} per s",
        "1,000 runs started until all wait",
        f64::from(CROWD) / took.as_secs_f64()
    );
    for run in runs.iter().chain([&first]) {
        let killed = client.kill(run, Some(Duration::ZERO), false).await;
        let _receipt = killed.expect("a run that waits can be killed");
    }
    daemon.signal(nix::sys::signal::Signal::SIGTERM);
    let _status = daemon.ended();
}

async fn until_it_waits(client: &Client, run: &str) {
    let mut events = client.events(run, "", Follow::UntilEnd);
    while let Some(event) = events.next().await.expect("events come") {
        if event.event_type == "retry_scheduled" {
            return;
        }
    }
}

fn request(world: &World, item: &str) -> v1::StartRequest {
    v1::StartRequest {
        item: Some(v1::ItemRef {
            r#type: v1::ItemType::Tool.into(),
            id: item.to_owned(),
        }),
        project: world.project().display().to_string(),
        ..v1::StartRequest::default()
    }
}

async fn start(client: &Client, request: v1::StartRequest) -> String {
    let started = client.start(request).await.expect("the run starts");
    started.run_id
}
