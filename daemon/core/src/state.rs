//! What holds across runs: everything that the sequencer's lock protects, and the only way it changes.
//!
//! **Owns** the records of the runs in memory and their accounts ([`Ledger`]), the index of them by age and by parent, which of them run or may be asked to
//! stop, and the start keys in use (those of evicted runs for a while longer). **Never** knows a lock, a clock or a disk, and
//! never decides what happens: a [`Change`] is a fact, and [`Run::apply`] says whether it is a legal one.
//!
//! ```text
//! State::base ──► Base::draft ──► State::check ──► State::apply
//! lock: pointers   no lock:         lock:            the same lock:
//!                  copy, apply      compare          swap pointers
//! ```
//!
//! **Order.** A commit is drafted on copies while nobody waits, and holds under the lock only if every run it touches is
//! still where it was when it was copied (its seq says so); otherwise it is [`Why::Stale`] and is drafted once more. All of
//! a draft is applied or nothing of it. Under the lock nothing is proportional to what a run holds or to how many runs there
//! are, the freeing of records that were replaced included: they are handed out ([`Applied::replaced`], [`State::evict`]).
//!
//! **Failure.** A refusal ([`Refused`]) names the change that cannot happen. Nothing has happened then.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::ops::Bound;
use std::sync::Arc;

use crate::clock::Timestamp;
use crate::id::RunId;
use crate::ledger::{
    Account, AccountId, Cost, Denied, Lacking, Ledger, Miscount, Notice, Operation, Rows, Usage,
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
pub use self::refused::{Refused, Why};
use self::removal::{Continuations, Gone};
pub use self::waiting::Arrival;

/// Start keys of evicted runs that are kept. A caller that found a key unused in the index of ended runs may only now come to use
/// it; meanwhile far fewer runs come and go.
const LATE_KEYS: usize = 4096;

/// One fact to be committed.
#[derive(Debug, Clone, PartialEq)]
pub struct Change {
    /// The run.
    pub run: RunId,
    /// What happened to it; a run begins with `run_created`, under an id that must be new.
    pub event: Event,
}

impl Change {
    /// A run is accepted.
    pub fn create(run: &RunId, spec: Arc<Spec>) -> Self {
        Self::event(run, Event::Run(RunEvent::RunCreated(spec)))
    }

    /// Something happened to a run.
    pub fn event(run: &RunId, event: Event) -> Self {
        Self {
            run: run.clone(),
            event,
        }
    }

    /// What a paid call came to, if it settles one.
    pub const fn settles(&self) -> Option<&Usage> {
        if let Event::Run(RunEvent::BudgetSettled { usage, .. }) = &self.event {
            Some(usage)
        } else {
            None
        }
    }

    /// What is fixed about the run, if it is created.
    const fn created(&self) -> Option<&Arc<Spec>> {
        if let Event::Run(RunEvent::RunCreated(spec)) = &self.event {
            Some(spec)
        } else {
            None
        }
    }
}

/// What beside the runs decides whether a commit can be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Conditions {
    /// Whether the disk is full: then nothing begins, and what runs can still be suspended and end.
    pub full: bool,
    /// How many runs of one tree may be live at once.
    pub most_in_tree: usize,
    /// The place of who asks in the line of those who wait for money, if it has one.
    pub arrival: Option<Arrival>,
}

/// The place of a run in the order of all runs: when it was accepted, then its id.
pub type Age = (Timestamp, RunId);

/// The place of `run`.
pub fn age(run: &Run) -> Age {
    (run.created_at, run.id.clone())
}

/// What the indexes ask of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Standing {
    /// Created or running.
    active: bool,
    /// Neither ended nor asked to stop.
    cancellable: bool,
    /// Not over.
    live: bool,
    /// The memory that its values take, in bytes.
    held: usize,
}

impl Standing {
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

/// What a commit led to.
#[derive(Debug)]
pub struct Applied {
    /// The changes, as they were asked for.
    pub changes: Vec<Change>,
    /// What came of each.
    pub facts: Vec<Fact>,
    /// The records after the commit.
    pub runs: Vec<Arc<Run>>,
    /// What it did to accounts and meters.
    pub rows: Rows,
    /// Those who wait for money and should ask again.
    pub concerned: Vec<Arrival>,
    /// The records before it. The task that drops the last pointer to one frees all it holds: not under the lock.
    pub replaced: Vec<Arc<Run>>,
}

/// All runs in memory. See the module.
#[derive(Debug, Default)]
pub struct State {
    runs: HashMap<RunId, Arc<Run>>,
    /// All of them.
    by_age: BTreeSet<Age>,
    /// Those with a parent, by it, whether or not the parent waits for them.
    children: HashMap<RunId, BTreeSet<Age>>,
    /// How many of those are not over, by the parent.
    live_children: HashMap<RunId, usize>,
    /// Those that have neither ended nor been asked to stop.
    cancellable: BTreeSet<RunId>,
    /// How many are created or running.
    active: usize,
    keys: HashMap<String, RunId>,
    /// Keys of evicted runs, the oldest first.
    late: VecDeque<String>,
    continuations: Continuations,
    gone: Gone,
    accounts: Accounts,
    /// Where the memory that all of them take is counted.
    memory: Arc<Memory>,
}

/// Under what the start key of a run is found.
fn key(spec: &Spec) -> Option<String> {
    let key = spec.start_key.as_ref()?;
    Some(join(&spec.principal, key))
}

fn join(principal: &str, key: &str) -> String {
    format!("{principal}\0{key}")
}

impl State {
    /// A state of these runs; `rows` are those of their accounts on which something happened.
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

    /// The runs that `changes` touch, as they stand.
    pub fn base(&self, changes: &[Change]) -> Base {
        let known = |change: &Change| {
            let (id, run) = self.runs.get_key_value(&change.run)?;
            Some((id.clone(), Arc::clone(run)))
        };
        Base {
            runs: changes.iter().filter_map(known).collect(),
        }
    }

    /// Whether `draft` can still happen; answers with what it does to accounts.
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
                    (None, Some(_)) => return refused(Why::Exists),
                    (Some((base, _)), now) if now != Some(base) => return refused(Why::Stale),
                    (None, None) | (Some(_), _) => {}
                }
            }
            if change.event.facets().begins {
                if on.full {
                    return refused(Why::Full);
                }
                if let Some(killed) = self.fence(&drafted.record) {
                    return refused(Why::Stopping(killed.id.clone()));
                }
            }
            if let Some(gone) = change.created().and_then(|spec| self.gone.named_by(spec)) {
                return refused(Why::Gone(gone));
            }
            if let Some(key) = change.created().and_then(|spec| key(spec))
                && let Some(taken) = self.keys.get(&key)
            {
                return refused(Why::KeyTaken(taken.clone()));
            }
        }
        self.check_memory(draft)?;
        self.check_children(draft)?;
        let full = |spec: &Spec| self.full_tree(spec, on.most_in_tree);
        self.accounts.check_trees(draft, full)?;
        self.accounts.plan(draft, on.arrival)
    }

    /// What there is to say about the settlements of `draft`, which was checked; each with how many of them stand before the one that it
    /// is about.
    pub fn notices(&self, draft: &Draft) -> Vec<(usize, Notice)> {
        self.accounts.notices(draft)
    }

    /// Makes `draft`, which was checked under the same lock and does this to accounts, what is.
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
            concerned,
            replaced,
        }
    }

    /// Who was refused because it lacks money there waits from now on, at `arrival` if that is its place. Answers with its place, and with
    /// those that should ask again for that.
    pub fn wait(&mut self, arrival: Option<Arrival>, lacking: &Lacking) -> (Arrival, Vec<Arrival>) {
        self.accounts.waiting().wait(arrival, lacking)
    }

    /// Who has waited at `arrival` does no longer. Answers with those that should ask again for that.
    pub fn leave(&mut self, arrival: Arrival) -> Vec<Arrival> {
        self.accounts.waiting().leave(arrival)
    }

    /// Repeats a commit that was accepted before, in place. After a refusal the state is of no use.
    pub fn replay(&mut self, at: Timestamp, changes: Vec<Change>) -> Result<Applied, Refused> {
        let mut runs = HashMap::with_capacity(1);
        for change in &changes {
            // The pointers are moved, not shared: then nothing is copied.
            if let Some(run) = self.runs.remove(&change.run) {
                runs.insert(change.run.clone(), run);
            }
        }
        let draft = Base { runs }.draft(at, changes)?;
        let rows = self.accounts.plan(&draft, None)?;
        Ok(self.apply(draft, rows))
    }

    /// The life of the daemon ended in good order: no run has brought it down.
    pub fn forgive(&mut self) {
        for run in self.runs.values_mut().filter(|run| run.suspicions > 0) {
            Arc::make_mut(run).suspicions = 0;
        }
    }

    /// Keeps the indexes true to a run that stood as `before` says and is `run` now.
    fn enter(&mut self, before: Option<Standing>, run: &Run) {
        let now = Standing::of(run);
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

    /// Forgets a run that is kept elsewhere, and hands out its record; its start key stays for a while.
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
        let was = Standing::of(&run);
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

    /// The open accounts, and the meters.
    pub const fn ledger(&self) -> &Ledger {
        self.accounts.ledger()
    }

    /// Whether the accounts add up, and are those of the runs: each run that is not over has an open one, and what is held there is
    /// held for the call that the run has open.
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

    /// What `operation` on the account `id` would be answered now. Nothing changes, and nobody waits.
    pub fn try_on_accounts(&self, id: &AccountId, operation: &Operation) -> Result<(), Denied> {
        self.accounts.sheet(None).perform(id, operation)
    }

    /// An account that is closed, if a run in memory closed it.
    pub fn closed(&self, id: &AccountId) -> Option<&Arc<Account>> {
        self.accounts.closed(id)
    }

    /// What an account and all below it have spent, if it is open or a run in memory closed it.
    pub fn cost(&self, id: &AccountId) -> Option<Cost> {
        let open = self.ledger().cost(id);
        open.or_else(|| self.closed(id)?.cost().ok())
    }

    /// The record of a run.
    pub fn run(&self, id: &RunId) -> Option<&Arc<Run>> {
        self.runs.get(id)
    }

    /// All records, in no order.
    pub fn runs(&self) -> impl Iterator<Item = &Arc<Run>> {
        self.runs.values()
    }

    /// The runs that `id` started, detached ones included, the newest first.
    pub fn children(&self, id: &RunId) -> impl Iterator<Item = &RunId> {
        self.newest_first(Some(id), None).map(|run| &run.id)
    }

    /// The runs older than `before`, those that `parent` started if one is given, the newest first.
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

    /// The runs that have neither ended nor been asked to stop, by id, from the one after `after` on.
    pub fn cancellable(&self, after: Option<&RunId>) -> impl Iterator<Item = &Arc<Run>> {
        let start = after.map_or(Bound::Unbounded, Bound::Excluded);
        let ids = self.cancellable.range((start, Bound::Unbounded));
        ids.filter_map(|id| self.runs.get(id))
    }

    /// How many runs are created or running.
    pub const fn active(&self) -> usize {
        self.active
    }

    /// The run that `principal` started with `key`, in memory or evicted not long ago.
    pub fn by_key(&self, principal: &str, key: &str) -> Option<&RunId> {
        self.keys.get(&join(principal, key))
    }
}
