//! What a model says, and what tools print, as JSON.

use rye_proto::v1;
use serde::Serialize;

/// A line of `events --json --deltas` that is no event.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Told {
    /// It.
    pub delta: Delta,
}

/// More of what the model of a thread says, or a tool prints, as it comes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Delta {
    /// The run.
    pub run_id: String,
    /// The turn.
    pub turn: u32,
    /// Which try of it.
    pub attempt: u32,
    /// `text thinking call_begun call_args call_ready reset output`; more words may come.
    pub kind: &'static str,
    /// Its place in the message.
    pub position: u32,
    /// More of the text, the name of a tool, the id of a call, or lines.
    pub text: String,
    /// For a reset: how many bytes of the text so far are left out before `text`.
    pub left_out: u64,
    /// Whose lines they are, such as `step 3 build[1]`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub heading: String,
}

impl Told {
    /// A delta as it is printed.
    pub fn new(delta: &v1::Delta) -> Self {
        let kind = match delta.kind() {
            v1::DeltaKind::Unspecified => "unknown",
            v1::DeltaKind::Text => "text",
            v1::DeltaKind::Thinking => "thinking",
            v1::DeltaKind::CallBegun => "call_begun",
            v1::DeltaKind::CallArgs => "call_args",
            v1::DeltaKind::CallReady => "call_ready",
            v1::DeltaKind::Reset => "reset",
            v1::DeltaKind::Output => "output",
        };
        Self {
            delta: Delta {
                run_id: delta.run_id.clone(),
                turn: delta.turn,
                attempt: delta.attempt,
                kind,
                position: delta.position,
                text: delta.text.clone(),
                left_out: delta.left_out,
                heading: delta.heading.clone(),
            },
        }
    }
}
