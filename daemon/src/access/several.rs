//! Events of several runs: of a tree, of a project, or of all that a caller may see.

use rye_core::access::Caller;
use rye_core::capability::Layer;
use rye_core::memory::Charge;
use rye_core::model::Spec;

use super::{Access, Visible};
use crate::supervisor::{Error, Reach, Supervisor};
use rye_journal::{Cursor, Of, Read, Sees, Since, Spot, Until};

#[derive(Debug)]
pub struct Several {
    supervisor: Supervisor,
    events: Cursor,
}

#[derive(Debug, Clone, Copy)]
pub struct Extent {
    /// Events after this position. `None`: a tree begins with its first event, a project or all runs with new events.
    pub since: Option<Spot>,
    /// True if the stream waits for new events.
    pub follow: bool,
}

impl Access {
    /// Streams the events of the runs that `caller` sees, of `project` or of all.
    pub async fn watch(
        &self,
        caller: Layer,
        project: Option<String>,
        extent: Extent,
    ) -> Result<Several, rye_journal::Error> {
        let sees = move |spec: &Spec| {
            let is_of_project = |project: &String| *project == spec.project;
            Caller::User(&caller).sees(spec) && project.as_ref().is_none_or(is_of_project)
        };
        several(&self.supervisor, Of::All(Box::new(sees)), extent).await
    }
}

impl Visible {
    /// Streams the events of the run and of its descendants that `caller` sees.
    pub async fn watch_tree(&self, caller: Layer, extent: Extent) -> Result<Several, Error> {
        let below = self.below(Reach::Tree).await?;
        let below = below
            .iter()
            .filter(|run| Caller::User(&caller).sees(&run.spec));
        let tree = std::iter::once(self).chain(below);
        let tree = tree.map(|run| run.id.clone()).collect();
        let sees: Sees = Box::new(move |spec: &Spec| Caller::User(&caller).sees(spec));
        let events = several(&self.supervisor, Of::Tree(tree, sees), extent);
        Ok(events.await?)
    }
}

async fn several(
    supervisor: &Supervisor,
    of: Of,
    extent: Extent,
) -> Result<Several, rye_journal::Error> {
    let since = extent.since.map_or(Since::Begin, Since::Spot);
    let until = if extent.follow {
        Until::Ended
    } else {
        Until::Now
    };
    let events = supervisor.journal().read(of, since, until).await?;
    let supervisor = supervisor.clone();
    Ok(Several { supervisor, events })
}

impl Several {
    /// Returns the next event with its complete payload, and the memory that it takes; `None` at the end.
    pub async fn next(&mut self) -> Option<Result<(Read, Option<Charge>), rye_journal::Error>> {
        Some(match self.events.next().await? {
            Ok(Read::Event {
                run,
                spot,
                line,
                signed,
            }) => {
                let whole = self.supervisor.journal().whole(&run, line).await;
                whole.map(|(line, charge)| {
                    let read = Read::Event {
                        run,
                        spot,
                        line,
                        signed,
                    };
                    (read, Some(charge))
                })
            }
            Ok(at @ Read::At(_)) => Ok((at, None)),
            Err(error) => Err(error),
        })
    }
}
