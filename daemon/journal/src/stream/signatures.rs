//! Signatures of published checkpoints, until history holds them.

use std::collections::{HashMap, VecDeque};
use std::sync::Mutex;

use rye_core::id::Lsn;
use rye_core::seal::{Fingerprint, Signature};

use crate::watermark::lock;

/// Signatures of published checkpoints that history does not hold yet, in the order of the log.
#[derive(Debug, Default)]
pub(crate) struct Signatures(Mutex<Unsealed>);

#[derive(Debug, Default)]
struct Unsealed {
    signatures: VecDeque<(EventSpot, Signature)>,
    /// Fingerprints of keys, each with the position from which the key signed.
    keys: Vec<(Lsn, Fingerprint)>,
}

/// Position of an event: its commit, and its index there.
pub(crate) type EventSpot = (Lsn, usize);

impl Unsealed {
    fn key_at(&self, lsn: Lsn) -> Option<&Fingerprint> {
        let at = self.keys.partition_point(|(from, _)| *from <= lsn);
        Some(&self.keys.get(at.checked_sub(1)?)?.1)
    }
}

impl Signatures {
    /// Adds the signature of the checkpoint that follows the event at `spot`. Called in the order of the log.
    pub(crate) fn push(&self, spot: EventSpot, signature: Signature, key: Fingerprint) {
        let mut unsealed = lock(&self.0);
        unsealed.signatures.push_back((spot, signature));
        if unsealed.keys.last().is_none_or(|(_, known)| *known != key) {
            unsealed.keys.push((spot.0, key));
        }
    }

    /// Returns the signature of the checkpoint that follows the event at `spot`, and its key.
    pub(crate) fn of(&self, spot: EventSpot) -> Option<(Signature, Fingerprint)> {
        let unsealed = lock(&self.0);
        let found = unsealed
            .signatures
            .binary_search_by_key(&spot, |(spot, _)| *spot);
        let (_, signature) = unsealed.signatures.get(found.ok()?)?;
        Some((*signature, unsealed.key_at(spot.0)?.clone()))
    }

    pub(crate) fn up_to(
        &self,
        last: Lsn,
    ) -> (HashMap<EventSpot, Signature>, Vec<(Lsn, Fingerprint)>) {
        let unsealed = lock(&self.0);
        let until = unsealed
            .signatures
            .partition_point(|((lsn, _), _)| *lsn <= last);
        let signatures = unsealed.signatures.range(..until).copied().collect();
        (signatures, unsealed.keys.clone())
    }

    /// Drops the signatures up to `last`, which history holds.
    pub(crate) fn forget(&self, last: Lsn) {
        let mut unsealed = lock(&self.0);
        let until = unsealed
            .signatures
            .partition_point(|((lsn, _), _)| *lsn <= last);
        unsealed.signatures.drain(..until);
    }
}
