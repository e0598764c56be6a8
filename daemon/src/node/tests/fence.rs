//! A kill that the end of the daemon interrupted.

use std::sync::Arc;
use std::time::Duration;

use rye_core::model::{Kill, RunEvent, Status};

use super::rig::Rig;
use super::scripted_effects::{Act, ScriptedEffects};
use rye_journal::Change;

/// Calls `t/child`, and then takes a step of its own.
pub(super) const PARENT: &str = "config:
  start: a
  nodes:
    a: {action: {item_id: t/child, params: {}}, next: b}
    b: {action: {item_id: rye/core/echo, params: {text: b}}, next: c}
    c: {type: return}
";

const CHILD: &str = "config:
  start: a
  nodes:
    a: {action: {item_id: rye/core/echo, params: {text: a}}, next: b}
    b: {action: {item_id: rye/core/echo, params: {text: b}}, next: c}
    c: {type: return}
";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn restart_finishes_kills_before_any_resume() {
    let stage = ScriptedEffects::new(|_, _| Act::Hold);
    let rig = Rig::staged(Arc::clone(&stage));
    let daemon = rig.start().await;
    let project = rig.project("p", &[("parent", PARENT), ("child", CHILD)]);
    let root = daemon.run(&project, "t/parent").await;
    stage.until(|seen| seen.held == 1).await;
    let child = daemon.journal.children(&root)[0].id.clone();
    // The request is recorded, and no task is notified: the daemon goes down in between.
    let asked = RunEvent::KillRequested(Kill::new("a test", Duration::ZERO));
    let asked = Change::event(&root, asked.into());
    let asked = daemon.journal.commit(vec![asked]).await.unwrap();
    daemon.journal.published(asked.ticket).await.unwrap();
    let daemon = rig.crash(daemon).await;
    let (above, below) = (daemon.ended(&root).await, daemon.ended(&child).await);
    assert_eq!(
        (above.status(), below.status()),
        (Status::Killed, Status::Killed)
    );
    assert!(below.ended_at <= above.ended_at, "the deepest first");
    assert_eq!(
        (below.steps(), above.steps()),
        (0, 0),
        "nothing has gone on"
    );
    assert_eq!(stage.broken(), Vec::<String>::new());
    daemon.stop().await;
}
