//! What a daemon that starts again and again does with the runs it finds.

use rye_core::model::{Status, SuspendReason};

use super::MOST_REVIVALS;
use crate::node::tests::rig::Rig;
use crate::node::tests::stage::{Act, Stage};

/// Waits for an hour.
const WAITS: &str = "config: {start: rest, nodes: {rest: {type: wait, for: 3600}}}\n";

/// Fails, and is tried again in an hour.
const RETRIES: &str = "config:
  start: a
  nodes:
    a: {retry: {max: 3, backoff: fixed, delay: 3600}, action: {item_id: rye/core/echo, params: {n: 1}}}
";

/// Is in the middle of a step.
const WORKS: &str =
    "config: {start: a, nodes: {a: {action: {item_id: rye/core/echo, params: {n: 1}}}}}\n";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_that_only_waits_is_not_what_brings_the_daemon_down() {
    let stage = Stage::new(|cx, _| match cx.spec.item.id.as_str() {
        "t/works" => Act::Hold,
        _ => Act::Fail,
    });
    let rig = Rig::staged(stage);
    let graphs = [("waits", WAITS), ("retries", RETRIES), ("works", WORKS)];
    let project = rig.project("p", &graphs);
    let mut daemon = rig.start().await;
    let mut runs = Vec::new();
    for item in ["t/waits", "t/retries", "t/works"] {
        let run = daemon.run(&project, item).await;
        let mut commits = daemon.journal.commits(&run).unwrap();
        while !daemon.record(&run).await.graph().is_some_and(|graph| {
            let step = graph.at.step();
            step.is_some() || graph.steps > 0
        }) {
            commits.changed().await.unwrap();
        }
        runs.push(run);
    }
    for life in 1..=MOST_REVIVALS + 1 {
        daemon = rig.crash(daemon).await;
        for run in &runs {
            let mut commits = daemon.journal.commits(run).unwrap();
            loop {
                let record = daemon.record(run).await;
                if record.revivals == life || record.suspension().is_some() {
                    break;
                }
                commits.changed().await.unwrap();
            }
        }
    }
    for (run, parked) in runs.iter().zip([false, false, true]) {
        let record = daemon.record(run).await;
        let reason = record.suspension().map(|why| why.reason);
        let crash_loop = Some(SuspendReason::CrashLoop).filter(|_| parked);
        assert_eq!(reason, crash_loop, "{run}");
        if !parked {
            assert_eq!(record.status(), Status::Running, "{run}");
        }
    }
    daemon.stop().await;
}
