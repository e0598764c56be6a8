//! Runs as callers outside the daemon may see them: the only way from a call to a run.
//!
//! **Owns** the enforcement of [`rye_core::access`]. A run is returned as [`Visible`] or [`Actionable`]. Only
//! [`Access`] makes them, for one caller, after the check. Their methods are all that can be done with a run. **Never**
//! exposes the supervisor or the journal. The run that a start takes over is checked at its admission, for the caller
//! named in the start.

mod memory;
mod processes;
mod programs;
mod several;

use std::ops::Deref;
use std::path::Path;
use std::sync::Arc;

use rye_core::access::Caller;
use rye_core::capability::Layer;
use rye_core::clock::Timestamp;
use rye_core::digest::Digest;
use rye_core::id::{ItemKind, ItemRef, RunId, Seq};
use rye_core::ledger::Cost;
use rye_core::machine::InDoubt;
use rye_core::memory::Charge;
use rye_core::model::{
    Approval, ApprovalAnswer, Kill, Killed, Run, Status, SuspendReason, Verdict,
};
use rye_core::money::Usd;
use rye_core::policy::Risk;
use rye_item::Library;
use rye_item::library::Entry;
use rye_item::trust::TrustedKey;
use serde_json::Value;

pub use self::several::{Extent, Several};
use crate::async_log::{self, LineFilter};
use crate::chain;
use crate::index::{self, Described, FetchRequest};
use crate::inspect::Inspector;
use crate::models::Listing;
use crate::native::SignAsked;
use crate::port::{AccountView, MeterView, Refusal, Resume, reach};
use crate::projects::{self, Project, ProjectView};
use crate::services::TraceMode;
use crate::supervisor::{
    Error, Executed, Lookup, Preview, Prune, PruneToken, Pruned, Reach, Start, Started, Step,
    Supervisor,
};
use rye_host::clock::Timer;
use rye_journal::{
    self, Cursor, Extract, Filter, Journal, Line, Live, Of, Reader, RemovedRun, Signer, Since,
    StepLine, Storage, Summary, Until, Walked,
};

/// The daemon's interface for callers from outside.
#[derive(Debug, Clone)]
pub struct Access {
    supervisor: Supervisor,
}

#[derive(Debug)]
pub struct Visible {
    supervisor: Supervisor,
    run: Arc<Run>,
}

/// A run that the caller sees, and may stop, resume, answer and send messages to.
#[derive(Debug)]
pub struct Actionable(Visible);

/// Facts about a run that are not in its record.
#[derive(Debug, Clone, Default)]
pub struct RunExtras {
    /// The run that continues this one.
    pub continued_by: Option<RunId>,
    /// Cost of the run's chain of continuations and of all descendants.
    pub cost: Cost,
    /// Attempts whose outcome is unknown, or, of an ended run, those that its continuation would repeat. Always empty
    /// in lists.
    pub in_doubt: Vec<InDoubt>,
}

/// A run in a list.
#[derive(Debug, Clone)]
pub struct ListedRun {
    pub run: Summary,
    pub extras: RunExtras,
    /// The record of a suspended run, which has the reason.
    pub suspended: Option<Arc<Run>>,
}

impl Access {
    pub const fn new(supervisor: Supervisor) -> Self {
        Self { supervisor }
    }

    fn journal(&self) -> &Journal {
        self.supervisor.journal()
    }

    fn as_visible(&self, run: Arc<Run>) -> Visible {
        Visible {
            supervisor: self.supervisor.clone(),
            run,
        }
    }

    /// Returns the run `id`, if `caller` may see it.
    pub async fn visible(&self, caller: &Layer, id: &RunId) -> Result<Visible, Refusal> {
        let runs = self.supervisor.runs();
        let run = reach::visible(&*runs, Caller::User(caller), id).await?;
        Ok(self.as_visible(run))
    }

    /// Returns the run `id`, if `caller` may stop, resume and answer it.
    pub async fn actionable(&self, caller: &Layer, id: &RunId) -> Result<Actionable, Refusal> {
        let runs = self.supervisor.runs();
        let run = reach::actionable(&*runs, Caller::User(caller), id).await?;
        Ok(Actionable(self.as_visible(run)))
    }

    /// Removes the runs `ids` with all that belongs to them. Removes none unless `caller` may act on each.
    pub async fn remove(&self, caller: &Layer, ids: &[RunId]) -> Result<Vec<RemovedRun>, Error> {
        for id in ids {
            self.actionable(caller, id).await?;
        }
        self.supervisor.remove(ids, &caller.source).await
    }

    /// Removes trees of runs of `caller` that `prune` selects, a limited number per call.
    pub async fn prune(
        &self,
        caller: &Layer,
        prune: Prune,
        token: PruneToken,
    ) -> Result<Pruned, Error> {
        let prune = Prune {
            filter: prune.filter.visible_to(Caller::User(caller)),
            ..prune
        };
        self.supervisor.prune(&prune, token, &caller.source).await
    }

    /// Sentences on losses of history that were found at the start of the daemon.
    pub fn history_notes(&self) -> &[String] {
        self.journal().history_notes()
    }

    /// Rewrites history without the removed runs.
    pub async fn purge(&self) -> Result<(), rye_journal::Error> {
        self.journal().purge().await
    }

    /// Returns at most `limit` runs that `caller` sees and that pass `filter`, newest first, and the token of the next
    /// page.
    pub async fn list(
        &self,
        caller: &Layer,
        filter: Filter,
        page_token: Option<&str>,
        limit: usize,
    ) -> Result<(Vec<ListedRun>, Option<String>), Error> {
        let filter = filter.visible_to(Caller::User(caller));
        let listed = self.journal().list_with_costs(&filter, page_token, limit);
        let (page, costs) = listed.await?;
        let mut runs = Vec::with_capacity(page.runs.len());
        for (run, cost) in page.runs.into_iter().zip(costs) {
            let is_suspended = run.status == Status::Suspended;
            let suspended = is_suspended.then(|| self.journal().snapshot(&run.id));
            runs.push(ListedRun {
                extras: RunExtras {
                    continued_by: self.supervisor.continued_by(&run).await?,
                    cost,
                    in_doubt: Vec::new(),
                },
                suspended: suspended.flatten(),
                run,
            });
        }
        Ok((runs, page.next))
    }

    /// Returns the open questions of the runs that `caller` sees, of `project` or of all, newest run first, and the
    /// token of the next page. A page has `limit` questions, or more if its last run has several.
    pub async fn approvals(
        &self,
        caller: &Layer,
        project: Option<String>,
        mut page_token: Option<String>,
        limit: usize,
    ) -> Result<(Vec<(RunId, Approval)>, Option<String>), Error> {
        let filter = Filter {
            statuses: vec![Status::Created, Status::Running, Status::Suspended],
            project,
            ..Filter::default()
        };
        let filter = filter.visible_to(Caller::User(caller));
        let mut asked = Vec::new();
        loop {
            // Few runs have more than one open question.
            let most = limit - asked.len();
            let page = self.journal().list(&filter, page_token.as_deref(), most);
            let page = page.await?;
            let live = page.runs.iter();
            for run in live.filter_map(|run| self.journal().snapshot(&run.id)) {
                asked.extend(
                    run.open_approvals()
                        .map(|approval| (run.id.clone(), approval.clone())),
                );
            }
            page_token = page.next;
            if page_token.is_none() || asked.len() >= limit {
                return Ok((asked, page_token));
            }
        }
    }

    /// Accepts a run; returns when it is durable.
    pub async fn start(&self, start: Start) -> Result<Started, Error> {
        self.supervisor.start(start).await
    }

    /// Runs one node of a graph as a run of its own; returns when it has ended or is suspended.
    pub async fn step(&self, start: Start, step: Step) -> Result<(Started, Visible), Error> {
        let (started, run) = self.supervisor.step(start, step).await?;
        Ok((started, self.as_visible(run)))
    }

    /// Runs an item and returns its result.
    pub async fn execute(
        &self,
        start: Start,
        trace: TraceMode,
    ) -> Result<(Executed, Lookup), Error> {
        self.supervisor.execute(start, trace).await
    }

    /// Describes what running an item would do, without running it.
    pub async fn rehearse(&self, start: Start) -> Result<(Executed, Lookup), Error> {
        self.supervisor.rehearse(start).await
    }

    /// Returns the prompt and the tools with which the thread of `start` would begin; starts nothing.
    pub async fn preview(&self, start: Start) -> Result<Preview, Error> {
        self.supervisor.preview(start).await
    }

    /// Returns the risk of each of `permissions` of a thread.
    pub async fn risks(
        &self,
        directory: &Path,
        permissions: Vec<String>,
    ) -> Result<Vec<(String, Risk)>, Error> {
        self.supervisor.risks(directory, permissions).await
    }

    /// Returns the models of the project that `directory` belongs to.
    pub async fn models(&self, directory: &Path) -> Result<Listing, Error> {
        self.supervisor.models(directory).await
    }

    /// Fetches items of the project that `directory` belongs to, as far as `caller` may.
    pub async fn fetch(
        &self,
        caller: Layer,
        directory: &Path,
        asked: FetchRequest,
    ) -> Result<Value, Error> {
        self.supervisor.fetch(vec![caller], directory, asked).await
    }

    /// Returns a page of the items of the project that `caller` may fetch and that match `wanted`, and the last item of
    /// the page if there are more.
    pub async fn items(
        &self,
        caller: Layer,
        directory: &Path,
        wanted: index::ItemFilter,
    ) -> Result<(Vec<Entry>, Option<ItemRef>), Error> {
        self.read_items(caller, directory, "list items", move |library, caller| {
            Ok(index::list(library, &wanted, caller))
        })
        .await
    }

    /// Describes an item that `caller` may fetch. Its type may be unspecified.
    pub async fn describe(
        &self,
        caller: Layer,
        directory: &Path,
        (kind, id): (Option<ItemKind>, String),
    ) -> Result<Described, Error> {
        self.read_items(
            caller,
            directory,
            "describe an item",
            move |library, caller| Ok(index::describe(library, &id, kind, caller)?),
        )
        .await
    }

    /// Returns the keys that are trusted in the project that `directory` belongs to.
    pub async fn keys(&self, directory: &Path) -> Result<Vec<Arc<TrustedKey>>, Error> {
        let work = |inside: &ProjectView<'_>| Ok(inside.library.trust().keys());
        let projects = self.supervisor.projects();
        projects.visit(directory, "list keys", work).await
    }

    /// Runs `work` on the library of the project, on behalf of `caller`.
    async fn read_items<T: Send + 'static>(
        &self,
        caller: Layer,
        directory: &Path,
        name: &'static str,
        work: impl FnOnce(&Library, &index::Caller<'_>) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        let clock = &self.supervisor.services().clock;
        let (now, random) = (clock.up(), clock.random());
        let work = move |inside: &ProjectView<'_>| {
            let caller = index::Caller {
                layers: &[caller],
                now,
                random,
            };
            work(inside.library, &caller)
        };
        let projects = self.supervisor.projects();
        projects.visit(directory, name, work).await
    }

    /// Signs items of the project that `directory` belongs to, if `caller` may sign them.
    pub async fn sign(
        &self,
        caller: Layer,
        directory: &Path,
        asked: SignAsked,
    ) -> Result<Value, Error> {
        self.supervisor.sign(caller, directory, asked).await
    }

    /// Returns the content of a lock of `item`, which `caller` must be allowed to fetch.
    pub async fn lock(
        &self,
        caller: Layer,
        directory: &Path,
        item: ItemRef,
    ) -> Result<chain::Draft, Error> {
        self.supervisor.lock(caller, directory, item).await
    }

    pub fn inspector(&self) -> Inspector {
        self.supervisor.inspector()
    }

    pub async fn project(&self, directory: &Path) -> Result<Arc<Project>, projects::Error> {
        self.supervisor.projects().open(directory).await
    }

    /// Returns a long payload. Takes no caller: only a reader of the transcript that holds it knows the digest.
    pub async fn long_payload(&self, digest: Digest) -> Result<Option<String>, rye_journal::Error> {
        self.journal().long_payload(digest).await
    }

    /// Returns the signer of the node.
    pub fn signer(&self) -> Arc<dyn Signer> {
        self.journal().signer()
    }

    pub fn storage(&self) -> Storage {
        *self.journal().storage().borrow()
    }

    pub fn now(&self) -> Timestamp {
        self.journal().now()
    }

    /// Number of runs that run or wait for their task.
    pub fn live_count(&self) -> usize {
        self.supervisor.live_count()
    }

    /// Starts the shutdown of the daemon.
    pub fn stop(&self) {
        self.supervisor.stop();
    }
}

async fn extras(supervisor: &Supervisor, run: &Summary) -> Result<RunExtras, Error> {
    Ok(RunExtras {
        continued_by: supervisor.continued_by(run).await?,
        cost: supervisor.journal().cost(&run.account).await?,
        in_doubt: Vec::new(),
    })
}

impl Deref for Visible {
    type Target = Arc<Run>;

    fn deref(&self) -> &Arc<Run> {
        &self.run
    }
}

impl Visible {
    fn at(&self, run: Arc<Run>) -> Self {
        Self {
            supervisor: self.supervisor.clone(),
            run,
        }
    }

    fn journal(&self) -> &Journal {
        self.supervisor.journal()
    }

    /// Resolves when the run has ended or is suspended.
    pub async fn settled(&self) -> Result<(), Error> {
        self.supervisor.settled(&self.id).await
    }

    /// Returns a reader of the output of the run's tools, filtered by `wanted`.
    pub fn logs(&self, wanted: LineFilter) -> async_log::Reader {
        let services = self.supervisor.services();
        let project = Path::new(&self.spec.project);
        let (log, pool) = (
            services.logs.of(&self.id, &self.spec),
            services.projects.log_pool_of(project),
        );
        async_log::Reader::new(log, pool, wanted)
    }

    /// The clock for timeouts of reads.
    pub fn clock(&self) -> &dyn Timer {
        &*self.supervisor.services().clock
    }

    /// Reads the record again.
    pub async fn reload(&self) -> Result<Self, Error> {
        Ok(self.at(self.supervisor.run_of(&self.id).await?))
    }

    /// Returns the extra facts, with attempts in doubt if the run is suspended for them.
    pub async fn extras(&self) -> Result<RunExtras, Error> {
        let found = extras(&self.supervisor, &Summary::of(self)).await?;
        let why = self.suspension().map(|why| why.reason);
        if why != Some(SuspendReason::Uncertain) {
            return Ok(found);
        }
        Ok(RunExtras {
            in_doubt: self.supervisor.uncertain(&self.run).await,
            ..found
        })
    }

    /// The same, with attempts in doubt of an ended run that no run continues. That may read many descendants.
    pub async fn extras_with_unknown(&self) -> Result<RunExtras, Error> {
        let mut found = self.extras().await?;
        if found.continued_by.is_none() {
            let left = self.supervisor.attempts_in_doubt(self).await?;
            found.in_doubt.extend(left);
        }
        Ok(found)
    }

    /// Returns the last run of the chain of continuations.
    pub async fn newest(&self) -> Result<Self, Error> {
        Ok(self.at(self.supervisor.newest(&self.id).await?))
    }

    /// Returns descendants, each after its parent, siblings oldest first.
    pub async fn below(&self, reach: Reach) -> Result<Vec<Self>, Error> {
        let below = self.supervisor.below(&self.id, reach).await?;
        Ok(below.into_iter().map(|run| self.at(run)).collect())
    }

    pub async fn steps(&self) -> Result<Vec<StepLine>, rye_journal::Error> {
        self.journal().steps(&self.id).await
    }

    /// Returns the progress of the run by step.
    pub async fn walked(&self) -> Result<Walked, rye_journal::Error> {
        self.journal().walked(&self.id).await
    }

    /// Returns the events after `since`; with [`Until::Ended`] also later ones.
    pub async fn events(&self, since: Seq, until: Until) -> Result<Cursor, rye_journal::Error> {
        let of = Of::Run(self.id.clone());
        self.journal().read(of, Since::Seq(since), until).await
    }

    /// Returns the events after `since`, and meanwhile the output of the model.
    pub async fn listen(&self, since: Seq) -> Result<Live, rye_journal::Error> {
        self.journal().listen(&self.id, since).await
    }

    /// Returns a reader of the transcript.
    pub async fn transcript(&self, extract: Extract) -> Result<Reader, rye_journal::Error> {
        self.journal().transcript(&self.id, extract).await
    }

    /// Returns the account of the run and those above it, up to the root of the tree.
    pub async fn budget_path(&self) -> Result<Vec<AccountView>, Error> {
        self.supervisor.budget_path(&self.run).await
    }

    /// Returns the account of the run and all below it, each after its parent, with its depth.
    pub async fn budget_tree(&self) -> Result<Vec<(u32, AccountView)>, Error> {
        self.supervisor.budget_tree(&self.run).await
    }

    /// Returns the node's spending per day and month.
    pub fn meters(&self) -> Vec<MeterView> {
        self.supervisor.meters()
    }

    /// Returns `line` with its complete payload, and the memory that it takes.
    pub async fn whole(&self, line: Line) -> Result<(Line, Charge), rye_journal::Error> {
        self.journal().whole(&self.id, line).await
    }
}

impl Deref for Actionable {
    type Target = Visible;

    fn deref(&self) -> &Visible {
        &self.0
    }
}

impl Actionable {
    /// Requests the run and its child runs to stop.
    pub async fn cancel(&self, cause: &str) -> Result<Visible, Error> {
        let run = self.supervisor.cancel(&self.id, cause).await?;
        Ok(self.at(run))
    }

    /// Ends the run and its child runs by force.
    pub async fn kill(&self, asked: Kill) -> Result<(Visible, Killed), Error> {
        let (run, killed) = self.supervisor.kill(&self.id, asked).await?;
        Ok((self.at(run), killed))
    }

    /// Suspends the run before its next attempt.
    pub async fn suspend(&self) -> Result<Visible, Error> {
        let run = self.supervisor.suspend(&self.id).await?;
        Ok(self.at(run))
    }

    /// Resumes a suspended run, or continues one that ended without success; returns the run that now runs.
    pub async fn resume(&self, resume: Resume) -> Result<Visible, Error> {
        let run = self.supervisor.resume(&self.id, resume).await?;
        Ok(self.at(run))
    }

    /// Answers the question `asked`, or the only open one.
    pub async fn answer(
        &self,
        asked: Option<&str>,
        answer: ApprovalAnswer,
        verdicts: Vec<(String, Verdict)>,
    ) -> Result<Visible, Error> {
        let answered = self.supervisor.answer(&self.id, asked, answer, verdicts);
        let run = answered.await?;
        Ok(self.at(run))
    }

    /// Sends the message `text` of `by` to a thread.
    pub async fn send_message(&self, text: &str, by: &str) -> Result<Visible, Error> {
        let run = self.supervisor.send_message(&self.id, text, by).await?;
        Ok(self.at(run))
    }

    /// Raises the spend limit to `to`, and with `through` also of accounts above that would be too small.
    pub async fn raise_budget(
        &self,
        to: Usd,
        through: bool,
        by: &str,
    ) -> Result<Vec<AccountView>, Error> {
        self.supervisor
            .raise_budget(&self.run, to, through, by)
            .await
    }

    /// Resumes or continues the run instead of starting a new one for `start`.
    pub async fn start_again(&self, start: Start) -> Result<Visible, Error> {
        let run = self.supervisor.start_again(&self.id, start).await?;
        Ok(self.at(run))
    }
}
