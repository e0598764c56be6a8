//! A server with the APIs of model vendors that answers from a script.
//!
//! **Owns** the wire formats of the vendors: the checks of each request, the streams of the answers, and the faults
//! that the script requests. **Never** counts requests to choose an answer: the request itself decides, so a request
//! that is repeated after a crash gets the same answer, even the same ids. The only exception is `times`.
//!
//! ```text
//! request ──headers, body──► Asked ──History──► Rule ──► Reply ──► events ──plan──► steps ──Player──► bytes
//! ```
//!
//! **A script** is a YAML list of rules. The first rule that matches answers; a request that no rule matches is a
//! breach.
//!
//! ```yaml
//! - when: {directive: NAME, turn: 1, tool_result: PART, contains: PART}    # all optional
//!   times: 2                      # answers this number of requests; later ones get the rules below
//!   reply: {status: 529, retry_after: 1, error: {type: overloaded_error, message: Busy.}}
//! - when: {turn: 1}
//!   reply:
//!     thinking: Let me see.
//!     text: I count the words.
//!     calls: [{name: count, input: {path: README.md}, id: call_1}]     # an input of type text is sent unchanged
//!     # or content: a list of {text}, {thinking}, {call: {name, input, id}}, {huge: BYTES}, {hold: NAME}, in any order
//!     usage: {input: 100, output: 20, cache_read: 0, cache_write: 0}
//!     stop: calls                 # end, calls, length, window, refusal, pause
//! ```
//!
//! `directive` is the name in the first text of the user (`<directive name="NAME"`). `turn` is the number of messages
//! of the model plus 1. `tool_result` is a part of one of the newest results. `contains` is a part of the newest text
//! of the user.
//!
//! A value `$threads` in the input of a call is replaced by the list of the `thread_id`s in the newest results, and
//! `$handle` by the newest `handle_id` in all results.
//!
//! Keys of a stream: `pace_ms` is the pause between events. `hold: NAME` or `{name, before: EVENTS}` waits for
//! [`ModelServer::release`]. `slow_headers: MILLISECONDS` or `NAME` delays the headers. `huge: BYTES` is a text in one
//! event. `no_usage`, `no_end`, `duplicate_index` and `reset_before` are `true`. At most one fault is allowed:
//! `cut_after: EVENTS` (closes the connection), `reset_after: EVENTS`, `stall: EVENTS` (sends no more),
//! `malformed: EVENTS`, or `error_event: {after: EVENTS, type, message}`. EVENTS is the number of events before it.
//!
//! **Failure.** A request that breaks a rule of the wire gets the status 400, and is a breach. A server with breaches
//! fails the test that drops it.

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

use rye_core::yaml::YamlFault;
use tokio::sync::oneshot;

pub use request::Request;

use script::Script;
use shared::Shared;

/// Key that every call must have. The tests check that it is in no file.
pub const SECRET: &str = "sk-key-of-the-scripted-model-server";

/// Longest wait of any test, here and elsewhere. It far exceeds the usual time on a busy machine; a test that reaches
/// it fails.
pub const PATIENCE: Duration = Duration::from_mins(2);

/// A running server. A drop ends it, and fails a test whose requests broke a rule.
pub struct ModelServer {
    shared: Arc<Shared>,
    address: SocketAddr,
    /// A drop of the sender ends the thread.
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// Reason that a server does not start.
#[derive(Debug, thiserror::Error)]
pub enum Unstarted {
    #[error("the script is wrong: {0}")]
    Script(#[source] YamlFault),
    /// No socket or no thread is available.
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

    /// Starts a server like [`ModelServer::start`], and returns the error.
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

    /// Returns the URL of the server, without `/v1`.
    pub fn base_url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Returns the variables that direct the clients of the vendors to this server.
    pub fn environment(&self) -> Vec<(&'static str, String)> {
        let base = self.base_url();
        vec![
            ("ANTHROPIC_BASE_URL", base.clone()),
            ("ANTHROPIC_API_KEY", SECRET.to_owned()),
            ("OPENAI_BASE_URL", format!("{base}/v1")),
            ("OPENAI_API_KEY", SECRET.to_owned()),
        ]
    }

    /// Returns the valid requests in the order of their arrival.
    pub fn requests(&self) -> Vec<Request> {
        self.shared.record().requests.clone()
    }

    /// Waits until `look` accepts the requests. `look` must not call the server.
    ///
    /// # Panics
    /// If that takes too long, or a request breaks a rule meanwhile.
    pub fn wait_for(&self, mut look: impl FnMut(&[Request]) -> bool) {
        self.shared.wait("requests", |seen| look(&seen.requests));
    }

    /// Waits until an answer holds at `name`. All events before it have been sent by then.
    ///
    /// # Panics
    /// As [`ModelServer::wait_for`].
    pub fn wait_held(&self, name: &str) {
        let what = format!("an answer that holds at `{name}`");
        self.shared.wait(&what, |seen| seen.held.contains(name));
    }

    /// Releases all answers that hold at `name`, now and later.
    ///
    /// # Panics
    /// If nothing in the script waits for it.
    pub fn release(&self, name: &str) {
        self.shared.release(name);
    }

    /// Returns the breaches of rules.
    pub fn breaches(&self) -> Vec<String> {
        self.shared.record().breaches.clone()
    }

    /// Returns the number of connections that the client closed before their answer ended.
    pub fn abandoned(&self) -> usize {
        self.shared.record().abandoned
    }

    /// Waits until the client has closed `count` connections before their answer ended.
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

    /// Ends the server. Returns the breaches, which are then no failure.
    pub fn finish(mut self) -> Vec<String> {
        self.end();
        std::mem::take(&mut self.shared.record().breaches)
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
