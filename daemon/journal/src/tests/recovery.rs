use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use proptest::prelude::*;
use rye_core::frame::{Frame, SegmentId};
use rye_core::id::{Epoch, RunId};
use rye_core::ledger::{AccountId, Cost, Meter, MeterId};
use rye_core::model::{Event, Run, RunEvent, SuspendReason, Suspension};
use serde_json::json;

use crate::error::Error;
use crate::log::segment;
use crate::testing::*;
use crate::tests::accounts::{account, held, opened, raised, settled, usd};
use crate::{AccountRow, Journal};
use rye_core::state::{Change, RefusalReason, Refused};

/// The newest segment with frames: its path, its content, and the end of each frame.
pub(super) fn tail(rig: &Rig) -> (PathBuf, Vec<u8>, Vec<usize>) {
    let dir = rig.state().join("log");
    let mut segments: Vec<PathBuf> = fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|end| end == "seg"))
        .collect();
    segments.sort();
    let path = segments.pop().unwrap();
    let number = u64::from_str_radix(path.file_stem().unwrap().to_str().unwrap(), 16).unwrap();
    let bytes = fs::read(&path).unwrap();
    let mut ends = vec![0];
    while let Some(frame) = Frame::decode(SegmentId(number), &bytes[*ends.last().unwrap()..]) {
        ends.push(ends.last().unwrap() + frame.encoded_len());
    }
    (path, bytes, ends)
}

/// Replaces the bytes of a segment from `cut` on by `fill`.
pub(super) fn tear(path: &Path, bytes: &[u8], cut: usize, fill: u8) {
    let mut torn = bytes.to_vec();
    let end = torn.len() - segment::TRAILER.len();
    torn[cut..end].fill(fill);
    fs::write(path, torn).unwrap();
}

#[tokio::test]
async fn a_log_cut_anywhere_in_its_last_two_frames_opens_to_a_legal_prefix() {
    let rig = Rig::with_segments_of(16 * 1024);
    let journal = rig.open().await;
    let run = journal.put_run(&rig, "run-a", 2).await;
    let before = journal.record(&run).await;
    journal.put(turn(&run, 3)).await;
    let between = journal.record(&run).await;
    journal.put(turn(&run, 4)).await;
    drop(journal);
    let (path, bytes, ends) = tail(&rig);
    let whole = image(rig.root.path());
    let last = ends.len() - 1;
    // The bytes after the cut are zero or not.
    for cut in ends[last - 2]..ends[last] {
        restore(rig.root.path(), &whole);
        tear(&path, &bytes, cut, if cut % 2 == 0 { 0xa5 } else { 0 });
        let (journal, recovered) = rig.try_open().await.unwrap();
        let expected = if cut < ends[last - 1] {
            &before
        } else {
            &between
        };
        assert_eq!(&recovered.live[0], expected, "cut at byte {cut}");
        // The log can be continued.
        let step = expected.steps() + 1;
        journal.put(turn(&run, step)).await;
    }
}

#[tokio::test]
async fn torn_log_undoes_money_with_its_event() {
    let rig = Rig::with_segments_of(16 * 1024);
    let journal = rig.open().await;
    journal.put(opened(&rig, "run-root", None, Some("1"))).await;
    journal
        .put(opened(&rig, "run-child", Some("run-root"), Some("0.4")))
        .await;
    let run = id("run-child");
    let hold = held(1, "0.1", &[("day/2026-11-22", "2.5")]);
    let put = async |event| journal.put(vec![change(&run, event)]).await;
    put(hold).await;
    put(settled(1, "0.1", "0.03")).await;
    journal.put(vec![raised("run-child", "0.5")]).await;
    drop(journal);
    let (path, bytes, ends) = tail(&rig);
    let whole = image(rig.root.path());
    let last = ends.len() - 1;
    for cut in (ends[last - 2]..ends[last]).step_by(3) {
        restore(rig.root.path(), &whole);
        tear(&path, &bytes, cut, 0xa5);
        let journal = rig.open().await;
        let child = journal.account(&account("run-child")).await.unwrap();
        let child = child.unwrap().account;
        let is_settled = cut >= ends[last - 1];
        let expected = if is_settled { "0.03" } else { "0.1" };
        assert_eq!(child.used(), usd(expected), "cut at byte {cut}");
        assert_eq!(child.reserved(), usd("0.4"), "the raise is gone");
        let root = journal.account(&account("run-root")).await.unwrap();
        assert_eq!(root.unwrap().account.used(), usd("0.4"));
        let record = journal.record(&run).await;
        assert_eq!(record.open_call.is_none(), is_settled);
    }
}

#[tokio::test]
async fn truncated_segment_stops_start_and_changes_nothing() {
    let rig = Rig::with_segments_of(16 * 1024);
    let journal = rig.open().await;
    journal.put_run(&rig, "run-a", 5).await;
    drop(journal);
    let (path, bytes, ends) = tail(&rig);
    let behind_frames = [ends[ends.len() - 1], bytes.len() - 1];
    for cut in ends.iter().copied().chain(behind_frames) {
        fs::write(&path, &bytes[..cut]).unwrap();
        let before = image(rig.root.path());
        match rig.try_open().await {
            Err(Error::Missing { path: named }) => assert_eq!(named, path),
            other => panic!("cut at byte {cut}: {other:?}"),
        }
        assert_eq!(image(rig.root.path()), before);
    }
    fs::write(&path, &bytes).unwrap();
    rig.try_open().await.unwrap();
}

#[tokio::test]
async fn flipped_bit_in_older_frame_stops_start_and_changes_nothing() {
    let rig = Rig::new();
    let journal = rig.open().await;
    journal.put_run(&rig, "run-a", 5).await;
    drop(journal);
    let (path, bytes, ends) = tail(&rig);
    for frame in 0..ends.len() - 2 {
        for place in [ends[frame], ends[frame] + 20, ends[frame + 1] - 1] {
            let mut flipped = bytes.clone();
            flipped[place] ^= 0x10;
            fs::write(&path, &flipped).unwrap();
            let before = image(rig.root.path());
            match rig.try_open().await {
                Err(Error::Corrupt { offset, .. }) => {
                    assert_eq!(usize::try_from(offset).unwrap(), ends[frame]);
                }
                other => panic!("byte {place} of frame {frame}: {other:?}"),
            }
            assert_eq!(image(rig.root.path()), before);
        }
    }
    fs::write(&path, &bytes).unwrap();
    rig.try_open().await.unwrap();
}

#[tokio::test]
async fn a_missing_segment_stops_the_boot() {
    let rig = Rig::with_segments_of(4096);
    let journal = rig.open().await;
    // Makes writing the base fail, so that no segment is removed.
    fs::create_dir(rig.state().join("base.tmp")).unwrap();
    journal.put_run(&rig, "run-a", 30).await;
    drop(journal);
    let dir = rig.state().join("log");
    let whole = image(&dir);
    let segments: Vec<&PathBuf> = whole
        .iter()
        .map(|(path, _)| path)
        .filter(|path| path.extension().is_some_and(|end| end == "seg"))
        .collect();
    assert!(segments.len() > 2);
    for missing in &segments[..segments.len() - 1] {
        restore(&dir, &whole);
        fs::remove_file(missing).unwrap();
        assert!(matches!(rig.try_open().await, Err(Error::Corrupt { .. })));
    }
    fs::remove_dir_all(&dir).unwrap();
    assert!(matches!(rig.try_open().await, Err(Error::Missing { .. })));
    fs::write(rig.state().join("archive"), b"something").unwrap();
    let refused = rig.try_open().await.map(drop);
    assert!(matches!(refused, Err(Error::Former { .. })), "{refused:?}");
}

#[tokio::test]
async fn a_base_that_cannot_be_read_stops_the_boot() {
    let rig = Rig::new();
    let journal = rig.open().await;
    journal.put_run(&rig, "run-a", 1).await;
    journal.close().await.unwrap();
    drop(journal);
    let path = rig.state().join("base");
    let mut bytes = fs::read(&path).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&path, bytes).unwrap();
    let before = image(rig.root.path());
    assert!(matches!(rig.try_open().await, Err(Error::Files { .. })));
    assert_eq!(image(rig.root.path()), before);
}

#[tokio::test]
async fn epoch_increases_at_each_start() {
    let rig = Rig::new();
    for life in 1..=4_u64 {
        let (journal, recovered) = rig.try_open().await.unwrap();
        assert_eq!(recovered.epoch, Epoch(life));
        assert_eq!(journal.epoch(), Epoch(life));
        if life % 2 == 0 {
            journal.close().await.unwrap();
        }
    }
}

#[tokio::test]
async fn a_closed_journal_refuses_commits_and_opens_to_the_same_state() {
    let rig = Rig::new();
    let journal = rig.open().await;
    let run = journal.put_run(&rig, "run-a", 3).await;
    let before = journal.record(&run).await;
    journal.close().await.unwrap();
    assert!(matches!(
        journal.commit(turn(&run, 4)).await,
        Err(Error::Closed | Error::Failed(_))
    ));
    drop(journal);
    let (journal, recovered) = rig.try_open().await.unwrap();
    assert_eq!(recovered.live, [before]);
    journal.put(turn(&run, 4)).await;
}

/// One step of a random sequence.
#[derive(Debug, Clone, Copy)]
enum Move {
    /// Creates a run, below that with the given number if it exists, with a share in cents if one is given.
    Create(usize, Option<u8>),
    Step(usize),
    /// Reserves an amount in cents for a call.
    Hold(usize, u8),
    /// Settles the call at a cost in cents.
    Settle(usize, u8),
    Raise(usize, u8),
    Suspend(usize),
    Resume(usize),
    End(usize),
    Crash,
    /// A crash after which the index is missing.
    Unindexed,
    Close,
}

impl Move {
    /// True if the daemon only stops and starts again.
    fn changes_nothing(self) -> bool {
        matches!(self, Self::Crash | Self::Unindexed | Self::Close)
    }
}

fn moves() -> impl Strategy<Value = Vec<Move>> {
    let run = 0..5_usize;
    let cents = 0..60_u8;
    let at = (run.clone(), cents.clone());
    let one = prop_oneof![
        3 => (run.clone(), proptest::option::of(cents)).prop_map(|(above, share)| Move::Create(above, share)),
        6 => run.clone().prop_map(Move::Step),
        6 => at.clone().prop_map(|(run, cents)| Move::Hold(run, cents)),
        6 => at.clone().prop_map(|(run, cents)| Move::Settle(run, cents)),
        2 => at.prop_map(|(run, cents)| Move::Raise(run, cents)),
        1 => run.clone().prop_map(Move::Suspend),
        1 => run.clone().prop_map(Move::Resume),
        2 => run.prop_map(Move::End),
        1 => Just(Move::Crash),
        1 => Just(Move::Unindexed),
        1 => Just(Move::Close),
    ];
    proptest::collection::vec(one, 1..60)
}

/// Result of a random sequence: the records, accounts and meters.
#[derive(Debug, PartialEq)]
struct Known {
    records: Vec<Arc<Run>>,
    /// Each with its cost and that of all accounts below it.
    accounts: Vec<(Option<AccountRow>, Cost)>,
    meters: BTreeMap<MeterId, Meter>,
}

impl Known {
    async fn of(journal: &Journal, runs: &[RunId]) -> Self {
        let (mut records, mut accounts) = (Vec::new(), Vec::new());
        for run in runs {
            records.push(journal.record(run).await);
            let account = AccountId(run.clone());
            let row = journal.account(&account).await.unwrap();
            accounts.push((row, journal.cost(&account).await.unwrap()));
        }
        let sequencer = journal.sequencer.lock();
        assert_eq!(sequencer.state.recount(), Ok(()));
        Self {
            records,
            accounts,
            meters: sequencer.state.ledger().meters().clone(),
        }
    }
}

fn cents(cents: u8) -> String {
    format!("0.{cents:02}")
}

/// The changes of `run` by the step `one`.
fn money(journal: &Journal, run: &Run, one: Move) -> Vec<Change> {
    let name = run.id.as_str();
    let spendable = journal.spendable(&run.spec.budget.account);
    let next = spendable.map_or(1, |(call, _)| call.0);
    let event = match one {
        Move::Hold(_, amount) => held(next, &cents(amount), &[("day/2026-11-22", "2.5")]),
        Move::Settle(_, cost) => {
            let open = run.open_call.map(|open| open.amount.to_string());
            settled(
                next - 1,
                &open.unwrap_or_else(|| "0".to_owned()),
                &cents(cost),
            )
        }
        Move::Raise(_, to) => return vec![raised(name, &format!("1.{to:02}"))],
        Move::Create(..)
        | Move::Step(_)
        | Move::Suspend(_)
        | Move::Resume(_)
        | Move::End(_)
        | Move::Crash
        | Move::Unindexed
        | Move::Close => unreachable!("{one:?} moves no money"),
    };
    vec![change(&run.id, event)]
}

async fn live(rig: &Rig, moves: Vec<Move>) {
    let mut journal = rig.open().await;
    let mut runs: Vec<RunId> = Vec::new();
    let mut known = Known::of(&journal, &runs).await;
    for one in moves {
        let pick = |number: usize| known.records.get(number);
        let rests = |number: usize, event: fn() -> Event| {
            let run = pick(number)?;
            let events = run.with_settlement(event()).into_iter();
            Some(events.map(|event| change(&run.id, event)).collect())
        };
        let changes: Option<Vec<Change>> = match one {
            Move::Create(above, share) => {
                let name = format!("run-{}", runs.len());
                let above = pick(above).map(|run| run.id.as_str());
                runs.push(id(&name));
                Some(opened(rig, &name, above, share.map(cents).as_deref()))
            }
            Move::Step(number) => pick(number).map(|run| turn(&run.id, run.steps() + 1)),
            Move::Hold(number, _) | Move::Settle(number, _) | Move::Raise(number, _) => {
                pick(number).map(|run| money(&journal, run, one))
            }
            Move::Suspend(number) => rests(number, || {
                Event::Run(RunEvent::RunSuspended(Suspension::new(
                    SuspendReason::Restart,
                )))
            }),
            Move::Resume(number) => pick(number).map(|run| {
                vec![change(
                    &run.id,
                    Event::Run(RunEvent::resumed(journal.epoch())),
                )]
            }),
            Move::End(number) => rests(number, finish),
            Move::Crash | Move::Unindexed => None,
            Move::Close => {
                journal.close().await.unwrap();
                None
            }
        };
        if one.changes_nothing() {
            drop(journal);
            if let Move::Unindexed = one {
                fs::remove_dir_all(rig.state().join("index")).unwrap();
            }
            journal = rig.open().await;
        }
        if let Some(changes) = changes {
            match journal.commit(changes).await {
                Ok(committed) => journal.durable(committed.ticket).await.unwrap(),
                Err(Error::Refused(Refused {
                    why:
                        RefusalReason::Illegal(_) | RefusalReason::NotLive | RefusalReason::Budget(_),
                    ..
                })) => {
                    if let Move::Create(..) = one {
                        let _unborn = runs.pop();
                    }
                }
                Err(other) => panic!("{other:?}"),
            }
        }
        let now = Known::of(&journal, &runs).await;
        if one.changes_nothing() {
            assert_eq!(known, now, "{one:?}");
        }
        known = now;
    }
    for (run, record) in runs.iter().zip(&known.records) {
        let history = journal.history(run).await.unwrap();
        let seqs: Vec<u64> = history.iter().map(|line| line.seq.0).collect();
        assert_eq!(seqs, (1..=record.seq.0).collect::<Vec<_>>());
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]
    #[test]
    fn replayed_state_equals_previous_state(moves in moves(), segment in 2_u64..8) {
        let rig = Rig::with_segments_of(segment * 1024);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(live(&rig, moves));
    }
}

#[test]
fn a_commit_is_encoded_as_it_is_decoded() {
    use crate::record::{Body, Rendered, encode_commit};
    use rye_core::clock::Timestamp;
    use rye_core::id::Seq;

    let run = id("run-a");
    let events = [
        completed(1, json!({"a": [1.5, -0.0, "ü\n", null]})),
        started(2),
        finish(),
    ];
    let rendered: Vec<Rendered> = events.iter().map(Rendered::of).collect();
    let at = Timestamp::from_ms(17);
    let records = events.iter().zip(&rendered);
    let records = records.map(|(event, text)| (&run, Seq(4), event.name(), text));
    let bytes = encode_commit(at, records);
    let body: Body = serde_json::from_slice(&bytes).unwrap();
    assert_eq!(body.encode(), bytes);
    let Body::Commit { records, .. } = body else {
        panic!("not a commit")
    };
    let objects = rye_host::blobs::Store::open("/nonexistent");
    for (record, event) in records.iter().zip(&events) {
        assert_eq!(record.event.event(&objects).unwrap(), *event);
    }
}

#[tokio::test]
async fn an_opened_journal_shows_all_that_was_committed() {
    let rig = Rig::new();
    let journal = rig.open().await;
    let run = journal.put_run(&rig, "run-a", 0).await;
    for step in 1..50 {
        journal.put(turn(&run, step)).await;
    }
    let shown = journal.history(&run).await.unwrap();
    drop(journal);
    let journal = rig.open().await;
    let last = journal.sequencer.lock().last;
    assert_eq!(journal.export_source().published(), last);
    assert_eq!(journal.history(&run).await.unwrap(), shown);
}
