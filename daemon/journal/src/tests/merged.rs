use std::sync::Arc;

use futures_util::FutureExt as _;
use rye_core::id::{Lsn, RunId, Seq};
use rye_core::model::{Budget, Spec};

use crate::Journal;
use crate::error::Error;
use crate::sequencer::Ticket;
use crate::stream::all_runs::FEED_COMMITS;
use crate::testing::*;
use crate::{Cursor, Of, Read, Since, Spot, Until};
use rye_core::state::Change;

/// Runs, start and end of a cursor.
type CursorArgs = (Of, Since, Until);

fn extent(since: Option<Spot>, follow: bool) -> (Since, Until) {
    let since = since.map_or(Since::Begin, Since::Spot);
    (since, if follow { Until::Ended } else { Until::Now })
}

/// All runs, from `since` on or from now.
fn all(since: Option<Spot>, follow: bool) -> CursorArgs {
    seen(|_| true, since, follow)
}

/// The runs that `sees` selects.
fn seen(sees: fn(&Spec) -> bool, since: Option<Spot>, follow: bool) -> CursorArgs {
    let (since, until) = extent(since, follow);
    (Of::All(Box::new(sees)), since, until)
}

/// The tree below the first of `runs`, which are its known members.
fn tree(runs: &[&RunId], since: Option<Spot>, follow: bool) -> CursorArgs {
    let (since, until) = extent(since, follow);
    let runs = runs.iter().copied().cloned().collect();
    (Of::Tree(runs, Box::new(|_| true)), since, until)
}

impl Journal {
    async fn merged(&self, (of, since, until): CursorArgs) -> Result<Cursor, Error> {
        self.read(of, since, until).await
    }
}

/// An event: its run, its seq, and its position if it has one.
type ReadEvent = (String, u64, Option<Spot>);

async fn event(merged: &mut Cursor) -> Option<ReadEvent> {
    loop {
        match merged.next().await?.unwrap() {
            Read::Event {
                run, spot, line, ..
            } => return Some((run.to_string(), line.seq.0, spot)),
            Read::At(_) => {}
        }
    }
}

/// All events up to the end.
async fn rest(mut merged: Cursor) -> Vec<ReadEvent> {
    let mut told = Vec::new();
    while let Some(event) = event(&mut merged).await {
        told.push(event);
    }
    told
}

/// Position of a reader that has received no event yet.
async fn place(merged: &mut Cursor) -> Spot {
    match merged.next().await.unwrap().unwrap() {
        Read::At(spot) => spot,
        told @ Read::Event { .. } => panic!("{told:?}"),
    }
}

fn child(rig: &Rig, parent: &RunId, run: &RunId) -> Change {
    let spec = Spec {
        parent: Some(parent.clone()),
        depth: 1,
        budget: Budget::open(run.clone()),
        ..rig.spec(run)
    };
    Change::create(run, Arc::new(spec))
}

/// The seqs of the events of `run` among `told`.
fn of(told: &[ReadEvent], run: &RunId) -> Vec<u64> {
    let own = told.iter().filter(|(name, ..)| name == run.as_str());
    own.map(|(_, seq, _)| *seq).collect()
}

/// Waits until all commits are published.
async fn published(journal: &Journal) {
    let lsn = journal.sequencer.lock().last;
    journal.published(Ticket { lsn }).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn merged_readers_get_every_event_once() {
    const RUNS: usize = 4;
    let rig = Rig::new();
    let journal = Arc::new(rig.open().await);
    let begin = place(&mut journal.merged(all(None, true)).await.unwrap()).await;
    let names: Vec<RunId> = (0..RUNS).map(|run| id(&format!("run-{run}"))).collect();
    let mut readers = rye_host::task::Group::new();
    for reader in 0..8_u64 {
        let journal = Arc::clone(&journal);
        readers.spawn(async move {
            // They begin at different times, and at the same position.
            let lsn = Lsn(begin.commit.0 + 1 + reader * 60);
            journal.durable(Ticket { lsn }).await.unwrap();
            let mut merged = journal.merged(all(Some(begin), true)).await.unwrap();
            let (mut told, mut ended) = (Vec::new(), 0);
            while ended < RUNS {
                let event = event(&mut merged).await.unwrap();
                ended += usize::from(event.1 == 4 + 2 * 150 + 1);
                told.push(event);
            }
            told
        });
    }
    let mut writers = rye_host::task::Group::new();
    for run in names.clone() {
        let (journal, create) = (Arc::clone(&journal), rig.create(&run));
        writers.spawn(async move {
            journal.put(vec![create]).await;
            journal.put(begin_of(&run)).await;
            for step in 1..=150 {
                journal.put(turn(&run, step)).await;
            }
            journal.put(vec![change(&run, finish())]).await;
        });
    }
    while writers.next().await.is_some() {}
    let mut first: Option<Vec<ReadEvent>> = None;
    while let Some(told) = readers.next().await {
        for run in &names {
            assert_eq!(of(&told, run), (1..=305).collect::<Vec<_>>());
        }
        let same = first.get_or_insert_with(|| told.clone());
        assert_eq!(*same, told, "all are told in one order");
    }
}

fn begin_of(run: &RunId) -> Vec<Change> {
    begin(run)
}

#[tokio::test]
async fn cursor_continues_after_any_event() {
    let rig = Rig::new();
    let journal = rig.open().await;
    let mut follower = journal.merged(all(None, true)).await.unwrap();
    let begin = place(&mut follower).await;
    let (one, two) = (id("run-one"), id("run-two"));
    journal.put(vec![rig.create(&one), rig.create(&two)]).await;
    journal.put([begin_of(&one), begin_of(&two)].concat()).await;
    journal.put([turn(&one, 1), turn(&two, 1)].concat()).await;
    journal.put(vec![change(&one, finish())]).await;
    published(&journal).await;
    let mut heard = Vec::new();
    for _ in 0..13 {
        heard.push(event(&mut follower).await.unwrap());
    }
    let read = rest(journal.merged(all(Some(begin), false)).await.unwrap()).await;
    assert_eq!(read, heard, "the log says what listeners were told");
    for (place, (_, _, spot)) in read.iter().enumerate() {
        let rest = rest(journal.merged(all(*spot, false)).await.unwrap()).await;
        assert_eq!(rest, read[place + 1..]);
    }
}

#[tokio::test]
async fn a_slow_reader_misses_nothing_that_the_log_holds() {
    let rig = Rig::new();
    let journal = rig.open().await;
    let mut merged = journal.merged(all(None, true)).await.unwrap();
    let _begin = place(&mut merged).await;
    // It listens from here on, and becomes too slow.
    assert!(merged.next().now_or_never().is_none());
    let run = journal.put_run(&rig, "run-a", 0).await;
    for step in 1..=u32::try_from(2 * FEED_COMMITS).unwrap() {
        journal.commit(turn(&run, step)).await.unwrap();
    }
    published(&journal).await;
    let last = u64::try_from(4 + 4 * FEED_COMMITS).unwrap();
    for seq in 1..=last {
        assert_eq!(event(&mut merged).await.unwrap().1, seq);
    }
    // It has read the missed events, and listens again.
    journal.put(vec![change(&run, finish())]).await;
    assert_eq!(event(&mut merged).await.unwrap().1, last + 1);
}

#[tokio::test]
async fn slow_reader_continues_in_history() {
    let rig = Rig::with_segments_of(16 * 1024);
    let journal = rig.open().await;
    let mut merged = journal.merged(all(None, true)).await.unwrap();
    let begin = place(&mut merged).await;
    assert!(merged.next().now_or_never().is_none());
    let run = journal.put_run(&rig, "run-a", 0).await;
    let first = begin.commit.next();
    let mut step = 0;
    eventually(async || {
        for _ in 0..FEED_COMMITS {
            step += 1;
            journal.put(turn(&run, step)).await;
        }
        journal.log.read(first).unwrap().is_none().then_some(())
    })
    .await;
    published(&journal).await;
    let last = u64::from(4 + 2 * step);
    let mut spots = Vec::new();
    for seq in 1..=last {
        let (_, read, spot) = event(&mut merged).await.unwrap();
        assert_eq!(read, seq);
        spots.push(spot);
    }
    assert!(merged.next().now_or_never().is_none(), "it listens again");
    // Its positions, in history and in the log, stay valid.
    for from in [0, 1, 2, last / 2, last - 2] {
        let at = usize::try_from(from).unwrap();
        let since = if from == 0 {
            Some(begin)
        } else {
            spots[at - 1]
        };
        let read = rest(journal.merged(all(since, false)).await.unwrap()).await;
        assert_eq!(
            of(&read, &run),
            (from + 1..=last).collect::<Vec<_>>(),
            "from {from}"
        );
    }
    let ahead = Spot {
        commit: Lsn(u64::MAX),
        more: 0,
    };
    let refused = journal.merged(all(Some(ahead), true)).await;
    assert!(matches!(refused, Err(Error::Passed)), "{refused:?}");
}

#[tokio::test]
async fn cursor_positions_survive_restart() {
    let rig = Rig::new();
    let journal = rig.open().await;
    let mut merged = journal.merged(all(None, true)).await.unwrap();
    let begin = place(&mut merged).await;
    let run = journal.put_run(&rig, "run-a", 2).await;
    let mut last = None;
    for _ in 0..8 {
        last = event(&mut merged).await.unwrap().2;
    }
    journal.close().await.unwrap();
    drop(journal);
    let told = merged.next().await.unwrap();
    assert!(matches!(told, Err(Error::Closed)), "{told:?}");
    let journal = rig.open().await;
    assert_eq!(
        rest(journal.merged(all(last, false)).await.unwrap()).await,
        []
    );
    let read = rest(journal.merged(all(Some(begin), false)).await.unwrap()).await;
    assert_eq!(of(&read, &run), (1..=8).collect::<Vec<_>>());
}

#[tokio::test]
async fn tree_cursor_reads_past_and_ends_with_last_run() {
    let rig = Rig::new();
    let journal = rig.open().await;
    let root = journal.put_run(&rig, "run-root", 1).await;
    let (early, late) = (id("run-early"), id("run-late"));
    journal.put(vec![child(&rig, &root, &early)]).await;
    let _other = journal.put_run(&rig, "run-other", 1).await;
    published(&journal).await;
    let past = rest(
        journal
            .merged(tree(&[&root, &early], None, false))
            .await
            .unwrap(),
    )
    .await;
    assert_eq!(of(&past, &root), (1..=6).collect::<Vec<_>>());
    assert_eq!(of(&past, &early), [1]);
    assert_eq!(past.len(), 7, "no other run is told of");
    assert!(past.iter().all(|(_, _, spot)| spot.is_none()));

    let mut merged = journal
        .merged(tree(&[&root, &early], None, true))
        .await
        .unwrap();
    // Events committed while past events are read follow these, and only once.
    journal.put(turn(&root, 2)).await;
    journal.put(vec![child(&rig, &root, &late)]).await;
    journal.put(begin_of(&late)).await;
    journal.put(vec![change(&root, finish())]).await;
    let mut told = Vec::new();
    for _ in 0..14 {
        told.push(event(&mut merged).await.unwrap());
    }
    assert_eq!(of(&told, &root), (1..=9).collect::<Vec<_>>());
    assert_eq!(of(&told, &late), (1..=4).collect::<Vec<_>>());
    // The root has ended, but two of its runs have not.
    assert!(merged.next().now_or_never().is_none());
    journal.put(begin_of(&early)).await;
    journal.put(vec![change(&early, finish())]).await;
    journal.put(vec![change(&late, finish())]).await;
    told.extend(rest(merged).await);
    assert_eq!(of(&told, &early), (1..=5).collect::<Vec<_>>());
    assert_eq!(of(&told, &late), (1..=5).collect::<Vec<_>>());
    // A cursor from a position in the middle reads the same events, even after all runs have ended.
    let at = told.iter().position(|(_, _, spot)| spot.is_some()).unwrap();
    let known = [&root, &early, &late];
    let again = journal
        .merged(tree(&known, told[at].2, true))
        .await
        .unwrap();
    assert_eq!(rest(again).await, told[at + 1..]);
}

#[tokio::test]
async fn merged_cursor_filters_runs() {
    let rig = Rig::new();
    let journal = rig.open().await;
    let root = journal.put_run(&rig, "run-root", 0).await;
    let only = |spec: &Spec| spec.principal == "uid:1";
    let mut merged = journal.merged(seen(only, None, true)).await.unwrap();
    let begin = place(&mut merged).await;
    let (theirs, mine) = (id("run-theirs"), id("run-mine"));
    let spec = Spec {
        principal: "uid:1".into(),
        ..rig.spec(&mine)
    };
    let created = [rig.create(&theirs), Change::create(&mine, Arc::new(spec))];
    journal.put(created.to_vec()).await;
    journal.put(turn(&root, 1)).await;
    assert_eq!(event(&mut merged).await.unwrap().0, "run-mine");
    assert!(merged.next().now_or_never().is_none());
    let read = journal
        .merged(seen(only, Some(begin), false))
        .await
        .unwrap();
    assert_eq!(of(&rest(read).await, &mine), [1]);
    let of_tree = Of::Tree(vec![root], Box::new(only));
    let of_tree = (of_tree, Since::Spot(begin), Until::Now);
    assert_eq!(rest(journal.merged(of_tree).await.unwrap()).await, []);
}

#[tokio::test]
async fn wide_feed_is_dropped_without_listeners() {
    let rig = Rig::new();
    let journal = rig.open().await;
    let is_there = || journal.published.wide.has_listeners();
    assert!(!is_there());
    let mut merged = journal.merged(all(None, true)).await.unwrap();
    let _begin = place(&mut merged).await;
    assert!(merged.next().now_or_never().is_none());
    assert!(is_there());
    drop(merged);
    let run = journal.put_run(&rig, "run-a", 0).await;
    assert!(!is_there());
    assert_eq!(
        journal.history(&run).await.unwrap().last().unwrap().seq,
        Seq(4)
    );
}
