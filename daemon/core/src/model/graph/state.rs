//! Where a graph run stands. The transitions of its walk are in `work/walk.rs`.
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
//! Hooks are asked between two nodes, behind a failure and at the end. When the run has ended, the state keeps the place
//! where it stood.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Items, SuppressedError};
use crate::clock::Timestamp;
use crate::expr::Vars;
use crate::id::{Name, RunId};
use crate::model::attempt::{Attempt, Effect, Slot, Unknown, Verdict, attempt_name};
use crate::model::chunks::Chunks;
use crate::model::failure::Failure;
use crate::model::life::Outcome;
use crate::model::round::Round;

/// What a graph run has done, and where it stands.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct GraphState {
    /// Where it stands.
    #[serde(default, skip_serializing_if = "At::is_new")]
    pub at: At,
    /// The state of the graph, `inputs` included.
    #[serde(rename = "state")]
    pub vars: Vars,
    /// Steps taken.
    pub steps: u32,
    /// A limit of steps that replaces that of the spec.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_steps: Option<u32>,
    /// How often each node was completed.
    pub visits: Arc<BTreeMap<Name, u32>>,
    /// Retries of each node since it was entered by an edge.
    #[serde(default, skip_serializing_if = "is_empty")]
    pub retries: Arc<BTreeMap<Name, u32>>,
    /// Errors the graph continued after.
    pub suppressed: Chunks<SuppressedError>,
    /// What the return node returned.
    pub output: Option<Arc<Value>>,
    /// Nodes that failed, whole or in some of their items, after which the graph continued, in the order in which they did; each once,
    /// as it ended last.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unrepaired: Vec<Arc<Unrepaired>>,
    /// The last step that was completed: its node and what followed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last: Option<Arc<LastStep>>,
}

/// Where a graph run stands.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum At {
    /// The walk has not begun.
    #[default]
    New,
    /// Between two nodes.
    Between {
        /// The node attempted next; none if the last one is done.
        next: Option<Name>,
        /// What an earlier attempt at that node left, by an earlier run of the chain or by the step that ended this one.
        left: Option<UnfinishedWork>,
        /// Hooks being asked.
        round: Option<Round>,
    },
    /// A step is in flight: its action, or items of a foreach node.
    Step(Step),
    /// An attempt of the step failed; what follows is not decided yet.
    Failed {
        /// The step.
        step: Step,
        /// How it failed.
        failure: Arc<FailedAttempt>,
        /// Hooks being asked.
        round: Option<Round>,
    },
    /// The failed step is tried again, but not yet.
    Backoff {
        /// The step, as it failed.
        step: Step,
        /// When it is tried again.
        due: Due,
    },
    /// The walk is over and hooks are asked about it.
    Ending {
        /// What the run comes to.
        outcome: Arc<Outcome>,
        /// Where the walk stood.
        stood: Arc<At>,
        /// Hooks being asked.
        round: Option<Round>,
    },
}

/// A step that has started and not ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Step {
    /// Number of the step, from 1.
    pub number: u32,
    /// The node.
    pub node: Name,
    /// How often this node was entered before, in this run.
    pub visit: u32,
    /// `_now` of the step: the same in every try.
    pub now: Timestamp,
    /// Number of this try of the node, from 1.
    pub attempt: u32,
    /// The child run that carries out, or last carried out, its action; a further try continues it.
    pub child: Option<RunId>,
    /// What carries it out.
    pub work: StepWork,
    /// Time in it that is none of its own.
    #[serde(default, skip_serializing_if = "Idle::is_none")]
    pub idle: Idle,
}

/// The time in which a run was suspended while it stood in a step.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Idle {
    /// Milliseconds, up to when it was resumed last.
    ms: u64,
    /// Since when it is suspended.
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

/// What carries a step out.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StepWork {
    /// It failed before it started. With the items an earlier attempt left.
    NeverStarted(Option<Items>),
    /// One action.
    Action(Attempt),
    /// The items of a foreach node, or the branches of a parallel one.
    Items(Items),
    /// Nothing: it waits.
    Waits(Waits),
}

/// What a step waits for that nothing carries out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Waits {
    /// A time.
    Until {
        /// By the wall clock.
        at: Timestamp,
        /// Milliseconds the wait is, of one that is a duration: no life of the daemon waits longer than that. Without it the wall clock
        /// alone decides.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        delay_ms: Option<u64>,
    },
    /// The answer of a person.
    Answer,
}

/// When a failed step is tried again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Due {
    /// By the wall clock, for people and for a new life of the daemon.
    pub at: Timestamp,
    /// Milliseconds the delay was; no life waits longer than that.
    pub delay_ms: u64,
}

/// What an attempt at a node left that did not succeed.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct UnfinishedWork {
    /// Items; those that succeeded are not repeated.
    pub items: Option<Items>,
    /// The child run that carried out its action.
    pub child: Option<RunId>,
    /// Whether its action is at-most-once, and its outcome unknown.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unknown: bool,
}

/// A node that failed, and the graph continued after it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Unrepaired {
    /// The step in which it did.
    pub step: u32,
    /// The node.
    pub node: Name,
    /// What it left.
    pub left: UnfinishedWork,
}

/// The last step that was completed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LastStep {
    /// Its node.
    pub node: String,
    /// The node that followed.
    pub next_node: Option<String>,
    /// Why it failed, wherever that led.
    pub error: Option<Failure>,
}

/// An attempt that failed, while it is decided what follows.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FailedAttempt {
    /// Why.
    pub error: Failure,
    /// What the action gave back all the same.
    pub result: Arc<Value>,
    /// `{category, code, retryable, retry_policy}`.
    pub classification: Value,
    /// Whether another try does no harm and may help.
    pub repeatable: bool,
    /// Whether it is at-most-once, and its outcome unknown.
    pub unknown: bool,
}

fn is_empty(counts: &BTreeMap<Name, u32>) -> bool {
    counts.is_empty()
}

impl At {
    const fn is_new(&self) -> bool {
        matches!(self, Self::New)
    }

    /// The node it stands at, if it stands at one.
    pub fn node(&self) -> Option<&str> {
        match self {
            Self::Between { next, .. } => next.as_deref(),
            Self::Step(step) | Self::Failed { step, .. } | Self::Backoff { step, .. } => {
                Some(&step.node)
            }
            Self::New | Self::Ending { .. } => None,
        }
    }

    /// The step it stands in, in flight or failed.
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

    /// The run is suspended here. To wait for an answer is all that such a step does: it is no idle time.
    pub(crate) fn suspend(&mut self, at: Timestamp) {
        if let Some(step) = self.step_mut()
            && step.work != StepWork::Waits(Waits::Answer)
        {
            step.idle.since.get_or_insert(at);
        }
    }

    /// The run is resumed here.
    pub(crate) fn resume(&mut self, at: Timestamp) {
        if let Some(step) = self.step_mut() {
            step.idle = Idle {
                ms: step.idle.until(at),
                since: None,
            };
        }
    }

    /// Idle time of the step `number`, if that is the one it stands in.
    pub(crate) fn idle(&self, number: u32) -> Idle {
        let step = self.step().filter(|step| step.number == number);
        step.map(|step| step.idle).unwrap_or_default()
    }

    /// The action of the node, if it is in flight.
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

    /// The hooks being asked.
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

    /// The items of the node in hand, those included that an earlier attempt left.
    pub fn items(&self) -> Option<&Items> {
        match self {
            Self::Between { left, .. } => left.as_ref()?.items.as_ref(),
            Self::Step(step) | Self::Failed { step, .. } | Self::Backoff { step, .. } => {
                step.items()
            }
            Self::New | Self::Ending { .. } => None,
        }
    }

    /// The child run that carries out, or last carried out, the action of the node in hand.
    pub fn child(&self) -> Option<&RunId> {
        match self {
            Self::Between { left, .. } => left.as_ref()?.child.as_ref(),
            Self::Step(step) | Self::Failed { step, .. } | Self::Backoff { step, .. } => {
                step.child.as_ref()
            }
            Self::New | Self::Ending { .. } => None,
        }
    }

    /// What is left of the node in hand, should the run end here.
    pub(crate) fn left(&self) -> UnfinishedWork {
        let unknown = match self {
            Self::Between { left, .. } => left.as_ref().is_some_and(|left| left.unknown),
            Self::Step(Step { work, .. }) => {
                matches!(work, StepWork::Action(attempt) if attempt.is_unknown())
            }
            // Of a foreach node each item says it.
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
    /// What is not known of it, of the node of that name, whose `action` was cut off, if there is one.
    fn unknown_at(&self, node: &str, action: Option<&Attempt>) -> Vec<Unknown> {
        let whole = Unknown {
            name: attempt_name(node, Slot::Main),
            once: self.unknown,
            child: self.child.clone(),
            cut_off: action.map(Attempt::mark),
        };
        let items = self.items.iter().flat_map(|items| {
            let unfinished = items.unfinished();
            unfinished.map(|(item, once, child)| Unknown {
                name: items.name(node, Slot::Part(item)),
                once,
                child: child.cloned(),
                cut_off: items.running.get(&item).map(Attempt::mark),
            })
        });
        std::iter::once(whole)
            .chain(items)
            .filter(|unknown| unknown.once || unknown.child.is_some())
            .collect()
    }

    /// The same as another try takes it over: the caller who asks for one has answered for what is unknown.
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
    /// Milliseconds that it took up to `now`, without those in which its run was suspended.
    pub fn elapsed_ms(&self, now: Timestamp) -> u64 {
        now.ms_since(self.now).saturating_sub(self.idle.until(now))
    }

    /// Its items, if it has any.
    pub const fn items(&self) -> Option<&Items> {
        match &self.work {
            StepWork::Items(items) | StepWork::NeverStarted(Some(items)) => Some(items),
            StepWork::Action(_) | StepWork::NeverStarted(None) | StepWork::Waits(_) => None,
        }
    }

    /// Whether somebody declared the attempt of its action done.
    pub fn is_declared(&self) -> bool {
        match &self.work {
            StepWork::Action(attempt) => attempt.verdict == Some(Verdict::Done),
            StepWork::NeverStarted(_) | StepWork::Items(_) | StepWork::Waits(_) => false,
        }
    }

    /// What a second execution of its action would mean, as the attempt on record says.
    pub const fn effect(&self) -> Option<Effect> {
        match &self.work {
            StepWork::Action(attempt) => Some(attempt.effect),
            StepWork::NeverStarted(_) | StepWork::Items(_) | StepWork::Waits(_) => None,
        }
    }
}

impl GraphState {
    /// Where the walk stands, or stood before its end.
    pub fn stood(&self) -> &At {
        match &self.at {
            At::Ending { stood, .. } => stood,
            At::New | At::Between { .. } | At::Step(_) | At::Failed { .. } | At::Backoff { .. } => {
                &self.at
            }
        }
    }

    /// Attempts in flight: the action of the node, items, the action of a hook.
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

    /// What this record does not know of the node in hand, or of that at which the run ended: the action, items, and hooks that
    /// child runs carried out.
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

    /// The same of the nodes that repairs repeat.
    pub fn unknown_of_repairs(&self) -> Vec<Unknown> {
        let failed = self.unrepaired.iter();
        failed
            .flat_map(|failed| failed.left.unknown_at(&failed.node, None))
            .collect()
    }

    /// What a run takes over that repairs one which ended in this state, and the node with which it ends: that is the one with which
    /// this one ended. The visits that failed are taken again, under the same keys. `None` if nothing failed.
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

    /// What is repeated next by a run that repairs what failed up to the step `base`, behind the node `behind`.
    pub fn next_repair(&self, base: u32, behind: Option<&str>) -> Option<&Unrepaired> {
        let mut failed = self.unrepaired.iter();
        let next = failed.find(|failed| failed.step <= base && Some(&*failed.node) != behind);
        next.map(|failed| &**failed)
    }

    /// What a run takes over that continues one which ended in this state: the state without its place, and what was left of
    /// the node at which it ended.
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
