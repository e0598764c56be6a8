//! What the tools of a run print.

use rye_proto::v1;
use tonic::Streaming;

use crate::client::Client;
use crate::error::Error;

/// Lines that are being read; see [`Client::logs`]. A stream that breaks off is an error: it is not asked for again.
#[derive(Debug)]
pub struct Logs {
    client: Client,
    stream: Streaming<v1::LogsResponse>,
}

impl Client {
    /// Reads what the tools of a run print.
    pub async fn logs(&self, request: v1::LogsRequest) -> Result<Logs, Error> {
        let stream = self.answer(self.runs().logs(request).await)?;
        Ok(Logs {
            client: self.clone(),
            stream,
        })
    }
}

impl Logs {
    /// The next lines; none if there are no more.
    pub async fn next(&mut self) -> Result<Option<v1::LogsResponse>, Error> {
        let message = self.stream.message().await;
        message.map_err(|status| self.client.error(&status))
    }
}
