//! Failures, with the facts for a person: the end of the process, and the last lines that it printed.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::id::Name;

/// Class of a failure that a node of a graph declares.
pub const GRAPH_FAILED: &str = "graph_failed";
/// Code of the failure of a program that made another call than in an earlier try.
pub const DIVERGED: &str = "diverged";
/// Lines of a stream that are kept.
const MOST_LINES: usize = 20;
/// Bytes of these lines.
const MOST_BYTES: usize = 4096;

/// The reason for which a step, a tool or a run did not succeed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// For people.
    pub message: String,
    /// The node that failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// For programs: `node_error`, `max_steps_exceeded`, `input_validation_failed` …
    pub code: String,
    /// Kind of the failure, once it is known: `transient`, `permanent` …
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class: Option<Name>,
    /// True if the same call may succeed later.
    pub retryable: bool,
    /// True if the message must not be used to classify the failure: its words are those of a model, or of other runs.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_decided: bool,
    /// The end of the process that failed, if there was one.
    #[serde(flatten)]
    pub printed: Option<Box<Printed>>,
}

impl Failure {
    /// Makes a failure that trying again does not fix.
    pub fn permanent(code: &str, message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            node: None,
            code: code.to_owned(),
            class: None,
            retryable: false,
            is_decided: false,
            printed: None,
        }
    }

    /// Marks the message as unusable for classification; the code alone counts.
    #[must_use]
    pub fn decided(self) -> Self {
        Self {
            is_decided: true,
            ..self
        }
    }

    /// Returns the form of the failure in the state of a graph: `{node, error, code, exit_code?}`.
    pub(crate) fn in_state(&self) -> Value {
        let mut told = json!({"node": self.node, "error": self.message, "code": self.code});
        let exit_code = self.printed.as_ref().and_then(|end| end.exit_code);
        if let Some(code) = exit_code {
            told["exit_code"] = json!(code);
        }
        told
    }

    #[must_use]
    pub fn at(mut self, node: &str) -> Self {
        self.node = Some(node.to_owned());
        self
    }
}

/// The end of a process that failed. Both tails are always present, so that a silent stream reads as such.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Printed {
    /// Exit code, if it exited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<i32>,
    pub stdout_tail: String,
    pub stderr_tail: String,
}

impl Printed {
    pub fn new(stdout: &[u8], stderr: &[u8]) -> Self {
        Self {
            exit_code: None,
            signal: None,
            stdout_tail: tail(stdout),
            stderr_tail: tail(stderr),
        }
    }

    /// Returns the end and both tails as lines, for people, without silent streams.
    pub fn lines(&self) -> Vec<String> {
        let mut lines = Vec::new();
        if let Some(code) = self.exit_code {
            lines.push(format!("exit code {code}"));
        }
        if let Some(signal) = self.signal {
            lines.push(format!("ended by signal {signal}"));
        }
        for (name, tail) in [("stdout", &self.stdout_tail), ("stderr", &self.stderr_tail)] {
            if !tail.is_empty() {
                lines.push(format!("{name}:"));
                lines.extend(tail.lines().map(|line| format!("  {line}")));
            }
        }
        lines
    }
}

/// Returns the last lines of `printed`, without blank ones at its end; a cut is marked.
fn tail(printed: &[u8]) -> String {
    // Enough for the kept characters, whatever the encoding of the bytes.
    let from = printed.len().saturating_sub(4 * MOST_BYTES);
    let read = String::from_utf8_lossy(&printed[from..]);
    let text = read.trim_end();
    let above = text.rmatch_indices('\n').nth(MOST_LINES - 1);
    let start = above.map_or(0, |(at, _)| at + 1);
    let start = start.max(text.ceil_char_boundary(text.len().saturating_sub(MOST_BYTES)));
    let cut = if start > 0 || from > 0 { "… " } else { "" };
    format!("{cut}{}", &text[start..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_lines_are_kept_and_a_cut_is_marked() {
        assert_eq!(tail(b""), "");
        assert_eq!(tail(b"one\n"), "one");
        assert_eq!(tail(b"\n\n"), "");
        let lines = |most: u32| {
            let lines: Vec<String> = (1..=most).map(|n| format!("line {n}\n")).collect();
            lines.concat()
        };
        let whole = lines(20);
        assert_eq!(tail(whole.as_bytes()), whole.trim_end());
        let long = lines(21);
        let kept = tail(long.as_bytes());
        assert!(kept.starts_with("… line 2\n"), "{kept}");
        assert!(kept.ends_with("line 21"), "{kept}");
        let wide = "ü".repeat(20_000);
        let kept = tail(wide.as_bytes());
        assert!(kept.len() <= MOST_BYTES + 4, "{}", kept.len());
        assert!(kept.starts_with("… ü"), "{kept}");
    }

    #[test]
    fn people_read_the_end_and_both_streams() {
        let printed = Printed {
            exit_code: Some(3),
            ..Printed::new(b"a\nb\n", b"")
        };
        assert_eq!(printed.lines(), ["exit code 3", "stdout:", "  a", "  b"]);
    }
}
