//! Cost of a process, compared with the bare spawn-and-wait of the standard library: medians and quartiles, interleaved
//! so that all run under the same conditions, without and with a cgroup and a signal scope. `cargo bench -p ryed --bench spawn`
#![expect(
    clippy::disallowed_methods,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a measuring program"
)]

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use nix::unistd::Pid;
use rye_process::{
    AttemptCgroups, Confinement, DEFAULT_GRACE, Exit, Input, Plan, SignalScope, Spawner, Stopper,
    harden, parent,
};
use ryed::config::Environment;

const ROUNDS: usize = 400;

/// Two processes, as for the daemon.
fn main() -> ExitCode {
    let environment = Environment::capture();
    let daemon = |life| Ok(parent::daemon_command(life, environment.seal_hidden()?));
    match parent::of_this_process(environment.claimed_parent()) {
        Some(parent) => measure(parent),
        None => parent::run(daemon, Path::new("/nonexistent"), 0)
            .unwrap()
            .shell_code()
            .into(),
    }
}

fn measure(parent: Pid) -> ExitCode {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build();
    runtime.unwrap().block_on(async {
        let state = tempfile::tempdir().unwrap();
        let cgroups = AttemptCgroups::prepare(state.path(), parent);
        let cgroups = cgroups
            .inspect_err(|why| println!("no cgroups: {why}"))
            .ok();
        let scope = SignalScope::prepare();
        let scope = scope
            .inspect_err(|why| println!("no signal scope: {why}"))
            .ok();
        let open_files = harden();
        let plain = Spawner::new(Some(parent), open_files, None, None);
        let mut spawners = vec![("start and finish", plain)];
        if let Some(cgroups) = cgroups {
            let own = Some(Arc::clone(&cgroups));
            let spawner = Spawner::new(Some(parent), open_files, own, None);
            spawners.push(("in a cgroup", spawner));
            let spawner = Spawner::new(Some(parent), open_files, Some(cgroups), scope);
            spawners.push(("and a signal scope", spawner));
        }
        // The daemon holds some memory, which must not slow a spawn.
        let ballast = vec![1_u8; 64 << 20];
        for line in [
            &["/bin/true"][..],
            &["/bin/bash", "-c", "true"],
            &["/bin/bash", "-c", "ls / | wc -l"],
        ] {
            let mut bare = Vec::new();
            let mut ours = vec![Vec::new(); spawners.len()];
            for _ in 0..ROUNDS {
                bare.push(spawn_bare(line));
                for ((_, spawner), times) in spawners.iter().zip(&mut ours) {
                    times.push(spawn_ours(spawner, line).await);
                }
            }
            println!(
                "{} (µs: lower quartile, median, upper quartile)",
                line.join(" ")
            );
            let floor = show("bare spawn and wait", bare);
            let mut plain = None;
            for ((what, _), times) in spawners.iter().zip(ours) {
                let median = show(what, times).as_secs_f64();
                let plain = *plain.get_or_insert(median);
                let (bare, plain) = (median / floor.as_secs_f64(), median / plain);
                println!("    {bare:.2} of the bare one, {plain:.2} of the plain one");
            }
        }
        drop(ballast);
    });
    ExitCode::SUCCESS
}

fn spawn_bare(line: &[&str]) -> Duration {
    let started = Instant::now();
    let status = Command::new(line[0])
        .args(&line[1..])
        .env_clear()
        .env("PATH", "/usr/bin:/bin")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    assert!(status.unwrap().success());
    started.elapsed()
}

async fn spawn_ours(spawner: &Spawner, line: &[&str]) -> Duration {
    let plan = Plan {
        program: PathBuf::from(line[0]),
        args: line[1..].iter().map(Into::into).collect(),
        env: vec![("PATH".into(), "/usr/bin:/bin".into())],
        cwd: "/".into(),
        confinement: Confinement::Scoped,
        resources: rye_core::model::Resources::default(),
        stdin: Input::Bytes(b"{}".to_vec()),
        files: Vec::new(),
        timeout: Duration::from_mins(5),
        grace: DEFAULT_GRACE,
        output_limit: 8 << 20,
    };
    let started = Instant::now();
    let running = spawner.start(plan, "bench#1").await.unwrap();
    let exited = running.finish(Stopper::new().listen()).await.unwrap();
    assert_eq!(exited.exit, Exit::Code(0));
    started.elapsed()
}

/// Prints quartiles and returns the median.
fn show(what: &str, mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    let at = |quarter: usize| times[times.len() * quarter / 4];
    let [low, middle, high] = [1, 2, 3].map(|quarter| at(quarter).as_micros());
    println!("  {what:<20} {low:>6} {middle:>6} {high:>6}");
    at(2)
}
