//! The steps of a run, read from its history.

use rye_core::id::RunId;
use rye_core::model::{Event, StepStatus};
use serde::Serialize;
use serde_json::{Value, json};

use super::{Error, Journal, Line, history, transcript};

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
    /// The step whose end `line` tells of, if it tells of one.
    pub fn of(line: &Line) -> Option<Self> {
        let event = json!({"event_type": line.event_type, "payload": line.payload});
        let Event::StepCompleted {
            step,
            node,
            status,
            elapsed_ms,
            error,
            cache_hit,
            ..
        } = serde_json::from_value(event).ok()?
        else {
            return None;
        };
        Some(Self {
            step,
            node,
            status,
            elapsed_ms,
            cache_hit,
            error: error.map(|error| error.message),
        })
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

impl Journal {
    /// The steps `run` has taken. It is an error if events are lost that may tell of steps.
    pub async fn steps(&self, run: &RunId) -> Result<Vec<StepLine>, Error> {
        Ok(self.walked(run).await?.steps)
    }

    /// The steps `run` has taken, and the one it is at or ended in. It is an error if events are lost that may tell of them.
    pub async fn walked(&self, run: &RunId) -> Result<Walked, Error> {
        let history = self.history(run).await?;
        if let Some(gap) = history.iter().find_map(transcript::gap_in) {
            let record = self.run(run).await?;
            let files = record.map_or_else(String::new, |run| run.birth.files.clone());
            return Err(history::damaged(&files, run, gap));
        }
        let mut walked = Walked {
            steps: Vec::new(),
            open: None,
        };
        for line in &history {
            if let Some(step) = StepLine::of(line) {
                walked.steps.push(step);
                walked.open = None;
            } else if line.event_type == "step_started" {
                let node = line.payload.get("node").and_then(Value::as_str);
                walked.open = node.map(str::to_owned);
            }
        }
        Ok(walked)
    }
}
