//! Incoming messages of a server: bounded and classified.
//!
//! **Owns** the counters of unrequested messages. Answers to requests pass, and so do requests of the server. Of all
//! other messages, only progress is reported. **Failure.** A fault ends the session; the first one is kept for waiting
//! callers.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rmcp::RoleClient;
use rmcp::model::{
    ClientRequest, JsonRpcMessage, ProgressNotificationParam, RequestId, ServerNotification,
};
use rmcp::service::{RxJsonRpcMessage, TxJsonRpcMessage};
use rye_core::error::beginning;
use tokio::sync::broadcast;
use tokio_util::sync::CancellationToken;

use super::message::{Incoming, RequestKind, read};

/// Maximum size of a message in bytes.
pub(super) const MOST_MESSAGE: usize = 8 << 20;
/// Maximum number of consecutive messages that answer no request.
const MOST_UNASKED: usize = 10_000;
/// Maximum total size of these in bytes.
const MOST_UNASKED_BYTES: usize = 64 << 20;
/// Capacity of the queue of progress reports; beyond it the oldest are dropped.
const MOST_PROGRESS: usize = 64;
/// Maximum length in characters of a quoted line that is not a message.
const SHOWN: usize = 120;

pub(super) type Message = RxJsonRpcMessage<RoleClient>;

/// Receiver of one session; clones share it.
#[derive(Debug, Clone)]
pub(super) struct Inbox {
    shared: Arc<InboxShared>,
}

#[derive(Debug)]
struct InboxShared {
    state: Mutex<InboxState>,
    progress: broadcast::Sender<ProgressNotificationParam>,
    broken: CancellationToken,
}

#[derive(Debug, Default)]
struct InboxState {
    requests: HashMap<RequestId, RequestKind>,
    unasked: usize,
    unasked_bytes: usize,
    /// Reason for the end of the session.
    end: Option<SessionEnd>,
    odd: Option<String>,
}

/// The reason why a session is over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SessionEnd {
    /// The server broke this rule, or has ended.
    Fault(String),
    /// Nobody needs it any more, for this reason.
    Unneeded(String),
}

impl SessionEnd {
    fn into_reason(self) -> String {
        match self {
            Self::Fault(reason) | Self::Unneeded(reason) => reason,
        }
    }
}

impl Inbox {
    pub(super) fn new() -> Self {
        Self {
            shared: Arc::new(InboxShared {
                state: Mutex::default(),
                progress: broadcast::Sender::new(MOST_PROGRESS),
                broken: CancellationToken::new(),
            }),
        }
    }

    fn state(&self) -> MutexGuard<'_, InboxState> {
        let state = self.shared.state.lock();
        state.unwrap_or_else(PoisonError::into_inner)
    }

    /// Records an outgoing request, so that its answer is recognised.
    pub(super) fn note(&self, message: &TxJsonRpcMessage<RoleClient>) {
        if let JsonRpcMessage::Request(request) = message {
            let is_call = matches!(&request.request, ClientRequest::CallToolRequest(_));
            let kind = if is_call {
                RequestKind::Call
            } else {
                RequestKind::Other
            };
            self.state().requests.insert(request.id.clone(), kind);
        }
    }

    /// Classifies an incoming message; `None` if it is not passed on.
    pub(super) fn take(&self, text: &[u8]) -> Option<Message> {
        let read = read(text, &self.state().requests);
        let message = match read {
            Ok(Incoming::Message(message)) => *message,
            Ok(Incoming::Stray(stray)) => {
                self.set_aside(text.len(), Some(stray));
                return None;
            }
            Err(problem) => {
                self.break_off(&format!(
                    "it sent what is no message ({problem}): {}",
                    shown(text)
                ));
                return None;
            }
        };
        if self.is_answer(&message) {
            return Some(message);
        }
        let (message, odd) = self.filter_unrequested(message);
        self.set_aside(text.len(), odd).then_some(message)?
    }

    /// Counts a line that is not a message, such as log output.
    pub(super) fn noise(&self, line: &[u8]) {
        let odd = format!("it wrote to its stdout what is no message: {}", shown(line));
        self.set_aside(line.len(), Some(odd));
    }

    fn is_answer(&self, message: &Message) -> bool {
        let mut state = self.state();
        let id = match message {
            JsonRpcMessage::Response(answer) => Some(&answer.id),
            JsonRpcMessage::Error(error) => error.id.as_ref(),
            JsonRpcMessage::Request(_) | JsonRpcMessage::Notification(_) => None,
        };
        let is_answer = id.is_some_and(|id| state.requests.remove(id).is_some());
        if is_answer {
            (state.unasked, state.unasked_bytes) = (0, 0);
        }
        is_answer
    }

    /// Separates a message that answers no request into the part that passes and a note about a deviation.
    fn filter_unrequested(&self, message: Message) -> (Option<Message>, Option<String>) {
        let JsonRpcMessage::Notification(notification) = message else {
            let passes = matches!(message, JsonRpcMessage::Request(_));
            return (passes.then_some(message), None);
        };
        let notification = notification.notification;
        if let ServerNotification::ProgressNotification(progress) = notification {
            // There may be no listener.
            let _heard = self.shared.progress.send(progress.params);
            return (None, None);
        }
        let is_progress = matches!(&notification, ServerNotification::CustomNotification(other) if other.method == "notifications/progress");
        let odd = "it sent a report of progress that cannot be read";
        (None, is_progress.then(|| odd.to_owned()))
    }

    /// Counts a message that answers no request, and keeps the first deviation. Returns false if a bound is exceeded.
    fn set_aside(&self, bytes: usize, odd: Option<String>) -> bool {
        let mut state = self.state();
        state.odd = state.odd.take().or(odd);
        state.unasked += 1;
        state.unasked_bytes += bytes;
        let is_flood = state.unasked > MOST_UNASKED || state.unasked_bytes > MOST_UNASKED_BYTES;
        drop(state);
        if is_flood {
            self.break_off(&format!(
                "it sent more than {MOST_UNASKED} messages, or {} MiB, that answer nothing",
                MOST_UNASKED_BYTES >> 20
            ));
        }
        !is_flood
    }

    /// Keeps the first deviation of a server.
    pub(super) fn remark(&self, odd: String) {
        self.state().odd.get_or_insert(odd);
    }

    /// Takes the first deviation since the last call, as text.
    pub(super) fn odd(&self) -> Option<String> {
        self.state().odd.take()
    }

    /// Subscribes to reports of progress from now on.
    pub(super) fn progress(&self) -> broadcast::Receiver<ProgressNotificationParam> {
        self.shared.progress.subscribe()
    }

    /// Ends the session with `fault`, unless it is over.
    pub(super) fn break_off(&self, fault: &str) {
        self.end(SessionEnd::Fault(fault.to_owned()));
    }

    /// Ends the session, unless it is over.
    pub(super) fn end(&self, end: SessionEnd) {
        self.state().end.get_or_insert(end);
        self.shared.broken.cancel();
    }

    /// Resolves when the session must end. Cancel safe.
    pub(super) async fn broken(&self) {
        self.shared.broken.cancelled().await;
    }

    /// True if the session must end.
    pub(super) fn is_broken(&self) -> bool {
        self.shared.broken.is_cancelled()
    }

    /// The reason why the session is over.
    pub(super) fn session_end(&self) -> Option<SessionEnd> {
        self.state().end.clone()
    }

    /// The reason why the session is over, as text.
    pub(super) fn fault(&self) -> Option<String> {
        self.session_end().map(SessionEnd::into_reason)
    }
}

/// Beginning of a text, on one line.
fn shown(text: &[u8]) -> String {
    let text = String::from_utf8_lossy(text);
    format!("{:?}", beginning(text.trim(), SHOWN))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn note_request(inbox: &Inbox, id: i64) {
        let question = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"ping"}}"#);
        inbox.note(&serde_json::from_str(&question).unwrap());
    }

    fn answer(id: i64) -> String {
        format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{}}}}"#)
    }

    #[test]
    fn only_first_response_to_request_passes() {
        let inbox = Inbox::new();
        note_request(&inbox, 1);
        assert!(inbox.take(answer(2).as_bytes()).is_none());
        assert!(inbox.take(answer(1).as_bytes()).is_some());
        assert!(inbox.take(answer(1).as_bytes()).is_none());
        assert!(!inbox.is_broken());
    }

    #[test]
    fn flood_ends_session_and_response_resets_count() {
        let note = br#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#;
        let inbox = Inbox::new();
        for _ in 0..MOST_UNASKED {
            assert!(inbox.take(note).is_none());
        }
        assert!(!inbox.is_broken());
        note_request(&inbox, 1);
        assert!(inbox.take(answer(1).as_bytes()).is_some());
        for _ in 0..MOST_UNASKED {
            assert!(inbox.take(note).is_none());
        }
        assert!(!inbox.is_broken());
        assert!(inbox.take(note).is_none());
        assert!(inbox.is_broken());
        assert!(inbox.fault().unwrap().contains("answer nothing"));
    }

    #[test]
    fn invalid_message_ends_session_and_is_quoted() {
        let inbox = Inbox::new();
        let noise = "é".repeat(5000);
        inbox.noise(noise.as_bytes());
        assert!(!inbox.is_broken());
        let odd = inbox.odd().unwrap();
        assert!(odd.len() < 1000 && odd.contains("no message"), "{odd}");
        assert_eq!(inbox.odd(), None);
        assert!(inbox.take(noise.as_bytes()).is_none());
        let fault = inbox.fault().unwrap();
        assert!(
            fault.len() < 1000 && fault.contains("no message"),
            "{fault}"
        );
        inbox.break_off("another");
        assert_eq!(inbox.fault(), Some(fault));
    }

    #[tokio::test]
    async fn progress_is_reported_and_other_notifications_dropped() {
        let inbox = Inbox::new();
        let mut progress = inbox.progress();
        let told = br#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":7,"progress":1}}"#;
        assert!(inbox.take(told).is_none());
        assert!((progress.recv().await.unwrap().progress - 1.0).abs() < f64::EPSILON);
    }
}
