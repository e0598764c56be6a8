//! Shared state of the export threads, and the errors of a turn.

use std::fmt;
use std::io;
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use rye_core::clock::{Clock, Timestamp};
use rye_core::error::{ErrorKind, Kinded as _, with_sources};
use rye_core::id::RunId;
use rye_host::fail_point::{self, FailPlace};
use rye_journal::{ExportSource, Faults, Signer};

use super::slots::Slots;

/// State shared by all threads.
pub(super) struct Shared {
    pub(super) source: ExportSource,
    pub(super) signer: Arc<dyn Signer>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) adopted: Option<Timestamp>,
    pub(super) slots: Slots,
    /// Number of open runs in all projects.
    pub(super) open: AtomicUsize,
    /// Deadline after which threads are not waited for.
    pub(super) end: Mutex<Option<Instant>>,
    pub(super) faults: Faults,
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared")
            .field("source", &self.source)
            .field("open", &self.open)
            .finish_non_exhaustive()
    }
}

/// Called before each write to a project; tests use it to inject failures and crashes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Writes<'a> {
    pub(super) faults: &'a Faults,
    pub(super) files: &'a str,
}

impl Writes<'_> {
    pub(super) fn reach(&self, place: FailPlace) -> io::Result<()> {
        fail_point::reach(place);
        self.faults.before_write(self.files)
    }
}

/// Effect of writing lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Change {
    /// Content was missing in the file.
    pub(super) written: bool,
    /// The file was moved aside.
    pub(super) replaced: bool,
}

/// Result of the rebuild of a project.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Rebuilt {
    /// Number of compared runs.
    pub runs: u64,
    /// Number of runs with missing content.
    pub written: u64,
    /// Number of runs with wrong content.
    pub replaced: u64,
    /// Number of runs that could not be compared.
    pub failed: u64,
    /// Error of the first of these.
    pub failure: Option<String>,
}

impl Rebuilt {
    pub(super) fn count(&mut self, change: Change) {
        self.runs += 1;
        self.replaced += u64::from(change.replaced);
        self.written += u64::from(change.written && !change.replaced);
    }

    pub(super) fn fail(&mut self, run: &RunId, trouble: &Trouble) {
        self.runs += 1;
        self.failed += 1;
        self.failure
            .get_or_insert_with(|| format!("{run}: {}", with_sources(trouble)));
    }
}

/// Reason why the files of a run cannot be written.
#[derive(Debug, thiserror::Error)]
pub(super) enum Trouble {
    #[error("the project is not there")]
    Gone(#[source] io::Error),
    #[error("the project does not take its files")]
    Files(#[from] io::Error),
    #[error(transparent)]
    Stale(Stale),
    #[error("the run cannot be read")]
    Lost(#[source] rye_journal::Error),
    #[error("the journal does not answer")]
    Journal(#[source] rye_journal::Error),
}

/// A file is not the one that was written.
#[derive(Debug, thiserror::Error)]
#[error("its files were removed or changed")]
pub(super) struct Stale;

impl From<rye_journal::Error> for Trouble {
    fn from(error: rye_journal::Error) -> Self {
        if error.kind() == ErrorKind::DataLoss {
            Self::Lost(error)
        } else {
            Self::Journal(error)
        }
    }
}
