//! The phases of a run and the only transition between them.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::{Effect, Event, GraphEvent, InFlight, Outcome, RunEvent, Slot, Suspension};
use crate::clock::Timestamp;
use crate::error::{ErrorKind, Kinded};

/// Where a running run stands.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "activity", rename_all = "snake_case")]
pub enum Activity {
    /// Owned by a task that has not begun its work.
    Idle,
    /// Before a node.
    Before {
        /// The node attempted next.
        node: String,
    },
    /// A step is in flight: its action, or items of a foreach node.
    InStep(StepInFlight),
    /// An attempt of the step failed; what follows is not decided yet.
    Failed(StepInFlight),
    /// The failed step is tried again, but not yet.
    Waiting {
        /// The step, as it failed.
        step: StepInFlight,
        /// Not before.
        due: Timestamp,
    },
    /// The last node is done; only the terminal event is missing.
    Leaving,
    /// The walk is over and hooks are asked about it.
    Ending {
        /// What the run comes to.
        outcome: Box<Outcome>,
    },
}

/// A step, or a tool call, that has started and not ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepInFlight {
    /// Number of the step, from 1.
    pub step: u32,
    /// The node; the item id for a tool run.
    pub node: String,
    /// How often this node was entered before, in this run.
    pub visit: u32,
    /// `_now` of the step: the same in every try.
    pub now: Timestamp,
    /// The attempt of its action; for a foreach node that of the node as a whole.
    #[serde(flatten)]
    pub work: InFlight,
}

/// The life of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "phase", rename_all = "snake_case")]
pub enum Phase {
    /// Accepted and durable, not started.
    Created,
    /// Owned by a task of this daemon.
    Running {
        /// Where it stands.
        at: Activity,
    },
    /// Parked; goes on from `at` under the same id.
    Suspended {
        /// Why.
        why: Suspension,
        /// Where it stands.
        at: Activity,
    },
    /// Over. An ended run is never relabelled.
    Ended {
        /// What it came to.
        outcome: Outcome,
    },
}

/// The word for a phase, as users see it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// Accepted, not started.
    Created,
    /// Owned by a task.
    Running,
    /// Parked.
    Suspended,
    /// Ended well.
    Completed,
    /// Ended well, errors were suppressed.
    CompletedWithErrors,
    /// Failed.
    Error,
    /// Stopped on request.
    Cancelled,
    /// Ended by force.
    Killed,
}

impl Status {
    /// Every status, in the order of a life.
    pub const ALL: [Self; 8] = [
        Self::Created,
        Self::Running,
        Self::Suspended,
        Self::Completed,
        Self::CompletedWithErrors,
        Self::Error,
        Self::Cancelled,
        Self::Killed,
    ];

    /// The word used on the wire, in files and in `--json`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Created => "created",
            Self::Running => "running",
            Self::Suspended => "suspended",
            Self::Completed => "completed",
            Self::CompletedWithErrors => "completed_with_errors",
            Self::Error => "error",
            Self::Cancelled => "cancelled",
            Self::Killed => "killed",
        }
    }

    /// Whether nothing can follow.
    pub const fn is_terminal(self) -> bool {
        match self {
            Self::Created | Self::Running | Self::Suspended => false,
            Self::Completed
            | Self::CompletedWithErrors
            | Self::Error
            | Self::Cancelled
            | Self::Killed => true,
        }
    }

    /// Whether it has ended as it should, errors that the graph went past included.
    pub const fn is_success(self) -> bool {
        match self {
            Self::Completed | Self::CompletedWithErrors => true,
            Self::Created
            | Self::Running
            | Self::Suspended
            | Self::Error
            | Self::Cancelled
            | Self::Killed => false,
        }
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// An event that the run's phase does not allow: a bug in whoever committed it, or a task that lost its run.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a run that is {phase} cannot take the event `{event}`")]
pub struct Illegal {
    /// The phase, with its activity.
    pub phase: String,
    /// The event's type.
    pub event: &'static str,
}

impl Kinded for Illegal {
    fn kind(&self) -> ErrorKind {
        ErrorKind::Precondition
    }
}

impl Phase {
    /// The status users see.
    pub const fn status(&self) -> Status {
        match self {
            Self::Created => Status::Created,
            Self::Running { .. } => Status::Running,
            Self::Suspended { .. } => Status::Suspended,
            Self::Ended { outcome } => outcome.status(),
        }
    }

    /// Where a live run stands; `None` before its first start and after its end.
    pub const fn activity(&self) -> Option<&Activity> {
        match self {
            Self::Running { at } | Self::Suspended { at, .. } => Some(at),
            Self::Created | Self::Ended { .. } => None,
        }
    }

    /// The only transition.
    pub fn next(&self, event: &Event) -> Result<Self, Illegal> {
        let illegal = || Illegal {
            phase: self.describe(),
            event: event.name(),
        };
        if let Some(outcome) = event.outcome() {
            return match self {
                Self::Ended { .. } => Err(illegal()),
                Self::Created | Self::Running { .. } | Self::Suspended { .. } => {
                    Ok(Self::Ended { outcome })
                }
            };
        }
        match (self, event) {
            (Self::Created, Event::Run(RunEvent::RunStarted { .. })) => {
                Ok(Self::Running { at: Activity::Idle })
            }
            (Self::Running { at }, Event::Run(RunEvent::RunStarted { .. }))
            | (Self::Suspended { at, .. }, Event::Run(RunEvent::RunResumed { .. })) => {
                Ok(Self::Running { at: at.clone() })
            }
            // Only of a parked run is it said what became of its attempts: those of a running one may still end.
            (Self::Running { .. }, Event::Run(RunEvent::UncertainAnswered { .. })) => {
                Err(illegal())
            }
            (Self::Suspended { why, at }, Event::Run(RunEvent::UncertainAnswered { .. })) => at
                .next(event)
                .ok_or_else(illegal)
                .map(|at| Self::Suspended {
                    why: why.clone(),
                    at,
                }),
            (Self::Running { at }, Event::Run(RunEvent::RunSuspended(why))) => {
                Ok(Self::Suspended {
                    why: why.clone(),
                    at: at.clone(),
                })
            }
            (Self::Created, Event::Run(RunEvent::RunSuspended(why))) => Ok(Self::Suspended {
                why: why.clone(),
                at: Activity::Idle,
            }),
            (
                Self::Created | Self::Running { .. } | Self::Suspended { .. },
                Event::Run(RunEvent::CancelRequested { .. }),
            ) => Ok(self.clone()),
            (Self::Running { at: here }, _) => here
                .next(event)
                .map(|at| Self::Running { at })
                .ok_or_else(illegal),
            (Self::Created | Self::Suspended { .. } | Self::Ended { .. }, _) => Err(illegal()),
        }
    }

    fn describe(&self) -> String {
        match self {
            Self::Running {
                at: Activity::Before { node },
            } => format!("running before `{node}`"),
            Self::Running {
                at: Activity::InStep(step),
            } => format!("running step {} (`{}`)", step.step, step.node),
            Self::Running {
                at: Activity::Failed(step) | Activity::Waiting { step, .. },
            } => format!(
                "behind a failed try of step {} (`{}`)",
                step.step, step.node
            ),
            Self::Running {
                at: Activity::Ending { .. },
            } => "ending".to_owned(),
            Self::Running {
                at: Activity::Idle | Activity::Leaving,
            }
            | Self::Created
            | Self::Suspended { .. }
            | Self::Ended { .. } => self.status().to_string(),
        }
    }
}

impl Activity {
    /// The node it stands at, if it stands at one.
    pub fn node(&self) -> Option<&str> {
        match self {
            Self::Before { node } => Some(node),
            Self::InStep(step) | Self::Failed(step) | Self::Waiting { step, .. } => {
                Some(&step.node)
            }
            Self::Idle | Self::Leaving | Self::Ending { .. } => None,
        }
    }

    /// The step it stands in, in flight or failed.
    pub fn step(&self) -> Option<&StepInFlight> {
        match self {
            Self::InStep(step) | Self::Failed(step) | Self::Waiting { step, .. } => Some(step),
            Self::Idle | Self::Before { .. } | Self::Leaving | Self::Ending { .. } => None,
        }
    }

    /// Where `event` leads from here; `None` if it cannot happen here.
    fn next(&self, event: &Event) -> Option<Self> {
        self.next_of_step(event)
            .or_else(|| self.next_of_graph(event))
    }

    /// The same, for what happens to a step.
    #[expect(clippy::too_many_lines, reason = "one row for each event of a step")]
    fn next_of_step(&self, event: &Event) -> Option<Self> {
        match (self, event) {
            (Self::Idle | Self::Before { .. }, Event::Run(RunEvent::StepStarted { node, .. }))
                if self.is_before(node) =>
            {
                StepInFlight::begun_by(event).map(Self::InStep)
            }
            (Self::InStep(running), Event::Run(RunEvent::StepStarted { .. }))
            | (Self::Waiting { step: running, .. }, Event::Run(RunEvent::StepStarted { .. })) => {
                StepInFlight::begun_by(event)
                    .filter(|again| running.is_retried_by(again))
                    .map(Self::InStep)
            }
            (
                Self::InStep(running),
                Event::Run(RunEvent::ProcessStarted {
                    step,
                    slot,
                    process,
                }),
            ) if running.step == *step && slot.is_action() => {
                let mut running = running.clone();
                running.work.process = Some(process.clone());
                Some(Self::InStep(running))
            }
            (
                Self::InStep(running),
                Event::Run(RunEvent::UncertainAnswered {
                    step,
                    slot,
                    verdict,
                    ..
                }),
            ) if running.step == *step && slot.is_action() => {
                let mut running = running.clone();
                running.work.verdict = Some(*verdict);
                Some(Self::InStep(running))
            }
            (Self::Before { node: here }, Event::Graph(GraphEvent::StepFailed { node, .. }))
                if here == node =>
            {
                StepInFlight::failed_by(event).map(Self::Failed)
            }
            (
                Self::InStep(running) | Self::Waiting { step: running, .. },
                Event::Graph(GraphEvent::StepFailed { step, node, .. }),
            ) if (running.step, &running.node) == (*step, node) => {
                Some(Self::Failed(running.clone()))
            }
            (Self::Failed(step), Event::Graph(GraphEvent::RetryScheduled { node, due, .. }))
                if step.node == *node =>
            {
                Some(Self::Waiting {
                    step: step.clone(),
                    due: *due,
                })
            }
            (
                _,
                Event::Graph(GraphEvent::StepCompleted {
                    step,
                    node,
                    next_node,
                    ..
                }),
            ) if self.node() == Some(node) && self.step().is_none_or(|at| at.step == *step) => {
                Some(
                    next_node
                        .as_ref()
                        .map_or(Self::Leaving, |node| Self::Before { node: node.clone() }),
                )
            }
            (
                Self::Idle
                | Self::Before { .. }
                | Self::InStep(_)
                | Self::Failed(_)
                | Self::Waiting { .. }
                | Self::Leaving
                | Self::Ending { .. },
                _,
            ) => None,
        }
    }

    /// The same, for what happens between steps, and to items and hooks.
    fn next_of_graph(&self, event: &Event) -> Option<Self> {
        match (self, event) {
            (Self::Idle, Event::Graph(GraphEvent::GraphStarted { start_node, .. })) => {
                Some(Self::Before {
                    node: start_node.clone(),
                })
            }
            (
                Self::InStep(running),
                Event::Graph(
                    GraphEvent::ItemStarted { step, node, .. }
                    | GraphEvent::ItemCompleted { step, node, .. }
                    | GraphEvent::ForeachCompleted { step, node, .. },
                ),
            ) if (running.step, &running.node) == (*step, node) => Some(self.clone()),
            (Self::Ending { .. }, Event::Graph(GraphEvent::GraphEnding { .. })) => None,
            (_, Event::Graph(GraphEvent::GraphEnding { outcome })) => Some(Self::Ending {
                outcome: Box::new(outcome.clone()),
            }),
            (
                _,
                Event::Run(
                    RunEvent::HooksBegun { .. }
                    | RunEvent::HookStarted { .. }
                    | RunEvent::HookCompleted { .. },
                ),
            ) if self.asks_hooks() => Some(self.clone()),
            (Self::Before { .. }, Event::Graph(GraphEvent::LimitExtended { .. }))
            | (_, Event::Run(RunEvent::Emitted { .. } | RunEvent::Warning { .. })) => {
                Some(self.clone())
            }
            (
                _,
                Event::Run(
                    RunEvent::ProcessStarted { slot, .. }
                    | RunEvent::UncertainAnswered { slot, .. },
                ),
            ) if self.is_site_of(*slot) => Some(self.clone()),
            (
                Self::Idle
                | Self::Before { .. }
                | Self::InStep(_)
                | Self::Failed(_)
                | Self::Waiting { .. }
                | Self::Leaving
                | Self::Ending { .. },
                _,
            ) => None,
        }
    }

    /// Whether hooks are asked here: between two nodes, behind a failure, and at the end.
    const fn asks_hooks(&self) -> bool {
        match self {
            Self::Before { .. } | Self::Failed(_) | Self::Leaving | Self::Ending { .. } => true,
            Self::Idle | Self::InStep(_) | Self::Waiting { .. } => false,
        }
    }

    /// Whether attempts of an item or a hook are made here; that of an action is part of the activity itself.
    const fn is_site_of(&self, slot: Slot) -> bool {
        match slot {
            Slot::Action => false,
            Slot::Item(_) => matches!(self, Self::InStep(_)),
            Slot::Hook(_) => self.asks_hooks(),
        }
    }

    /// Whether `node` may start here: a tool run's one call starts from idle.
    fn is_before(&self, node: &str) -> bool {
        match self {
            Self::Idle => true,
            Self::Before { node: here } => here == node,
            Self::InStep(_)
            | Self::Failed(_)
            | Self::Waiting { .. }
            | Self::Leaving
            | Self::Ending { .. } => false,
        }
    }
}

impl StepInFlight {
    fn begun_by(event: &Event) -> Option<Self> {
        let Event::Run(RunEvent::StepStarted {
            step,
            node,
            visit,
            attempt,
            effect,
            key,
            now,
            child,
            ..
        }) = event
        else {
            return None;
        };
        Some(Self {
            step: *step,
            node: node.clone(),
            visit: *visit,
            now: *now,
            work: InFlight::new(*attempt, *effect).announced(key, child.as_ref()),
        })
    }

    /// A step that failed before it could start.
    fn failed_by(event: &Event) -> Option<Self> {
        let Event::Graph(GraphEvent::StepFailed {
            step,
            node,
            visit,
            attempt,
            now,
            ..
        }) = event
        else {
            return None;
        };
        Some(Self {
            step: *step,
            node: node.clone(),
            visit: *visit,
            now: *now,
            work: InFlight::new(*attempt, Effect::default()),
        })
    }

    /// The same step, tried once more, with what a second run of it would mean.
    #[must_use]
    pub fn again(&self, effect: Effect) -> Self {
        Self {
            work: InFlight::new(self.work.attempt + 1, effect),
            ..self.clone()
        }
    }

    fn is_retried_by(&self, again: &Self) -> bool {
        (again.step, again.node.as_str(), again.work.attempt)
            == (self.step, self.node.as_str(), self.work.attempt + 1)
    }
}
