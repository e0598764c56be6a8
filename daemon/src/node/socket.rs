//! The socket of the daemon.
//!
//! **Owns** the socket file and the part of `served-at` that names it. A socket whose file is gone or replaced is bound
//! again within about a second: the runtime directory of a login session is removed with the last session of its user,
//! and created again at the next.
//!
//! ```text
//! configured path ─ gone or replaced ─► bound there again ─ fails ─► bound as `ryed.sock` in the state directory,
//!                                                                    until the configured path can be bound
//! ```
//!
//! **Failure.** A path that cannot be bound at the start is an error; later failures are logged and retried.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use nix::sys::stat::{Mode, fchmod};
use rye_core::error::with_sources;
use rye_core::served_at::Phase;
use tokio::net::{UnixListener, UnixSocket, UnixStream};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::Error;
use super::directory::Directory;
use crate::rpc::{Listener, Listeners};
use rye_host::task;

/// Interval of checks of the socket file.
const CHECK_PAUSE: Duration = Duration::from_secs(1);

/// Capacity of the accept queue.
const BACKLOG: u32 = 1024;

/// Socket of the API.
#[derive(Debug)]
pub(super) struct Socket {
    configured: PathBuf,
    directory: Arc<Directory>,
    current: watch::Sender<Arc<Listener>>,
}

impl Socket {
    /// Binds `path`, and creates its folder.
    pub(super) async fn bind(path: &Path, directory: Arc<Directory>) -> Result<Self, Error> {
        if let Some(folder) = path.parent() {
            let mut builder = DirBuilder::new();
            let made = builder.recursive(true).mode(0o700).create(folder);
            made.map_err(failed(path, "make the folder of"))?;
        }
        let listener = bind(path).await?;
        Ok(Self {
            configured: path.to_owned(),
            directory,
            current: watch::Sender::new(Arc::new(listener)),
        })
    }

    /// The bound socket, and each that replaces it.
    pub(super) fn listeners(&self) -> Listeners {
        self.current.subscribe()
    }

    /// Publishes that the daemon answers calls.
    pub(super) fn serves(&self) {
        let path = self.current.borrow().path.clone();
        if let Err(error) = self.directory.publish(&path, Phase::Serving) {
            tracing::warn!(%error, "the state directory does not say where the daemon listens");
        }
    }

    /// Rebinds the socket whenever its file is gone, and rewrites `served-at`, until the daemon stops.
    pub(super) async fn keep(self: Arc<Self>, stopping: CancellationToken) {
        let mut state = Upkeep::default();
        loop {
            tokio::select! {
                () = stopping.cancelled() => return,
                () = task::sleep(Some(CHECK_PAUSE)) => {}
            }
            self.check(&mut state).await;
        }
    }

    async fn check(&self, upkeep: &mut Upkeep) {
        let current = Arc::clone(&self.current.borrow());
        let (listener, directory) = (Arc::clone(&current), Arc::clone(&self.directory));
        let look = move || (is_there(&listener), directory.is_published());
        let (is_there, is_published) = task::blocking("look after the socket", look).await;
        if !is_there {
            self.bind_again(upkeep).await;
        } else if current.path != self.configured
            && let Ok(listener) = self.bind_configured().await
        {
            self.replace(listener);
        } else if !is_published {
            let published = self.directory.publish(&current.path, Phase::Serving);
            upkeep.report(published.map_err(|error| format!("`served-at`: {error}")));
        }
    }

    async fn bind_again(&self, upkeep: &mut Upkeep) {
        let bound = match self.bind_configured().await {
            Ok(listener) => Ok(listener),
            Err(error) => {
                let beside = self.directory.file("ryed.sock");
                bind(&beside).await.map_err(|_beside| error)
            }
        };
        upkeep.report(match bound {
            Ok(listener) => {
                self.replace(listener);
                Ok(())
            }
            Err(error) => Err(with_sources(&error)),
        });
    }

    /// Binds the configured path again. Creates only its last folder: those above belong to the system.
    async fn bind_configured(&self) -> Result<Listener, Error> {
        if let Some(folder) = self.configured.parent() {
            match DirBuilder::new().mode(0o700).create(folder) {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                    return Err(failed(&self.configured, "make the folder of")(error));
                }
                Ok(()) | Err(_) => {}
            }
        }
        bind(&self.configured).await
    }

    /// Switches to `listener`, and records it in the state directory.
    fn replace(&self, listener: Listener) {
        tracing::warn!(socket = %listener.path.display(), "the socket was removed or replaced; it is bound again");
        let former = self.current.send_replace(Arc::new(listener));
        remove(&former);
        self.serves();
    }

    /// Removes the socket file; the next start would detect a leftover as stale.
    pub(super) fn remove(&self) {
        remove(&self.current.borrow());
    }
}

/// The last logged failure, so that a persistent one is logged once.
#[derive(Debug, Default)]
struct Upkeep(Option<String>);

impl Upkeep {
    fn report(&mut self, result: Result<(), String>) {
        let failure = result.err();
        if let Some(error) = &failure
            && self.0 != failure
        {
            tracing::error!(%error, "clients may not find this daemon; it tries again each second");
        }
        self.0 = failure;
    }
}

fn remove(listener: &Listener) {
    if is_there(listener)
        && let Err(error) = fs::remove_file(&listener.path)
    {
        tracing::debug!(%error, path = %listener.path.display(), "the socket was not removed");
    }
}

/// True if the path of `listener` leads to its socket.
fn is_there(listener: &Listener) -> bool {
    file_at(&listener.path).is_some_and(|file| file == listener.file)
}

/// Device and inode number of the file at `path`.
fn file_at(path: &Path) -> Option<(u64, u64)> {
    let found = fs::symlink_metadata(path).ok()?;
    Some((found.dev(), found.ino()))
}

fn failed<'p>(path: &'p Path, operation: &'static str) -> impl FnOnce(io::Error) -> Error + 'p {
    move |source| Error::Io {
        operation,
        path: path.to_owned(),
        source,
    }
}

/// Binds the socket with mode 0600. A socket without an answering process is a leftover and is replaced.
async fn bind(path: &Path) -> Result<Listener, Error> {
    if UnixStream::connect(path).await.is_ok() {
        return Err(Error::SocketInUse {
            path: path.to_owned(),
        });
    }
    match fs::symlink_metadata(path) {
        Ok(found) if found.file_type().is_socket() => {
            fs::remove_file(path).map_err(failed(path, "replace"))?;
        }
        Ok(_) => {
            let source = io::Error::new(io::ErrorKind::AlreadyExists, "it is not a socket");
            return Err(failed(path, "bind")(source));
        }
        Err(_) => {}
    }
    let listener = || -> io::Result<Listener> {
        let socket = listen(path)?;
        let file = file_at(path).ok_or(io::ErrorKind::NotFound)?;
        Ok(Listener {
            path: path.to_owned(),
            file,
            socket,
        })
    };
    listener().map_err(failed(path, "bind"))
}

/// Listens on `path`, with mode 0600. The file gets its mode from the socket, so it is never open to others, and the
/// umask, which is process-wide, stays unchanged.
fn listen(path: &Path) -> io::Result<UnixListener> {
    let socket = UnixSocket::new_stream()?;
    fchmod(&socket, Mode::S_IRUSR | Mode::S_IWUSR)?;
    socket.bind(path)?;
    socket.listen(BACKLOG)
}
