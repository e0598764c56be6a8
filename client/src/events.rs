//! Events of one or several runs, without gap or duplicate, over any number of connections.
//!
//! **Owns** the cursor after the last event that it returned. It reopens the stream there when the connection breaks,
//! or when the daemon disconnects a slow reader.
//! **Failure.** It returns a refusal, or the error of an outage longer than 30 s; the next call tries again. The daemon
//! refuses an unknown cursor of several runs, because the events in between would be missing. A stream that broke while
//! it replayed the past of a tree is refused as well, because those events have no cursors.

use rye_core::error::{ErrorKind, Kinded};
use rye_proto::v1;
use tonic::Streaming;

use crate::client::{Client, Outage};
use crate::error::Error;

/// Selection of events.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EventScope {
    Run(String),
    /// A run and all its descendants.
    Tree(String),
    /// All runs of a project, by its absolute path.
    Project(String),
    All,
}

impl EventScope {
    fn request(&self) -> v1::StreamRequest {
        let mut request = v1::StreamRequest::default();
        match self {
            Self::Run(id) => request.run_id.clone_from(id),
            Self::Tree(id) => {
                request.run_id.clone_from(id);
                request.tree = true;
            }
            Self::Project(path) => request.project.clone_from(path),
            Self::All => request.all = true,
        }
        request
    }
}

/// Decides whether the stream waits for new events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Follow {
    /// The stream ends after the last existing event.
    No,
    /// The stream ends when the run or the tree has ended. A stream of a project or of all runs never ends.
    UntilEnd,
}

/// Selection of deltas: model text and tool output as they arrive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Deltas {
    No,
    /// Texts of the model.
    Texts,
    /// All deltas, in the order in which they may be shown.
    Everything,
}

impl Deltas {
    /// Returns the kinds to request; an empty list means all.
    fn kinds(self) -> Vec<i32> {
        match self {
            Self::No | Self::Everything => Vec::new(),
            Self::Texts => [v1::DeltaKind::Text, v1::DeltaKind::Reset]
                .map(i32::from)
                .to_vec(),
        }
    }
}

/// One element of a stream.
#[derive(Debug, Clone, PartialEq)]
pub enum StreamItem {
    Event(v1::Event),
    /// Model text or tool output. It is no event and has no cursor.
    Delta(v1::Delta),
}

impl Client {
    /// Returns the events of a run after `cursor` (empty: from the beginning).
    pub fn events(&self, run_id: &str, cursor: &str, follow: Follow) -> Events {
        self.events_of(EventScope::Run(run_id.to_owned()), cursor, follow)
    }

    /// Returns the events of one or several runs after `cursor`; see [`v1::StreamRequest`].
    pub fn events_of(&self, of: EventScope, cursor: &str, follow: Follow) -> Events {
        Events::new(self.clone(), of, cursor, follow)
    }

    /// Opens the stream of [`Client::events`] once.
    async fn stream(
        &self,
        request: v1::StreamRequest,
    ) -> Result<Streaming<v1::StreamResponse>, Error> {
        self.answer(self.runs().stream(request).await)
    }
}

/// A stream of events; see [`Client::events`].
#[derive(Debug)]
pub struct Events {
    client: Client,
    of: EventScope,
    cursor: String,
    follow: Follow,
    deltas: Deltas,
    stream: Option<Streaming<v1::StreamResponse>>,
    outage: Outage,
    saw_end: bool,
    /// True if the position is unknown: the last event had no cursor, and none followed.
    is_position_unknown: bool,
}

impl Events {
    fn new(client: Client, of: EventScope, cursor: &str, follow: Follow) -> Self {
        let outage = client.outage();
        Self {
            client,
            of,
            cursor: cursor.to_owned(),
            follow,
            deltas: Deltas::No,
            stream: None,
            outage,
            saw_end: false,
            is_position_unknown: false,
        }
    }

    /// Returns the cursor after the last returned event.
    pub fn cursor(&self) -> &str {
        &self.cursor
    }

    /// Selects deltas. A stream that does not follow has none.
    #[must_use]
    pub fn with(mut self, deltas: Deltas) -> Self {
        if self.follow == Follow::UntilEnd {
            self.deltas = deltas;
        }
        self
    }

    /// Returns the next event, or `None` at the end. Cancel safe, as [`Events::next_item`] is.
    pub async fn next(&mut self) -> Result<Option<v1::Event>, Error> {
        loop {
            match self.next_item().await? {
                Some(StreamItem::Event(event)) => return Ok(Some(event)),
                Some(StreamItem::Delta(_)) => {}
                None => return Ok(None),
            }
        }
    }

    /// Returns the next element, or `None` at the end. Cancel safe: an event counts as returned only when this returns
    /// it.
    pub async fn next_item(&mut self) -> Result<Option<StreamItem>, Error> {
        loop {
            match self.receive().await {
                Ok(Some(told)) => {
                    self.outage.over();
                    if let StreamItem::Event(event) = &told {
                        self.is_position_unknown = event.cursor.is_empty();
                        self.cursor.clone_from(&event.cursor);
                        let fact = event.fact();
                        self.saw_end |= fact.is_some_and(|fact| fact.outcome().is_some());
                    }
                    return Ok(Some(told));
                }
                Ok(None) => match self.is_over().await {
                    Ok(true) => return Ok(None),
                    Ok(false) => self.wait_for(closed_early()).await?,
                    Err(error) if resumes(&error) => self.wait_for(error).await?,
                    Err(error) => return Err(error),
                },
                Err(error) if resumes(&error) => self.wait_for(error).await?,
                Err(error) => return Err(error),
            }
        }
    }

    async fn receive(&mut self) -> Result<Option<StreamItem>, Error> {
        let stream = match &mut self.stream {
            Some(stream) => stream,
            none => {
                if self.is_position_unknown {
                    return Err(broke_off());
                }
                let request = v1::StreamRequest {
                    cursor: self.cursor.clone(),
                    follow: self.follow == Follow::UntilEnd,
                    deltas: self.deltas != Deltas::No,
                    delta_kinds: self.deltas.kinds(),
                    ..self.of.request()
                };
                none.insert(self.client.stream(request).await?)
            }
        };
        loop {
            match stream.message().await {
                Ok(Some(v1::StreamResponse {
                    event,
                    delta,
                    cursor,
                })) => {
                    let told = event
                        .map(StreamItem::Event)
                        .or(delta.map(StreamItem::Delta));
                    if told.is_some() {
                        return Ok(told);
                    }
                    if !cursor.is_empty() {
                        self.cursor = cursor;
                        self.is_position_unknown = false;
                    }
                }
                Ok(None) => return Ok(None),
                Err(status) => return Err(self.client.error(&status)),
            }
        }
    }

    /// True if a stream that closed in order is complete. A daemon that shuts down closes it too.
    async fn is_over(&self) -> Result<bool, Error> {
        if self.follow == Follow::No {
            return Ok(true);
        }
        match &self.of {
            EventScope::Run(_) if self.saw_end => Ok(true),
            EventScope::Run(id) => Ok(self.client.get(id).await?.has_ended()?),
            EventScope::Tree(id) => {
                let below = self.client.below(id).await?;
                let root = self.client.get(id).await?;
                for run in below.iter().chain([&root]) {
                    if !run.has_ended()? {
                        return Ok(false);
                    }
                }
                Ok(true)
            }
            EventScope::Project(_) | EventScope::All => Ok(false),
        }
    }

    async fn wait_for(&mut self, error: Error) -> Result<(), Error> {
        self.stream = None;
        self.outage.pause(error).await
    }
}

/// True if the stream is worth reopening: the daemon is away, or it disconnected a slow reader.
fn resumes(error: &Error) -> bool {
    let is_cut = error.kind() == ErrorKind::Exhausted && error.reason() != "memory_exceeded";
    error.is_outage() || is_cut
}

fn broke_off() -> Error {
    Error::Refused {
        kind: ErrorKind::Precondition,
        message:
            "the stream ended before it had sent what the runs of the tree had done; try again"
                .to_owned(),
        reason: None,
    }
}

fn closed_early() -> Error {
    Error::Refused {
        kind: ErrorKind::Unavailable,
        message: "the daemon closed the stream of events before the run ended".to_owned(),
        reason: None,
    }
}
