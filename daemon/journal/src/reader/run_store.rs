//! Records of runs and accounts. Live runs are in memory. Ended runs are in history, where the index finds them. While
//! the index is opened, requests wait for it, and fail after [`PATIENCE`].

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use rye_core::id::{Lsn, RunId};
use rye_core::ledger::{Account, AccountId};
use rye_host::{blobs, task};
use tokio::sync::watch;

use crate::base::Stored;
use crate::coalescing_queue::CoalescingQueue;
use crate::error::Error;
use crate::history;
use crate::index::{ClosedAccount, Entry, Index, IndexError, IndexState};
use crate::jobs::Inbox;
use crate::record::{stored, texts};
use crate::sequencer::Sequencer;

/// Longest wait of a request for an index that is opened or rebuilt.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub(crate) struct RunStore {
    pub(crate) sequencer: Arc<Sequencer>,
    pub(crate) history: Arc<history::Store>,
    pub(crate) objects: Arc<blobs::Store>,
    pub(crate) index: Arc<watch::Sender<IndexState>>,
    pub(crate) sealer: Arc<CoalescingQueue<Inbox>>,
}

impl RunStore {
    pub(crate) async fn indexed(self: &Arc<Self>, id: &RunId) -> Result<Option<Entry>, Error> {
        // The index may still list a removed run.
        if self.sequencer.is_gone(id) {
            return Ok(None);
        }
        let wanted = id.clone();
        self.look_up(move |index| index.run(&wanted)).await
    }

    /// Returns the record of an ended run with placeholders for its long texts, which are not needed to read its
    /// events.
    pub(crate) async fn ended(self: &Arc<Self>, id: &RunId) -> Result<Option<Stored>, Error> {
        self.of_history(id, false).await
    }

    /// Returns the record of an ended run with its long texts.
    pub(crate) async fn ended_whole(self: &Arc<Self>, id: &RunId) -> Result<Option<Stored>, Error> {
        self.of_history(id, true).await
    }

    async fn of_history(
        self: &Arc<Self>,
        id: &RunId,
        with_texts: bool,
    ) -> Result<Option<Stored>, Error> {
        let Some(entry) = self.indexed(id).await? else {
            return Ok(None);
        };
        let (store, run) = (Arc::clone(self), id.clone());
        let read = task::blocking("read the record of a run", move || {
            let objects = with_texts.then_some(&*store.objects);
            read_record(&store.history, &run, entry.lsn, objects)
        });
        let stored = read.await?;
        if stored.is_none() && self.sequencer.is_gone(id) {
            return Ok(None);
        }
        if stored.is_none() {
            self.distrust_index();
            return Err(Error::Index(Arc::new(IndexError::Foreign)));
        }
        Ok(stored)
    }

    /// Queries the index. If that fails, has the index rebuilt and queries it once more.
    pub(crate) async fn look_up<T: Send + 'static>(
        self: &Arc<Self>,
        question: impl Fn(&Index) -> Result<T, IndexError> + Send + Sync + 'static,
    ) -> Result<T, Error> {
        let question = Arc::new(question);
        let mut failure = match self.ask(&question).await? {
            Ok(answer) => return Ok(answer),
            Err(failure) => failure,
        };
        tracing::warn!(%failure, "the index failed");
        self.distrust_index();
        match self.ask(&question).await? {
            Ok(answer) => return Ok(answer),
            Err(again) => failure = again,
        }
        Err(Error::Index(Arc::new(failure)))
    }

    async fn ask<T: Send + 'static>(
        self: &Arc<Self>,
        question: &Arc<impl Fn(&Index) -> Result<T, IndexError> + Send + Sync + 'static>,
    ) -> Result<Result<T, IndexError>, Error> {
        let mut states = self.index.subscribe();
        let opened = states.wait_for(|state| !matches!(state, IndexState::Opening));
        let state = tokio::select! {
            state = opened => state.map(|state| state.clone()),
            () = task::sleep(Some(PATIENCE)) => {
                return Err(Error::Index(Arc::new(IndexError::Building)));
            }
        };
        match state {
            Ok(IndexState::Ready(index)) => {
                let question = Arc::clone(question);
                Ok(task::blocking("ask the index", move || question(&index)).await)
            }
            Ok(IndexState::Broken(error)) => Err(Error::Index(error)),
            Ok(IndexState::Opening) | Err(_) => Err(Error::Closed),
        }
    }

    fn distrust_index(self: &Arc<Self>) {
        self.index.send_replace(IndexState::Opening);
        self.sealer.post(|inbox| inbox.suspect = true);
    }

    /// Returns an account that was closed and has left memory.
    pub(crate) async fn closed(self: &Arc<Self>, id: &AccountId) -> Result<Option<Account>, Error> {
        let wanted = id.clone();
        let closed = self.look_up(move |index| index.closed(&wanted)).await?;
        match closed {
            None => Ok(None),
            Some(ClosedAccount {
                kept: Some(account),
                ..
            }) => Ok(Some(*account)),
            Some(ClosedAccount { by, .. }) => {
                let mut stored = self.ended(&by).await?;
                Ok(stored.as_mut().and_then(|stored| stored.closed.remove(id)))
            }
        }
    }
}

/// Reads the record of `run`, which ended at `lsn`; `None` if history does not have it there. Reads its long texts if
/// `objects` is given. Blocks.
fn read_record(
    history: &history::Store,
    run: &RunId,
    lsn: Lsn,
    objects: Option<&blobs::Store>,
) -> Result<Option<Stored>, Error> {
    let lost = |source| Error::DataLoss {
        run: run.clone(),
        source,
    };
    let Some(section) = history.find(lsn) else {
        return Ok(None);
    };
    let record = section.read().and_then(|section| section.record_of(run));
    let Some(record) = record.map_err(|source| lost(source.into()))? else {
        return Ok(None);
    };
    let stored = match objects {
        Some(objects) => texts::read(&record, objects),
        None => stored::read(&record),
    };
    match stored {
        Ok(stored) => Ok(Some(stored)),
        // A version of ryed that knows the form can read it, so it is not lost.
        Err(source) if source.kind() == io::ErrorKind::Unsupported => {
            let (what, path) = ("read the record of", PathBuf::from(run.as_str()));
            Err(Error::Files { what, path, source })
        }
        Err(source) => Err(lost(source.into())),
    }
}
