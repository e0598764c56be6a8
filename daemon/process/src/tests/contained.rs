//! Processes that try to get away, with a cgroup for each attempt. On a host without them the tests say so and pass.

use super::*;

/// A bench whose attempts have cgroups; `None` on a host without them.
pub(super) fn contained() -> Option<Bench> {
    let bench = Bench::new();
    match AttemptCgroups::prepare(bench.directory.path(), getpid()) {
        Ok(cgroups) => Some(Bench {
            spawner: Spawner::new(
                Some(getpid()),
                host::inherited_open_files(),
                Some(cgroups),
                None,
            ),
            ..bench
        }),
        Err(why) => {
            eprintln!("not tested: {why}");
            None
        }
    }
}

/// Commands that leave a process behind, each in a different way. `MARK` is an argument of all of these processes;
/// they write a line to `ready`.
const ESCAPES: [(&str, &str); 9] = [
    (
        "new session, empty environment",
        "setsid env -i sleep MARK & echo >ready",
    ),
    (
        "the same with closed descriptors",
        "(setsid env -i sleep MARK </dev/null >/dev/null 2>&1 &); echo >ready",
    ),
    (
        "double fork of a program of its own",
        r#"python3 -c '
import os
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.closerange(0, 3)
        os.execve("/bin/sleep", ["sleep", "MARK"], {})
    os._exit(0)
os.wait()'; echo >ready"#,
    ),
    (
        "many",
        "for i in $(seq 200); do setsid env -i sleep MARK >/dev/null 2>&1 & done; echo >ready",
    ),
    (
        "a runner that keeps starting more",
        r#"setsid env -i PATH="$PATH" sh -c 'while :; do setsid sleep MARK & sleep 0.01; done' >/dev/null 2>&1 & sleep 0.1; echo >ready"#,
    ),
    (
        "a subreaper",
        r#"python3 -c '
import ctypes, os, subprocess
if os.fork() == 0:
    os.setsid()
    ctypes.CDLL(None).prctl(36, 1)
    subprocess.Popen(["setsid", "env", "-i", "sleep", "MARK"])
    os.closerange(0, 3)
    os.execve("/bin/sleep", ["sleep", "MARK"], {})
' ; echo >ready"#,
    ),
    (
        "stopped, and deaf to TERM",
        r#"setsid env -i sh -c 'trap "" TERM; kill -STOP $$; sleep MARK' MARK >/dev/null 2>&1 & echo >ready"#,
    ),
    (
        "a cgroup of its own below",
        r#"d=/sys/fs/cgroup/unified$(sed -n s/^0:://p /proc/self/cgroup)/below; mkdir "$d" 2>/dev/null &&
           (echo 0 >"$d/cgroup.procs"; exec setsid env -i sleep MARK >/dev/null 2>&1) & sleep 0.05; echo >ready"#,
    ),
    (
        "a pid namespace",
        "setsid env -i unshare --pid --fork sleep MARK >/dev/null 2>&1 & sleep 0.05; echo >ready",
    ),
];

/// Pids of living processes with the argument `mark`.
fn marked(mark: &str) -> Vec<i32> {
    let marked = |pid: i32| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        line.split(|byte| *byte == 0)
            .any(|arg| arg == mark.as_bytes())
    };
    let living = procfs::all().into_iter().filter(Stat::is_alive);
    living
        .map(|stat| stat.pid)
        .filter(|pid| marked(*pid))
        .collect()
}

/// Ends of an attempt.
#[derive(Debug, Clone, Copy)]
enum End {
    /// Its leader exits.
    Normal,
    Stop(StopReason),
    Timeout,
    /// The daemon forgets it.
    Drop,
}

const ENDS: [End; 5] = [
    End::Normal,
    End::Stop(StopReason::Cancel),
    End::Stop(AT_ONCE),
    End::Timeout,
    End::Drop,
];

#[tokio::test]
async fn no_process_outlives_its_attempt_in_a_cgroup() {
    let Some(bench) = contained() else { return };
    let mut count = 0;
    for (name, escape) in ESCAPES {
        for end in ENDS {
            count += 1;
            // A duration in seconds that no other process has.
            let mark = format!("1000.{}{count:04}", getpid());
            let rest = match end {
                End::Normal => "",
                End::Stop(_) | End::Timeout | End::Drop => "; exec sleep 1000",
            };
            let script = escape
                .replace("MARK", &mark)
                .replace(">ready", &format!(">ready{count}"));
            let mut ready = bench.fifo(&format!("ready{count}"));
            let mut plan = bench.shell(&format!("{script}{rest}"));
            plan.grace = Duration::from_millis(20);
            if let End::Timeout = end {
                plan.timeout = Duration::from_millis(700);
            }
            let running = bench.start(plan, &format!("{}{count}", bench.tag())).await;
            let cgroup = running.leader.cgroup().cloned().unwrap();
            ready.line().await;
            let receipt = if let End::Drop = end {
                drop(running);
                // The next start reaps it.
                drop(bench.run(bench.shell("true")).await);
                None
            } else {
                let stopper = Stopper::new();
                if let End::Stop(reason) = end {
                    stopper.stop(reason);
                }
                let exited = running.finish(stopper.listen()).await.unwrap();
                Some(exited.receipt)
            };
            if let Some(receipt) = receipt {
                assert!(receipt.complete, "{name} {end:?} {receipt:?}");
                assert!(receipt.survivors.is_empty(), "{name} {end:?} {receipt:?}");
                assert!(!cgroup.is_populated(), "{name} {end:?}");
                assert!(marked(&mark).is_empty(), "{name} {end:?}");
            } else {
                let deadline = std::time::Instant::now() + LONG;
                while !marked(&mark).is_empty() || cgroup.is_populated() {
                    assert!(std::time::Instant::now() < deadline, "{name} {end:?}");
                    tokio::task::yield_now().await;
                }
            }
        }
    }
    // No cgroup is left, but for those that the kernel has not let go of yet.
    drop(bench);
}

#[tokio::test]
async fn receipt_names_processes_of_the_cgroup() {
    let Some(bench) = contained() else { return };
    let mut ready = bench.fifo("ready");
    let script = "setsid env -i sleep 1000 & echo $! >ready; exec sleep 1000";
    let running = bench.start(bench.shell(script), &bench.tag()).await;
    let (leader, away) = (running.identity().pid, ready.pid().await);
    let stopper = Stopper::new();
    stopper.stop(AT_ONCE);
    let receipt = running.finish(stopper.listen()).await.unwrap().receipt;
    let pids: Vec<i32> = receipt.processes.iter().map(|ended| ended.pid).collect();
    assert_eq!(
        (pids[0], pids.contains(&away)),
        (leader, true),
        "{receipt:?}"
    );
    assert!(receipt.complete, "{receipt:?}");
}

#[tokio::test]
async fn without_cgroup_receipt_is_not_complete_and_names_adopted_strangers() {
    let bench = Bench::new();
    let mut ready = bench.fifo("ready");
    let script = "(setsid env -i sh -c 'echo $$ >ready; exec sleep 1000' </dev/null >/dev/null 2>&1 &); exec sleep 1000";
    let running = bench.start(bench.shell(script), &bench.tag()).await;
    let away = ready.pid().await;
    until_adopted(away).await;
    let stopper = Stopper::new();
    stopper.stop(AT_ONCE);
    let receipt = running.finish(stopper.listen()).await.unwrap().receipt;
    assert!(!receipt.complete, "{receipt:?}");
    let adopted: Vec<i32> = receipt.adopted.iter().map(|process| process.pid).collect();
    assert!(adopted.contains(&away), "{receipt:?}");
    kill(Pid::from_raw(away), Signal::SIGKILL).unwrap();
}

/// Waits until this process is the parent of `pid`.
async fn until_adopted(pid: i32) {
    let deadline = std::time::Instant::now() + LONG;
    while Stat::read(pid).is_none_or(|stat| stat.parent != getpid().as_raw()) {
        assert!(std::time::Instant::now() < deadline);
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn leftovers_of_an_earlier_daemon_are_ended_and_named_by_attempt() {
    let Some(bench) = contained() else { return };
    let mut ready = bench.fifo("ready");
    let script = "setsid env -i sleep 1000 & echo $! >ready; exec sleep 1000";
    let running = bench.start(bench.shell(script), "left.1").await;
    let away = ready.pid().await;
    let receipts = end_recorded(bench.directory.path());
    let [(name, receipt)] = &receipts[..] else {
        panic!("{receipts:?}")
    };
    assert_eq!(*name, cgroup_name("left.1"));
    assert!(receipt.complete, "{receipt:?}");
    assert!(
        receipt.processes.iter().any(|ended| ended.pid == away),
        "{receipt:?}"
    );
    assert!(!is_alive(away));
    assert_eq!(end_recorded(bench.directory.path()), []);
    // A start makes what was removed again.
    drop(running);
    assert_eq!(bench.run(bench.shell("exit 3")).await.exit, Exit::Code(3));
}

#[tokio::test]
async fn caller_in_a_cgroup_is_of_its_attempt_whatever_its_environment_says() {
    let Some(bench) = contained() else { return };
    let listener = tokio::net::UnixListener::bind(bench.path("sock")).unwrap();
    let client = "import socket; s = socket.socket(socket.AF_UNIX); s.connect('sock'); s.recv(1)";
    let script = format!("setsid env -i {ATTEMPT_VARIABLE}=of.another python3 -c \"{client}\"");
    let mut plan = bench.shell(&script);
    plan.env
        .push(("PATH".into(), "/usr/local/bin:/usr/bin:/bin".into()));
    let running = bench.start(plan, "caller").await;
    let stopper = Stopper::new();
    let (exited, ()) = tokio::join!(running.finish(stopper.listen()), async {
        let (stream, _) = listener.accept().await.unwrap();
        let peer = Peer::of(&stream).unwrap();
        let lineage = peer.lineage(None, bench.spawner.cgroups().map(|all| &**all));
        let attempt = b"caller".to_vec();
        assert_eq!(lineage, Lineage::Inside { attempt });
        stopper.stop(AT_ONCE);
    });
    assert!(exited.unwrap().receipt.complete);
}
