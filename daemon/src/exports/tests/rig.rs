//! A journal with exports in a temporary directory.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rye_core::digest::Digest;
use rye_core::id::{Name, RunId};
use rye_core::model::Spec;
use serde_json::{Value, json};

use super::super::{Exports, Options, Rebuilt};
use crate::object::ProjectObjects;
use rye_host::task;
pub(super) use rye_journal::testing::*;
use rye_journal::{Change, Journal};

/// A journal and its exports between a start and a stop.
pub(super) struct Life {
    pub(super) journal: Journal,
    pub(super) exports: Arc<Exports>,
}

impl Life {
    pub(super) async fn begin(rig: &Rig) -> Self {
        let journal = rig.open().await;
        let options = Options {
            source: journal.export_source(),
            signer: Arc::new(Key::new()),
            clock: rig.options().clock,
            dir: rig.state(),
            adopted: None,
        };
        let exports = Exports::start_with(options, rig.faults.clone());
        Self {
            journal,
            exports: Arc::new(exports),
        }
    }

    /// Stops exports, then the journal; unwritten changes are left.
    pub(super) async fn end(self) {
        self.stop(Duration::from_secs(2)).await;
        drop(self.journal);
    }

    /// Stops both in order, with no work left for the next start.
    pub(super) async fn close(self) {
        self.stop(Duration::from_secs(2)).await;
        self.journal.close().await.unwrap();
    }

    pub(super) async fn stop(&self, patience: Duration) {
        let exports = Arc::clone(&self.exports);
        task::blocking("stop exports", move || exports.stop(patience)).await;
    }

    pub(super) async fn rebuild(&self, files: &Path) -> Rebuilt {
        let files = Name::from(files.display().to_string());
        self.exports.rebuild(&files).await.unwrap()
    }

    /// Creates and starts a run whose files are below `files`.
    pub(super) async fn begun(&self, rig: &Rig, files: &Path, name: &str) -> RunId {
        let run = id(name);
        let spec = Spec {
            files: files.display().to_string(),
            chain_root: run.clone(),
            ..rig.spec(&run)
        };
        let created = Change::create(&run, Arc::new(spec));
        self.journal
            .put([vec![created], begin(&run)].concat())
            .await;
        run
    }

    /// A run of one step that has ended.
    pub(super) async fn ended(&self, rig: &Rig, files: &Path, name: &str) -> RunId {
        let run = self.begun(rig, files, name).await;
        self.journal
            .put(vec![change(&run, completed(1, json!(1)))])
            .await;
        self.journal.put(vec![change(&run, finish())]).await;
        run
    }
}

/// Makes the `.ai` of another project.
pub(super) fn project(rig: &Rig, name: &str) -> PathBuf {
    let files = rig.root.path().join(name).join(".ai");
    std::fs::create_dir_all(&files).unwrap();
    files
}

pub(super) fn transcript_of(files: &Path, run: &RunId) -> PathBuf {
    let directory = files.join("state/threads").join(run.as_str());
    directory.join("transcript.jsonl")
}

pub(super) fn page_of(files: &Path, run: &RunId) -> PathBuf {
    files.join(format!("knowledge/agent/threads/demo/graph/{run}.md"))
}

/// Resolves when all files of an ended run exist; its page is written last.
pub(super) async fn has_files(files: &Path, run: &RunId) {
    eventually(async || {
        let text = std::fs::read_to_string(page_of(files, run)).ok()?;
        text.contains("**Status:** completed").then_some(())
    })
    .await;
}

/// Hash that the ref of `run` names, once it exists.
pub(super) async fn snapshot_of(files: &Path, run: &RunId) -> Digest {
    eventually(async || {
        let objects = ProjectObjects::open(files).ok()??;
        let pointer: Value = serde_json::from_slice(&objects.get_ref(run).ok()??).ok()?;
        assert_eq!(pointer["graph_run_id"], json!(run));
        pointer["hash"].as_str()?.parse().ok()
    })
    .await
}
