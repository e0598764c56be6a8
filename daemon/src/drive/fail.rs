//! End of a run that cannot be driven.

use rye_core::model::{Failure, Run};

use crate::stop::DriverExit;
use rye_journal::{Change, Journal};

/// Ends `run` with `failure`. The end is durable when this returns.
pub async fn fail(
    journal: &Journal,
    run: &Run,
    failure: Failure,
) -> Result<DriverExit, rye_journal::Error> {
    let end = Change::event(&run.id, run.end_by_failure(journal.now(), failure));
    let ticket = journal.commit(vec![end]).await?.ticket;
    journal.durable(ticket).await?;
    Ok(DriverExit::Ended)
}
