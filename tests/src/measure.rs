//! Numbers of benchmarks: medians with their spread, compared with the goals of the project.
#![expect(clippy::print_stdout, reason = "a benchmark prints its result")]

use std::fs::{self, File};
use std::io::Write as _;
use std::path::Path;
use std::process::Child;
use std::time::{Duration, Instant};

use rye_client::Client;

use crate::{Daemon, World};

/// Unit of the system's CPU times in milliseconds (`USER_HZ`).
const TICK: f64 = 10.0;
/// Time over which an idle daemon is measured. It exceeds the daemon's own pauses before its work after a run.
const REST: Duration = Duration::from_secs(8);
/// Most CPU time of an idle daemon in [`REST`], in milliseconds.
const IDLE: f64 = 2.0 * TICK;
/// Longest wait for a daemon to become idle.
const REST_PATIENCE: Duration = Duration::from_mins(30);

/// Values of one measure.
#[derive(Debug)]
pub struct Series {
    name: &'static str,
    unit: &'static str,
    values: Vec<f64>,
}

impl Series {
    pub fn new(name: &'static str, unit: &'static str) -> Self {
        Self {
            name,
            unit,
            values: Vec::new(),
        }
    }

    pub fn add(&mut self, value: f64) {
        self.values.push(value);
        self.values.sort_by(f64::total_cmp);
    }

    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Returns the median.
    ///
    /// # Panics
    /// If there is no value.
    pub fn median(&self) -> f64 {
        self.values[self.values.len() / 2]
    }

    /// Returns the value that 99 % do not exceed.
    ///
    /// # Panics
    /// If there is no value.
    pub fn p99(&self) -> f64 {
        self.values[self.values.len() * 99 / 100]
    }

    /// Prints the median, the smallest and the largest value.
    ///
    /// # Panics
    /// If there is no value.
    pub fn print(&self) {
        let (low, high) = (self.values[0], self.values[self.values.len() - 1]);
        println!(
            "{:<46} {:>9.2} {:<6} ({low:.2} … {high:.2})",
            self.name,
            self.median(),
            self.unit
        );
    }
}

/// Goal for a number.
#[derive(Debug, Clone, Copy)]
pub enum Goal {
    AtLeast(f64),
    AtMost(f64),
}

/// Prints whether `value` meets its goal.
pub fn compare(name: &str, value: f64, mark: &Goal) {
    let (reached, sign, wanted) = match *mark {
        Goal::AtLeast(wanted) => (value >= wanted, "≥", wanted),
        Goal::AtMost(wanted) => (value <= wanted, "≤", wanted),
    };
    let word = if reached { "reached" } else { "MISSED" };
    println!("{name:<46} {value:>9.2}   mark {sign} {wanted:<8} {word}");
}

pub fn milliseconds(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1000.0
}

/// Returns the CPU time of the daemon and its parent in milliseconds, without the processes that they started.
pub fn computed(world: &World) -> f64 {
    let daemons = world.processes().into_iter();
    let daemons = daemons.filter(|process| process.name == "ryed");
    let used = daemons.map(|process| {
        let stat = fs::read_to_string(format!("/proc/{}/stat", process.pid)).unwrap_or_default();
        // The fields follow the name, which may hold any character. `utime` and `stime` are the fields 14 and 15 of
        // all.
        let (_, fields) = stat.rsplit_once(") ").unwrap_or_default();
        let ticks = fields.split(' ').skip(11).take(2);
        let ticks: f64 = ticks.filter_map(|ticks| ticks.parse::<f64>().ok()).sum();
        ticks * TICK
    });
    used.sum()
}

/// Starts a daemon and waits until it answers. The interval of 0.2 ms keeps the measured time exact.
///
/// # Panics
/// If it ends instead.
pub async fn start_until_ready(world: &World) -> (Child, Client) {
    let mut child = Daemon::spawn(world, "");
    loop {
        assert!(
            child.try_wait().is_ok_and(|ended| ended.is_none()),
            "ryed ended instead of serving: {}",
            world.log()
        );
        if let Ok(client) = Client::connect(world.socket()).await
            && client.info().await.is_ok()
        {
            return (child, client);
        }
        tokio::time::sleep(Duration::from_micros(200)).await;
    }
}

/// Waits until the daemon has finished its work after the end of runs, such as files of projects. It has finished when
/// it uses almost no CPU time.
///
/// # Panics
/// If it is not idle after 30 minutes.
pub async fn wait_until_idle(world: &World) {
    let began = Instant::now();
    loop {
        let before = computed(world);
        tokio::time::sleep(REST).await;
        if computed(world) - before <= IDLE {
            return;
        }
        assert!(
            began.elapsed() < REST_PATIENCE,
            "the daemon does not come to rest"
        );
    }
}

/// Measures `times` appends of `bytes` to a file in `directory`, each with a sync.
///
/// # Panics
/// If the disk is full.
pub fn append_and_sync(directory: &Path, bytes: usize, times: u32) -> Duration {
    let path = directory.join("appended");
    let mut file = File::create(&path).expect("the world is ours");
    let block = vec![b'x'; bytes];
    let began = Instant::now();
    for _ in 0..times {
        file.write_all(&block).expect("there is room");
        file.sync_data().expect("it can be synced");
    }
    let elapsed = began.elapsed();
    fs::remove_file(path).expect("the world is ours");
    elapsed
}

/// Returns the resident memory of the daemon and its parent in MiB.
pub fn resident(world: &World) -> f64 {
    let pages: f64 = world
        .processes()
        .iter()
        .filter(|process| process.name == "ryed")
        .map(|process| {
            let status =
                fs::read_to_string(format!("/proc/{}/status", process.pid)).unwrap_or_default();
            let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
            line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<f64>().ok())
                .unwrap_or_default()
        })
        .sum();
    pages / 1024.0
}
