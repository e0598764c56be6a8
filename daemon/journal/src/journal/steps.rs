//! The steps of a run, read from its history.

use std::collections::HashMap;
use std::sync::Arc;

use rye_core::id::RunId;
use rye_core::model::{Event, GraphEvent, Printed, RunEvent, StepStatus, ThreadEvent};
use serde::Serialize;

use super::handle::Journal;
use crate::error::Error;
use crate::reader::{Of, Read, Since, Until};
use crate::record::Line;
use crate::record::Unreadable;
use rye_host::blobs;
use rye_host::task;

/// What a turn of a thread is called.
const TURN: &str = "turn";

/// A step that has ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct StepLine {
    /// Its number; of a thread the turn.
    pub step: u32,
    /// Its node; of a thread the item that was carried out, or `turn`.
    pub node: String,
    /// How it ended.
    pub status: StepStatus,
    /// Wall time in milliseconds.
    pub elapsed_ms: u64,
    /// Whether the result of an earlier run was used.
    pub cache_hit: bool,
    /// Why it failed.
    pub error: Option<String>,
    /// How the process ended that failed.
    #[serde(skip)]
    pub printed: Option<Box<Printed>>,
}

/// How far a run has come, step by step.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Walked {
    /// The steps that have ended; of a thread its calls of tools, and its turns.
    pub steps: Vec<StepLine>,
    /// The node of a step that has begun and not ended.
    pub open: Option<String>,
}

/// Makes steps of the events of a run.
#[derive(Default)]
struct Reading {
    walked: Walked,
    /// What the calls in flight of a thread carry out, by their ids.
    calls: HashMap<String, String>,
}

impl Reading {
    /// Whether events of that name are of steps: others may be long, and need not be read.
    fn concerns(event_type: &str) -> bool {
        const NAMES: [&str; 6] = [
            "step_started",
            "step_completed",
            "tool_call_start",
            "tool_call_result",
            "error_classified",
            "step_finish",
        ];
        NAMES.contains(&event_type)
    }

    /// Takes in what the events of a page say; reads what is not in them from `objects`. Blocks.
    fn take_page(mut self, page: Vec<Line>, objects: &blobs::Store) -> Result<Self, Unreadable> {
        for line in page {
            if Self::concerns(&line.event_type) {
                self.take(line.event(objects)?);
            }
        }
        Ok(self)
    }

    fn take(&mut self, event: Event) {
        match event {
            Event::Run(RunEvent::StepStarted { node, .. }) => self.walked.open = Some(node),
            Event::Graph(GraphEvent::StepCompleted {
                step,
                node,
                status,
                elapsed_ms,
                error,
                cache_hit,
                ..
            }) => {
                self.walked.open = None;
                self.walked.steps.push(StepLine {
                    step,
                    node,
                    status,
                    elapsed_ms,
                    cache_hit,
                    printed: error.as_ref().and_then(|error| error.printed.clone()),
                    error: error.map(|error| error.message),
                });
            }
            Event::Thread(event) => self.of_thread(event),
            Event::Run(_) | Event::Graph(_) | Event::Tool(_) => {}
        }
    }

    fn of_thread(&mut self, event: ThreadEvent) {
        let line = |step, node, elapsed_ms, error: Option<String>| StepLine {
            step,
            node,
            status: if error.is_some() {
                StepStatus::Error
            } else {
                StepStatus::Ok
            },
            elapsed_ms,
            cache_hit: false,
            error,
            printed: None,
        };
        if let ThreadEvent::ToolCallStart(call) = event {
            self.calls.insert(call.call_id, call.item);
        } else if let ThreadEvent::ToolCallResult {
            turn,
            call_id,
            output,
            is_error,
            duration_ms,
            ..
        } = event
        {
            // A call that never began has no item: it was refused, or returned the outputs.
            if let Some(item) = self.calls.remove(&call_id) {
                let error = is_error.then_some(output);
                self.walked.steps.push(line(turn, item, duration_ms, error));
            }
        } else if let ThreadEvent::ErrorClassified { turn, error, .. } = event {
            let failed = line(turn, TURN.to_owned(), 0, Some(error.message));
            self.walked.steps.push(failed);
        } else if let ThreadEvent::StepFinish {
            turn, duration_ms, ..
        } = event
        {
            let ended = line(turn, TURN.to_owned(), duration_ms, None);
            self.walked.steps.push(ended);
        }
    }
}

impl Journal {
    /// The steps `run` has taken, each with its error in full. It is an error if events are lost that may be of steps.
    pub async fn steps(&self, run: &RunId) -> Result<Vec<StepLine>, Error> {
        Ok(self.walked(run).await?.steps)
    }

    /// The steps `run` has taken, and the one it is at or ended in. It is an error if events are lost that may be of them.
    pub async fn walked(&self, run: &RunId) -> Result<Walked, Error> {
        let of = Of::Run(run.clone());
        let mut cursor = self.read(of, Since::Begin, Until::Now).await?;
        let mut reading = Reading::default();
        while let Some(page) = cursor.next_page().await? {
            let page: Vec<Line> = page.into_iter().filter_map(Read::line).collect();
            let objects = Arc::clone(&self.objects);
            let read = task::blocking("read the steps of a run", move || {
                reading.take_page(page, &objects)
            });
            reading = read.await.map_err(|source| Error::DataLoss {
                run: run.clone(),
                source: Box::new(source),
            })?;
        }
        Ok(reading.walked)
    }
}
