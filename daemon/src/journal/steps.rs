//! The steps of a run, read from its history.

use std::sync::Arc;

use rye_core::id::RunId;
use rye_core::model::{Event, GraphEvent, RunEvent, StepStatus};
use serde::Serialize;

use super::record::Unreadable;
use super::{Error, Journal, Line};
use crate::object;
use crate::task;

/// The event that ends a step.
const ENDED: &str = "step_completed";

/// A step that has ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct StepLine {
    /// Its number.
    pub step: u32,
    /// Its node.
    pub node: String,
    /// How it ended.
    pub status: StepStatus,
    /// Wall time in milliseconds.
    pub elapsed_ms: u64,
    /// Whether the result of an earlier run was used.
    pub cache_hit: bool,
    /// Why it failed.
    pub error: Option<String>,
}

impl StepLine {
    /// The step whose end `line` states, if it states one; a long one is read from `objects`. Blocks.
    fn of(line: &Line, objects: &object::Store) -> Result<Option<Self>, Unreadable> {
        if line.event_type != ENDED {
            return Ok(None);
        }
        let Event::Graph(GraphEvent::StepCompleted {
            step,
            node,
            status,
            elapsed_ms,
            error,
            cache_hit,
            ..
        }) = line.event(objects)?
        else {
            return Ok(None);
        };
        Ok(Some(Self {
            step,
            node,
            status,
            elapsed_ms,
            cache_hit,
            error: error.map(|error| error.message),
        }))
    }
}

/// How far a run has come, step by step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Walked {
    /// The steps that have ended.
    pub steps: Vec<StepLine>,
    /// The node of a step that has begun and not ended.
    pub open: Option<String>,
}

impl Walked {
    /// What the events of a run say; reads what is not in them from `objects`. Blocks.
    fn of(history: Vec<Line>, objects: &object::Store) -> Result<Self, Unreadable> {
        let mut walked = Self {
            steps: Vec::new(),
            open: None,
        };
        for line in history {
            if line.event_type == "step_started" {
                if let Event::Run(RunEvent::StepStarted { node, .. }) = line.event(objects)? {
                    walked.open = Some(node);
                }
            } else if let Some(step) = StepLine::of(&line, objects)? {
                walked.steps.push(step);
                walked.open = None;
            }
        }
        Ok(walked)
    }
}

impl Journal {
    /// The steps `run` has taken, each with its error in full. It is an error if events are lost that may be of steps.
    pub async fn steps(&self, run: &RunId) -> Result<Vec<StepLine>, Error> {
        Ok(self.walked(run).await?.steps)
    }

    /// The steps `run` has taken, and the one it is at or ended in. It is an error if events are lost that may be of them.
    pub async fn walked(&self, run: &RunId) -> Result<Walked, Error> {
        let history = self.history(run).await?;
        let shared = Arc::clone(&self.shared);
        let walked = task::blocking("read the steps of a run", move || {
            Walked::of(history, &shared.objects)
        });
        walked.await.map_err(|source| Error::DataLoss {
            run: run.clone(),
            source: Box::new(source),
        })
    }
}
