//! A disk that holds up every sync of the log: the output of real processes is read all the same, their timeouts fire, and a
//! kill ends them.

use std::path::Path;
use std::time::Duration;

use super::rig::{Daemon, PATIENCE, Rig};
use crate::journal::Syncs;
use crate::task::Group;

/// Three shell commands at once. Each says that it runs, waits for the file `go`, writes more than a pipe holds, says that too,
/// and stays.
const LOUD: &str = "config:
  start: a
  nodes:
    a:
      type: foreach
      over: [1, 2, 3]
      as: n
      parallel: true
      TIMEOUT
      action:
        item_id: rye/bash
        params:
          env: {N: \"${n}\"}
          command: |
            echo $$ >pid-$N.tmp; mv pid-$N.tmp pid-$N
            until [ -e go ]; do sleep 0.01; done
            head -c 1000000 /dev/zero | tr '\\0' x
            touch wrote-$N
            sleep 600
";

async fn until(what: &str, look: impl Fn() -> bool) {
    let seen = async {
        while !look() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    let seen = tokio::time::timeout(PATIENCE, seen).await;
    assert!(seen.is_ok(), "{what} does not happen while a sync hangs");
}

fn all(directory: &Path, name: &str) -> bool {
    (1..=3).all(|n| directory.join(format!("{name}-{n}")).exists())
}

fn gone(directory: &Path) -> bool {
    (1..=3).all(|n| {
        let pid = std::fs::read_to_string(directory.join(format!("pid-{n}"))).unwrap();
        !Path::new("/proc").join(pid.trim()).exists()
    })
}

/// Runs the commands, and has every sync hang while they write.
async fn loud(
    rig: &Rig,
    daemon: &Daemon,
    timeout: &str,
) -> (std::path::PathBuf, rye_core::id::RunId) {
    let graph = LOUD.replace("TIMEOUT", timeout);
    let directory = rig.project("p", &[("loud", &graph)]);
    let run = daemon.run(&directory, "t/loud").await;
    until("their start", || all(&directory, "pid")).await;
    daemon.faults.inner.sync(Syncs::Hangs);
    std::fs::write(directory.join("go"), "").unwrap();
    (directory, run)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn output_is_read_and_a_kill_ends_processes_while_a_sync_hangs() {
    let rig = Rig::new();
    let daemon = rig.start().await;
    let (directory, run) = loud(&rig, &daemon, "").await;
    until("their output", || all(&directory, "wrote")).await;
    let mut killed = Group::new();
    let supervisor = daemon.supervisor.clone();
    let id = run.clone();
    killed.spawn(async move { supervisor.kill(&id, "a test", Duration::ZERO).await });
    until("their end", || gone(&directory)).await;
    assert!(
        killed.try_next().is_none(),
        "nothing is answered that is not durable"
    );
    daemon.faults.inner.sync(Syncs::Works);
    let (record, _receipt) = killed.next().await.unwrap().unwrap();
    assert!(record.status().is_terminal());
    daemon.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn timeouts_fire_while_a_sync_hangs() {
    let rig = Rig::new();
    let daemon = rig.start().await;
    let (directory, run) = loud(&rig, &daemon, "timeout: 2").await;
    until("their end", || gone(&directory)).await;
    daemon.faults.inner.sync(Syncs::Works);
    let status = daemon.settled(&run).await;
    assert_eq!(status, rye_core::model::Status::Error);
    daemon.stop().await;
}
