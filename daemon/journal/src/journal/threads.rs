//! Opening and closing a journal: its parts, and its threads.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rye_core::id::{Epoch, Lsn};
use rye_core::model::{Run, Syncing};
use rye_host::task;
use tokio::sync::{oneshot, watch};

use super::handle::Journal;
use crate::compactor::Compactor;
use crate::error::Error;
use crate::faults::Faults;
use crate::index::{IndexState, Keeper};
use crate::jobs::{Job, Replayed};
use crate::log::{self, Log, Writer};
use crate::options::{Options, SealBounds};
use crate::publisher::{LiveRuns, Publisher};
use crate::reader::{EventStore, RunStore};
use crate::record::Body;
use crate::recovery;
use crate::sealer::Sealer;
use crate::sealer::sections::Material;
use crate::sequencer::{Order, Sequencer, Ticket};
use crate::stream::Published;
use crate::sweeper::{Sweep, Sweeper};
use crate::watermark::{Failure, lock};

/// Result of opening a journal.
#[derive(Debug)]
pub struct Recovered {
    /// Epoch of this process; it is durable.
    pub epoch: Epoch,
    /// Runs that have not ended, the oldest first.
    pub live: Vec<Arc<Run>>,
}

impl Journal {
    /// Opens the journal, recovers the state in the log and begins a new epoch. The index of ended runs is opened
    /// afterwards by the sealer.
    pub async fn open(options: Options) -> Result<(Self, Recovered), Error> {
        Self::open_with(options, Faults::default()).await
    }

    /// Opens the journal with the faults of a test.
    pub async fn open_with(options: Options, faults: Faults) -> Result<(Self, Recovered), Error> {
        let seams = faults.clone();
        let (options, opened) = task::blocking("open the journal", move || {
            let opened = recovery::open(&options, seams);
            (options, opened)
        })
        .await;
        let (journal, recovered) = start(options, opened?, faults);
        let begin = journal.sequencer.lock().last;
        // Readers show all that earlier epochs committed. Otherwise exports could find a run in history that ended, and
        // write its files from the part of its events that is replayed.
        journal.published(Ticket { lsn: begin }).await?;
        Ok((journal, recovered))
    }

    /// Closes in order, without a time limit.
    pub async fn close(&self) -> Result<(), Error> {
        self.close_within(Duration::MAX).await
    }

    /// Closes in order: a last checkpoint, a last frame that confirms everything before it, the end of all threads.
    /// Commits are refused from the beginning. Work that takes longer than `patience` is abandoned: the next start
    /// repeats it from the log.
    pub async fn close_within(&self, patience: Duration) -> Result<(), Error> {
        let begun = Instant::now();
        let left = || patience.saturating_sub(begun.elapsed());
        let (reply, checkpointed) = oneshot::channel();
        if !self.sequencer.lock().begin_close(reply) {
            return Ok(());
        }
        let checkpointed = tokio::time::timeout(left() / 2, checkpointed);
        if !matches!(checkpointed.await, Ok(Ok(()))) {
            tracing::warn!("the journal closes without a last checkpoint");
        }
        let lsn = {
            let mut sequencer = self.sequencer.lock();
            let lsn = sequencer.advance();
            let at = self.clock.now();
            let body = Body::Closed { at }.encode();
            let sync = Syncing::Now;
            self.log.append(lsn, body, sync);
            lsn
        };
        let written = tokio::time::timeout(left(), self.durable(Ticket { lsn }));
        let written = written.await.unwrap_or_else(|_late| {
            tracing::warn!("the disk does not answer: the log ends without a last frame");
            Ok(())
        });
        let (sequencer, log) = (Arc::clone(&self.sequencer), Arc::clone(&self.log));
        let sweeper = Arc::clone(&self.sweeper);
        let workers = std::mem::take(&mut *lock(&self.threads));
        let stop = move || stop(&sequencer, &log, &sweeper, workers);
        let stopped = task::blocking("close the journal", stop);
        if tokio::time::timeout(left(), stopped).await.is_err() {
            tracing::warn!("the threads of the journal have not ended; the next start continues");
        }
        written
    }
}

impl Drop for Journal {
    fn drop(&mut self) {
        let workers = std::mem::take(&mut *lock(&self.threads));
        if !workers.is_empty() {
            stop(&self.sequencer, &self.log, &self.sweeper, workers);
        }
    }
}

/// Starts the threads on the recovered state, and queues the frame of the new epoch.
fn start(options: Options, opened: recovery::Opened, faults: Faults) -> (Journal, Recovered) {
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
    // Not bounded itself: each commit in it holds a permit of the backlog.
    let (sender, jobs) = channel();
    let mut order = Order::new(opened.last, epoch, opened.state, opened.positions, sender);
    let log = Arc::new(Log::new(
        log::directory(&options.dir),
        opened.pool,
        opened.places,
        opened.last,
        faults,
    ));
    let writer = Writer::new(Arc::clone(&log), opened.tail, opened.tail_end, opened.last);
    let begin = order.advance();
    let at = options.clock.now();
    let body = Body::Epoch { at, epoch }.encode();
    log.append(begin, body, Syncing::Now);
    if let Err(error) = log.drop_through(opened.base) {
        tracing::warn!(%error, "log segments that are not needed cannot be removed");
    }
    let clock = Arc::clone(&options.clock);
    let sequencer = Sequencer::new(order, Arc::clone(&log), clock, options.tree_runs);
    let sequencer = Arc::new(sequencer);
    let history = Arc::new(opened.history);
    let clock = Arc::clone(&options.clock);
    let compactor = Compactor::new(Arc::clone(&history), clock, options.keys_kept);
    let published = Arc::new(Published::new(opened.base));
    let objects = Arc::new(opened.objects);
    let faults = log.faults.clone();
    let sweeper = Sweeper::new(options.dir.clone(), Arc::clone(&objects), faults);
    let runs = Arc::new(RunStore {
        sequencer: Arc::clone(&sequencer),
        history,
        objects: Arc::clone(&objects),
        index: Arc::new(watch::Sender::new(IndexState::Opening)),
        sealer: Arc::default(),
    });
    let journal = Journal {
        events: Arc::new(EventStore {
            runs: Arc::clone(&runs),
            log: Arc::clone(&log),
            published: Arc::clone(&published),
            memory: Arc::clone(&options.memory),
        }),
        sequencer,
        log,
        published,
        sealer: Arc::clone(&runs.sealer),
        compactor: Arc::new(compactor),
        sweeper: Arc::new(sweeper),
        objects,
        runs,
        memory: options.memory,
        clock: options.clock,
        signer: options.signer,
        history_notes: opened.history_notes,
        threads: Mutex::default(),
    };
    let start = Start {
        base: opened.base,
        begin,
        records,
        backlog: opened.backlog,
        jobs,
        sweep: opened.sweep,
    };
    let threads = start.threads(&journal, writer, &options.dir, options.seal);
    *lock(&journal.threads) = threads;
    (journal, Recovered { epoch, live })
}

/// Makes every thread finish its queue, and joins it.
fn stop(sequencer: &Sequencer, log: &Log, sweeper: &Sweeper, threads: Vec<JoinHandle<()>>) {
    sweeper.close();
    sequencer.lock().close();
    log.queue.close();
    log.pool.stop();
    for thread in threads {
        if thread.join().is_err() {
            tracing::error!("a thread of the journal panicked");
        }
    }
}

/// Initial state of the threads.
struct Start {
    /// Position of the base.
    base: Lsn,
    /// Position of the frame that begins this epoch.
    begin: Lsn,
    records: LiveRuns,
    backlog: Vec<Replayed>,
    jobs: Receiver<Job>,
    /// The sweep of objects that is due.
    sweep: Option<Sweep>,
}

impl Start {
    /// Starts the threads. Each ends after the previous one: writer and publisher when the sequencer closes their
    /// queues, then the sealer, then the compactor. The sweeper ends when its sweep does.
    fn threads(
        self,
        journal: &Journal,
        writer: Writer,
        dir: &Path,
        bounds: SealBounds,
    ) -> Vec<JoinHandle<()>> {
        let Self { base, begin, .. } = self;
        let sealer = sealer_of(journal, dir, bounds);
        let publisher = Publisher {
            log: Arc::clone(&journal.log),
            published: Arc::clone(&journal.published),
            sealer: Arc::clone(&journal.sealer),
            signer: Arc::clone(&journal.signer),
            memory: Arc::clone(&journal.memory),
        };
        let publish = move || publisher.run(self.records, self.backlog, begin, &self.jobs);
        let compactor = Arc::clone(&journal.compactor);
        let preparer = Arc::clone(&journal.log);
        let log = Arc::clone(&journal.log);
        let (touches, inbox) = (Arc::clone(&journal.published), Arc::clone(&journal.sealer));
        let compacting = Arc::clone(&journal.compactor);
        let sweeper = Arc::clone(&journal.sweeper);
        let sweep = self.sweep.map(|sweep| {
            let work = move || sweeper.run(sweep);
            start_thread("sweeper", journal, work, || {})
        });
        let mut threads = vec![
            start_thread(
                "writer",
                journal,
                move || writer.run(),
                move || {
                    log.durable.fail(Failure::Closed);
                },
            ),
            start_thread("publisher", journal, publish, move || {
                touches.touches.close();
                inbox.close();
            }),
            start_thread(
                "sealer",
                journal,
                move || sealer.run(base, begin),
                move || compacting.close(),
            ),
            start_thread("compactor", journal, move || compactor.run(), || {}),
            start_thread("preparer", journal, move || preparer.pool.maintain(), || {}),
        ];
        threads.extend(sweep);
        threads
    }
}

fn sealer_of(journal: &Journal, dir: &Path, bounds: SealBounds) -> Sealer {
    let history = Arc::clone(&journal.runs.history);
    let material = Material {
        log: Arc::clone(&journal.log),
        sequencer: Arc::clone(&journal.sequencer),
        published: Arc::clone(&journal.published),
        objects: Arc::clone(&journal.objects),
    };
    let index = Keeper::new(
        dir.to_owned(),
        Arc::clone(&history),
        Arc::clone(&journal.memory),
        Arc::clone(&journal.runs.index),
        journal.log.faults.clone(),
    );
    let inbox = Arc::clone(&journal.sealer);
    Sealer::new(dir.to_owned(), material, history, index, inbox, bounds)
}

/// Starts a thread. A panic of `work` fails the journal; `after` runs in any case.
fn start_thread(
    name: &'static str,
    journal: &Journal,
    work: impl FnOnce() + Send + 'static,
    after: impl FnOnce() + Send + 'static,
) -> JoinHandle<()> {
    let (log, published) = (Arc::clone(&journal.log), Arc::clone(&journal.published));
    task::worker(name, move || {
        if catch_unwind(AssertUnwindSafe(work)).is_err() {
            log.durable.fail(Failure::Panicked(name));
            published.watermark.fail(Failure::Panicked(name));
        }
        after();
    })
}
