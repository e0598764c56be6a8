//! The closed vocabulary of facts about a run.
//!
//! One enum for what every kind of run knows, one for each kind. **Owns** their names and their facets: what everybody beside
//! the model asks of an event. Adding an event touches its enum, its facets and its transition.

mod facets;
mod graph;
mod run;
mod thread;
mod tool;

use std::io::{self, Read as _};

use serde::Serialize;
use serde::de::DeserializeOwned;
use strum::VariantNames;

use super::failure::Failure;
use super::life::Outcome;
use crate::ledger::{AccountId, Operation};

pub use self::facets::{Facets, Syncing, While};
pub use self::graph::GraphEvent;
pub use self::run::RunEvent;
pub use self::thread::{Reason, Started, ThreadEvent};
pub use self::tool::ToolEvent;

/// A fact about a run. Its serialised form is the `event_type` and `payload` of the log, the transcript and the
/// event stream alike; names are unique over all kinds.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Event {
    /// What happens to runs of every kind.
    Run(RunEvent),
    /// What happens to graph runs.
    Graph(GraphEvent),
    /// What happens to threads.
    Thread(ThreadEvent),
    /// What happens to tool runs.
    Tool(ToolEvent),
}

impl From<RunEvent> for Event {
    fn from(event: RunEvent) -> Self {
        Self::Run(event)
    }
}

impl From<GraphEvent> for Event {
    fn from(event: GraphEvent) -> Self {
        Self::Graph(event)
    }
}

impl From<ThreadEvent> for Event {
    fn from(event: ThreadEvent) -> Self {
        Self::Thread(event)
    }
}

impl From<ToolEvent> for Event {
    fn from(event: ToolEvent) -> Self {
        Self::Tool(event)
    }
}

/// Why a name and a payload are no event.
#[derive(Debug, thiserror::Error)]
pub enum Unreadable {
    /// No event has this name.
    #[error("`{name}` is no event this version knows")]
    Name {
        /// The name.
        name: String,
    },
    /// The payload is not that of the event.
    #[error("the payload of `{name}` cannot be read")]
    Payload {
        /// The event's name.
        name: String,
        /// Where it differs.
        #[source]
        source: serde_json::Error,
    },
}

impl Event {
    /// The name of this event in logs, transcripts and streams.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Run(event) => event.into(),
            Self::Graph(event) => event.into(),
            Self::Thread(event) => event.into(),
            Self::Tool(event) => event.into(),
        }
    }

    /// Every name that [`Event::name`] gives.
    pub fn names() -> impl Iterator<Item = &'static str> {
        let kinds = [
            RunEvent::VARIANTS,
            GraphEvent::VARIANTS,
            ThreadEvent::VARIANTS,
            ToolEvent::VARIANTS,
        ];
        kinds.into_iter().flatten().copied()
    }

    /// The event of that name and payload, which is JSON text.
    pub fn read(name: &str, payload: &str) -> Result<Self, Unreadable> {
        Self::of(name, payload)
    }

    /// The same of a payload that may be long: no more of it is in memory than what is made of it.
    pub fn read_from(name: &str, payload: impl io::Read) -> Result<Self, Unreadable> {
        Self::of(name, Streamed(payload))
    }

    fn of(name: &str, payload: impl Payload) -> Result<Self, Unreadable> {
        let read = if RunEvent::VARIANTS.contains(&name) {
            payload.of(name).map(Self::Run)
        } else if GraphEvent::VARIANTS.contains(&name) {
            payload.of(name).map(Self::Graph)
        } else if ThreadEvent::VARIANTS.contains(&name) {
            payload.of(name).map(Self::Thread)
        } else if ToolEvent::VARIANTS.contains(&name) {
            payload.of(name).map(Self::Tool)
        } else {
            return Err(Unreadable::Name {
                name: name.to_owned(),
            });
        };
        read.map_err(|source| Unreadable::Payload {
            name: name.to_owned(),
            source,
        })
    }

    /// What everybody beside the model asks of it.
    pub const fn facets(&self) -> Facets {
        match self {
            Self::Run(event) => event.facets(),
            Self::Graph(event) => event.facets(),
            Self::Thread(event) => event.facets(),
            Self::Tool(event) => event.facets(),
        }
    }

    /// What it does to an account, if it happens to a run whose account is `own`: the event is the operation, and no money moves
    /// without one. That the end of a run ends its account is no part of this.
    pub fn money<'a>(&'a self, own: &'a AccountId) -> Option<(&'a AccountId, Operation)> {
        match self {
            Self::Run(RunEvent::BudgetHeld {
                call,
                amount,
                meters,
                ..
            }) => {
                let (call, amount, meters) = (*call, *amount, meters.clone());
                let hold = Operation::Hold {
                    call,
                    amount,
                    meters,
                };
                Some((own, hold))
            }
            Self::Run(RunEvent::BudgetSettled {
                call,
                usage,
                estimated,
                ..
            }) => {
                let (call, usage, estimated) = (*call, *usage, *estimated);
                let settle = Operation::Settle {
                    call,
                    usage,
                    estimated,
                };
                Some((own, settle))
            }
            Self::Run(RunEvent::RunCreated(spec)) => {
                Some((&spec.budget.account, spec.budget.operation()))
            }
            Self::Run(RunEvent::BudgetRaised { account, to, .. }) => {
                Some((account, Operation::Raise { to: *to }))
            }
            Self::Run(_) | Self::Graph(_) | Self::Thread(_) | Self::Tool(_) => None,
        }
    }

    /// What the run came to, if this event ends it.
    pub fn outcome(&self) -> Option<Outcome> {
        match self {
            Self::Run(event) => event.outcome(),
            Self::Graph(event) => event.outcome(),
            Self::Thread(event) => event.outcome(),
            Self::Tool(event) => event.outcome(),
        }
    }

    /// True if events of this name end their run, whatever their payload: [`Event::outcome`] of them is never `None`.
    pub fn ends_run(name: &str) -> bool {
        matches!(
            name,
            "run_killed"
                | "graph_completed"
                | "graph_error"
                | "graph_cancelled"
                | "thread_completed"
                | "thread_error"
                | "thread_cancelled"
                | "tool_completed"
                | "tool_cancelled"
        )
    }

    /// The end of a graph run that is accepted and cannot begin, in the commit that creates it.
    pub const fn never_started(error: Failure) -> Self {
        Self::Graph(GraphEvent::GraphError {
            error,
            steps: 0,
            elapsed_ms: 0,
        })
    }
}

/// The JSON of the payload of an event.
trait Payload {
    /// The event `name`, which is one of those of `T`, so that nothing in it has to be escaped.
    fn of<T: DeserializeOwned>(self, name: &str) -> Result<T, serde_json::Error>;
}

/// A payload that is read a piece at a time.
struct Streamed<R>(R);

impl Payload for &str {
    fn of<T: DeserializeOwned>(self, name: &str) -> Result<T, serde_json::Error> {
        serde_json::from_str(&format!(r#"{{"event_type":"{name}","payload":{self}}}"#))
    }
}

impl<R: io::Read> Payload for Streamed<R> {
    fn of<T: DeserializeOwned>(self, name: &str) -> Result<T, serde_json::Error> {
        let before = format!(r#"{{"event_type":"{name}","payload":"#);
        let event = before.as_bytes().chain(self.0).chain(&b"}"[..]);
        serde_json::from_reader(event)
    }
}
