//! Transport to a server that is a process: each message is a line.

use std::io;
use std::sync::Arc;

use rmcp::RoleClient;
use rmcp::service::TxJsonRpcMessage;
use rmcp::transport::Transport;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::unix::pipe;
use tokio::sync::Mutex;

use super::inbox::{Inbox, MOST_MESSAGE, Message};

/// Bytes per read: the default capacity of a pipe.
const CHUNK: usize = 64 * 1024;

/// The two pipes of a server.
#[derive(Debug)]
pub(super) struct Lines {
    stdin: Arc<Mutex<Option<pipe::Sender>>>,
    stdout: pipe::Receiver,
    /// Received bytes that were not returned yet.
    read: Vec<u8>,
    /// Length of their prefix that has no line end.
    searched: usize,
    inbox: Inbox,
}

impl Lines {
    pub(super) fn new((stdin, stdout): (pipe::Sender, pipe::Receiver), inbox: Inbox) -> Self {
        Self {
            stdin: Arc::new(Mutex::new(Some(stdin))),
            stdout,
            read: Vec::new(),
            searched: 0,
            inbox,
        }
    }

    /// The next complete line.
    fn line(&mut self) -> Option<Vec<u8>> {
        let behind = &self.read[self.searched..];
        let Some(at) = behind.iter().position(|byte| *byte == b'\n') else {
            self.searched = self.read.len();
            return None;
        };
        let rest = self.read.split_off(self.searched + at + 1);
        self.searched = 0;
        Some(std::mem::replace(&mut self.read, rest))
    }
}

/// True if a line is JSON or an attempt at it. Other lines are log output that the server writes to the wrong stream.
fn is_message(line: &[u8]) -> bool {
    let line = line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line);
    line.starts_with(b"{") || line.starts_with(b"[{")
}

impl Transport<RoleClient> for Lines {
    type Error = io::Error;

    fn send(
        &mut self,
        message: TxJsonRpcMessage<RoleClient>,
    ) -> impl Future<Output = Result<(), io::Error>> + Send + 'static {
        self.inbox.note(&message);
        let stdin = Arc::clone(&self.stdin);
        async move {
            let mut line = serde_json::to_vec(&message)?;
            line.push(b'\n');
            match &mut *stdin.lock().await {
                Some(stdin) => stdin.write_all(&line).await,
                None => Err(io::ErrorKind::BrokenPipe.into()),
            }
        }
    }

    /// Cancel safe: received bytes stay buffered.
    async fn receive(&mut self) -> Option<Message> {
        loop {
            if self.inbox.is_broken() {
                return None;
            }
            if let Some(line) = self.line() {
                let message = line.trim_ascii();
                if is_message(message) {
                    if let Some(message) = self.inbox.take(message) {
                        return Some(message);
                    }
                } else if !message.is_empty() {
                    self.inbox.noise(message);
                }
                // A server that writes without pause must not monopolise this worker.
                tokio::task::yield_now().await;
                continue;
            }
            if self.read.len() > MOST_MESSAGE {
                let most = MOST_MESSAGE >> 20;
                let fault = format!("it sent a message of more than {most} MiB");
                self.inbox.break_off(&fault);
                return None;
            }
            self.read.reserve(CHUNK);
            match self.stdout.read_buf(&mut self.read).await {
                Ok(0) => {
                    self.inbox.break_off("it closed its output");
                    return None;
                }
                Ok(_) => {}
                Err(error) => {
                    let fault = format!("its output cannot be read: {error}");
                    self.inbox.break_off(&fault);
                    return None;
                }
            }
        }
    }

    async fn close(&mut self) -> Result<(), io::Error> {
        // A blocked write keeps the pipe open; it is closed when its task ends.
        if let Ok(mut stdin) = self.stdin.try_lock() {
            drop(stdin.take());
        }
        Ok(())
    }
}
