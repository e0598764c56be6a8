//! The limits of a run, and the limits that are raised when it is resumed.
//!
//! The spending limit is not one of these: it belongs to the account.

use serde::{Deserialize, Serialize};

use crate::money::Usd;

/// Limits of one run; `None` means the default of the graph or the daemon.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// Steps of a graph run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub steps: Option<u32>,
    /// Levels of child runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub depth: Option<u32>,
    /// Child runs of its chain.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spawns: Option<u32>,
    /// Turns of a thread.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turns: Option<u32>,
    /// Tokens of the turns of a thread.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens: Option<u64>,
    /// Total time of the turns of a thread, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration_ms: Option<u64>,
    /// Spending of the run and all runs below it. The limit in force is that of its account.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spend: Option<Usd>,
}

/// New limits of a run. Each is absolute and replaces the present one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Raised {
    /// Steps of a graph run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_steps: Option<u32>,
    /// Turns of a thread.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_turns: Option<u32>,
    /// Tokens of its turns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_tokens: Option<u64>,
    /// Total time of its turns, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_duration_ms: Option<u64>,
    /// Child runs that it starts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_spawns: Option<u32>,
    /// Levels of child runs below it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_depth: Option<u32>,
}

/// The limits in force of the child runs of a run: those at its start, or those set when it was resumed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Below {
    /// Number of child runs, those of the runs that it continues included.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spawns: Option<u32>,
    /// Number of levels; [`MOST_DEPTH`] without a limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub depth: Option<u32>,
}

/// Levels of child runs of a run without a limit.
pub const MOST_DEPTH: u32 = 10;

impl Below {
    /// Returns the limits at the start of a run.
    pub(super) const fn of(limits: &Limits) -> Self {
        Self {
            spawns: limits.spawns,
            depth: limits.depth,
        }
    }

    pub(super) const fn is_unlimited(&self) -> bool {
        self.spawns.is_none() && self.depth.is_none()
    }

    /// Returns the highest number of levels of child runs.
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
    Steps,
    Turns,
    Tokens,
    /// Time of its turns, in milliseconds.
    Duration,
    Spawns,
    Depth,
}

/// Returns the proposed limit where `used` of `max` leaves nothing: twice the larger of both, and never 0.
pub fn proposed(used: u64, max: u64) -> u64 {
    used.max(max).saturating_mul(2).max(1)
}

impl Raisable {
    pub const ALL: [Self; 6] = [
        Self::Steps,
        Self::Turns,
        Self::Tokens,
        Self::Duration,
        Self::Spawns,
        Self::Depth,
    ];

    /// Returns the key by which it is raised.
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

    /// Returns the code of a run that is suspended at it, or of a call that is refused because of it.
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
    /// Returns the limits that a resumed run can get from `limits`; the spending limit belongs to its account.
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
/// True if a count is left out of the stored form.
pub(super) fn is_zero<T: Default + PartialEq>(number: &T) -> bool {
    *number == T::default()
}
