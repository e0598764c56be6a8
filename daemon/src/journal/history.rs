//! What a run has done so far, read back: from the log while it holds the events, from the verified transcript before.

use std::io::{self, BufReader};
use std::path::PathBuf;

use rye_core::id::{Lsn, RunId, Seq};

use super::record::{Body, Record, Rendered};
use super::sheet::{existing_transcript, transcript_path};
use super::track::Track;
use super::transcript::{self, Fact, Head};
use super::{Error, Line, Shared};

/// Lines rendered again are handed on in pieces of about this size.
const PIECE_BYTES: usize = 1 << 20;

/// A frame that should be in the log and is not, or says something else.
fn lost(lsn: Lsn, seq: Seq) -> io::Error {
    io::Error::new(
        io::ErrorKind::NotFound,
        format!("event {seq} is not in the log at position {lsn}"),
    )
}

/// One record of the log.
fn record(
    shared: &Shared,
    run: &RunId,
    seq: Seq,
    lsn: Lsn,
) -> io::Result<(rye_core::clock::Timestamp, Record)> {
    let bytes = shared.log.read(lsn)?.ok_or_else(|| lost(lsn, seq))?;
    match serde_json::from_slice(&bytes)? {
        Body::Commit { at, records } => records
            .into_iter()
            .find(|record| record.run == *run && record.seq == seq)
            .map(|record| (at, record))
            .ok_or_else(|| lost(lsn, seq)),
        Body::Epoch { .. } | Body::Closed { .. } => Err(lost(lsn, seq)),
    }
}

/// Renders the lines between two heads of a run once more, and hands them with their offset to `sink`.
pub(super) fn render_again(
    shared: &Shared,
    track: &Track,
    from: Head,
    to: Head,
    mut sink: impl FnMut(u64, &[u8]) -> io::Result<()>,
) -> io::Result<()> {
    let places = track.published().places(from.seq.next(), to.seq);
    let mut head = from;
    let mut at = from.bytes;
    let mut lines = Vec::new();
    for (seq, lsn) in places {
        let (time, record) = record(shared, &track.id, seq, lsn)?;
        let event = record
            .event
            .event(&shared.objects)
            .map_err(io::Error::other)?;
        let text = Rendered::again(event.name(), &record.event);
        let fact = Fact {
            run: &track.id,
            seq,
            at: time,
            name: text.name,
            payload: &text.payload,
            boundary: event.is_boundary(),
        };
        head.write(&fact, shared.notary.as_ref(), &mut lines);
        if lines.len() >= PIECE_BYTES {
            sink(at, &lines)?;
            at = head.bytes;
            lines.clear();
        }
    }
    if head == to {
        sink(at, &lines)
    } else {
        Err(io::Error::new(
            io::ErrorKind::NotFound,
            format!(
                "the log no longer holds the events {} to {}",
                from.seq, to.seq
            ),
        ))
    }
}

/// The events `first..=last` of a run in memory. Blocks.
pub(super) fn of_track(
    shared: &Shared,
    track: &Track,
    first: Seq,
    last: Seq,
) -> Result<Vec<Line>, Error> {
    // Nothing stands before the first event, in particular no transcript that would have to be there.
    let first = first.max(Seq(1));
    loop {
        let (anchor, places) = {
            let published = track.published();
            (published.anchor, published.places(first, last))
        };
        match from_log(shared, track, &places) {
            Ok(recent) => {
                let mut lines = if first <= anchor.seq {
                    of_transcript(&track.birth.files, &track.id, &anchor, first)?
                } else {
                    Vec::new()
                };
                lines.retain(|line| line.seq <= last);
                lines.extend(recent);
                return Ok(lines);
            }
            // A checkpoint came in between: the transcript has them now.
            Err(_) if track.published().anchor.seq > anchor.seq => {}
            Err(source) => {
                return Err(Error::DataLoss {
                    run: track.id.clone(),
                    source: Box::new(source),
                });
            }
        }
    }
}

fn from_log(shared: &Shared, track: &Track, places: &[(Seq, Lsn)]) -> io::Result<Vec<Line>> {
    places
        .iter()
        .map(|(seq, lsn)| {
            let (timestamp, record) = record(shared, &track.id, *seq, *lsn)?;
            Ok(Line {
                seq: *seq,
                lsn: *lsn,
                timestamp,
                payload: record.event.shown(),
                event_type: record.event.event_type,
            })
        })
        .collect()
}

/// The events from `first` to `head` as the run's transcript tells them, all of it verified. Blocks.
pub(super) fn of_transcript(
    files: &str,
    run: &RunId,
    head: &Head,
    first: Seq,
) -> Result<Vec<Line>, Error> {
    let file = existing_transcript(files, run);
    let lines = file
        .map_err(transcript::Fault::Read)
        .and_then(|file| transcript::verify(BufReader::new(file), run, head));
    let mut lines = lines.map_err(|fault| damaged(files, run, fault))?;
    lines.retain(|line| line.seq >= first);
    Ok(lines)
}

/// The transcript of `run`, whose files are below `files`, is not what was written.
pub(super) fn damaged(files: &str, run: &RunId, source: transcript::Fault) -> Error {
    let path = transcript_path(files, run);
    Error::DataLoss {
        run: run.clone(),
        source: Box::new(Damaged { path, source }),
    }
}

#[derive(Debug, thiserror::Error)]
#[error("`{}` was changed, cut or removed after it was written", path.display())]
struct Damaged {
    path: PathBuf,
    #[source]
    source: transcript::Fault,
}
