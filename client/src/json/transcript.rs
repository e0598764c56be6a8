//! What checking a transcript came to, as JSON.

use rye_proto::v1;
use serde::Serialize;

use super::some;

/// The last line of `transcript --verify --json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Checked {
    /// It.
    pub verdict: Verdict,
}

/// Whether a transcript is what was written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Verdict {
    /// Whether all of it is.
    pub intact: bool,
    /// Where and why it is not.
    pub problem: Option<String>,
    /// Events that are what was written.
    pub events: u64,
    /// Signed checkpoints among them.
    pub checkpoints: u64,
    /// Bytes of both.
    pub bytes: u64,
}

impl Checked {
    /// A verdict as it is printed.
    pub fn new(verdict: &v1::TranscriptVerdict) -> Self {
        Self {
            verdict: Verdict {
                intact: verdict.problem.is_empty(),
                problem: some(&verdict.problem),
                events: verdict.events,
                checkpoints: verdict.checkpoints,
                bytes: verdict.bytes,
            },
        }
    }
}
