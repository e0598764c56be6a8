//! The two files of a process: `out.log`, and `out.log.1` with what was before it.
//!
//! A line is `POSITION MILLISECONDS ATTEMPT STREAM TEXT`. Its position is the number of bytes of output up to its end.
//! A line that cannot be read, such as one that a crash cut off, is left out.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, BufRead as _, BufReader, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use rye_core::clock::Timestamp;

use super::{LogCursor, LogRange};
use rye_process::Source;

pub(super) const NEW: &str = "out.log";
pub(super) const OLD: &str = "out.log.1";
/// File with the position up to which lines were taken in.
const MARK: &str = "exported";
/// Maximum length of a file in bytes.
const MOST_BYTES: u64 = 8 << 20;
/// Bytes at the end of a file in which its last whole line is.
const LAST_LINE: u64 = 64 << 10;

/// Source of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stream {
    Stdout,
    Stderr,
    /// A note of the daemon.
    Note,
}

impl Stream {
    /// The word used on the wire and in results of tools.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Stdout => "stdout",
            Self::Stderr => "stderr",
            Self::Note => "note",
        }
    }

    const fn letter(self) -> &'static str {
        match self {
            Self::Stdout => "o",
            Self::Stderr => "e",
            Self::Note => "n",
        }
    }
}

impl From<Source> for Stream {
    fn from(source: Source) -> Self {
        match source {
            Source::Stdout => Self::Stdout,
            Source::Stderr => Self::Stderr,
        }
    }
}

/// A line of output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutputLine {
    pub at: Timestamp,
    pub attempt: u32,
    pub stream: Stream,
    pub text: String,
    /// Number of its bytes of output.
    pub(super) bytes: u64,
    /// Number of bytes of output up to its end.
    pub(super) position: u64,
}

impl OutputLine {
    /// Returns the position behind it.
    pub const fn cursor(&self) -> LogCursor {
        LogCursor {
            attempt: self.attempt,
            position: self.position,
        }
    }

    /// Number of bytes of output before it.
    pub(super) const fn begin(&self) -> u64 {
        self.position.saturating_sub(self.bytes)
    }

    pub(super) fn read(line: &[u8]) -> Option<Self> {
        let mut parts = line.splitn(5, |byte| *byte == b' ');
        let mut number = || str::from_utf8(parts.next()?).ok();
        let position = number()?.parse().ok()?;
        let at = Timestamp::from_ms(number()?.parse().ok()?);
        let attempt = number()?.parse().ok()?;
        let letter = number()?;
        let text = parts.next()?;
        let streams = [Stream::Stdout, Stream::Stderr, Stream::Note];
        let stream = streams.into_iter().find(|of| of.letter() == letter)?;
        let bytes = match stream {
            Stream::Stdout | Stream::Stderr => u64::try_from(text.len() + 1).ok()?,
            Stream::Note => 0,
        };
        Some(Self {
            at,
            attempt,
            stream,
            text: String::from_utf8_lossy(text).into_owned(),
            bytes,
            position,
        })
    }
}

/// Appends the form of a line to `lines`.
pub(super) fn encode(
    lines: &mut Vec<u8>,
    end: LogCursor,
    at: Timestamp,
    stream: Stream,
    text: &[u8],
) {
    let head = format!(
        "{} {} {} {} ",
        end.position,
        at.ms(),
        end.attempt,
        stream.letter()
    );
    lines.extend_from_slice(head.as_bytes());
    lines.extend_from_slice(text);
    lines.push(b'\n');
}

/// The current file, to append to.
#[derive(Debug)]
pub(super) struct Appender {
    directory: PathBuf,
    /// The file and its length, once it was opened.
    open: Option<(File, u64)>,
}

impl Appender {
    pub(super) fn new(directory: &Path) -> Self {
        Self {
            directory: directory.to_owned(),
            open: None,
        }
    }

    /// Appends whole lines. After an error the file is opened again.
    pub(super) fn append(&mut self, lines: &[u8]) -> io::Result<()> {
        let (mut file, mut length) = match self.open.take() {
            Some(open) => open,
            None => self.opened()?,
        };
        let more = u64::try_from(lines.len()).unwrap_or(u64::MAX);
        if length > 0 && length.saturating_add(more) > MOST_BYTES {
            fs::rename(self.directory.join(NEW), self.directory.join(OLD))?;
            (file, length) = self.opened()?;
        }
        file.write_all(lines)?;
        self.open = Some((file, length + more));
        Ok(())
    }

    fn opened(&self) -> io::Result<(File, u64)> {
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&self.directory)?;
        let mut file = OpenOptions::new()
            .read(true)
            .append(true)
            .create(true)
            .mode(0o600)
            .open(self.directory.join(NEW))?;
        let mut length = file.metadata()?.len();
        if length > 0 {
            let mut last = [0];
            file.seek(SeekFrom::End(-1))?;
            file.read_exact(&mut last)?;
            if last != *b"\n" {
                // A crash cut the line off.
                file.write_all(b"\n")?;
                length += 1;
            }
        }
        Ok((file, length))
    }
}

pub(super) fn opened(directory: &Path, name: &str) -> io::Result<Option<File>> {
    match File::open(directory.join(name)) {
        Ok(file) => Ok(Some(file)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Returns the position up to which lines were taken in, and moves it to `position`, if that is behind it. Blocks.
pub(super) fn mark(directory: &Path, position: Option<LogCursor>) -> io::Result<LogCursor> {
    let path = directory.join(MARK);
    let before = match fs::read_to_string(&path) {
        Ok(text) => LogCursor::parse(&text).unwrap_or_default(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => LogCursor::default(),
        Err(error) => return Err(error),
    };
    if let Some(position) = position.filter(|position| *position > before) {
        fs::write(path, position.to_string())?;
    }
    Ok(before)
}

/// Returns the position of the last line; `None` if there is none. Blocks.
pub(super) fn last_position(directory: &Path) -> io::Result<Option<u64>> {
    for name in [NEW, OLD] {
        let Some(mut file) = opened(directory, name)? else {
            continue;
        };
        let length = file.metadata()?.len();
        file.seek(SeekFrom::Start(length.saturating_sub(LAST_LINE)))?;
        let mut end = Vec::new();
        file.take(LAST_LINE).read_to_end(&mut end)?;
        let mut lines = end.split(|byte| *byte == b'\n').rev();
        if let Some(line) = lines.find_map(OutputLine::read) {
            return Ok(Some(line.position));
        }
    }
    Ok(None)
}

/// Returns the `wanted` lines of both files. Blocks.
pub(super) fn read(directory: &Path, wanted: LogRange) -> io::Result<Vec<OutputLine>> {
    let mut found = std::collections::VecDeque::new();
    for name in [OLD, NEW] {
        let Some(file) = opened(directory, name)? else {
            continue;
        };
        let mut file = BufReader::with_capacity(256 << 10, file);
        let mut line = Vec::new();
        while file.read_until(b'\n', &mut line)? > 0 {
            let read = line.strip_suffix(b"\n").and_then(OutputLine::read);
            line.clear();
            let Some(read) = read else { continue };
            match wanted {
                LogRange::After(cursor, _) if read.cursor() <= cursor => {}
                LogRange::After(_, most) if found.len() >= most => return Ok(found.into()),
                LogRange::After(..) => found.push_back(read),
                LogRange::Last(most) => {
                    found.push_back(read);
                    if found.len() > most {
                        found.pop_front();
                    }
                }
            }
        }
    }
    Ok(found.into())
}
