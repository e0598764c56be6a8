//! Limits of a run that are raised when it is resumed.
//!
//! **Owns** which limits can be, for which kind of run, and what a new one has to be. **Never** changes a record: the event that
//! resumes the run does. The limit of money is none of these: it belongs to the account.

use serde::{Deserialize, Serialize};

use super::{Limits, Run, RunKind, SuspendReason};

/// New limits of a run, each absolute, in the place of the one that it has.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Raised {
    /// Most steps of a graph run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_steps: Option<u32>,
    /// Most turns of a thread.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_turns: Option<u32>,
    /// Most tokens of its turns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_tokens: Option<u64>,
    /// Longest time in its turns, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_duration_ms: Option<u64>,
}

/// A limit that can be raised.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Raisable {
    /// Steps of a graph run.
    Steps,
    /// Turns of a thread.
    Turns,
    /// Tokens of its turns.
    Tokens,
    /// Time in its turns, in milliseconds.
    Duration,
}

/// Why a run is not resumed with the limits that it would have.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unraised {
    /// Runs of its kind have no such limit.
    #[error(
        "it is a {} run, which has no limit of `{}`; {}",
        kind.as_str(),
        limit.key(),
        instead(*kind)
    )]
    NoSuch {
        /// The kind.
        kind: RunKind,
        /// The limit.
        limit: Raisable,
    },
    /// It would stop where it stands.
    #[error(
        "{}, so with a limit of {} it could not continue; raise it to more than {}",
        limit.taken(*used),
        limit.amount(*max),
        limit.amount(*least)
    )]
    TooLow {
        /// The limit.
        limit: Raisable,
        /// What is used of it.
        used: u64,
        /// What it would be.
        max: u64,
        /// What it has to be more than.
        least: u64,
    },
}

impl Raisable {
    /// Every one of them.
    pub const ALL: [Self; 4] = [Self::Steps, Self::Turns, Self::Tokens, Self::Duration];

    /// The word by which it is raised.
    pub const fn key(self) -> &'static str {
        match self {
            Self::Steps => "steps",
            Self::Turns => "turns",
            Self::Tokens => "tokens",
            Self::Duration => "duration",
        }
    }

    /// The code of a run that is suspended at it.
    pub const fn code(self) -> &'static str {
        match self {
            Self::Steps => "max_steps_exceeded",
            Self::Turns => "turns_exceeded",
            Self::Tokens => "tokens_exceeded",
            Self::Duration => "duration_exceeded",
        }
    }

    fn taken(self, used: u64) -> String {
        match self {
            Self::Steps => format!("it has taken {used} steps"),
            Self::Turns => format!("it has taken {used} turns"),
            Self::Tokens => format!("it has used {used} tokens"),
            Self::Duration => format!("its turns have taken {}", self.amount(used)),
        }
    }

    fn amount(self, amount: u64) -> String {
        match self {
            Self::Steps | Self::Turns | Self::Tokens => amount.to_string(),
            Self::Duration => format!("{amount} ms"),
        }
    }
}

/// What can be raised of a run of that kind.
const fn instead(kind: RunKind) -> &'static str {
    match kind {
        RunKind::Graph => "raise `steps` or `spend`",
        RunKind::Thread => "raise `turns`, `tokens`, `duration` or `spend`",
        RunKind::Tool => "only `spend` can be raised",
    }
}

impl Raised {
    /// The new limits of steps and of turns among `limits`.
    pub const fn of(limits: &Limits) -> Self {
        Self {
            max_steps: limits.steps,
            max_turns: limits.turns,
            max_tokens: limits.tokens,
            max_duration_ms: limits.duration_ms,
        }
    }

    fn get(&self, limit: Raisable) -> Option<u64> {
        match limit {
            Raisable::Steps => self.max_steps.map(u64::from),
            Raisable::Turns => self.max_turns.map(u64::from),
            Raisable::Tokens => self.max_tokens,
            Raisable::Duration => self.max_duration_ms,
        }
    }
}

impl Run {
    /// Whether it may be resumed with these limits: each is one that runs of its kind have, and leaves room beyond what is used; and
    /// a thread that stands at a limit gets a higher one.
    pub fn check_raise(&self, raised: &Raised) -> Result<(), Unraised> {
        for limit in Raisable::ALL {
            let given = raised.get(limit);
            let Some(used) = self.used(limit) else {
                let kind = self.spec.kind;
                match given {
                    Some(_) => return Err(Unraised::NoSuch { kind, limit }),
                    None => continue,
                }
            };
            let standing = self.stands_at(limit);
            let least = standing.map_or(used, |max| used.max(max));
            match given.or(standing) {
                Some(max) if max <= least => {
                    return Err(Unraised::TooLow {
                        limit,
                        used,
                        max,
                        least,
                    });
                }
                Some(_) | None => {}
            }
        }
        Ok(())
    }

    /// What is used of a limit; `None` if runs of its kind have no such limit.
    fn used(&self, limit: Raisable) -> Option<u64> {
        match (self.spec.kind, limit) {
            (RunKind::Graph, Raisable::Steps) => Some(self.steps().into()),
            (RunKind::Thread, _) => self.thread()?.used.of(limit),
            (RunKind::Graph | RunKind::Tool, _) => None,
        }
    }

    /// The limit in force, if it keeps a suspended thread from its next turn. Whether it keeps a graph run from its next step is for
    /// its hooks to say.
    fn stands_at(&self, limit: Raisable) -> Option<u64> {
        let (why, thread) = (self.suspension()?, self.thread()?);
        let max = thread.limits.get(limit)?;
        let is_why =
            why.reason == SuspendReason::Limit && why.code.as_deref() == Some(limit.code());
        (is_why || thread.is_at(limit)).then_some(max)
    }
}
