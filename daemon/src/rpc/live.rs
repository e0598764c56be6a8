//! The live stream of a run: its events, the output of its model, and the output of its tools.
//!
//! **Order.** Lines written before an event arrived are shown before it. A tool's lines are written before the result
//! of its attempt is recorded, so the end of an attempt follows all its output. **Bounds.** Lines are read on demand, a
//! few at a time. An event waits for at most as many lines as the files of the log can hold. **Failure.** A project
//! that does not answer delays one event by [`PATIENCE`], and no later one until it answers again. A read error is
//! shown once; the events continue without output.

use std::collections::VecDeque;
use std::time::Duration;

use crate::access::Visible;
use crate::async_log::{LineFilter, Piece, Reader};
use rye_host::clock::Timer;
use rye_journal::{DeltaKind, Live, Shown};

/// Longest time that an event waits for lines written before it.
const PATIENCE: Duration = Duration::from_secs(5);
/// Most reads per event; the two files of a log need fewer.
const MOST_READS: u32 = 80;

/// The deltas that a stream shows.
#[derive(Debug, Clone)]
pub(super) struct DeltaFilter {
    /// Kinds of model output; `None` means all.
    pub(super) model_kinds: Option<Vec<DeltaKind>>,
    /// True if the output of tools is included.
    pub(super) output: bool,
}

impl DeltaFilter {
    fn has(&self, kind: DeltaKind) -> bool {
        self.model_kinds
            .as_ref()
            .is_none_or(|said| said.contains(&kind))
    }
}

pub(super) enum LiveItem {
    /// An event or a delta of the model.
    Shown(Shown),
    /// Lines printed by a tool.
    Lines(Piece),
}

pub(super) struct LiveStream {
    live: Live,
    kinds: DeltaFilter,
    output: Option<Output>,
    /// The next event or delta, held until the lines before it are shown.
    held: Option<Shown>,
}

impl LiveStream {
    /// Starts to follow `run`: the events and deltas of `live`, filtered by `kinds`, and output from now on.
    pub(super) async fn new(run: &Visible, live: Live, kinds: DeltaFilter) -> Self {
        let output = if kinds.output {
            Some(Output::begin(run.logs(LineFilter::default()), run.clock()).await)
        } else {
            None
        };
        Self {
            live,
            kinds,
            output,
            held: None,
        }
    }

    /// Returns `None` after the event that ended `run`.
    pub(super) async fn next(
        &mut self,
        run: &Visible,
    ) -> Option<Result<LiveItem, rye_journal::Error>> {
        loop {
            if let Some(output) = &mut self.output
                && let Some(piece) = output.next(run.clock(), self.held.is_some()).await
            {
                return Some(Ok(LiveItem::Lines(piece)));
            }
            if let Some(held) = self.held.take() {
                return Some(Ok(LiveItem::Shown(held)));
            }
            let shown = match &mut self.output {
                None => self.live.next().await?,
                Some(output) => tokio::select! {
                    shown = self.live.next() => shown?,
                    () = output.read() => continue,
                },
            };
            match shown {
                Ok(Shown::Delta(delta)) if !self.kinds.has(delta.kind) => {}
                Ok(shown) => {
                    self.held = Some(shown);
                    if let Some(output) = &mut self.output {
                        output.reads = MOST_READS;
                    }
                }
                Err(error) => return Some(Err(error)),
            }
        }
    }
}

struct Output {
    reader: Reader,
    /// Lines read and not yet shown.
    pieces: VecDeque<Piece>,
    /// True if there may be unread lines.
    has_unread: bool,
    /// Reads left for the event that is held.
    reads: u32,
    /// True if the project did not answer the last read.
    hangs: bool,
    /// True after a read error; no more is read.
    is_over: bool,
}

impl Output {
    /// Starts with the output printed after this call.
    async fn begin(reader: Reader, clock: &dyn Timer) -> Self {
        let mut output = Self {
            reader,
            pieces: VecDeque::new(),
            has_unread: false,
            reads: 0,
            hangs: false,
            is_over: false,
        };
        let skipped = tokio::select! {
            skipped = output.reader.skip() => skipped.map_err(|error| error.to_string()),
            () = patience(clock) => Err("the project does not answer".to_owned()),
        };
        if let Err(problem) = skipped {
            output.end(&problem);
        }
        output
    }

    fn end(&mut self, problem: &str) {
        self.is_over = true;
        self.pieces.push_back(Piece {
            heading: String::new(),
            text: format!("[what tools print cannot be read: {problem}]\n"),
        });
    }

    /// Returns the next lines. Reads more only if an event `waits` for them.
    async fn next(&mut self, clock: &dyn Timer, waits: bool) -> Option<Piece> {
        while waits && self.pieces.is_empty() && self.reads > 0 && self.has_more() {
            self.reads -= 1;
            tokio::select! {
                () = self.read() => {}
                () = patience(clock) => self.hangs = true,
            }
        }
        self.pieces.pop_front()
    }

    fn has_more(&self) -> bool {
        !self.is_over && !self.hangs && (self.has_unread || self.reader.has_grown())
    }

    /// Waits for more output and reads it. Cancel safe.
    async fn read(&mut self) {
        if self.is_over {
            return std::future::pending().await;
        }
        if !self.has_unread {
            self.reader.grown().await;
            self.has_unread = true;
        }
        match self.reader.next().await {
            Ok(pieces) => {
                self.hangs = false;
                self.has_unread = !pieces.is_empty();
                self.pieces.extend(pieces);
            }
            Err(error) => self.end(&error.to_string()),
        }
    }
}

async fn patience(clock: &dyn Timer) {
    clock.sleep_until(clock.up().plus(PATIENCE)).await;
}

#[cfg(test)]
mod tests;
