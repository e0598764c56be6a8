//! The parent process with real children. Without arguments this program is the test. It starts itself again as a
//! parent process (`--parent SCRIPT`), whose daemon is a shell script, or as a daemon (`--daemon`) with one tool.
#![expect(
    clippy::disallowed_methods,
    clippy::print_stdout,
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test program without the standard harness"
)]

use std::io::{BufRead, BufReader, Lines};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use rye_process::{DEFAULT_GRACE, Input, Plan, Spawner, Stopper, harden, parent};

/// Timeout far beyond the duration of any test.
const LONG: Duration = Duration::from_mins(1);

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["--parent", script] => as_parent(script, 0),
        ["--restarts", restarts, script] => as_parent(script, restarts.parse().unwrap()),
        ["--daemon"] => daemon(),
        _ => {
            test();
            ExitCode::SUCCESS
        }
    }
}

fn as_parent(script: &str, restarts: u32) -> ExitCode {
    let daemon = |life| {
        let mut daemon = Command::new("/bin/sh");
        daemon.args(["-c", script, "sh"]).arg(match life {
            parent::Life::First => "first",
            parent::Life::Later(death) => death.as_str(),
        });
        Ok(daemon)
    };
    let state = Path::new("/nonexistent");
    parent::run(daemon, state, restarts)
        .unwrap()
        .shell_code()
        .into()
}

fn test() {
    let tests: [(&str, fn()); 10] = [
        (
            "parent_exits_with_code_of_daemon",
            parent_exits_with_code_of_daemon,
        ),
        (
            "parent_ends_leftover_processes_before_exit",
            parent_ends_leftover_processes_before_exit,
        ),
        (
            "crashed_daemon_is_restarted_a_few_times",
            crashed_daemon_is_restarted_a_few_times,
        ),
        (
            "daemon_that_exits_is_not_restarted",
            daemon_that_exits_is_not_restarted,
        ),
        (
            "stopped_daemon_is_not_restarted",
            stopped_daemon_is_not_restarted,
        ),
        (
            "signals_are_forwarded_repeatedly",
            signals_are_forwarded_repeatedly,
        ),
        ("daemon_has_own_process_group", daemon_has_own_process_group),
        ("adopted_zombies_are_reaped", adopted_zombies_are_reaped),
        ("dead_parent_stops_daemon", dead_parent_stops_daemon),
        (
            "tool_dies_with_daemon_without_parent",
            tool_dies_with_daemon_without_parent,
        ),
    ];
    for (name, test) in tests {
        test();
        println!("test {name} ... ok");
    }
}

/// This program, started again, with its output line by line. It ignores no signal, whatever the caller of the tests
/// does: under `nohup` or in the background of a shell some are ignored, and a script cannot trap those.
struct Started {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
    /// Held open: a script that reads it waits until it is dropped.
    input: Option<ChildStdin>,
}

impl Started {
    fn new(args: &[&str]) -> Self {
        let mut child = Command::new("env")
            .arg("--default-signal")
            .arg(std::env::current_exe().unwrap())
            .args(args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        Self {
            lines: BufReader::new(child.stdout.take().unwrap()).lines(),
            input: child.stdin.take(),
            child,
        }
    }

    fn line(&mut self) -> String {
        self.lines.next().unwrap().unwrap()
    }

    fn pid(&mut self) -> i32 {
        self.line().parse().unwrap()
    }

    fn signal(&self, signal: Signal) {
        send(i32::try_from(self.child.id()).unwrap(), signal);
    }

    fn code(mut self) -> i32 {
        drop(self.input.take());
        self.child.wait().unwrap().code().unwrap()
    }
}

fn send(pid: i32, signal: Signal) {
    kill(Pid::from_raw(pid), signal).unwrap();
}

fn exists(pid: i32) -> bool {
    kill(Pid::from_raw(pid), None).is_ok()
}

fn until_gone(pid: i32) {
    let deadline = Instant::now() + LONG;
    while exists(pid) {
        assert!(Instant::now() < deadline, "process {pid} is still there");
        std::thread::yield_now();
    }
}

fn parent_exits_with_code_of_daemon() {
    assert_eq!(Started::new(&["--parent", "exit 42"]).code(), 42);
    assert_eq!(Started::new(&["--parent", "kill -9 $$"]).code(), 128 + 9);
}

/// A session below the daemon with a session below it, and a group member; none of them knows the others.
const BROOD: &str = "
    setsid sh -c 'setsid sh -c \"echo \\$\\$; exec sleep 1000\" & echo $$; trap : TERM; wait; wait' &
    sleep 1000 & echo $!
    echo $$; read line";

fn parent_ends_leftover_processes_before_exit() {
    let mut parent = Started::new(&["--parent", BROOD]);
    let daemon_and_brood = [(); 4].map(|()| parent.pid());
    let parent_pid = i32::try_from(parent.child.id()).unwrap();
    // The daemon is the one whose parent is the parent process.
    let daemon = daemon_and_brood
        .into_iter()
        .find(|pid| parent_of(*pid) == parent_pid);
    send(daemon.unwrap(), Signal::SIGKILL);
    assert_eq!(parent.code(), 128 + 9);
    for pid in daemon_and_brood {
        assert!(!exists(pid), "{pid}");
    }
}

fn crashed_daemon_is_restarted_a_few_times() {
    // It is killed, then aborts, then is killed again.
    let script = "setsid sleep 1000 & echo $! $1; if [ $1 = fault ] || [ $1 = first ]; then kill -9 $$; fi; kill -ABRT $$";
    let mut parent = Started::new(&["--restarts", "2", script]);
    for lives in [&["first"][..], &["outside", "unknown"], &["fault"]] {
        let line = parent.line();
        let (left, told) = line.split_once(' ').unwrap();
        // Not every kernel reports that memory was exhausted.
        assert!(lives.contains(&told), "{told} is none of {lives:?}");
        // Processes of a daemon are gone before the next one starts, and before the end.
        until_gone(left.parse().unwrap());
    }
    assert!(parent.lines.next().is_none());
    assert_eq!(parent.code(), 128 + 9);
}

fn daemon_that_exits_is_not_restarted() {
    for (script, code) in [
        ("echo up", 0),
        ("echo up; exit 5", 5),
        ("echo up; exit 70", 70),
    ] {
        let mut parent = Started::new(&["--restarts", "5", script]);
        assert_eq!(parent.line(), "up");
        assert!(parent.lines.next().is_none(), "{script}");
        assert_eq!(parent.code(), code);
    }
}

fn stopped_daemon_is_not_restarted() {
    let script = "trap 'kill -9 $$' TERM; echo ready; while :; do sleep 0.01; done";
    let mut parent = Started::new(&["--restarts", "5", script]);
    assert_eq!(parent.line(), "ready");
    parent.signal(Signal::SIGTERM);
    assert!(parent.lines.next().is_none());
    assert_eq!(parent.code(), 128 + 9);
}

fn parent_of(pid: i32) -> i32 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("PPid:"));
    line.unwrap().trim().parse().unwrap()
}

fn signals_are_forwarded_repeatedly() {
    let script = "trap 'echo term' TERM; trap 'exit 5' HUP; echo ready
        while :; do sleep 0.01; done";
    let mut parent = Started::new(&["--parent", script]);
    assert_eq!(parent.line(), "ready");
    for _ in 0..2 {
        parent.signal(Signal::SIGTERM);
        assert_eq!(parent.line(), "term");
    }
    parent.signal(Signal::SIGHUP);
    assert_eq!(parent.code(), 5);
}

fn daemon_has_own_process_group() {
    let mut parent = Started::new(&["--parent", "cut -d' ' -f1,5 /proc/$$/stat"]);
    let line = parent.line();
    let (pid, group) = line.split_once(' ').unwrap();
    assert_eq!(pid, group);
    assert_eq!(parent.code(), 0);
}

fn adopted_zombies_are_reaped() {
    let mut parent = Started::new(&["--parent", "sh -c 'sleep 0 & echo $!'; read line"]);
    let orphan = parent.pid();
    until_gone(orphan);
    assert_eq!(
        parent.code(),
        1,
        "the daemon continued until its input closed"
    );
}

fn dead_parent_stops_daemon() {
    let script = "trap 'echo stopping; exit' TERM; echo $$; while :; do sleep 0.01; done";
    let mut parent = Started::new(&["--parent", script]);
    let daemon = parent.pid();
    parent.signal(Signal::SIGKILL);
    assert_eq!(parent.line(), "stopping");
    parent.child.wait().unwrap();
    until_gone(daemon);
}

fn tool_dies_with_daemon_without_parent() {
    let mut daemon = Started::new(&["--daemon"]);
    let tool = daemon.pid();
    assert!(exists(tool));
    daemon.signal(Signal::SIGKILL);
    daemon.child.wait().unwrap();
    until_gone(tool);
}

/// Starts a tool that never ends, prints its pid, and waits for it.
fn daemon() -> ExitCode {
    let plan = Plan {
        program: "/bin/sleep".into(),
        args: vec!["1000".into()],
        env: Vec::new(),
        cwd: "/".into(),
        confinement: rye_process::Confinement::Scoped,
        resources: rye_core::model::Resources::default(),
        stdin: Input::Bytes(Vec::new()),
        files: Vec::new(),
        timeout: LONG,
        grace: DEFAULT_GRACE,
        output_limit: 0,
    };
    let spawner = Spawner::new(None, harden(), None, None);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    runtime.unwrap().block_on(async {
        let running = spawner.start(plan, "tool#1").await.unwrap();
        println!("{}", running.identity().pid);
        let exited = running.finish(Stopper::new().listen()).await.unwrap();
        panic!("the tool ended before the daemon: {exited:?}");
    })
}
