//! Effects of a project on a hanging file system.

use std::future::Future;
use std::path::PathBuf;
use std::time::Duration;

use rye_core::model::{Kill, Status};

use super::rig::Rig;
use rye_host::file_pool;
use rye_journal::Filter;

/// Time limit on a busy machine for anything that does not wait for a hanging project. It is shorter than a hang, so
/// that the test detects a wait for it.
const PATIENCE: Duration = Duration::from_secs(15);
/// Number of runs in the hanging project: more than its threads, and than the workers of the runtime.
const RUNS: usize = 8;

const ECHO: &str = "{item_id: rye/core/echo, params: {n: 1}}";

/// A project with the graph `t/endless`, which echoes until it is stopped, and the graph `t/short`, which echoes three
/// times.
pub(crate) fn project(rig: &Rig, name: &str) -> PathBuf {
    let endless = format!(
        "config:\n  start: a\n  max_steps: 1000000\n  nodes:\n    a: {{action: {ECHO}, next: b}}\n    b: {{action: {ECHO}, next: a}}\n"
    );
    let short = format!(
        "config:\n  start: a\n  nodes:\n    a: {{action: {ECHO}, next: b}}\n    b: {{action: {ECHO}, next: c}}\n    c: {{action: {ECHO}}}\n"
    );
    rig.project(name, &[("endless", &endless), ("short", &short)])
}

async fn in_time<T>(what: &str, work: impl Future<Output = T>) -> T {
    let done = tokio::time::timeout(PATIENCE, work).await;
    done.unwrap_or_else(|_| panic!("{what} waits for a project that hangs"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hanging_project_blocks_only_its_runs_which_can_be_stopped() {
    let rig = Rig::new();
    let daemon = rig.start().await;
    let (dead, alive) = (project(&rig, "dead"), project(&rig, "alive"));
    let mut runs = Vec::new();
    for _ in 0..RUNS {
        runs.push(daemon.run(&dead, "t/endless").await);
    }
    let before = daemon.run(&alive, "t/endless").await;

    daemon.projects.hang_simulator.begin(&dead);
    assert!(daemon.projects.hang_simulator.holds(file_pool::AT_ONCE));

    // Other runs continue, and new ones end.
    for _ in 0..3 {
        let run = in_time("a start elsewhere", Box::pin(daemon.run(&alive, "t/short"))).await;
        assert_eq!(
            in_time("a run elsewhere", daemon.settled(&run)).await,
            Status::Completed
        );
    }
    let seen = daemon.supervisor.run_of(&before).await.unwrap().seq;
    let moves = daemon.journal.subscribe(&before, seen.next());
    let line = async { moves.await.unwrap().next().await };
    assert!(in_time("a run that began before", line).await.is_some());

    // Queries about runs are answered, and no more threads are blocked than the project may have.
    let filter = Filter::default();
    let listed = in_time("the list of runs", daemon.journal.list(&filter, None, 100)).await;
    assert!(listed.unwrap().runs.len() > RUNS);
    assert_eq!(daemon.projects.hang_simulator.held(), file_pool::AT_ONCE);

    // A start in the project waits, and its caller may give up.
    let waits = tokio::time::timeout(Duration::from_millis(1), daemon.run(&dead, "t/short"));
    assert!(waits.await.is_err());

    // Its runs can be stopped while it hangs.
    let (killed, cancelled) = runs.split_at(RUNS / 2);
    for run in cancelled {
        in_time("a cancel", daemon.supervisor.cancel(run, "a test"))
            .await
            .unwrap();
    }
    for run in killed {
        let kill = daemon
            .supervisor
            .kill(run, Kill::new("a test", Duration::ZERO));
        in_time("a kill", kill).await.unwrap();
    }
    for run in cancelled {
        assert_eq!(
            in_time("a cancelled run", daemon.settled(run)).await,
            Status::Cancelled
        );
    }
    for run in killed {
        assert_eq!(
            in_time("a killed run", daemon.settled(run)).await,
            Status::Killed
        );
    }

    let gave_up = daemon.projects.hang_simulator.release();
    assert!(
        !gave_up,
        "the project hung until nobody could tell it to stop"
    );
    let run = daemon.run(&dead, "t/short").await;
    assert_eq!(daemon.settled(&run).await, Status::Completed);
    daemon.stop().await;
}

/// Nodes that access files of their project in different ways: a file tool, a search through all files, the index, and
/// a process, whose chain and variables are looked up.
fn reaching(rig: &Rig, name: &str) -> PathBuf {
    let nodes = "a: {action: {item_id: rye/file-system/read, params: {path: note.txt}}, next: b}\n    \
                 b: {action: {item_id: rye/file-system/grep, params: {pattern: x}}, next: c}\n    \
                 c: {action: {primary: search, params: {query: short}}, next: d}\n    \
                 d: {action: {item_id: rye/bash, params: {command: \"true\"}}";
    let endless =
        format!("config:\n  start: a\n  max_steps: 1000000\n  nodes:\n    {nodes}, next: a}}\n");
    let short = format!("config:\n  start: a\n  nodes:\n    {nodes}}}\n");
    let directory = rig.project(name, &[("endless", &endless), ("short", &short)]);
    std::fs::write(directory.join("note.txt"), "a note\n").unwrap();
    directory
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn file_access_in_hanging_project_delays_no_other_project() {
    let rig = Rig::new();
    let daemon = rig.start().await;
    let (dead, alive) = (reaching(&rig, "dead"), reaching(&rig, "alive"));
    let before = daemon.run(&alive, "t/short").await;
    assert_eq!(daemon.settled(&before).await, Status::Completed);
    let mut runs = Vec::new();
    for _ in 0..RUNS {
        runs.push(daemon.run(&dead, "t/endless").await);
    }
    daemon.projects.hang_simulator.begin(&dead);
    assert!(daemon.projects.hang_simulator.holds(file_pool::AT_ONCE));
    for _ in 0..2 {
        let run = in_time("a start elsewhere", Box::pin(daemon.run(&alive, "t/short"))).await;
        let ended = in_time("a run elsewhere", daemon.settled(&run)).await;
        assert_eq!(ended, Status::Completed);
    }
    assert_eq!(daemon.projects.hang_simulator.held(), file_pool::AT_ONCE);
    for run in &runs {
        let kill = Kill::new("a test", Duration::ZERO);
        in_time("a kill", daemon.supervisor.kill(run, kill))
            .await
            .unwrap();
    }
    for run in &runs {
        let ended = in_time("a killed run", daemon.settled(run)).await;
        assert_eq!(ended, Status::Killed);
    }
    assert!(!daemon.projects.hang_simulator.release());
    daemon.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn run_of_initially_hanging_project_can_be_stopped() {
    let rig = Rig::new();
    let daemon = rig.start().await;
    let dead = project(&rig, "dead");
    let (first, second) = (
        daemon.run(&dead, "t/endless").await,
        daemon.run(&dead, "t/endless").await,
    );
    for run in [&first, &second] {
        daemon.supervisor.suspend(run).await.unwrap();
    }
    daemon.projects.hang_simulator.begin(&dead);
    for run in [&first, &second] {
        let resumed = daemon
            .supervisor
            .resume(run, crate::port::Resume::default());
        in_time("a resume", Box::pin(resumed)).await.unwrap();
    }
    assert!(daemon.projects.hang_simulator.holds(2));
    let cancel = daemon.supervisor.cancel(&first, "a test");
    in_time("a cancel", cancel).await.unwrap();
    let kill = daemon
        .supervisor
        .kill(&second, Kill::new("a test", Duration::ZERO));
    in_time("a kill", kill).await.unwrap();
    assert_eq!(
        in_time("its end", daemon.settled(&first)).await,
        Status::Cancelled
    );
    assert_eq!(
        in_time("its end", daemon.settled(&second)).await,
        Status::Killed
    );
    assert!(!daemon.projects.hang_simulator.release());
    daemon.stop().await;
}
