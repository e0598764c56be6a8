//! Limits of a run that are raised when it is resumed.
//!
//! **Owns** which limits can be, for which kind of run, and what a new one has to be. **Never** changes a record: the event that
//! resumes the run does. The limit of money is none of these: it belongs to the account.

use serde::{Deserialize, Serialize};

use super::{Life, Limits, Run, RunKind, SuspendReason};

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
    /// Most child runs that it starts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_spawns: Option<u32>,
    /// Most levels of child runs below it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_depth: Option<u32>,
}

/// The limits in force of the child runs of a run: those that it began with, and those that it got when it was resumed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Below {
    /// Most that it starts, those of the runs that it continues included.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spawns: Option<u32>,
    /// Most levels of them; a run that nobody limited has [`MOST_DEPTH`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub depth: Option<u32>,
}

/// Levels of child runs of a run that nobody limited.
pub const MOST_DEPTH: u32 = 10;

impl Below {
    /// Those that a run begins with.
    pub(super) const fn of(limits: &Limits) -> Self {
        Self {
            spawns: limits.spawns,
            depth: limits.depth,
        }
    }

    /// Whether nobody limited them.
    pub(super) const fn is_unlimited(&self) -> bool {
        self.spawns.is_none() && self.depth.is_none()
    }

    /// How many levels of child runs there may be.
    pub fn levels(&self) -> u32 {
        self.depth.unwrap_or(MOST_DEPTH)
    }

    pub(super) fn raise(&mut self, raised: &Raised) {
        self.spawns = raised.max_spawns.or(self.spawns);
        self.depth = raised.max_depth.or(self.depth);
    }
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
    /// Child runs.
    Spawns,
    /// Levels of child runs.
    Depth,
}

/// The limit that is proposed where `used` of `max` leaves nothing: twice the larger of both, and never none.
pub fn proposed(used: u64, max: u64) -> u64 {
    used.max(max).saturating_mul(2).max(1)
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
    pub const ALL: [Self; 6] = [
        Self::Steps,
        Self::Turns,
        Self::Tokens,
        Self::Duration,
        Self::Spawns,
        Self::Depth,
    ];

    /// The key by which it is raised.
    pub const fn key(self) -> &'static str {
        match self {
            Self::Steps => "steps",
            Self::Turns => "turns",
            Self::Tokens => "tokens",
            Self::Duration => "duration",
            Self::Spawns => "spawns",
            Self::Depth => "depth",
        }
    }

    /// The code of a run that is suspended at it, or of a call that is refused for it.
    pub const fn code(self) -> &'static str {
        match self {
            Self::Steps => "max_steps_exceeded",
            Self::Turns => "turns_exceeded",
            Self::Tokens => "tokens_exceeded",
            Self::Duration => "duration_exceeded",
            Self::Spawns => "spawns_exceeded",
            Self::Depth => "depth_exceeded",
        }
    }

    fn taken(self, used: u64) -> String {
        match self {
            Self::Steps => format!("it has taken {used} steps"),
            Self::Turns => format!("it has taken {used} turns"),
            Self::Tokens => format!("it has used {used} tokens"),
            Self::Duration => format!("its turns have taken {}", self.amount(used)),
            Self::Spawns => format!("it has started {used} child runs"),
            Self::Depth => format!("it may have {used} levels of child runs already"),
        }
    }

    fn amount(self, amount: u64) -> String {
        match self {
            Self::Steps | Self::Turns | Self::Tokens | Self::Spawns | Self::Depth => {
                amount.to_string()
            }
            Self::Duration => format!("{amount} ms"),
        }
    }
}

/// What can be raised of a run of that kind.
const fn instead(kind: RunKind) -> &'static str {
    match kind {
        RunKind::Graph => "raise `steps`, `spawns`, `depth` or `spend`",
        RunKind::Thread => "raise `turns`, `tokens`, `duration`, `spawns`, `depth` or `spend`",
        RunKind::Tool => "only `spend` can be raised",
    }
}

impl Raised {
    /// `limits`, as those that a run gets when it is resumed; that of money is its account's.
    pub const fn of(limits: &Limits) -> Self {
        Self {
            max_steps: limits.steps,
            max_turns: limits.turns,
            max_tokens: limits.tokens,
            max_duration_ms: limits.duration_ms,
            max_spawns: limits.spawns,
            max_depth: limits.depth,
        }
    }

    fn get(&self, limit: Raisable) -> Option<u64> {
        match limit {
            Raisable::Steps => self.max_steps.map(u64::from),
            Raisable::Turns => self.max_turns.map(u64::from),
            Raisable::Tokens => self.max_tokens,
            Raisable::Duration => self.max_duration_ms,
            Raisable::Spawns => self.max_spawns.map(u64::from),
            Raisable::Depth => self.max_depth.map(u64::from),
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
                let kind = self.spec.kind();
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
        match (self.spec.kind(), limit) {
            (RunKind::Graph | RunKind::Thread, Raisable::Spawns) => {
                self.below.spawns.map(|_limited| self.spawn_count.into())
            }
            (RunKind::Graph | RunKind::Thread, Raisable::Depth) => Some(self.below.levels().into()),
            (RunKind::Graph, Raisable::Steps) => Some(self.steps().into()),
            (RunKind::Thread, _) => self.thread()?.used.of(limit),
            (RunKind::Graph | RunKind::Tool, _) => None,
        }
    }

    /// The limit in force, if it keeps a thread that is suspended or has ended from its next turn. Whether it keeps a graph run from
    /// its next step is for its hooks to say.
    fn stands_at(&self, limit: Raisable) -> Option<u64> {
        let thread = self.thread()?;
        let max = thread.limits.get(limit)?;
        let is_why = match &self.life {
            Life::Created | Life::Running => return None,
            Life::Suspended(why) => {
                why.reason == SuspendReason::Limit && why.code.as_deref() == Some(limit.code())
            }
            Life::Ended(_) => self
                .failure()
                .is_some_and(|failure| failure.code == limit.code()),
        };
        (is_why || thread.is_at(limit)).then_some(max)
    }
}
