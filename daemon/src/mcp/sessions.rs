//! Sessions of all runs: start and end of their servers.

use std::collections::HashMap;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rmcp::model::{ClientCapabilities, ClientConfig, Implementation, ProtocolVersion};
use rmcp::service::{
    ClientInitializeError, ClientLifecycleMode, RequestContext, RunningService,
    serve_client_with_lifecycle_and_ct,
};
use rmcp::transport::Transport;
use rmcp::{ClientHandler, ErrorData, RoleClient};
use rye_core::error::with_sources;
use rye_core::id::{ItemId, RunId};
use rye_core::model::{ProcessIdentity, Status};
use rye_process::Source;
use rye_process::{self as process, Exited, Running, Spawner, StopReason, Stopper, Tap};
use serde_json::json;
use tokio::sync::watch;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::inbox::Inbox;
use super::remote::Exchange;
use super::session::{End, Session, Tail, tools};
use super::stdio::Lines;
use super::{
    Ending, Failure, MOST_SERVERS, Offered, Plan, Reached, Server, ServerAnswer, Trouble, tags_of,
};
use crate::http::{Client, Url};
use crate::stop::Stop;
use rye_host::task::{self, Group};
use rye_journal::Journal;

/// Lifetime of an idle server.
const IDLE: Duration = Duration::from_mins(5);
/// Time for a server to exit after its input is closed, before it gets a signal.
const END_OF_INPUT: Duration = Duration::from_secs(1);

/// Context of a call.
#[derive(Clone, Copy)]
#[expect(
    missing_debug_implementations,
    reason = "who hears of progress and of processes cannot be shown"
)]
pub struct Caller<'a> {
    pub run: &'a RunId,
    pub journal: &'a Arc<Journal>,
    /// HTTP client for servers on other hosts.
    pub client: Option<&'a Arc<Client>>,
    /// Stop signal of the run.
    pub stop: &'a Stop,
    /// Receives reports of progress.
    pub report: &'a (dyn Fn(&str) + Sync),
    /// Records the process of a server started for this call.
    pub started: &'a (dyn Fn(ProcessIdentity) + Sync),
}

/// Identifies one server of one root run.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Key {
    root: RunId,
    project: String,
    server: ItemId,
    hash: String,
}

/// Locked while a session is opened; other callers wait for it.
type Slot = Arc<tokio::sync::Mutex<Option<Arc<Session>>>>;
type Open = Arc<Mutex<HashMap<Key, Slot>>>;

#[derive(Debug)]
pub struct Sessions {
    spawner: Spawner,
    open: Open,
    keepers: Mutex<Group<()>>,
    /// Number of sessions opened since the daemon started; it makes their tags unique.
    made: AtomicU64,
}

impl Sessions {
    /// Starts without sessions; processes are started through `spawner`.
    pub fn new(spawner: Spawner) -> Self {
        Self {
            spawner,
            open: Open::default(),
            keepers: Mutex::new(Group::new()),
            made: AtomicU64::new(0),
        }
    }

    /// Executes `plan` for `caller`.
    pub async fn execute(&self, plan: &Plan, caller: Caller<'_>) -> Result<ServerAnswer, Trouble> {
        let began = tokio::time::Instant::now();
        let key = Key {
            root: root_of(caller.journal, caller.run),
            project: plan.server.project.clone(),
            server: plan.server.id.clone(),
            hash: plan.server.hash.clone(),
        };
        let mut left = plan.clone();
        for is_last in [false, true] {
            let opened = tokio::select! {
                biased;
                opened = self.session(&key, &plan.server, caller) => opened.map_err(Trouble::unsent),
                () = caller.stop.due() => Err(Trouble::unsent(Ending::Stopped)),
                () = task::sleep(left.max_duration) => Err(Trouble::unsent(Ending::Late)),
            };
            left.max_duration = plan
                .max_duration
                .map(|within| within.saturating_sub(began.elapsed()));
            let asked = match opened {
                Ok(session) => session.execute(&left, caller.stop, caller.report).await,
                Err(trouble) => Err(trouble),
            };
            match asked {
                // The session ended between its lookup and the call.
                Err(Trouble {
                    ending: Ending::Failed(Failure::Lost { .. }),
                    is_unsent: true,
                }) if !is_last && matches!(plan.server.reached, Reached::Stdio(_)) => {}
                asked => return asked,
            }
        }
        unreachable!("the last round answers")
    }

    fn slots(&self) -> MutexGuard<'_, HashMap<Key, Slot>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the session of `key`, and opens one if there is none.
    async fn session(
        &self,
        key: &Key,
        server: &Server,
        caller: Caller<'_>,
    ) -> Result<Arc<Session>, Failure> {
        let slot = {
            let mut slots = self.slots();
            slots.retain(|_, slot| Arc::strong_count(slot) > 1 || is_open(slot));
            let of_root = slots.keys().filter(|known| known.root == key.root).count();
            match slots.get(key) {
                Some(slot) => Arc::clone(slot),
                None if of_root >= MOST_SERVERS => {
                    return Err(Failure::TooMany {
                        root: key.root.clone(),
                    });
                }
                None => Arc::clone(slots.entry(key.clone()).or_default()),
            }
        };
        let made = {
            let mut session = slot.lock().await;
            if let Some(open) = session.as_ref().filter(|open| !open.inbox.is_broken()) {
                return Ok(Arc::clone(open));
            }
            let made = self.open(key, server, caller).await;
            *session = made.as_ref().ok().cloned();
            made
        };
        drop(slot);
        if made.is_err() {
            forget(&self.open, key);
        }
        made
    }

    /// Starts a server and lists its tools.
    async fn open(
        &self,
        key: &Key,
        server: &Server,
        caller: Caller<'_>,
    ) -> Result<Arc<Session>, Failure> {
        let Begun {
            link,
            inbox,
            token,
            used,
            end,
        } = self.begin(key, server, caller).await?;
        // Ends the session if this future is dropped before it is open.
        let mut unready = Unready(Some(inbox.clone()));
        let ready = tokio::select! {
            biased;
            ready = ready(link, Host::of(server), token, &inbox) => ready,
            () = inbox.broken() => Err("it ended".to_owned()),
            () = task::sleep(Some(server.start_timeout)) => {
                let seconds = server.start_timeout.as_secs_f64();
                Err(format!("it took more than {seconds} s (more with `config.start_timeout`)"))
            }
        };
        let (service, tools) = match ready {
            Ok(ready) => ready,
            Err(problem) => {
                // An earlier fault is more specific.
                inbox.break_off(&problem);
                return Err(Failure::Start {
                    server: server.id.clone(),
                    problem: end.last_lines(&inbox).await,
                });
            }
        };
        unready.0 = None;
        Ok(Arc::new(Session {
            server: server.id.clone(),
            service,
            inbox,
            tools,
            used,
            end,
        }))
    }

    /// Starts the process of a server, or the exchange with it, and its keeper.
    async fn begin(
        &self,
        key: &Key,
        server: &Server,
        caller: Caller<'_>,
    ) -> Result<Begun, Failure> {
        let inbox = Inbox::new();
        let (used, calls) = watch::channel(0);
        let (exit_told, exit) = watch::channel(None);
        let token = CancellationToken::new();
        let tail = Arc::<Tail>::default();
        let keeper = Keeper {
            key: key.clone(),
            open: Arc::clone(&self.open),
            journal: Arc::clone(caller.journal),
            inbox: inbox.clone(),
            calls,
            token: token.clone(),
            exit: exit_told,
        };
        let failed = |problem| Failure::Program {
            server: server.id.clone(),
            problem,
        };
        let link = match &server.reached {
            Reached::Stdio(plan) => {
                let started = self.start(key, plan, caller).await;
                let (running, pipes) = started.map_err(|error| failed(with_sources(&error)))?;
                self.keep(keeper.process(running, Arc::clone(&tail)));
                Link::Lines(Lines::new(pipes, inbox.clone()))
            }
            Reached::Http(remote) => {
                let client = caller.client.map(Arc::clone);
                let client = client
                    .ok_or_else(|| failed("there is no client for other hosts".to_owned()))?;
                self.keep(keeper.connection());
                Link::Exchange(Exchange::new(client, (**remote).clone(), inbox.clone()))
            }
        };
        Ok(Begun {
            link,
            inbox,
            token,
            used,
            end: End { tail, exit },
        })
    }

    async fn start(
        &self,
        key: &Key,
        plan: &process::Plan,
        caller: Caller<'_>,
    ) -> Result<(Running, Pipes), process::Error> {
        let number = self.made.fetch_add(1, Ordering::Relaxed);
        let server: String = key.hash.chars().take(12).collect();
        let tag = format!("{}{server}-{number}", tags_of(&key.root));
        let mut running = self.spawner.start(plan.clone(), &tag).await?;
        (caller.started)(running.identity().clone());
        let pipes = running.take_pipes()?;
        Ok((running, pipes))
    }

    fn keep(&self, keeper: impl Future<Output = ()> + Send + 'static) {
        let keepers = self.keepers.lock();
        let mut keepers = keepers.unwrap_or_else(PoisonError::into_inner);
        while keepers.try_next().is_some() {}
        keepers.spawn(keeper);
    }
}

/// Pipes to and from a server.
type Pipes = (
    tokio::net::unix::pipe::Sender,
    tokio::net::unix::pipe::Receiver,
);

/// A session that is not open yet.
struct Begun {
    link: Link,
    inbox: Inbox,
    token: CancellationToken,
    used: watch::Sender<usize>,
    end: End,
}

/// Transport of messages.
enum Link {
    Lines(Lines),
    Exchange(Exchange),
}

/// Ends a session that does not become ready.
struct Unready(Option<Inbox>);

impl Drop for Unready {
    fn drop(&mut self) {
        if let Some(inbox) = &self.0 {
            inbox.break_off("nobody waits for it any more");
        }
    }
}

/// Performs the handshake and lists the tools.
async fn ready(
    link: Link,
    host: Host,
    token: CancellationToken,
    inbox: &Inbox,
) -> Result<(RunningService<RoleClient, Host>, Vec<Offered>), String> {
    let service = match link {
        Link::Lines(lines) => serve(host, lines, token).await,
        Link::Exchange(exchange) => serve(host, exchange, token).await,
    };
    let service = service.map_err(|error| with_sources(&error))?;
    let tools = tools(service.peer(), inbox).await?;
    Ok((service, tools))
}

async fn serve(
    host: Host,
    transport: impl Transport<RoleClient> + 'static,
    token: CancellationToken,
) -> Result<RunningService<RoleClient, Host>, ClientInitializeError> {
    let lifecycle = ClientLifecycleMode::Initialize;
    serve_client_with_lifecycle_and_ct(host, transport, lifecycle, token).await
}

/// Answers requests of a server: it may request the root; all others are declined.
#[derive(Debug, Clone)]
pub(super) struct Host {
    root: Option<String>,
}

impl Host {
    fn of(server: &Server) -> Self {
        let root = Url::from_directory_path(&server.project).ok();
        Self {
            root: root.map(String::from),
        }
    }
}

impl ClientHandler for Host {
    fn get_info(&self) -> ClientConfig {
        let can = serde_json::from_value::<ClientCapabilities>(json!({"roots": {}}));
        let can = can.expect("this is what a client can do");
        ClientConfig::new(can, Implementation::new("rye", env!("CARGO_PKG_VERSION")))
            .with_protocol_version(ProtocolVersion::LATEST_WITH_INITIALIZE)
    }

    #[expect(deprecated, reason = "servers of earlier versions ask for it")]
    async fn list_roots(
        &self,
        _context: RequestContext<RoleClient>,
    ) -> Result<rmcp::model::ListRootsResult, ErrorData> {
        let roots = self.root.iter();
        let roots = roots.map(|root| rmcp::model::Root::new(root.as_str()));
        Ok(rmcp::model::ListRootsResult::new(roots.collect()))
    }
}

/// Ends a session when its root run has ended, when it is idle for long, or when it has a fault.
struct Keeper {
    key: Key,
    open: Open,
    journal: Arc<Journal>,
    inbox: Inbox,
    calls: watch::Receiver<usize>,
    token: CancellationToken,
    exit: watch::Sender<Option<String>>,
}

impl Keeper {
    /// Resolves when the session must end.
    async fn due(&self) {
        let fault = tokio::select! {
            () = self.inbox.broken() => return,
            _ended = self.journal.ended(&self.key.root) => "its run has ended",
            () = idle(self.calls.clone()) => "it was not called for long",
        };
        self.inbox.break_off(fault);
    }

    /// Keeps a session with a process.
    async fn process(self, running: Running, tail: Arc<Tail>) {
        let stopper = Stopper::new();
        let tap = Tap::new(move |source, piece, _kept| match source {
            Source::Stderr => tail.receive(piece),
            Source::Stdout => {}
        });
        let mut finish = pin!(running.with_tap(tap).finish(stopper.listen()));
        let ended = tokio::select! {
            ended = &mut finish => Some(ended),
            () = self.due() => None,
        };
        if ended.is_some() {
            // Its last output is still to be read.
            let _read = timeout(END_OF_INPUT, self.inbox.broken()).await;
        }
        // The transport closes the input of the server when it is dropped.
        self.token.cancel();
        let ended = if let Some(ended) = ended {
            ended
        } else {
            tokio::select! {
                biased;
                () = self.is_killed() => {
                    stopper.stop(StopReason::Kill { grace: Duration::ZERO });
                    finish.await
                }
                ended = &mut finish => ended,
                () = task::sleep(Some(END_OF_INPUT)) => {
                    stopper.stop(StopReason::Cancel);
                    finish.await
                }
            }
        };
        let told = match &ended {
            Ok(exited) => describe_exit(exited),
            Err(error) => with_sources(error),
        };
        self.inbox.break_off("its process ended");
        self.over(told);
    }

    /// Resolves if its root run was killed; otherwise never.
    async fn is_killed(&self) {
        let run = self.journal.snapshot(&self.key.root);
        if run.is_none_or(|run| run.status() != Status::Killed) {
            std::future::pending::<()>().await;
        }
    }

    /// Keeps a session with another host.
    async fn connection(self) {
        self.due().await;
        self.token.cancel();
        self.over(String::new());
    }

    fn over(self, told: String) {
        self.exit.send_replace(Some(told));
        forget(&self.open, &self.key);
    }
}

/// Exit of a process as text; empty if the daemon ended it.
fn describe_exit(exited: &Exited) -> String {
    match exited.ended_by {
        None => format!("its process ended with {}", exited.exit),
        Some(_) => String::new(),
    }
}

/// Resolves when there was no call for `IDLE`.
async fn idle(mut calls: watch::Receiver<usize>) {
    loop {
        if calls.wait_for(|calls| *calls == 0).await.is_err() {
            return;
        }
        match timeout(IDLE, calls.changed()).await {
            Ok(Ok(())) => {}
            Ok(Err(_)) | Err(_) => return,
        }
    }
}

/// True if `slot` has an open session, or one is being opened.
fn is_open(slot: &Slot) -> bool {
    slot.try_lock().map_or(true, |session| {
        session.as_ref().is_some_and(|open| !open.inbox.is_broken())
    })
}

/// Removes the slot of `key` if it is unused. A user of the slot finds its session ended and opens another.
fn forget(open: &Open, key: &Key) {
    let mut slots = open.lock().unwrap_or_else(PoisonError::into_inner);
    if slots
        .get(key)
        .is_some_and(|slot| Arc::strong_count(slot) == 1)
    {
        slots.remove(key);
    }
}

/// The run whose end ends the servers of `run`: the topmost ancestor that is reached through parents that wait for
/// their children.
fn root_of(journal: &Journal, run: &RunId) -> RunId {
    let mut root = run.clone();
    while let Some(known) = journal.snapshot(&root) {
        let parent = known.spec.parent.clone();
        match parent.filter(|_| known.spec.parent_end.waits()) {
            Some(parent) => root = parent,
            None => break,
        }
    }
    root
}

#[cfg(test)]
mod tests {
    use tokio::time::Instant;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn server_is_idle_after_five_minutes_without_calls() {
        let (calls, heard) = watch::channel(0);
        let begun = Instant::now();
        let called = async {
            task::sleep(Some(Duration::from_mins(4))).await;
            calls.send_replace(1);
            task::sleep(Some(Duration::from_mins(50))).await;
            calls.send_replace(0);
        };
        tokio::join!(idle(heard), called);
        let took = begun.elapsed().as_secs();
        assert_eq!(took.div_euclid(60), 4 + 50 + 5, "{took} s");
    }
}
