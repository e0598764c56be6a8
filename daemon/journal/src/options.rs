//! Settings of a journal.

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

/// Default of [`Options::tree_runs`].
pub const TREE_RUNS: NonZeroUsize = NonZeroUsize::new(1000).expect("not zero");

/// Default of [`Options::keys_kept`].
const KEYS_KEPT: Duration = Duration::from_hours(30 * 24);

/// Bounds on ended runs in memory. They are sealed when one bound is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SealBounds {
    pub runs: usize,
    /// Bytes that the values of ended runs take.
    pub bytes: usize,
    /// Time since the last run ended.
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

/// Signs transcripts, pages and exported objects. All signatures are pure functions of their input, so that lost lines
/// are reproduced byte for byte.
pub trait Signer: Send + Sync {
    /// Signs `head`, the digest of a head of a transcript.
    fn sign(&self, head: &Digest) -> Signed<'_>;
    /// Returns the Markdown text `body` after its signature line.
    fn sign_text(&self, body: String, at: Timestamp) -> String;
    /// Returns the object with its `_signature`.
    fn sign_json(&self, object: &Object, at: Timestamp) -> Object;
    /// True if a key of this node made `token`.
    fn verifies(&self, token: &Token) -> bool;
}

/// Settings of a journal.
#[derive(Clone)]
pub struct Options {
    /// State directory. The caller holds its lock.
    pub dir: PathBuf,
    pub clock: Arc<dyn Clock>,
    pub signer: Arc<dyn Signer>,
    /// Length of a log segment in bytes, without its trailer.
    pub segment_bytes: u64,
    /// Bounds on ended runs in memory.
    pub seal: SealBounds,
    /// Counter of the memory that values of runs take.
    pub memory: Arc<Memory>,
    /// Largest number of runs in one tree that have not ended.
    pub tree_runs: NonZeroUsize,
    /// Time for which the start key of a removed run starts no other run.
    pub keys_kept: Duration,
}

impl Options {
    /// Defaults for the state directory `dir`. Segments have 8 MiB: a crash usually replays one of them, in about 60
    /// ms.
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
