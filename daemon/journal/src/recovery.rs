//! Opens the journal: base and log result in the state before the end, or the open is refused and changes nothing.
//! History is opened, and not read.
//!
//! **Order**: everything is read and checked before anything is written. A bad frame is the torn end of the last write
//! if no sound frame after it shows that it was acknowledged; otherwise the log is corrupt and the start stops. The
//! sound frames of the last segment are then copied into a new file that replaces it atomically and is synced before
//! any part of the daemon acts on them.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::Arc;

use crate::history;
use rye_core::clock::Timestamp;
use rye_core::frame::{Frame, SegmentId};
use rye_core::id::{Epoch, Lsn};
use rye_core::ledger::Ledger;
use rye_core::memory::Memory;
use rye_core::state::{Change, State};

use crate::base::{Base, Stored};
use crate::error::Error;
use crate::faults::Faults;
use crate::jobs::{Commit, Entry, Replayed};
use crate::log::segment::{self, Pool, Segment};
use crate::log::{self, FrameLocation, FrameTable, size};
use crate::options::Options;
use crate::record::{Body, Record, Rendered};
use crate::sequencer::Positions;
use crate::sweeper::Sweep;
use rye_host::blobs;

/// The recovered state.
#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) base: Lsn,
    pub(crate) last: Lsn,
    /// Epoch of the previous process.
    pub(crate) epoch: Epoch,
    pub(crate) state: State,
    /// The open accounts as of the base.
    pub(crate) accounts: Ledger,
    pub(crate) positions: Positions,
    /// The frames after the base, to be published again.
    pub(crate) backlog: Vec<Replayed>,
    pub(crate) objects: blobs::Store,
    pub(crate) history: history::Store,
    /// Messages about data that history has lost.
    pub(crate) history_notes: Vec<String>,
    pub(crate) pool: Pool,
    pub(crate) places: FrameTable,
    pub(crate) tail: Segment,
    pub(crate) tail_end: u64,
    /// The sweep of objects that is due.
    pub(crate) sweep: Option<Sweep>,
}

/// Directory of history below the state directory.
const HISTORY: &str = "history";

fn files(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Error {
    let path = path.to_owned();
    move |source| Error::Files { what, path, source }
}

/// Opens the journal in `options.dir`. Blocks.
pub(crate) fn open(options: &Options, faults: Faults) -> Result<Opened, Error> {
    let state = &options.dir;
    let dir = log::directory(state);
    fs::create_dir_all(&dir).map_err(files("make", &dir))?;
    let objects = blobs::Store::open(state.join("objects"));

    let base_path = Base::path(state);
    let base = Base::read(state).map_err(files("read", &base_path))?;
    let ids = segment::list(&dir).map_err(files("list", &dir))?;
    let former = state.join("archive");
    if former.exists() {
        return Err(Error::Former { path: former });
    }
    let has_history = fs::exists(state.join(HISTORY)).map_err(files("read", state))?;
    if ids.is_empty() && (base.is_some() || has_history) {
        return Err(Error::Missing { path: dir });
    }
    let expected = base.as_ref().and_then(|base| base.head.history);
    let expected = expected.map(|(file, length)| history::FileEnd { file, length });

    let mut replay = Replay::new(base.unwrap_or_default(), &objects, &options.memory);
    let tail = scan(&dir, &ids, &mut replay)?;
    replay.clear_suspicions();
    debug_assert_eq!(replay.state.recount(), Ok(()), "what was read adds up");

    // Files are written only from here on.
    let (history, history_notes) = open_history(&state.join(HISTORY), expected)?;
    let last = replay.last.unwrap_or_default().max(replay.base);
    if history.last() > last {
        return Err(Error::Missing { path: dir });
    }
    let runs = replay.state.newest_first(None, None).cloned().collect();
    let sweep = Sweep::if_due(
        state,
        &objects,
        &history,
        replay.base,
        &replay.backlog,
        runs,
    );
    let pool = Pool::open(&dir, options.segment_bytes, faults).map_err(files("open", &dir))?;
    let (tail, tail_end) =
        copy_tail(&dir, &ids, &pool, tail, &mut replay.places).map_err(files("repair", &dir))?;
    for id in &ids {
        if *id < tail.id {
            let path = segment::path(&dir, *id);
            let file = File::open(&path).map_err(files("open", &path))?;
            replay.places.segments.insert(*id, Arc::new(file));
        }
    }
    Ok(Opened {
        base: replay.base,
        last,
        epoch: replay.epoch,
        state: replay.state,
        accounts: replay.accounts,
        positions: replay.positions,
        backlog: replay.backlog,
        places: replay.places,
        history,
        history_notes,
        pool,
        tail,
        tail_end,
        objects,
        sweep,
    })
}

/// Opens history. Losses are logged: no live run depends on lost history, so the start continues.
fn open_history(
    dir: &Path,
    expected: Option<history::FileEnd>,
) -> Result<(history::Store, Vec<String>), Error> {
    let options = history::Options {
        expected,
        ..history::Options::default()
    };
    let (history, found) = history::Store::open(dir, options).map_err(Error::History)?;
    let lost = found.lost.iter();
    let lost = lost.map(|(first, last)| format!("positions {first} to {last} are lost"));
    let notes: Vec<String> = found.notes.into_iter().chain(lost).collect();
    for note in &notes {
        tracing::error!(%note, "history is not as it was written");
    }
    Ok((history, notes))
}

/// The last segment in use: its sound bytes that are still needed.
#[derive(Debug)]
struct Tail {
    id: SegmentId,
    needed: Vec<u8>,
    /// Offset of `needed` in the old file.
    skipped: u64,
    /// True if no bytes follow its sound frames.
    is_sound: bool,
}

/// Reads all segments in order into `replay`.
fn scan(dir: &Path, ids: &[SegmentId], replay: &mut Replay<'_>) -> Result<Option<Tail>, Error> {
    let mut tail = None;
    for (place, id) in ids.iter().enumerate() {
        let path = segment::path(dir, *id);
        let bytes = frames(&path)?;
        let mut at = 0;
        let mut needed_from = None;
        while let Some(frame) =
            Frame::decode(*id, &bytes[at..]).filter(|frame| replay.follows(frame.lsn))
        {
            if frame.lsn > replay.base {
                needed_from.get_or_insert(at);
            }
            replay.frame(&path, at, &frame)?;
            at += frame.encoded_len();
        }
        let from = needed_from.unwrap_or(at);
        let is_sound = bytes[at..].iter().all(|byte| *byte == 0);
        tail = Some(Tail {
            id: *id,
            needed: bytes[from..at].to_vec(),
            skipped: size(from),
            is_sound,
        });
        if !is_sound {
            let mut claims = LaterFrames::default();
            claims.add(*id, &bytes[at..]);
            for later in &ids[place + 1..] {
                let path = segment::path(dir, *later);
                claims.add(*later, &frames(&path)?);
            }
            if claims.contradict(replay) {
                let offset = size(at);
                return Err(Error::Corrupt { path, offset });
            }
            return Ok(tail);
        }
    }
    Ok(tail)
}

/// Reads the frames of a segment. A segment without its trailer was cut. A crash does not cut a file that had its full
/// length before its first frame.
fn frames(path: &Path) -> Result<Vec<u8>, Error> {
    let mut bytes = fs::read(path).map_err(files("read", path))?;
    if !bytes.ends_with(segment::TRAILER) {
        return Err(Error::Missing {
            path: path.to_owned(),
        });
    }
    bytes.truncate(bytes.len() - segment::TRAILER.len());
    Ok(bytes)
}

/// Evidence in the sound frames after a bad one.
#[derive(Debug, Default)]
struct LaterFrames {
    durable: Lsn,
    first: Option<Lsn>,
    last: Lsn,
}

impl LaterFrames {
    fn add(&mut self, id: SegmentId, bytes: &[u8]) {
        for frame in Frame::search(id, bytes) {
            self.durable = self.durable.max(frame.durable);
            self.last = self.last.max(frame.lsn);
            self.first = Some(self.first.map_or(frame.lsn, |first| first.min(frame.lsn)));
        }
    }

    /// True if the bad frame was once on disk: a later frame or the base was written after its sync.
    fn contradict(&self, replay: &Replay<'_>) -> bool {
        let bad = match (replay.last, self.first) {
            (Some(last), _) => last.next(),
            (None, Some(first)) => Lsn(first.0.saturating_sub(1)),
            (None, None) => return false,
        };
        self.durable >= bad || (replay.base >= bad && self.last > replay.base)
    }
}

/// Copies the sound and needed frames of the last segment into a new file with its id, and removes later segments. If
/// the disk has no space for a new file, a segment without bytes after its sound frames is continued in place.
fn copy_tail(
    dir: &Path,
    ids: &[SegmentId],
    pool: &Pool,
    tail: Option<Tail>,
    places: &mut FrameTable,
) -> io::Result<(Segment, u64)> {
    let tail = tail.unwrap_or(Tail {
        id: SegmentId(1),
        needed: Vec::new(),
        skipped: 0,
        is_sound: false,
    });
    for id in ids.iter().filter(|id| **id > tail.id) {
        fs::remove_file(segment::path(dir, *id))?;
    }
    let used = size(tail.needed.len());
    let (taken, capacity) = match pool.take_now(used) {
        Err(error) if tail.is_sound && error.kind() == io::ErrorKind::StorageFull => {
            tracing::warn!(%error, "the disk is full: the last log segment is continued in place");
            return Ok((pool.reopen(tail.id)?, tail.skipped + used));
        }
        taken => taken?,
    };
    let file = fs::OpenOptions::new().write(true).open(&taken)?;
    file.write_all_at(&tail.needed, 0)?;
    file.sync_all()?;
    for place in places.frames.iter_mut().rev() {
        if place.segment != tail.id {
            break;
        }
        place.offset -= tail.skipped;
    }
    Ok((pool.install(&taken, tail.id, capacity)?, used))
}

/// The state, updated with every frame.
#[derive(Debug)]
struct Replay<'a> {
    objects: &'a blobs::Store,
    base: Lsn,
    last: Option<Lsn>,
    epoch: Epoch,
    /// True if the epoch that was read last was closed in order.
    closed: bool,
    state: State,
    /// The open accounts as of the base.
    accounts: Ledger,
    positions: Positions,
    backlog: Vec<Replayed>,
    places: FrameTable,
}

impl<'a> Replay<'a> {
    fn new(base: Base, objects: &'a blobs::Store, memory: &Arc<Memory>) -> Self {
        let Base { head: base, runs } = base;
        let mut positions = Positions::default();
        for Stored {
            run, head, spans, ..
        } in &runs
        {
            positions.restore(run, *head, spans.clone(), base.lsn);
        }
        let runs = runs.into_iter().map(|stored| stored.run);
        let state = State::new(runs, base.ledger, Arc::clone(memory));
        Self {
            objects,
            base: base.lsn,
            last: None,
            epoch: base.epoch,
            closed: false,
            positions,
            accounts: state.ledger().clone(),
            state,
            backlog: Vec::new(),
            places: FrameTable {
                first: base.lsn.next(),
                ..FrameTable::default()
            },
        }
    }

    /// Handles the start of an epoch: if the previous one was closed in order, no run is a crash suspect.
    fn clear_suspicions(&mut self) {
        if std::mem::take(&mut self.closed) {
            self.state.clear_suspicions();
        }
    }

    /// True if a frame at `lsn` comes next. The log may begin anywhere before the end of the base.
    fn follows(&self, lsn: Lsn) -> bool {
        match self.last {
            Some(last) => lsn == last.next(),
            None => lsn <= self.base.next(),
        }
    }

    fn frame(&mut self, path: &Path, at: usize, frame: &Frame<'_>) -> Result<(), Error> {
        self.last = Some(frame.lsn);
        if frame.lsn <= self.base {
            return Ok(());
        }
        self.places.frames.push_back(FrameLocation {
            segment: frame.segment,
            offset: size(at),
            bytes: frame.encoded_len(),
        });
        let unreadable = |source: Box<dyn std::error::Error + Send + Sync>| Error::Unreadable {
            path: path.to_owned(),
            offset: size(at),
            source,
        };
        match serde_json::from_slice(frame.payload).map_err(|source| unreadable(source.into()))? {
            Body::Epoch { epoch, .. } => {
                self.epoch = self.epoch.max(epoch);
                self.clear_suspicions();
            }
            Body::Closed { .. } => self.closed = true,
            Body::Removed(removal) => {
                for removed in &removal.runs {
                    drop(self.state.evict(&removed.run));
                    self.positions.forget(&removed.run);
                }
                self.state.remove(removal.runs.iter().map(|run| &run.run));
                self.backlog.push(Replayed::Removal(frame.lsn, removal));
            }
            Body::Commit { at, records } => {
                let commit = self.commit(frame.lsn, at, &records);
                let commit = commit.map_err(unreadable)?;
                self.backlog.push(Replayed::Commit(commit));
            }
        }
        Ok(())
    }

    fn commit(
        &mut self,
        lsn: Lsn,
        at: Timestamp,
        records: &[Record],
    ) -> Result<Commit, Box<dyn std::error::Error + Send + Sync>> {
        let mut changes = Vec::with_capacity(records.len());
        for record in records {
            let event = record.event.event(self.objects)?;
            changes.push(Change::event(&record.run, event));
        }
        let applied = self.state.replay(at, changes)?;
        let runs = applied.runs.iter();
        let streams: Vec<_> = runs.map(|run| self.positions.advance(run, lsn)).collect();
        let mut entries = Vec::with_capacity(records.len());
        let changes = applied.changes.iter().zip(applied.facts);
        for (record, (change, fact)) in records.iter().zip(changes) {
            if fact.seq != record.seq {
                return Err(format!(
                    "event {} of run {} is in the place of event {}",
                    record.seq, record.run, fact.seq
                )
                .into());
            }
            let text = Rendered::of_logged(&record.event);
            let stream = &streams[fact.run];
            entries.push(Entry::new(stream, &change.event, fact, text));
        }
        Ok(Commit {
            lsn,
            at,
            entries,
            records: Vec::new(),
            closed: applied.rows.closed.clone(),
            rows: applied.rows,
        })
    }
}
