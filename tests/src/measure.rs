//! Numbers of benchmarks: medians with their spread, and how they stand against the marks of the project.
#![expect(clippy::print_stdout, reason = "a benchmark prints its result")]

use std::fs::{self, File};
use std::io::Write as _;
use std::path::Path;
use std::process::Child;
use std::time::{Duration, Instant};

use rye_client::Client;

use crate::{Daemon, World};

/// The unit in which the system counts CPU time, in milliseconds (`USER_HZ`).
const TICK: f64 = 10.0;
/// How long a daemon at rest computes next to nothing. Longer than its own pauses before it clears up after a run.
const REST: Duration = Duration::from_secs(8);
/// CPU time of an idle daemon in [`REST`], in milliseconds.
const IDLE: f64 = 2.0 * TICK;
/// How long a daemon may take to come to rest.
const REST_PATIENCE: Duration = Duration::from_mins(30);

/// Values of one kind.
#[derive(Debug)]
pub struct Series {
    name: &'static str,
    unit: &'static str,
    values: Vec<f64>,
}

impl Series {
    /// None yet.
    pub fn new(name: &'static str, unit: &'static str) -> Self {
        Self {
            name,
            unit,
            values: Vec::new(),
        }
    }

    /// Adds a value.
    pub fn add(&mut self, value: f64) {
        self.values.push(value);
        self.values.sort_by(f64::total_cmp);
    }

    /// What they measure.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// The middle one.
    ///
    /// # Panics
    /// If there is none.
    pub fn median(&self) -> f64 {
        self.values[self.values.len() / 2]
    }

    /// What 99 of 100 do not exceed.
    ///
    /// # Panics
    /// If there is none.
    pub fn p99(&self) -> f64 {
        self.values[self.values.len() * 99 / 100]
    }

    /// Prints the median, the smallest and the largest.
    ///
    /// # Panics
    /// If there is none.
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

/// What a number has to be.
#[derive(Debug, Clone, Copy)]
pub enum Mark {
    /// Not less.
    AtLeast(f64),
    /// Not more.
    AtMost(f64),
}

/// Prints whether `value` reaches its mark.
pub fn compare(name: &str, value: f64, mark: &Mark) {
    let (reached, sign, wanted) = match *mark {
        Mark::AtLeast(wanted) => (value >= wanted, "≥", wanted),
        Mark::AtMost(wanted) => (value <= wanted, "≤", wanted),
    };
    let word = if reached { "reached" } else { "MISSED" };
    println!("{name:<46} {value:>9.2}   mark {sign} {wanted:<8} {word}");
}

/// A duration as a number.
pub fn milliseconds(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1000.0
}

/// CPU time that the daemon and its parent have used, without the processes that they started, in milliseconds.
pub fn computed(world: &World) -> f64 {
    let daemons = world.processes().into_iter();
    let daemons = daemons.filter(|process| process.name == "ryed");
    let used = daemons.map(|process| {
        let stat = fs::read_to_string(format!("/proc/{}/stat", process.pid)).unwrap_or_default();
        // Behind the name, which may hold anything: `utime` and `stime` are the fields 14 and 15 of all.
        let (_, fields) = stat.rsplit_once(") ").unwrap_or_default();
        let ticks = fields.split(' ').skip(11).take(2);
        let ticks: f64 = ticks.filter_map(|ticks| ticks.parse::<f64>().ok()).sum();
        ticks * TICK
    });
    used.sum()
}

/// Starts a daemon and waits until it answers; looked for each 0.2 ms, so that the time is its own.
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

/// Waits until the daemon has done what follows the end of runs, such as files of projects: until it computes next to nothing.
///
/// # Panics
/// If it still computes after half an hour.
pub async fn comes_to_rest(world: &World) {
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

/// What it takes to append so many `bytes` to a file in `directory` and to sync them, over and over.
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

/// Resident memory of the daemon and its parent in MB.
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
