//! Transport to a server on another host: each message is a POST, answered by a message or a stream of messages.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use rmcp::RoleClient;
use rmcp::model::{ClientNotification, ClientRequest, JsonRpcMessage, RequestId, ServerResult};
use rmcp::service::TxJsonRpcMessage;
use rmcp::transport::Transport;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::inbox::{Inbox, MOST_MESSAGE, Message};
use super::{LONGEST_CALL, Remote};
use crate::http::{self, Client, HttpResponse, Patience, Request};
use rye_host::task;

/// Time limit for a connection.
const CONNECT: Duration = Duration::from_secs(10);
/// Time limit for the notification that a session ends.
const FAREWELL: Duration = Duration::from_secs(2);
/// Capacity of the queue of received messages; beyond it nothing is read.
const MOST_WAITING: usize = 64;

/// Reason why a message was not delivered or answered.
#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
    #[error(transparent)]
    Http(#[from] http::Failure),
    /// The message cannot be serialised.
    #[error("the message cannot be written: {0}")]
    Unwritable(#[from] serde_json::Error),
    #[error("it answered with status {0}")]
    Status(u16),
    #[error("it answered with `{0}`, which is neither JSON nor a stream of events")]
    ContentType(String),
    /// The stream, or the session, ended before the answer.
    #[error("it ended its answer before there was one")]
    Cut,
}

impl Error {
    /// True if nothing has left this host.
    pub(super) fn was_not_sent(&self) -> bool {
        use http::Failure as F;
        match self {
            Self::Http(failure) => matches!(
                failure,
                F::Unsendable(_) | F::Network(_) | F::Connect(_) | F::Certificate(_)
            ),
            Self::Unwritable(_) => true,
            Self::Status(_) | Self::ContentType(_) | Self::Cut => false,
        }
    }
}

/// Exchange of messages with one server.
#[derive(Debug)]
pub(super) struct Exchange {
    shared: Arc<ExchangeShared>,
    messages: mpsc::Receiver<Message>,
}

#[derive(Debug)]
struct ExchangeShared {
    client: Arc<Client>,
    remote: Remote,
    inbox: Inbox,
    messages: mpsc::Sender<Message>,
    state: Mutex<ExchangeState>,
}

#[derive(Debug, Default)]
struct ExchangeState {
    /// Session id and protocol version, once the server has sent them.
    session: Option<String>,
    version: Option<String>,
    /// Requests whose answers are being read.
    open: HashMap<RequestId, CancellationToken>,
}

impl Exchange {
    pub(super) fn new(client: Arc<Client>, remote: Remote, inbox: Inbox) -> Self {
        let (sender, messages) = mpsc::channel(MOST_WAITING);
        Self {
            shared: Arc::new(ExchangeShared {
                client,
                remote,
                inbox,
                messages: sender,
                state: Mutex::default(),
            }),
            messages,
        }
    }
}

impl ExchangeShared {
    fn state(&self) -> MutexGuard<'_, ExchangeState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn request(&self, method: &str, body: Vec<u8>) -> Result<Request, Error> {
        let patience = Patience {
            connect: CONNECT,
            headers: LONGEST_CALL,
        };
        let url = self.remote.url.clone();
        let mut request = Request::new(method, url, Bytes::from(body), patience)?
            .header("Accept", "application/json, text/event-stream")?
            .header("Content-Type", "application/json")?;
        let state = self.state();
        let own = [
            ("Mcp-Session-Id", &state.session),
            ("MCP-Protocol-Version", &state.version),
        ];
        for (name, value) in own {
            if let Some(value) = value {
                request = request.header(name, value)?;
            }
        }
        for (name, value, is_secret) in &self.remote.headers {
            request = request.one_more(name, value, *is_secret)?;
        }
        Ok(request)
    }

    /// Sends `message` and receives its answer.
    async fn send(&self, message: TxJsonRpcMessage<RoleClient>) -> Result<(), Error> {
        let id = match &message {
            JsonRpcMessage::Request(request) => Some(request.id.clone()),
            JsonRpcMessage::Response(_)
            | JsonRpcMessage::Notification(_)
            | JsonRpcMessage::Error(_) => None,
        };
        let ended = CancellationToken::new();
        if let Some(id) = &id {
            self.state().open.insert(id.clone(), ended.clone());
        }
        let sent = tokio::select! {
            biased;
            sent = self.exchange(&message, id.as_ref()) => sent,
            () = ended.cancelled() => Err(Error::Cut),
            () = self.inbox.broken() => Err(Error::Cut),
            () = task::sleep(Some(LONGEST_CALL + FAREWELL)) => Err(Error::Cut),
        };
        if let Some(id) = &id {
            self.state().open.remove(id);
        }
        if let JsonRpcMessage::Notification(notification) = &message
            && let ClientNotification::CancelledNotification(cancelled) = &notification.notification
            && let Some(id) = &cancelled.params.request_id
            && let Some(open) = self.state().open.remove(id)
        {
            open.cancel();
        }
        sent
    }

    async fn exchange(
        &self,
        message: &TxJsonRpcMessage<RoleClient>,
        id: Option<&RequestId>,
    ) -> Result<(), Error> {
        let body = serde_json::to_vec(message)?;
        let answer = self.client.send(self.request("POST", body)?).await?;
        let status = answer.status();
        if status == 404 && self.state().session.is_some() {
            self.inbox.break_off("it has forgotten the session");
        }
        if !(200..300).contains(&status) {
            return Err(Error::Status(status));
        }
        if let JsonRpcMessage::Request(request) = message
            && let ClientRequest::InitializeRequest(_) = &request.request
        {
            self.state().session = answer.header("mcp-session-id").map(str::to_owned);
        }
        let Some(id) = id else {
            return Ok(());
        };
        let kind = answer.header("content-type").unwrap_or_default();
        let kind = kind.split(';').next().unwrap_or_default();
        match kind.trim().to_ascii_lowercase().as_str() {
            "application/json" => {
                let body = answer.whole(MOST_MESSAGE).await?;
                if self.deliver(&body, id).await {
                    Ok(())
                } else {
                    Err(Error::Cut)
                }
            }
            "text/event-stream" => self.stream(answer, id).await,
            other => Err(Error::ContentType(other.to_owned())),
        }
    }

    /// Reads a stream up to the answer to `id`.
    async fn stream(&self, answer: HttpResponse, id: &RequestId) -> Result<(), Error> {
        let mut events = answer.events();
        while let Some(event) = events.next_within(LONGEST_CALL).await? {
            if !event.data.trim().is_empty() && self.deliver(event.data.as_bytes(), id).await {
                return Ok(());
            }
        }
        Err(Error::Cut)
    }

    /// Passes a message on. Returns true if it is the answer to `id`.
    async fn deliver(&self, text: &[u8], id: &RequestId) -> bool {
        let Some(message) = self.inbox.take(text) else {
            return false;
        };
        let is_answer = match &message {
            JsonRpcMessage::Response(answer) => {
                if let ServerResult::InitializeResult(told) = &answer.result {
                    self.state().version = Some(told.protocol_version.to_string());
                }
                answer.id == *id
            }
            JsonRpcMessage::Error(error) => error.id.as_ref() == Some(id),
            JsonRpcMessage::Request(_) | JsonRpcMessage::Notification(_) => false,
        };
        // The receiver is dropped only with the session.
        let _taken = self.messages.send(message).await;
        is_answer
    }

    /// Notifies the server that the session has ended.
    async fn end_session(&self) -> Result<(), Error> {
        if self.state().session.is_none() {
            return Ok(());
        }
        let request = self.request("DELETE", Vec::new())?;
        match tokio::time::timeout(FAREWELL, self.client.send(request)).await {
            Ok(answered) => Ok(answered.map(drop)?),
            Err(_elapsed) => Ok(()),
        }
    }
}

impl Transport<RoleClient> for Exchange {
    type Error = Error;

    fn send(
        &mut self,
        message: TxJsonRpcMessage<RoleClient>,
    ) -> impl Future<Output = Result<(), Error>> + Send + 'static {
        self.shared.inbox.note(&message);
        let shared = Arc::clone(&self.shared);
        async move { shared.send(message).await }
    }

    async fn receive(&mut self) -> Option<Message> {
        tokio::select! {
            biased;
            message = self.messages.recv() => message,
            () = self.shared.inbox.broken() => None,
        }
    }

    async fn close(&mut self) -> Result<(), Error> {
        self.shared.end_session().await
    }
}
