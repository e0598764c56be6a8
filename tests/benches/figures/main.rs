//! One round of the figures that compare two builds. `tests/scripts/compare` runs it for each build in turn.
//!
//! `cargo bench -p rye-tests --bench figures [NAME …]` prints `figure <name> <value> <unit>` for each named figure, or
//! for all. Each figure has a daemon of its own. `RYE_TESTS_BINARIES` names the directory of the `ryed` and `ryectl`
//! that are measured. Removing the files of `foreach_100k` and of the boots takes minutes on a slow disk;
//! `RYE_FIGURES_ENDED_RUNS` lowers the number of ended runs of the boots. The figures `state_…` mount file systems in a
//! mount namespace of this process. They need root and are skipped without it.
#![expect(clippy::print_stdout, reason = "a benchmark prints its result")]

mod boot;
mod cpu;
mod items;
mod memory;
mod state;

use std::time::{Duration, Instant};

use rye_client::Client;
use rye_client::events::Follow;
use rye_proto::v1;
use rye_tests::measure::milliseconds;
use rye_tests::{World, skipped};
use serde_json::json;

use state::Trial;

/// Steps of the single run.
const STEPS: u32 = 2000;
/// Concurrent runs, and steps of each.
const CROWD: (u32, u32) = (64, 200);
/// Steps of the run of shell commands.
const SHELL_STEPS: u32 = 100;
/// Concurrent runs before the shell commands, and steps of each.
const PRECEDING: (u32, u32) = (64, 1000);
/// Concurrent runs with a large state, steps of each, and bytes of the state.
const HEAVY: (u32, u32, usize) = (64, 8, 1 << 20);
/// Time for which the list of runs is requested repeatedly.
const LISTING: Duration = Duration::from_secs(10);

/// All figures in the order of their measurement. `boot` prints `boot_ready` and `boot_ps`.
const FIGURES: [&str; 23] = [
    "waiting_run",
    "waiting_run_of_2000",
    "one_run",
    "64_runs",
    "bash_step",
    "bash_step_after_64k",
    "cpu_native_step",
    "cpu_bash_step",
    "foreach_10k",
    "foreach_100k",
    "large_graph_first_step",
    "large_states",
    "ps_p99",
    "ps_p99_attacked",
    "flood",
    "flood_followed",
    "state_deleted_native",
    "state_deleted_bash",
    "state_read_only_native",
    "state_read_only_bash",
    "state_hung_native",
    "state_hung_bash",
    "boot",
];

fn main() {
    // Cargo adds flags of its own.
    let named: Vec<String> = std::env::args()
        .skip(1)
        .filter(|word| !word.starts_with('-'))
        .collect();
    for name in &named {
        assert!(FIGURES.contains(&name.as_str()), "`{name}` is no figure");
    }
    let mut figures = FIGURES.to_vec();
    figures.retain(|figure| named.is_empty() || named.iter().any(|name| name == figure));
    if figures.iter().any(|name| Trial::needs_mount(name)) && !state::enter_mount_namespace() {
        skipped("this user may not mount");
        figures.retain(|name| !Trial::needs_mount(name));
    }
    let runtime = tokio::runtime::Runtime::new().expect("a runtime can be had");
    for name in figures {
        runtime.block_on(Figure::new().measure(name));
    }
}

/// A daemon for one figure.
struct Figure {
    world: World,
}

impl Figure {
    fn new() -> Self {
        let world = World::measured();
        items::write(&world);
        Self { world }
    }

    async fn measure(&self, name: &str) {
        let mut trial = Trial::prepare(name, &self.world);
        let daemon = self.world.start("");
        let client = &self.client().await;
        // The first run loads the items, so it is not measured.
        self.steps(client, "bench/echo", 1, 50, "{}").await;
        match (name, &mut trial) {
            // It stops the daemon itself.
            ("boot", _) => return Box::pin(self.boots(client)).await,
            (_, Some(trial)) => self.harmed(client, name, trial).await,
            (name, None) => Box::pin(self.measure_warm(client, name)).await,
        }
        // The daemon's remaining writes belong to no figure.
        daemon.kill_both();
        if let Some(trial) = &mut trial {
            trial.end();
        }
        let _status = daemon.ended();
    }

    async fn measure_warm(&self, client: &Client, name: &str) {
        match name {
            "waiting_run" => self.waiting_runs(client, name, 500).await,
            "waiting_run_of_2000" => self.waiting_runs(client, name, 2000).await,
            "one_run" => self.rate(client, name, (1, STEPS), "{}").await,
            "64_runs" => self.rate(client, name, CROWD, "{}").await,
            "bash_step" => self.bash_steps(client, name).await,
            "bash_step_after_64k" => {
                let (runs, steps) = PRECEDING;
                self.steps(client, "bench/echo", runs, steps, "{}").await;
                self.bash_steps(client, name).await;
            }
            "cpu_native_step" => {
                self.cpu(client, name, "bench/echo", cpu::NATIVE_STEPS)
                    .await;
            }
            "cpu_bash_step" => self.cpu(client, name, "bench/bash", cpu::SHELL_STEPS).await,
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
    }

    /// Measures the time of a bash step of one run.
    async fn bash_steps(&self, client: &Client, name: &str) {
        let took = self.steps(client, "bench/bash", 1, SHELL_STEPS, "{}").await;
        figure(name, milliseconds(took) / f64::from(SHELL_STEPS), "ms");
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

    /// Returns the time from the first start to the last end of `runs` runs of `item` with `steps` steps each.
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

    /// Measures the time from the call to the first event of a step.
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

    /// Measures the time of a list of runs while 64 runs are active.
    async fn crowded(&self, client: &Client) {
        for _ in 0..CROWD.0 {
            let request = self.request("bench/echo", Some(1_000_000), "{}");
            let _run = self.start(client, request).await;
        }
        self.looks(client, "ps_p99").await;
    }

    /// Measures the time of a list of runs while other runs try to take all memory and all threads.
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
        while first.elapsed() < LISTING {
            let began = Instant::now();
            let listed = client.list(v1::ListRequest::default()).await;
            assert!(!listed.expect("runs can be listed").runs.is_empty());
            took.push(milliseconds(began.elapsed()));
        }
        took.sort_by(f64::total_cmp);
        figure(name, took[took.len() * 99 / 100], "ms");
    }
}

fn figure(name: &str, value: f64, unit: &str) {
    println!("figure {name} {value:.3} {unit}");
}
