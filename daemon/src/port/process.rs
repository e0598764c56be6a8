//! Requests to start managed processes.

use std::path::PathBuf;
use std::sync::Arc;

use rye_core::capability::Layer;
use rye_core::model::{ProcessSpec, Run};

/// A request to start a managed process.
#[derive(Debug)]
pub struct ProcessStart {
    pub process: ProcessSpec,
    pub owner: ProcessOwner,
}

/// The owner of a managed process.
#[derive(Debug)]
pub enum ProcessOwner {
    /// A run: the process ends with it.
    Run {
        record: Arc<Run>,
        /// Authority of the caller, which is that of the run or less.
        layers: Vec<Layer>,
    },
    /// A person, with these permissions, the first of which is the person's own.
    Person {
        layers: Vec<Layer>,
        /// The project, or a directory within it.
        directory: PathBuf,
    },
}
