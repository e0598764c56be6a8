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
use rye_core::provider::stream::{Ended, Fault, Signal};
use rye_core::provider::{Decoder, Received, ResolvedModel, Timeouts};
use tokio::time::{Instant, Sleep};

use super::Place;
use super::access::{Access, seconds};
use super::gate::Pass;
use crate::http::{self, Answer, Client, Events};
use rye_host::clock::Timer;

/// Most bytes of an answer that is an error.
const MOST_ERROR: usize = 64 << 10;
/// How long they are waited for.
const ERROR_PATIENCE: Duration = Duration::from_secs(10);
/// Most bytes of the id of a request.
const MOST_ID: usize = 256;

/// What is heard of a call.
#[derive(Debug, Clone, PartialEq)]
pub enum Heard {
    /// The answer says this; neither [`Signal::Ended`] nor [`Signal::Broken`].
    Signal(Signal),
    /// The message is complete; nothing follows.
    Message(Message),
    /// The call failed; nothing follows.
    Failed(Box<Failure>),
}

/// A complete message.
#[derive(Debug, Clone, PartialEq)]
pub struct Message {
    /// What it says.
    pub ended: Ended,
    /// By which the provider finds the request again.
    pub request_id: Option<String>,
}

/// A call that failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// What happened.
    pub trouble: Trouble,
    /// What that means.
    pub verdict: Verdict,
    /// Whether the model had said something.
    pub begun: bool,
    /// By which the provider finds the request again.
    pub request_id: Option<String>,
}

/// What happened to a call. No secret is in it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Trouble {
    /// The provider says so.
    #[error("{0}")]
    Told(ApiError),
    /// The provider was not reached, or broke off.
    #[error("{0}")]
    Met(String),
    /// The answer came, and cannot be read.
    #[error(
        "{0}; another try would not help: see docs/providers.md, \"Answers that cannot be read\""
    )]
    Unreadable(String),
}

/// A call. Dropping it closes its connection and gives its place back.
pub struct Call {
    state: State,
    /// The place in the line, until the end.
    pass: Option<Pass>,
    clock: Arc<dyn Timer>,
    access: Arc<Access>,
    /// What errors of the provider mean.
    errors: Arc<ErrorRows>,
    timeouts: Timeouts,
    decoder: Decoder,
    /// Signals of the event that came last.
    ready: VecDeque<Signal>,
    /// Whether the model has said something.
    begun: bool,
    received: Received,
    request_id: Option<String>,
}

enum State {
    Opening(BoxFuture<'static, Result<Answer, Box<Failure>>>),
    Reading(Box<Reading>),
    Over,
}

/// The events of an answer, each of which is waited for so long and no longer, whoever waits.
struct Reading {
    events: Events,
    /// How long the next event is waited for.
    patience: Duration,
    /// The same for those behind it.
    idle: Duration,
    /// When the next event is too late, if it is waited for. One timer for all of them: to put it off costs less than to set another.
    due: Pin<Box<Sleep>>,
    /// Whether somebody has begun to wait for the next event.
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

    /// The next event; `None` at the end of the body. Cancel safe.
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
        place: Place,
        model: &ResolvedModel,
        errors: Arc<ErrorRows>,
        turn: u32,
        body: String,
    ) -> Self {
        let Place {
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
            state: State::Opening(Box::pin(opening)),
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

    /// The part of the answer that has arrived so far.
    pub const fn received(&self) -> Received {
        self.received
    }

    /// What is heard next; `None` behind the end. Cancel safe: what was not heard is heard by who asks again, and no time to wait
    /// begins anew.
    pub async fn next(&mut self) -> Option<Heard> {
        loop {
            if let Some(signal) = self.ready.pop_front() {
                return Some(self.hear(signal));
            }
            match &mut self.state {
                State::Opening(opening) => match opening.await {
                    Ok(answer) => {
                        self.received.is_answered = true;
                        self.request_id = request_id(&answer, &self.access);
                        let reading = Reading::new(answer.events(), self.timeouts);
                        self.state = State::Reading(Box::new(reading));
                    }
                    Err(failure) => return Some(self.fail(failure)),
                },
                State::Reading(reading) => match reading.next().await {
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
                State::Over => return None,
            }
        }
    }

    /// Takes in an event, or the end of the body.
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

    fn hear(&mut self, signal: Signal) -> Heard {
        match signal {
            Signal::Ended(ended) => {
                let request_id = self.request_id.take();
                self.close();
                return Heard::Message(Message { ended, request_id });
            }
            Signal::Broken(fault) => {
                let trouble = Trouble::of(&fault, fault.to_string());
                let begun = self.begun;
                return self.break_off(&Failed::Stream { fault, begun }, trouble);
            }
            Signal::Begun { .. }
            | Signal::Text { .. }
            | Signal::Thinking { .. }
            | Signal::Block(_)
            | Signal::CallBegun { .. }
            | Signal::CallArgs { .. }
            | Signal::CallReady(_)
            | Signal::Usage(_)
            | Signal::Stopped(_) => {}
        }
        self.begun = true;
        self.received.count(&signal);
        Heard::Signal(signal)
    }

    /// The end of a call whose answer had begun.
    fn break_off(&mut self, failed: &Failed, trouble: Trouble) -> Heard {
        let verdict = classify(failed, &self.errors, |_| None, self.clock.now());
        self.fail(Failure::new(trouble, verdict))
    }

    fn fail(&mut self, mut failure: Box<Failure>) -> Heard {
        if let (Some(pass), Some(pause)) = (&self.pass, failure.verdict.pause_for_all()) {
            pass.close(pause);
        }
        failure.begun = self.begun;
        failure.request_id = failure.request_id.take().or_else(|| self.request_id.take());
        self.close();
        Heard::Failed(failure)
    }

    fn close(&mut self) {
        self.state = State::Over;
        self.pass = None;
    }
}

impl Trouble {
    /// The trouble of a stream that broke by `fault`, for which `text` is said.
    fn of(fault: &Fault, text: String) -> Self {
        match fault {
            Fault::Api(error) => Self::Told(error.clone()),
            Fault::Malformed(_) | Fault::Excess(_) => Self::Unreadable(text),
            Fault::Cut | Fault::Unmarked(_) => Self::Met(text),
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
    /// A failure ahead of everything that the answer says.
    fn new(trouble: Trouble, verdict: Verdict) -> Box<Self> {
        let request_id = match &trouble {
            Trouble::Told(error) => error.request_id.clone(),
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
) -> Result<Answer, Box<Failure>> {
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
    let mut failure = Failure::new(Trouble::Told(error), verdict);
    failure.request_id = request_id(&answer, &access).or(failure.request_id);
    Err(failure)
}

/// The id that the provider gave to the request. It may be any text; one that holds a secret is none.
fn request_id(answer: &Answer, access: &Access) -> Option<String> {
    let names = ["request-id", "x-request-id"];
    let id = names.into_iter().find_map(|name| answer.header(name))?;
    let is_secret = access.hidden().iter().any(|secret| id.contains(secret));
    (id.len() <= MOST_ID && !is_secret).then(|| id.to_owned())
}

/// How far a call had come that ended like that.
fn failed(failure: &http::Failure, begun: bool) -> Failed {
    let stream = |fault| Failed::Stream { fault, begun };
    match failure {
        http::Failure::Unsendable(_) => Failed::Unsendable,
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
