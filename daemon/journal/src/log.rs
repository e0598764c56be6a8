//! The log: one writer thread that appends frames, and readers that fetch them.
//!
//! **Owns** the segments and the position in a file of every frame that is still needed. **Never** rewrites a frame;
//! segments are dropped whole. **Order**: jobs are written in the order in which they were queued, which is the order
//! of LSNs. All queued jobs are written together and synced once; then the durable watermark advances. Frames that may
//! wait ([`Syncing::Soon`]) are written immediately too, and share the sync of the frames that follow within
//! [`LINGER`]. **Failure** of a write or a sync is final: the content of the disk is unknown then, so no write follows
//! it.

use std::collections::{BTreeMap, VecDeque};
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use rye_core::frame::{Frame, HEADER_BYTES, SegmentId};
use rye_core::id::Lsn;
use rye_core::model::Syncing;

pub(crate) mod segment;

pub use self::segment::Storage;
use self::segment::{Pool, Segment};
pub(crate) use self::segment::{size, sync_dir};
use crate::coalescing_queue::{CoalescingQueue, LINGER};
use crate::faults::Faults;
use crate::watermark::{Failure, Watermark, lock};
use rye_host::fail_point::{self, FailPlace, Side};

#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) lsn: Lsn,
    pub(crate) body: Vec<u8>,
    /// [`Syncing::Soon`] delays the sync by at most [`LINGER`].
    pub(crate) sync: Syncing,
}

/// Position of a frame in its segment file.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FrameLocation {
    pub(crate) segment: SegmentId,
    pub(crate) offset: u64,
    pub(crate) bytes: usize,
}

#[derive(Debug)]
pub(crate) struct Log {
    pub(crate) dir: PathBuf,
    pub(crate) pool: Pool,
    pub(crate) queue: CoalescingQueue<Vec<Job>>,
    /// Set when the writer begins a new segment: a checkpoint can make the older ones superfluous.
    pub(crate) rolled: AtomicBool,
    frames_on_disk: Mutex<FrameTable>,
    /// Last synced position. It fails with the log.
    pub(crate) durable: Watermark,
    pub(crate) faults: Faults,
}

/// The frames that can be read.
#[derive(Debug, Default)]
pub(crate) struct FrameTable {
    /// Position of the first entry of `frames`.
    pub(crate) first: Lsn,
    pub(crate) frames: VecDeque<FrameLocation>,
    pub(crate) segments: BTreeMap<SegmentId, Arc<File>>,
}

/// Frames that were read together.
#[derive(Debug, Default)]
pub(crate) struct Frames {
    bytes: Vec<u8>,
    /// Position and length of each frame, header included.
    spots: Vec<(Lsn, usize)>,
}

impl Frames {
    /// Positions and bodies of the frames, in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Lsn, &[u8])> {
        let mut at = 0;
        self.spots.iter().map(move |(lsn, bytes)| {
            let body = &self.bytes[at + HEADER_BYTES..at + bytes];
            at += bytes;
            (*lsn, body)
        })
    }
}

impl FrameTable {
    /// Returns the frames from `from` on that follow each other in one segment, and its file. They have at most `most`
    /// bytes together, except that the first is always included.
    fn contiguous(&self, from: Lsn, most: usize) -> (Vec<(Lsn, FrameLocation)>, Option<Arc<File>>) {
        let mut spots: Vec<(Lsn, FrameLocation)> = Vec::new();
        let Some((first, file)) = self.get(from) else {
            return (spots, None);
        };
        let (mut lsn, mut bytes, mut end) = (from, 0, first.offset);
        let at = usize::try_from(from.0.saturating_sub(self.first.0)).unwrap_or(usize::MAX);
        for place in self.frames.range(at.min(self.frames.len())..) {
            let follows = place.segment == first.segment && place.offset == end;
            if !follows || !spots.is_empty() && bytes + place.bytes > most {
                break;
            }
            spots.push((lsn, *place));
            lsn = lsn.next();
            bytes += place.bytes;
            end += size(place.bytes);
        }
        (spots, Some(file))
    }

    fn get(&self, lsn: Lsn) -> Option<(FrameLocation, Arc<File>)> {
        let at = usize::try_from(lsn.0.checked_sub(self.first.0)?).ok()?;
        let place = self.frames.get(at)?;
        Some((*place, Arc::clone(self.segments.get(&place.segment)?)))
    }
}

impl Log {
    pub(crate) fn new(
        dir: PathBuf,
        pool: Pool,
        places: FrameTable,
        last: Lsn,
        faults: Faults,
    ) -> Self {
        Self {
            dir,
            pool,
            queue: CoalescingQueue::default(),
            rolled: AtomicBool::new(false),
            frames_on_disk: Mutex::new(places),
            durable: Watermark::new(last),
            faults,
        }
    }

    /// Queues a frame to be written at `lsn`. Callers have to call it in the order of positions.
    pub(crate) fn append(&self, lsn: Lsn, body: Vec<u8>, sync: Syncing) {
        self.queue.post(|jobs| jobs.push(Job { lsn, body, sync }));
    }

    /// Returns the body of the frame at `lsn`; `None` if the log no longer holds it or does not hold it yet. Blocks.
    pub(crate) fn read(&self, lsn: Lsn) -> io::Result<Option<Vec<u8>>> {
        let found = lock(&self.frames_on_disk).get(lsn);
        let Some((place, file)) = found else {
            return Ok(None);
        };
        let mut bytes = vec![0; place.bytes];
        file.read_exact_at(&mut bytes, place.offset)?;
        self.check(&bytes, place, lsn)?;
        Ok(Some(bytes.split_off(HEADER_BYTES)))
    }

    /// Position of the oldest frame that can be read, or of the next one if there is none.
    pub(crate) fn first(&self) -> Lsn {
        lock(&self.frames_on_disk).first
    }

    /// Number of segments with frames that are needed, including the one that is being written.
    pub(crate) fn segments(&self) -> usize {
        lock(&self.frames_on_disk).segments.len()
    }

    /// Reads the frames from `from` on with one read: those in one segment that have at most `most` bytes together, and
    /// at least one. Returns none if the log does not hold `from`. Blocks.
    pub(crate) fn read_many(&self, from: Lsn, most: usize) -> io::Result<Frames> {
        let (spots, file) = lock(&self.frames_on_disk).contiguous(from, most);
        let Some(((_, first), file)) = spots.first().zip(file) else {
            return Ok(Frames::default());
        };
        let bytes = spots.iter().map(|(_, place)| place.bytes).sum();
        let mut frames = vec![0; bytes];
        file.read_exact_at(&mut frames, first.offset)?;
        let mut at = 0;
        for (lsn, place) in &spots {
            self.check(&frames[at..at + place.bytes], *place, *lsn)?;
            at += place.bytes;
        }
        let spots = spots
            .into_iter()
            .map(|(lsn, place)| (lsn, place.bytes))
            .collect();
        Ok(Frames {
            bytes: frames,
            spots,
        })
    }

    /// Fails if `bytes` are not the frame of `lsn` that was written at `place`.
    fn check(&self, bytes: &[u8], place: FrameLocation, lsn: Lsn) -> io::Result<()> {
        match Frame::decode(place.segment, bytes) {
            Some(frame) if frame.lsn == lsn => Ok(()),
            Some(_) | None => Err(io::Error::new(
                io::ErrorKind::InvalidData,
                format!(
                    "the log is damaged at byte {} of {}",
                    place.offset,
                    segment::path(&self.dir, place.segment).display()
                ),
            )),
        }
    }

    /// Drops frames up to `lsn`, and removes the segments that held no others.
    pub(crate) fn drop_through(&self, lsn: Lsn) -> io::Result<()> {
        let unused = {
            let mut places = lock(&self.frames_on_disk);
            while places.first <= lsn && places.frames.pop_front().is_some() {
                places.first = places.first.next();
            }
            // The last segment is the one being written, even if it holds no frame yet.
            let last = places.segments.keys().next_back().copied();
            let oldest = places.frames.front().map(|place| place.segment).or(last);
            let Some(oldest) = oldest else { return Ok(()) };
            let needed = places.segments.split_off(&oldest);
            std::mem::replace(&mut places.segments, needed)
        };
        for id in unused.keys() {
            fs::remove_file(segment::path(&self.dir, *id))?;
            fail_point::reach(FailPlace::SegmentRemoved);
        }
        if unused.is_empty() {
            Ok(())
        } else {
            sync_dir(&self.dir)
        }
    }
}

/// The writer of the log, run by its own thread.
#[derive(Debug)]
pub(crate) struct Writer {
    log: Arc<Log>,
    segment: SegmentId,
    file: Arc<File>,
    capacity: u64,
    /// Offset of the next write.
    offset: u64,
    /// Encoded frames that are not written yet.
    buffer: Vec<u8>,
    /// Positions of the frames that are not synced yet.
    pending: Vec<FrameLocation>,
    /// LSN of the last encoded frame.
    last: Lsn,
}

impl Writer {
    /// Returns a writer that continues at `offset` of `segment`, after the frame at `last`.
    pub(crate) fn new(log: Arc<Log>, segment: Segment, offset: u64, last: Lsn) -> Self {
        let file = Arc::new(segment.file);
        lock(&log.frames_on_disk)
            .segments
            .insert(segment.id, Arc::clone(&file));
        Self {
            log,
            segment: segment.id,
            file,
            capacity: segment.capacity,
            offset,
            buffer: Vec::new(),
            pending: Vec::new(),
            last,
        }
    }

    /// Writes until the queue is closed. The body of the writer thread.
    pub(crate) fn run(mut self) {
        loop {
            let unsynced = !self.pending.is_empty();
            let jobs = self.log.queue.take(unsynced.then_some(LINGER));
            if let Err(source) = self.write(jobs.value, jobs.closed) {
                tracing::error!(error = %source, "the log cannot be written");
                self.log.durable.fail(Failure::Write(Arc::new(source)));
                return;
            }
            if jobs.closed {
                return;
            }
        }
    }

    /// Writes `jobs`, and syncs unless all of them may wait. With no jobs, the frames written before have waited long
    /// enough and are synced.
    fn write(&mut self, jobs: Vec<Job>, closing: bool) -> io::Result<()> {
        let patient = |job: &Job| job.sync == Syncing::Soon;
        let may_wait = !closing && !jobs.is_empty() && jobs.iter().all(patient);
        for job in jobs {
            let length = size(HEADER_BYTES + job.body.len());
            if self.offset + size(self.buffer.len()) + length > self.capacity {
                self.flush()?;
                self.sync()?;
                if !self.roll(length)? {
                    return Ok(());
                }
            }
            self.end_if(fail_point::ends(Side::Before, job.lsn))?;
            self.encode(&job);
            self.end_if(fail_point::ends(Side::After, job.lsn))?;
        }
        self.flush()?;
        if may_wait { Ok(()) } else { self.sync() }
    }

    /// Ends the process here if a test requests it: encoded frames are on disk, and no caller learns of it.
    fn end_if(&mut self, is_end: bool) -> io::Result<()> {
        if !is_end {
            return Ok(());
        }
        self.flush()?;
        self.file.sync_data()?;
        fail_point::die()
    }

    fn encode(&mut self, job: &Job) {
        let start = self.buffer.len();
        Frame {
            segment: self.segment,
            lsn: job.lsn,
            durable: self.log.durable.get(),
            payload: &job.body,
        }
        .encode(&mut self.buffer);
        self.pending.push(FrameLocation {
            segment: self.segment,
            offset: self.offset + size(start),
            bytes: self.buffer.len() - start,
        });
        self.last = job.lsn;
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.buffer.is_empty() {
            return Ok(());
        }
        self.file.write_all_at(&self.buffer, self.offset)?;
        self.offset += size(self.buffer.len());
        self.buffer.clear();
        self.buffer.shrink_to(1 << 20);
        Ok(())
    }

    fn sync(&mut self) -> io::Result<()> {
        if self.pending.is_empty() {
            return Ok(());
        }
        self.log.faults.before_sync()?;
        self.file.sync_data()?;
        lock(&self.log.frames_on_disk)
            .frames
            .extend(self.pending.drain(..));
        self.log.durable.advance(self.last);
        Ok(())
    }

    /// Continues in the next segment. Returns false if the pool is stopped, because the journal is closing.
    fn roll(&mut self, bytes: u64) -> io::Result<bool> {
        let Some(next) = self.log.pool.take(self.segment.next(), bytes)? else {
            return Ok(false);
        };
        self.segment = next.id;
        self.file = Arc::new(next.file);
        self.capacity = next.capacity;
        self.offset = 0;
        lock(&self.log.frames_on_disk)
            .segments
            .insert(self.segment, Arc::clone(&self.file));
        self.log.rolled.store(true, Ordering::Relaxed);
        Ok(true)
    }
}

/// Directory of the log below the state directory.
pub(crate) fn directory(state: &Path) -> PathBuf {
    state.join("log")
}
