//! The limits of a run, and those that are raised when it is resumed.
//!
//! The limit of money is none of these: it belongs to the account.

use serde::{Deserialize, Serialize};

use crate::money::Usd;

/// Limits of one run; `None` means the default of the graph or the daemon.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// Most steps a graph run may take.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub steps: Option<u32>,
    /// How many levels of child runs it may have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub depth: Option<u32>,
    /// How many child runs its chain may start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spawns: Option<u32>,
    /// How many turns a thread may take.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turns: Option<u32>,
    /// How many tokens the turns of a thread may use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens: Option<u64>,
    /// How long the turns of a thread may take together, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration_ms: Option<u64>,
    /// The most it may spend, itself and all below it. What is in force is the limit of its account.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spend: Option<Usd>,
}

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

    pub(super) fn taken(self, used: u64) -> String {
        match self {
            Self::Steps => format!("it has taken {used} steps"),
            Self::Turns => format!("it has taken {used} turns"),
            Self::Tokens => format!("it has used {used} tokens"),
            Self::Duration => format!("its turns have taken {}", self.amount(used)),
            Self::Spawns => format!("it has started {used} child runs"),
            Self::Depth => format!("it may have {used} levels of child runs already"),
        }
    }

    pub(super) fn amount(self, amount: u64) -> String {
        match self {
            Self::Steps | Self::Turns | Self::Tokens | Self::Spawns | Self::Depth => {
                amount.to_string()
            }
            Self::Duration => format!("{amount} ms"),
        }
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

    pub(super) fn get(&self, limit: Raisable) -> Option<u64> {
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
/// Whether a count is left out of what is stored.
#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde asks for this form"
)]
pub(super) const fn is_zero(number: &u32) -> bool {
    *number == 0
}
