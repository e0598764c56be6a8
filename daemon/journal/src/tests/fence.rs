//! A kill on record, and many callers that create child runs at the same time.

use std::sync::Arc;
use std::time::Duration;

use rye_core::id::{Lsn, RunId};
use rye_core::model::{Budget, Event, Kill, RunEvent, Spec};
use tokio::sync::watch;

use crate::error::Error;
use crate::testing::*;
use rye_core::state::{Change, RefusalReason};
use rye_host::task::Group;

const CALLERS: usize = 50;

#[tokio::test(flavor = "multi_thread")]
async fn kill_refuses_concurrent_child_creation() {
    let rig = Arc::new(Rig::new());
    let journal = Arc::new(rig.open().await);
    let root = id("run-root");
    journal
        .put([vec![rig.create(&root)], begin(&root)].concat())
        .await;
    let created = watch::Sender::new((0, Lsn::default()));
    let mut callers = Group::new();
    for caller in 0..CALLERS {
        let (rig, journal, created) = (Arc::clone(&rig), Arc::clone(&journal), created.clone());
        let root = root.clone();
        callers.spawn(async move {
            for number in 0.. {
                let run = RunId::new(format!("child-{caller}-{number}")).unwrap();
                let spec = Spec {
                    parent: Some(root.clone()),
                    depth: 1,
                    budget: Budget::open(run.clone()),
                    ..rig.spec(&run)
                };
                let change = Change::create(&run, Arc::new(spec));
                match journal.commit(vec![change]).await {
                    Ok(committed) => created.send_modify(|(count, last)| {
                        *count += 1;
                        *last = committed.ticket.lsn.max(*last);
                    }),
                    Err(Error::Refused(refused)) => {
                        assert_eq!(refused.why, RefusalReason::Stopping(root));
                        return;
                    }
                    Err(error) => panic!("{error}"),
                }
            }
        });
    }
    let mut seen = created.subscribe();
    drop(seen.wait_for(|(count, _)| *count >= 4 * CALLERS).await);
    let asked = RunEvent::KillRequested(Kill::new("a test", Duration::ZERO));
    let killed = journal.commit(vec![change(&root, Event::Run(asked))]).await;
    while callers.next().await.is_some() {}
    let (_, last) = *created.borrow();
    assert!(last < killed.unwrap().ticket.lsn);
}
