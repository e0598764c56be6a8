//! Parser for server-sent events that accepts a body in arbitrary pieces.

/// Size limit of an event in bytes.
const MOST_EVENT: usize = 8 << 20;
/// Size limit of a body in bytes.
const MOST_BODY: u64 = 256 << 20;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// Empty if the event has no name.
    pub name: String,
    /// Data lines joined by LF.
    pub data: String,
}

/// Reason why a body is not a stream of events.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Unreadable {
    #[error("an event is larger than {} MiB", MOST_EVENT >> 20)]
    Event,
    #[error("the body is larger than {} MiB", MOST_BODY >> 20)]
    Body,
    #[error("a line is not UTF-8")]
    Text,
}

/// Splits a body into events, piece by piece.
#[derive(Debug, Default)]
pub struct Splitter {
    /// The incomplete last line.
    line: Vec<u8>,
    /// True if the last byte was a CR; a following LF belongs to it.
    after_cr: bool,
    /// True after the first line: only that may begin with a byte order mark.
    begun: bool,
    name: String,
    data: String,
    /// True if the event has data, even if the data is empty.
    has_data: bool,
    taken: u64,
}

impl Splitter {
    /// Processes the next piece, and passes each completed event to `sink`. After an error the splitter is unusable.
    pub fn push(
        &mut self,
        mut bytes: &[u8],
        mut sink: impl FnMut(Event),
    ) -> Result<(), Unreadable> {
        self.taken = self
            .taken
            .saturating_add(u64::try_from(bytes.len()).unwrap_or(u64::MAX));
        if self.taken > MOST_BODY {
            return Err(Unreadable::Body);
        }
        while let Some((first, rest)) = bytes.split_first() {
            if std::mem::take(&mut self.after_cr) && *first == b'\n' {
                bytes = rest;
                continue;
            }
            let end = memchr::memchr2(b'\n', b'\r', bytes);
            let (part, rest) = bytes.split_at(end.unwrap_or(bytes.len()));
            if self.line.len() + self.data.len() + part.len() > MOST_EVENT {
                return Err(Unreadable::Event);
            }
            let Some((mark, rest)) = rest.split_first() else {
                self.line.extend_from_slice(part);
                return Ok(());
            };
            self.after_cr = *mark == b'\r';
            bytes = rest;
            if self.line.is_empty() {
                self.take_line(part, &mut sink)?;
            } else {
                let mut line = std::mem::take(&mut self.line);
                line.extend_from_slice(part);
                self.take_line(&line, &mut sink)?;
                line.clear();
                self.line = line;
            }
        }
        Ok(())
    }

    fn take_line(&mut self, line: &[u8], sink: &mut impl FnMut(Event)) -> Result<(), Unreadable> {
        let line = str::from_utf8(line).map_err(|_error| Unreadable::Text)?;
        let is_first = !std::mem::replace(&mut self.begun, true);
        let line = line
            .strip_prefix('\u{feff}')
            .filter(|_| is_first)
            .unwrap_or(line);
        if line.is_empty() {
            let event = Event {
                name: std::mem::take(&mut self.name),
                data: std::mem::take(&mut self.data),
            };
            if std::mem::take(&mut self.has_data) {
                sink(event);
            }
            return Ok(());
        }
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "event" => value.clone_into(&mut self.name),
            "data" => {
                if std::mem::replace(&mut self.has_data, true) {
                    self.data.push('\n');
                }
                self.data.push_str(value);
            }
            // Comments, and fields about reconnection.
            _ => {}
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(pieces: &[&[u8]]) -> Result<Vec<(String, String)>, Unreadable> {
        let mut splitter = Splitter::default();
        let mut events = Vec::new();
        for piece in pieces {
            splitter.push(piece, |event| events.push((event.name, event.data)))?;
        }
        Ok(events)
    }

    fn pair(name: &str, data: &str) -> (String, String) {
        (name.to_owned(), data.to_owned())
    }

    #[test]
    fn lines_become_events() {
        for (text, expected) in [
            ("", vec![]),
            ("data: a\n\n", vec![pair("", "a")]),
            ("event: e\ndata:a\n\n", vec![pair("e", "a")]),
            ("data: a\ndata:  b\ndata\n\n", vec![pair("", "a\n b\n")]),
            (
                "\u{feff}data: a\r\n\r\ndata: b\r\rdata: c\n\n",
                vec![pair("", "a"), pair("", "b"), pair("", "c")],
            ),
            (
                ": ping\n\nid: 1\nretry: 5\nevent: lost\n\ndata: a\n\n",
                vec![pair("", "a")],
            ),
            // An event without a final empty line is incomplete.
            ("data: a\n\ndata: b\n", vec![pair("", "a")]),
            ("data\n\n", vec![pair("", "")]),
        ] {
            assert_eq!(split(&[text.as_bytes()]).unwrap(), expected, "{text:?}");
        }
    }

    #[test]
    fn any_cut_gives_the_same_events() {
        let text = "\u{feff}event: é\r\ndata: 1\r\ndata: \u{1f600}\r\n\r\n: c\rdata: 2\n\r\ndata: 3\r\n\r\n";
        let bytes = text.as_bytes();
        let whole = split(&[bytes]).unwrap();
        assert_eq!(whole.len(), 3);
        for first in 0..=bytes.len() {
            for second in first..=bytes.len() {
                let pieces = [&bytes[..first], &bytes[first..second], &bytes[second..]];
                assert_eq!(split(&pieces).unwrap(), whole, "{first} {second}");
            }
        }
    }

    #[test]
    fn hostile_bodies_are_bounded() {
        assert_eq!(split(&[b"data: \xff\n"]), Err(Unreadable::Text));
        let mut splitter = Splitter::default();
        let line = vec![b'x'; 1 << 20];
        let mut pushed = (0..20).map(|_| splitter.push(&line, |_| {}));
        assert!(pushed.any(|pushed| pushed == Err(Unreadable::Event)));
        let mut splitter = Splitter::default();
        let data = [b"data: ".as_slice(), &line, b"\n"].concat();
        let mut pushed = (0..20).map(|_| splitter.push(&data, |_| {}));
        assert!(pushed.any(|pushed| pushed == Err(Unreadable::Event)));
        let mut splitter = Splitter::default();
        let comment = [b":".as_slice(), &line, b"\n"].concat();
        let mut pushed = (0..300).map(|_| splitter.push(&comment, |_| {}));
        assert!(pushed.any(|pushed| pushed == Err(Unreadable::Body)));
    }
}
