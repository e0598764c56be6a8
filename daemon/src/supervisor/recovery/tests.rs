//! Treatment of live runs in repeated starts of the daemon.

use std::sync::Arc;
use std::time::Duration;

use rye_core::id::RunId;
use rye_core::model::{Death, MOST_FAULTS, MOST_SUSPICIONS, Status, SuspendReason};

use crate::node::tests::rig::{Daemon, PATIENCE, Rig};
use crate::node::tests::scripted_effects::{Act, ScriptedEffects};

/// Waits for an hour.
const WAITS: &str = "config: {start: rest, nodes: {rest: {type: wait, for: 3600}}}\n";

/// Fails, and is retried after an hour.
const RETRIES: &str = "config:
  start: a
  nodes:
    a: {retry: {max: 3, backoff: fixed, delay: 3600}, action: {item_id: rye/core/echo, params: {n: 1}}}
";

/// Has a step in progress.
const STEP: &str =
    "config: {start: a, nodes: {a: {action: {item_id: rye/core/echo, params: {n: 1}}}}}\n";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn crash_loop_suspends_only_computing_run() {
    let stage = ScriptedEffects::new(|cx, _| match cx.spec.item.id.as_str() {
        "t/works" => Act::Hold,
        "t/computes" => Act::Compute,
        _ => Act::Fail,
    });
    let rig = Rig::staged(Arc::clone(&stage));
    let graphs = [
        ("waits", WAITS),
        ("retries", RETRIES),
        ("works", STEP),
        ("computes", STEP),
    ];
    let project = rig.project("p", &graphs);
    let mut daemon = rig.start().await;
    let mut runs = Vec::new();
    for item in ["t/waits", "t/retries", "t/works", "t/computes"] {
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
    let mut parked = false;
    for death in 1..=MOST_SUSPICIONS + 2 {
        // One waits for its tool, another keeps a thread busy.
        let busy = if parked { 1 } else { 2 };
        stage.until(|seen| seen.held == busy).await;
        daemon = rig.crash(daemon).await;
        parked = death > MOST_SUSPICIONS;
        for (run, computes) in runs.iter().zip([false, false, false, true]) {
            let mut commits = daemon.journal.commits(run).unwrap();
            loop {
                let record = daemon.record(run).await;
                let reason = record.suspension().map(|why| why.reason);
                if computes && parked && reason.is_some() {
                    assert_eq!(reason, Some(SuspendReason::CrashLoop));
                    break;
                }
                assert_eq!(reason, None, "{run} after {death} deaths");
                if record.epoch == daemon.supervisor.services().epoch {
                    assert_eq!(record.status(), Status::Running, "{run}");
                    break;
                }
                commits.changed().await.unwrap();
            }
        }
    }
    daemon.stop().await;
}

/// Has an endless loop of steps.
const LOOP: &str = "config:
  start: a
  nodes:
    a: {action: {item_id: rye/core/echo, params: {n: 1}}, next: b}
    b: {action: {item_id: rye/core/echo, params: {n: 1}}, next: a}
";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn run_is_suspended_after_three_daemon_faults() {
    for (death, parks) in [(Death::Fault, true), (Death::Unknown, false)] {
        // The repeated step succeeds in the next life, and the step after it computes.
        let stage = ScriptedEffects::new(|cx, earlier| match (cx.node.as_str(), earlier) {
            ("b", 0) => Act::Compute,
            _ => Act::Answer,
        });
        let mut rig = Rig::staged(Arc::clone(&stage));
        rig.last_death = death;
        let project = rig.project("p", &[("loop", LOOP), ("waits", WAITS)]);
        let mut daemon = rig.start().await;
        let run = daemon.run(&project, "t/loop").await;
        let other = daemon.run(&project, "t/waits").await;
        for deaths in 1..=4 {
            stage.until(|seen| seen.held == 1).await;
            daemon = rig.crash(daemon).await;
            if parks && deaths == MOST_FAULTS {
                daemon.settled(&run).await;
                break;
            }
        }
        if !parks {
            stage.until(|seen| seen.held == 1).await;
        }
        let record = daemon.record(&run).await;
        let reason = record.suspension().map(|why| why.reason);
        let expected = parks.then_some(SuspendReason::CrashLoop);
        assert_eq!(reason, expected, "{death:?}");
        assert!(record.steps() > 3, "it gets on: {}", record.steps());
        assert_eq!(daemon.record(&other).await.suspension(), None);
        // The computing thread is abandoned, because it does not end.
        stage.next_life();
        drop(daemon);
    }
}

/// Waits until `run` is suspended because the directory of its project is missing.
async fn is_without_project(daemon: &Daemon, run: &RunId) {
    let mut commits = daemon.journal.commits(run).unwrap();
    while daemon.record(run).await.suspension().is_none() {
        commits.changed().await.unwrap();
    }
    let record = daemon.record(run).await;
    let why = record.suspension().unwrap();
    assert_eq!(why.reason, SuspendReason::Storage);
    assert_eq!(why.code.as_deref(), Some("project_gone"));
}

/// Advances the clock until `run` has completed.
async fn completes_in_time(rig: &Rig, daemon: &Daemon, run: &RunId) {
    let ended = async {
        while !daemon.record(run).await.status().is_terminal() {
            rig.clock.advance(Duration::from_secs(31));
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, ended).await.unwrap();
    assert_eq!(daemon.record(run).await.status(), Status::Completed);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn run_with_missing_project_is_suspended_until_it_returns() {
    let stage = ScriptedEffects::new(|_, _| Act::Hold);
    let rig = Rig::staged(Arc::clone(&stage));
    let project = rig.project("p", &[("works", STEP)]);
    let daemon = rig.start().await;
    let run = daemon.run(&project, "t/works").await;
    stage.until(|seen| seen.held == 1).await;
    let away = project.with_file_name("away");
    std::fs::rename(&project, &away).unwrap();
    let daemon = rig.crash(daemon).await;
    for leads_elsewhere in [false, true] {
        if leads_elsewhere {
            std::os::unix::fs::symlink(&away, &project).unwrap();
        }
        is_without_project(&daemon, &run).await;
        rig.clock.advance(Duration::from_secs(31));
    }
    std::fs::remove_file(&project).unwrap();
    std::fs::rename(&away, &project).unwrap();
    stage.release();
    // The run retries after a pause.
    completes_in_time(&rig, &daemon, &run).await;
    daemon.stop().await;
}

/// Has two steps, each of which looks up its tool in the project.
const STEPS: &str = "config:
  start: a
  nodes:
    a: {action: {item_id: rye/bash, params: {command: one}}, next: b}
    b: {action: {item_id: rye/bash, params: {command: two}}}
";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replaced_project_suspends_run_at_next_file_access() {
    let stage = ScriptedEffects::new(|_, _| Act::Hold);
    let rig = Rig::staged(Arc::clone(&stage));
    let project = rig.project("p", &[("steps", STEPS)]);
    let mut daemon = rig.start().await;
    let away = project.with_file_name("away");
    // Another directory in its place; a link to another one; and another one that is still there after a crash.
    for (replacement, crashes) in [("directory", false), ("link", false), ("directory", true)] {
        stage.hold();
        let run = daemon.run(&project, "t/steps").await;
        stage.until(|seen| seen.held == 1).await;
        std::fs::rename(&project, &away).unwrap();
        if replacement == "link" {
            let elsewhere = project.with_file_name("elsewhere");
            std::fs::create_dir_all(elsewhere.join(".ai")).unwrap();
            std::os::unix::fs::symlink(&elsewhere, &project).unwrap();
        } else {
            std::fs::create_dir_all(project.join(".ai")).unwrap();
        }
        if crashes {
            daemon = rig.crash(daemon).await;
        } else {
            stage.release();
        }
        is_without_project(&daemon, &run).await;
        assert_eq!(std::fs::read_dir(project.join(".ai")).unwrap().count(), 0);
        stage.release();
        if replacement == "link" {
            std::fs::remove_file(&project).unwrap();
        } else {
            std::fs::remove_dir_all(&project).unwrap();
        }
        std::fs::rename(&away, &project).unwrap();
        completes_in_time(&rig, &daemon, &run).await;
    }
    assert_eq!(stage.broken(), Vec::<String>::new());
    daemon.stop().await;
}
