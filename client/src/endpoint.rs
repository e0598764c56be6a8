//! Finding the daemon, and starting it where that is allowed.
//!
//! ```text
//! --socket PATH ─────────────► that socket only
//! a daemon has the state dir ► the socket that it names in `served-at`
//! --state-dir DIR ───────────► DIR/ryed.sock
//! neither ───────────────────► $XDG_RUNTIME_DIR/rye/ryed.sock, else <state dir>/ryed.sock
//!                              └ nothing listens there: /run/rye/ryed.sock, if it answers
//! nothing listens at all ────► start the `ryed` beside this program, unless switched off or inside a run
//! ```
//!
//! **Order and races.** Two clients that find nothing both start a daemon; the lock of the state directory lets one
//! live, and both clients wait for its socket. A daemon that lives is waited for, and none is started in its place.
//! **Failure.** A daemon that does not answer is reported with its pid; only [`Endpoint::stop`] ends one.

mod autostart;
mod force;
mod holder;
mod probe;

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rye_core::served_at::{Attempt, Holder, Next};
use tokio::time::Instant;

use self::probe::Probe;
use crate::client::{Client, PATIENCE};
use crate::environment::Environment;
use crate::error::{Error, NotStarted};

/// Where the system unit listens.
const SYSTEM_SOCKET: &str = "/run/rye/ryed.sock";
/// Longest path a Unix socket address takes, without its final NUL.
const MAX_SOCKET_PATH: usize = 107;
/// How long a daemon may take to let go of its socket: the grace of its runs and then some.
const STOP_PATIENCE: Duration = Duration::from_mins(1);
/// Time without an answer after which the user is notified.
const NOTICE_AFTER: Duration = Duration::from_millis(1500);
/// Time without an answer to the request to stop after which a daemon is ended by force.
const UNANSWERED: Duration = Duration::from_secs(10);

/// Shows the user why a call takes long.
pub type Notify<'n> = &'n mut (dyn FnMut(&str) + Send);

/// What the user said about where the daemon is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Choice {
    /// `--socket`.
    pub socket: Option<PathBuf>,
    /// `--state-dir`.
    pub state_dir: Option<PathBuf>,
}

impl Choice {
    /// The state directory: the one that was named, else the user's default.
    pub fn state_dir(&self, environment: &Environment) -> Result<PathBuf, Error> {
        match &self.state_dir {
            Some(dir) => environment.absolute(dir),
            None => default_state_dir(environment).ok_or(Error::NoHome),
        }
    }
}

/// What to do when no daemon is running.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Autostart {
    /// Start one and tell the user.
    On,
    /// Fail, for this reason.
    Off(NotStarted),
}

/// Where a daemon listens, and where it keeps its state if we start it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    socket: PathBuf,
    state_dir: PathBuf,
    fallback: Option<PathBuf>,
    /// True if the user named the socket: no other one is meant.
    is_explicit: bool,
}

/// The way in which a daemon was stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stopped {
    /// None was running.
    NotRunning,
    /// It stopped when it was asked to.
    Asked,
    /// It did not answer, and was ended.
    Forced {
        /// Its pid.
        pid: i32,
    },
}

/// A daemon that was started for this call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Started {
    /// Where it keeps its state.
    pub state_dir: PathBuf,
}

impl Endpoint {
    /// Applies the rules above.
    pub fn find(choice: &Choice, environment: &Environment) -> Result<Self, Error> {
        let state_dir = choice.state_dir(environment)?;
        let (socket, fallback) = match (&choice.socket, &choice.state_dir, &environment.runtime_dir)
        {
            (Some(socket), _, _) => (environment.absolute(socket)?, None),
            (None, Some(_), _) => (state_dir.join("ryed.sock"), None),
            (None, None, Some(runtime)) => (
                runtime.join("rye/ryed.sock"),
                Some(PathBuf::from(SYSTEM_SOCKET)),
            ),
            (None, None, None) => (
                state_dir.join("ryed.sock"),
                Some(PathBuf::from(SYSTEM_SOCKET)),
            ),
        };
        if socket.as_os_str().len() > MAX_SOCKET_PATH {
            return Err(Error::SocketPathTooLong { path: socket });
        }
        Ok(Self {
            socket,
            state_dir,
            fallback,
            is_explicit: choice.socket.is_some(),
        })
    }

    /// The socket that is tried first.
    pub fn socket(&self) -> PathBuf {
        self.socket_of(&self.holder())
    }

    /// The endpoint at which the daemon of `client` is started again if it dies; `None` if it is not this user's to start.
    pub fn again(&self, client: &Client) -> Option<Self> {
        let is_own = self.fallback.as_deref() != Some(client.socket());
        is_own.then(|| Self {
            socket: client.socket().to_owned(),
            fallback: None,
            ..self.clone()
        })
    }

    /// The state directory, if a daemon that this endpoint leads to uses it.
    pub fn state_dir_in_use(&self) -> Option<&Path> {
        (self.holder() != Holder::None).then_some(&self.state_dir)
    }

    /// The daemon of the state directory, as far as this endpoint leads to it.
    fn holder(&self) -> Holder {
        let holder = holder::of(&self.state_dir);
        if self.is_explicit {
            holder.on(&self.socket)
        } else {
            holder
        }
    }

    /// The socket on which `holder` listens. In a container its path may not exist for others.
    fn socket_of(&self, holder: &Holder) -> PathBuf {
        let socket = match holder {
            Holder::None | Holder::Unnamed => &self.socket,
            Holder::Elsewhere(record) if !record.socket.exists() => &self.socket,
            Holder::Elsewhere(record) | Holder::Here(record) => &record.socket,
        };
        socket.clone()
    }

    /// Connects, and starts the daemon first if none runs and `autostart` allows it.
    pub async fn connect(
        &self,
        autostart: Autostart,
        notify: Notify<'_>,
    ) -> Result<(Client, Option<Started>), Error> {
        if let Some(client) = self.running(PATIENCE, notify).await? {
            return Ok((client, None));
        }
        match autostart {
            Autostart::Off(why) => Err(Error::NotRunning {
                socket: self.socket.clone(),
                why,
            }),
            Autostart::On => {
                let client = autostart::start(self).await?;
                let started = Started {
                    state_dir: self.state_dir.clone(),
                };
                Ok((client, Some(started)))
            }
        }
    }

    /// Stops the daemon that runs. One that does not answer is ended, unless it reports that it recovers its runs.
    pub async fn stop(&self, notify: Notify<'_>) -> Result<Stopped, Error> {
        let unanswered = match self.running(UNANSWERED, notify).await {
            Ok(Some(client)) => match stop(&client).await {
                Ok(()) => return Ok(Stopped::Asked),
                Err(error) => error,
            },
            Ok(None) if self.holder() == Holder::None => return Ok(Stopped::NotRunning),
            Ok(None) => {
                return Err(Error::Hidden {
                    state_dir: self.state_dir.clone(),
                });
            }
            Err(error) => error,
        };
        match (unanswered, self.holder().endable()) {
            // Only the one that has not answered: it may have ended by now, and another one may have started.
            (Error::NoAnswer { pid: Some(pid), .. }, Some(record)) if record.daemon.pid == pid => {
                force::end(record, force::Patience::DEFAULT).await?;
                Ok(Stopped::Forced { pid })
            }
            (unanswered, _) => Err(unanswered),
        }
    }

    /// The daemon that runs, if there is one.
    async fn running(
        &self,
        patience: Duration,
        notify: Notify<'_>,
    ) -> Result<Option<Client>, Error> {
        if let Some(client) = self.reach(patience, notify).await? {
            return Ok(Some(client));
        }
        match &self.fallback {
            Some(system) => Ok(Client::connect(system).await.ok()),
            None => Ok(None),
        }
    }

    /// Tries the socket until a daemon answers there, or is known to be absent. One that reports that it recovers is waited for as
    /// long as by any call.
    async fn reach(&self, patience: Duration, notify: Notify<'_>) -> Result<Option<Client>, Error> {
        let began = Instant::now();
        let mut probe = Probe::default();
        let mut pause = Pause::default();
        let (mut is_notified, mut was_closed) = (false, false);
        loop {
            let holder = self.holder();
            let socket = self.socket_of(&holder);
            let mut attempt = probe.look(&socket).await?;
            if !self.is_explicit && holder.is_other(probe.pid()) {
                (probe, attempt) = (Probe::default(), Attempt::Nothing);
            }
            match holder.next(attempt) {
                // It may have ended while the connection waited.
                Next::Use if attempt == Attempt::Closed && !was_closed => was_closed = true,
                Next::Use => return Ok(Some(Client::of(socket))),
                Next::Absent => return Ok(None),
                Next::Wait => {}
            }
            let pid = probe.pid().or_else(|| holder.pid());
            let waited = began.elapsed();
            let is_recovering = holder.is_recovering();
            if waited >= patience && (!is_recovering || waited >= PATIENCE) {
                return Err(Error::NoAnswer {
                    socket,
                    pid,
                    seconds: waited.as_secs(),
                    is_recovering,
                });
            }
            if waited >= NOTICE_AFTER && !is_notified {
                is_notified = true;
                notify(&notice(&holder, pid, attempt, &socket));
            }
            pause.rest().await;
        }
    }
}

/// The notice that the user is shown while a daemon does not answer.
fn notice(holder: &Holder, pid: Option<i32>, attempt: Attempt, socket: &Path) -> String {
    let ryed = pid.map_or_else(|| "ryed".to_owned(), |pid| format!("ryed (pid {pid})"));
    if holder.is_recovering() {
        return format!("{ryed} is still recovering its runs; waiting for it");
    }
    match attempt {
        Attempt::Nothing => format!(
            "{ryed} does not listen on {}; waiting until it does",
            socket.display()
        ),
        Attempt::Silent | Attempt::Closed | Attempt::Answers => {
            format!("{ryed} does not answer; waiting for it")
        }
    }
}

/// Asks a daemon to stop, and waits until it has let go of its socket.
async fn stop(client: &Client) -> Result<(), Error> {
    // Looked at before it is asked: what has the path afterwards may be that of another daemon.
    let its = SocketFile::at(client.socket());
    match client.drain().await {
        // It may be gone before its answer is here; the socket tells.
        Ok(()) | Err(Error::Lost { .. }) => {}
        // Somebody else has asked before.
        Err(error) if error.reason() == "stopping" => {}
        Err(error) => return Err(error),
    }
    match its {
        Some(its) => wait_until_gone(client, its).await,
        None => Ok(()),
    }
}

async fn wait_until_gone(client: &Client, its: SocketFile) -> Result<(), Error> {
    let socket = client.socket();
    let deadline = Instant::now() + STOP_PATIENCE;
    let mut pause = Pause::default();
    // The daemon removes its socket when all is written down; one that died on the way leaves it behind.
    while SocketFile::at(socket) == Some(its) {
        if Instant::now() >= deadline {
            if Client::connect(socket).await.is_err() {
                return Ok(());
            }
            return Err(Error::StillRunning {
                socket: socket.to_owned(),
                pid: client.pid().await,
                seconds: STOP_PATIENCE.as_secs(),
            });
        }
        pause.rest().await;
    }
    Ok(())
}

/// What tells the socket of one daemon from that of the next one on the same path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct SocketFile {
    inode: u64,
    made: (i64, i64),
}

impl SocketFile {
    /// The file at `path`, if there is one.
    fn at(path: &Path) -> Option<Self> {
        let found = std::fs::symlink_metadata(path).ok()?;
        Some(Self {
            inode: found.ino(),
            // Nobody writes to a socket: this is when it was bound.
            made: (found.mtime(), found.mtime_nsec()),
        })
    }
}

fn default_state_dir(environment: &Environment) -> Option<PathBuf> {
    match &environment.state_home {
        Some(dir) => Some(dir.join("rye")),
        None => environment
            .home
            .as_ref()
            .map(|home| home.join(".local/state/rye")),
    }
}

/// The growing pause between two looks at a socket.
#[derive(Debug)]
struct Pause(Duration);

impl Default for Pause {
    fn default() -> Self {
        Self(Duration::from_millis(5))
    }
}

impl Pause {
    async fn rest(&mut self) {
        tokio::time::sleep(self.0).await;
        self.0 = (self.0 * 2).min(Duration::from_millis(50));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn environment() -> Environment {
        Environment {
            home: Some("/home/u".into()),
            current_dir: Some("/work".into()),
            ..Environment::default()
        }
    }

    fn socket(choice: &Choice, environment: &Environment) -> String {
        Endpoint::find(choice, environment)
            .unwrap()
            .socket
            .display()
            .to_string()
    }

    #[test]
    fn an_explicit_socket_wins_and_has_no_fallback() {
        let choice = Choice {
            socket: Some("s.sock".into()),
            state_dir: Some("/state".into()),
        };
        let endpoint = Endpoint::find(&choice, &environment()).unwrap();
        assert_eq!(
            endpoint,
            Endpoint {
                socket: "/work/s.sock".into(),
                state_dir: "/state".into(),
                fallback: None,
                is_explicit: true,
            }
        );
    }

    #[test]
    fn a_state_directory_names_its_socket() {
        let choice = Choice {
            state_dir: Some("state".into()),
            ..Choice::default()
        };
        let with_runtime = Environment {
            runtime_dir: Some("/run/user/1".into()),
            ..environment()
        };
        assert_eq!(socket(&choice, &with_runtime), "/work/state/ryed.sock");
        assert_eq!(
            Endpoint::find(&choice, &with_runtime).unwrap().fallback,
            None
        );
    }

    #[test]
    fn without_a_word_it_is_the_users_socket_and_then_the_systems() {
        let with_runtime = Environment {
            runtime_dir: Some("/run/user/1".into()),
            ..environment()
        };
        let none = Choice::default();
        assert_eq!(socket(&none, &with_runtime), "/run/user/1/rye/ryed.sock");
        assert_eq!(
            socket(&none, &environment()),
            "/home/u/.local/state/rye/ryed.sock"
        );
        let with_state = Environment {
            state_home: Some("/st".into()),
            ..environment()
        };
        assert_eq!(socket(&none, &with_state), "/st/rye/ryed.sock");
        assert_eq!(
            Endpoint::find(&none, &with_state).unwrap().fallback,
            Some(SYSTEM_SOCKET.into())
        );
    }

    #[test]
    fn a_socket_path_has_at_most_107_bytes() {
        let long = |bytes: usize| Choice {
            socket: Some(format!("/{}", "x".repeat(bytes - 1)).into()),
            ..Choice::default()
        };
        assert!(Endpoint::find(&long(107), &environment()).is_ok());
        let error = Endpoint::find(&long(108), &environment()).unwrap_err();
        assert!(error.to_string().contains("has 108 bytes"), "{error}");
    }

    #[test]
    fn without_a_home_the_fix_is_named() {
        let error = Endpoint::find(&Choice::default(), &Environment::default()).unwrap_err();
        assert!(error.hint().unwrap().contains("--state-dir"));
    }

    #[tokio::test]
    async fn a_daemon_that_follows_at_once_is_not_taken_for_the_one_that_was_stopped() {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("s");
        let _old = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        let its = SocketFile::at(&socket).unwrap();
        let next = dir.path().join("next");
        let _new = std::os::unix::net::UnixListener::bind(&next).unwrap();
        std::fs::rename(&next, &socket).unwrap();
        let client = Client::of(socket);
        let gone = wait_until_gone(&client, its);
        let gone = tokio::time::timeout(Duration::from_secs(5), gone).await;
        gone.expect("the old one is gone").unwrap();
    }

    #[tokio::test]
    async fn a_socket_nobody_serves_is_not_running_and_says_why_nothing_started() {
        let dir = tempfile::tempdir().unwrap();
        let choice = Choice {
            socket: Some(dir.path().join("s")),
            ..Choice::default()
        };
        // A stale socket file: its listener is gone.
        drop(std::os::unix::net::UnixListener::bind(dir.path().join("s")).unwrap());
        let endpoint = Endpoint::find(&choice, &environment()).unwrap();
        let error = endpoint
            .connect(Autostart::Off(NotStarted::InsideRun), &mut |_| {})
            .await
            .unwrap_err();
        assert!(matches!(
            error,
            Error::NotRunning {
                why: NotStarted::InsideRun,
                ..
            }
        ));
        assert!(
            error
                .hint()
                .unwrap()
                .contains("a run never starts a daemon")
        );
    }
}
