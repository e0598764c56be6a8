//! Reads the log of a run, from its end or while it grows.

use std::collections::VecDeque;
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::sync::Arc;

use tokio::sync::watch;

use super::{Log, LogPool, NEW, OLD, heading};

/// Bytes per read.
const CHUNK: u64 = 256 << 10;
/// Maximum memory in bytes for a reader of the last lines, overhead per line included.
const MOST_TAIL: usize = 8 << 20;
/// Overhead in bytes of a line: its list entry and its allocation.
const ENTRY: usize = 96;

/// Consecutive lines of one attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Piece {
    /// The attempt, such as `step 3 build[1]`; empty for a note of the daemon.
    pub heading: String,
    /// Whole lines.
    pub text: String,
}

/// Filter of attempts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LineFilter {
    /// The node, or the tool of a thread's call.
    pub node: Option<String>,
    /// The text in brackets after it: the index of an item, or the name of a branch.
    pub item: Option<String>,
}

impl LineFilter {
    /// True if lines below `heading` match.
    fn has(&self, heading: &str) -> bool {
        let mut words = heading.splitn(3, ' ');
        let place = match (words.next(), words.next(), words.next()) {
            (Some("step" | "turn"), Some(_), Some(place)) => place,
            _ => heading,
        };
        let in_brackets = |place: &str| {
            let (node, item) = place.strip_suffix(']')?.rsplit_once('[')?;
            Some((node.to_owned(), item.to_owned()))
        };
        match (&self.node, &self.item) {
            (None, None) => true,
            (Some(node), None) => {
                place == node || in_brackets(place).is_some_and(|(of, _)| of == *node)
            }
            (Some(node), Some(item)) => place == format!("{node}[{item}]"),
            (None, Some(item)) => in_brackets(place).is_some_and(|(_, named)| named == *item),
        }
    }
}

#[derive(Debug)]
pub struct Reader {
    log: Arc<Log>,
    pool: LogPool,
    filter: LineFilter,
    written: watch::Receiver<u64>,
    position: ReadPosition,
}

/// Read position.
#[derive(Debug, Clone, Default)]
struct ReadPosition {
    /// File number, as the writer counts; `None` before the first read.
    file: Option<u64>,
    /// Offset in bytes.
    offset: u64,
    /// Heading of the next line.
    heading: String,
}

impl Reader {
    /// Makes a reader that begins with the oldest available line.
    pub fn new(log: Arc<Log>, pool: LogPool, wanted: LineFilter) -> Self {
        Self {
            written: log.written.subscribe(),
            log,
            pool,
            filter: wanted,
            position: ReadPosition::default(),
        }
    }

    /// Skips all existing lines: only later output is read.
    pub async fn skip(&mut self) -> io::Result<()> {
        self.written.mark_unchanged();
        let log = Arc::clone(&self.log);
        let end = self
            .pool
            .read("look for the end of async.log", move || end(&log));
        self.position = end.await?;
        Ok(())
    }

    /// True if there was a write since [`Reader::next`] last read.
    pub fn has_grown(&self) -> bool {
        self.written.has_changed().unwrap_or(false)
    }

    /// Returns a batch of unread lines; empty if there are no more at present.
    pub async fn next(&mut self) -> io::Result<Vec<Piece>> {
        loop {
            self.written.mark_unchanged();
            let (log, wanted, place) = (
                Arc::clone(&self.log),
                self.filter.clone(),
                self.position.clone(),
            );
            let read = self
                .pool
                .read("read async.log", move || read(&log, &wanted, place));
            let (pieces, place, more) = read.await?;
            self.position = place;
            if !pieces.is_empty() || !more {
                return Ok(pieces);
            }
        }
    }

    /// True if the directory of the run's files does not exist.
    pub async fn has_no_directory(&self) -> io::Result<bool> {
        let log = Arc::clone(&self.log);
        let look = move || log.directory().map(|directory| directory.is_none());
        self.pool.read("look for the files of a run", look).await
    }

    /// Resolves when there may be more.
    pub async fn grown(&mut self) {
        // Cannot fail: `log` keeps the sender alive.
        drop(self.written.changed().await);
    }

    /// Returns the last `count` lines. [`Reader::next`] continues after them.
    pub async fn tail(&mut self, count: usize) -> io::Result<Vec<Piece>> {
        let mut last: VecDeque<(Arc<str>, String)> = VecDeque::new();
        let mut bytes = 0;
        loop {
            let pieces = self.next().await?;
            if pieces.is_empty() {
                break;
            }
            for piece in pieces {
                let heading: Arc<str> = piece.heading.into();
                for line in piece.text.split_inclusive('\n') {
                    bytes += ENTRY + heading.len() + line.len();
                    last.push_back((Arc::clone(&heading), line.to_owned()));
                    while last.len() > count || (bytes > MOST_TAIL && last.len() > 1) {
                        let Some((heading, line)) = last.pop_front() else {
                            break;
                        };
                        bytes -= ENTRY + heading.len() + line.len();
                    }
                }
            }
        }
        let mut pieces = Vec::new();
        for (heading, line) in last {
            push(&mut pieces, &heading, &line);
        }
        Ok(pieces)
    }
}

fn push(pieces: &mut Vec<Piece>, heading: &str, line: &str) {
    match pieces.last_mut() {
        Some(last) if last.heading == heading => last.text.push_str(line),
        Some(_) | None => pieces.push(Piece {
            heading: heading.to_owned(),
            text: line.to_owned(),
        }),
    }
}

/// Position at the end of the log. Blocks.
fn end(log: &Log) -> io::Result<ReadPosition> {
    let at = log.at();
    let open = log.look(NEW)?;
    let length = open.map(|file| file.metadata()).transpose()?;
    Ok(ReadPosition {
        file: Some(at.file),
        offset: length.map_or(0, |metadata| metadata.len()),
        heading: at.heading.as_deref().unwrap_or_default().to_owned(),
    })
}

/// Reads from `place`. Returns the matching lines, the next position, and true if there may be more. Blocks.
fn read(
    log: &Log,
    wanted: &LineFilter,
    mut place: ReadPosition,
) -> io::Result<(Vec<Piece>, ReadPosition, bool)> {
    let at = log.at();
    let mut pieces = Vec::new();
    let (name, file) = match place.file {
        None => (OLD, at.file.wrapping_sub(1)),
        Some(file) if file == at.file => (NEW, file),
        Some(file) if file.wrapping_add(1) == at.file => (OLD, file),
        Some(_) => {
            let lost = "[lines left out: they were gone before they could be read]\n";
            push(&mut pieces, "", lost);
            place = ReadPosition::default();
            (OLD, at.file.wrapping_sub(1))
        }
    };
    place.file = Some(file);
    let mut bytes = Vec::new();
    if let Some(mut open) = log.look(name)? {
        open.seek(SeekFrom::Start(place.offset))?;
        open.take(CHUNK).read_to_end(&mut bytes)?;
    }
    drop(at);
    // Only whole lines are ever written; a chunk may end within one.
    let whole = bytes.iter().rposition(|byte| *byte == b'\n');
    let whole = whole.map_or(0, |end| end + 1);
    place.offset += u64::try_from(whole).unwrap_or(u64::MAX);
    for line in bytes[..whole].split_inclusive(|byte| *byte == b'\n') {
        let text = line.strip_suffix(b"\n").unwrap_or(line);
        if let Some(next) = heading(text) {
            place.heading = String::from_utf8_lossy(next).into_owned();
        } else if wanted.has(&place.heading) {
            push(&mut pieces, &place.heading, &String::from_utf8_lossy(line));
        }
    }
    if whole == 0 && name == OLD {
        // The previous file is at its end and does not grow.
        place.file = Some(file.wrapping_add(1));
        place.offset = 0;
        place.heading.clear();
        return Ok((pieces, place, true));
    }
    Ok((pieces, place, whole > 0))
}
