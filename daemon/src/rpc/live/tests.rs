use std::path::Path;
use std::sync::{Arc, mpsc};

use futures_util::FutureExt as _;
use rye_core::id::{ItemId, ItemRef, RunId};
use rye_core::model::{Budget, Spec, Task};
use rye_process::Source;

use super::*;
use crate::async_log::{Log, LogPool, Logs, OutputWriter};
use rye_host::clock::manual::ManualClock;
use rye_host::file_pool::AT_ONCE;
use rye_host::task::Scope;

fn log(files: &Path) -> Arc<Log> {
    let run = RunId::new("r-1").unwrap();
    let item = ItemRef::tool(ItemId::new("t/t").unwrap());
    let spec = Spec {
        files: files.display().to_string(),
        ..Spec::new(Task::Tool, item, run.clone(), Budget::open(run.clone()))
    };
    Logs::default().of(&run, &Arc::new(spec))
}

async fn write_line(log: &Arc<Log>, line: &str) {
    let voice = OutputWriter::new(Arc::clone(log), LogPool::default(), "step 1 a");
    voice.receive(Source::Stdout, line.as_bytes());
    voice.close().await;
}

#[tokio::test]
async fn lines_are_read_for_waiting_events() {
    let files = tempfile::tempdir().unwrap();
    let (log, clock) = (log(files.path()), ManualClock::default());
    write_line(&log, "before\n").await;
    let reader = Reader::new(Arc::clone(&log), LogPool::default(), LineFilter::default());
    let mut output = Output::begin(reader, &clock).await;
    write_line(&log, "one\n").await;
    assert_eq!(output.next(&clock, false).await, None, "nothing waits");
    output.reads = MOST_READS;
    let piece = output.next(&clock, true).await.unwrap();
    assert_eq!(
        (&*piece.heading, &*piece.text),
        ("step 1 a", "one\n"),
        "what was printed before is left out"
    );
    assert_eq!(output.next(&clock, true).await, None);
    let reads = output.reads;
    assert_eq!(output.next(&clock, true).await, None);
    assert_eq!(output.reads, reads, "it knows that there is no more");
    let mut more = Box::pin(output.read());
    assert_eq!(more.as_mut().now_or_never(), None);
    write_line(&log, "two\n").await;
    more.await;
    assert_eq!(output.next(&clock, false).await.unwrap().text, "two\n");
}

#[tokio::test]
async fn hanging_project_delays_one_event() {
    let files = tempfile::tempdir().unwrap();
    let (log, clock) = (log(files.path()), ManualClock::default());
    let pool = LogPool::default();
    let reader = Reader::new(Arc::clone(&log), pool.clone(), LineFilter::default());
    let mut output = Output::begin(reader, &clock).await;
    write_line(&log, "one\n").await;
    output.reads = MOST_READS;
    let mut tasks = Scope::new();
    let (begun, begins) = mpsc::channel();
    let mut held = Vec::new();
    for _ in 0..AT_ONCE {
        let (release, waits) = mpsc::channel::<()>();
        held.push(release);
        let (pool, begun) = (pool.clone(), begun.clone());
        tasks.spawn("hangs", |_| async move {
            let work = move || {
                begun.send(()).unwrap();
                waits.recv().unwrap_err();
            };
            pool.read("hang", work).await;
        });
    }
    tokio::task::yield_now().await;
    for _ in 0..AT_ONCE {
        begins.recv().unwrap();
    }
    {
        let mut next = Box::pin(output.next(&clock, true));
        assert_eq!(next.as_mut().now_or_never(), None);
        clock.advance(PATIENCE);
        assert_eq!(next.await, None);
    }
    // The next event does not wait.
    output.reads = MOST_READS;
    let next = output.next(&clock, true).now_or_never();
    assert_eq!(next, Some(None));
    drop(held);
    output.read().await;
    assert_eq!(output.next(&clock, false).await.unwrap().text, "one\n");
    assert!(!output.hangs);
}

#[tokio::test]
async fn read_failure_is_reported_once() {
    let files = tempfile::tempdir().unwrap();
    let (log, clock) = (log(files.path()), ManualClock::default());
    write_line(&log, "one\n").await;
    let path = files.path().join("state/threads/r-1/async.log");
    std::fs::remove_file(&path).unwrap();
    std::fs::create_dir(&path).unwrap();
    let reader = Reader::new(Arc::clone(&log), LogPool::default(), LineFilter::default());
    let mut output = Output::begin(reader, &clock).await;
    let piece = output.next(&clock, false).await.unwrap();
    let is_remark = piece.text.starts_with("[what tools print cannot be read: ");
    assert!(is_remark && piece.heading.is_empty(), "{piece:?}");
    assert_eq!(output.next(&clock, true).await, None);
    assert_eq!(output.read().now_or_never(), None, "and not again");
}
