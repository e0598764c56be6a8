//! The sweep: objects that only removed runs name are deleted after a start, and no others.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::sync::Arc;

use proptest::prelude::*;
use rye_core::digest::Digest;
use rye_core::id::{Lsn, RunId};
use rye_core::model::Spec;
use rye_core::state::Change;
use rye_host::{blobs, task};
use serde_json::{Value, json};

use crate::Journal;
use crate::faults::hooks::SWEEPER;
use crate::history;
use crate::sweeper::{Sweep, Sweeper};
use crate::testing::*;
use crate::watermark::lock;

/// Waits until the sweeper thread has ended.
async fn swept(journal: &Journal) {
    let sweeper = {
        let mut threads = lock(&journal.threads);
        let at = threads
            .iter()
            .position(|thread| thread.thread().name() == Some("sweeper"));
        at.map(|at| threads.remove(at))
    };
    if let Some(sweeper) = sweeper {
        task::blocking("wait for the sweep", move || sweeper.join().unwrap()).await;
    }
}

fn is_due(rig: &Rig) -> bool {
    rig.state().join("unswept").exists()
}

/// Returns the names of all objects in the store.
fn stored(rig: &Rig) -> BTreeSet<Digest> {
    let objects = rig.state().join("objects");
    if !objects.exists() {
        return BTreeSet::new();
    }
    let files = image(&objects).into_iter();
    let names = files.map(|(path, _)| path.file_name().unwrap().to_str().unwrap().parse());
    names.map(Result::unwrap).collect()
}

fn content(rig: &Rig, name: &Digest) -> Vec<u8> {
    let text = name.to_string();
    fs::read(rig.state().join("objects").join(&text[..2]).join(text)).unwrap()
}

/// Creates a run with a long text in its record and in an event.
async fn long_run(rig: &Rig, journal: &Journal, name: &str, text: &str) -> RunId {
    let run = id(name);
    journal.put(vec![rig.create(&run)]).await;
    journal.put(begin(&run)).await;
    journal
        .put(vec![change(&run, completed(1, json!(long(text))))])
        .await;
    run
}

async fn ended_run(rig: &Rig, journal: &Journal, name: &str, text: &str) -> RunId {
    let run = long_run(rig, journal, name, text).await;
    journal.put(vec![change(&run, finish())]).await;
    journal.seal().await;
    run
}

async fn remove(journal: &Journal, run: &RunId) {
    let removed = journal.remove(std::slice::from_ref(run), "uid:0").await;
    assert_eq!(removed.unwrap().len(), 1);
}

/// Reads everything of a run, with its long payloads.
async fn assert_readable(journal: &Journal, run: &RunId) {
    journal.record(run).await;
    for line in journal.history(run).await.unwrap() {
        journal.whole(run, line).await.unwrap();
    }
}

#[tokio::test]
async fn objects_of_removed_runs_alone_are_deleted_by_the_next_start() {
    let rig = Rig::new();
    let journal = rig.open().await;
    let gone = ended_run(&rig, &journal, "gone", "one").await;
    let before = stored(&rig);
    let kept = ended_run(&rig, &journal, "kept", "two").await;
    assert!(!is_due(&rig));
    remove(&journal, &gone).await;
    assert!(is_due(&rig));
    let all = stored(&rig);
    journal.close().await.unwrap();
    assert_eq!(stored(&rig), all);
    drop(journal);
    let journal = rig.open().await;
    swept(&journal).await;
    assert_eq!(stored(&rig), all.difference(&before).copied().collect());
    assert_readable(&journal, &kept).await;
    assert!(!is_due(&rig));
}

#[tokio::test]
async fn start_without_a_removal_sweeps_nothing() {
    let rig = Rig::new();
    let journal = rig.open().await;
    let orphan = journal.keep("no run names this".into()).await.unwrap();
    journal.close().await.unwrap();
    drop(journal);
    let journal = rig.open().await;
    swept(&journal).await;
    assert_eq!(stored(&rig), BTreeSet::from([orphan]));
}

#[tokio::test]
async fn log_that_names_objects_of_a_removed_run_is_replayed_after_the_sweep() {
    let rig = Rig::new();
    let journal = rig.open().await;
    let gone = ended_run(&rig, &journal, "gone", "one").await;
    remove(&journal, &gone).await;
    drop(journal);
    for _ in 0..2 {
        let journal = rig.open().await;
        swept(&journal).await;
        assert!(is_due(&rig));
    }
    let journal = rig.open().await;
    journal.close().await.unwrap();
    drop(journal);
    let journal = rig.open().await;
    swept(&journal).await;
    assert_eq!((is_due(&rig), stored(&rig)), (false, BTreeSet::new()));
}

#[tokio::test]
async fn removal_that_only_the_log_has_counts() {
    let rig = Rig::new();
    let journal = rig.open().await;
    let gone = ended_run(&rig, &journal, "gone", "one").await;
    journal.close().await.unwrap();
    drop(journal);
    let journal = rig.open().await;
    let before = image(&rig.state().join("history"));
    remove(&journal, &gone).await;
    drop(journal);
    restore(&rig.state().join("history"), &before);
    let journal = rig.open().await;
    swept(&journal).await;
    assert_eq!((is_due(&rig), stored(&rig)), (false, BTreeSet::new()));
}

/// Damages something that is needed to know the name of an object.
type Damage = fn(&Rig, &Digest);

#[tokio::test]
async fn nothing_is_deleted_if_something_cannot_be_read() {
    let damages: [(&str, Damage); 3] = [
        ("a named object", |rig, named| {
            let text = named.to_string();
            let path = rig.state().join("objects").join(&text[..2]).join(text);
            fs::write(path, "damaged").unwrap();
        }),
        ("a block of history", |rig, _| {
            let path = rig.state().join("history/1.his");
            let mut bytes = fs::read(&path).unwrap();
            bytes[60] ^= 1;
            fs::write(path, bytes).unwrap();
        }),
        ("a file of history", |rig, _| {
            fs::remove_file(rig.state().join("history/1.his")).unwrap();
        }),
    ];
    for (what, damage) in damages {
        let rig = Rig::new();
        let journal = rig.open().await;
        ended_run(&rig, &journal, "kept", "one").await;
        let named = *stored(&rig).first().unwrap();
        let gone = ended_run(&rig, &journal, "gone", "two").await;
        remove(&journal, &gone).await;
        journal.close().await.unwrap();
        drop(journal);
        damage(&rig, &named);
        let all = stored(&rig);
        let journal = rig.open().await;
        swept(&journal).await;
        assert_eq!(stored(&rig), all, "{what}");
        assert!(is_due(&rig), "{what}");
        // Now history has sections after the lost ones.
        ended_run(&rig, &journal, "new", "three").await;
        let all = stored(&rig);
        journal.close().await.unwrap();
        drop(journal);
        let journal = rig.open().await;
        swept(&journal).await;
        assert_eq!(stored(&rig), all, "{what}");
    }
}

#[tokio::test]
async fn objects_that_only_the_record_in_memory_names_are_kept() {
    let rig = Rig::new();
    let journal = rig.open().await;
    let named = journal.keep("named".into()).await.unwrap();
    let other = journal.keep("other".into()).await.unwrap();
    let run = id("run");
    let spec = Spec {
        content_hash: named.to_string(),
        ..rig.spec(&run)
    };
    journal
        .put(vec![Change::create(&run, Arc::new(spec))])
        .await;
    let runs = vec![journal.record(&run).await];
    journal.close().await.unwrap();
    drop(journal);
    fs::write(rig.state().join("unswept"), "").unwrap();
    let (objects, history) = (
        rig.root.path().join("state/objects"),
        rig.root.path().join("empty"),
    );
    let objects = Arc::new(blobs::Store::open(objects));
    let (history, _) = history::Store::open(&history, history::Options::default()).unwrap();
    let sweep = Sweep::if_due(&rig.state(), &objects, &history, Lsn(0), &[], runs).unwrap();
    Sweeper::new(rig.state(), objects, rig.faults.clone()).run(sweep);
    assert_eq!(stored(&rig), BTreeSet::from([named]), "{other}");
}

/// A step of a life. Numbers select a run or an object of those that there are.
#[derive(Debug, Clone)]
enum Step {
    /// Creates a run with a long text in its record.
    Create {
        text: u8,
        ends: bool,
    },
    /// Appends an entry to the conversation of a run, or begins one, and names it in another run. During a sweep it is
    /// named only after that.
    Talk {
        run: usize,
        of: usize,
        text: u8,
    },
    /// Names an object that is in the store, in an event or in a long payload.
    Name {
        run: usize,
        object: usize,
        is_long: bool,
    },
    End {
        run: usize,
    },
    Remove {
        run: usize,
    },
}

/// From one start to the next.
#[derive(Debug, Clone)]
struct Life {
    /// Number of portions that the sweep deletes before it is killed.
    deletions: Option<u64>,
    /// True if the steps come between the search of the sweep and its first deletion.
    is_during_sweep: bool,
    steps: Vec<Step>,
    closes: bool,
}

fn step() -> impl Strategy<Value = Step> {
    let number = || any::<usize>();
    prop_oneof![
        3 => (0..4_u8, any::<bool>()).prop_map(|(text, ends)| Step::Create { text, ends }),
        3 => (number(), number(), 0..3_u8).prop_map(|(run, of, text)| Step::Talk { run, of, text }),
        2 => (number(), number(), any::<bool>())
            .prop_map(|(run, object, is_long)| Step::Name { run, object, is_long }),
        2 => number().prop_map(|run| Step::End { run }),
        3 => number().prop_map(|run| Step::Remove { run }),
    ]
}

fn life() -> impl Strategy<Value = Life> {
    let steps = proptest::collection::vec(step(), 1..12);
    let deletions = proptest::option::of(0..3_u64);
    let life = (deletions, any::<bool>(), steps, any::<bool>());
    life.prop_map(|(deletions, is_during_sweep, steps, closes)| Life {
        deletions,
        is_during_sweep,
        steps,
        closes,
    })
}

/// A run that was not removed.
#[derive(Debug)]
struct Known {
    run: RunId,
    is_live: bool,
    /// Long text that its record names once it has ended.
    text: Digest,
    /// Objects that it names itself.
    names: BTreeSet<Digest>,
    /// Newest entry of its conversation.
    head: Option<Digest>,
}

impl Known {
    async fn learn(&mut self, journal: &Journal) {
        for line in journal.history(&self.run).await.unwrap() {
            self.names.extend(Digest::all_in(line.payload.as_bytes()));
        }
    }
}

#[derive(Debug, Default)]
struct Model {
    created: usize,
    runs: Vec<Known>,
    /// Entries that are stored and that no event names yet, each with its run.
    unnamed: Vec<(RunId, Digest)>,
    /// Entries that no event named before their run ended. They stay until a removal makes a sweep due.
    orphans: BTreeSet<Digest>,
    /// Names in each object that was ever in the store.
    contents: BTreeMap<Digest, BTreeSet<Digest>>,
}

impl Model {
    /// Enters what the store has.
    fn look(&mut self, rig: &Rig) {
        for name in stored(rig) {
            let names = || Digest::all_in(&content(rig, &name)).collect();
            self.contents.entry(name).or_insert_with(names);
        }
    }

    /// Returns the objects that the runs name, and those that these name, and so on.
    fn reachable(&self) -> BTreeSet<Digest> {
        let mut open: Vec<Digest> = self.runs.iter().flat_map(|run| run.names.clone()).collect();
        let mut reached = BTreeSet::new();
        while let Some(name) = open.pop() {
            if let Some(names) = self.contents.get(&name)
                && reached.insert(name)
            {
                open.extend(names);
            }
        }
        reached
    }

    async fn check(&self, rig: &Rig, journal: &Journal) {
        let (stored, reachable) = (stored(rig), self.reachable());
        let missing: Vec<_> = reachable.difference(&stored).collect();
        assert!(missing.is_empty(), "{missing:?} {self:?}");
        for name in &reachable {
            assert_eq!(Digest::of(content(rig, name)), *name);
        }
        for known in &self.runs {
            assert_readable(journal, &known.run).await;
        }
        if !is_due(rig) {
            let left = stored.difference(&reachable);
            let left: Vec<_> = left.filter(|name| !self.orphans.contains(name)).collect();
            assert!(left.is_empty(), "{left:?} {self:?}");
        }
    }

    async fn step(&mut self, rig: &Rig, journal: &Journal, step: &Step) {
        match *step {
            Step::Create { text, ends } => {
                let run = self.create(rig, journal, &format!("text {text}")).await;
                if ends {
                    self.end(journal, run).await;
                }
            }
            Step::Talk { run, of, text } => {
                if let Some(run) = self.select(run, |run| run.is_live) {
                    let of = self.select(of, |of| of.head.is_some());
                    let prev = of.and_then(|of| self.runs[of].head);
                    let entry = json!({"prev": prev, "text": text}).to_string();
                    let head = journal.keep(entry).await.unwrap();
                    self.unnamed.push((self.runs[run].run.clone(), head));
                }
            }
            Step::Name {
                run,
                object,
                is_long,
            } => {
                let objects: Vec<Digest> = stored(rig).into_iter().collect();
                if let Some(run) = self.select(run, |run| run.is_live)
                    && !objects.is_empty()
                {
                    let name = objects[object % objects.len()].to_string();
                    let content = if is_long { long(&name) } else { name };
                    self.emit(journal, run, json!(content)).await;
                }
            }
            Step::End { run } => {
                if let Some(run) = self.select(run, |run| run.is_live) {
                    self.end(journal, run).await;
                }
            }
            Step::Remove { run } => {
                if let Some(run) = self.select(run, |run| !run.is_live) {
                    remove(journal, &self.runs.remove(run).run).await;
                }
            }
        }
        self.learn(rig, journal).await;
    }

    /// Names the entries that are stored, in the order in which they were stored.
    async fn name_entries(&mut self, rig: &Rig, journal: &Journal) {
        for (run, head) in std::mem::take(&mut self.unnamed) {
            let known = self.runs.iter().position(|known| known.run == run);
            if let Some(run) = known.filter(|run| self.runs[*run].is_live) {
                self.emit(journal, run, json!({"head": head})).await;
                self.runs[run].head = Some(head);
            } else {
                self.orphans.insert(head);
            }
        }
        self.learn(rig, journal).await;
    }

    /// Enters what the live runs name by now.
    async fn learn(&mut self, rig: &Rig, journal: &Journal) {
        for known in self.runs.iter_mut().filter(|known| known.is_live) {
            known.learn(journal).await;
        }
        self.look(rig);
    }

    fn select(&self, number: usize, is_eligible: impl Fn(&Known) -> bool) -> Option<usize> {
        let eligible = (0..self.runs.len()).filter(|run| is_eligible(&self.runs[*run]));
        let eligible: Vec<usize> = eligible.collect();
        eligible.get(number % eligible.len().max(1)).copied()
    }

    async fn create(&mut self, rig: &Rig, journal: &Journal, text: &str) -> usize {
        let name = format!("run-{}", self.created);
        self.created += 1;
        self.runs.push(Known {
            run: long_run(rig, journal, &name, text).await,
            is_live: true,
            text: Digest::of(long(text)),
            names: BTreeSet::new(),
            head: None,
        });
        self.runs.len() - 1
    }

    async fn emit(&self, journal: &Journal, run: usize, content: Value) {
        let run = &self.runs[run].run;
        let change = change(run, emits(content));
        let ticket = journal.commit(vec![change]).await.unwrap().ticket;
        journal.published(ticket).await.unwrap();
    }

    async fn end(&mut self, journal: &Journal, run: usize) {
        let known = &mut self.runs[run];
        known.is_live = false;
        journal.put(vec![change(&known.run, finish())]).await;
        assert!(journal.seal().await);
        known.learn(journal).await;
        known.names.insert(known.text);
    }
}

async fn live(lives: Vec<Life>) {
    let rig = Rig::new();
    let mut model = Model::default();
    let last = Life {
        deletions: None,
        is_during_sweep: false,
        steps: Vec::new(),
        closes: true,
    };
    for life in lives.into_iter().chain([last.clone(), last]) {
        rig.faults.inner.refuse_nothing();
        if let Some(deletions) = life.deletions {
            let kind = io::ErrorKind::Interrupted;
            rig.faults.inner.refuse_after(deletions, SWEEPER, kind);
        }
        if life.is_during_sweep {
            rig.faults.inner.hang(SWEEPER);
            let journal = rig.open().await;
            if is_due(&rig) {
                eventually(async || (rig.faults.inner.hung() == 1).then_some(())).await;
            }
            for step in &life.steps {
                model.step(&rig, &journal, step).await;
            }
            rig.faults.inner.release();
            swept(&journal).await;
            model.name_entries(&rig, &journal).await;
            end_life(&rig, &mut model, journal, life.closes).await;
        } else {
            let journal = rig.open().await;
            swept(&journal).await;
            model.check(&rig, &journal).await;
            for step in &life.steps {
                model.step(&rig, &journal, step).await;
                model.name_entries(&rig, &journal).await;
            }
            end_life(&rig, &mut model, journal, life.closes).await;
        }
    }
    assert!(!is_due(&rig));
    model.check(&rig, &rig.open().await).await;
}

async fn end_life(rig: &Rig, model: &mut Model, journal: Journal, closes: bool) {
    model.check(rig, &journal).await;
    if closes {
        journal.close().await.unwrap();
    }
    drop(journal);
    model.look(rig);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn sweep_keeps_what_other_runs_name_and_deletes_the_rest(
        lives in proptest::collection::vec(life(), 2..5),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(live(lives));
    }
}
