//! What the tools of a run print, as a stream.
//!
//! **Order.** Everything that is there, then, if the caller stays, what comes. **Bounds.** What is handed out was read for it just now:
//! a caller that reads slowly is waited for, and finds what is still kept when it comes back.

use std::collections::VecDeque;
use std::future::Future;
use std::io;
use std::pin::Pin;

use futures_util::{Stream, stream};
use rye_proto::v1;
use tonic::Status;

use super::status::with_reason;
use crate::access::Visible;
use crate::async_log::{Piece, Reader};
use crate::supervisor::Error;

/// Resolves when the run has ended or is suspended.
type Rest = Pin<Box<dyn Future<Output = Result<(), Error>> + Send>>;

/// Where a stream of lines stands.
pub(super) struct Lines {
    reader: Reader,
    /// Read, and not handed out.
    pieces: VecDeque<Piece>,
    tail: Option<u32>,
    /// Until when the caller stays; none if it does not, or that was reached.
    rest: Option<Rest>,
}

impl Lines {
    /// The lines of `run` that `reader` reads: the last `tail` of them, and what comes if `follow` says so.
    pub(super) fn new(run: Visible, reader: Reader, tail: Option<u32>, follow: bool) -> Self {
        let rest: Rest = Box::pin(async move { run.settled().await });
        Self {
            reader,
            pieces: VecDeque::new(),
            tail,
            rest: follow.then_some(rest),
        }
    }

    pub(super) fn into_stream(self) -> impl Stream<Item = Result<v1::LogsResponse, Status>> + Send {
        stream::unfold(Some(self), |lines| async {
            let mut lines = lines?;
            match lines.next().await {
                Ok(Some(Piece { heading, text })) => {
                    Some((Ok(v1::LogsResponse { heading, text }), Some(lines)))
                }
                Ok(None) => None,
                Err(error) => Some((Err(error), None)),
            }
        })
    }

    async fn next(&mut self) -> Result<Option<Piece>, Status> {
        loop {
            if let Some(piece) = self.pieces.pop_front() {
                return Ok(Some(piece));
            }
            let read = match self.tail.take() {
                Some(count) => {
                    let count = usize::try_from(count).unwrap_or(usize::MAX);
                    let last = self.reader.tail(count).await;
                    self.pieces.extend(last.map_err(|error| unread(&error))?);
                    continue;
                }
                None => self.reader.next().await,
            };
            let read = read.map_err(|error| unread(&error))?;
            if !read.is_empty() {
                self.pieces.extend(read);
                continue;
            }
            let Some(rest) = &mut self.rest else {
                return Ok(None);
            };
            tokio::select! {
                () = self.reader.grown() => {}
                // What was printed until then is written by then, and read once more.
                rested = rest => {
                    rested?;
                    self.rest = None;
                }
            }
        }
    }
}

fn unread(error: &io::Error) -> Status {
    let text = format!("async.log of the run cannot be read: {error}");
    with_reason(Status::unavailable(text), "unavailable")
}
