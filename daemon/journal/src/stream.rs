//! What is published of each run and of all runs, and who listens.

mod deltas;
mod signatures;
pub(crate) mod touches;

pub(crate) mod run_stream;

pub(crate) mod wide;

use std::sync::Arc;

use rye_core::id::Lsn;

pub use deltas::{Delta, DeltaKind, Speaker};
pub(crate) use deltas::{Ear, Ears};
pub(crate) use signatures::{EventSpot, Signatures};
pub(crate) use touches::Touches;
pub use touches::{Missed, Reported, Touch, TouchKind};
use wide::Wide;

use crate::watermark::Watermark;

/// What the publisher has published.
#[derive(Debug)]
pub(crate) struct Published {
    pub(crate) mark: Watermark,
    /// For listeners to many runs.
    pub(crate) wide: Wide,
    /// Of what is not in history.
    pub(crate) signatures: Signatures,
    /// Outlives the journal, for its one consumer.
    pub(crate) touches: Arc<Touches>,
}

impl Published {
    /// Everything up to `lsn` was published before.
    pub(crate) fn new(lsn: Lsn) -> Self {
        Self {
            mark: Watermark::new(lsn),
            wide: Wide::new(lsn),
            signatures: Signatures::default(),
            touches: Arc::default(),
        }
    }
}
