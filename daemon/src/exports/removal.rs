//! Removal of the files of a removed run.
//!
//! **Never** removes anything but exports and tool outputs of the run. A directory that a user put next to them stays,
//! and so does its parent.

use std::io;
use std::path::Path;

use rye_core::id::RunId;

use super::common::Writes;
use crate::object::run_objects;
use crate::object::{OBJECTS, REFS};
use rye_host::fail_point::FailPlace;
use rye_host::safe_path::{Dir, EntryKind};
use rye_journal::THREADS;

/// Maximum number of examined files in the directory of a run. It usually holds some ten.
const MAX_FILES: usize = 1000;

/// Removes the files of `run`, whose item is `item`, below `root`. Missing files are not an error. Blocks.
pub(super) fn remove(root: &Dir, run: &RunId, item: &str, writes: &Writes<'_>) -> io::Result<()> {
    writes.reach(FailPlace::ExportRemoval)?;
    if let Some(threads) = enter(root, Path::new(THREADS))? {
        if let Some(files) = enter(&threads, Path::new(run.as_str()))? {
            let entries = files.entries(MAX_FILES)?.list;
            let files_of_it = entries.iter().filter(|entry| entry.kind == EntryKind::File);
            for entry in files_of_it {
                files.remove(&entry.name)?;
            }
        }
        threads.remove_empty(run.as_str())?;
    }
    let objects = Path::new(OBJECTS);
    let object_file = run_objects::file_name(run);
    let (reference, page) = (format!("{run}.json"), format!("{run}.md"));
    let files = [
        (objects.join(run_objects::RUNS), &object_file),
        (objects.join(REFS), &reference),
        (Path::new("knowledge/graphs").join(item), &page),
        (Path::new("knowledge/agent/threads").join(item), &page),
    ];
    for (directory, name) in files {
        if let Some(directory) = enter(root, &directory)? {
            writes.reach(FailPlace::ExportRemoval)?;
            directory.remove_with_draft(name)?;
        }
    }
    Ok(())
}

/// Opens a directory; `None` if it does not exist.
fn enter(root: &Dir, path: &Path) -> io::Result<Option<Dir>> {
    match root.enter(path) {
        Ok(directory) => Ok(Some(directory)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}
