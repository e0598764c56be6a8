//! One round of the figures by which two builds are compared: `tests/scripts/compare` runs it for each of them in turn.
//!
//! `cargo bench -p rye-tests --bench figures [NAME …]` prints `figure <name> <value> <unit>` for each of these figures, or
//! for all; each is measured in a daemon of its own. `RYE_TESTS_BINARIES` names the directory of the `ryed` and `ryectl`
//! that are measured. The files that `foreach_100k` leaves take minutes to remove on a slow disk.
#![expect(clippy::print_stdout, reason = "a benchmark prints its result")]

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use rye_client::Client;
use rye_client::events::Follow;
use rye_proto::v1;
use rye_tests::World;
use rye_tests::measure::{Series, computed, milliseconds, resident};
use serde_json::json;

/// Steps of the single run.
const STEPS: u32 = 2000;
/// Runs at once, and steps of each.
const CROWD: (u32, u32) = (64, 200);
/// Steps of the run of shell commands.
const SHELL_STEPS: u32 = 100;
/// Runs at once with a large state, steps of each, and bytes of the state.
const HEAVY: (u32, u32, usize) = (64, 8, 1 << 20);
/// Nodes of the large graph.
const NODES: u32 = 1000;
/// How long the list of runs is looked at, over and over.
const LOOKING: Duration = Duration::from_secs(10);
/// Runs that wait at once.
const WAITING: u32 = 500;
/// How often a tool floods its output, with and without somebody who follows it.
const FLOODS: u32 = 7;
/// Prints 256 MiB, in lines of 80 bytes.
const FLOOD: &str = "start: flood\nnodes:\n  flood:\n    \
    action: {item_id: rye/bash, params: {command: \"yes 0123456789012345678901234567890123456789012345678901234567890123456789012345678 | head -c 268435456\"}}\n    \
    next: done\n  done: {type: return, output: {}}";

/// Waits an hour after its first try.
const WAITS: &str = "start: try\nnodes:\n  try:\n    retry: {max: 100, backoff: fixed, delay: 3600}\n    \
    action: {item_id: rye/core/echo, params: {success: false, error: \"not yet\"}}\n    next: done\n  \
    done: {type: return, output: {}}";

/// A node over the input `items`.
const WIDE: &str = "start: each\nnodes:\n  each:\n    type: foreach\n    over: \"${inputs.items}\"\n    parallel: true\n    \
    action: {item_id: rye/core/echo, params: {n: \"${item}\"}}\n    collect: out\n    next: done\n  \
    done: {type: return, output: {}}";

/// Doubles its state with each step, until that takes too much memory.
const DOUBLES: &str = "max_steps: 100\nstate: {s: [null, null]}\nstart: a\nnodes:\n  \
    a: {assign: {s: {a: \"${state.s}\", b: \"${state.s}\"}}, next: a}";

/// Steps that do nothing but match a pattern that gives up.
const MATCHES: &str = "max_steps: 400\nstate: {text: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa}\nstart: a\nnodes:\n  \
    a: {type: gate, next: [{to: end, when: {path: state.text, op: regex, value: '^(?=a)(a+a+)+$(?<=b)'}}, {to: a}]}\n  \
    end: {type: return}";

/// Two nodes that call each other until the step limit ends the run.
fn endless(item: &str) -> String {
    format!(
        "start: a\nmax_steps: 1000000\nnodes:\n  a: {{action: {{{item}}}, assign: {{n: \"${{result}}\"}}, next: b}}\n  b: {{action: {{{item}}}, next: a}}"
    )
}

/// Nodes each of which leads to the next.
fn large() -> String {
    let mut config = format!("start: n0\nmax_steps: {}\nnodes:\n", NODES * 2);
    for node in 0..NODES - 1 {
        let next = node + 1;
        writeln!(
            config,
            "  n{node}: {{action: {{item_id: rye/core/echo, params: {{n: {node}}}}}, assign: {{n: \"${{result.n}}\"}}, next: n{next}}}"
        )
        .expect("a string takes all text");
    }
    write!(config, "  n{}: {{type: return}}", NODES - 1).expect("a string takes all text");
    config
}

/// Every figure, in the order in which they are measured.
const FIGURES: [&str; 12] = [
    "waiting_run",
    "one_run",
    "64_runs",
    "bash_step",
    "foreach_10k",
    "foreach_100k",
    "large_graph_first_step",
    "large_states",
    "ps_p99",
    "ps_p99_attacked",
    "flood",
    "flood_followed",
];

fn main() {
    // Cargo adds flags of its own.
    let wanted: Vec<String> = std::env::args()
        .skip(1)
        .filter(|word| !word.starts_with('-'))
        .collect();
    let runtime = tokio::runtime::Runtime::new().expect("a runtime can be had");
    for name in FIGURES {
        if wanted.is_empty() || wanted.iter().any(|word| word == name) {
            runtime.block_on(Figure::new().measure(name));
        }
    }
}

/// A daemon that does nothing but what one figure is about.
struct Figure {
    world: World,
}

impl Figure {
    fn new() -> Self {
        let world = World::measured();
        let echo = "item_id: rye/core/echo, params: {n: 1}";
        world.graph("bench/echo", &endless(echo));
        world.graph(
            "bench/bash",
            &endless("item_id: rye/bash, params: {command: \"true\"}"),
        );
        world.graph("bench/waits", WAITS);
        world.graph("bench/wide", WIDE);
        world.graph("bench/large", &large());
        world.graph("bench/doubles", DOUBLES);
        world.graph("bench/matches", MATCHES);
        world.graph("bench/flood", FLOOD);
        Self { world }
    }

    async fn measure(&self, name: &str) {
        let daemon = self.world.start("");
        let client = &self.client().await;
        // Warm: the first run loads the items.
        self.steps(client, "bench/echo", 1, 50, "{}").await;
        match name {
            "waiting_run" => self.waiting_runs(client).await,
            "one_run" => self.rate(client, name, (1, STEPS), "{}").await,
            "64_runs" => self.rate(client, name, CROWD, "{}").await,
            "bash_step" => {
                let took = self.steps(client, "bench/bash", 1, SHELL_STEPS, "{}").await;
                figure(name, milliseconds(took) / f64::from(SHELL_STEPS), "ms");
            }
            "foreach_10k" => self.foreach(client, name, 10_000).await,
            "foreach_100k" => self.foreach(client, name, 100_000).await,
            "large_graph_first_step" => self.first_step(client).await,
            "large_states" => {
                let (runs, steps, bytes) = HEAVY;
                let inputs = json!({"ballast": "x".repeat(bytes)}).to_string();
                self.rate(client, name, (runs, steps), &inputs).await;
            }
            "ps_p99" => self.crowded(client).await,
            "ps_p99_attacked" => Box::pin(self.attacked(client)).await,
            "flood" => self.floods(client, name, Follow::No).await,
            "flood_followed" => self.floods(client, name, Follow::UntilEnd).await,
            other => unreachable!("`{other}` is no figure"),
        }
        // What it still writes down for a while is nobody's figure.
        daemon.kill_both();
        let _status = daemon.ended();
    }

    async fn rate(&self, client: &Client, name: &str, (runs, steps): (u32, u32), inputs: &str) {
        let took = self.steps(client, "bench/echo", runs, steps, inputs).await;
        let rate = f64::from(runs * steps) / took.as_secs_f64();
        figure(name, rate, "steps/s");
    }

    async fn client(&self) -> Client {
        let client = Client::connect(self.world.socket()).await;
        client.expect("the daemon serves")
    }

    fn request(&self, item: &str, steps: Option<u32>, inputs: &str) -> v1::StartRequest {
        v1::StartRequest {
            item: Some(v1::ItemRef {
                r#type: v1::ItemType::Tool.into(),
                id: item.to_owned(),
            }),
            project: self.world.project().display().to_string(),
            inputs_json: inputs.to_owned(),
            limits: steps.map(|steps| v1::Limits {
                steps: Some(steps),
                ..v1::Limits::default()
            }),
            ..v1::StartRequest::default()
        }
    }

    async fn start(&self, client: &Client, request: v1::StartRequest) -> String {
        let started = client.start(request).await.expect("the run starts");
        started.run_id
    }

    /// How long `runs` runs of `item` take for `steps` steps each, from the first start to the last end.
    async fn steps(
        &self,
        client: &Client,
        item: &str,
        runs: u32,
        steps: u32,
        inputs: &str,
    ) -> Duration {
        let began = Instant::now();
        let mut started = Vec::new();
        for _ in 0..runs {
            let request = self.request(item, Some(steps), inputs);
            started.push(self.start(client, request).await);
        }
        let ended = client.wait(&started, None).await.expect("the runs end");
        for run in ended.runs {
            assert_eq!(run.steps, steps, "{:?}", run.error);
        }
        began.elapsed()
    }

    async fn foreach(&self, client: &Client, name: &str, count: u32) {
        let items: Vec<u32> = (0..count).collect();
        let inputs = json!({"items": items}).to_string();
        let began = Instant::now();
        let run = self
            .start(client, self.request("bench/wide", None, &inputs))
            .await;
        let ended = client.wait(&[run], None).await.expect("the run ends");
        for run in ended.runs {
            assert!(run.error.is_none(), "{:?}", run.error);
        }
        figure(
            name,
            f64::from(count) / began.elapsed().as_secs_f64(),
            "items/s",
        );
    }

    /// From the call to the first event of a step.
    async fn first_step(&self, client: &Client) {
        let began = Instant::now();
        let run = self
            .start(client, self.request("bench/large", Some(2), "{}"))
            .await;
        let mut events = client.events(&run, "", Follow::UntilEnd);
        while let Some(event) = events.next().await.expect("events come") {
            if event.event_type == "step_started" {
                break;
            }
        }
        figure(
            "large_graph_first_step",
            milliseconds(began.elapsed()),
            "ms",
        );
        let _ended = client.wait(&[run], None).await.expect("the run ends");
    }

    /// How long a list of runs takes while 64 runs walk.
    async fn crowded(&self, client: &Client) {
        for _ in 0..CROWD.0 {
            let request = self.request("bench/echo", Some(1_000_000), "{}");
            let _run = self.start(client, request).await;
        }
        self.looks(client, "ps_p99").await;
    }

    /// How long it takes while runs would take all memory and all threads.
    async fn attacked(&self, client: &Client) {
        let attack = async {
            loop {
                let mut runs = Vec::new();
                for item in ["bench/doubles", "bench/matches"].repeat(3) {
                    runs.push(self.start(client, self.request(item, None, "{}")).await);
                }
                let _failed = client.wait(&runs, None).await.expect("the runs end");
            }
        };
        tokio::select! {
            () = attack => {}
            () = self.looks(client, "ps_p99_attacked") => {}
        }
    }

    async fn looks(&self, client: &Client, name: &str) {
        let mut took = Vec::new();
        let first = Instant::now();
        while first.elapsed() < LOOKING {
            let began = Instant::now();
            let listed = client.list(v1::ListRequest::default()).await;
            assert!(!listed.expect("runs can be listed").runs.is_empty());
            took.push(milliseconds(began.elapsed()));
        }
        took.sort_by(f64::total_cmp);
        figure(name, took[took.len() * 99 / 100], "ms");
    }

    /// CPU time of the daemon while a tool floods its output, of which somebody follows the lines if `follow` says so.
    async fn floods(&self, client: &Client, name: &str, follow: Follow) {
        let mut floods = Series::new("CPU of a flood", "ms");
        for _ in 0..FLOODS {
            floods.add(self.flood(client, follow).await);
        }
        floods.print();
        figure(name, floods.median(), "ms");
    }

    /// What the daemon computes for one flood, whose lines are followed if `follow` says so.
    async fn flood(&self, client: &Client, follow: Follow) -> f64 {
        let before = computed(&self.world);
        let run = self
            .start(client, self.request("bench/flood", None, "{}"))
            .await;
        if follow == Follow::UntilEnd {
            let request = v1::LogsRequest {
                run_id: run.clone(),
                follow: true,
                ..v1::LogsRequest::default()
            };
            let mut lines = client.logs(request).await.expect("lines are served");
            let mut bytes = 0;
            while let Some(told) = lines.next().await.expect("lines come") {
                bytes += told.text.len();
            }
            assert!(bytes > 0, "nothing is told of the flood");
        }
        let ended = client.wait(&[run], None).await.expect("the run ends");
        for run in ended.runs {
            assert!(run.error.is_none(), "{:?}", run.error);
        }
        computed(&self.world) - before
    }

    /// Memory of runs that wait for their next try.
    async fn waiting_runs(&self, client: &Client) {
        let waits = || self.request("bench/waits", None, "{}");
        let first = self.start(client, waits()).await;
        until_it_waits(client, &first).await;
        let before = resident(&self.world);
        let mut runs = Vec::new();
        for _ in 0..WAITING {
            runs.push(self.start(client, waits()).await);
        }
        for run in &runs {
            until_it_waits(client, run).await;
        }
        let more = resident(&self.world) - before;
        figure("waiting_run", more * 1024.0 / f64::from(WAITING), "KB");
    }
}

async fn until_it_waits(client: &Client, run: &str) {
    let mut events = client.events(run, "", Follow::UntilEnd);
    while let Some(event) = events.next().await.expect("events come") {
        if event.event_type == "retry_scheduled" {
            return;
        }
    }
}

fn figure(name: &str, value: f64, unit: &str) {
    println!("figure {name} {value:.3} {unit}");
}
