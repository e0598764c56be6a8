//! Transcript of one run: its lines as written, and the verdict of the daemon's check.

use rye_proto::v1;
use tonic::Streaming;

use crate::client::Client;
use crate::error::Error;

/// One message of a transcript stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Piece {
    Line(v1::TranscriptLine),
    /// Result of the daemon's check. It is always the last piece.
    Verdict(v1::TranscriptVerdict),
}

/// A transcript that is being read; see [`Client::transcript`]. A stream that breaks off is an error and is not
/// reopened.
#[derive(Debug)]
pub struct Transcript {
    client: Client,
    stream: Streaming<v1::TranscriptResponse>,
}

impl Client {
    /// Opens the transcript of a run.
    pub async fn transcript(&self, request: v1::TranscriptRequest) -> Result<Transcript, Error> {
        let stream = self.answer(self.runs().transcript(request).await)?;
        Ok(Transcript {
            client: self.clone(),
            stream,
        })
    }
}

impl Transcript {
    /// Returns the next piece. The last one is the verdict; a stream that ends without it is an error.
    pub async fn next(&mut self) -> Result<Piece, Error> {
        loop {
            let message = self.stream.message().await;
            let message = message.map_err(|status| self.client.error(&status))?;
            let Some(v1::TranscriptResponse { line, verdict }) = message else {
                return Err(Error::Malformed {
                    what: "a transcript without a verdict".to_owned(),
                });
            };
            let piece = line.map(Piece::Line);
            if let Some(piece) = piece.or(verdict.map(Piece::Verdict)) {
                return Ok(piece);
            }
        }
    }
}
