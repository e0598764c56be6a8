//! Real children with various kinds of misbehaviour. A child writes to a FIFO when a test must wait for it.

use std::ffi::OsString;
use std::fs;
use std::os::fd::AsFd as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use nix::sys::prctl;
use nix::sys::signal::{Signal, kill};
use nix::sys::stat::Mode;
use nix::unistd::{Pid, getpid, mkfifo};
use tempfile::TempDir;
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe;

use rye_core::model::{KillReceipt, ProcessIdentity, Resources};

use super::procfs::{Stat, Variable};
use super::running::Leader;
use super::*;
use rye_host::task;

mod contained;
mod usage;

/// Timeout far beyond the duration of any test; tests of earlier ends measure the time.
const LONG: Duration = Duration::from_mins(1);

/// KILL without TERM.
const AT_ONCE: StopReason = StopReason::Kill {
    grace: Duration::ZERO,
};

/// A directory to run children in. With an adopter, the test process acts as the parent process of the daemon.
struct Bench {
    directory: TempDir,
    spawner: Spawner,
}

impl Bench {
    fn new() -> Self {
        prctl::set_child_subreaper(true).unwrap();
        Self {
            directory: tempfile::tempdir().unwrap(),
            spawner: Spawner::new(Some(getpid()), host::inherited_open_files(), None, None),
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// A plan that runs `script` in a shell, in the bench's directory.
    fn shell(&self, script: &str) -> Plan {
        Plan {
            program: PathBuf::from("sh"),
            args: vec!["-c".into(), script.into()],
            env: vec![("PATH".into(), "/usr/local/bin:/usr/bin:/bin".into())],
            cwd: self.directory.path().to_owned(),
            confinement: Confinement::Scoped,
            resources: Resources::default(),
            stdin: Input::Bytes(Vec::new()),
            files: Vec::new(),
            timeout: LONG,
            grace: DEFAULT_GRACE,
            output_limit: 8 << 20,
        }
    }

    async fn start(&self, plan: Plan, tag: &str) -> Running {
        self.spawner.start(plan, tag).await.unwrap()
    }

    /// Tests share the adopter, so only the tag keeps their processes apart.
    fn tag(&self) -> String {
        format!("{}#1", self.directory.path().display())
    }

    async fn run(&self, plan: Plan) -> Exited {
        let running = self.start(plan, &self.tag()).await;
        running.finish(Stopper::new().listen()).await.unwrap()
    }

    fn fifo(&self, name: &str) -> Fifo {
        let path = self.path(name);
        mkfifo(&path, Mode::S_IRWXU).unwrap();
        let mut options = pipe::OpenOptions::new();
        Fifo(options.read_write(true).open_receiver(&path).unwrap())
    }
}

/// Receives messages from a child.
struct Fifo(pipe::Receiver);

impl Fifo {
    /// Waits for a line and returns it.
    async fn line(&mut self) -> String {
        let mut line = Vec::new();
        let read = async {
            loop {
                match self.0.read_u8().await.unwrap() {
                    b'\n' => break,
                    byte => line.push(byte),
                }
            }
        };
        tokio::time::timeout(LONG, read).await.unwrap();
        String::from_utf8(line).unwrap()
    }

    async fn pid(&mut self) -> i32 {
        self.line().await.trim().parse().unwrap()
    }
}

fn text(captured: &Captured) -> String {
    String::from_utf8(captured.bytes.clone()).unwrap()
}

fn is_alive(pid: i32) -> bool {
    Stat::read(pid).is_some_and(|stat| stat.is_alive())
}

#[tokio::test]
async fn process_passes_input_output_and_exit_code() {
    let bench = Bench::new();
    let mut plan = bench.shell("cat; echo complaint >&2; exit 3");
    plan.stdin = Input::Bytes(b"question".to_vec());
    let exited = bench.run(plan).await;
    assert_eq!(exited.exit, Exit::Code(3));
    assert_eq!(text(&exited.stdout), "question");
    assert_eq!(text(&exited.stderr), "complaint\n");
    assert_eq!(exited.ended_by, None);
    assert!(exited.receipt.processes.is_empty());
    assert!(!exited.pipe_leak && !exited.stdout.is_truncated());
}

#[tokio::test]
async fn large_input_and_output_are_streamed_together() {
    let bench = Bench::new();
    let input = vec![b'x'; 3 << 20];
    let mut plan = bench.shell("cat");
    plan.stdin = Input::Bytes(input.clone());
    assert!(bench.run(plan).await.stdout.bytes == input);
    let mut plan = bench.shell("exit 0");
    plan.stdin = Input::Bytes(input);
    assert_eq!(
        bench.run(plan).await.exit,
        Exit::Code(0),
        "input need not be read"
    );
}

#[tokio::test]
async fn child_gets_only_planned_environment_and_files() {
    let bench = Bench::new();
    let mut plan = bench.shell("env; pwd; cat; ulimit -c");
    plan.env.push(("RYE_ATTEMPT".into(), "forged".into()));
    plan.env.push(("NAME".into(), "a value".into()));
    let output = text(&bench.run(plan).await.stdout);
    let mut lines: Vec<&str> = output
        .lines()
        .filter(|line| !line.starts_with('_'))
        .collect();
    lines.sort_unstable();
    let directory = bench.directory.path().to_str().unwrap();
    let pwd = format!("PWD={directory}");
    let tag = format!("RYE_ATTEMPT={}", bench.tag());
    let mut expected = vec![
        "NAME=a value",
        "PATH=/usr/local/bin:/usr/bin:/bin",
        &tag,
        &pwd,
        directory,
        "0",
    ];
    expected.sort_unstable();
    assert_eq!(lines, expected);
}

#[tokio::test]
async fn child_starts_with_default_signals_and_mask() {
    let bench = Bench::new();
    let mut plan = bench.shell("");
    plan.program = "/bin/cat".into();
    plan.args = vec!["/proc/self/status".into(), "/proc/self/stat".into()];
    let running = bench.start(plan, "clean").await;
    let identity = running.identity().clone();
    let exited = running.finish(Stopper::new().listen()).await.unwrap();
    let output = text(&exited.stdout);
    for line in [
        "NoNewPrivs:\t1",
        "SigBlk:\t0000000000000000",
        "SigIgn:\t0000000000000000",
    ] {
        assert!(output.contains(line), "{line} in {output}");
    }
    let fields: Vec<&str> = output.lines().last().unwrap().split(' ').collect();
    let pid = identity.pid.to_string();
    assert_eq!(
        [fields[0], fields[4], fields[5]],
        [&pid; 3],
        "pid, group, session"
    );
    assert_eq!(fields[21], identity.start_time.to_string());
    assert_eq!(identity.boot_id, boot_id());
}

#[tokio::test]
async fn process_reads_verified_file_contents() {
    let bench = Bench::new();
    let mut plan = bench.shell("");
    plan.args = vec![file_path(1).into(), file_path(0).into()];
    plan.files = vec![
        b"one\n".to_vec(),
        b"cat \"$1\"; echo x >> \"$1\" || echo sealed; cat \"$1\"\n".to_vec(),
    ];
    assert_eq!(text(&bench.run(plan).await.stdout), "one\nsealed\none\n");
    let mut plan = bench.shell("");
    plan.program = "ls".into();
    plan.args = vec!["/proc/self/fd".into()];
    plan.files = vec![b"content".to_vec()];
    let open = text(&bench.run(plan).await.stdout);
    assert_eq!(
        open, "0\n1\n2\n3\n4\n",
        "three streams, one file, and the listing itself"
    );
}

#[tokio::test]
async fn signal_is_not_an_exit_code() {
    let bench = Bench::new();
    for (signal, shown) in [(11, "signal SIGSEGV"), (40, "signal 40")] {
        let exited = bench.run(bench.shell(&format!("kill -{signal} $$"))).await;
        assert_eq!(exited.exit, Exit::Signal(signal));
        assert_eq!(exited.exit.to_string(), shown);
        assert_eq!(exited.ended_by, None);
    }
}

#[tokio::test]
async fn excess_output_is_counted_and_dropped() {
    let bench = Bench::new();
    let mut plan = bench.shell("head -c 1073741824 /dev/zero; printf '\\377\\376' >&2");
    plan.output_limit = 1 << 20;
    let exited = bench.run(plan).await;
    assert_eq!(exited.exit, Exit::Code(0));
    assert_eq!(exited.stdout.bytes.len(), 1 << 20);
    assert_eq!(exited.stdout.total, 1 << 30);
    assert!(exited.stdout.is_truncated());
    assert_eq!(exited.stderr.bytes, [0xff, 0xfe], "bytes need not be text");
}

#[tokio::test]
async fn process_with_closed_output_is_awaited() {
    let bench = Bench::new();
    let mut plan = bench.shell("exec >&- 2>&-; read line; exit ${#line}");
    plan.stdin = Input::Bytes(b"seven77\n".to_vec());
    let exited = bench.run(plan).await;
    assert_eq!(exited.exit, Exit::Code(7));
    assert!(!exited.pipe_leak);
}

#[tokio::test]
async fn cancel_grants_grace_period() {
    let bench = Bench::new();
    let mut ready = bench.fifo("ready");
    let plan =
        bench.shell("trap 'echo bye; exit 7' TERM; echo > ready; while :; do sleep 0.01; done");
    let stopper = Stopper::new();
    let running = bench.start(plan, "cancel").await;
    let (exited, ()) = tokio::join!(running.finish(stopper.listen()), async {
        ready.line().await;
        stopper.stop(StopReason::Cancel);
    });
    let exited = exited.unwrap();
    assert_eq!(exited.exit, Exit::Code(7));
    assert_eq!(exited.ended_by, Some(StopReason::Cancel));
    assert_eq!(text(&exited.stdout), "bye\n");
    assert_eq!(exited.receipt.processes[0].exit, Some(7));
}

#[tokio::test]
async fn process_ignoring_term_is_killed_after_grace() {
    let bench = Bench::new();
    let mut ready = bench.fifo("ready");
    let mut plan = bench.shell("trap '' TERM; echo > ready; while :; do sleep 0.01; done");
    plan.grace = Duration::from_millis(50);
    let stopper = Stopper::new();
    let running = bench.start(plan, "stubborn").await;
    let (exited, ()) = tokio::join!(running.finish(stopper.listen()), async {
        ready.line().await;
        stopper.stop(StopReason::Cancel);
    });
    let exited = exited.unwrap();
    assert_eq!(exited.exit, Exit::Signal(9));
    assert_eq!(exited.ended_by, Some(StopReason::Cancel));
}

#[tokio::test]
async fn kill_shortens_grace() {
    let bench = Bench::new();
    let mut ready = bench.fifo("ready");
    let mut plan =
        bench.shell("trap 'echo > ready' TERM; echo > ready; while :; do sleep 0.01; done");
    plan.grace = LONG * 60;
    let stopper = Stopper::new();
    let running = bench.start(plan, "kill").await;
    let (exited, ()) = tokio::join!(running.finish(stopper.listen()), async {
        ready.line().await;
        stopper.stop(StopReason::Cancel);
        ready.line().await;
        stopper.stop(AT_ONCE);
        stopper.stop(StopReason::Cancel);
    });
    let exited = exited.unwrap();
    assert_eq!(exited.exit, Exit::Signal(9));
    assert_eq!(exited.ended_by, Some(AT_ONCE));
}

#[tokio::test]
async fn timeout_ends_whole_group() {
    let bench = Bench::new();
    let mut ready = bench.fifo("ready");
    let mut plan =
        bench.shell("for child in 1 2 3; do sh -c 'echo > ready; exec sleep 1000' & done; wait");
    // Long enough for the children to start on a busy machine.
    plan.timeout = Duration::from_secs(3);
    plan.grace = LONG;
    let running = bench.start(plan, &bench.tag()).await;
    let stopper = Stopper::new();
    let (exited, ()) = tokio::join!(running.finish(stopper.listen()), async {
        for _ in 0..3 {
            ready.line().await;
        }
    });
    let exited = exited.unwrap();
    assert_eq!(exited.ended_by, Some(StopReason::Timeout));
    assert_eq!(exited.exit, Exit::Signal(15));
    assert!(exited.elapsed >= Duration::from_secs(3));
    assert!(exited.elapsed < LONG, "TERM was enough");
    let mut ended: Vec<&str> = exited
        .receipt
        .processes
        .iter()
        .map(|p| p.comm.as_str())
        .collect();
    ended.sort_unstable();
    assert_eq!(ended, ["sh", "sleep", "sleep", "sleep"]);
    assert!(exited.receipt.survivors.is_empty());
    assert!(
        exited
            .receipt
            .processes
            .iter()
            .all(|process| !is_alive(process.pid))
    );
}

#[tokio::test]
async fn stop_requested_before_start_applies() {
    let bench = Bench::new();
    let stopper = Stopper::new();
    stopper.stop(AT_ONCE);
    let running = bench.start(bench.shell("sleep 1000"), "early").await;
    let exited = running.finish(stopper.listen()).await.unwrap();
    assert_eq!(exited.ended_by, Some(AT_ONCE));
}

#[tokio::test]
async fn group_ends_with_leader() {
    let bench = Bench::new();
    let exited = bench.run(bench.shell("sleep 1000 & echo $!")).await;
    let pid: i32 = text(&exited.stdout).trim().parse().unwrap();
    assert_eq!(exited.exit, Exit::Code(0));
    assert_eq!(exited.ended_by, None);
    assert!(!is_alive(pid) && !exited.pipe_leak);
    let [ended] = &exited.receipt.processes[..] else {
        panic!("one process was left: {:?}", exited.receipt);
    };
    assert_eq!((ended.pid, ended.signal), (pid, Some(9)));
}

/// Starts `sleep` in a session of its own, below a process that dies, and writes its pid to the FIFO `away`.
const RUN_AWAY: &str = "setsid sh -c 'echo $$ > away; exec sleep 1000' & read go < go";

#[tokio::test]
async fn process_outside_group_is_found_by_tag() {
    let bench = Bench::new();
    let mut away = bench.fifo("away");
    let _go = bench.fifo("go");
    let go = bench.path("go");
    let running = bench.start(bench.shell(RUN_AWAY), "test#tag").await;
    let (exited, pid) = tokio::join!(running.finish(Stopper::new().listen()), async {
        let pid = away.pid().await;
        fs::write(&go, "go\n").unwrap();
        pid
    });
    let exited = exited.unwrap();
    assert_eq!(exited.exit, Exit::Code(0));
    assert!(!is_alive(pid) && !exited.pipe_leak);
    assert_eq!(exited.receipt.processes.len(), 1);
    assert_eq!(exited.receipt.processes[0].pid, pid);
}

/// Trees that a leader leaves behind. Each process is in a session of its own or below one; all are `sleep`, so that
/// they would stay for long.
const TREES: [&str; 4] = [
    "setsid sh -c 'sleep 1001; sleep 1002'",
    "setsid sh -c 'setsid sh -c \"sleep 1001; sleep 1002\"; sleep 1003'",
    "setsid sh -c 'setsid sh -c \"setsid sh -c \\\"sleep 1001; sleep 1002\\\"; sleep 1003\"; sleep 1004'",
    "setsid sh -c 'while :; do setsid sh -c \"sleep 1001; sleep 1002\" & sleep 0.002; done'",
];

/// Kills the living processes whose environment holds a tag with this prefix, and returns them.
fn end_tagged(tag: &str) -> Vec<Stat> {
    let entry = format!("{ATTEMPT_VARIABLE}={tag}");
    let is_tagged = |stat: &Stat| {
        fs::read(format!("/proc/{}/environ", stat.pid)).is_ok_and(|environment| {
            environment
                .split(|&byte| byte == 0)
                .any(|variable| variable.starts_with(entry.as_bytes()))
        })
    };
    let tagged: Vec<Stat> = procfs::all()
        .into_iter()
        .filter(|stat| stat.is_alive() && is_tagged(stat))
        .collect();
    for stat in &tagged {
        kill(Pid::from_raw(stat.pid), Signal::SIGKILL).unwrap();
    }
    tagged
}

/// Processes that a leader starts just before it ends: each is in an exec, or between fork and exit, around the
/// leader's death.
const JUST_STARTED: [&str; 3] = [
    "(setsid sh -c 'sleep 1000; echo late' &)",
    "(setsid sh -c 'sleep 1000; echo late' > /dev/null 2>&1 &)",
    "setsid setsid sh -c 'sleep 1000; echo' > /dev/null 2>&1 &",
];

#[tokio::test]
async fn just_started_processes_end_with_leader() {
    let bench = Bench::new();
    for round in 0..20 {
        for (shape, start) in JUST_STARTED.into_iter().enumerate() {
            let run = async |nth: i32| {
                let tag = format!("{}.{shape}.{round}.{nth}", bench.tag());
                let running = bench
                    .start(bench.shell(&format!("{start}\necho ok")), &tag)
                    .await;
                running.finish(Stopper::new().listen()).await.unwrap()
            };
            let (a, b, c, d) = tokio::join!(run(0), run(1), run(2), run(3));
            for exited in [a, b, c, d] {
                assert_eq!(text(&exited.stdout), "ok\n");
                assert!(!exited.pipe_leak, "{start}: {:?}", exited.receipt);
            }
        }
    }
    for (shape, start) in JUST_STARTED.into_iter().enumerate() {
        let left = end_tagged(&format!("{}.{shape}.", bench.tag()));
        assert_eq!(left.len(), 0, "{start}: {left:?}");
    }
}

#[tokio::test]
async fn repeated_exec_keeps_process_tagged() {
    let bench = Bench::new();
    fs::write(bench.path("again"), "exec sh ./again\n").unwrap();
    let mut plan = bench.shell("exec sh ./again");
    plan.env.push(("LONG".into(), "x".repeat(6000).into()));
    // The kernel's files are first read by a few bytes: the tag is longer, so that it can be cut.
    let tag = format!("test#again.{}", "x".repeat(40));
    let running = bench.start(plan, &tag).await;
    let pid = running.identity().pid;
    let stopper = Stopper::new();
    let (exited, looks) = tokio::join!(running.finish(stopper.listen()), async {
        let looks = task::blocking("looks", move || {
            let looks =
                (0..20_000).filter_map(|_| Some(Stat::read(pid)?.variable(ATTEMPT_VARIABLE)));
            looks.collect::<Vec<_>>()
        });
        let looks = looks.await;
        stopper.stop(AT_ONCE);
        looks
    });
    exited.unwrap();
    let is = Variable::Is(tag.into_bytes());
    let unsettled = looks
        .iter()
        .filter(|look| **look == Variable::Unsettled)
        .count();
    let known = looks.iter().filter(|look| **look == is).count();
    assert_eq!(known + unsettled, 20_000, "never absent, never another");
    assert!(known > 0);
}

#[tokio::test]
async fn tree_dying_from_root_leaves_no_process() {
    let bench = Bench::new();
    for round in 0..3 {
        for (shape, tree) in TREES.into_iter().enumerate() {
            for end in ["exit 0", "exec sleep 1000"] {
                let tag = format!("{}.{round}.{shape}.{end}", bench.tag());
                let script = format!("({tree} > /dev/null 2>&1 &); sleep 0.1; {end}");
                let stopper = Stopper::new();
                let mut plan = bench.shell(&script);
                plan.timeout = Duration::from_millis(200);
                let running = bench.start(plan, &tag).await;
                let exited = running.finish(stopper.listen()).await.unwrap();
                let left = end_tagged(&tag);
                assert_eq!(left, [], "{script}, round {round}: {:?}", exited.receipt);
                assert_eq!(exited.receipt.survivors, [0; 0], "{script}");
                let ended = |pid| {
                    exited
                        .receipt
                        .processes
                        .iter()
                        .filter(|it| it.pid == pid)
                        .count()
                };
                assert!(exited.receipt.processes.iter().all(|it| ended(it.pid) == 1));
            }
        }
    }
}

#[tokio::test]
async fn untagged_process_seen_at_stop_is_ended() {
    let bench = Bench::new();
    let mut away = bench.fifo("away");
    let _go = bench.fifo("go");
    let script = RUN_AWAY.replace("setsid sh", "env -i /usr/bin/setsid /bin/sh");
    let stopper = Stopper::new();
    let running = bench.start(bench.shell(&script), "test#seen").await;
    let (exited, pid) = tokio::join!(running.finish(stopper.listen()), async {
        let pid = away.pid().await;
        stopper.stop(StopReason::Cancel);
        pid
    });
    let exited = exited.unwrap();
    assert!(!is_alive(pid) && !exited.pipe_leak);
    assert!(
        exited
            .receipt
            .processes
            .iter()
            .any(|ended| ended.pid == pid)
    );
}

#[tokio::test]
async fn escaped_process_holding_output_is_a_leak() {
    let bench = Bench::new();
    let mut away = bench.fifo("away");
    let _go = bench.fifo("go");
    let go = bench.path("go");
    let script = RUN_AWAY.replace("setsid sh", "env -i /usr/bin/setsid /bin/sh");
    let running = bench.start(bench.shell(&script), "test#leak").await;
    let (exited, pid) = tokio::join!(running.finish(Stopper::new().listen()), async {
        let pid = away.pid().await;
        fs::write(&go, "go\n").unwrap();
        pid
    });
    let exited = exited.unwrap();
    assert!(exited.pipe_leak && is_alive(pid));
    assert!(exited.elapsed < LONG);
    kill(Pid::from_raw(pid), Signal::SIGKILL).unwrap();
}

#[tokio::test]
async fn dropped_process_is_killed_and_reaped() {
    let bench = Bench::new();
    let mut ready = bench.fifo("ready");
    let running = bench
        .start(bench.shell("sleep 1000 & echo $! > ready; wait"), "dropped")
        .await;
    let leader = running.identity().pid;
    let child = ready.pid().await;
    let finish = running.finish(Stopper::new().listen());
    assert!(
        tokio::time::timeout(Duration::from_millis(1), finish)
            .await
            .is_err()
    );
    for pid in [leader, child] {
        if let Some(held) = Stat::read(pid).and_then(pidfd::ProcessHandle::take) {
            assert!(held.has_ended_by(std::time::Instant::now() + LONG));
        }
    }
    bench.run(bench.shell("")).await;
    assert_eq!(Stat::read(leader), None);
}

#[tokio::test]
async fn start_failure_reports_reason() {
    let bench = Bench::new();
    fs::write(bench.path("text"), "no program").unwrap();
    let start = async |change: &dyn Fn(&mut Plan)| {
        let mut plan = bench.shell("exit 0");
        change(&mut plan);
        let error = bench.spawner.start(plan, "t").await.unwrap_err();
        rye_core::error::with_sources(&error)
    };
    let here = bench.directory.path().display().to_string();
    assert_eq!(
        start(&|plan| {
            plan.program = "no-such-tool".into();
            plan.env = vec![("PATH".into(), "/bin:tools".into())];
        })
        .await,
        format!(
            "program `no-such-tool` not found (looked for `/bin/no-such-tool`, `{here}/tools/no-such-tool`)"
        )
    );
    assert_eq!(
        start(&|plan| {
            plan.program = "gone".into();
            plan.env.clear();
        })
        .await,
        "program `gone` not found (looked for it nowhere: its environment has no PATH)"
    );
    assert_eq!(
        start(&|plan| plan.program = "./text".into()).await,
        format!("failed to execute `{here}/./text`: EACCES: Permission denied")
            .replace("EACCES: ", "")
            + " (os error 13)"
    );
    assert_eq!(
        start(&|plan| {
            plan.program = "/bin/true".into();
            plan.cwd = "/nowhere".into();
        })
        .await,
        "failed to enter the working directory `/nowhere`: No such file or directory (os error 2)"
    );
    assert_eq!(
        start(&|plan| plan.args.push(OsString::from("a\0b"))).await,
        "argument 3 of `sh` holds a NUL byte"
    );
    assert_eq!(
        start(&|plan| plan.args.push("x".repeat(MAX_ARGUMENT_BYTES + 1).into())).await,
        "argument 3 of `sh` has 131072 bytes, and the kernel takes at most 131071: pass large data on stdin or in a file"
    );
    assert_eq!(
        start(&|plan| plan
            .env
            .push(("LONG".into(), "x".repeat(MAX_ARGUMENT_BYTES).into())))
        .await,
        "the variable `LONG` of `sh` has 131076 bytes, and the kernel takes at most 131071: pass large data on stdin or in a file"
    );
    let together = start(&|plan| {
        plan.args
            .extend(vec![OsString::from("x".repeat(MAX_ARGUMENT_BYTES)); 64]);
    })
    .await;
    assert!(
        together.contains("bytes together, more than the kernel takes"),
        "{together}"
    );
}

#[tokio::test]
async fn cleanup_ends_leftovers_and_spares_strangers() {
    let bench = Bench::new();
    let mut ready = bench.fifo("ready");
    let script = "sleep 1000 & echo $! > ready; wait";
    let running = bench.start(bench.shell(script), "left").await;
    let child = ready.pid().await;
    let identity = running.identity().clone();
    let (mut younger, mut elsewhere) = (identity.clone(), identity.clone());
    younger.start_time += 1;
    elsewhere.boot_id = "another".into();
    assert_eq!(
        end_leftovers(&[untagged(younger), untagged(elsewhere)]),
        KillReceipt::default()
    );
    assert!(is_alive(child));
    let mut ended: Vec<i32> = end_leftovers(&[untagged(identity.clone())])
        .processes
        .iter()
        .map(|ended| ended.pid)
        .collect();
    ended.sort_unstable();
    let mut expected = [identity.pid, child];
    expected.sort_unstable();
    assert_eq!(ended, expected);
    assert!(!is_alive(child));
}

#[tokio::test]
async fn unrecorded_process_is_found_by_tag() {
    let bench = Bench::new();
    let mut ready = bench.fifo("ready");
    let script = "setsid sh -c 'echo $$ > ready; exec sleep 1000' & wait";
    let running = bench.start(bench.shell(script), "announced.1").await;
    let child = ready.pid().await;
    let call = |tag: &str| Leftover {
        leader: None,
        tag: tag.into(),
    };
    assert_eq!(
        end_leftovers(&[call("announced.2")]),
        KillReceipt::default()
    );
    assert!(is_alive(child));
    let ended = end_leftovers(&[call("announced.1")]);
    assert!(
        ended.processes.iter().any(|ended| ended.pid == child),
        "{ended:?}"
    );
    assert!(!is_alive(child));
    drop(running);
}

#[tokio::test]
async fn tag_ending_in_dot_matches_prefix() {
    let bench = Bench::new();
    let mut plan = bench.shell("exec cat");
    plan.stdin = Input::Pipe;
    let running = bench.start(plan, "family.a.1").await;
    let pid = running.identity().pid;
    let call = |tag: &str| Leftover {
        leader: None,
        tag: tag.into(),
    };
    for other in ["family.", "family.b.", "family.a"] {
        assert_eq!(end_leftovers(&[call(other)]), KillReceipt::default());
    }
    assert!(is_alive(pid));
    let ended = end_leftovers(&[call("family.a.")]);
    assert!(ended.processes.iter().any(|ended| ended.pid == pid));
    drop(running);
}

#[tokio::test]
async fn process_with_taken_pipes_can_be_used_while_followed() {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let bench = Bench::new();
    let mut plan = bench.shell("while read line; do echo \"<$line>\"; done; echo end >&2; exit 4");
    plan.stdin = Input::Pipe;
    let mut running = bench.start(plan, &bench.tag()).await;
    let (mut stdin, mut stdout) = running.take_pipes().unwrap();
    assert!(running.take_pipes().is_err());
    let talk = async {
        let mut heard = [0; 8];
        for line in ["one\n", "two\n"] {
            stdin.write_all(line.as_bytes()).await.unwrap();
        }
        stdout.read_exact(&mut heard[..5]).await.unwrap();
        assert_eq!(&heard[..5], b"<one>");
        drop(stdin);
    };
    let (exited, ()) = tokio::join!(running.finish(Stopper::new().listen()), talk);
    let exited = exited.unwrap();
    assert_eq!(exited.exit, Exit::Code(4));
    assert_eq!(text(&exited.stderr), "end\n");
    assert_eq!(exited.stdout.total, 0);
}

#[tokio::test]
async fn leaderless_session_members_need_tag() {
    let bench = Bench::new();
    let mut away = bench.fifo("away");
    fs::write(bench.path("member"), "echo $$ > away; exec sleep 1000").unwrap();
    let nobody_adopts = Spawner::new(None, host::inherited_open_files(), None, None);
    for (environment, survives) in [("env", false), ("env -i", true)] {
        let script = format!(
            "setsid sh -c '{environment} /bin/sh member > /dev/null 2>&1 & echo $$' > leader; exec cat leader"
        );
        let running = nobody_adopts.start(bench.shell(&script), "lost").await;
        let exited = running.unwrap().finish(Stopper::new().listen()).await;
        let member = away.pid().await;
        let leader = ProcessIdentity {
            pid: text(&exited.unwrap().stdout).trim().parse().unwrap(),
            start_time: 1,
            boot_id: boot_id(),
        };
        let receipt = end_leftovers(&[untagged(leader)]);
        assert_eq!(is_alive(member), survives, "{environment}: {receipt:?}");
        if survives {
            kill(Pid::from_raw(member), Signal::SIGKILL).unwrap();
        }
    }
}

#[tokio::test]
async fn caller_below_daemon_is_inside_and_dead_one_unknown() {
    let bench = Bench::new();
    let listener = tokio::net::UnixListener::bind(bench.path("sock")).unwrap();
    let mut plan = bench.shell("");
    plan.program = "python3".into();
    plan.args = vec![
        "-c".into(),
        "import socket; s = socket.socket(socket.AF_UNIX); s.connect('sock'); s.recv(1)".into(),
    ];
    let running = bench.start(plan, "caller").await;
    let pid = running.identity().pid;
    let (exited, peer) = tokio::join!(running.finish(Stopper::new().listen()), async {
        let (stream, _) = listener.accept().await.unwrap();
        let peer = Peer::of(&stream).unwrap();
        assert_eq!(peer.pid().as_raw(), pid);
        let inside = Lineage::Inside {
            attempt: b"caller".to_vec(),
        };
        assert_eq!(peer.lineage(None, None), inside);
        peer
    });
    assert_eq!(exited.unwrap().exit, Exit::Code(0));
    assert_eq!(peer.lineage(None, None), Lineage::Unknown);
}

/// A client that connects to `sock` and stays, started outside of every run with `environment`.
fn stranger(bench: &Bench, environment: &[(&str, &str)]) -> std::process::Child {
    let script = "import socket; s = socket.socket(socket.AF_UNIX); s.connect('sock'); s.recv(1)";
    #[expect(clippy::disallowed_methods, reason = "it is started by nobody of ours")]
    let mut command = std::process::Command::new("python3");
    command
        .args(["-c", script])
        .current_dir(bench.directory.path());
    command.envs(environment.iter().copied()).spawn().unwrap()
}

#[tokio::test]
async fn caller_with_attempt_tag_is_inside() {
    let bench = Bench::new();
    let listener = tokio::net::UnixListener::bind(bench.path("sock")).unwrap();
    for (environment, expected) in [
        (
            vec![(ATTEMPT_VARIABLE, "of.another")],
            b"of.another".to_vec(),
        ),
        // It is a descendant of this process, which acts as the daemon here.
        (vec![], Vec::new()),
    ] {
        let mut child = stranger(&bench, &environment);
        let (stream, _) = listener.accept().await.unwrap();
        let peer = Peer::of(&stream).unwrap();
        let inside = Lineage::Inside { attempt: expected };
        assert_eq!(peer.lineage(None, None), inside);
        child.kill().unwrap();
        let _ended = child.wait().unwrap();
    }
}

/// A call whose tag no process carries.
fn untagged(leader: ProcessIdentity) -> Leftover {
    Leftover {
        leader: Some(leader),
        tag: "nobody.carries.this".into(),
    }
}

#[tokio::test(start_paused = true)]
async fn process_surviving_kill_is_reported() {
    let bench = Bench {
        spawner: Spawner::new(None, host::inherited_open_files(), None, None),
        ..Bench::new()
    };
    let started = bench.start(bench.shell("sleep 1000"), &bench.tag()).await;
    let pidfd = started.leader.as_fd().try_clone_to_owned().unwrap();
    // Its signals go to a group that no process can have, so the test sees a process that KILL does not end.
    let nowhere = Pid::from_raw(i32::MAX);
    let Running {
        leader, identity, ..
    } = &started;
    let (pid, began) = (identity.pid, leader.started);
    let immune = Running {
        leader: Leader::new(
            (nowhere, pidfd, began),
            None,
            Arc::new(bench.spawner.clone()),
        ),
        ..started
    };
    let stopper = Stopper::new();
    stopper.stop(AT_ONCE);
    let exited = immune.finish(stopper.listen()).await.unwrap();
    assert_eq!(exited.ended_by, Some(AT_ONCE));
    assert_eq!(exited.receipt.survivors, [pid]);
    assert!(is_alive(pid));
}
