//! The output of a run's tools, as a stream.
//!
//! **Order.** First the existing output, then, if the caller follows, new output. **Bounds.** Each piece is read when
//! the caller takes it. A slow caller blocks only its own stream; after a pause it continues with what the log still
//! keeps.

use std::collections::VecDeque;
use std::future::Future;
use std::io;
use std::pin::Pin;

use futures_util::{Stream, stream};
use rye_core::id::RunId;
use rye_proto::v1;
use tonic::Status;

use super::status::with_reason;
use crate::access::Visible;
use crate::async_log::{Piece, Reader};
use crate::supervisor::Error;

/// Resolves when the run has ended or is suspended.
type Rest = Pin<Box<dyn Future<Output = Result<(), Error>> + Send>>;

pub(super) struct Lines {
    reader: Reader,
    /// The run, if nothing was read so far and missing files are to be reported.
    unread: Option<RunId>,
    /// Read and not yet sent.
    pieces: VecDeque<Piece>,
    tail: Option<u32>,
    /// Resolves when following ends; `None` if the caller does not follow, or once it has resolved.
    rest: Option<Rest>,
}

impl Lines {
    /// The last `tail` lines of `reader`, and with `follow` also new ones.
    pub(super) fn new(run: Visible, reader: Reader, tail: Option<u32>, follow: bool) -> Self {
        let is_over = follow || run.status().is_terminal();
        let unread = is_over.then(|| run.id.clone());
        let rest: Rest = Box::pin(async move { run.settled().await });
        Self {
            reader,
            unread,
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
                self.unread = None;
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
                return self.missing().await;
            };
            tokio::select! {
                () = self.reader.grown() => {}
                // All output up to that moment is on disk; read once more.
                rested = rest => {
                    rested?;
                    self.rest = None;
                }
            }
        }
    }

    /// A remark if there was no output and the files of the run do not exist.
    async fn missing(&mut self) -> Result<Option<Piece>, Status> {
        let Some(run) = self.unread.take() else {
            return Ok(None);
        };
        let is_missing = self.reader.has_no_directory().await;
        if !is_missing.map_err(|error| unread(&error))? {
            return Ok(None);
        }
        let text = format!(
            "[no output is left: `.ai/state/threads/{run}` does not exist; `ryectl steps {run}` and `ryectl events {run}` \
             show the results]\n"
        );
        Ok(Some(Piece {
            heading: String::new(),
            text,
        }))
    }
}

fn unread(error: &io::Error) -> Status {
    let text = format!("async.log of the run cannot be read: {error}");
    with_reason(Status::unavailable(text), "unavailable")
}
