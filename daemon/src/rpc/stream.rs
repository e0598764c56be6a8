//! The streams of runs: events, output of models and tools, and lines of transcripts.

use std::sync::Arc;

use futures_util::{Stream, StreamExt as _, stream};
use rye_core::memory::Charge;
use rye_proto::v1;
use tonic::Status;

use super::encode;
use super::live::{self, LiveStream};
use super::status::of_journal;
use crate::access::{Several, Visible};
use rye_journal::{Cursor, Line, Piece, Read, Reader, Shown};

type StreamItem = Result<v1::StreamResponse, Status>;

/// An event with its complete payload, and the memory that it takes. A reader cut off for lack of memory continues
/// after the cursor of its last event.
async fn event(run: &Visible, line: Line) -> Result<(v1::StreamResponse, Charge), Status> {
    let (line, charge) = run.whole(line).await.map_err(of_journal)?;
    let told = v1::StreamResponse {
        event: Some(encode::event(
            &run.id,
            encode::cursor(&run.id, line.seq),
            line,
        )),
        ..v1::StreamResponse::default()
    };
    Ok((told, charge))
}

/// The events of a run; an error ends the stream.
pub(super) fn events(run: Arc<Visible>, events: Cursor) -> impl Stream<Item = StreamItem> + Send {
    // The memory of an event is held until the next one is requested; by then it has been sent.
    stream::unfold(Some((run, events, None)), |state| async move {
        let (run, mut events, last) = state?;
        let line = loop {
            match events.next().await? {
                Ok(Read::Event { line, .. }) => break Ok(line),
                Ok(Read::At(_)) => {}
                Err(error) => break Err(error),
            }
        };
        drop::<Option<Charge>>(last);
        let shown = match line {
            Ok(line) => event(&run, line).await,
            Err(error) => Err(of_journal(error)),
        };
        Some(match shown {
            Ok((told, charge)) => (Ok(told), Some((run, events, Some(charge)))),
            Err(status) => (Err(status), None),
        })
    })
}

/// The events and deltas of a run in the order of display; an error ends the stream.
pub(super) fn live(run: Arc<Visible>, going: LiveStream) -> impl Stream<Item = StreamItem> + Send {
    stream::unfold(Some((run, going, None)), |state| async move {
        let (run, mut going, last) = state?;
        let shown = going.next(&run).await?;
        drop::<Option<Charge>>(last);
        let of_delta = |delta| v1::StreamResponse {
            delta: Some(delta),
            ..v1::StreamResponse::default()
        };
        let told = match shown {
            Ok(live::LiveItem::Shown(Shown::Line(shown))) => event(&run, shown)
                .await
                .map(|(told, charge)| (told, Some(charge))),
            Ok(live::LiveItem::Shown(Shown::Delta(said))) => {
                Ok((of_delta(encode::delta(&run.id, said)), None))
            }
            Ok(live::LiveItem::Lines(piece)) => Ok((of_delta(encode::lines(&run.id, piece)), None)),
            Err(error) => Err(of_journal(error)),
        };
        Some(match told {
            Ok((told, charge)) => (Ok(told), Some((run, going, charge))),
            Err(status) => (Err(status), None),
        })
    })
}

/// The events of several runs; an error ends the stream. Cursors carry a hash of `log`.
pub(super) fn several(of: Several, log: Arc<str>) -> impl Stream<Item = StreamItem> + Send {
    stream::unfold(Some((of, log, None)), |state| async move {
        let (mut of, log, last) = state?;
        let next = of.next().await?;
        drop::<Option<Charge>>(last);
        Some(match next {
            Ok((
                Read::Event {
                    run, spot, line, ..
                },
                charge,
            )) => {
                let cursor = spot.map(|spot| encode::spot(&log, spot));
                let told = v1::StreamResponse {
                    event: Some(encode::event(&run, cursor.unwrap_or_default(), line)),
                    ..v1::StreamResponse::default()
                };
                (Ok(told), Some((of, log, charge)))
            }
            Ok((Read::At(spot), charge)) => {
                let told = v1::StreamResponse {
                    cursor: encode::spot(&log, spot),
                    ..v1::StreamResponse::default()
                };
                (Ok(told), Some((of, log, charge)))
            }
            Err(error) => (Err(of_journal(error)), None),
        })
    })
}

/// The lines of a transcript, then the verdict.
pub(super) fn transcript(
    reader: Reader,
) -> impl Stream<Item = Result<v1::TranscriptResponse, Status>> + Send {
    let pieces = stream::unfold(reader, |mut reader| async move {
        let piece = reader.next().await?;
        Some((piece, reader))
    });
    pieces.flat_map(|piece| {
        let told: Vec<_> = match piece {
            Ok(Piece::Lines(lines)) => lines.into_iter().map(encode::written).map(Ok).collect(),
            Ok(Piece::End(verdict)) => vec![Ok(encode::verdict(verdict))],
            Err(error) => vec![Err(of_journal(error))],
        };
        stream::iter(told)
    })
}
