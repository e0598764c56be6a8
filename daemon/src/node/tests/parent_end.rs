//! Runs that their parent does not wait for, at the parent's end.

use std::sync::Arc;

use rye_core::id::RunId;
use rye_core::model::{Budget, Event, Failure, Fate, ParentEnd, Run, Spec, Status};

use super::fence::PARENT;
use super::rig::{Daemon, Rig};
use super::scripted_effects::{Act, ScriptedEffects};
use rye_journal::Change;

const CHILD: &str = "config:
  start: a
  nodes:
    a: {action: {item_id: rye/core/echo, params: {text: a}}, next: b}
    b: {type: return}
";

const FOLLOW: ParentEnd = ParentEnd::Follow {
    on_complete: Fate::Leave,
    on_error: Fate::Cancel,
    on_cancel: Fate::Cancel,
};

/// Creates a run like `like` with this name, below `parent`, which does not wait for it.
fn follower(name: &str, like: &Run, parent: &RunId) -> (RunId, Change) {
    let id = RunId::new(format!("{name}-1-a")).unwrap();
    let spec = Spec {
        parent: Some(parent.clone()),
        parent_end: FOLLOW,
        start_key: None,
        budget: Budget::open(id.clone()),
        ..Spec::clone(&like.spec)
    };
    let created = Change::create(&id, Arc::new(spec));
    (id, created)
}

async fn publish(daemon: &Daemon, changes: Vec<Change>) {
    let committed = daemon.journal.commit(changes).await.unwrap();
    daemon.journal.published(committed.ticket).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cancelled_parent_cancels_following_children() {
    let stage = ScriptedEffects::new(|_, _| Act::Hold);
    let rig = Rig::staged(Arc::clone(&stage));
    let daemon = rig.start().await;
    let project = rig.project("p", &[("parent", PARENT), ("child", CHILD)]);
    let root = daemon.run(&project, "t/parent").await;
    stage.until(|seen| seen.held == 1).await;
    let child = Arc::clone(&daemon.journal.children(&root)[0]);
    let (follower, created) = follower("follower", &child, &root);
    publish(&daemon, vec![created]).await;
    daemon.supervisor.runs().launch(follower.clone()).await;
    stage.until(|seen| seen.held == 2).await;
    daemon.supervisor.cancel(&root, "a test").await.unwrap();
    let (above, beside) = (daemon.ended(&root).await, daemon.ended(&child.id).await);
    let below = daemon.ended(&follower).await;
    for run in [&above, &beside, &below] {
        assert_eq!(run.status(), Status::Cancelled, "{}", run.id);
    }
    assert_eq!(below.cancel, Some(format!("its parent {root}")));
    daemon.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn restart_completes_end_of_following_children() {
    let stage = ScriptedEffects::new(|_, _| Act::Answer);
    let rig = Rig::staged(Arc::clone(&stage));
    let daemon = rig.start().await;
    let project = rig.project("p", &[("parent", PARENT), ("child", CHILD)]);
    let root = daemon.run(&project, "t/parent").await;
    let like = daemon.ended(&root).await;
    let (failed, created) = follower("failed", &like, &root);
    let (below, created_below) = follower("below", &like, &failed);
    let (beside, created_beside) = follower("beside", &like, &root);
    let failure = Failure::permanent("test", "a test");
    let end = Change::event(&failed, Event::never_started(failure));
    publish(&daemon, vec![created, created_below, created_beside, end]).await;
    let daemon = rig.crash(daemon).await;
    let below = daemon.ended(&below).await;
    assert_eq!((below.status(), below.steps()), (Status::Cancelled, 0));
    let beside = daemon.ended(&beside).await;
    assert_eq!(
        beside.status(),
        Status::Completed,
        "its parent has completed"
    );
    daemon.stop().await;
}
