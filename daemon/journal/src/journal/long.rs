//! Texts that the log references by their digests: long payloads, and texts that runs keep.

use std::io;
use std::sync::Arc;

use rye_core::digest::Digest;
use rye_core::id::RunId;
use rye_core::memory::Charge;

use super::handle::Journal;
use crate::error::{COPIES, Error};
use crate::record::Line;
use rye_host::blobs;
use rye_host::task;

impl Journal {
    /// Returns `line` of `run` with its whole payload, and the charge for its memory, which has to be held as long as
    /// the line.
    pub async fn whole(&self, run: &RunId, line: Line) -> Result<(Line, Charge), Error> {
        let mut charge = self.memory.open();
        let Some(bytes) = line.spilled_bytes() else {
            return Ok((line, charge));
        };
        let (takes, memory) = (bytes.saturating_mul(COPIES), &self.memory);
        if !charge.grow(takes) {
            let most = memory.most();
            // If the run that holds it stays in memory, waiting would not help.
            let never = takes.saturating_add(bytes) > most;
            let run = run.clone();
            return Err(if never {
                Error::TooLong { run, bytes, most }
            } else {
                Error::memory_full(memory)
            });
        }
        let objects = Arc::clone(&self.objects);
        let read = task::blocking("read a long payload", move || line.whole(&objects));
        let line = read.await.map_err(|source| Error::DataLoss {
            run: run.clone(),
            source: Box::new(source),
        })?;
        Ok((line, charge))
    }

    /// Stores `text` under its digest; it is on disk when this resolves.
    pub async fn keep(&self, text: String) -> Result<Digest, Error> {
        let objects = Arc::clone(&self.objects);
        let put = task::blocking("keep a text", move || objects.put(text.as_bytes()));
        put.await.map_err(Error::Object)
    }

    /// Returns the text that is stored under `digest`; `None` if there is none. Blocks.
    pub fn kept(&self, digest: &Digest) -> Result<Option<String>, blobs::Error> {
        kept(&self.objects, digest)
    }

    /// Returns the long payload that a transcript references by `digest`, as JSON text; `None` if there is none.
    pub async fn long_payload(&self, digest: Digest) -> Result<Option<String>, Error> {
        let objects = Arc::clone(&self.objects);
        let read = task::blocking("read a long payload", move || kept(&objects, &digest));
        read.await.map_err(Error::Object)
    }
}

fn kept(objects: &blobs::Store, digest: &Digest) -> Result<Option<String>, blobs::Error> {
    match objects.get(digest) {
        Ok(bytes) => Ok(Some(String::from_utf8_lossy(&bytes).into_owned())),
        Err(blobs::Error::Read { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}
