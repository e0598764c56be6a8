//! The steps of a run, read from its history.

use std::sync::Arc;

use rye_core::id::RunId;
use rye_core::model::{Event, StepStatus};
use serde::Serialize;

use super::record::{Logged, Unreadable};
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
    /// The step whose end `line` tells of, if it tells of one; a long one is read from `objects`. Blocks.
    fn of(line: Line, objects: &object::Store) -> Result<Option<Self>, Unreadable> {
        if line.event_type != ENDED {
            return Ok(None);
        }
        let event = Logged::of_shown(line.event_type, line.payload).event(objects)?;
        let Event::StepCompleted {
            step,
            node,
            status,
            elapsed_ms,
            error,
            cache_hit,
            ..
        } = event
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

impl Journal {
    /// The steps `run` has taken, each with its error in full.
    pub async fn steps(&self, run: &RunId) -> Result<Vec<StepLine>, Error> {
        let history = self.history(run).await?;
        let shared = Arc::clone(&self.shared);
        let steps = task::blocking("read the steps of a run", move || {
            let steps = history.into_iter();
            let steps = steps.filter_map(|line| StepLine::of(line, &shared.objects).transpose());
            steps.collect::<Result<Vec<_>, _>>()
        });
        steps.await.map_err(|source| Error::DataLoss {
            run: run.clone(),
            source: Box::new(source),
        })
    }
}
