//! The last line of a stream while its end has not come.

use std::time::Duration;

use tokio::time::Instant;

/// Maximum length of a line in bytes; a longer one is split between characters.
const LONGEST_LINE: usize = 16 << 10;
/// Time after which a text without a line end, such as a prompt, is shown as a line.
const PATIENCE: Duration = Duration::from_millis(500);
/// The same for what follows in a line of which a part was shown, such as a progress bar.
const STATE_PAUSE: Duration = Duration::from_secs(5);

/// A line that grows. A carriage return begins it anew, as on a terminal: only its last state is kept.
#[derive(Debug, Default)]
pub struct UnfinishedLine {
    text: Vec<u8>,
    /// Time at which the text is shown without its end.
    due: Option<Instant>,
    /// True if a part of the line was shown.
    is_shown: bool,
}

impl UnfinishedLine {
    /// Appends `piece`, in which a line feed can only be last, and passes whole lines to `keep`.
    pub fn take(&mut self, piece: &[u8], mut keep: impl FnMut(&[u8])) {
        if self.text.is_empty()
            && piece.len() <= LONGEST_LINE
            && let Some(line) = piece.strip_suffix(b"\n")
        {
            return self.finish(line, keep);
        }
        let mut rest = piece;
        while !rest.is_empty() {
            let room = LONGEST_LINE.saturating_sub(self.text.len()).max(1);
            let (now, later) = rest.split_at(rest.len().min(room));
            self.text.extend_from_slice(now);
            rest = later;
            if self.text.pop_if(|last| *last == b'\n').is_some() {
                let line = std::mem::take(&mut self.text);
                self.finish(&line, &mut keep);
                continue;
            }
            self.text.drain(..start_of_state(&self.text));
            if self.text.len() >= LONGEST_LINE {
                self.split(&mut keep);
            }
        }
        if self.text.is_empty() {
            self.due = None;
        } else if self.due.is_none() {
            let pause = if self.is_shown { STATE_PAUSE } else { PATIENCE };
            self.due = Some(Instant::now() + pause);
        }
    }

    /// Time of the next [`Self::show`].
    pub const fn due(&self) -> Option<Instant> {
        self.due
    }

    /// Passes a text that has waited long enough at `now` to `keep`, as a line.
    pub fn show(&mut self, now: Instant, keep: impl FnMut(&[u8])) {
        if self.due.is_some_and(|due| due <= now) {
            self.split(keep);
            self.due = None;
        }
    }

    /// Passes the rest to `keep`: nothing more comes.
    pub fn end(&mut self, keep: impl FnMut(&[u8])) {
        if !self.text.is_empty() {
            let line = std::mem::take(&mut self.text);
            self.finish(&line, keep);
        }
    }

    /// Drops the text. Returns its length in bytes.
    pub fn clear(&mut self) -> usize {
        std::mem::take(self).text.len()
    }

    /// Passes the text to `keep`, up to its last whole character.
    fn split(&mut self, mut keep: impl FnMut(&[u8])) {
        let rest = self.text.split_off(whole_characters(&self.text));
        let shown = without_returns(&self.text);
        if !shown.is_empty() {
            keep(shown);
            self.is_shown = true;
        }
        self.text = rest;
    }

    /// Passes the last state of `line` to `keep`, unless all of it was shown.
    fn finish(&mut self, line: &[u8], mut keep: impl FnMut(&[u8])) {
        let state = without_returns(&line[start_of_state(line)..]);
        if !(state.is_empty() && self.is_shown) {
            keep(state);
        }
        self.due = None;
        self.is_shown = false;
    }
}

/// Offset after the last carriage return that something follows.
fn start_of_state(line: &[u8]) -> usize {
    let before = without_returns(line);
    before
        .iter()
        .rposition(|byte| *byte == b'\r')
        .map_or(0, |at| at + 1)
}

fn without_returns(line: &[u8]) -> &[u8] {
    let end = line.iter().rposition(|byte| *byte != b'\r');
    &line[..end.map_or(0, |at| at + 1)]
}

/// Length of `text` without an incomplete character at its end. A text of one such character counts as whole.
fn whole_characters(text: &[u8]) -> usize {
    const MOST_BYTES: usize = 4;
    let first = text.len().saturating_sub(MOST_BYTES - 1);
    let lead = text[first..].iter().rposition(|byte| *byte >= 0xc0);
    let Some(lead) = lead.map(|at| first + at).filter(|lead| *lead > 0) else {
        return text.len();
    };
    match str::from_utf8(&text[lead..]) {
        Err(error) if error.error_len().is_none() => lead,
        Ok(_) | Err(_) => text.len(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the lines that `pieces` result in, with their rest.
    fn lines(pieces: &[&[u8]]) -> Vec<String> {
        let (mut line, mut kept) = (UnfinishedLine::default(), Vec::new());
        let mut keep = |text: &[u8]| kept.push(String::from_utf8(text.to_vec()).unwrap());
        for piece in pieces {
            line.take(piece, &mut keep);
        }
        line.end(&mut keep);
        kept
    }

    #[tokio::test]
    async fn carriage_return_leaves_last_state_of_line() {
        assert_eq!(lines(&[b"a\r\n", b"\r\n", b"b\n"]), ["a", "", "b"]);
        assert_eq!(lines(&[b" 1%\r 50%\r100%\n"]), ["100%"]);
        assert_eq!(
            lines(&[b" 1%", b"\r 50%", b"\r", b"100%\r", b"\n"]),
            ["100%"]
        );
        assert_eq!(lines(&[b"\r 1%\r 2%"]), [" 2%"]);
        let bar = b"\r#####".repeat(10_000);
        assert_eq!(lines(&[&bar, b"\n"]), ["#####"]);
    }

    #[tokio::test]
    async fn long_line_is_split_between_characters() {
        for first in ["", "x", "xx", "xxx"] {
            let text = format!("{first}{}", "🦀".repeat(LONGEST_LINE / 2));
            let pieces: Vec<&[u8]> = text.as_bytes().chunks(1000).collect();
            let kept = lines(&pieces);
            assert_eq!(kept.concat(), text);
            assert!(kept.iter().all(|line| line.len() <= LONGEST_LINE));
        }
        // Other encodings are split at the bound.
        assert_eq!(whole_characters(&[0xe9; 8]), 7);
        assert_eq!(whole_characters(&[0xff; 8]), 8);
        assert_eq!(whole_characters(&[0xe2, 0x82]), 2);
        assert_eq!(whole_characters("aé".as_bytes()), 3);
    }

    #[tokio::test(start_paused = true)]
    async fn waiting_text_is_shown_as_line() {
        let (mut line, mut kept) = (UnfinishedLine::default(), Vec::new());
        let mut keep = |text: &[u8]| kept.push(String::from_utf8(text.to_vec()).unwrap());
        line.take(b"Connecting\xe2\x80", &mut keep);
        let due = line.due().unwrap();
        assert_eq!(due - Instant::now(), PATIENCE);
        line.show(due - Duration::from_millis(1), &mut keep);
        line.show(due, &mut keep);
        assert_eq!(line.due(), None);
        line.take(b"\xa6", &mut keep);
        assert_eq!(line.due().unwrap() - Instant::now(), STATE_PAUSE);
        line.take(b"\n", &mut keep);
        // All of the next line is shown before its end.
        line.take(b"50%\r", &mut keep);
        line.show(line.due().unwrap(), &mut keep);
        line.take(b"\n", &mut keep);
        line.take(b"\n", &mut keep);
        assert_eq!(line.due(), None);
        assert_eq!(kept, ["Connecting", "…", "50%", ""]);
    }
}
