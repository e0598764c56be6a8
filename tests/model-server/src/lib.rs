//! A server that speaks the apis of models, and says what a script tells it to.
//!
//! **Owns** the wire as the vendors have it: the checks of each request, the streams of the answers, and what goes wrong on the way if
//! the script says so. **Never** counts requests to choose an answer: the request itself decides, so one that is repeated after a crash
//! gets the same answer, ids included. (The exception has a name: `times`.)
//!
//! ```text
//! request ──headers, body──► Asked ──History──► Rule ──► Reply ──► events ──plan──► steps ──Player──► bytes
//! ```
//!
//! **A script** is a YAML list of rules. The first that matches answers; a request that none matches is a breach.
//!
//! ```yaml
//! - when: {directive: NAME, turn: 1, tool_result: PART, contains: PART}    # each may be missing
//!   times: 2                      # answers that many requests, then the rules below do
//!   reply: {status: 529, retry_after: 1, error: {type: overloaded_error, message: Busy.}}
//! - when: {turn: 1}
//!   reply:
//!     thinking: Let me see.
//!     text: I count the words.
//!     calls: [{name: count, input: {path: README.md}, id: call_1}]     # input may be text: it is sent as it is
//!     # or content: a list of {text}, {thinking}, {call: {name, input, id}}, {huge: BYTES}, {hold: NAME}, in any order
//!     usage: {input: 100, output: 20, cache_read: 0, cache_write: 0}
//!     stop: calls                 # end, calls, length, window, refusal, pause
//! ```
//!
//! `directive` is the name in the first text of the user (`<directive name="NAME"`), `turn` is one more than there are messages of the
//! model, `tool_result` is part of one of the newest results, `contains` is part of the newest text of the user.
//!
//! A value `$threads` in the input of a call is the list of the `thread_id`s that the newest results hold.
//!
//! How a stream goes: `pace_ms` between events; `hold: NAME` or `{name, before: EVENTS}` waits for [`ModelServer::release`];
//! `slow_headers: MILLISECONDS` or `NAME`; `huge: BYTES` is a text in one event; `no_usage`, `no_end`, `duplicate_index` and
//! `reset_before` are `true`. One of `cut_after: EVENTS` (the connection is closed), `reset_after: EVENTS`, `stall: EVENTS` (nothing more
//! comes), `malformed: EVENTS` and `error_event: {after: EVENTS, type, message}`, where EVENTS is how many were sent before.
//!
//! **Failure.** A request that breaks a rule of the wire gets the status 400, and is a breach; a server with breaches fails the test that
//! drops it.

mod anthropic;
mod field;
mod history;
mod openai_chat;
mod play;
mod request;
mod script;
mod serve;
mod shared;

use std::fmt;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rye_core::yaml::Fault;
use tokio::sync::oneshot;

pub use request::Request;

use script::Script;
use shared::Shared;

/// The key that every call has to come with. No test may find it anywhere else.
pub const SECRET: &str = "sk-key-of-the-scripted-model-server";

/// How long anything a test waits for may take, here and elsewhere. Far beyond what it takes on a busy machine; a test that hits it fails.
pub const PATIENCE: Duration = Duration::from_mins(2);

/// A running server. Dropping it ends it, and fails a test whose requests broke a rule.
pub struct ModelServer {
    shared: Arc<Shared>,
    address: SocketAddr,
    /// Ends the thread when it is dropped.
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// Why a server does not start.
#[derive(Debug, thiserror::Error)]
pub enum Unstarted {
    /// The script cannot be read.
    #[error("the script is wrong: {0}")]
    Script(#[source] Fault),
    /// There is no socket, or no thread.
    #[error("the server cannot listen on 127.0.0.1: {0}")]
    Socket(#[source] io::Error),
}

impl ModelServer {
    /// Starts a server on a free port of this machine.
    ///
    /// # Panics
    /// If the script is wrong.
    pub fn start(script: &str) -> Self {
        Self::try_start(script).expect("a script that can be played")
    }

    /// As [`ModelServer::start`], and the error is told.
    pub fn try_start(script: &str) -> Result<Self, Unstarted> {
        let script = Script::parse(script).map_err(Unstarted::Script)?;
        let shared = Arc::new(Shared::new(script));
        let listener = TcpListener::bind("127.0.0.1:0").map_err(Unstarted::Socket)?;
        listener.set_nonblocking(true).map_err(Unstarted::Socket)?;
        let address = listener.local_addr().map_err(Unstarted::Socket)?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(Unstarted::Socket)?;
        let (stop, stopped) = oneshot::channel();
        let served = Arc::clone(&shared);
        let thread = thread::Builder::new()
            .name("model-server".to_owned())
            .spawn(move || runtime.block_on(serve::serve(listener, served, stopped)))
            .map_err(Unstarted::Socket)?;
        Ok(Self {
            shared,
            address,
            stop: Some(stop),
            thread: Some(thread),
        })
    }

    /// Where it is, without `/v1`.
    pub fn base_url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Variables that lead the clients of the vendors here.
    pub fn environment(&self) -> Vec<(&'static str, String)> {
        let base = self.base_url();
        vec![
            ("ANTHROPIC_BASE_URL", base.clone()),
            ("ANTHROPIC_API_KEY", SECRET.to_owned()),
            ("OPENAI_BASE_URL", format!("{base}/v1")),
            ("OPENAI_API_KEY", SECRET.to_owned()),
        ]
    }

    /// The requests that follow the rules, in the order in which they came.
    pub fn requests(&self) -> Vec<Request> {
        self.shared.seen().requests.clone()
    }

    /// Waits until the requests are as `look` wants them, which may not ask the server for anything else.
    ///
    /// # Panics
    /// If that takes too long, or a request breaks a rule meanwhile.
    pub fn wait_for(&self, mut look: impl FnMut(&[Request]) -> bool) {
        self.shared.wait("requests", |seen| look(&seen.requests));
    }

    /// Waits until an answer waits for `name`. All events before it are on their way then.
    ///
    /// # Panics
    /// As [`ModelServer::wait_for`].
    pub fn wait_held(&self, name: &str) {
        let what = format!("an answer that holds at `{name}`");
        self.shared.wait(&what, |seen| seen.held.contains(name));
    }

    /// Lets answers that wait for `name` go on, and those that would.
    ///
    /// # Panics
    /// If nothing in the script waits for it.
    pub fn release(&self, name: &str) {
        self.shared.release(name);
    }

    /// What broke a rule.
    pub fn breaches(&self) -> Vec<String> {
        self.shared.seen().breaches.clone()
    }

    /// How many connections were closed by the client before their answer ended.
    pub fn abandoned(&self) -> usize {
        self.shared.seen().abandoned
    }

    /// Waits until so many connections were closed by the client before their answer ended.
    ///
    /// # Panics
    /// As [`ModelServer::wait_for`].
    pub fn wait_abandoned(&self, count: usize) {
        let what = format!("{count} answers that nobody waits for");
        self.shared.wait(&what, |seen| seen.abandoned >= count);
    }

    /// Waits until `count` connections have ended, closed by either side.
    ///
    /// # Panics
    /// As [`ModelServer::wait_for`].
    pub fn wait_ended(&self, count: usize) {
        let what = format!("the end of {count} connections");
        self.shared.wait(&what, |seen| seen.ended >= count);
    }

    /// Ends the server; what broke a rule, which is then no failure.
    pub fn finish(mut self) -> Vec<String> {
        self.end();
        std::mem::take(&mut self.shared.seen().breaches)
    }

    fn end(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let ended = thread.join();
            assert!(
                ended.is_ok() || thread::panicking(),
                "the model server panicked"
            );
        }
    }
}

impl Drop for ModelServer {
    fn drop(&mut self) {
        self.end();
        let breaches = self.breaches();
        assert!(
            breaches.is_empty() || thread::panicking(),
            "requests broke the rules of the wire:\n{}",
            breaches.join("\n")
        );
    }
}

impl fmt::Debug for ModelServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ModelServer")
            .field("address", &self.address)
            .finish_non_exhaustive()
    }
}
