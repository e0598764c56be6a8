use std::sync::Arc;

use futures_util::FutureExt as _;
use rye_core::id::Seq;
use rye_core::model::event::Emitted;

use crate::Journal;
use crate::error::Error;
use crate::testing::*;
use crate::{Of, Read, Since, Until};

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn replay_and_live_meet_without_gap_or_duplicate() {
    let rig = Rig::with_segments_of(16 * 1024);
    let journal = Arc::new(rig.open().await);
    let run = journal.put_run(&rig, "run-a", 0).await;
    let mut scope = rye_host::task::Scope::new();
    let (results, mut seen) = tokio::sync::mpsc::channel(64);
    for reader in 0..16_u64 {
        let (journal, run, results) = (Arc::clone(&journal), run.clone(), results.clone());
        scope.spawn("reader", move |_| async move {
            // Readers begin at different times and positions.
            let wait = crate::sequencer::Ticket {
                lsn: rye_core::id::Lsn(3 + reader * 15),
            };
            journal.durable(wait).await.unwrap();
            let from = Seq(1 + reader * 10);
            let mut feed = journal.subscribe(&run, from).await.unwrap();
            let mut seqs = Vec::new();
            while let Some(line) = feed.next().await {
                seqs.push(line.unwrap().seq.0);
            }
            results.send((from.0, seqs)).await.unwrap();
        });
    }
    drop(results);
    for step in 1..=300 {
        journal.put(turn(&run, step)).await;
    }
    journal.put(vec![change(&run, finish())]).await;
    let last = 4 + 600 + 1;
    let mut readers = 0;
    while let Some((from, seqs)) = seen.recv().await {
        assert_eq!(seqs, (from..=last).collect::<Vec<_>>(), "from {from}");
        readers += 1;
    }
    assert_eq!(readers, 16);
    journal.ended(&run).await.unwrap();
}

#[tokio::test]
async fn a_slow_reader_misses_nothing() {
    let rig = Rig::new();
    let journal = rig.open().await;
    let run = journal.put_run(&rig, "run-a", 0).await;
    let mut feed = journal.subscribe(&run, Seq(1)).await.unwrap();
    for seq in 1..=4 {
        assert_eq!(feed.next().await.unwrap().unwrap().seq, Seq(seq));
    }
    // It listens from here on, and becomes too slow.
    let mut first = Box::pin(feed.next());
    assert!((&mut first).now_or_never().is_none());
    drop(first);
    let mut last = None;
    for step in 1..=700 {
        last = Some(journal.commit(turn(&run, step)).await.unwrap().ticket);
    }
    journal.published(last.unwrap()).await.unwrap();
    for seq in 5..=1404 {
        assert_eq!(feed.next().await.unwrap().unwrap().seq, Seq(seq));
    }
    // It has read the missed events, and listens again.
    journal.put(turn(&run, 701)).await;
    assert_eq!(feed.next().await.unwrap().unwrap().seq, Seq(1405));
}

#[tokio::test]
async fn feed_is_dropped_with_last_listener() {
    let rig = Rig::new();
    let journal = rig.open().await;
    let run = journal.put_run(&rig, "run-a", 0).await;
    let stream = journal.sequencer.stream(&run).unwrap();
    let is_there = || stream.published().feed.is_some();
    assert!(!is_there());
    let mut first = journal.subscribe(&run, Seq(1)).await.unwrap();
    let mut second = journal.subscribe(&run, Seq(1)).await.unwrap();
    for reader in [&mut first, &mut second] {
        while let Some(line) = reader.next().now_or_never() {
            line.unwrap().unwrap();
        }
    }
    drop(first);
    assert!(is_there());
    drop(second);
    assert!(!is_there());
    let mut again = journal.subscribe(&run, Seq(2)).await.unwrap();
    journal.put(turn(&run, 1)).await;
    assert_eq!(again.next().await.unwrap().unwrap().seq, Seq(2));
}

/// Fills the memory limit except for `left` bytes, until the result is dropped.
fn all_but(journal: &Journal, left: usize) -> rye_core::memory::Charge {
    let memory = journal.memory();
    let mut charge = memory.open();
    assert!(charge.grow(memory.most() - memory.taken() - left));
    charge
}

#[tokio::test]
async fn reader_without_memory_fails_and_can_continue() {
    let rig = Rig::new();
    let journal = rig.open().await;
    let run = journal.put_run(&rig, "run-a", 600).await;
    let before = journal.memory().taken();
    let mut feed = journal.subscribe(&run, Seq(1)).await.unwrap();
    let held = journal.memory().taken() - before;
    assert!((1..200_000).contains(&held), "{held}");
    let others = all_but(&journal, 10);
    let mut last = Seq(0);
    let cut = loop {
        match feed.next().await.unwrap() {
            Ok(line) => {
                assert_eq!(line.seq, last.next());
                last = line.seq;
            }
            Err(error) => break error,
        }
    };
    assert!(matches!(cut, Error::MemoryFull { .. }), "{cut}");
    assert!(cut.to_string().contains("limits.memory_mb"), "{cut}");
    assert!(feed.next().await.is_none(), "it is over");
    assert!(last > Seq(100) && last < Seq(1204), "it had a page: {last}");
    let refused = journal.subscribe(&run, last.next()).await;
    assert!(matches!(refused, Err(Error::MemoryFull { .. })));
    drop((others, feed));
    assert_eq!(journal.memory().taken(), before);
    let mut feed = journal.subscribe(&run, last.next()).await.unwrap();
    for seq in last.0 + 1..=1204 {
        assert_eq!(feed.next().await.unwrap().unwrap().seq, Seq(seq));
    }
    drop(feed);
    assert_eq!(journal.memory().taken(), before);
}

#[tokio::test]
async fn unread_feed_messages_count_as_memory_or_are_reread() {
    let rig = Rig::new();
    let journal = rig.open().await;
    let run = journal.put_run(&rig, "run-a", 0).await;
    let mut feed = journal.subscribe(&run, Seq(5)).await.unwrap();
    assert!(feed.next().now_or_never().is_none(), "it listens");
    let say = async |number: usize, length: usize| {
        let (name, content) = (format!("said-{number}"), "x".repeat(length).into());
        let said = Emitted { name, content };
        let ticket = journal.commit(vec![change(&run, said.into())]).await;
        journal.published(ticket.unwrap().ticket).await.unwrap();
    };
    let before = journal.memory().taken();
    say(1, 1000).await;
    let held = journal.memory().taken() - before;
    assert!((1000..1200).contains(&held), "{held}");
    {
        let _others = all_but(&journal, 10);
        say(2, 2000).await;
        assert!(journal.memory().taken() > before);
    }
    for seq in [5, 6] {
        assert_eq!(feed.next().await.unwrap().unwrap().seq, Seq(seq));
    }
    assert!(feed.next().now_or_never().is_none());
    say(3, 10).await;
    assert_eq!(feed.next().await.unwrap().unwrap().seq, Seq(7));
    drop(feed);
    assert_eq!(journal.memory().taken(), before);
}

async fn all(journal: &Journal, run: &rye_core::id::RunId) -> Vec<u64> {
    let mut feed = journal.subscribe(run, Seq(0)).await.unwrap();
    let mut seqs = Vec::new();
    while let Some(line) = feed.next().await {
        seqs.push(line.unwrap().seq.0);
    }
    seqs
}

#[tokio::test]
async fn the_feed_of_an_ended_run_ends() {
    let rig = Rig::new();
    let journal = rig.open().await;
    let run = journal.put_run(&rig, "run-a", 1).await;
    journal.put(vec![change(&run, finish())]).await;
    journal.ended(&run).await.unwrap();
    assert_eq!(all(&journal, &run).await, (1..=7).collect::<Vec<_>>());
    journal.close().await.unwrap();
    drop(journal);
    let journal = rig.open().await;
    assert_eq!(all(&journal, &run).await, (1..=7).collect::<Vec<_>>());
    journal.ended(&run).await.unwrap();
    assert!(journal.subscribe(&id("nobody"), Seq(1)).await.is_err());
}

#[tokio::test]
async fn closed_journal_fails_its_readers() {
    let rig = Rig::new();
    let journal = rig.open().await;
    let run = journal.put_run(&rig, "run-a", 0).await;
    let mut feed = journal.subscribe(&run, Seq(4)).await.unwrap();
    assert_eq!(feed.next().await.unwrap().unwrap().seq, Seq(4));
    journal.close().await.unwrap();
    drop(journal);
    let told = feed.next().await.unwrap();
    assert!(matches!(told, Err(Error::Closed)), "{told:?}");
}

#[tokio::test]
async fn a_long_run_is_read_a_page_at_a_time_from_history_and_log() {
    let rig = Rig::with_segments_of(64 * 1024);
    let journal = rig.open().await;
    let run = journal.put_run(&rig, "run-a", 0).await;
    for step in 1..=900 {
        journal.put(turn(&run, step)).await;
    }
    let read = async |journal: &Journal| {
        let of = Of::Run(run.clone());
        let cursor = journal.read(of, Since::Begin, Until::Now);
        let mut cursor = cursor.await.unwrap();
        let (mut count, mut next) = (0, Seq(1));
        while let Some(page) = cursor.next_page().await.unwrap() {
            assert!(page.len() <= 512, "{}", page.len());
            for line in page.into_iter().filter_map(Read::line) {
                assert_eq!(line.seq, next);
                next = next.next();
            }
            count += 1;
        }
        (count > 3, next)
    };
    assert_eq!(read(&journal).await, (true, Seq(1805)));
    // From here on all of it is in history.
    journal.put(vec![change(&run, finish())]).await;
    journal.ended(&run).await.unwrap();
    journal.close().await.unwrap();
    drop(journal);
    let journal = rig.open().await;
    assert_eq!(read(&journal).await, (true, Seq(1806)));
}
