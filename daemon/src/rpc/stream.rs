//! What a stream of a run carries: its events, and what its model says meanwhile; or the lines of its transcript.

use std::sync::Arc;

use futures_util::{Stream, StreamExt as _, stream};
use rye_proto::v1;
use tonic::Status;

use super::encode;
use crate::access::Visible;
use crate::journal::{Line, Live, Piece, Reader, Shown};

/// An event with its payload, however long that is.
pub(super) async fn event(run: &Visible, line: Line) -> Result<v1::StreamResponse, Status> {
    let line = run.whole(line).await?;
    Ok(v1::StreamResponse {
        event: Some(encode::event(&run.id, line)),
        delta: None,
    })
}

/// Events and deltas, in the order in which they may be shown.
pub(super) fn live(
    run: Arc<Visible>,
    live: Live,
) -> impl Stream<Item = Result<v1::StreamResponse, Status>> + Send {
    stream::unfold((run, live), |(run, mut live)| async move {
        let shown = match live.next().await? {
            Ok(Shown::Line(shown)) => event(&run, shown).await,
            Ok(Shown::Delta(said)) => Ok(v1::StreamResponse {
                event: None,
                delta: Some(encode::delta(&run.id, said)),
            }),
            Err(error) => Err(error.into()),
        };
        Some((shown, (run, live)))
    })
}

/// The lines of a transcript, and last the verdict.
pub(super) fn transcript(
    reader: Reader,
) -> impl Stream<Item = Result<v1::TranscriptResponse, Status>> + Send {
    let pieces = stream::unfold(reader, |mut reader| async move {
        let piece = reader.next().await?;
        Some((piece, reader))
    });
    pieces.flat_map(|piece| {
        let told: Vec<_> = match piece {
            Piece::Lines(lines) => lines.into_iter().map(encode::written).collect(),
            Piece::End(verdict) => vec![encode::verdict(verdict)],
        };
        stream::iter(told.into_iter().map(Ok))
    })
}
