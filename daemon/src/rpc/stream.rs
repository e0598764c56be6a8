//! What a stream of a run carries: its events, and what its model says meanwhile.

use std::sync::Arc;

use futures_util::Stream;
use rye_proto::v1;
use tonic::Status;

use super::encode;
use crate::access::Visible;
use crate::journal::{Line, Live, Shown};

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
    futures_util::stream::unfold((run, live), |(run, mut live)| async move {
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
