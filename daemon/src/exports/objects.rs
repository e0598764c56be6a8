//! Objects of a run in its project: one file that is appended to, and the ref that names the newest snapshot.
//!
//! **Owns** the list of unwritten objects. **Never** reads back its own writes since the daemon started. The names in
//! an older file are read once, and its objects are not appended again. **Order**: an object is written before its
//! referrers, and all objects before the ref. **Failure**: a line cut by a crash is removed before the next one is
//! appended.

use std::collections::HashSet;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use rye_core::digest::{Digest, Written};
use rye_core::id::RunId;

use super::common::{Change, Stale, Trouble, Writes};
use crate::object::run_objects::{self, Row, Rows};
use crate::object::{OBJECTS, REFS};
use rye_host::fail_point::FailPlace;
use rye_host::safe_path::{Dir, Draft};

/// Bytes of pending objects that trigger an append before the run is suspended or ended.
const PIECE: u64 = 256 << 10;
/// Bytes per write.
const WRITE: usize = 128 << 10;
/// Maximum number of remembered names of an existing file; further objects are appended again.
const MAX_NAMES: usize = 1 << 20;

#[derive(Debug)]
pub(super) struct Objects {
    run: RunId,
    path: PathBuf,
    pending: Vec<Written>,
    /// Bytes of the pending objects.
    bytes: u64,
    /// Length of the file as this daemon wrote it; `None` before the first access.
    length: Option<u64>,
    /// Names in the file of an earlier daemon.
    names: HashSet<Digest>,
}

impl Objects {
    pub(super) fn of(run: &RunId) -> Self {
        Self {
            run: run.clone(),
            path: run_objects::path(run),
            pending: Vec::new(),
            bytes: 0,
            length: None,
            names: HashSet::new(),
        }
    }

    pub(super) fn add(&mut self, object: Written) {
        self.bytes += object.bytes;
        self.pending.push(object);
    }

    /// True if enough objects are pending for an append.
    pub(super) const fn is_due(&self) -> bool {
        self.bytes >= PIECE
    }

    /// Appends the pending objects to the file below `root`. With `verify`, also checks existing objects against their
    /// names. Blocks.
    pub(super) fn append(
        &mut self,
        root: &Dir,
        verify: bool,
        writes: &Writes<'_>,
    ) -> Result<Change, Trouble> {
        if self.pending.is_empty() {
            return Ok(Change::default());
        }
        let mut change = Change::default();
        let (file, end) = match (root.open_below(&self.path)?, self.length) {
            (Some(file), Some(known)) if file.metadata()?.len() == known => (file, known),
            (Some(_) | None, Some(_)) => return Err(Trouble::Stale(Stale)),
            (None, None) => (self.create(root)?, 0),
            (Some(file), None) => self.look(root, file, verify, &mut change)?,
        };
        let mut out = BufWriter::with_capacity(
            WRITE,
            At {
                file: &file,
                at: end,
            },
        );
        for object in self.pending.drain(..) {
            let name = object.hash.parse();
            if name.is_ok_and(|name| self.names.contains(&name)) {
                continue;
            }
            writes.reach(FailPlace::ExportObjects)?;
            run_objects::write(&mut out, &object)?;
            change.written = true;
        }
        self.bytes = 0;
        out.flush()?;
        self.length = Some(out.get_ref().at);
        Ok(change)
    }

    /// Clears the names of the older file: all further objects are new.
    pub(super) fn caught_up(&mut self) {
        self.names = HashSet::new();
    }

    fn create(&self, root: &Dir) -> io::Result<File> {
        let runs = root.make(parent(&self.path))?;
        runs.create(&run_objects::file_name(&self.run))
    }

    /// Reads the content of `file`. Returns the file to append to, and the offset.
    fn look(
        &mut self,
        root: &Dir,
        file: File,
        verify: bool,
        change: &mut Change,
    ) -> io::Result<(File, u64)> {
        let mut rows = Rows::of(&file)?;
        let mut intact = Vec::new();
        let mut is_damaged = false;
        while let Some(row) = rows.read()? {
            match row.name {
                Some(name) if !verify || row.is_intact(&file)? => {
                    if self.names.len() < MAX_NAMES {
                        self.names.insert(name);
                    }
                    if verify {
                        intact.push(row);
                    }
                }
                Some(_) | None => is_damaged = true,
            }
        }
        let end = rows.read_bytes();
        if verify && is_damaged {
            change.replaced = true;
            return self.replace(root, &file, &intact);
        }
        if end < file.metadata()?.len() {
            file.set_len(end)?;
        }
        Ok((file, end))
    }

    /// Replaces the file by one with only the lines `intact` of `file`.
    fn replace(&self, root: &Dir, file: &File, intact: &[Row]) -> io::Result<(File, u64)> {
        let runs = root.enter(parent(&self.path))?;
        let name = run_objects::file_name(&self.run);
        let mut end = 0;
        let mut draft = Draft::new(&runs, format!(".{name}.tmp"))?;
        let mut out = BufWriter::with_capacity(WRITE, &mut draft.file);
        for row in intact {
            row.copy(file, &mut out)?;
            end += row.bytes;
        }
        out.flush()?;
        drop(out);
        Ok((draft.rename(&name)?, end))
    }
}

/// Writes the signed `pointer` to the newest snapshot of `run`.
pub(super) fn put_ref(
    root: &Dir,
    run: &RunId,
    pointer: &[u8],
    writes: &Writes<'_>,
) -> io::Result<()> {
    let refs = root.make(&Path::new(OBJECTS).join(REFS))?;
    writes.reach(FailPlace::ExportRef)?;
    refs.replace(&format!("{run}.json"), pointer)
}

fn parent(path: &Path) -> &Path {
    path.parent().unwrap_or(path)
}

/// Writer at a fixed offset, independent of the descriptor's own.
#[derive(Debug)]
struct At<'a> {
    file: &'a File,
    at: u64,
}

impl Write for At<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.file.write_at(bytes, self.at)?;
        self.at += u64::try_from(written).map_err(io::Error::other)?;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::sync::Arc;

    use rye_core::cas;
    use serde_json::json;

    use super::*;
    use rye_journal::Faults;

    struct Files(tempfile::TempDir);

    impl Files {
        fn new() -> Self {
            Self(tempfile::tempdir().unwrap())
        }

        fn root(&self) -> Dir {
            Dir::root(self.0.path()).unwrap()
        }

        fn path(&self) -> PathBuf {
            self.0.path().join(run_objects::path(&run()))
        }

        fn read(&self) -> String {
            fs::read_to_string(self.path()).unwrap()
        }
    }

    fn run() -> RunId {
        RunId::new("run-a").unwrap()
    }

    fn writes(faults: &Faults) -> Writes<'_> {
        Writes { faults, files: "" }
    }

    fn object(value: usize) -> Written {
        cas::node_result(Arc::new(json!(value)))
    }

    /// Appends all of `values`, as a daemon without knowledge of an earlier one.
    fn append(files: &Files, values: &[usize], verify: bool) -> Change {
        let mut objects = Objects::of(&run());
        for value in values {
            objects.add(object(*value));
        }
        objects
            .append(&files.root(), verify, &writes(&Faults::default()))
            .unwrap()
    }

    fn text(values: &[usize]) -> String {
        let mut text = Vec::new();
        for value in values {
            run_objects::write(&mut text, &object(*value)).unwrap();
        }
        String::from_utf8(text).unwrap()
    }

    #[test]
    fn objects_are_lines_that_begin_with_their_hash() {
        let files = Files::new();
        append(&files, &[1, 2], false);
        assert_eq!(files.read(), text(&[1, 2]));
        for line in files.read().lines() {
            let (name, bytes) = line.split_once(' ').unwrap();
            assert_eq!(Digest::of(bytes).to_string(), name);
        }
    }

    #[test]
    fn restart_appends_missing_objects_after_any_cut() {
        let files = Files::new();
        append(&files, &[1, 2, 3], false);
        let whole = files.read();
        for cut in 0..=whole.len() {
            fs::write(files.path(), &whole[..cut]).unwrap();
            append(&files, &[1, 2, 3, 4], false);
            assert_eq!(files.read(), text(&[1, 2, 3, 4]), "cut at {cut}");
        }
    }

    #[test]
    fn append_detects_removed_file() {
        let files = Files::new();
        let faults = Faults::default();
        let mut objects = Objects::of(&run());
        for value in [1, 2] {
            objects.add(object(value));
            objects
                .append(&files.root(), false, &writes(&faults))
                .unwrap();
        }
        assert_eq!(files.read(), text(&[1, 2]));
        fs::remove_file(files.path()).unwrap();
        objects.add(object(3));
        let stale = objects.append(&files.root(), false, &writes(&faults));
        assert!(matches!(stale, Err(Trouble::Stale(_))));
    }

    #[test]
    fn changed_object_is_replaced_where_objects_are_verified() {
        let files = Files::new();
        append(&files, &[1, 2, 3], false);
        let forged = files.read().replacen("\"result\":2", "\"result\":7", 1);
        fs::write(files.path(), &forged).unwrap();
        assert_eq!(append(&files, &[1, 2, 3], false), Change::default());
        assert_eq!(files.read(), forged);
        let change = append(&files, &[1, 2, 3], true);
        assert!(change.replaced && change.written);
        assert_eq!(files.read(), text(&[1, 3, 2]));
        assert_eq!(append(&files, &[1, 2, 3], true), Change::default());
    }
}
