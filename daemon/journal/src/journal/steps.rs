//! The steps of a run, read from its history.

use std::collections::HashMap;
use std::sync::Arc;

use rye_core::id::RunId;
use rye_core::model::{Event, GraphEvent, Printed, RunEvent, StepStatus, ThreadEvent};
use rye_core::thread::ShellCommand;
use serde::Serialize;

use super::handle::Journal;
use crate::error::Error;
use crate::reader::{Of, Read, Since, Until};
use crate::record::Line;
use crate::record::Unreadable;
use rye_host::blobs;
use rye_host::task;

/// Name of a turn of a thread in place of a node.
const TURN: &str = "turn";

/// A step that has ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct StepLine {
    /// Number of the step; for a thread the number of the turn.
    pub step: u32,
    /// Node of the step; for a thread the item that was executed, or `turn`.
    pub node: String,
    pub status: StepStatus,
    /// Wall time in milliseconds.
    pub elapsed_ms: u64,
    /// True if the result of an earlier run was used.
    pub cache_hit: bool,
    pub error: Option<String>,
    /// The items of a foreach, or the branches of a parallel node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub items: Option<EndedItems>,
    /// Output and exit of the process that failed.
    #[serde(skip)]
    pub printed: Option<Box<Printed>>,
    /// Command of a call of a thread, if it executed one.
    #[serde(skip)]
    pub command: Option<ShellCommand>,
}

/// Number of items of a step that has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct EndedItems {
    pub total: u32,
    pub failed: u32,
}

/// Progress of a run, step by step.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Walked {
    /// The steps that have ended; for a thread its tool calls and turns.
    pub steps: Vec<StepLine>,
    /// Node of a step that has begun and not ended.
    pub open: Option<String>,
}

/// Collects the steps from the events of a run.
#[derive(Default)]
struct Reading {
    walked: Walked,
    /// Items of the step that is about to end.
    items: Option<EndedItems>,
    /// Items and commands of the open calls of a thread, by the ids of the calls.
    calls: HashMap<String, (String, Option<ShellCommand>)>,
}

impl Reading {
    /// True if events of this type are relevant for steps. Others may be long, and are not decoded.
    fn concerns(event_type: &str) -> bool {
        const NAMES: [&str; 8] = [
            "step_started",
            "foreach_completed",
            "parallel_completed",
            "step_completed",
            "tool_call_start",
            "tool_call_result",
            "error_classified",
            "step_finish",
        ];
        NAMES.contains(&event_type)
    }

    /// Adds the steps in the events of a page; reads long payloads from `objects`. Blocks.
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
            Event::Run(RunEvent::StepStarted(started)) => self.walked.open = Some(started.node),
            Event::Graph(GraphEvent::ForeachCompleted(end)) => {
                self.items = Some(EndedItems {
                    total: end.items,
                    failed: end.failed,
                });
            }
            Event::Graph(GraphEvent::ParallelCompleted(end)) => {
                self.items = Some(EndedItems {
                    total: end.branches,
                    failed: end.failed,
                });
            }
            Event::Graph(GraphEvent::StepCompleted(completed)) => {
                let error = completed.error;
                self.walked.open = None;
                self.walked.steps.push(StepLine {
                    step: completed.step,
                    node: completed.node,
                    status: completed.status,
                    elapsed_ms: completed.elapsed_ms,
                    cache_hit: completed.cache_hit,
                    items: self.items.take(),
                    printed: error.as_ref().and_then(|error| error.printed.clone()),
                    error: error.map(|error| error.message),
                    command: None,
                });
            }
            Event::Thread(event) => self.of_thread(event),
            Event::Run(_) | Event::Graph(_) | Event::Tool(_) | Event::Process(_) => {}
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
            items: None,
            printed: None,
            command: None,
        };
        if let ThreadEvent::ToolCallStart(call) = event {
            let id = call.item.rsplit_once(':').map_or("", |(_, id)| id);
            let command = ShellCommand::of(id, &call.input);
            self.calls.insert(call.call_id, (call.item, command));
        } else if let ThreadEvent::ToolCallResult(result) = event {
            // A call that never began has no item: it was refused, or returned the outputs.
            if let Some((item, command)) = self.calls.remove(&result.call_id) {
                let command = command.map(|command| command.ended(&result.output));
                let error = result.is_error.then_some(result.output);
                let ended = line(result.turn, item, result.duration_ms, error);
                self.walked.steps.push(StepLine { command, ..ended });
            }
        } else if let ThreadEvent::ErrorClassified(failed) = event {
            let failed = line(failed.turn, TURN.to_owned(), 0, Some(failed.error.message));
            self.walked.steps.push(failed);
        } else if let ThreadEvent::StepFinish(finish) = event {
            let ended = line(finish.turn, TURN.to_owned(), finish.duration_ms, None);
            self.walked.steps.push(ended);
        }
    }
}

impl Journal {
    /// Returns the steps of `run`, each with its error in full. Fails if events are lost that may be part of steps.
    pub async fn steps(&self, run: &RunId) -> Result<Vec<StepLine>, Error> {
        Ok(self.walked(run).await?.steps)
    }

    /// Returns the steps of `run`, and the current step or the one in which it ended. Fails if events are lost that may
    /// be part of steps.
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
