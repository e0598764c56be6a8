//! Isolation of the processes of an attempt from the rest of the host.

use serde::{Deserialize, Serialize};

/// A level includes what the levels before it restrict.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "lowercase")]
pub enum Isolation {
    /// Nothing is restricted, so that `sudo` works.
    None,
    /// No new privileges, and no signals to others.
    #[default]
    Scoped,
    /// A file system of its own, of which only the project can be written.
    Sandbox,
    /// The user id of the caller. No daemon has it yet.
    User,
}

impl Isolation {
    /// Every level, the weakest first.
    pub const ALL: [Self; 4] = [Self::None, Self::Scoped, Self::Sandbox, Self::User];

    /// The word that people write.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Scoped => "scoped",
            Self::Sandbox => "sandbox",
            Self::User => "user",
        }
    }

    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|level| level.as_str() == word)
    }

    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }
}
