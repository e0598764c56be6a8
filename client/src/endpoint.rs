//! Finds the daemon, and starts it where that is allowed.
//!
//! ```text
//! --socket PATH ─────────────► that socket only
//! a daemon has the state dir ► the socket that it names in `served-at`
//! --state-dir DIR ───────────► DIR/ryed.sock
//! neither ───────────────────► $XDG_RUNTIME_DIR/rye/ryed.sock, else <state dir>/ryed.sock
//!                              └ nothing listens there: /run/rye/ryed.sock, if it answers
//! nothing listens at all ────► start the `ryed` next to this program, unless switched off or inside a run
//! ```
//!
//! **Order and races.** Two clients that find nothing both start a daemon. The lock of the state directory lets one of
//! the daemons live, and both clients wait for its socket. While a daemon lives, no other is started in its place.
//! **Failure.** A daemon that does not answer is reported with its pid; only [`Endpoint::stop`] ends one.

mod autostart;
mod force;
mod holder;
mod probe;

use std::ffi::OsString;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rye_core::served_at::{Attempt, Holder, Next};
use tokio::time::Instant;

use self::probe::Probe;
use crate::client::{Client, PATIENCE};
use crate::environment::Environment;
use crate::error::{Error, NotStarted};

/// Socket of the system unit.
const SYSTEM_SOCKET: &str = "/run/rye/ryed.sock";
/// Longest path of a Unix socket in bytes, without the final NUL.
const MAX_SOCKET_PATH: usize = 107;
/// Longest wait for a daemon to release its socket. It exceeds the grace of the daemon's runs.
const STOP_PATIENCE: Duration = Duration::from_mins(1);
/// Time without an answer after which the user is notified.
const NOTICE_AFTER: Duration = Duration::from_millis(1500);
/// Time without an answer to the request to stop after which a daemon is ended by force.
const UNANSWERED: Duration = Duration::from_secs(10);

/// Callback that shows the user why a call takes long.
pub type Notify<'n> = &'n mut (dyn FnMut(&str) + Send);

/// Options that locate the daemon.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Choice {
    /// `--socket`.
    pub socket: Option<PathBuf>,
    /// `--state-dir`.
    pub state_dir: Option<PathBuf>,
}

impl Choice {
    /// Returns the state directory: the given one, else the user's default.
    pub fn state_dir(&self, environment: &Environment) -> Result<PathBuf, Error> {
        match &self.state_dir {
            Some(dir) => environment.absolute(dir),
            None => default_state_dir(environment).ok_or(Error::NoHome),
        }
    }
}

/// Action if no daemon runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Autostart {
    /// Start one and notify the user.
    On,
    /// Fail for this reason.
    Off(NotStarted),
}

/// Socket of a daemon, and state directory of a daemon that is started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    socket: PathBuf,
    state_dir: PathBuf,
    fallback: Option<PathBuf>,
    /// True if the user named the socket; then no other one is tried.
    is_explicit: bool,
    /// `PATH` of a daemon that is started.
    daemon_path: Option<OsString>,
}

/// Result of stopping a daemon.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stopped {
    NotRunning,
    /// It stopped on request.
    OnRequest,
    /// It did not answer and was ended by force.
    Forced {
        pid: i32,
    },
}

/// A daemon that this call started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Started {
    pub state_dir: PathBuf,
}

impl Endpoint {
    /// Locates the daemon by the rules of this module.
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
            daemon_path: environment.daemon_path.clone(),
        })
    }

    /// Returns the socket that is tried first.
    pub fn socket(&self) -> PathBuf {
        self.socket_of(&self.holder())
    }

    /// Returns the endpoint at which a daemon is started again if that of `client` dies. `None` for the system's
    /// daemon, which this user may not start.
    pub fn again(&self, client: &Client) -> Option<Self> {
        let is_own = self.fallback.as_deref() != Some(client.socket());
        is_own.then(|| Self {
            socket: client.socket().to_owned(),
            fallback: None,
            ..self.clone()
        })
    }

    /// Returns the state directory if a daemon at this endpoint uses it.
    pub fn state_dir_in_use(&self) -> Option<&Path> {
        (self.holder() != Holder::None).then_some(&self.state_dir)
    }

    /// Returns the daemon that holds the state directory. With an explicit socket, a daemon on another socket does not
    /// count.
    fn holder(&self) -> Holder {
        let holder = holder::of(&self.state_dir);
        if self.is_explicit {
            holder.on(&self.socket)
        } else {
            holder
        }
    }

    /// Returns the socket on which `holder` listens, or the default if that path does not exist here, as for a daemon
    /// in a container.
    fn socket_of(&self, holder: &Holder) -> PathBuf {
        let socket = match holder {
            Holder::None | Holder::Unnamed => &self.socket,
            Holder::Elsewhere(record) if !record.socket.exists() => &self.socket,
            Holder::Elsewhere(record) | Holder::Here(record) => &record.socket,
        };
        socket.clone()
    }

    /// Connects. Starts the daemon first if none runs and `autostart` allows it.
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

    /// Stops the running daemon. A daemon that does not answer is ended by force, unless it reports that it recovers
    /// its runs.
    pub async fn stop(&self, notify: Notify<'_>) -> Result<Stopped, Error> {
        let unanswered = match self.running(UNANSWERED, notify).await {
            Ok(Some(client)) => match stop(&client).await {
                Ok(()) => return Ok(Stopped::OnRequest),
                Err(error) => error,
            },
            Ok(None) if self.holder() == Holder::None => {
                let restarting = holder::restarting(&self.state_dir);
                let Some(record) = restarting.filter(|_| !self.is_explicit) else {
                    return Ok(Stopped::NotRunning);
                };
                force::end(&record, force::Patience::DEFAULT).await?;
                return Ok(Stopped::OnRequest);
            }
            Ok(None) => {
                return Err(Error::Hidden {
                    state_dir: self.state_dir.clone(),
                });
            }
            Err(error) => error,
        };
        match (unanswered, self.holder().endable()) {
            // Only the daemon that did not answer is ended: it may have ended by now, and another may have started.
            (Error::NoAnswer { pid: Some(pid), .. }, Some(record)) if record.daemon.pid == pid => {
                force::end(record, force::Patience::DEFAULT).await?;
                Ok(Stopped::Forced { pid })
            }
            (unanswered, _) => Err(unanswered),
        }
    }

    /// Returns the running daemon at the socket, else at the fallback.
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

    /// Tries the socket until a daemon answers there or is known to be absent. A daemon that reports recovery gets at
    /// least [`PATIENCE`].
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
                // The daemon may have ended while the connection waited.
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

/// Renders the notice that the user sees while a daemon does not answer.
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

/// Requests a daemon to stop, and waits until it has released its socket.
async fn stop(client: &Client) -> Result<(), Error> {
    // The socket file is identified before the request: afterwards the path may be that of another daemon.
    let its = SocketFile::at(client.socket());
    match client.drain().await {
        // The daemon may exit before its answer arrives; the socket file decides.
        Ok(()) | Err(Error::Lost { .. }) => {}
        // Another client has already requested it.
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
    // The daemon removes its socket after its last write. A daemon that dies on the way leaves the socket.
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

/// Identity of a socket file. The next daemon's socket on the same path has another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct SocketFile {
    inode: u64,
    made: (i64, i64),
}

impl SocketFile {
    fn at(path: &Path) -> Option<Self> {
        let found = std::fs::symlink_metadata(path).ok()?;
        Some(Self {
            inode: found.ino(),
            // No one writes to a socket file, so the time is that of the bind.
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

/// Growing pause between two tries of a socket, from 5 ms to 50 ms.
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
                daemon_path: None,
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
    fn default_endpoint_is_user_socket_then_system_socket() {
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
    async fn stop_distinguishes_next_daemon_on_same_socket() {
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
    async fn unserved_socket_is_not_running_with_reason() {
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
