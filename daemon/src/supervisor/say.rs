//! Saying something to a thread.
//!
//! **Owns** who can be spoken to, and what is refused. What is said is a fact of the thread, and its machine has it sent to the model.
//! **Order.** It is durable when this answers; nobody waits here until the model receives it. **Races.** The thread may end, and others may
//! fill its queue, meanwhile: the record decides, and then it is looked at again for the reason.

use std::sync::Arc;

use rye_core::id::RunId;
use rye_core::model::thread::{MOST_MESSAGE_BYTES, MOST_QUEUED};
use rye_core::model::{Run, ThreadEvent};

use super::error::Error;
use super::handle::Supervisor;
use rye_journal::{Change, Refused, Why};

impl Supervisor {
    /// Says `text` to the thread `id` in the name of `by`; answers with the thread when that is on record.
    pub async fn say(&self, id: &RunId, text: &str, by: &str) -> Result<Arc<Run>, Error> {
        let run = self.run_of(id).await?;
        let change = said(&run, text, by)?;
        let committed = match self.journal().commit(vec![change]).await {
            Err(rye_journal::Error::Refused(Refused {
                why: Why::Illegal(_) | Why::NotLive,
                ..
            })) => {
                let now = self.run_of(id).await?;
                said(&now, text, by)?;
                return Err(full(&now));
            }
            committed => committed?,
        };
        self.journal().published(committed.ticket).await?;
        self.run_of(id).await
    }
}

/// The change by which `text` is said to `run`.
pub(super) fn said(run: &Run, text: &str, by: &str) -> Result<Change, Error> {
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
    let event = ThreadEvent::MessageQueued {
        text: text.to_owned(),
        by: by.to_owned(),
    };
    Ok(Change::event(&run.id, event.into()))
}

/// Whether `text` can be said to `run`, whether it has ended or not.
pub(super) fn check(run: &Run, text: &str) -> Result<(), Error> {
    let Some(thread) = run.thread() else {
        let kind = run.spec.kind().as_str();
        return Err(Error::Unfit {
            run: run.id.clone(),
            problem: format!(
                "it is a {kind} run; only a thread has a model that can be told something"
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

/// There is no room for another message.
pub(super) fn full(run: &Run) -> Error {
    Error::Unfit {
        run: run.id.clone(),
        problem: format!(
            "{MOST_QUEUED} messages wait for it; say it when its model has been told those"
        ),
    }
}
