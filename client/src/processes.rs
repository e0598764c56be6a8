//! Managed processes.

use std::time::Duration;

use rye_proto::{convert, v1};
use tonic::Streaming;

use crate::client::Client;
use crate::error::Error;

/// A stream of lines of a process; see [`Client::process_logs`]. A stream that breaks off is an error and is not reopened.
#[derive(Debug)]
pub struct ProcessLogs {
    client: Client,
    stream: Streaming<v1::ProcessLogsResponse>,
}

impl Client {
    /// Starts a process. Returns when it is ready, has ended, or is not ready in time.
    pub async fn start_process(
        &self,
        request: v1::StartProcessRequest,
    ) -> Result<v1::StartProcessResponse, Error> {
        self.answer(self.processes().start(request).await)
    }

    /// Stops a process. It is over when this returns.
    pub async fn stop_process(&self, handle: &str) -> Result<v1::Process, Error> {
        let handle = handle.to_owned();
        let request = v1::StopProcessRequest { handle };
        let answer = self.answer(self.processes().stop(request).await)?;
        Ok(answer.process.unwrap_or_default())
    }

    /// Stops a process and starts it again.
    pub async fn restart_process(&self, handle: &str) -> Result<v1::Process, Error> {
        let handle = handle.to_owned();
        let request = v1::RestartProcessRequest { handle };
        let answer = self.answer(self.processes().restart(request).await)?;
        Ok(answer.process.unwrap_or_default())
    }

    /// Freezes a process. It stands still when this returns.
    pub async fn freeze_process(&self, handle: &str) -> Result<v1::Process, Error> {
        let handle = handle.to_owned();
        let request = v1::FreezeProcessRequest { handle };
        let answer = self.answer(self.processes().freeze(request).await)?;
        Ok(answer.process.unwrap_or_default())
    }

    /// Lets a frozen process go on.
    pub async fn thaw_process(&self, handle: &str) -> Result<v1::Process, Error> {
        let handle = handle.to_owned();
        let request = v1::ThawProcessRequest { handle };
        let answer = self.answer(self.processes().thaw(request).await)?;
        Ok(answer.process.unwrap_or_default())
    }

    pub async fn process(&self, handle: &str) -> Result<v1::Process, Error> {
        let handle = handle.to_owned();
        let request = v1::ProcessStatusRequest { handle };
        let answer = self.prompt(self.processes().status(request)).await?;
        Ok(answer.process.unwrap_or_default())
    }

    /// Returns the processes of `project`, or of all if it is empty; with `all` those that have ended, too.
    pub async fn list_processes(
        &self,
        project: String,
        all: bool,
    ) -> Result<Vec<v1::Process>, Error> {
        let request = v1::ListProcessesRequest { project, all };
        Ok(self.prompt(self.processes().list(request)).await?.processes)
    }

    /// Waits for `condition`, or until `timeout` (`None`: no limit).
    pub async fn wait_process(
        &self,
        request: v1::WaitProcessRequest,
        timeout: Option<Duration>,
    ) -> Result<v1::WaitProcessResponse, Error> {
        let request = v1::WaitProcessRequest {
            timeout_ms: timeout.map_or(0, |timeout| convert::milliseconds(timeout).max(1)),
            ..request
        };
        self.answer(self.processes().wait(request).await)
    }

    /// Opens the stream of what a process has printed.
    pub async fn process_logs(
        &self,
        request: v1::ProcessLogsRequest,
    ) -> Result<ProcessLogs, Error> {
        let stream = self.answer(self.processes().logs(request).await)?;
        Ok(ProcessLogs {
            client: self.clone(),
            stream,
        })
    }
}

impl ProcessLogs {
    /// Returns the next lines, or `None` at the end of the stream.
    pub async fn next(&mut self) -> Result<Option<v1::ProcessLogsResponse>, Error> {
        let message = self.stream.message().await;
        message.map_err(|status| self.client.error(&status))
    }
}
