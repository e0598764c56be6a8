//! Plan of a call that runs as a process.

use rye_core::capability::Layer;
use rye_core::id::RunId;
use rye_item::OutputFormat;
use rye_process as process;
use serde_json::{Value, json};

use super::terminal::EXECUTE;

/// Conversion of the output of a process to a result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OutputForm {
    /// As the tool or its runtime declares.
    Declared(OutputFormat),
    /// The result of `rye/bash`.
    Shell,
}

/// Authority of a program in calls of the daemon.
#[derive(Debug, Clone, Default)]
pub struct CallbackAuthority {
    /// Permissions that the tool declares, a layer below those of its run.
    pub declared: Option<Layer>,
    /// True if the program repeats its calls in order.
    pub replays: bool,
}

/// A process, and the conversion of its output.
#[derive(Debug)]
pub struct ProcessPlan {
    pub process: process::Plan,
    /// Tag of the attempt, by which its processes are found.
    pub tag: String,
    pub output_form: OutputForm,
    /// Set if the program may call the daemon.
    pub callbacks: Option<CallbackAuthority>,
    /// Name of the setting that determines the timeout, for people.
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

/// Returns the tag of an attempt. It is in the environment of all its processes.
pub fn tag(run: &RunId, key: &str, attempt: u32) -> String {
    format!("{run}.{}.{attempt}", &key[..16.min(key.len())])
}
