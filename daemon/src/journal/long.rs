//! Payloads too long for the log and the transcript, read back for those who want to see them.

use std::io;
use std::sync::Arc;

use rye_core::id::RunId;

use super::{Error, Journal, Line};
use crate::object::{self, Digest};
use crate::task;

impl Journal {
    /// `line` of `run` with its payload in it, however long that is.
    pub async fn whole(&self, run: &RunId, line: Line) -> Result<Line, Error> {
        if !line.is_spilled() {
            return Ok(line);
        }
        let shared = Arc::clone(&self.shared);
        let read = task::blocking("read a long payload", move || line.whole(&shared.objects));
        read.await.map_err(|source| Error::DataLoss {
            run: run.clone(),
            source: Box::new(source),
        })
    }

    /// The long payload that a transcript calls `digest`, as JSON text; `None` if there is none.
    pub async fn long_payload(&self, digest: Digest) -> Result<Option<String>, Error> {
        let shared = Arc::clone(&self.shared);
        let read = task::blocking("read a long payload", move || shared.objects.get(&digest));
        match read.await {
            Ok(bytes) => Ok(Some(String::from_utf8_lossy(&bytes).into_owned())),
            Err(object::Error::Read { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
                Ok(None)
            }
            Err(source) => Err(Error::Object(source)),
        }
    }
}
