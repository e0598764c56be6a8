//! The socket on which calls come.

use std::path::PathBuf;
use std::sync::Arc;

use tokio::net::UnixListener;
use tokio::sync::watch;

/// A bound socket.
#[derive(Debug)]
pub struct Listener {
    /// Path of the socket.
    pub path: PathBuf,
    /// File system and inode of the path when it was bound.
    pub file: (u64, u64),
    /// The socket.
    pub socket: UnixListener,
}

/// The socket to accept connections on, which may be replaced by another one.
pub type Listeners = watch::Receiver<Arc<Listener>>;
