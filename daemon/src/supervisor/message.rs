//! Messages to threads.
//!
//! **Owns** the rules for messages and their recipients. A message is recorded as an event of the thread, whose machine
//! sends it to the model. **Order.** A message is durable when the call returns; the call does not wait for the model.
//! **Races.** The thread may end, and other messages may fill its queue meanwhile. The record decides; a refused
//! message is checked again for the reason.

use std::sync::Arc;

use rye_core::id::RunId;
use rye_core::model::Run;
use rye_core::model::event::MessageQueued;
use rye_core::model::thread::{MOST_MESSAGE_BYTES, MOST_QUEUED};

use super::error::Error;
use super::handle::Supervisor;
use rye_journal::{Change, RefusalReason, Refused};

impl Supervisor {
    /// Queues the message `text` of `by` for the thread `id`. Returns the thread when the message is durable.
    pub async fn send_message(&self, id: &RunId, text: &str, by: &str) -> Result<Arc<Run>, Error> {
        let run = self.run_of(id).await?;
        let change = queue_message(&run, text, by)?;
        let committed = match self.journal().commit(vec![change]).await {
            Err(rye_journal::Error::Refused(Refused {
                why: RefusalReason::Illegal(_) | RefusalReason::NotLive,
                ..
            })) => {
                let now = self.run_of(id).await?;
                queue_message(&now, text, by)?;
                return Err(full(&now));
            }
            committed => committed?,
        };
        self.journal().published(committed.ticket).await?;
        self.run_of(id).await
    }
}

/// Returns the change that queues `text` for `run`.
pub(super) fn queue_message(run: &Run, text: &str, by: &str) -> Result<Change, Error> {
    check(run, text)?;
    if run.status().is_terminal() {
        return Err(Error::Unfit {
            run: run.id.clone(),
            problem: format!(
                "it has ended ({}); continue its conversation with: ryectl resume {} --message TEXT",
                run.status(),
                run.id
            ),
        });
    }
    let event = MessageQueued {
        text: text.to_owned(),
        by: by.to_owned(),
        lines: None,
    };
    Ok(Change::event(&run.id, event.into()))
}

/// Checks that `text` can be sent to `run`. Accepts ended threads.
pub(super) fn check(run: &Run, text: &str) -> Result<(), Error> {
    let Some(thread) = run.thread() else {
        let kind = run.spec.kind().as_str();
        return Err(Error::Unfit {
            run: run.id.clone(),
            problem: format!(
                "it is a {kind} run; only a thread has a model that can get a message"
            ),
        });
    };
    if text.trim().is_empty() {
        let message = "the message is empty; say something".to_owned();
        return Err(Error::Params { message });
    }
    if text.len() > MOST_MESSAGE_BYTES {
        let message = format!(
            "the message has {} bytes, and may have {MOST_MESSAGE_BYTES}; write the rest to a file, and name that",
            text.len()
        );
        return Err(Error::Params { message });
    }
    if thread.queue.is_full() {
        return Err(full(run));
    }
    Ok(())
}

/// Returns the error that the queue of messages is full.
pub(super) fn full(run: &Run) -> Error {
    Error::Unfit {
        run: run.id.clone(),
        problem: format!(
            "{MOST_QUEUED} messages wait for it; send it when its model has got those"
        ),
    }
}
