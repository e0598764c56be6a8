//! Calls of programs of runs. What a program may do is checked when its call is planned.

use std::sync::Arc;

use serde_json::Value;

use super::Access;
use crate::callbacks::{Callbacks, Program};
use crate::index::FetchRequest;
use crate::supervisor::{Error, Executed, Lookup, ProgramCall};

impl Access {
    /// Runs an item on behalf of a program of a run.
    pub async fn call_back(
        &self,
        program: Arc<Program>,
        call: ProgramCall,
    ) -> Result<(Executed, Lookup), Error> {
        self.supervisor.call_back(program, call).await
    }

    /// Finds items on behalf of a program of a run.
    pub async fn fetch_for(&self, program: &Program, asked: FetchRequest) -> Result<Value, Error> {
        self.supervisor.fetch_for(program, asked).await
    }

    /// Records the progress of a program. Returns false if it reported within the last second.
    pub fn note_progress(
        &self,
        program: &Program,
        fraction: Option<f64>,
        message: String,
    ) -> Result<bool, Error> {
        self.supervisor.note_progress(program, fraction, message)
    }

    /// The programs that may call.
    pub fn callbacks(&self) -> Callbacks {
        self.supervisor.services().callbacks.clone()
    }
}
