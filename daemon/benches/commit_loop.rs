//! Maximum speed of a run: the loop "one commit, one sync, next step", compared with the limit of the disk.
//!
//! `cargo bench -p ryed --bench commit_loop`. Rounds are interleaved, so that all rows run under the same conditions.
//! Every row prints the median, the slowest and the fastest round. Steps become durable one by one in every row.
//!
//! * `append`: write the bytes of one step at the end of a file, `fdatasync`
//! * `preallocated`: the same into a zeroed file
//! * `journal, one run`: end of step n and start of step n+1 in one commit, wait until durable; heads are signed
//! * `journal, 64 runs`: the same from 64 tasks
//! * `64 payers`: the same, with the settlement of one paid call and the hold of the next in each commit; `64 notes`:
//!   with two notes of the same length instead, which touch no account
//! * `1 MiB state`: one run whose state holds 1 MiB; `…, read`: while a reader holds its record during every commit
//! * `64 runs beside`: 64 runs while a run with 1 MiB of state commits and is read; the cost of one run's commits for
//!   the others
#![expect(clippy::print_stdout, reason = "a benchmark prints its result")]

use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant, SystemTime};

use rye_core::capability::Layer;
use rye_core::clock::{Clock, Timestamp, Uptime};
use rye_core::frame::HEADER_BYTES;
use rye_core::id::{Epoch, ItemId, ItemRef, RunId};
use rye_core::ledger::{CallNo, Usage};
use rye_core::model::event::{
    BudgetHeld, BudgetSettled, GraphCancelled, GraphStarted, StepCompleted, StepStarted, Warning,
};
use rye_core::model::{
    Because, Budget, Effect, Event, GraphTask, Object, RunEvent, Spec, StepStatus, Task,
};
use rye_core::money::Usd;
use rye_host::task::Scope;
use rye_journal::testing::Key;
use rye_journal::{Change, Journal, Options, Signer, Ticket};
use serde_json::json;

const ROUNDS: usize = 9;
const STEPS: u32 = 1000;
const RUNS: u32 = 64;
const STEPS_EACH: u32 = 100;
/// Number of steps of the run with a large state.
const LARGE_STEPS: u32 = 200;
/// Number of variables of a large state, and the length of each in bytes.
const LARGE: (u32, usize) = (8192, 128);

#[derive(Debug)]
struct Wall;

impl Clock for Wall {
    #[expect(
        clippy::disallowed_methods,
        reason = "the clock of a program of its own"
    )]
    fn now(&self) -> Timestamp {
        let since = SystemTime::now()
            .duration_since(SystemTime::UNIX_EPOCH)
            .expect("the clock is set");
        Timestamp::from_ms(i64::try_from(since.as_millis()).expect("a date in our time"))
    }

    fn up(&self) -> Uptime {
        Uptime::default()
    }

    fn random(&self) -> u64 {
        0
    }
}

fn spec(project: &Path, run: &RunId) -> Spec {
    Spec {
        project: project.display().to_string(),
        files: project.join(".ai").display().to_string(),
        principal: "uid:0".into(),
        layers: vec![Layer {
            source: "uid:0".into(),
            patterns: vec!["rye.*".into()],
        }],
        ..Spec::new(
            Task::Graph(GraphTask::default()),
            ItemRef::tool(ItemId::new("bench/loop").expect("a good id")),
            run.clone(),
            Budget::open(run.clone()),
        )
    }
}

fn started(step: u32) -> Event {
    Event::from(StepStarted {
        step,
        node: "work".into(),
        visit: step - 1,
        attempt: 1,
        action_id: "tool:rye/core/echo".into(),
        effect: Effect::Idempotent,
        key: "b5bb9d8014a0f9b1d61e21e796d78dccdf1352f23cd32812f4850b878ae4944c".into(),
        replays: false,
        now: Timestamp::from_ms(0),
        items: None,
        branches: Vec::new(),
        child: None,
        call: None,
        chain: None,
        node_input_hash: None,
    })
}

fn completed(step: u32) -> Event {
    Event::from(StepCompleted {
        step,
        node: "work".into(),
        status: StepStatus::Ok,
        elapsed_ms: 1,
        next_node: Some("work".into()),
        assigned: Object::from_iter([("count".to_owned(), json!(step))]).into(),
        error: None,
        suppressed: false,
        output: None,
        action_id: None,
        result: None,
        cache_hit: false,
        node_input_hash: None,
    })
}

/// Maximum cost of a paid call, and its actual cost.
const HELD: Usd = Usd::from_nanos(50_000);
const SPENT: Usd = Usd::from_nanos(20_000);

fn held(call: u32) -> Event {
    Event::from(BudgetHeld {
        call: CallNo(call),
        amount: HELD,
        model: "bench/model".into(),
        input: 1200,
        max_output: 4096,
        meters: Vec::new(),
    })
}

fn settled(call: u32) -> Event {
    Event::from(BudgetSettled {
        call: CallNo(call),
        amount: HELD,
        usage: Usage {
            money: SPENT,
            calls: 1,
            turns: 1,
            input: 1100,
            output: 300,
            ..Usage::default()
        },
        estimated: false,
        because: Because::Usage,
    })
}

/// A note with the same length in the log as `event`.
fn note_like(event: &Event) -> Event {
    let note = |length| {
        Event::from(Warning {
            node: None,
            message: "x".repeat(length),
        })
    };
    let length = |event: &Event| json!(event).to_string().len();
    note(length(event).saturating_sub(length(&note(0))))
}

/// Commit of each of many runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Turn {
    /// The end of a step and the start of the next.
    Step,
    /// The settlement of a paid call and the hold of the next.
    Pay,
    /// Notes of the same length.
    Note,
}

impl Turn {
    fn changes(self, run: &RunId, number: u32) -> Vec<Change> {
        let events = match self {
            Self::Step => return turn(run, number),
            Self::Pay => [settled(number), held(number + 1)],
            Self::Note => [settled(number), held(number + 1)].map(|event| note_like(&event)),
        };
        events.map(|event| change(run, event)).to_vec()
    }
}

fn change(run: &RunId, event: Event) -> Change {
    Change::event(run, event)
}

/// About the bytes that the journal writes for one step.
fn step_bytes() -> Vec<u8> {
    let events = [completed(500), started(501)];
    let records: Vec<_> = events
        .iter()
        .map(|event| json!({"run": "loop-12", "seq": 1234, "event": event}))
        .collect();
    let body = json!({"commit/1": {"at": 1_700_000_000_000_u64, "records": records}});
    let mut bytes = vec![7; HEADER_BYTES];
    bytes.extend_from_slice(body.to_string().as_bytes());
    bytes
}

fn append(dir: &Path, bytes: &[u8]) -> f64 {
    let path = dir.join("append");
    let mut file = File::create(&path).expect("a file");
    let begin = Instant::now();
    for _ in 0..STEPS {
        file.write_all(bytes).expect("a write");
        file.sync_data().expect("a sync");
    }
    rate(STEPS, begin.elapsed())
}

fn preallocated(dir: &Path, bytes: &[u8]) -> f64 {
    let path = dir.join("preallocated");
    std::fs::write(&path, vec![0; 4 << 20]).expect("a file");
    let file = OpenOptions::new().write(true).open(&path).expect("a file");
    file.sync_all().expect("a sync");
    let mut at = 0;
    let begin = Instant::now();
    for _ in 0..STEPS {
        file.write_all_at(bytes, at).expect("a write");
        file.sync_data().expect("a sync");
        at += u64::try_from(bytes.len()).expect("a length");
    }
    rate(STEPS, begin.elapsed())
}

fn rate(steps: u32, time: Duration) -> f64 {
    f64::from(steps) / time.as_secs_f64()
}

async fn put(journal: &Journal, changes: Vec<Change>) -> Ticket {
    let committed = journal.commit(changes).await.expect("a legal commit");
    let ticket = committed.ticket;
    journal.durable(ticket).await.expect("a working disk");
    ticket
}

async fn publish(journal: &Journal, changes: Vec<Change>) {
    let ticket = put(journal, changes).await;
    journal.published(ticket).await.expect("a working disk");
}

fn turn(run: &RunId, step: u32) -> Vec<Change> {
    vec![change(run, completed(step)), change(run, started(step + 1))]
}

/// 1 MiB in small pieces.
fn large_state() -> Object {
    let (count, length) = LARGE;
    let entries = (0..count).map(|number| (format!("key-{number}"), json!("x".repeat(length))));
    entries.collect()
}

async fn begin(journal: &Journal, project: &Path, run: &RunId, state: Object) {
    let spec = Arc::new(spec(project, run));
    let graph = Event::from(GraphStarted {
        graph_id: "bench/loop".into(),
        graph_run_id: run.clone(),
        start_node: "work".into(),
        state: state.into(),
    });
    let changes = vec![
        Change::create(run, spec),
        change(run, Event::Run(RunEvent::started(Epoch(1)))),
        change(run, graph),
        change(run, started(1)),
    ];
    publish(journal, changes).await;
}

/// Commits `steps` turns, and waits until the last is published, so that the measurement includes signing.
async fn walk(journal: &Journal, run: &RunId, steps: u32, turn: Turn) {
    for step in 1..steps {
        put(journal, turn.changes(run, step)).await;
    }
    publish(journal, turn.changes(run, steps)).await;
}

async fn end(journal: &Journal, run: &RunId) {
    let cause = "the bench".to_owned();
    let (steps, elapsed_ms) = (1, 1);
    let event = Event::from(GraphCancelled {
        cause,
        steps,
        elapsed_ms,
    });
    publish(journal, vec![change(run, event)]).await;
}

fn run_id() -> RunId {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    RunId::new(format!("loop-{number}")).expect("a good id")
}

async fn one_run(journal: Arc<Journal>, project: &Path) -> f64 {
    let run = run_id();
    begin(&journal, project, &run, Object::new()).await;
    let (done, seen) = tokio::sync::oneshot::channel();
    let mut scope = Scope::new();
    let walker = (Arc::clone(&journal), run.clone());
    // On a worker of the runtime, as a run of the daemon is.
    scope.spawn("run", |_| async move {
        let start = Instant::now();
        walk(&walker.0, &walker.1, STEPS, Turn::Step).await;
        rye_host::task::reply(done, start.elapsed());
    });
    let time = seen.await.expect("the run ends");
    end(&journal, &run).await;
    rate(STEPS, time)
}

async fn many_runs(journal: Arc<Journal>, project: &Path, turn: Turn) -> f64 {
    let mut runs = Vec::new();
    for _ in 0..RUNS {
        let run = run_id();
        begin(&journal, project, &run, Object::new()).await;
        if turn == Turn::Pay {
            publish(&journal, vec![change(&run, held(1))]).await;
        }
        runs.push(run);
    }
    let mut scope = Scope::new();
    let start = Instant::now();
    for run in runs.clone() {
        let journal = Arc::clone(&journal);
        scope.spawn("run", |_| async move {
            walk(&journal, &run, STEPS_EACH, turn).await;
        });
    }
    while scope.next_ended().await.is_some() {}
    let time = start.elapsed();
    for run in &runs {
        if turn == Turn::Pay {
            publish(&journal, vec![change(run, settled(STEPS_EACH + 1))]).await;
        }
        end(&journal, run).await;
    }
    rate(RUNS * STEPS_EACH, time)
}

/// Reader of the record of a run during its commits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reader {
    Absent,
    Holds,
}

async fn walk_read(journal: &Journal, run: &RunId, steps: u32, reader: Reader) {
    let mut held = None;
    for step in 1..=steps {
        if reader == Reader::Holds {
            held = journal.run(run).await.expect("a working index");
        }
        put(journal, turn(run, step)).await;
    }
    drop(held);
}

async fn large_run(journal: Arc<Journal>, project: &Path, reader: Reader) -> f64 {
    let run = run_id();
    begin(&journal, project, &run, large_state()).await;
    let (done, seen) = tokio::sync::oneshot::channel();
    let mut scope = Scope::new();
    let walker = (Arc::clone(&journal), run.clone());
    scope.spawn("run", move |_| async move {
        let start = Instant::now();
        walk_read(&walker.0, &walker.1, LARGE_STEPS, reader).await;
        rye_host::task::reply(done, start.elapsed());
    });
    let time = seen.await.expect("the run ends");
    end(&journal, &run).await;
    rate(LARGE_STEPS, time)
}

/// Rate of 64 runs while a large one commits as fast as it can.
async fn concurrent_runs(journal: Arc<Journal>, project: &Path) -> f64 {
    let large = run_id();
    begin(&journal, project, &large, large_state()).await;
    let mut scope = Scope::new();
    let walker = (Arc::clone(&journal), large.clone());
    scope.spawn("large run", move |stopping| async move {
        let mut step = 1;
        while !stopping.is_cancelled() {
            let held = walker.0.run(&walker.1).await.expect("a working index");
            put(&walker.0, turn(&walker.1, step)).await;
            drop(held);
            step += 1;
        }
    });
    let rate = many_runs(Arc::clone(&journal), project, Turn::Step).await;
    scope.close(Duration::from_secs(10)).await;
    end(&journal, &large).await;
    rate
}

/// Prints one row and returns its median.
fn row(name: &str, mut rates: Vec<f64>) -> f64 {
    rates.sort_by(f64::total_cmp);
    let median = rates[rates.len() / 2];
    println!(
        "{name:18} {median:8.0} steps/s  ({:.0} to {:.0})",
        rates[0],
        rates[rates.len() - 1]
    );
    median
}

/// Prints the rows and their ratios.
fn print(rates: [Vec<f64>; 9]) {
    let names = [
        "append",
        "preallocated",
        "journal, one run",
        "journal, 64 runs",
        "64 payers",
        "64 notes",
        "1 MiB state",
        "1 MiB state, read",
        "64 runs beside",
    ];
    let mut medians = names
        .into_iter()
        .zip(rates)
        .map(|(name, rates)| row(name, rates));
    let mut next = || medians.next().unwrap_or_default();
    let (append, preallocated, one, many) = (next(), next(), next(), next());
    let (payers, notes) = (next(), next());
    medians.for_each(drop);
    println!("64 payers to 64 notes: {:.2}", payers / notes);
    println!(
        "to append: preallocated {:.2}, one run {:.2}, 64 runs {:.2}",
        preallocated / append,
        one / append,
        many / append
    );
}

async fn measure() {
    let root = tempfile::Builder::new()
        .prefix("commit-loop-")
        .tempdir_in(env!("CARGO_TARGET_TMPDIR"))
        .expect("a directory on the disk under test");
    let project = root.path().join("project");
    std::fs::create_dir_all(project.join(".ai")).expect("a project");
    let key: Arc<dyn Signer> = Arc::new(Key::new());
    let options = Options::new(root.path().join("state"), Arc::new(Wall), key);
    let start = Instant::now();
    let (journal, _) = Journal::open(options.clone())
        .await
        .expect("a fresh journal");
    let fresh = start.elapsed();
    let journal = Arc::new(journal);
    let bytes = step_bytes();
    let mut rates: [Vec<f64>; 9] = std::array::from_fn(|_| Vec::new());
    for _ in 0..ROUNDS {
        let journal = || Arc::clone(&journal);
        let round = [
            append(root.path(), &bytes),
            preallocated(root.path(), &bytes),
            one_run(journal(), &project).await,
            many_runs(journal(), &project, Turn::Step).await,
            many_runs(journal(), &project, Turn::Pay).await,
            many_runs(journal(), &project, Turn::Note).await,
            large_run(journal(), &project, Reader::Absent).await,
            large_run(journal(), &project, Reader::Holds).await,
            concurrent_runs(journal(), &project).await,
        ];
        for (rates, rate) in rates.iter_mut().zip(round) {
            rates.push(rate);
        }
    }
    println!(
        "{ROUNDS} rounds, {} bytes a step: median (slowest to fastest)",
        bytes.len()
    );
    print(rates);
    drop(journal);
    let start = Instant::now();
    let (journal, _) = Journal::open(options.clone()).await.expect("what was left");
    let after_crash = start.elapsed();
    journal.close().await.expect("an orderly end");
    drop(journal);
    let start = Instant::now();
    let (journal, _) = Journal::open(options).await.expect("what was closed");
    let after_close = start.elapsed();
    drop(journal);
    println!(
        "open: {} ms fresh, {} ms after a crash, {} ms after a close",
        fresh.as_millis(),
        after_crash.as_millis(),
        after_close.as_millis()
    );
}

fn main() {
    tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .expect("a runtime")
        .block_on(measure());
}
