//! A run as it goes: its events, what its model says, and what its tools print.
//!
//! **Order.** Lines that were written before an event came are shown before it. They are written before what their attempt came to is on
//! record, so the end of an attempt stands behind all that it printed. **Bounds.** Lines are read as they are asked for, some at a time; an
//! event waits for no more than the files of the log can hold. **Failure.** A project that does not answer holds one event up for
//! [`PATIENCE`], and none after it until it answers again. What cannot be read is said once, and the events are shown without it.

use std::collections::VecDeque;
use std::time::Duration;

use crate::access::Visible;
use crate::async_log::{Piece, Reader, Wanted};
use rye_host::clock::Timer;
use rye_journal::{DeltaKind, Live, Shown};

/// How long an event waits for the lines before it.
const PATIENCE: Duration = Duration::from_secs(5);
/// How often lines are read while an event waits: the two files of a log take fewer.
const MOST_READS: u32 = 80;

/// Which deltas the stream holds.
#[derive(Debug, Clone)]
pub(super) struct Kinds {
    /// Those of what a model says; none means all.
    pub(super) said: Option<Vec<DeltaKind>>,
    /// Whether they include what tools print.
    pub(super) output: bool,
}

impl Kinds {
    fn has(&self, kind: DeltaKind) -> bool {
        self.said.as_ref().is_none_or(|said| said.contains(&kind))
    }
}

/// What is shown of a run.
pub(super) enum Told {
    /// An event, or more of what its model says.
    Shown(Shown),
    /// Lines that one of its tools printed.
    Lines(Piece),
}

/// Where a stream of a run with deltas stands.
pub(super) struct Going {
    live: Live,
    kinds: Kinds,
    output: Option<Output>,
    /// What waits until the lines before it are shown.
    held: Option<Shown>,
}

impl Going {
    /// `run` as it goes from now on: the events of `live`, and of deltas those of `kinds`.
    pub(super) async fn new(run: &Visible, live: Live, kinds: Kinds) -> Self {
        let output = if kinds.output {
            Some(Output::begin(run.logs(Wanted::default()), run.clock()).await)
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

    /// What is shown next of `run`; `None` after the event that ended it.
    pub(super) async fn next(&mut self, run: &Visible) -> Option<Result<Told, rye_journal::Error>> {
        loop {
            if let Some(output) = &mut self.output
                && let Some(piece) = output.next(run.clock(), self.held.is_some()).await
            {
                return Some(Ok(Told::Lines(piece)));
            }
            if let Some(held) = self.held.take() {
                return Some(Ok(Told::Shown(held)));
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

/// What the tools of a run print.
struct Output {
    reader: Reader,
    /// Read, and not shown.
    pieces: VecDeque<Piece>,
    /// Whether there may be more than was read.
    is_behind: bool,
    /// How often it may be read for the event that waits.
    reads: u32,
    /// Whether the project did not answer when it was asked last.
    hangs: bool,
    /// Whether it could not be read: no more is.
    is_over: bool,
}

impl Output {
    /// What `reader` reads of what comes.
    async fn begin(reader: Reader, clock: &dyn Timer) -> Self {
        let mut output = Self {
            reader,
            pieces: VecDeque::new(),
            is_behind: false,
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

    /// What is shown next; lines that are not read yet only if something `waits` for them.
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
        !self.is_over && !self.hangs && (self.is_behind || self.reader.has_grown())
    }

    /// Reads more as soon as there is more. Cancel safe.
    async fn read(&mut self) {
        if self.is_over {
            return std::future::pending().await;
        }
        if !self.is_behind {
            self.reader.grown().await;
            self.is_behind = true;
        }
        match self.reader.next().await {
            Ok(pieces) => {
                self.hangs = false;
                self.is_behind = !pieces.is_empty();
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
