//! One call: its request, the signals of its answer, and its end.

use std::collections::VecDeque;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use rye_core::provider::failure::{ApiError, ErrorRows, Failed, Verdict, classify};
use rye_core::provider::sse::{Event, Unreadable};
use rye_core::provider::stream::{Ended, Fault, StreamSignal};
use rye_core::provider::{Decoder, Received, ResolvedModel, Timeouts};
use tokio::time::{Instant, Sleep};

use super::CallPermit;
use super::access::{Access, seconds};
use super::call_queue::Pass;
use crate::http::{self, Client, Events, HttpResponse};
use rye_host::clock::Timer;

/// Maximum size of an error body, in bytes.
const MOST_ERROR: usize = 64 << 10;
/// Time limit for reading an error body.
const ERROR_PATIENCE: Duration = Duration::from_secs(10);
/// Maximum length of a request id, in bytes.
const MOST_ID: usize = 256;

/// Progress of a call.
#[derive(Debug, Clone, PartialEq)]
pub enum CallProgress {
    /// A part of the answer; neither [`StreamSignal::Ended`] nor [`StreamSignal::Broken`].
    Signal(StreamSignal),
    /// The message is complete; nothing follows.
    Message(Message),
    /// The call failed; nothing follows.
    Failed(Box<Failure>),
}

#[derive(Debug, Clone, PartialEq)]
pub struct Message {
    pub ended: Ended,
    /// Id of the request at the provider.
    pub request_id: Option<String>,
}

/// A failed call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    pub trouble: Trouble,
    pub verdict: Verdict,
    /// True if the model had produced output.
    pub begun: bool,
    /// Id of the request at the provider.
    pub request_id: Option<String>,
}

/// Problem of a call. Contains no secret.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Trouble {
    /// The provider reported an error.
    #[error("{0}")]
    Reported(ApiError),
    /// The provider was not reached, or the answer was cut.
    #[error("{0}")]
    Met(String),
    /// The answer cannot be parsed.
    #[error(
        "{0}; another try would not help: see docs/providers.md, \"Answers that cannot be read\""
    )]
    Unreadable(String),
}

/// A call. Dropping it closes its connection and frees its slot.
pub struct Call {
    state: CallState,
    /// Slot in the queue, held until the end.
    pass: Option<Pass>,
    clock: Arc<dyn Timer>,
    access: Arc<Access>,
    /// Classification of the provider's errors.
    errors: Arc<ErrorRows>,
    timeouts: Timeouts,
    decoder: Decoder,
    /// Signals of the last event.
    ready: VecDeque<StreamSignal>,
    /// True if the model has produced output.
    begun: bool,
    received: Received,
    request_id: Option<String>,
}

enum CallState {
    Opening(BoxFuture<'static, Result<HttpResponse, Box<Failure>>>),
    Reading(Box<Reading>),
    Over,
}

/// Events of an answer. The timeout of an event continues across cancelled waits.
struct Reading {
    events: Events,
    /// Timeout of the next event.
    patience: Duration,
    /// Timeout of later events.
    idle: Duration,
    /// Deadline of the awaited event. One timer serves all events, because a reset is cheaper than a new timer.
    due: Pin<Box<Sleep>>,
    /// True if the wait for the next event has begun.
    is_awaited: bool,
}

impl Reading {
    fn new(events: Events, timeouts: Timeouts) -> Self {
        let patience = seconds(timeouts.first_event);
        Self {
            events,
            patience,
            idle: seconds(timeouts.idle),
            due: Box::pin(tokio::time::sleep(patience)),
            is_awaited: false,
        }
    }

    /// Returns the next event; `None` at the end of the body. Cancel safe.
    async fn next(&mut self) -> Result<Option<Event>, http::Failure> {
        if !self.is_awaited {
            self.is_awaited = true;
            self.due.as_mut().reset(Instant::now() + self.patience);
        }
        let event = tokio::select! {
            biased;
            event = self.events.next() => event,
            () = &mut self.due => Err(http::Failure::Silent(self.patience)),
        };
        self.is_awaited = false;
        self.patience = self.idle;
        event
    }
}

impl Call {
    pub(super) fn new(
        place: CallPermit,
        model: &ResolvedModel,
        errors: Arc<ErrorRows>,
        turn: u32,
        body: String,
    ) -> Self {
        let CallPermit {
            client,
            clock,
            access,
            pass,
        } = place;
        let access = Arc::new(access);
        let opening = open(
            client,
            Arc::clone(&clock),
            Arc::clone(&access),
            Arc::clone(&errors),
            Bytes::from(body),
        );
        Self {
            state: CallState::Opening(Box::pin(opening)),
            pass: Some(pass),
            clock,
            access,
            errors,
            timeouts: model.endpoint.timeouts,
            decoder: Decoder::new(model, turn),
            ready: VecDeque::new(),
            begun: false,
            received: Received::default(),
            request_id: None,
        }
    }

    /// Part of the answer that has arrived so far.
    pub const fn received(&self) -> Received {
        self.received
    }

    /// Returns the next progress; `None` after the end. Cancel safe: a cancelled wait loses nothing, and does not
    /// restart a timeout.
    pub async fn next(&mut self) -> Option<CallProgress> {
        loop {
            if let Some(signal) = self.ready.pop_front() {
                return Some(self.handle_signal(signal));
            }
            match &mut self.state {
                CallState::Opening(opening) => match opening.await {
                    Ok(answer) => {
                        self.received.is_answered = true;
                        self.request_id = request_id(&answer, &self.access);
                        let reading = Reading::new(answer.events(), self.timeouts);
                        self.state = CallState::Reading(Box::new(reading));
                    }
                    Err(failure) => return Some(self.fail(failure)),
                },
                CallState::Reading(reading) => match reading.next().await {
                    Ok(event) => self.decode(event),
                    Err(failure) => {
                        let text = failure.to_string();
                        let failed = failed(&failure, self.begun);
                        let trouble = if let Failed::Stream { fault, .. } = &failed {
                            Trouble::of(fault, text)
                        } else {
                            Trouble::Met(text)
                        };
                        return Some(self.break_off(&failed, trouble));
                    }
                },
                CallState::Over => return None,
            }
        }
    }

    /// Decodes an event, or the end of the body.
    fn decode(&mut self, event: Option<Event>) {
        let mut signals = Vec::new();
        match event {
            Some(event) => {
                let hidden = self.access.hidden();
                self.decoder.event(&event.data, &hidden, &mut signals);
            }
            None => self.decoder.finish(&mut signals),
        }
        self.ready.extend(signals);
    }

    fn handle_signal(&mut self, signal: StreamSignal) -> CallProgress {
        match signal {
            StreamSignal::Ended(ended) => {
                let request_id = self.request_id.take();
                self.close();
                return CallProgress::Message(Message { ended, request_id });
            }
            StreamSignal::Broken(fault) => {
                let trouble = Trouble::of(&fault, fault.to_string());
                let begun = self.begun;
                return self.break_off(&Failed::Stream { fault, begun }, trouble);
            }
            StreamSignal::Begun { .. }
            | StreamSignal::Text { .. }
            | StreamSignal::Thinking { .. }
            | StreamSignal::Block(_)
            | StreamSignal::CallBegun { .. }
            | StreamSignal::CallArgs { .. }
            | StreamSignal::CallReady(_)
            | StreamSignal::Usage(_)
            | StreamSignal::Stopped(_) => {}
        }
        self.begun = true;
        self.received.count(&signal);
        CallProgress::Signal(signal)
    }

    /// Ends a call whose answer had begun.
    fn break_off(&mut self, failed: &Failed, trouble: Trouble) -> CallProgress {
        let verdict = classify(failed, &self.errors, |_| None, self.clock.now());
        self.fail(Failure::new(trouble, verdict))
    }

    fn fail(&mut self, mut failure: Box<Failure>) -> CallProgress {
        if let (Some(pass), Some(pause)) = (&self.pass, failure.verdict.pause_for_all()) {
            pass.close(pause);
        }
        failure.begun = self.begun;
        failure.request_id = failure.request_id.take().or_else(|| self.request_id.take());
        self.close();
        CallProgress::Failed(failure)
    }

    fn close(&mut self) {
        self.state = CallState::Over;
        self.pass = None;
    }
}

impl Trouble {
    /// Problem of a stream that ended with `fault`; `text` is its message.
    fn of(fault: &Fault, text: String) -> Self {
        match fault {
            Fault::Api(error) => Self::Reported(error.clone()),
            Fault::Malformed(_) | Fault::Excess(_) => Self::Unreadable(text),
            Fault::Cut | Fault::NoEndEvent(_) => Self::Met(text),
        }
    }
}

impl fmt::Debug for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Call")
            .field("begun", &self.begun)
            .field("request_id", &self.request_id)
            .finish_non_exhaustive()
    }
}

impl Failure {
    /// Failure before any output of the model.
    fn new(trouble: Trouble, verdict: Verdict) -> Box<Self> {
        let request_id = match &trouble {
            Trouble::Reported(error) => error.request_id.clone(),
            Trouble::Met(_) | Trouble::Unreadable(_) => None,
        };
        Box::new(Self {
            trouble,
            verdict,
            begun: false,
            request_id,
        })
    }
}

/// Sends the request, and waits for an answer that is a stream.
async fn open(
    client: Arc<Client>,
    clock: Arc<dyn Timer>,
    access: Arc<Access>,
    errors: Arc<ErrorRows>,
    body: Bytes,
) -> Result<HttpResponse, Box<Failure>> {
    let sent = match access.request(body) {
        Ok(request) => client.send(request).await,
        Err(failure) => Err(failure),
    };
    let mut answer = sent.map_err(|failure| {
        let verdict = classify(&failed(&failure, false), &errors, |_| None, clock.now());
        Failure::new(Trouble::Met(failure.to_string()), verdict)
    })?;
    let status = answer.status();
    if (200..300).contains(&status) {
        return Ok(answer);
    }
    let body = answer.beginning(MOST_ERROR, ERROR_PATIENCE).await;
    let error = ApiError::read(Some(status), &body, &access.hidden());
    let failed = Failed::Answered(error.clone());
    let verdict = classify(&failed, &errors, |name| answer.header(name), clock.now());
    let mut failure = Failure::new(Trouble::Reported(error), verdict);
    failure.request_id = request_id(&answer, &access).or(failure.request_id);
    Err(failure)
}

/// The provider's id of the request. An overlong id, or one that contains a secret, is dropped.
fn request_id(answer: &HttpResponse, access: &Access) -> Option<String> {
    let names = ["request-id", "x-request-id"];
    let id = names.into_iter().find_map(|name| answer.header(name))?;
    let is_secret = access.hidden().iter().any(|secret| id.contains(secret));
    (id.len() <= MOST_ID && !is_secret).then(|| id.to_owned())
}

/// Progress of a call at its failure.
fn failed(failure: &http::Failure, begun: bool) -> Failed {
    let stream = |fault| Failed::Stream { fault, begun };
    match failure {
        http::Failure::Unsendable(_) | http::Failure::Network(_) => Failed::Unsendable,
        http::Failure::Connect(_) => Failed::Connect,
        http::Failure::Certificate(_) => Failed::Certificate,
        http::Failure::Unanswered(_) => Failed::Unanswered,
        http::Failure::Headers => Failed::Headers,
        http::Failure::Silent(_) | http::Failure::Cut(_) => stream(Fault::Cut),
        http::Failure::Unreadable(Unreadable::Event) => {
            stream(Fault::Excess("an event is too large"))
        }
        http::Failure::TooLarge(_) | http::Failure::Unreadable(Unreadable::Body) => {
            stream(Fault::Excess("the body is too large"))
        }
        http::Failure::Unreadable(unreadable @ Unreadable::Text) => {
            stream(Fault::Malformed(unreadable.to_string()))
        }
    }
}
