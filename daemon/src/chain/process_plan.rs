//! The plan of a call that is a process.

use rye_core::id::RunId;
use serde_json::{Value, json};

use super::terminal::EXECUTE;
use crate::process;

/// How the output of the process becomes a result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// Its stdout is one JSON document; anything else is handed on as text.
    Json,
    /// The result of `rye/bash`.
    Shell,
}

/// A process, and how its end is read.
#[derive(Debug)]
pub struct ProcessPlan {
    /// The process.
    pub process: process::Plan,
    /// The tag of the attempt, for finding its processes.
    pub tag: String,
    /// How to read what it prints.
    pub answer: Answer,
    /// What sets its time, for whoever needs more of it.
    pub time_set_by: &'static str,
}

impl ProcessPlan {
    pub(super) fn described(&self) -> Value {
        let process = &self.process;
        let args = process.args.iter().map(|arg| arg.to_string_lossy());
        let names = process.env.iter().map(|(name, _)| name.to_string_lossy());
        json!({
            "primitive": EXECUTE,
            "command": process.program,
            "args": args.collect::<Vec<_>>(),
            "env": names.collect::<Vec<_>>(),
            "cwd": process.cwd,
            "stdin_bytes": process.stdin.len(),
            "timeout": process.timeout.as_secs_f64(),
        })
    }
}

/// Names one attempt: found in the environment of all its processes.
pub fn tag(run: &RunId, key: &str, attempt: u32) -> String {
    format!("{run}.{}.{attempt}", &key[..16.min(key.len())])
}
