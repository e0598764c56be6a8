//! State of all runs in memory: the data under the sequencer's lock, and the only way to change it.
//!
//! **Owns** the records of the runs in memory, their accounts ([`Ledger`]), and the indexes of runs: by age, by parent,
//! active ones, cancellable ones, and start keys in use (those of evicted runs for a while longer). **Never** knows a
//! lock, a clock or a disk, and never decides: a [`Change`] is a fact, and [`Run::apply`] checks that it is legal.
//!
//! ```text
//! State::base ──► Base::draft ──► State::check ──► State::apply
//! lock: pointers   no lock:         lock:            the same lock:
//!                  copy, apply      compare          swap pointers
//! ```
//!
//! **Order.** A commit is drafted on copies, without a lock. Under the lock it is valid only if every run that it
//! touches is unchanged since it was copied, by its seq. Otherwise it is [`RefusalReason::Stale`] and is drafted again. A draft
//! is applied completely or not at all. No work under the lock is proportional to the size of a run or to the number of
//! runs. That includes freeing replaced records: they are returned to the caller ([`Applied::replaced`],
//! [`State::evict`]).
//!
//! **Failure.** A refusal ([`Refused`]) names the change that cannot happen, and nothing has changed.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::ops::Bound;
use std::sync::Arc;

use crate::clock::Timestamp;
use crate::id::{ItemRef, RunId};
use crate::ledger::{
    Account, AccountId, Cost, Denied, Ledger, LimitId, Miscount, Notice, Operation, Rows, Usage,
};
use crate::memory::Memory;
use crate::model::{Event, Run, RunEvent, Spec, Status};

mod accounts;
mod caps;
mod draft;
mod fence;
mod refused;
mod removal;
#[cfg(test)]
mod tests;
mod waiting;

use self::accounts::Accounts;
pub use self::accounts::{Closed, to_store};
use self::draft::Drafted;
pub use self::draft::{Base, Draft, Fact};
pub use self::refused::{RefusalReason, Refused};
use self::removal::{Continuations, Gone};
pub use self::waiting::Arrival;

/// Number of start keys of evicted runs that are kept. A caller that found a key unused in the index of ended runs may
/// use it only later; far fewer runs are evicted meanwhile.
const LATE_KEYS: usize = 4096;

/// One fact to be committed.
#[derive(Debug, Clone, PartialEq)]
pub struct Change {
    pub run: RunId,
    /// Event of the run. A run begins with `run_created`, under a new id.
    pub event: Event,
}

impl Change {
    /// Creates the change that accepts a run.
    pub fn create(run: &RunId, spec: Arc<Spec>) -> Self {
        Self::event(run, Event::Run(RunEvent::RunCreated(spec)))
    }

    /// Creates the change that records an event of a run.
    pub fn event(run: &RunId, event: Event) -> Self {
        Self {
            run: run.clone(),
            event,
        }
    }

    /// Returns the item of the run, if the change accepts one.
    pub fn created_item(&self) -> Option<&ItemRef> {
        match &self.event {
            Event::Run(RunEvent::RunCreated(spec)) => Some(&spec.item),
            Event::Run(_)
            | Event::Graph(_)
            | Event::Thread(_)
            | Event::Tool(_)
            | Event::Process(_) => None,
        }
    }

    /// Returns the usage of a paid call, if the change settles one.
    pub const fn settles(&self) -> Option<&Usage> {
        if let Event::Run(RunEvent::BudgetSettled(settled)) = &self.event {
            Some(&settled.usage)
        } else {
            None
        }
    }

    /// Returns the spec of the run, if the change creates it.
    const fn created(&self) -> Option<&Arc<Spec>> {
        if let Event::Run(RunEvent::RunCreated(spec)) = &self.event {
            Some(spec)
        } else {
            None
        }
    }
}

/// Conditions of a commit that do not depend on the runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Conditions {
    /// True if the disk is full. Then nothing begins, but runs can still be suspended and end.
    pub full: bool,
    /// Largest number of live runs in one tree.
    pub most_in_tree: usize,
    /// Position of the caller in the queue for money, if it has one.
    pub arrival: Option<Arrival>,
}

/// Position of a run in the order of all runs: its time of acceptance, then its id.
pub type Age = (Timestamp, RunId);

/// Returns the position of `run` in the order of all runs.
pub fn age(run: &Run) -> Age {
    (run.created_at, run.id.clone())
}

/// Properties of a record that the indexes depend on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct IndexedFacts {
    /// Created or running.
    active: bool,
    /// Neither ended nor cancelled.
    cancellable: bool,
    /// Not ended.
    live: bool,
    /// Memory of the values of the run, in bytes.
    held: usize,
}

impl IndexedFacts {
    fn of(run: &Run) -> Self {
        let status = run.status();
        Self {
            active: matches!(status, Status::Created | Status::Running),
            cancellable: !status.is_terminal() && run.cancel.is_none(),
            live: !status.is_terminal(),
            held: run.held(),
        }
    }
}

/// Result of a commit.
#[derive(Debug)]
pub struct Applied {
    /// Changes, as requested.
    pub changes: Vec<Change>,
    /// Fact of each change, in the same order.
    pub facts: Vec<Fact>,
    /// Records after the commit.
    pub runs: Vec<Arc<Run>>,
    /// Changed accounts and meters.
    pub rows: Rows,
    /// Queued requests for money that should be retried.
    pub to_retry: Vec<Arrival>,
    /// Records before the commit. Dropping the last pointer to one frees all that it holds; that must not happen under
    /// the lock.
    pub replaced: Vec<Arc<Run>>,
}

/// All runs in memory. See the module.
#[derive(Debug, Default)]
pub struct State {
    runs: HashMap<RunId, Arc<Run>>,
    /// All runs, the oldest first.
    by_age: BTreeSet<Age>,
    /// Runs by their parent, including those that it does not wait for.
    children: HashMap<RunId, BTreeSet<Age>>,
    /// Number of live runs by their parent.
    live_children: HashMap<RunId, usize>,
    /// Runs that have neither ended nor been cancelled.
    cancellable: BTreeSet<RunId>,
    /// Number of created or running runs.
    active: usize,
    keys: HashMap<String, RunId>,
    /// Keys of evicted runs, the oldest first.
    late: VecDeque<String>,
    continuations: Continuations,
    gone: Gone,
    accounts: Accounts,
    /// Counter of the memory of all runs.
    memory: Arc<Memory>,
}

/// Returns the index key of a run's start key.
fn key(spec: &Spec) -> Option<String> {
    let key = spec.start_key.as_ref()?;
    Some(join(&spec.principal, key))
}

fn join(principal: &str, key: &str) -> String {
    format!("{principal}\0{key}")
}

impl State {
    /// Creates a state of these runs. `rows` are the accounts that were changed after their creation, and the meters.
    pub fn new(runs: impl IntoIterator<Item = Arc<Run>>, rows: Rows, memory: Arc<Memory>) -> Self {
        let mut state = Self {
            memory,
            ..Self::default()
        };
        for run in runs {
            state.enter(None, &run);
            state.runs.insert(run.id.clone(), run);
        }
        state.accounts = Accounts::new(state.runs.values(), rows);
        state
    }

    /// Returns the current records of the runs that `changes` touch.
    pub fn base(&self, changes: &[Change]) -> Base {
        let known = |change: &Change| {
            let (id, run) = self.runs.get_key_value(&change.run)?;
            Some((id.clone(), Arc::clone(run)))
        };
        Base {
            runs: changes.iter().filter_map(known).collect(),
        }
    }

    /// Checks that `draft` can still happen. Returns its changes of accounts.
    pub fn check(&self, draft: &Draft, on: &Conditions) -> Result<Rows, Refused> {
        for (number, (change, fact)) in draft.facts().enumerate() {
            let refused = |why| {
                Err(Refused {
                    change: number,
                    run: change.run.clone(),
                    why,
                })
            };
            let drafted = &draft.runs[fact.run];
            if drafted.first == number {
                let now = self.runs.get(&change.run).map(|run| run.seq);
                match (drafted.base, now) {
                    (None, Some(_)) => return refused(RefusalReason::Exists),
                    (Some((base, _)), now) if now != Some(base) => {
                        return refused(RefusalReason::Stale);
                    }
                    (None, None) | (Some(_), _) => {}
                }
            }
            if change.event.facets().begins {
                if on.full {
                    return refused(RefusalReason::Full);
                }
                if let Some(killed) = self.fence(&drafted.record) {
                    return refused(RefusalReason::Stopping(killed.id.clone()));
                }
            }
            if let Some(gone) = change.created().and_then(|spec| self.gone.named_by(spec)) {
                return refused(RefusalReason::Gone(gone));
            }
            if let Some(key) = change.created().and_then(|spec| key(spec))
                && let Some(taken) = self.keys.get(&key)
            {
                return refused(RefusalReason::KeyTaken(taken.clone()));
            }
        }
        self.check_memory(draft)?;
        self.check_children(draft)?;
        let full = |spec: &Spec| self.full_tree(spec, on.most_in_tree);
        self.accounts.check_trees(draft, full)?;
        self.accounts.plan(draft, on.arrival)
    }

    /// Returns the notices about the settlements of a checked `draft`, each with the index of its settlement.
    pub fn notices(&self, draft: &Draft) -> Vec<(usize, Notice)> {
        self.accounts.notices(draft)
    }

    /// Applies `draft` and its `rows`, which were checked under the same lock.
    pub fn apply(&mut self, draft: Draft, rows: Rows) -> Applied {
        let concerned = self.accounts.enter(&draft, rows.clone());
        let mut runs = Vec::with_capacity(draft.runs.len());
        let mut replaced = Vec::with_capacity(draft.runs.len());
        for Drafted { base, record, .. } in draft.runs {
            self.enter(base.map(|(_, standing)| standing), &record);
            runs.push(Arc::clone(&record));
            match self.runs.get_mut(&record.id) {
                Some(known) => replaced.push(std::mem::replace(known, record)),
                None => {
                    self.runs.insert(record.id.clone(), record);
                }
            }
        }
        Applied {
            changes: draft.changes,
            facts: draft.facts,
            runs,
            rows,
            to_retry: concerned,
            replaced,
        }
    }

    /// Queues a request that was refused for lack of money at `lacking`; `arrival` is its position if it is queued
    /// already. Returns its position, and the requests that should be retried because of that.
    pub fn wait(&mut self, arrival: Option<Arrival>, lacking: &LimitId) -> (Arrival, Vec<Arrival>) {
        self.accounts.waiting().wait(arrival, lacking)
    }

    /// Removes the request at `arrival` from the queue. Returns the requests that should be retried because of that.
    pub fn stop_waiting(&mut self, arrival: Arrival) -> Vec<Arrival> {
        self.accounts.waiting().remove(arrival)
    }

    /// Replays a commit of the log, in place. After a refusal the state is unusable.
    pub fn replay(&mut self, at: Timestamp, changes: Vec<Change>) -> Result<Applied, Refused> {
        let mut runs = HashMap::with_capacity(1);
        for change in &changes {
            // The pointers are moved, not shared, so that no record is copied.
            if let Some(run) = self.runs.remove(&change.run) {
                runs.insert(change.run.clone(), run);
            }
        }
        let draft = Base { runs }.draft(at, changes)?;
        let rows = self.accounts.plan(&draft, None)?;
        Ok(self.apply(draft, rows))
    }

    /// Clears the suspicions of all runs after a clean shutdown: no run crashed the daemon.
    pub fn clear_suspicions(&mut self) {
        for run in self.runs.values_mut().filter(|run| run.suspicions > 0) {
            Arc::make_mut(run).suspicions = 0;
        }
    }

    /// Updates the indexes from the properties `before`, which are `None` for a new run, to those of `run`.
    fn enter(&mut self, before: Option<IndexedFacts>, run: &Run) {
        let now = IndexedFacts::of(run);
        if before.is_none() {
            let age = age(run);
            if let Some(parent) = &run.spec.parent {
                let siblings = self.children.entry(parent.clone()).or_default();
                siblings.insert(age.clone());
            }
            self.by_age.insert(age);
            self.continuations.enter(run);
            if let Some(key) = key(&run.spec) {
                self.keys.insert(key, run.id.clone());
            }
        }
        self.memory
            .count(before.map_or(0, |was| was.held), now.held);
        let (was_active, was_cancellable) =
            before.map_or((false, false), |was| (was.active, was.cancellable));
        self.count(was_active, now.active);
        self.count_child(run, before.is_some_and(|was| was.live), now.live);
        match (was_cancellable, now.cancellable) {
            (false, true) => {
                self.cancellable.insert(run.id.clone());
            }
            (true, false) => {
                self.cancellable.remove(&run.id);
            }
            (false, false) | (true, true) => {}
        }
    }

    fn count(&mut self, before: bool, now: bool) {
        self.active = self.active + usize::from(now) - usize::from(before);
    }

    fn count_child(&mut self, run: &Run, before: bool, now: bool) {
        let Some(parent) = run.spec.parent.as_ref().filter(|_| before != now) else {
            return;
        };
        if now {
            *self.live_children.entry(parent.clone()).or_default() += 1;
        } else if let Some(live) = self.live_children.get_mut(parent) {
            *live -= 1;
            if *live == 0 {
                self.live_children.remove(parent);
            }
        }
    }

    /// Removes a run that is stored elsewhere, and returns its record. Its start key is kept for a while.
    pub fn evict(&mut self, id: &RunId) -> Option<Arc<Run>> {
        let run = self.runs.remove(id)?;
        self.accounts.evict(id);
        self.continuations.forget(&run);
        let age = age(&run);
        self.by_age.remove(&age);
        if let Some(parent) = &run.spec.parent
            && let Some(siblings) = self.children.get_mut(parent)
        {
            siblings.remove(&age);
            if siblings.is_empty() {
                self.children.remove(parent);
            }
        }
        let was = IndexedFacts::of(&run);
        self.memory.count(was.held, 0);
        self.count(was.active, false);
        self.count_child(&run, was.live, false);
        self.cancellable.remove(id);
        if let Some(key) = key(&run.spec) {
            self.late.push_back(key);
            if self.late.len() > LATE_KEYS
                && let Some(oldest) = self.late.pop_front()
            {
                self.keys.remove(&oldest);
            }
        }
        Some(run)
    }

    /// Returns the open accounts and the meters.
    pub const fn ledger(&self) -> &Ledger {
        self.accounts.ledger()
    }

    /// Recounts the ledger, and checks that its accounts match the runs: each live run has an open account, which holds
    /// money exactly for the run's open call.
    pub fn recount(&self) -> Result<(), Miscount> {
        self.ledger().recount()?;
        for run in self.runs().filter(|run| !run.status().is_terminal()) {
            let account = self.ledger().account(&run.spec.budget.account);
            let is_open = account.is_some_and(|account| !account.ended);
            Miscount::check(&run.id, "whether its account is open", &is_open, &true)?;
            let hold = account.and_then(|account| account.hold.as_ref());
            let kept = hold.map(|hold| (hold.call, hold.amount));
            let open = run.open_call.map(|open| (open.call, open.amount));
            Miscount::check(&run.id, "what is held for it", &kept, &open)?;
        }
        Ok(())
    }

    /// Returns the result of `operation` on the account `id` without any change. The request is not queued.
    pub fn try_on_accounts(&self, id: &AccountId, operation: &Operation) -> Result<(), Denied> {
        self.accounts.transaction(None).perform(id, operation)
    }

    /// Returns a closed account, if a run in memory closed it.
    pub fn closed(&self, id: &AccountId) -> Option<&Arc<Account>> {
        self.accounts.closed(id)
    }

    /// Returns the spending of an account and all accounts below it, if it is open or a run in memory closed it.
    pub fn cost(&self, id: &AccountId) -> Option<Cost> {
        let open = self.ledger().cost(id);
        open.or_else(|| self.closed(id)?.cost().ok())
    }

    pub fn run(&self, id: &RunId) -> Option<&Arc<Run>> {
        self.runs.get(id)
    }

    /// Returns all records, in no order.
    pub fn runs(&self) -> impl Iterator<Item = &Arc<Run>> {
        self.runs.values()
    }

    /// Returns the runs that `id` started, including detached ones, the newest first.
    pub fn children(&self, id: &RunId) -> impl Iterator<Item = &RunId> {
        self.newest_first(Some(id), None).map(|run| &run.id)
    }

    /// Returns the runs older than `before`, the newest first; only those that `parent` started, if it is given.
    pub fn newest_first(
        &self,
        parent: Option<&RunId>,
        before: Option<&Age>,
    ) -> impl Iterator<Item = &Arc<Run>> {
        let index = match parent {
            None => Some(&self.by_age),
            Some(parent) => self.children.get(parent),
        };
        let end = before.map_or(Bound::Unbounded, Bound::Excluded);
        let ages = index
            .into_iter()
            .flat_map(move |index| index.range((Bound::Unbounded, end)).rev());
        ages.filter_map(|(_, id)| self.runs.get(id))
    }

    /// Returns the runs that have neither ended nor been cancelled, by id, after the id `after`.
    pub fn cancellable(&self, after: Option<&RunId>) -> impl Iterator<Item = &Arc<Run>> {
        let start = after.map_or(Bound::Unbounded, Bound::Excluded);
        let ids = self.cancellable.range((start, Bound::Unbounded));
        ids.filter_map(|id| self.runs.get(id))
    }

    /// Returns the number of created or running runs.
    pub const fn active(&self) -> usize {
        self.active
    }

    /// Returns the run that `principal` started with `key`, if it is in memory or was evicted recently.
    pub fn by_key(&self, principal: &str, key: &str) -> Option<&RunId> {
        self.keys.get(&join(principal, key))
    }
}
