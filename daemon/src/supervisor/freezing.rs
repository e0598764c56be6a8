//! Freezing and thawing of managed processes.
//!
//! **Order.** The processes stand still before the record says so, and go on before it says so. If the daemon dies in
//! between, the next one records what it finds.

use std::sync::Arc;

use rye_core::id::RunId;
use rye_core::model::event::{ProcessFrozen, ProcessThawed};
use rye_core::model::{Event, Run};

use super::error::Error;
use super::handle::Supervisor;
use crate::live_processes::{FreezeError, FreezeSwitch};

impl Supervisor {
    /// Freezes the attempt in flight of the process `id`, or thaws it. Returns when its processes stand still, and at once if
    /// they are as requested.
    pub async fn freeze_process(
        &self,
        id: &RunId,
        by: &str,
        frozen: bool,
    ) -> Result<Arc<Run>, Error> {
        let (this, id, by) = (self.clone(), id.clone(), by.to_owned());
        self.run_to_end(async move { this.freeze(&id, by, frozen).await })
            .await
    }

    async fn freeze(&self, id: &RunId, by: String, frozen: bool) -> Result<Arc<Run>, Error> {
        let wanted = if frozen { "frozen" } else { "thawed" };
        let run = self.live_run(id, wanted).await?;
        self.require_process(&run)?;
        let switch = self.services().live_processes.switch(id);
        let switch = switch.ok_or_else(|| Error::Unfit {
            run: id.clone(),
            problem: "no attempt of it is in flight: it is about to start".to_owned(),
        })?;
        let _turn = switch.turn().await;
        let run = self.live_run(id, wanted).await?;
        let recorded = run.process().is_some_and(|state| state.is_frozen);
        if recorded != frozen || switch.is_frozen() != frozen {
            switch.set(frozen).map_err(|error| refused(id, &error))?;
        }
        if recorded != frozen {
            self.record_freeze(id, &switch, by, frozen).await?;
        }
        if frozen {
            switch.settled().await;
        }
        self.run_of(id).await
    }

    async fn record_freeze(
        &self,
        id: &RunId,
        switch: &FreezeSwitch,
        by: String,
        frozen: bool,
    ) -> Result<(), Error> {
        let attempt = switch.attempt;
        let (event, wanted): (Event, _) = if frozen {
            (ProcessFrozen { attempt, by }.into(), "frozen")
        } else {
            (ProcessThawed { attempt, by }.into(), "thawed")
        };
        match self.commit_unless_over(id, vec![event], wanted).await {
            Ok(ticket) => Ok(self.journal().published(ticket).await?),
            Err(error) => {
                // The record is as before, and so are the processes, unless they are being stopped.
                if let Err(error) = switch.set(!frozen) {
                    tracing::debug!(run = %id, %error, "a process is being stopped");
                }
                let run = self.live_run(id, wanted).await?;
                Err(match &run.cancel {
                    Some(_) => refused(id, &FreezeError::Stopping),
                    None => error,
                })
            }
        }
    }
}

fn refused(id: &RunId, error: &FreezeError) -> Error {
    let (run, problem) = (id.clone(), error.to_string());
    match error {
        FreezeError::Unavailable => Error::NoFreezer {
            run,
            problem: format!("{problem}; `ryectl daemon info` has the reason"),
        },
        FreezeError::Stopping | FreezeError::Refused(_) => Error::Unfit { run, problem },
    }
}
