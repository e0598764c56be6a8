//! The file of one transcript, open to be appended to.
//!
//! **Owns** `state/threads/<run>/transcript.jsonl`. **Never** trusts that it is still there, or still whole: others may remove, move
//! or cut it at any time. What of it is missing is made again from the log, in a file of its own that then takes its name,
//! so that readers find a whole transcript or none. **Failure**: events that are in no file any more, nor in the log, are lost; a
//! hole of their length keeps everything behind it where it belongs, and a reader gets the byte where it begins. A tail that
//! differs from the log moves to `transcript.lost-<n>.jsonl`.

use std::fs::File;
use std::io::{self, Read as _};
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use rye_core::id::RunId;
use rye_core::transcript::{Fact, Head, Signed};

use super::Shared;
use super::log::size;
use super::past::Source;
use super::run_stream::RunStream;
use crate::beneath::Dir;

/// Most of an existing file that is compared with the log: more than the log can hold.
const TAIL_BYTES: u64 = 256 << 20;

const TRANSCRIPT: &str = "transcript.jsonl";
const TEMPORARY: &str = ".transcript.jsonl.tmp";
/// Where the directories of runs are below a `files` directory.
pub const THREADS: &str = "state/threads";

/// An open transcript.
#[derive(Debug)]
pub(super) struct TranscriptFile {
    stream: Arc<RunStream>,
    file: File,
    dir: Dir,
    length: u64,
    /// Its lines go up to here.
    pub(super) upto: Head,
    /// Perhaps written since its last sync.
    dirty: bool,
    /// Made by us and its name not yet synced.
    fresh: bool,
    /// When it was used, by the count of its owner.
    pub(super) used: u64,
    _counted: Counted,
}

/// Counts an open transcript while it lives.
#[derive(Debug)]
struct Counted(Arc<AtomicUsize>);

impl Counted {
    fn in_number(number: &Arc<AtomicUsize>) -> Self {
        number.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(number))
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl TranscriptFile {
    /// Opens the transcript to take lines behind `start`; what is missing before is made again first.
    pub(super) fn open(shared: &Shared, stream: &Arc<RunStream>, start: &Head) -> io::Result<Self> {
        let root = Dir::of_run(&stream.spec)?;
        let dir = run_dir(&root, &stream.id)?;
        let there = dir.open(TRANSCRIPT)?;
        let length = there.as_ref().map_or(Ok(0), length)?;
        let (file, fresh) = match there {
            Some(file) if length >= start.bytes => (file, false),
            there => (make_again(shared, stream, &dir, there, start)?, true),
        };
        let length = self::length(&file)?;
        Ok(Self {
            stream: Arc::clone(stream),
            file,
            dir,
            length,
            upto: *start,
            // Who wrote what is there may not have synced it.
            dirty: true,
            fresh,
            used: 0,
            _counted: Counted::in_number(&shared.open_transcripts),
        })
    }

    /// Whether its name still means this file.
    pub(super) fn is_in_place(&self) -> io::Result<bool> {
        let found = match existing_transcript(&self.stream.spec.files, &self.stream.id) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            found => found?.metadata()?,
        };
        let ours = self.file.metadata()?;
        Ok((found.dev(), found.ino()) == (ours.dev(), ours.ino()) && ours.len() == self.length)
    }

    /// Puts `lines` at offset `at`, up to which it reaches at least.
    pub(super) fn put(&mut self, at: u64, lines: &[u8]) -> io::Result<()> {
        let there = if self.length == at {
            0
        } else {
            self.meet(at, lines)?
        };
        let rest = &lines[there..];
        if !rest.is_empty() {
            let at = at + size(there);
            self.file.write_all_at(rest, at)?;
            self.length = at + size(rest.len());
            self.dirty = true;
        }
        Ok(())
    }

    /// Compares what follows `at` with `lines`; from where it differs it is moved aside. Answers how many bytes of `lines` it
    /// holds.
    fn meet(&mut self, at: u64, lines: &[u8]) -> io::Result<usize> {
        let Some(behind) = self.length.checked_sub(at) else {
            return Err(io::Error::other(
                "the transcript is shorter than its record",
            ));
        };
        let there = usize::try_from(behind).map_or(lines.len(), |behind| behind.min(lines.len()));
        let mut found = vec![0; there];
        self.file.read_exact_at(&mut found, at)?;
        let same = found.iter().zip(lines).take_while(|(a, b)| a == b).count();
        if same == there {
            return Ok(same);
        }
        let kept = found[..same]
            .iter()
            .rposition(|byte| *byte == b'\n')
            .map_or(0, |end| end + 1);
        self.cut(at + size(kept))?;
        Ok(kept)
    }

    /// Moves aside what stands behind `end`, if anything does.
    pub(super) fn cut(&mut self, end: u64) -> io::Result<()> {
        let behind = self.length.saturating_sub(end);
        if behind == 0 {
            return Ok(());
        }
        if behind > TAIL_BYTES {
            return Err(io::Error::other(
                "the transcript is far longer than its run",
            ));
        }
        let mut tail = vec![0; usize::try_from(behind).map_err(io::Error::other)?];
        self.file.read_exact_at(&mut tail, end)?;
        set_aside(&self.dir, &tail)?;
        self.file.set_len(end)?;
        self.length = end;
        self.dirty = true;
        Ok(())
    }

    /// Puts the lines that the log has up to `upto` into the file once more, and syncs it.
    pub(super) fn rewrite(shared: &Shared, stream: &Arc<RunStream>, upto: Head) -> io::Result<()> {
        let mut sheet = Self::open(shared, stream, &upto)?;
        let anchor = stream.published().anchor;
        if anchor.bytes < upto.bytes {
            render_again(shared, stream, anchor, upto, |at, lines| {
                sheet.file.write_all_at(lines, at)
            })?;
        }
        (sheet.dirty, sheet.fresh) = (true, true);
        sheet.sync()
    }

    /// Closes it; what was written and perhaps not synced: up to where.
    pub(super) fn unsynced(self) -> Option<(Arc<RunStream>, Head)> {
        self.dirty.then(|| (Arc::clone(&self.stream), self.upto))
    }

    /// Whether something was written, perhaps, since its last sync.
    pub(super) const fn is_dirty(&self) -> bool {
        self.dirty
    }

    /// Its file system was synced.
    pub(super) fn synced(&mut self) {
        (self.dirty, self.fresh) = (false, false);
    }

    /// Makes what was written survive a power cut.
    pub(super) fn sync(&mut self) -> io::Result<()> {
        if self.fresh {
            self.dir.sync()?;
            match Dir::of_run(&self.stream.spec) {
                Ok(root) => {
                    root.make(Path::new(THREADS))?.sync()?;
                    root.make(Path::new("state"))?.sync()?;
                }
                // What was removed with its project has no place that could be lost.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
            self.fresh = false;
        }
        if self.dirty {
            self.file.sync_data()?;
            self.dirty = false;
        }
        Ok(())
    }
}

fn length(file: &File) -> io::Result<u64> {
    Ok(file.metadata()?.len())
}

/// Lines rendered again are handed on in pieces of about this size.
const PIECE_BYTES: usize = 1 << 20;

/// Renders the lines between two heads of a run once more, and hands them with their offset to `sink`. Blocks.
pub(super) fn render_again(
    shared: &Shared,
    stream: &Arc<RunStream>,
    from: Head,
    to: Head,
    mut sink: impl FnMut(u64, &[u8]) -> io::Result<()>,
) -> io::Result<()> {
    let source = Source::Live(Arc::clone(stream));
    let (mut head, mut at, mut lines) = (from, from.bytes, Vec::new());
    while head.seq < to.seq {
        let page = source.read(shared, head.seq.next(), to.seq);
        for event in page.map_err(io::Error::other)?.events {
            let line = &event.line;
            let fact = Fact {
                run: &stream.id,
                seq: line.seq,
                at: line.timestamp,
                name: &line.event_type,
                payload: &line.payload,
            };
            let signed = event.signed.as_ref().map(|(signature, signer)| Signed {
                signature: *signature,
                signer,
            });
            head.write(&fact, signed.as_ref(), &mut lines);
        }
        if lines.len() >= PIECE_BYTES {
            sink(at, &lines)?;
            at = head.bytes;
            lines.clear();
        }
    }
    if head == to {
        sink(at, &lines)
    } else {
        Err(io::Error::other(
            "its events do not lead to the head on record",
        ))
    }
}

/// Makes the transcript up to `start` of what `there` has of it and what the log has.
fn make_again(
    shared: &Shared,
    stream: &Arc<RunStream>,
    dir: &Dir,
    there: Option<File>,
    start: &Head,
) -> io::Result<File> {
    dir.remove(TEMPORARY)?;
    let file = dir.create(TEMPORARY)?;
    if start.bytes > 0 {
        tracing::warn!(run = %stream.id, "the transcript of a run was removed or cut; it is made again");
    }
    render_again(shared, stream, Head::default(), *start, |at, lines| {
        file.write_all_at(lines, at)
    })?;
    if let Some(old) = there {
        let mut rest = Vec::new();
        old.take(TAIL_BYTES).read_to_end(&mut rest)?;
        let mut now = vec![0; rest.len()];
        file.read_exact_at(&mut now, 0)?;
        if rest != now {
            set_aside(dir, &rest)?;
        }
    }
    dir.rename(TEMPORARY, TRANSCRIPT)?;
    Ok(file)
}

/// Keeps what stood in a transcript and does not belong there.
fn set_aside(dir: &Dir, tail: &[u8]) -> io::Result<()> {
    for number in 1_u32.. {
        let name = format!("transcript.lost-{number}.jsonl");
        match dir.create(&name) {
            Ok(file) => {
                file.write_all_at(tail, 0)?;
                file.sync_all()?;
                dir.sync()?;
                tracing::warn!(
                    file = name,
                    bytes = tail.len(),
                    "a transcript held lines the log does not know; they were moved aside"
                );
                return Ok(());
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
    Err(io::Error::other("no name is left for a lost tail"))
}

/// The directory of a run's files, which is made if it is not there.
pub fn run_dir(root: &Dir, id: &RunId) -> io::Result<Dir> {
    root.state()?.make(&Path::new("threads").join(id.as_str()))
}

/// Where the transcript of a run is whose files are below `files`.
pub(super) fn transcript_path(files: &str, id: &RunId) -> PathBuf {
    let directory = Path::new(files).join(THREADS).join(id.as_str());
    directory.join(TRANSCRIPT)
}

/// The transcript of a run whose files are below `files`, to be read.
pub(super) fn existing_transcript(files: &str, id: &RunId) -> io::Result<File> {
    Dir::root(Path::new(files))?
        .enter(&Path::new(THREADS).join(id.as_str()))?
        .open(TRANSCRIPT)?
        .ok_or_else(|| io::ErrorKind::NotFound.into())
}
