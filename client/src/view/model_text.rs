//! Text of a model, shown as it arrives and never twice.
//!
//! **Owns** the number of bytes of a model call's text that were shown. The shown text is a prefix of the final text,
//! so the rest can be shown when the text is complete.

use rye_proto::v1;

/// Shown part of the text of one model call.
#[derive(Debug, Default)]
pub(super) struct ShownText {
    /// Turn and attempt.
    call: (u32, u32),
    /// Bytes of the text that were shown or reported as missing.
    shown: u64,
    /// Position of the last text in the message.
    position: u32,
}

/// Change of the shown text.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum TextChange {
    /// More of the text.
    More(String),
    /// The text shown of this turn is void.
    TakenBack(u32),
}

fn length(text: &str) -> u64 {
    u64::try_from(text.len()).unwrap_or(u64::MAX)
}

impl ShownText {
    /// Returns the change that `delta` makes to the shown text, if there is one.
    pub(super) fn apply(&mut self, delta: &v1::Delta) -> Option<TextChange> {
        let call = (delta.turn, delta.attempt);
        match delta.kind() {
            v1::DeltaKind::Text => {
                self.turn_to(call);
                let is_paragraph = self.shown > 0 && delta.position != self.position;
                let gap = if is_paragraph { "\n\n" } else { "" };
                let more = format!("{gap}{}", delta.text);
                self.position = delta.position;
                self.shown += length(&more);
                Some(TextChange::More(more))
            }
            v1::DeltaKind::Reset if delta.text.is_empty() && delta.left_out == 0 => {
                let turn = self.call.0;
                let was_shown = std::mem::take(self).shown > 0;
                (was_shown && turn == delta.turn).then_some(TextChange::TakenBack(turn))
            }
            v1::DeltaKind::Reset => {
                self.turn_to(call);
                self.position = delta.position;
                self.catch_up(&delta.text, delta.left_out)
            }
            v1::DeltaKind::Unspecified
            | v1::DeltaKind::Thinking
            | v1::DeltaKind::CallBegun
            | v1::DeltaKind::CallArgs
            | v1::DeltaKind::CallReady
            | v1::DeltaKind::Output => None,
        }
    }

    fn turn_to(&mut self, call: (u32, u32)) {
        if self.call != call {
            *self = Self {
                call,
                ..Self::default()
            };
        }
    }

    /// Continues when the text so far is `text` after `left_out` bytes that are no longer available.
    fn catch_up(&mut self, text: &str, left_out: u64) -> Option<TextChange> {
        let missing = left_out.saturating_sub(self.shown);
        let known = usize::try_from(self.shown.saturating_sub(left_out)).unwrap_or(usize::MAX);
        let new = text.get(known..).unwrap_or_default();
        self.shown = self.shown.max(left_out + length(text));
        if missing > 0 {
            return Some(TextChange::More(format!(
                "\n[{missing} bytes are left out]\n{new}"
            )));
        }
        (!new.is_empty()).then(|| TextChange::More(new.to_owned()))
    }

    /// Returns the part of the final `text` that is not shown yet, or `None` if nothing of it was shown.
    pub(super) fn rest(&mut self, turn: u32, attempt: u32, text: &str) -> Option<String> {
        let Self { call, shown, .. } = std::mem::take(self);
        if call != (turn, attempt) || shown == 0 {
            return None;
        }
        let shown = usize::try_from(shown).unwrap_or(usize::MAX);
        Some(text.get(shown..).unwrap_or_default().to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn delta(kind: v1::DeltaKind, position: u32, text: &str, left_out: u64) -> v1::Delta {
        v1::Delta {
            turn: 2,
            attempt: 1,
            kind: kind.into(),
            position,
            text: text.to_owned(),
            left_out,
            ..v1::Delta::default()
        }
    }

    fn text_delta(position: u32, text: &str) -> v1::Delta {
        delta(v1::DeltaKind::Text, position, text, 0)
    }

    fn reset(text: &str, left_out: u64) -> v1::Delta {
        delta(v1::DeltaKind::Reset, 1, text, left_out)
    }

    /// Returns all that is shown of a call with the final text `text`.
    fn shown(deltas: &[v1::Delta], text: &str) -> String {
        let mut speech = ShownText::default();
        let mut all = String::new();
        for delta in deltas {
            match speech.apply(delta) {
                Some(TextChange::More(more)) => all.push_str(&more),
                Some(TextChange::TakenBack(_)) => all.push_str("<taken back>"),
                None => {}
            }
        }
        match speech.rest(2, 1, text) {
            Some(rest) => all + &rest,
            None => all + text,
        }
    }

    #[test]
    fn each_part_of_a_text_is_shown_once() {
        let thought = delta(v1::DeltaKind::Thinking, 0, "Hm.", 0);
        let two = [
            text_delta(1, "Hel"),
            thought,
            text_delta(1, "lo."),
            text_delta(3, "And"),
            text_delta(3, " on."),
        ];
        let all = "Hello.\n\nAnd on.";
        for count in 0..=two.len() {
            assert_eq!(shown(&two[..count], all), all, "{count} deltas");
        }
    }

    #[test]
    fn reset_delta_continues_shown_text_and_counts_missing_bytes() {
        let table = [
            (vec![reset("Hel", 0), text_delta(1, "lo")], "Hello"),
            (vec![text_delta(1, "Hel"), reset("Hello", 0)], "Hello"),
            (vec![text_delta(1, "Hel"), reset("ello", 1)], "Hello"),
            (
                vec![text_delta(1, "Hel"), reset("Hel", 0), text_delta(1, "lo")],
                "Hello",
            ),
            (
                vec![text_delta(1, "He"), reset("o", 4)],
                "He\n[2 bytes are left out]\no",
            ),
            (
                vec![text_delta(1, "Hel"), reset("", 0)],
                "Hel<taken back>Hello",
            ),
            (vec![reset("", 0)], "Hello"),
            // The final text is shorter than the shown one.
            (vec![text_delta(1, "Hello, and more")], "Hello, and more"),
        ];
        for (deltas, expected) in table {
            assert_eq!(shown(&deltas, "Hello"), expected, "{deltas:?}");
        }
    }

    #[test]
    fn new_attempt_starts_new_text() {
        let mut speech = ShownText::default();
        let _first = speech.apply(&text_delta(1, "Hel"));
        let again = v1::Delta {
            attempt: 2,
            ..text_delta(1, "Hello")
        };
        let more = TextChange::More("Hello".to_owned());
        assert_eq!(speech.apply(&again), Some(more));
        assert_eq!(speech.rest(2, 1, "Hello"), None, "that call is over");
    }
}
