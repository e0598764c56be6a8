//! The socket of the API.

use std::path::PathBuf;
use std::sync::Arc;

use tokio::net::UnixListener;
use tokio::sync::watch;

#[derive(Debug)]
pub struct Listener {
    pub path: PathBuf,
    /// Device and inode of `path` when it was bound.
    pub file: (u64, u64),
    pub socket: UnixListener,
}

/// The current socket, which may be replaced while the daemon runs.
pub type Listeners = watch::Receiver<Arc<Listener>>;
