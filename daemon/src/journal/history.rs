//! The records of a run, read back from the log, and its transcript rendered from them once more.

use std::io;
use std::ops::ControlFlow;
use std::path::PathBuf;

use rye_core::clock::Timestamp;
use rye_core::id::{Lsn, RunId, Seq};
use rye_core::transcript::{Fact, Fault, Head};

use super::record::{Body, Record, Rendered};
use super::run_stream::RunStream;
use super::transcript_file::transcript_path;
use super::{Error, Shared, Signer};

/// Lines rendered again are handed on in pieces of about this size.
const PIECE_BYTES: usize = 1 << 20;

/// A frame that should be in the log and is not, or says something else.
fn lost(lsn: Lsn, seq: Seq) -> io::Error {
    io::Error::new(
        io::ErrorKind::NotFound,
        format!("event {seq} is not in the log at position {lsn}"),
    )
}

/// Hands the records of `run` at `places`, which are in order, to `sink`, until it has enough. A frame is read once, however many of them it
/// holds.
pub(super) fn each_record(
    shared: &Shared,
    run: &RunId,
    places: &[(Seq, Lsn)],
    mut sink: impl FnMut(Lsn, Timestamp, Record) -> io::Result<ControlFlow<()>>,
) -> io::Result<()> {
    for frame in places.chunk_by(|(_, one), (_, next)| one == next) {
        let Some(&(first, lsn)) = frame.first() else {
            continue;
        };
        let bytes = shared.log.read(lsn)?.ok_or_else(|| lost(lsn, first))?;
        let (at, records) = match serde_json::from_slice(&bytes)? {
            Body::Commit { at, records } => (at, records),
            Body::Epoch { .. } | Body::Closed { .. } => return Err(lost(lsn, first)),
        };
        let mut records = records.into_iter().filter(|record| record.run == *run);
        for &(seq, _) in frame {
            let record = records
                .find(|record| record.seq == seq)
                .ok_or_else(|| lost(lsn, seq))?;
            if sink(lsn, at, record)?.is_break() {
                return Ok(());
            }
        }
    }
    Ok(())
}

/// Appends the line of `event` to `out`, and the checkpoint that `signer` signs if there is one.
pub(super) fn render(
    head: &mut Head,
    event: &Fact<'_>,
    signer: Option<&dyn Signer>,
    out: &mut Vec<u8>,
) {
    head.write_event(event, out);
    if let Some(signer) = signer {
        let signature = signer.sign(&head.digest(event.run), event.at);
        head.write_checkpoint(event.run, event.at, &signature, out);
    }
}

/// Renders the lines between two heads of a run once more, and hands them with their offset to `sink`.
pub(super) fn render_again(
    shared: &Shared,
    stream: &RunStream,
    from: Head,
    to: Head,
    mut sink: impl FnMut(u64, &[u8]) -> io::Result<()>,
) -> io::Result<()> {
    let places = stream.published().places(from.seq.next(), to.seq);
    let mut head = from;
    let mut at = from.bytes;
    let mut lines = Vec::new();
    each_record(shared, &stream.id, &places, |_, time, record| {
        let event = record
            .event
            .event(&shared.objects)
            .map_err(io::Error::other)?;
        let text = Rendered::again(event.name(), &record.event);
        let fact = Fact {
            run: &stream.id,
            seq: record.seq,
            at: time,
            name: text.name,
            payload: &text.payload,
        };
        let is_boundary = event.facets().boundary;
        let signer = is_boundary.then(|| shared.signer.as_ref());
        render(&mut head, &fact, signer, &mut lines);
        if lines.len() >= PIECE_BYTES {
            sink(at, &lines)?;
            at = head.bytes;
            lines.clear();
        }
        Ok(ControlFlow::Continue(()))
    })?;
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

/// The transcript of `run`, whose files are below `files`, is not what was written.
pub(super) fn damaged(files: &str, run: &RunId, source: Fault) -> Error {
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
    source: Fault,
}
