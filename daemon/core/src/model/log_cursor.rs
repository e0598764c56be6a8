//! Positions in the output of a managed process.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// A position in the output of a process: behind all lines of earlier attempts, and behind a line of its attempt.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct LogCursor {
    pub attempt: u32,
    /// Number of bytes of output before it.
    pub position: u64,
}

impl LogCursor {
    /// Position before the first line of the attempt `number`.
    pub const fn at_attempt(number: u32) -> Self {
        Self {
            attempt: number,
            position: 0,
        }
    }

    /// Reads the text of a cursor.
    pub fn parse(text: &str) -> Option<Self> {
        let (attempt, position) = text.split_once('.')?;
        Some(Self {
            attempt: attempt.parse().ok()?,
            position: position.parse().ok()?,
        })
    }
}

impl fmt::Display for LogCursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.attempt, self.position)
    }
}

impl Serialize for LogCursor {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for LogCursor {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::parse(&text).ok_or_else(|| de::Error::custom(format!("{text:?} is no cursor")))
    }
}
