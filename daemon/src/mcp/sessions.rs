//! Sessions of all runs: start and end of their servers.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
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
use rye_core::model::{McpSession, ProcessSpec};
use rye_process as process;
use serde_json::json;
use tokio::sync::{oneshot, watch};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::inbox::{Inbox, SessionEnd};
use super::process::{Pipes, Requested, ServerLink, ServerProcess};
use super::remote::Exchange;
use super::session::{End, Session, Tail, tools};
use super::stdio::Lines;
use super::{Ending, Failure, MOST_SERVERS, Offered, Plan, Reached, Server, ServerAnswer, Trouble};
use crate::http::{Client, Url};
use crate::port::{ProcessOwner, ProcessStart, Runs};
use crate::stop::Stop;
use rye_host::task::{self, Group};
use rye_journal::Journal;

/// Lifetime of an idle server.
const IDLE: Duration = Duration::from_mins(5);
/// Reason for the end of a session that was idle for long.
const UNUSED: &str = "it was not called for long";

/// Context of a call.
#[derive(Clone, Copy)]
#[expect(
    missing_debug_implementations,
    reason = "the receiver of reports cannot be shown"
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
    /// The owner of all runs, which starts servers.
    pub runs: &'a Weak<dyn Runs>,
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
    open: Open,
    keepers: Mutex<Group<()>>,
    requested: Requested,
}

impl Default for Sessions {
    fn default() -> Self {
        Self {
            open: Open::default(),
            keepers: Mutex::new(Group::new()),
            requested: Requested::default(),
        }
    }
}

impl Sessions {
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
        let (exit_sender, exit) = watch::channel(None);
        let token = CancellationToken::new();
        let tail = Arc::<Tail>::default();
        let keeper = Keeper {
            key: key.clone(),
            open: Arc::clone(&self.open),
            journal: Arc::clone(caller.journal),
            inbox: inbox.clone(),
            calls,
            token: token.clone(),
        };
        let failed = |problem| Failure::Program {
            server: server.id.clone(),
            problem,
        };
        let link = match &server.reached {
            Reached::Stdio(plan) => {
                let link = ServerLink {
                    inbox: inbox.clone(),
                    tail: Arc::clone(&tail),
                    exit: exit_sender,
                };
                let prepared = ((**plan).clone(), link);
                let pipes = self.start(key, server, prepared, caller).await;
                let pipes = pipes.map_err(failed)?;
                self.keep(keeper.process(exit.clone()));
                Link::Lines(Lines::new(pipes, inbox.clone()))
            }
            Reached::Http(remote) => {
                let client = caller.client.map(Arc::clone);
                let client = client
                    .ok_or_else(|| failed("there is no client for other hosts".to_owned()))?;
                self.keep(keeper.connection(exit_sender));
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

    /// Starts the process of a server as a managed process of the root run.
    async fn start(
        &self,
        key: &Key,
        server: &Server,
        (plan, link): (process::Plan, ServerLink),
        caller: Caller<'_>,
    ) -> Result<Pipes, String> {
        let root = caller.journal.snapshot(&key.root);
        let root = root.ok_or_else(|| format!("the run {} is over", key.root))?;
        let session = format!("{:016x}", caller.journal.random());
        let request = ProcessStart {
            process: process_of(server, &plan, &session),
            owner: ProcessOwner::Run {
                layers: root.spec.layers.clone(),
                record: root,
            },
        };
        let (connection, mut pipes) = oneshot::channel();
        let process = ServerProcess {
            plan,
            connection,
            link,
        };
        let _kept = self.requested.keep(session, process);
        let runs = caller.runs.upgrade();
        let runs = runs.ok_or_else(|| "the daemon stops".to_owned())?;
        let started = runs.start_process(request).await;
        let (run, _) = started.map_err(|refusal| refusal.message)?;
        let unstarted = || "it was stopped before it started".to_owned();
        tokio::select! {
            biased;
            pipes = &mut pipes => pipes.unwrap_or_else(|_| Err(unstarted())),
            _ended = caller.journal.ended(&run.id) => {
                pipes.try_recv().unwrap_or_else(|_| Err(unstarted()))
            }
        }
    }

    /// Returns what a session has prepared for its process, once.
    pub fn take_process(&self, session: &str) -> Option<ServerProcess> {
        self.requested.take(session)
    }

    fn keep(&self, keeper: impl Future<Output = ()> + Send + 'static) {
        let keepers = self.keepers.lock();
        let mut keepers = keepers.unwrap_or_else(PoisonError::into_inner);
        while keepers.try_next().is_some() {}
        keepers.spawn(keeper);
    }
}

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
            inbox.end(unneeded("nobody waits for it any more"));
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

/// Ends a session that is idle for long or broken off, and one with another host when its root run has ended.
struct Keeper {
    key: Key,
    open: Open,
    journal: Arc<Journal>,
    inbox: Inbox,
    calls: watch::Receiver<usize>,
    token: CancellationToken,
}

impl Keeper {
    /// Keeps a session with a process, which ends with its run.
    async fn process(self, mut exit: watch::Receiver<Option<String>>) {
        tokio::select! {
            () = self.inbox.broken() => {}
            () = idle(self.calls.clone()) => self.inbox.end(unneeded(UNUSED)),
        }
        // The transport closes the input of the server when it is dropped.
        self.token.cancel();
        let _ended = exit.wait_for(Option::is_some).await;
        forget(&self.open, &self.key);
    }

    /// Keeps a session with another host.
    async fn connection(self, exit: watch::Sender<Option<String>>) {
        tokio::select! {
            () = self.inbox.broken() => {}
            _ended = self.journal.ended(&self.key.root) => self.inbox.end(unneeded("its run has ended")),
            () = idle(self.calls.clone()) => self.inbox.end(unneeded(UNUSED)),
        }
        self.token.cancel();
        exit.send_replace(Some(String::new()));
        forget(&self.open, &self.key);
    }
}

fn unneeded(reason: &str) -> SessionEnd {
    SessionEnd::Unneeded(reason.to_owned())
}

/// The managed process of a server.
fn process_of(server: &Server, plan: &process::Plan, session: &str) -> ProcessSpec {
    let milliseconds = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    let name = server.id.as_str().rsplit('/').next();
    let name = name.filter(|name| ProcessSpec::is_name(name));
    ProcessSpec {
        name: name.unwrap_or("mcp-server").to_owned(),
        command: plan.program.to_string_lossy().into_owned(),
        args: Some(Vec::new()),
        ready_timeout_ms: milliseconds(server.start_timeout),
        grace_ms: milliseconds(plan.grace),
        mcp: Some(McpSession {
            server: server.id.clone(),
            session: session.to_owned(),
        }),
        ..ProcessSpec::default()
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
