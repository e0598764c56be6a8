//! Questions of runs, in an in-process daemon.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use rye_core::id::RunId;
use rye_core::model::{ApprovalAnswer, Run, Status, SuspendReason, Verdict};

use crate::node::tests::rig::{Daemon, Rig};
use crate::node::tests::scripted_effects::{Act, ScriptedEffects};
use crate::port::{Resume, Settled};

/// Asks a question with a timeout of one minute.
const ASKS: &str = "config:
  start: ask
  nodes:
    ask: {type: approval, message: 'Ship?', timeout: 60, next: ship}
    ship: {action: {item_id: rye/core/echo, params: {n: 1}}, next: done}
    done: {type: return}
";

/// A hook asks after the first node.
const HOOKED: &str = "config:
  start: plan
  hooks:
    - event: after_step
      condition: {path: node, op: eq, value: plan}
      action: {item_id: rye/agent/threads/internal/control, params: {action: suspend, suspend_reason: approval, message: 'Apply?'}}
  nodes:
    plan: {action: {item_id: rye/core/echo, params: {n: 1}}, next: apply}
    apply: {action: {item_id: rye/core/echo, params: {n: 2}}, next: done}
    done: {type: return}
";

/// Calls [`HOOKED`], with retries.
const ABOVE: &str = "config:
  start: p
  nodes:
    p: {action: {item_id: t/hooked}, retry: {max: 3}}
";

/// A hook asks after the failure of an attempt that may have executed.
const ONCE: &str = "config:
  start: charge
  hooks:
    - event: error
      action: {item_id: rye/agent/threads/internal/control, params: {action: suspend, suspend_reason: approval, message: 'Charge again?'}}
  nodes:
    charge: {effect: at_most_once, action: {item_id: rye/core/echo, params: {n: 1}}, next: done}
    done: {type: return}
";

fn project(rig: &Rig) -> PathBuf {
    let graphs = [
        ("asks", ASKS),
        ("hooked", HOOKED),
        ("above", ABOVE),
        ("once", ONCE),
    ];
    rig.project("p", &graphs)
}

fn approval_answer(approved: bool) -> ApprovalAnswer {
    ApprovalAnswer {
        id: Arc::default(),
        approved,
        answer: None,
        comment: None,
        by: "ada".to_owned(),
    }
}

/// Returns a run of `item` that is suspended for a question.
async fn asks(daemon: &Daemon, rig: &Rig, item: &str) -> Arc<Run> {
    let run = daemon.run(&project(rig), item).await;
    assert_eq!(daemon.settled(&run).await, Status::Suspended);
    let run = daemon.record(&run).await;
    let reason = run.suspension().map(|why| why.reason);
    assert_eq!(reason, Some(SuspendReason::Approval));
    run
}

async fn continuation(daemon: &Daemon, run: &RunId) -> Option<RunId> {
    let newest = daemon.supervisor.newest(run).await.unwrap();
    Some(newest.id.clone()).filter(|id| id != run)
}

/// Events between the check of a question and its settlement.
#[derive(Debug, Clone, Copy)]
enum Meanwhile {
    Cancelled,
    /// Cancelled, then continued.
    Continued,
    Answered,
    /// Answered, then suspended by a user.
    Held,
    Denied,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn late_settlement_does_not_resume_changed_run() {
    let meanwhile = [
        Meanwhile::Cancelled,
        Meanwhile::Continued,
        Meanwhile::Answered,
        Meanwhile::Held,
        Meanwhile::Denied,
    ];
    for happens in meanwhile {
        for expires in [false, true] {
            let stage = ScriptedEffects::new(|_, _| Act::Hold);
            let rig = Rig::staged(Arc::clone(&stage));
            let daemon = rig.start().await;
            let run = asks(&daemon, &rig, "t/asks").await;
            let settled = if expires {
                Settled::Expired(Arc::clone(&run.open_approvals().next().unwrap().id))
            } else {
                let id = Arc::clone(&run.open_approvals().next().unwrap().id);
                Settled::Answered(ApprovalAnswer {
                    id,
                    ..approval_answer(true)
                })
            };
            let (supervisor, id) = (&daemon.supervisor, &run.id);
            match happens {
                Meanwhile::Cancelled | Meanwhile::Continued => {
                    supervisor.cancel(id, "ada").await.unwrap();
                    let _ended = daemon.ended(id).await;
                }
                Meanwhile::Answered | Meanwhile::Held => {
                    let answered = supervisor.answer(id, None, approval_answer(true), vec![]);
                    answered.await.unwrap();
                    stage.until(|seen| seen.held == 1).await;
                }
                Meanwhile::Denied => {
                    let answered = supervisor.answer(id, None, approval_answer(false), vec![]);
                    answered.await.unwrap();
                    let _ended = daemon.ended(id).await;
                }
            }
            if let Meanwhile::Continued = happens {
                let _run = supervisor.resume(id, Resume::default()).await.unwrap();
            }
            if let Meanwhile::Held = happens {
                let (held, of) = (supervisor.clone(), id.clone());
                let asked = tokio::join!(async move { held.suspend(&of).await }, async {
                    tokio::task::yield_now().await;
                    stage.release();
                });
                asked.0.unwrap();
            }
            let before = continuation(&daemon, id).await;
            let late = Resume {
                approval: Some(settled),
                ..Resume::default()
            };
            let status = daemon.record(id).await.status();
            let refused = supervisor.resume(id, late).await.unwrap_err();
            assert!(refused.to_string().contains("asks nothing"), "{refused}");
            let case = format!("{happens:?}, expires: {expires}");
            assert_eq!(continuation(&daemon, id).await, before, "{case}");
            assert_eq!(daemon.record(id).await.status(), status, "{case}");
            daemon.stop().await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unapproved_hook_question_bars_continuation() {
    let stage = ScriptedEffects::new(|_, _| Act::Answer);
    let rig = Rig::staged(Arc::clone(&stage));
    let daemon = rig.start().await;
    for denied in [true, false] {
        let run = asks(&daemon, &rig, "t/hooked").await;
        if denied {
            let answered = daemon
                .supervisor
                .answer(&run.id, None, approval_answer(false), vec![]);
            answered.await.unwrap();
        } else {
            daemon.supervisor.cancel(&run.id, "ada").await.unwrap();
        }
        let ended = daemon.ended(&run.id).await;
        assert_eq!(ended.steps(), 1);
        let resumed = daemon.supervisor.resume(&run.id, Resume::default()).await;
        let refused = resumed.unwrap_err();
        assert!(refused.to_string().contains("`Apply?`"), "{refused}");
        assert_eq!(continuation(&daemon, &run.id).await, None);
    }
    // A retry of the node that started it does not continue either.
    let root = daemon.run(&project(&rig), "t/above").await;
    assert_eq!(daemon.settled(&root).await, Status::Suspended);
    let child = daemon.journal.children(&root)[0].id.clone();
    let above = daemon
        .supervisor
        .answer(&root, None, approval_answer(true), vec![]);
    let refused = above.await.unwrap_err();
    assert!(refused.to_string().contains(child.as_str()), "{refused}");
    let answered = daemon
        .supervisor
        .answer(&child, None, approval_answer(false), vec![]);
    answered.await.unwrap();
    let ended = daemon.ended(&root).await;
    assert_eq!(ended.failure().unwrap().code, "child_barred");
    assert_eq!(daemon.record(&child).await.steps(), 1);
    assert_eq!(continuation(&daemon, &child).await, None);
    daemon.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hook_question_after_at_most_once_failure_needs_verdict() {
    let stage =
        ScriptedEffects::new(|_, earlier| if earlier == 0 { Act::Fail } else { Act::Answer });
    let rig = Rig::staged(Arc::clone(&stage));
    let daemon = rig.start().await;
    let run = asks(&daemon, &rig, "t/once").await;
    let wrong = vec![("charge".to_owned(), Verdict::Done)];
    for (verdicts, told) in [
        (vec![], "ryectl approve"),
        (wrong, "can only continue by doing `charge` again"),
    ] {
        let answered = daemon
            .supervisor
            .answer(&run.id, None, approval_answer(true), verdicts);
        let refused = answered.await.unwrap_err();
        assert!(refused.to_string().contains(told), "{refused}");
    }
    assert_eq!(daemon.record(&run.id).await.open_approvals().count(), 1);
    let again = vec![("charge".to_owned(), Verdict::Retry)];
    let answered = daemon
        .supervisor
        .answer(&run.id, None, approval_answer(true), again);
    answered.await.unwrap();
    assert_eq!(daemon.ended(&run.id).await.status(), Status::Completed);

    // A denial repeats nothing, and needs no answer about the attempt.
    let run = daemon.run(&project(&rig), "t/once").await;
    assert_eq!(daemon.settled(&run).await, Status::Suspended);
    let answered = daemon
        .supervisor
        .answer(&run, None, approval_answer(false), vec![]);
    answered.await.unwrap();
    assert_eq!(daemon.ended(&run).await.status(), Status::Error);
    assert_eq!(stage.broken(), Vec::<String>::new());
    daemon.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn copied_state_expires_no_question() {
    let rig = Rig::staged(ScriptedEffects::new(|_, _| Act::Answer));
    let daemon = rig.start().await;
    let run = asks(&daemon, &rig, "t/asks").await;
    assert!(is_open(&daemon, &run.id).await);
    let live = vec![Arc::clone(&run)];
    assert!(daemon.supervisor.suspend_all(live).await);
    rig.clock.advance(Duration::from_secs(61));
    let copied = daemon.record(&run.id).await;
    daemon.supervisor.expire_approvals(&[copied]).await;
    let after = daemon.record(&run.id).await;
    let reason = after.suspension().map(|why| why.reason);
    assert_eq!(reason, Some(SuspendReason::Restart));
    assert_eq!(after.open_approvals().count(), 1);
    // A caller that resumes it accepts the timeout.
    let resumed = daemon.supervisor.resume(&run.id, Resume::default()).await;
    assert!(resumed.is_ok(), "{resumed:?}");
    let ended = daemon.ended(&run.id).await;
    assert_eq!(ended.failure().unwrap().code, "approval_timeout");
    daemon.stop().await;
}

/// Checks the timeouts of all questions. Returns true if a question of `run` is open afterwards.
async fn is_open(daemon: &Daemon, run: &RunId) -> bool {
    let live = daemon.journal.cancellable();
    daemon.supervisor.expire_approvals(&live).await;
    daemon.record(run).await.open_approvals().count() == 1
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clock_step_does_not_change_question_timeout() {
    let day = 86_400_000;
    for step in [day, -day] {
        let rig = Rig::staged(ScriptedEffects::new(|_, _| Act::Answer));
        let mut daemon = rig.start().await;
        let run = asks(&daemon, &rig, "t/asks").await.id.clone();
        assert!(is_open(&daemon, &run).await);
        rig.clock.step(step);
        rig.clock.advance(Duration::from_secs(50));
        assert!(is_open(&daemon, &run).await, "{step}");
        // After a restart the wall clock applies, with at most the whole timeout.
        rig.clock.step(-step);
        daemon = rig.crash(daemon).await;
        assert!(is_open(&daemon, &run).await, "{step}");
        rig.clock.step(-day);
        rig.clock.advance(Duration::from_secs(11));
        let ended = daemon.ended(&run).await;
        assert_eq!(ended.failure().unwrap().code, "approval_timeout");
        daemon.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn question_timeout_is_bounded_after_clock_went_back() {
    let rig = Rig::staged(ScriptedEffects::new(|_, _| Act::Answer));
    let mut daemon = rig.start().await;
    let run = asks(&daemon, &rig, "t/asks").await.id.clone();
    rig.clock.step(-86_400_000);
    daemon = rig.crash(daemon).await;
    assert!(is_open(&daemon, &run).await);
    rig.clock.advance(Duration::from_secs(59));
    assert!(is_open(&daemon, &run).await);
    rig.clock.advance(Duration::from_secs(2));
    let ended = daemon.ended(&run).await;
    assert_eq!(ended.failure().unwrap().code, "approval_timeout");
    daemon.stop().await;
}
