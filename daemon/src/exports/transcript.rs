//! Transcript of a run in its project, `transcript.jsonl`.
//!
//! **Owns** that file and `transcript.aside-<n>.jsonl`. **Never** reads back its own writes since the daemon started.
//! An older file is compared once, while its lines are rendered. A file that differs or is longer than its run is moved
//! aside and replaced by a complete one. **Order**: lines are written at their offset, which completes a line cut by a
//! crash. **Failure**: a crash leaves a shorter file, or a hidden temporary file next to it.

use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::os::unix::fs::{FileExt as _, MetadataExt as _};

use super::common::{Change, Writes};
use rye_host::fail_point::FailPlace;
use rye_host::safe_path::{Dir, Draft, Found};

pub(super) const NAME: &str = "transcript.jsonl";
const TEMPORARY: &str = ".transcript.jsonl.tmp";
/// Maximum number of files kept aside.
const MAX_ASIDE: u32 = 3;

#[derive(Debug)]
pub(super) struct Transcript {
    file: File,
    found: Found,
}

impl Transcript {
    /// Opens the file in `dir`, or creates an empty one with the permission bits `mode`.
    pub(super) fn open(dir: &Dir, mode: u32) -> io::Result<Self> {
        match dir.open(NAME)? {
            Some(file) => Self::of(file),
            None => Self::of(dir.create_with(NAME, mode)?),
        }
    }

    fn of(file: File) -> io::Result<Self> {
        let found = file.metadata()?;
        Ok(Self {
            found: Found {
                device: found.dev(),
                inode: found.ino(),
                bytes: found.len(),
            },
            file,
        })
    }

    /// Identity and length of the file.
    pub(super) const fn found(&self) -> Found {
        self.found
    }

    /// Writes `lines` at `at`, up to which the file is correct. Existing content there is compared.
    pub(super) fn put(
        &mut self,
        dir: &Dir,
        at: u64,
        lines: &[u8],
        writes: &Writes<'_>,
    ) -> io::Result<Change> {
        let there = self.found.bytes.saturating_sub(at);
        let there = usize::try_from(there).map_or(lines.len(), |there| there.min(lines.len()));
        let mut change = Change::default();
        let mut rest = &lines[there..];
        let mut end = at + length(&lines[..there]);
        if there > 0 && !self.holds(at, &lines[..there])? {
            self.move_aside(dir, at, writes)?;
            change.replaced = true;
            (rest, end) = (lines, at);
        }
        if !rest.is_empty() {
            writes.reach(FailPlace::ExportLines)?;
            self.file.write_all_at(rest, end)?;
            self.found.bytes = end + length(rest);
            change.written = true;
        }
        Ok(change)
    }

    /// Ends the file at `end`, up to which it is correct.
    pub(super) fn end(&mut self, dir: &Dir, end: u64, writes: &Writes<'_>) -> io::Result<Change> {
        let replaced = self.found.bytes > end;
        if replaced {
            self.move_aside(dir, end, writes)?;
        }
        Ok(Change {
            written: false,
            replaced,
        })
    }

    /// True if the file holds `lines` at `at`.
    fn holds(&self, at: u64, lines: &[u8]) -> io::Result<bool> {
        let mut found = vec![0; lines.len()];
        match self.file.read_exact_at(&mut found, at) {
            Ok(()) => Ok(found == lines),
            // The file was truncated meanwhile.
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Moves the file aside and replaces it by one with its first `right` bytes.
    fn move_aside(&mut self, dir: &Dir, right: u64, writes: &Writes<'_>) -> io::Result<()> {
        let mode = self.file.metadata()?.mode() & 0o777;
        let mut new = Draft::with_mode(dir, TEMPORARY.to_owned(), mode)?;
        self.file.seek(SeekFrom::Start(0))?;
        let copied = io::copy(&mut (&self.file).take(right), &mut new.file)?;
        if copied < right {
            return Err(io::Error::other("the transcript was cut while it was read"));
        }
        let name = aside(dir)?;
        dir.rename(NAME, &name)?;
        writes.reach(FailPlace::ExportAside)?;
        let new = new.rename(NAME)?;
        tracing::warn!(
            file = name,
            "a transcript is not what its run did: it was moved aside"
        );
        *self = Self::of(new)?;
        Ok(())
    }
}

/// A free name, or else the last one.
fn aside(dir: &Dir) -> io::Result<String> {
    let mut name = String::new();
    for number in 1..=MAX_ASIDE {
        name = format!("transcript.aside-{number}.jsonl");
        if dir.find(name.as_ref())?.is_none() {
            break;
        }
    }
    Ok(name)
}

fn length(bytes: &[u8]) -> u64 {
    u64::try_from(bytes.len()).expect("a length in memory fits 64 bits")
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;
    use rye_journal::Faults;

    const LINES: [&str; 3] = ["{\"seq\":1}\n", "{\"seq\":2}\n", "{\"seq\":3}\n"];

    struct Files(tempfile::TempDir);

    impl Files {
        fn with(content: Option<&str>) -> Self {
            let root = tempfile::tempdir().unwrap();
            if let Some(content) = content {
                fs::write(root.path().join(NAME), content).unwrap();
            }
            Self(root)
        }

        fn path(&self) -> &Path {
            self.0.path()
        }

        fn read(&self, name: &str) -> Option<String> {
            fs::read_to_string(self.path().join(name)).ok()
        }

        /// Writes all lines, one by one; returns the combined change.
        fn export(&self) -> Change {
            let dir = Dir::root(self.path()).unwrap();
            let mut transcript = Transcript::open(&dir, 0o666).unwrap();
            let writes = Writes {
                faults: &Faults::default(),
                files: "",
            };
            let mut at = 0;
            let mut all = Change::default();
            let mut add = |change: Change| {
                all.written |= change.written;
                all.replaced |= change.replaced;
            };
            for line in LINES {
                add(transcript.put(&dir, at, line.as_bytes(), &writes).unwrap());
                at += length(line.as_bytes());
            }
            add(transcript.end(&dir, at, &writes).unwrap());
            all
        }
    }

    #[test]
    fn correct_file_is_kept_and_shorter_one_completed() {
        let whole = LINES.concat();
        for cut in 0..=whole.len() {
            let files = Files::with(Some(&whole[..cut]));
            let change = files.export();
            assert_eq!(files.read(NAME).unwrap(), whole, "cut at {cut}");
            assert_eq!(change.written, cut < whole.len());
            assert!(!change.replaced);
            assert_eq!(files.read("transcript.aside-1.jsonl"), None);
        }
        let files = Files::with(None);
        assert!(files.export().written);
        assert_eq!(files.read(NAME).unwrap(), whole);
    }

    #[test]
    fn differing_or_longer_file_is_moved_aside_three_times() {
        let whole = LINES.concat();
        let longer = format!("{whole}mine\n");
        let files = Files::with(None);
        let wrong = ["mine\n".to_owned(), whole.replace('2', "7"), longer];
        for (content, number) in wrong.iter().zip(1..) {
            fs::write(files.path().join(NAME), content).unwrap();
            assert!(files.export().replaced);
            assert_eq!(files.read(NAME).unwrap(), whole);
            let aside = format!("transcript.aside-{number}.jsonl");
            assert_eq!(files.read(&aside).as_ref(), Some(content));
        }
        fs::write(files.path().join(NAME), "fourth\n").unwrap();
        assert!(files.export().replaced);
        assert_eq!(files.read("transcript.aside-3.jsonl").unwrap(), "fourth\n");
        assert_eq!(fs::read_dir(files.path()).unwrap().count(), 4);
    }
}
