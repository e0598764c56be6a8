//! The threads of a journal, what they share, and how they start and end.

use std::fmt;
use std::num::NonZeroUsize;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::Duration;

use rye_core::clock::Clock;
use rye_core::id::{Epoch, Lsn};
use rye_core::memory::Memory;
use rye_core::model::{Run, Syncing};
use rye_journal::history;
use tokio::sync::watch;

use super::backlog::Backlog;
use super::compactor;
use super::faults::Faults;
use super::index::{Index, IndexError};
use super::log::{self, Log, Writer};
use super::mailbox::Mailbox;
use super::publisher::{self, LiveRuns};
use super::record::Body;
use super::recovery;
use super::sealer::{self, SealBounds, Sealer};
use super::sections::Signatures;
use super::sequencer::Sequencer;
use super::touches::Touches;
use super::watermark::{Failure, Watermark};
use super::wide::Wide;
use super::{Journal, Options, Recovered, Signer};
use rye_host::blobs;
use rye_host::task;

/// The index as readers see it.
#[derive(Debug, Clone)]
pub(super) enum IndexState {
    Opening,
    Ready(Index),
    Broken(Arc<IndexError>),
}

/// What the journal's threads and its callers share.
pub(super) struct Shared {
    pub(super) dir: PathBuf,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) signer: Arc<dyn Signer>,
    pub(super) objects: blobs::Store,
    pub(super) sequencer: Mutex<Sequencer>,
    pub(super) backlog: Backlog,
    pub(super) log: Arc<Log>,
    pub(super) durable: Arc<Watermark>,
    pub(super) published: Watermark,
    /// What is published, for listeners to many runs.
    pub(super) wide: Wide,
    /// How long the start key of a removed run starts nothing.
    pub(super) keys_kept: Duration,
    /// Outlives the journal, for its one consumer.
    pub(super) touches: Arc<Touches>,
    pub(super) faults: Faults,
    pub(super) keeping: Mailbox<sealer::Inbox>,
    pub(super) compacting: Mailbox<compactor::Requests>,
    pub(super) history: history::Store,
    /// Sentences on what it has lost, as it was found at the start.
    pub(super) history_notes: Vec<String>,
    /// Of what is published and not in history.
    pub(super) signatures: Signatures,
    pub(super) index: watch::Sender<IndexState>,
    pub(super) memory: Arc<Memory>,
    /// Most runs of one tree that are not over at once.
    pub(super) tree_runs: NonZeroUsize,
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared")
            .field("dir", &self.dir)
            .field("durable", &self.durable)
            .finish_non_exhaustive()
    }
}

impl Shared {
    /// Locks the sequencer. A panic inside it is the end of the journal, not of the next caller.
    pub(super) fn sequencer(&self) -> MutexGuard<'_, Sequencer> {
        self.sequencer.lock().unwrap_or_else(|poisoned| {
            self.durable.fail(Failure::Panicked("sequencer"));
            poisoned.into_inner()
        })
    }
}

/// Starts the threads on what was recovered, and queues the frame of the new epoch.
pub(super) fn start(
    options: Options,
    opened: recovery::Opened,
    faults: Faults,
) -> (Journal, Recovered) {
    let epoch = Epoch(opened.epoch.0 + 1);
    let mut records = LiveRuns::new(opened.accounts);
    let mut live: Vec<Arc<Run>> = Vec::new();
    let oldest_last = opened.state.newest_first(None, None);
    for run in oldest_last.filter(|run| !run.status().is_terminal()) {
        if let Some(position) = opened.positions.get(&run.id) {
            records.enter(Arc::clone(&position.stream), Arc::clone(run));
        }
        live.push(Arc::clone(run));
    }
    live.reverse();
    // Not bounded by itself: each commit in it holds a permit of the backlog.
    let (sender, jobs) = channel();
    let replayed = opened.last;
    let mut sequencer = Sequencer::new(replayed, epoch, opened.state, opened.positions, sender);
    let log = Arc::new(Log::new(
        log::directory(&options.dir),
        opened.pool,
        opened.places,
        faults.clone(),
    ));
    let durable = Arc::new(Watermark::new(replayed));
    let writer = Writer::new(
        Arc::clone(&log),
        Arc::clone(&durable),
        opened.tail,
        opened.tail_end,
        replayed,
    );
    let lsn = sequencer.advance();
    let at = options.clock.now();
    let body = Body::Epoch { at, epoch }.encode();
    let sync = Syncing::Now;
    log.queue
        .post(|jobs| jobs.push(log::Job { lsn, body, sync }));
    let shared = Arc::new(Shared {
        dir: options.dir,
        clock: options.clock,
        signer: options.signer,
        objects: opened.objects,
        sequencer: Mutex::new(sequencer),
        backlog: Backlog::default(),
        log,
        durable,
        published: Watermark::new(opened.base),
        wide: Wide::new(opened.base),
        touches: Arc::default(),
        faults,
        keeping: Mailbox::default(),
        compacting: Mailbox::default(),
        history: opened.history,
        history_notes: opened.history_notes,
        signatures: Signatures::default(),
        index: watch::Sender::new(IndexState::Opening),
        memory: options.memory,
        tree_runs: options.tree_runs,
        keys_kept: options.keys_kept,
    });
    if let Err(error) = shared.log.drop_through(opened.base) {
        tracing::warn!(%error, "log segments that are not needed cannot be removed");
    }
    let publish = {
        let shared = Arc::clone(&shared);
        let backlog = opened.backlog;
        move || publisher::run(&shared, records, backlog, lsn, &jobs)
    };
    let threads = start_threads(&shared, writer, publish, (opened.base, lsn), options.seal);
    let journal = Journal {
        shared,
        threads: Mutex::new(threads),
    };
    (journal, Recovered { epoch, live })
}

/// Lets every thread finish what it has, and joins it.
pub(super) fn stop(shared: &Shared, threads: Vec<JoinHandle<()>>) {
    shared.sequencer().hang_up();
    shared.log.queue.close();
    shared.log.pool.stop();
    for thread in threads {
        if thread.join().is_err() {
            tracing::error!("a thread of the journal panicked");
        }
    }
}

/// Each thread ends when the one before it does: writer and publisher when the sequencer hangs up, then the sealer, then the compactor.
fn start_threads(
    shared: &Arc<Shared>,
    writer: Writer,
    publish: impl FnOnce() + Send + 'static,
    (base, begin): (Lsn, Lsn),
    bounds: SealBounds,
) -> Vec<JoinHandle<()>> {
    let sealer = Sealer::new(Arc::clone(shared), bounds);
    let compact = {
        let shared = Arc::clone(shared);
        move || compactor::run(&shared)
    };
    let preparer = Arc::clone(&shared.log);
    vec![
        start_thread(
            "writer",
            shared,
            move || writer.run(),
            |shared| {
                shared.durable.fail(Failure::Closed);
            },
        ),
        start_thread("publisher", shared, publish, |shared| {
            shared.touches.close();
            shared.keeping.close();
        }),
        start_thread(
            "sealer",
            shared,
            move || sealer.run(base, begin),
            |shared| shared.compacting.close(),
        ),
        start_thread("compactor", shared, compact, |_| {}),
        start_thread("preparer", shared, move || preparer.pool.maintain(), |_| {}),
    ]
}

/// A panic of `work` fails the journal; `after` runs in any case.
fn start_thread(
    name: &'static str,
    shared: &Arc<Shared>,
    work: impl FnOnce() + Send + 'static,
    after: impl FnOnce(&Shared) + Send + 'static,
) -> JoinHandle<()> {
    let shared = Arc::clone(shared);
    task::worker(name, move || {
        if catch_unwind(AssertUnwindSafe(work)).is_err() {
            shared.durable.fail(Failure::Panicked(name));
            shared.published.fail(Failure::Panicked(name));
        }
        after(&shared);
    })
}
