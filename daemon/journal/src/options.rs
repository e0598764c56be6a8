//! What a journal is opened with.

use std::fmt;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use rye_core::clock::{Clock, Timestamp};
use rye_core::digest::Digest;
use rye_core::memory::Memory;
use rye_core::model::Object;
use rye_core::seal::Token;
use rye_core::transcript::Signed;

/// Runs of one tree that are not over, unless [`Options`] say otherwise.
pub const TREE_RUNS: NonZeroUsize = NonZeroUsize::new(1000).expect("not zero");

/// How long the start key of a removed run starts nothing, unless [`Options`] say otherwise.
const KEYS_KEPT: Duration = Duration::from_hours(30 * 24);

/// How much of what has ended may be in memory before it is sealed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SealBounds {
    /// Ended runs.
    pub runs: usize,
    /// Bytes that their values take.
    pub bytes: usize,
    /// Time without a further end.
    pub idle: Duration,
}

impl Default for SealBounds {
    fn default() -> Self {
        Self {
            runs: 1024,
            bytes: 16 << 20,
            idle: Duration::from_secs(5),
        }
    }
}

/// Signs what the journal shows. All signatures are pure functions of their input, so that lost lines come back
/// byte for byte.
pub trait Signer: Send + Sync {
    /// The signature over `head`, the digest of a head of a transcript.
    fn sign(&self, head: &Digest) -> Signed<'_>;
    /// The Markdown `body` under its signature line.
    fn sign_text(&self, body: String, at: Timestamp) -> String;
    /// The object with its `_signature`.
    fn sign_json(&self, object: &Object, at: Timestamp) -> Object;
    /// True if a key of this node made `token`.
    fn verifies(&self, token: &Token) -> bool;
}

/// What a journal needs to open.
#[derive(Clone)]
pub struct Options {
    /// The state directory; its owner holds the lock on it.
    pub dir: PathBuf,
    /// Where times come from.
    pub clock: Arc<dyn Clock>,
    /// Who signs.
    pub signer: Arc<dyn Signer>,
    /// Length of a log segment in bytes.
    pub segment_bytes: u64,
    /// What of ended runs may be in memory before it is sealed.
    pub seal: SealBounds,
    /// Where the memory that the values of runs take is counted.
    pub memory: Arc<Memory>,
    /// Most runs of one tree that are not over at once.
    pub tree_runs: NonZeroUsize,
    /// How long the start key of a removed run starts nothing.
    pub keys_kept: Duration,
}

impl Options {
    /// The defaults for the state directory `dir`: segments of 8 MiB: a crash replays at most one of them, in
    /// about 60 ms.
    pub fn new(dir: PathBuf, clock: Arc<dyn Clock>, signer: Arc<dyn Signer>) -> Self {
        Self {
            dir,
            clock,
            signer,
            segment_bytes: 8 << 20,
            seal: SealBounds::default(),
            memory: Arc::default(),
            tree_runs: TREE_RUNS,
            keys_kept: KEYS_KEPT,
        }
    }
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options")
            .field("dir", &self.dir)
            .field("segment_bytes", &self.segment_bytes)
            .finish_non_exhaustive()
    }
}
