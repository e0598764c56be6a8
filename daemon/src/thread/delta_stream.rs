//! Model output of one call, sent to listeners.
//!
//! **Owns** the end of the output so far, for listeners that missed a part; nothing else is kept.

use rye_core::id::{RunId, Seq};
use rye_core::model::thread::Turn;
use rye_core::provider::stream::StreamSignal;

use rye_journal::{Delta, DeltaKind, DeltaSender, Journal};

/// Maximum bytes of the output that a late listener receives again; less than its queue holds.
const MOST_KEPT: usize = 16 << 10;

/// Sender of the output of one model call.
pub(super) struct DeltaStream {
    sender: Option<DeltaSender>,
    /// Fields that all deltas of the call share.
    call: Delta,
    tail: TextTail,
}

/// End of the texts so far.
#[derive(Default)]
struct TextTail {
    text: String,
    /// Bytes dropped before it.
    dropped: u64,
    /// Position of the last text in the message.
    position: u32,
}

impl TextTail {
    /// Appends text at `position`. Texts of different positions become paragraphs, as in the message.
    fn push(&mut self, position: u32, text: &str) {
        let is_first = self.dropped == 0 && self.text.is_empty();
        if position != self.position && !is_first {
            self.text.push_str("\n\n");
        }
        self.position = position;
        self.text.push_str(text);
        if self.text.len() > 2 * MOST_KEPT {
            self.shorten();
        }
    }

    fn shorten(&mut self) {
        let cut = self.text.len().saturating_sub(MOST_KEPT);
        let cut = self.text.ceil_char_boundary(cut);
        self.text.drain(..cut);
        self.dropped += u64::try_from(cut).unwrap_or(u64::MAX);
    }

    /// A reset to the texts so far.
    fn reset_delta(&self, call: &Delta) -> Delta {
        let cut = self.text.len().saturating_sub(MOST_KEPT);
        let cut = self.text.ceil_char_boundary(cut);
        Delta {
            position: self.position,
            text: self.text[cut..].to_owned(),
            left_out: self.dropped + u64::try_from(cut).unwrap_or(u64::MAX),
            ..call.clone()
        }
    }
}

impl DeltaStream {
    /// Makes the sender for a call of `turn` in `run`; `after` is the last event of its record.
    pub(super) fn new(journal: &Journal, run: &RunId, after: Seq, turn: &Turn) -> Self {
        let call = Delta {
            after,
            turn: turn.number,
            attempt: turn.attempt,
            kind: DeltaKind::Reset,
            position: 0,
            text: String::new(),
            left_out: 0,
        };
        let voice = Self {
            sender: journal.delta_sender(run),
            call,
            tail: TextTail::default(),
        };
        if turn.attempt > 1 {
            voice.reset();
        }
        voice
    }

    /// Sends the content of a signal.
    pub(super) fn send(&mut self, signal: &StreamSignal) {
        let (kind, position, text) = match signal {
            StreamSignal::Text { position, text } => {
                self.tail.push(*position, text);
                (DeltaKind::Text, *position, text)
            }
            StreamSignal::Thinking { position, text } => (DeltaKind::Thinking, *position, text),
            StreamSignal::CallBegun { position, name } => (DeltaKind::CallBegun, *position, name),
            StreamSignal::CallArgs { position, text } => (DeltaKind::CallArgs, *position, text),
            StreamSignal::CallReady(call) => (DeltaKind::CallReady, call.position, &call.id),
            StreamSignal::Begun { .. }
            | StreamSignal::Block(_)
            | StreamSignal::Usage(_)
            | StreamSignal::Stopped(_)
            | StreamSignal::Ended(_)
            | StreamSignal::Broken(_) => return,
        };
        let Some(speaker) = self
            .sender
            .as_ref()
            .filter(|speaker| speaker.has_listeners())
        else {
            return;
        };
        let delta = Delta {
            kind,
            position,
            text: text.clone(),
            ..self.call.clone()
        };
        speaker.send(&delta, || self.tail.reset_delta(&self.call));
    }

    /// Resets listeners: the output does not count, because the call was cut or is repeated.
    pub(super) fn reset(&self) {
        if let Some(speaker) = &self.sender {
            speaker.send(&self.call, || self.call.clone());
        }
    }

    /// Resolves when a new listener has joined and received the output so far. Cancel safe.
    pub(super) async fn joined(&self) {
        let Some(speaker) = &self.sender else {
            return std::future::pending().await;
        };
        speaker.joined().await;
        speaker.catch_up(|| self.tail.reset_delta(&self.call));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call() -> Delta {
        Delta {
            after: Seq(1),
            turn: 1,
            attempt: 1,
            kind: DeltaKind::Reset,
            position: 0,
            text: String::new(),
            left_out: 0,
        }
    }

    #[test]
    fn late_listener_gets_tail_and_dropped_count() {
        let mut said = TextTail::default();
        said.push(1, "First.");
        said.push(3, "Second.");
        assert_eq!(said.reset_delta(&call()).text, "First.\n\nSecond.");
        let mut whole = said.text.clone();
        for step in 0..20_000_u32 {
            let more = if step % 3 == 0 { "é" } else { "ab" };
            said.push(3, more);
            whole.push_str(more);
            let told = said.reset_delta(&call());
            let left_out = usize::try_from(told.left_out).unwrap();
            assert!(told.text.len() <= MOST_KEPT);
            assert!(said.text.len() <= 2 * MOST_KEPT);
            assert_eq!(whole.get(left_out..), Some(&*told.text), "after {step}");
        }
        assert!(said.reset_delta(&call()).left_out > 0);
    }
}
