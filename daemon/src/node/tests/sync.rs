//! A disk that hangs at every sync of the log: the output of real processes is still read, their timeouts fire, and a
//! kill ends them.

use std::fs::{File, OpenOptions};
use std::future::Future;
use std::time::Duration;

use nix::sys::stat::Mode;
use nix::unistd::mkfifo;
use rye_core::id::{RunId, Seq};
use rye_core::model::{Kill, Status};
use serde_json::Value;
use tokio::io::{AsyncBufReadExt as _, BufReader, Lines};
use tokio::net::unix::pipe;

use super::rig::{Daemon, PATIENCE, Rig};
use rye_host::task::Group;
use rye_journal::Syncs;

/// Three concurrent shell commands. Each reports its start, waits until `go` is opened, writes more than a pipe holds,
/// reports that too, and stays. The reports go through the pipe `said`, which ends when the last process that holds it
/// does.
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
          command: |
            exec 3>said
            echo runs >&3
            : <go
            head -c 1000000 /dev/zero | tr '\\0' x
            echo wrote >&3
            sleep 600
";

/// The commands, and their reports.
struct Loud {
    run: RunId,
    lines: Lines<BufReader<pipe::Receiver>>,
    /// Held open, so that the commands continue.
    _go: File,
}

async fn in_time<T>(what: &str, work: impl Future<Output = T>) -> T {
    let done = tokio::time::timeout(PATIENCE, work).await;
    done.unwrap_or_else(|_| panic!("`{what}` does not come while a sync hangs"))
}

impl Loud {
    /// Starts the commands, and makes every sync hang before they write.
    async fn start(rig: &Rig, daemon: &Daemon, timeout: &str) -> Self {
        let graph = LOUD.replace("TIMEOUT", timeout);
        let directory = rig.project("p", &[("loud", &graph)]);
        for name in ["said", "go"] {
            mkfifo(&directory.join(name), Mode::S_IRWXU).unwrap();
        }
        let said = pipe::OpenOptions::new().open_receiver(directory.join("said"));
        let mut said = BufReader::new(said.unwrap()).lines();
        let run = daemon.run(&directory, "t/loud").await;
        all_print(&mut said, "runs").await;
        daemon.faults.inner.sync(Syncs::Hangs);
        let mut go = OpenOptions::new();
        let go = go.read(true).write(true).open(directory.join("go"));
        Self {
            run,
            lines: said,
            _go: go.unwrap(),
        }
    }

    /// Resolves when none of their processes is left.
    async fn are_gone(&mut self) {
        while in_time("the end", self.lines.next_line())
            .await
            .unwrap()
            .is_some()
        {}
    }
}

async fn all_print(said: &mut Lines<BufReader<pipe::Receiver>>, word: &str) {
    for _ in 0..3 {
        let line = in_time(word, said.next_line()).await.unwrap();
        assert_eq!(line.as_deref(), Some(word));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hanging_sync_delays_neither_output_nor_kill() {
    let rig = Rig::new();
    let daemon = rig.start().await;
    let mut loud = Loud::start(&rig, &daemon, "").await;
    all_print(&mut loud.lines, "wrote").await;
    let mut killed = Group::new();
    let (supervisor, run) = (daemon.supervisor.clone(), loud.run.clone());
    killed.spawn(async move {
        supervisor
            .kill(&run, Kill::new("a test", Duration::ZERO))
            .await
    });
    loud.are_gone().await;
    assert!(
        killed.try_next().is_none(),
        "nothing is answered that is not durable"
    );
    daemon.faults.inner.sync(Syncs::Works);
    let (record, _receipt) = killed.next().await.unwrap().unwrap();
    assert_eq!(record.status(), Status::Killed);
    daemon.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hanging_sync_delays_no_timeout() {
    let rig = Rig::new();
    let daemon = rig.start().await;
    let mut loud = Loud::start(&rig, &daemon, "timeout: 2").await;
    loud.are_gone().await;
    daemon.faults.inner.sync(Syncs::Works);
    let mut events = daemon.journal.subscribe(&loud.run, Seq(1)).await.unwrap();
    let ended = loop {
        let line = in_time("an ended item", events.next())
            .await
            .unwrap()
            .unwrap();
        if line.event_type == "item_completed" {
            break line;
        }
    };
    let (ended, _charge) = daemon.journal.whole(&loud.run, ended).await.unwrap();
    let ended: Value = serde_json::from_str(&ended.payload).unwrap();
    assert_eq!(ended["error"]["code"], "timeout");
    daemon.stop().await;
}
