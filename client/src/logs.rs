//! Output of the tools of a run.

use rye_proto::v1;
use tonic::Streaming;

use crate::client::Client;
use crate::error::Error;

/// A stream of log lines; see [`Client::logs`]. A stream that breaks off is an error and is not reopened.
#[derive(Debug)]
pub struct Logs {
    client: Client,
    stream: Streaming<v1::LogsResponse>,
}

impl Client {
    /// Opens the stream of what the tools of a run print.
    pub async fn logs(&self, request: v1::LogsRequest) -> Result<Logs, Error> {
        let stream = self.answer(self.runs().logs(request).await)?;
        Ok(Logs {
            client: self.clone(),
            stream,
        })
    }
}

impl Logs {
    /// Returns the next lines, or `None` at the end of the stream.
    pub async fn next(&mut self) -> Result<Option<v1::LogsResponse>, Error> {
        let message = self.stream.message().await;
        message.map_err(|status| self.client.error(&status))
    }
}
