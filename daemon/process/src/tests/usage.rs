//! What a process used, and whom it may signal.

use super::*;

/// Uses processor time for a while.
const BURN: &str = "i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done";

#[tokio::test]
async fn usage_includes_children_that_were_waited_for() {
    let bench = Bench::new();
    let idle = bench.run(bench.shell("true")).await;
    let most = reap::own_peak() + (32 << 10);
    let script = format!("sh -c '{BURN}'; python3 -c 'x = bytearray({most} << 10)'");
    let busy = bench.run(bench.shell(&script)).await;
    assert!(busy.usage.cpu > idle.usage.cpu + Duration::from_millis(20));
    assert!(idle.usage.cpu < busy.elapsed);
    assert!(busy.usage.max_rss_kib > Some(most), "{:?}", busy.usage);
    assert_eq!(
        idle.usage.max_rss_kib, None,
        "it is below that of this process"
    );
    assert_eq!((busy.limit, busy.was_memory_short), (None, false));
}

#[tokio::test]
async fn usage_in_a_cgroup_includes_all_others() {
    let Some(bench) = contained::contained() else {
        return;
    };
    let mut ready = bench.fifo("ready");
    let script = format!("(setsid sh -c '{BURN}; echo >ready' >/dev/null 2>&1 &); read x <go");
    let mut plan = bench.shell(&script);
    mkfifo(&bench.path("go"), Mode::S_IRWXU).unwrap();
    plan.timeout = LONG;
    let running = bench.start(plan, &bench.tag()).await;
    let release = async {
        ready.line().await;
        fs::write(bench.path("go"), "\n").unwrap();
    };
    let stopper = Stopper::new();
    let (exited, ()) = tokio::join!(running.finish(stopper.listen()), release);
    let exited = exited.unwrap();
    assert!(
        exited.usage.cpu > Duration::from_millis(20),
        "{:?}",
        exited.usage
    );
}

#[tokio::test]
async fn scoped_process_signals_its_own_processes_only() {
    let bench = match SignalScope::prepare() {
        Ok(scope) => Bench {
            spawner: Spawner::new(
                Some(getpid()),
                host::inherited_open_files(),
                None,
                Some(scope),
            ),
            ..Bench::new()
        },
        Err(why) => return eprintln!("not tested: {why}"),
    };
    let stranger = bench
        .start(bench.shell("exec sleep 1000"), &format!("{}2", bench.tag()))
        .await;
    let pid = stranger.identity().pid;
    let script = format!(
        "sleep 1000 & kill $! && wait $!; echo $?; setsid sleep 1000 & kill $!; wait $!; echo $?; \
         kill -0 {pid} || echo refused; kill {} || echo refused; kill 0; echo no",
        getpid()
    );
    let exited = bench.run(bench.shell(&script)).await;
    assert_eq!(text(&exited.stdout), "143\n143\nrefused\nrefused\n");
    assert_eq!(exited.exit, Exit::Signal(15));
    // The daemon can end them.
    let stopper = Stopper::new();
    stopper.stop(StopReason::Cancel);
    let ended = stranger.finish(stopper.listen()).await.unwrap();
    assert_eq!(ended.exit, Exit::Signal(15));
}
