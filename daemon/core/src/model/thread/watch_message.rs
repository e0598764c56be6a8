//! Lines of a managed process on their way to the model of the thread that owns it.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::id::RunId;
use crate::model::limits::is_zero;

/// Limits of the lines of a message, and of their bytes.
pub const MOST_WATCH_LINES: usize = 50;
pub const MOST_WATCH_BYTES: usize = 16 * 1024;

/// A message about lines of a process that a rule of it matched, or lines that join such a message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WatchMessage {
    pub id: String,
    pub process: RunId,
    pub rule: String,
    /// True if the lines join the message with this id, which waits.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub joins: bool,
    /// Lines, each printable and without the end of the element that encloses them.
    pub lines: Vec<String>,
    /// Number of further lines that matched.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub more: u64,
    /// Number of lines that matched after the rule had its matches of a minute: it rests.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub suppressed: u64,
}

impl WatchMessage {
    /// True if `line` may follow its lines.
    pub fn has_room(&self, line: &str) -> bool {
        let bytes: usize = self.lines.iter().map(|line| line.len() + 1).sum();
        self.more == 0
            && self.lines.len() < MOST_WATCH_LINES
            && bytes + line.len() < MOST_WATCH_BYTES
    }

    /// Returns the message with the lines of `new`; `None` if they are too many, or do not join this message.
    pub(crate) fn joined(&self, new: &Self) -> Option<Self> {
        let mut joined = self.clone();
        if !new.joins || new.id != self.id {
            return None;
        }
        for line in &new.lines {
            if !joined.has_room(line) {
                return None;
            }
            joined.lines.push(line.clone());
        }
        joined.more += new.more;
        joined.suppressed += new.suppressed;
        Some(joined)
    }
}

/// The text that the model receives.
impl fmt::Display for WatchMessage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "<process handle=\"{}\" rule=\"{}\">",
            self.process, self.rule
        )?;
        for line in &self.lines {
            writeln!(f, "{line}")?;
        }
        f.write_str("</process>")?;
        if self.more > 0 {
            write!(f, "\n{} more lines match.", self.more)?;
        }
        if self.suppressed > 0 {
            write!(
                f,
                "\n{} more suppressed; rule {} rests until `watch` is called again.",
                self.suppressed, self.rule
            )?;
        }
        Ok(())
    }
}
