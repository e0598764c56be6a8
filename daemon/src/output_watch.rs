//! Watch rules of a managed process: lines that they match are messages to the thread that owns it.
//!
//! **Order.** Lines are read from the file of the process, never before they are in it. The matches of a moment are one
//! commit: `process_watched` of the process, and `message_queued` of the thread. **Crash.** The search begins again at
//! the recorded position ([`rye_core::process::LineSearch`]). **Races.** A message that joins one which the model
//! receives at that moment is refused by the record, and made anew. **Failure**: while the thread can take no message,
//! matches wait; at the end of an attempt those that wait for too long are lost, with a warning.

use std::convert::Infallible;
use std::future::pending;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rye_core::error::with_sources;
use rye_core::id::RunId;
use rye_core::model::event::Warning;
use rye_core::model::{Event, ProcessWatch, Run, WatchRule};
use rye_core::process::LineSearch;
use rye_host::task;
use rye_journal::Change;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use crate::process_log::{ProcessLog, Stream, Tail};
use crate::services::Services;

/// Time after a match for which further ones belong to the same message.
const TOGETHER: Duration = Duration::from_millis(200);
/// Pause after a commit that was refused.
const RETRY: Duration = Duration::from_millis(200);
/// Time limit of the search of the last lines of an attempt.
const LAST_LINES_TIME: Duration = Duration::from_secs(10);
/// Commits of their matches that are tried.
const LAST_TRIES: usize = 3;
/// Lines that are read at a time.
const LINES_PER_READ: usize = 32;
/// Time after which a reader pauses.
const READ_TIME: Duration = Duration::from_millis(50);

/// The watch rules of one process.
#[derive(Debug)]
pub struct OutputWatch {
    services: Arc<Services>,
    process: RunId,
    thread: RunId,
    log: Arc<ProcessLog>,
    reader: Arc<Mutex<LineReader>>,
}

#[derive(Debug, Default)]
struct LineReader {
    search: LineSearch,
    tail: Option<Tail>,
}

impl LineReader {
    /// Reads lines after those read before, for a while. Returns true if there may be more, and the rules to report.
    /// Blocks.
    fn read(&mut self, log: &ProcessLog) -> io::Result<(bool, Vec<WatchRule>)> {
        let begun = Instant::now();
        let mut reported = Vec::new();
        while let Some(from) = self.search.pending() {
            let mut tail = match self.tail.take() {
                Some(tail) if tail.position() <= from => tail,
                // A rule was added that begins earlier.
                Some(_) | None => log.tail(from),
            };
            let lines = tail.read(LINES_PER_READ)?;
            self.tail = Some(tail);
            for line in lines.iter().filter(|line| line.stream != Stream::Note) {
                reported.extend(self.search.read(line.cursor(), line.at, &line.text));
            }
            if lines.len() < LINES_PER_READ || begun.elapsed() >= READ_TIME {
                return Ok((lines.len() >= LINES_PER_READ, reported));
            }
        }
        Ok((false, reported))
    }

    /// Takes over the progress on record. Returns true if no rule is active.
    fn refresh(&mut self, state: &ProcessWatch) -> bool {
        self.search.refresh(state);
        let is_idle = self.search.pending().is_none();
        if is_idle {
            // Later lines are read from the file that is in use then.
            self.tail = None;
        }
        is_idle
    }
}

impl OutputWatch {
    /// Makes the watch of the process `run`; `None` unless a thread owns it.
    pub fn new(services: &Arc<Services>, run: &Run) -> Option<Self> {
        let thread = run.spec.parent.clone()?;
        let owner = services.journal.snapshot(&thread)?;
        owner.thread()?;
        Some(Self {
            services: Arc::clone(services),
            process: run.id.clone(),
            thread,
            log: services.process_logs.of(&run.id),
            reader: Arc::default(),
        })
    }

    fn reader(&self) -> MutexGuard<'_, LineReader> {
        self.reader.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends matches while an attempt is in flight. Dropping the future loses nothing.
    pub async fn follow(&self) -> Infallible {
        let Some(mut commits) = self.services.journal.commits(&self.process) else {
            return pending().await;
        };
        let mut writes = self.log.writes();
        let mut due: Option<Instant> = None;
        loop {
            commits.mark_unchanged();
            writes.mark_unchanged();
            let is_behind = self.read().await;
            if self.reader().search.has_batch() {
                let at = *due.get_or_insert_with(|| Instant::now() + TOGETHER);
                if at <= Instant::now() {
                    due = (!self.commit().await).then(|| Instant::now() + RETRY);
                    continue;
                }
            } else {
                due = None;
            }
            if is_behind {
                continue;
            }
            let is_idle = self.refresh();
            let is_due = async {
                match due {
                    Some(due) => sleep_until(due).await,
                    None => pending().await,
                }
            };
            // The senders live as long as the log and the run.
            tokio::select! {
                _ = commits.changed() => {}
                _ = writes.changed(), if !is_idle => {}
                () = is_due => {}
            }
        }
    }

    /// Sends the matches of all lines that are in the file, unless the thread has ended.
    pub async fn finish(&self) {
        let read = async { while self.read().await {} };
        let mut is_sent = timeout(LAST_LINES_TIME, read).await.is_ok();
        for _ in 0..LAST_TRIES {
            if !self.reader().search.has_batch() || self.commit().await {
                break;
            }
            sleep(RETRY).await;
            self.refresh();
        }
        is_sent &= !self.reader().search.has_batch();
        if !is_sent && !self.has_thread_ended() {
            let text = "not all of the last lines that its watch rules match were sent: the thread takes no messages, or they are too many";
            self.warn(text.to_owned());
        }
    }

    fn has_thread_ended(&self) -> bool {
        let thread = self.services.journal.snapshot(&self.thread);
        thread.is_none_or(|thread| thread.status().is_terminal())
    }

    /// Takes over the progress on record. Returns true if no rule is active.
    fn refresh(&self) -> bool {
        let run = self.services.journal.snapshot(&self.process);
        let state = run.as_ref().and_then(|run| run.process());
        state.is_none_or(|state| self.reader().refresh(&state.watch))
    }

    /// Reads some lines; returns true if there may be more.
    async fn read(&self) -> bool {
        if self.refresh() {
            return false;
        }
        let (log, reader) = (Arc::clone(&self.log), Arc::clone(&self.reader));
        let read = move || {
            let mut reader = reader.lock().unwrap_or_else(PoisonError::into_inner);
            reader.read(&log)
        };
        match task::blocking("search the log of a process", read).await {
            Ok((is_behind, reported)) => {
                for rule in reported {
                    self.warn(format!(
                        "`watch`: matching {:?} of the rule `{}` takes too many steps for some lines, which count as \
                         no match; simplify it",
                        rule.pattern, rule.id
                    ));
                }
                is_behind
            }
            Err(error) => {
                tracing::warn!(run = %self.process, %error, "the log of a process cannot be searched");
                false
            }
        }
    }

    /// Commits the matches that are not on record; returns true if that was done.
    async fn commit(&self) -> bool {
        let journal = &self.services.journal;
        let Some(thread) = journal.snapshot(&self.thread) else {
            return false;
        };
        let Some(state) = thread.thread() else {
            return false;
        };
        let events = self.reader().search.batch(&self.process, &state.queue);
        let changes = events.into_iter().flat_map(|events| {
            [
                Change::event(&self.process, events.process.into()),
                Change::event(&self.thread, events.thread.into()),
            ]
        });
        match journal.commit(changes.collect()).await {
            Ok(_committed) => {
                self.refresh();
                true
            }
            Err(error) => {
                tracing::debug!(run = %self.process, error = %with_sources(&error), "matches wait");
                false
            }
        }
    }

    fn warn(&self, message: String) {
        let node = None;
        let warning = Event::from(Warning { node, message });
        if let Err(error) = self.services.journal.note(&self.process, warning) {
            tracing::warn!(error = %with_sources(&error), "a warning was not recorded");
        }
    }
}
