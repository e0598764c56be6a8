//! The transcript of one run, line by line as it was written, with what the daemon found when it checked it.

use rye_proto::v1;
use tonic::Streaming;

use crate::client::Client;
use crate::error::Error;

/// What a transcript comes to, piece by piece.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Piece {
    /// A line.
    Line(v1::TranscriptLine),
    /// There are no more.
    Verdict(v1::TranscriptVerdict),
}

/// A transcript that is being read; see [`Client::transcript`]. One that breaks off in the middle is an error: it is not asked for again.
#[derive(Debug)]
pub struct Transcript {
    client: Client,
    stream: Streaming<v1::TranscriptResponse>,
}

impl Client {
    /// Reads the transcript of a run.
    pub async fn transcript(&self, request: v1::TranscriptRequest) -> Result<Transcript, Error> {
        let stream = self.answer(self.runs().transcript(request).await)?;
        Ok(Transcript {
            client: self.clone(),
            stream,
        })
    }
}

impl Transcript {
    /// The next piece. The last one is the verdict.
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
