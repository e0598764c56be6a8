//! Programs that may call the daemon: the processes of attempts whose tokens are live.
//!
//! **Owns** the tokens of programs, only as their hashes, and the calls that each program has open. **Never** decides
//! what a program may do; that is the authority of its run, narrowed by [`ProgramAttempt::layer`].
//!
//! **States** of a program: open → ended. It is registered before its process starts, and ended after that process has.
//! **Order.** A call enters before it creates a run, and leaves when its answer is known. [`Registered::end`] waits for
//! all calls that have entered, so no call of an attempt outlives the attempt. A program with `replay: ordered` makes one
//! call at a time, each with a number ([`Turn`]). **Bounds.** [`MOST_OPEN`] open calls, and [`MOST_CALLS`] in all.
//! **Failure.** A dropped [`Registered`] ends the program without waiting.

mod order;

use std::collections::HashMap;
use std::ffi::OsString;
use std::fmt;
use std::ops::Deref;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use rye_core::capability::Layer;
use rye_core::clock::Uptime;
use rye_core::id::RunId;
use rye_core::model::Slot;
use sha2::{Digest as _, Sha256};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tokio_util::task::task_tracker::TaskTrackerToken;
use zeroize::Zeroizing;

use self::order::CallOrder;
pub use self::order::{Halt, Turn};

/// Variable with the token of a program.
pub const TOKEN_VARIABLE: &str = "RYE_TOKEN";

/// Most calls of one program that are open at the same time.
pub const MOST_OPEN: usize = 64;
/// Most calls of one program.
pub const MOST_CALLS: u32 = 10_000;
/// Shortest time between two recorded reports of progress.
const PROGRESS_PAUSE: Duration = Duration::from_secs(1);

type Hash = [u8; 32];

/// The programs that may call the daemon, by the SHA-256 of their tokens.
#[derive(Debug, Clone)]
pub struct Callbacks {
    programs: Arc<Mutex<HashMap<Hash, Arc<Program>>>>,
    /// Variables that tell a program how to reach the daemon.
    variables: Arc<[(&'static str, PathBuf)]>,
}

/// The attempt that a program is.
#[derive(Debug, Clone)]
pub struct ProgramAttempt {
    pub run: RunId,
    pub step: u32,
    pub slot: Slot,
    /// Name of the node; empty for a call that belongs to none.
    pub node: String,
    /// Number of the try, from 1.
    pub number: u32,
    /// Idempotency key of the attempt.
    pub key: String,
    /// Tag of the attempt, which its processes have.
    pub tag: String,
    /// Permissions that the tool declares.
    pub layer: Option<Layer>,
    /// True if the program repeats its calls in order.
    pub replays: bool,
}

/// A program that may call.
#[derive(Debug)]
pub struct Program {
    attempt: ProgramAttempt,
    calls: Calls,
    /// Order of its calls, if it repeats them.
    order: Option<CallOrder>,
}

impl Deref for Program {
    type Target = ProgramAttempt;

    fn deref(&self) -> &ProgramAttempt {
        &self.attempt
    }
}

#[derive(Debug, Default)]
struct Calls {
    open: TaskTracker,
    ended: CancellationToken,
    begun: AtomicU32,
    /// Time of the last recorded report of progress.
    reported: Mutex<Option<Uptime>>,
}

/// A call that has entered. The attempt ends only after it is dropped.
#[derive(Debug)]
pub struct Entered(#[expect(dead_code, reason = "held until the call is over")] TaskTrackerToken);

/// A call that is refused for the state of its program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Closed {
    #[error("the program that calls has ended")]
    Ended,
    #[error("a program may have {MOST_OPEN} open calls; wait for the answer of one")]
    TooManyOpen,
    #[error("a program may make {MOST_CALLS} calls; let it call a graph that loops")]
    TooMany,
    #[error(
        "a program with `replay: ordered` makes one call at a time; wait for the answer of the other one"
    )]
    Concurrent,
}

impl Closed {
    /// Code for programs.
    pub const fn code(self) -> &'static str {
        match self {
            Self::Ended => "caller_gone",
            Self::TooManyOpen | Self::TooMany => "too_many_callbacks",
            Self::Concurrent => "concurrent_call",
        }
    }
}

impl Callbacks {
    /// `socket` is the path of the daemon's socket, `client` that of `ryectl`, if it is there.
    pub fn new(socket: PathBuf, client: Option<PathBuf>) -> Self {
        let client = client.map(|client| ("RYE_CTL", client));
        let own = [
            ("RYE_SOCKET", socket),
            ("RYE_NO_AUTOSTART", PathBuf::from("1")),
        ];
        Self {
            programs: Arc::default(),
            variables: own.into_iter().chain(client).collect(),
        }
    }

    fn programs(&self) -> MutexGuard<'_, HashMap<Hash, Arc<Program>>> {
        // Every use changes one entry, so a panic elsewhere leaves the map valid.
        self.programs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets the program of `attempt` call the daemon, with a token made of `random`.
    pub fn register(&self, attempt: ProgramAttempt, random: [u8; 32]) -> Registered {
        let random = Zeroizing::new(random);
        let token = Zeroizing::new(format!("rye_{}", URL_SAFE_NO_PAD.encode(*random)));
        let hash = Sha256::digest(token.as_bytes()).into();
        let order = attempt.replays.then(CallOrder::default);
        let program = Arc::new(Program {
            attempt,
            calls: Calls::default(),
            order,
        });
        self.programs().insert(hash, Arc::clone(&program));
        Registered {
            all: self.clone(),
            hash,
            token,
            program,
        }
    }

    /// Returns the program with this token, if its processes carry `tag`.
    pub fn program(&self, token: &str, tag: &[u8]) -> Option<Arc<Program>> {
        // The hash of a guessed token tells nothing about the hashes in the map.
        let hash: Hash = Sha256::digest(token.as_bytes()).into();
        let program = self.programs().get(&hash).cloned()?;
        (program.tag.as_bytes() == tag).then_some(program)
    }

    /// True if a program whose processes carry `tag` may call.
    pub fn knows(&self, tag: &[u8]) -> bool {
        let programs = self.programs();
        let mut programs = programs.values();
        programs.any(|program| program.tag.as_bytes() == tag)
    }
}

/// A program that may call, until this is ended or dropped.
pub struct Registered {
    all: Callbacks,
    hash: Hash,
    token: Zeroizing<String>,
    program: Arc<Program>,
}

/// Omits the token.
impl fmt::Debug for Registered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Registered").field(&self.program).finish()
    }
}

impl Registered {
    pub fn token(&self) -> &str {
        &self.token
    }

    /// Variables for the processes of the program.
    pub fn variables(&self) -> impl Iterator<Item = (OsString, OsString)> {
        let token = (TOKEN_VARIABLE.into(), OsString::from(self.token.as_str()));
        let fixed = self.all.variables.iter();
        let fixed = fixed.map(|(name, value)| (name.into(), value.clone().into_os_string()));
        fixed.chain([token])
    }

    /// Resolves when the program is to be ended because of its order of calls. Never for other programs.
    pub async fn halted(&self) {
        match &self.program.order {
            Some(order) => order.halted().await,
            None => std::future::pending().await,
        }
    }

    /// Returns the reason for which the program is to be ended.
    pub fn halt(&self) -> Option<Halt> {
        self.program.order.as_ref()?.halt()
    }

    /// Ends the program, and waits for its open calls.
    pub async fn end(self) {
        let calls = &self.program.calls;
        calls.ended.cancel();
        calls.open.close();
        calls.open.wait().await;
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        self.program.calls.ended.cancel();
        self.all.programs().remove(&self.hash);
    }
}

impl Program {
    /// Begins a call.
    pub fn enter(&self) -> Result<Entered, Closed> {
        let calls = &self.calls;
        // The token comes first: `end` waits for it, or has set the flag that is read next.
        let entered = Entered(calls.open.token());
        if calls.ended.is_cancelled() {
            return Err(Closed::Ended);
        }
        if calls.open.len() > MOST_OPEN {
            return Err(Closed::TooManyOpen);
        }
        let counted = calls
            .begun
            .try_update(Ordering::Relaxed, Ordering::Relaxed, |begun| {
                (begun < MOST_CALLS).then_some(begun + 1)
            });
        counted.map_err(|_begun| Closed::TooMany)?;
        Ok(entered)
    }

    /// Begins a call in the order of the program; `None` if it does not repeat its calls.
    pub fn turn(&self) -> Result<Option<Turn<'_>>, Closed> {
        self.order.as_ref().map(CallOrder::turn).transpose()
    }

    /// Resolves when the program has ended.
    pub async fn ended(&self) {
        self.calls.ended.cancelled().await;
    }

    pub fn has_ended(&self) -> bool {
        self.calls.ended.is_cancelled()
    }

    /// True if a report of progress at `now` is to be recorded. Reports in between are dropped.
    pub fn takes_progress(&self, now: Uptime) -> bool {
        let reported = self.calls.reported.lock();
        let mut reported = reported.unwrap_or_else(PoisonError::into_inner);
        let is_due = reported.is_none_or(|last| now.since(last) >= PROGRESS_PAUSE);
        if is_due {
            *reported = Some(now);
        }
        is_due
    }
}

#[cfg(test)]
mod tests;
