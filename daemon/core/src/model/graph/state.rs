//! The state of a graph run. The transitions of its walk are in `work/graph_transitions.rs`.
//!
//! ```text
//! New ─graph_started─► Between ─step_started─► Step ─step_completed─► Between{next: none} ─terminal event─► (run ended)
//!                       ▲   │                   │ ▲ items start and end
//!                       │   └─step_failed─┐     │ └────────────────────────────────┐
//!                       │                 ▼     ▼                                  │
//!                       └─step_completed─ Failed ─retry_scheduled─► Backoff ─step_started (attempt + 1)
//! any of them ─graph_ending─► Ending ─terminal event─► (run ended)
//! ```
//!
//! Hooks are called between two nodes, after a failure and at the end. When the run has ended, the state keeps the last
//! position.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Items, SuppressedError};
use crate::clock::{Timestamp, Uptime};
use crate::expr::Vars;
use crate::id::{Name, RunId};
use crate::model::attempt::{Attempt, Effect, Slot, Unknown, Verdict, attempt_name};
use crate::model::chunks::Chunks;
use crate::model::failure::Failure;
use crate::model::life::Outcome;
use crate::model::round::Round;

/// The history of a graph run and its position.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct GraphState {
    #[serde(default, skip_serializing_if = "At::is_new")]
    pub at: At,
    /// The state of the graph, `inputs` included.
    #[serde(rename = "state")]
    pub vars: Vars,
    pub steps: u32,
    /// Limit of steps that replaces that of the spec.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_steps: Option<u32>,
    /// Number of completions of each node.
    pub visits: Arc<BTreeMap<Name, u32>>,
    /// Retries of each node since it was entered by an edge.
    #[serde(default, skip_serializing_if = "is_empty")]
    pub retries: Arc<BTreeMap<Name, u32>>,
    /// Handles of the managed processes that service nodes started, by node.
    #[serde(default, skip_serializing_if = "no_services")]
    pub services: Arc<BTreeMap<Name, RunId>>,
    /// Positions in the output of managed processes behind the last wait for a line.
    #[serde(default, skip_serializing_if = "no_positions")]
    pub positions: Arc<BTreeMap<RunId, Name>>,
    /// Errors after which the graph continued.
    pub suppressed: Chunks<SuppressedError>,
    /// The output of the return node.
    pub output: Option<Arc<Value>>,
    /// Nodes that failed, whole or in some of their items, after which the graph continued, in the order of their
    /// failures. Each is listed once, with its latest failure.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unrepaired: Vec<Arc<Unrepaired>>,
    /// The last completed step: its node and its successor.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last: Option<Arc<LastStep>>,
}

/// The position of a graph run.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum At {
    #[default]
    New,
    Between {
        /// The next node; `None` after the last one.
        next: Option<Name>,
        /// The work that an earlier attempt at that node left: one of an earlier run of the chain, or the step that
        /// ended this run.
        left: Option<UnfinishedWork>,
        /// Hooks being called.
        round: Option<Round>,
    },
    /// A step is in flight: its action, or items of a foreach node.
    Step(Step),
    /// An attempt of the step failed; the consequence is not decided yet.
    Failed {
        step: Step,
        failure: Arc<FailedAttempt>,
        /// Hooks being called.
        round: Option<Round>,
    },
    /// The failed step waits for its next try.
    Backoff { step: Step, due: Due },
    /// The walk is over, and hooks are called about it.
    Ending {
        /// The outcome with which the run will end.
        outcome: Arc<Outcome>,
        /// The position before the end.
        stood: Arc<At>,
        /// Hooks being called.
        round: Option<Round>,
    },
}

/// A step that has started and not ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Step {
    /// Number of the step, from 1.
    pub number: u32,
    pub node: Name,
    /// Number of earlier visits of this node in this run.
    pub visit: u32,
    /// `_now` of the step: the same in every try.
    pub now: Timestamp,
    /// Number of this try of the node, from 1.
    pub attempt: u32,
    /// The child run that carries out, or last carried out, its action; a further try continues it.
    pub child: Option<RunId>,
    pub work: StepWork,
    /// Time that does not count for the step.
    #[serde(default, skip_serializing_if = "Idle::is_none")]
    pub idle: Idle,
}

/// The time for which the run was suspended during a step.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Idle {
    /// Milliseconds, up to the latest resumption.
    ms: u64,
    /// Start of the current suspension.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    since: Option<Timestamp>,
}

impl Idle {
    fn is_none(&self) -> bool {
        *self == Self::default()
    }

    fn until(self, now: Timestamp) -> u64 {
        self.ms + self.since.map_or(0, |since| now.ms_since(since))
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StepWork {
    /// The step failed before it started. Holds the items that an earlier attempt left.
    NeverStarted(Option<Items>),
    Action(Attempt),
    /// The items of a foreach node, or the branches of a parallel one.
    Items(Items),
    /// No action: the step waits.
    Waits(Waits),
}

/// The condition for which a step without an action waits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Waits {
    Until {
        /// By the wall clock.
        at: Timestamp,
        /// Length of a wait that is a duration, in milliseconds: no life of the daemon waits longer. Without it the
        /// wall clock alone decides.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        delay_ms: Option<u64>,
    },
    /// The answer of a person.
    Answer,
}

/// The time at which a failed step is tried again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Due {
    /// By the wall clock, for people and for a new life of the daemon.
    pub at: Timestamp,
    /// Length of the delay in milliseconds; no life waits longer.
    pub delay_ms: u64,
}

impl Due {
    /// Makes the delay from `now` to `due`.
    pub(crate) fn of(now: Timestamp, due: Timestamp) -> Self {
        Self {
            at: due,
            delay_ms: due.ms_since(now),
        }
    }

    /// Returns the end of the delay by the clock for delays, which shows `up` at `now`.
    pub(crate) fn end(&self, now: Timestamp, up: Uptime) -> Uptime {
        let left = self.at.ms_since(now).min(self.delay_ms);
        up.plus(Duration::from_millis(left))
    }
}

/// The work that an unsuccessful attempt at a node left.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct UnfinishedWork {
    /// Items; those that succeeded are not repeated.
    pub items: Option<Items>,
    /// The child run that carried out its action.
    pub child: Option<RunId>,
    /// True if its action is at-most-once and its outcome is unknown.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unknown: bool,
}

/// A failed node after which the graph continued.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Unrepaired {
    /// The step that failed.
    pub step: u32,
    pub node: Name,
    pub left: UnfinishedWork,
    /// At-most-once nodes that were carried out after it.
    #[serde(default, rename = "once", skip_serializing_if = "Vec::is_empty")]
    pub once_since: Vec<Name>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LastStep {
    pub node: String,
    pub next_node: Option<String>,
    /// The failure of the node, whatever followed.
    pub error: Option<Failure>,
}

/// A failed attempt whose consequence is not decided yet.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FailedAttempt {
    pub error: Failure,
    /// The result that the action returned although it failed.
    pub result: Arc<Value>,
    /// `{category, code, retryable, retry_policy}`.
    pub classification: Value,
    /// True if another try does no harm and may help.
    pub repeatable: bool,
    /// True if the attempt is at-most-once and its outcome is unknown.
    pub unknown: bool,
}

fn no_services(services: &BTreeMap<Name, RunId>) -> bool {
    services.is_empty()
}

fn no_positions(positions: &BTreeMap<RunId, Name>) -> bool {
    positions.is_empty()
}

fn is_empty(counts: &BTreeMap<Name, u32>) -> bool {
    counts.is_empty()
}

impl At {
    const fn is_new(&self) -> bool {
        matches!(self, Self::New)
    }

    /// Returns the current node, if there is one.
    pub fn node(&self) -> Option<&str> {
        match self {
            Self::Between { next, .. } => next.as_deref(),
            Self::Step(step) | Self::Failed { step, .. } | Self::Backoff { step, .. } => {
                Some(&step.node)
            }
            Self::New | Self::Ending { .. } => None,
        }
    }

    /// Returns the current step, in flight or failed.
    pub const fn step(&self) -> Option<&Step> {
        match self {
            Self::Step(step) | Self::Failed { step, .. } | Self::Backoff { step, .. } => Some(step),
            Self::New | Self::Between { .. } | Self::Ending { .. } => None,
        }
    }

    const fn step_mut(&mut self) -> Option<&mut Step> {
        match self {
            Self::Step(step) | Self::Failed { step, .. } | Self::Backoff { step, .. } => Some(step),
            Self::New | Self::Between { .. } | Self::Ending { .. } => None,
        }
    }

    /// Records that the run is suspended. The time of a step that only waits for an answer is not idle time.
    pub(crate) fn suspend(&mut self, at: Timestamp) {
        if let Some(step) = self.step_mut()
            && step.work != StepWork::Waits(Waits::Answer)
        {
            step.idle.since.get_or_insert(at);
        }
    }

    pub(crate) fn resume(&mut self, at: Timestamp) {
        if let Some(step) = self.step_mut() {
            step.idle = Idle {
                ms: step.idle.until(at),
                since: None,
            };
        }
    }

    /// Returns the idle time of the step `number` if it is the current step.
    pub(crate) fn idle(&self, number: u32) -> Idle {
        let step = self.step().filter(|step| step.number == number);
        step.map(|step| step.idle).unwrap_or_default()
    }

    /// Returns the action of the node, if it is in flight.
    pub(crate) const fn action(&self) -> Option<&Attempt> {
        if let Self::Step(Step {
            work: StepWork::Action(attempt),
            ..
        }) = self
        {
            Some(attempt)
        } else {
            None
        }
    }

    /// Returns the hooks that are being called.
    pub const fn round(&self) -> Option<&Round> {
        match self {
            Self::Between { round, .. }
            | Self::Failed { round, .. }
            | Self::Ending { round, .. } => round.as_ref(),
            Self::New | Self::Step(_) | Self::Backoff { .. } => None,
        }
    }

    pub(crate) fn round_mut(&mut self) -> Option<&mut Option<Round>> {
        match self {
            Self::Between { round, .. }
            | Self::Failed { round, .. }
            | Self::Ending { round, .. } => Some(round),
            Self::New | Self::Step(_) | Self::Backoff { .. } => None,
        }
    }

    /// Returns the items of the current node, including those that an earlier attempt left.
    pub fn items(&self) -> Option<&Items> {
        match self {
            Self::Between { left, .. } => left.as_ref()?.items.as_ref(),
            Self::Step(step) | Self::Failed { step, .. } | Self::Backoff { step, .. } => {
                step.items()
            }
            Self::New | Self::Ending { .. } => None,
        }
    }

    /// Returns the child run that carries out, or last carried out, the action of the current node.
    pub fn child(&self) -> Option<&RunId> {
        match self {
            Self::Between { left, .. } => left.as_ref()?.child.as_ref(),
            Self::Step(step) | Self::Failed { step, .. } | Self::Backoff { step, .. } => {
                step.child.as_ref()
            }
            Self::New | Self::Ending { .. } => None,
        }
    }

    /// Returns the work that the current node would leave if the run ended now.
    pub(crate) fn left(&self) -> UnfinishedWork {
        let unknown = match self {
            Self::Between { left, .. } => left.as_ref().is_some_and(|left| left.unknown),
            Self::Step(Step { work, .. }) => {
                matches!(work, StepWork::Action(attempt) if attempt.is_unknown())
            }
            // A foreach node records it for each item.
            Self::Failed { step, failure, .. } => failure.unknown && step.items().is_none(),
            Self::New | Self::Backoff { .. } | Self::Ending { .. } => false,
        };
        UnfinishedWork {
            items: self.items().cloned(),
            child: self.child().cloned(),
            unknown,
        }
    }
}

impl UnfinishedWork {
    /// Returns the unknown attempts of `node`; `action` is its attempt that was cut off, if there is one.
    fn unknown_at(&self, node: &str, action: Option<&Attempt>) -> Vec<Unknown> {
        let whole = Unknown {
            name: attempt_name(node, Slot::Main),
            once: self.unknown,
            child: self.child.clone(),
            cut_off: action.map(Attempt::identity),
        };
        let items = self.items.iter().flat_map(|items| {
            let unfinished = items.unfinished();
            unfinished.map(|(item, once, child)| Unknown {
                name: items.name(node, Slot::Part(item)),
                once,
                child: child.cloned(),
                cut_off: items.running.get(&item).map(Attempt::identity),
            })
        });
        std::iter::once(whole)
            .chain(items)
            .filter(|unknown| unknown.once || unknown.child.is_some())
            .collect()
    }

    /// Prepares the work for another try: the requester has answered for the unknown outcomes.
    #[must_use]
    pub fn reopened(self) -> Self {
        Self {
            items: self.items.map(Items::reopened),
            unknown: false,
            ..self
        }
    }
}

impl Step {
    /// Milliseconds that the step took up to `now`, without the time of suspension.
    pub fn elapsed_ms(&self, now: Timestamp) -> u64 {
        now.ms_since(self.now).saturating_sub(self.idle.until(now))
    }

    pub const fn items(&self) -> Option<&Items> {
        match &self.work {
            StepWork::Items(items) | StepWork::NeverStarted(Some(items)) => Some(items),
            StepWork::Action(_) | StepWork::NeverStarted(None) | StepWork::Waits(_) => None,
        }
    }

    /// True if a person declared the attempt of its action done.
    pub fn is_declared(&self) -> bool {
        match &self.work {
            StepWork::Action(attempt) => attempt.verdict == Some(Verdict::Done),
            StepWork::NeverStarted(_) | StepWork::Items(_) | StepWork::Waits(_) => false,
        }
    }

    /// Returns the effect of a second execution of its action, from the recorded attempt.
    pub const fn effect(&self) -> Option<Effect> {
        match &self.work {
            StepWork::Action(attempt) => Some(attempt.effect),
            StepWork::NeverStarted(_) | StepWork::Items(_) | StepWork::Waits(_) => None,
        }
    }
}

impl GraphState {
    /// Returns the position of the walk, or its last position before the end.
    pub fn stood(&self) -> &At {
        match &self.at {
            At::Ending { stood, .. } => stood,
            At::New | At::Between { .. } | At::Step(_) | At::Failed { .. } | At::Backoff { .. } => {
                &self.at
            }
        }
    }

    /// Returns the attempts in flight: the action of the node, items, the action of a hook.
    pub(crate) fn in_flight(&self) -> impl Iterator<Item = &Attempt> {
        let items = if let At::Step(Step {
            work: StepWork::Items(items),
            ..
        }) = &self.at
        {
            Some(items.running.values())
        } else {
            None
        };
        let hook = self.at.round().and_then(|round| round.running.as_ref());
        let action = self.at.action();
        action
            .into_iter()
            .chain(items.into_iter().flatten())
            .chain(hook)
    }

    /// Returns the attempts of unknown outcome at the current node, or at the node at which the run ended: the action,
    /// items, and hooks that child runs carried out.
    pub fn unknown(&self) -> Vec<Unknown> {
        let stood = self.stood();
        let ended_at = self.last.as_ref().map(|last| last.node.as_str());
        let node = stood.node().or(ended_at).unwrap_or_default();
        let earlier = Some(stood).filter(|_| matches!(self.at, At::Ending { .. }));
        let rounds = [Some(&self.at), earlier].into_iter().flatten();
        let hooks = rounds.filter_map(|at| {
            let child = at.round()?.child()?;
            Some(Unknown {
                name: attempt_name(node, Slot::Main),
                once: false,
                child: Some(child.clone()),
                cut_off: None,
            })
        });
        stood
            .left()
            .unknown_at(node, stood.action())
            .into_iter()
            .chain(hooks)
            .collect()
    }

    /// Returns the attempts of unknown outcome at the nodes that repairs repeat.
    pub fn unknown_of_repairs(&self) -> Vec<Unknown> {
        let failed = self.unrepaired.iter();
        failed
            .flat_map(|failed| failed.left.unknown_at(&failed.node, None))
            .collect()
    }

    /// Returns the inheritance of a run that repairs one which ended in this state: the state to take over, the first
    /// node to repair, and the node after the last repair. That is the last node of this run, unless it is repaired
    /// itself. Failed visits are taken again, under the same keys. `None` if nothing failed.
    pub fn repairs(&self) -> Option<(Self, &Unrepaired, Option<Name>)> {
        let first = self.unrepaired.first()?;
        let (mut state, _) = self.inherited();
        let visits = Arc::make_mut(&mut state.visits);
        for failed in &self.unrepaired {
            if let Some(visits) = visits.get_mut(&failed.node) {
                *visits = visits.saturating_sub(1);
            }
        }
        let ended_at = self.last.as_ref().filter(|last| last.next_node.is_none());
        let ended_at = ended_at.map(|last| Name::from(last.node.as_str()));
        let then =
            ended_at.filter(|node| self.unrepaired.iter().all(|failed| failed.node != *node));
        Some((state, first, then))
    }

    /// Returns the inheritance of a run that walks on from the first failure of one which ended in this state: the state
    /// to take over, and that failure. Errors after it are forgotten: the walk takes these nodes again, as new visits.
    /// `None` if nothing failed.
    pub fn from_failed(&self) -> Option<(Self, &Unrepaired)> {
        let first = self.unrepaired.first()?;
        let (mut state, _) = self.inherited();
        state.unrepaired.clear();
        state.suppressed = state.suppressed_but(|error| error.step < first.step);
        if let Some(visits) = Arc::make_mut(&mut state.visits).get_mut(&first.node) {
            *visits = visits.saturating_sub(1);
        }
        Some((state, first))
    }

    /// Returns the next node to repair after the node `behind`, among those that failed up to the step `base`.
    pub fn next_repair(&self, base: u32, behind: Option<&str>) -> Option<&Unrepaired> {
        let mut failed = self.unrepaired.iter();
        let next = failed.find(|failed| failed.step <= base && Some(&*failed.node) != behind);
        next.map(|failed| &**failed)
    }

    /// Returns the inheritance of a run that continues one which ended in this state: the state without its position,
    /// and the unfinished work of its last node.
    pub fn inherited(&self) -> (Self, UnfinishedWork) {
        let left = self.stood().left().reopened();
        let state = Self {
            at: At::New,
            // Items of the step that was cut off are tried again.
            suppressed: self.suppressed_but(|error| error.step <= self.steps),
            output: None,
            max_steps: None,
            last: None,
            ..self.clone()
        };
        (state, left)
    }

    pub(crate) fn suppressed_but(
        &self,
        kept: impl Fn(&SuppressedError) -> bool,
    ) -> Chunks<SuppressedError> {
        self.suppressed
            .iter()
            .filter(|error| kept(error))
            .cloned()
            .collect()
    }
}
