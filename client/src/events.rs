//! The events of a run, or of several, without gap or duplicate, over any number of connections.
//!
//! **Owns** the cursor behind the last event it handed out. When the connection breaks, or the daemon cuts a slow
//! reader, it opens the stream again from there.
//! **Failure.** An outage longer than half a minute, or a refusal, is returned; the next call would try again. One of several runs whose
//! cursor the daemon no longer knows is refused: what came in between would be missing. So is one that broke off while it told what a tree
//! had done before, which has no cursors.

use rye_core::error::{ErrorKind, Kinded};
use rye_proto::v1;
use tonic::Streaming;

use crate::client::{Client, Outage};
use crate::error::Error;

/// Whose events they are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Of {
    /// Of one run.
    Run(String),
    /// Of a run and all below it.
    Tree(String),
    /// Of all runs of a project, by its absolute path.
    Project(String),
    /// Of all runs.
    All,
}

impl Of {
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

/// Whether the stream stays after the events that are there already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Follow {
    /// Ends with the last event there is.
    No,
    /// Stays until the run, or the tree, has ended; of a project, and of all runs, without end.
    UntilEnd,
}

/// Whether the stream also holds what the model of a thread says and what tools print, as it comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Deltas {
    /// Events only.
    No,
    /// Also the texts of the model.
    Texts,
    /// All, in the order in which it may be shown.
    Told,
}

impl Deltas {
    /// The kinds to ask for; none means all.
    fn kinds(self) -> Vec<i32> {
        match self {
            Self::No | Self::Told => Vec::new(),
            Self::Texts => [v1::DeltaKind::Text, v1::DeltaKind::Reset]
                .map(i32::from)
                .to_vec(),
        }
    }
}

/// What a stream tells.
#[derive(Debug, Clone, PartialEq)]
pub enum Told {
    /// Something that happened.
    Event(v1::Event),
    /// More of what the model says or a tool prints, which is no event.
    Delta(v1::Delta),
}

impl Client {
    /// The events of a run behind `cursor` (empty: from the beginning).
    pub fn events(&self, run_id: &str, cursor: &str, follow: Follow) -> Events {
        self.events_of(Of::Run(run_id.to_owned()), cursor, follow)
    }

    /// The events of one run or of several behind `cursor`; see [`v1::StreamRequest`].
    pub fn events_of(&self, of: Of, cursor: &str, follow: Follow) -> Events {
        Events::new(self.clone(), of, cursor, follow)
    }

    /// Opens the stream behind [`Client::events`] once.
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
    of: Of,
    cursor: String,
    follow: Follow,
    deltas: Deltas,
    stream: Option<Streaming<v1::StreamResponse>>,
    outage: Outage,
    saw_end: bool,
    /// Whether an event without a cursor was handed out, and none with one since.
    adrift: bool,
}

impl Events {
    fn new(client: Client, of: Of, cursor: &str, follow: Follow) -> Self {
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
            adrift: false,
        }
    }

    /// The position behind the last event handed out.
    pub fn cursor(&self) -> &str {
        &self.cursor
    }

    /// The same stream, and what comes meanwhile if `deltas` says so. A stream that ends with the last event there is tells
    /// events only.
    #[must_use]
    pub fn with(mut self, deltas: Deltas) -> Self {
        if self.follow == Follow::UntilEnd {
            self.deltas = deltas;
        }
        self
    }

    /// The next event; `None` when there are no more. Cancel safe, as [`Events::told`] is.
    pub async fn next(&mut self) -> Result<Option<v1::Event>, Error> {
        loop {
            match self.told().await? {
                Some(Told::Event(event)) => return Ok(Some(event)),
                Some(Told::Delta(_)) => {}
                None => return Ok(None),
            }
        }
    }

    /// What is told next; `None` when there is no more. Cancel safe: an event is counted as handed out only when
    /// this returns it.
    pub async fn told(&mut self) -> Result<Option<Told>, Error> {
        loop {
            match self.receive().await {
                Ok(Some(told)) => {
                    self.outage.over();
                    if let Told::Event(event) = &told {
                        self.adrift = event.cursor.is_empty();
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

    async fn receive(&mut self) -> Result<Option<Told>, Error> {
        let stream = match &mut self.stream {
            Some(stream) => stream,
            none => {
                if self.adrift {
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
                    let told = event.map(Told::Event).or(delta.map(Told::Delta));
                    if told.is_some() {
                        return Ok(told);
                    }
                    if !cursor.is_empty() {
                        self.cursor = cursor;
                        self.adrift = false;
                    }
                }
                Ok(None) => return Ok(None),
                Err(status) => return Err(self.client.error(&status)),
            }
        }
    }

    /// Whether a stream that closed in order has told everything. A daemon that shuts down closes it too.
    async fn is_over(&self) -> Result<bool, Error> {
        if self.follow == Follow::No {
            return Ok(true);
        }
        match &self.of {
            Of::Run(_) if self.saw_end => Ok(true),
            Of::Run(id) => Ok(self.client.get(id).await?.has_ended()?),
            Of::Tree(id) => {
                let below = self.client.below(id).await?;
                let root = self.client.get(id).await?;
                for run in below.iter().chain([&root]) {
                    if !run.has_ended()? {
                        return Ok(false);
                    }
                }
                Ok(true)
            }
            Of::Project(_) | Of::All => Ok(false),
        }
    }

    async fn wait_for(&mut self, error: Error) -> Result<(), Error> {
        self.stream = None;
        self.outage.pause(error).await
    }
}

/// Whether the stream is worth opening again: the daemon is away, or it cut a reader that was too slow.
fn resumes(error: &Error) -> bool {
    let is_cut = error.kind() == ErrorKind::Exhausted && error.reason() != "memory_exceeded";
    error.is_outage() || is_cut
}

fn broke_off() -> Error {
    Error::Refused {
        kind: ErrorKind::Precondition,
        message: "the stream broke off while it told what the runs of the tree had done before; ask again"
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
