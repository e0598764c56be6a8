//! `objects export`: writes the objects of a project as single files, `ab/cd/<sha256>.json`.
//!
//! **Owns** nothing of the project, which it only reads, without the daemon. **Never** copies an object whose bytes do
//! not match its hash.
//! **Failure.** Damaged objects are skipped and counted. An existing file counts as the object of its name.

use std::fs::{self, File};
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::path::{Path, PathBuf};

use rye_client::exit::Exit;
use rye_core::digest::Digest;
use serde_json::json;

use crate::failure::Failure;
use crate::local_error::LocalError;
use crate::output::Format;
use crate::session::Session;

/// Longest line that is read, in bytes. It exceeds the largest state of a run.
const MAX_LINE_BYTES: u64 = 256 << 20;

pub(crate) fn export(directory: &Path, session: &mut Session) -> Result<Exit, Failure> {
    let objects = session.project()?.join(".ai/state/objects");
    let mut export = Export {
        to: directory.to_owned(),
        written: 0,
        damaged: 0,
    };
    let exported = export.runs(&objects.join("runs"));
    exported
        .and_then(|()| export.shared(&objects.join("objects")))
        .map_err(|(path, error)| {
            let message = format!("cannot export objects: `{}`", path.display());
            LocalError::because(Exit::Precondition, message, error)
        })?;
    let Export {
        written, damaged, ..
    } = export;
    let output = &mut session.output;
    match output.format() {
        Format::Json => output.json(&json!({"written": written, "damaged": damaged}))?,
        Format::Text => output.line(&format!("wrote {written} objects"))?,
    }
    if damaged > 0 {
        output.error(&format!("{damaged} objects are damaged and were left out"));
        return Ok(Exit::Precondition);
    }
    Ok(Exit::Done)
}

/// Path of a file or directory, and the system's error.
type Failed = (PathBuf, io::Error);

struct Export {
    to: PathBuf,
    written: u64,
    damaged: u64,
}

impl Export {
    /// Exports the objects of runs, which are lines of files in `directory`.
    fn runs(&mut self, directory: &Path) -> Result<(), Failed> {
        for path in entries(directory)? {
            let failed = |source| (path.clone(), source);
            let mut lines = BufReader::new(File::open(&path).map_err(failed)?);
            loop {
                let mut line = Vec::new();
                let mut rest = (&mut lines).take(MAX_LINE_BYTES);
                rest.read_until(b'\n', &mut line).map_err(failed)?;
                if line.is_empty() {
                    break;
                }
                if line.pop() == Some(b'\n') {
                    self.line(&line)?;
                } else if lines.skip_until(b'\n').map_err(failed)? > 0 {
                    self.damaged += 1; // Too long. At the end of the file a line is still being written.
                }
            }
        }
        Ok(())
    }

    fn line(&mut self, line: &[u8]) -> Result<(), Failed> {
        let at = line.iter().position(|byte| *byte == b' ');
        let (name, object) = line.split_at(at.unwrap_or(0));
        if let Some((_, object)) = object.split_first() {
            self.object(name, object)
        } else {
            self.damaged += 1;
            Ok(())
        }
    }

    /// Exports the objects that runs share. Each is a file of its own.
    fn shared(&mut self, directory: &Path) -> Result<(), Failed> {
        for first in self.below(directory)? {
            for second in self.below(&first)? {
                for path in self.below(&second)? {
                    let object = fs::read(&path).map_err(|source| (path.clone(), source))?;
                    let name = path.file_stem().unwrap_or_default();
                    self.object(name.as_encoded_bytes(), &object)?;
                }
            }
        }
        Ok(())
    }

    /// Returns the entries of `directory`. Counts a file in its place as damaged.
    fn below(&mut self, directory: &Path) -> Result<Vec<PathBuf>, Failed> {
        match entries(directory) {
            Err((_, error)) if error.kind() == io::ErrorKind::NotADirectory => {
                self.damaged += 1;
                Ok(Vec::new())
            }
            found => found,
        }
    }

    fn object(&mut self, name: &[u8], object: &[u8]) -> Result<(), Failed> {
        let digest = Digest::of(object).to_string();
        if digest.as_bytes() != name {
            self.damaged += 1;
            return Ok(());
        }
        let directory = self.to.join(&digest[..2]).join(&digest[2..4]);
        let path = directory.join(format!("{digest}.json"));
        let failed = |source| (path.clone(), source);
        if path.exists() {
            return Ok(());
        }
        fs::create_dir_all(&directory).map_err(failed)?;
        let temporary = path.with_extension("tmp");
        let mut file = File::create(&temporary).map_err(failed)?;
        file.write_all(object).map_err(failed)?;
        fs::rename(&temporary, &path).map_err(failed)?;
        self.written += 1;
        Ok(())
    }
}

/// Returns the entries of `directory` in order, without hidden ones. A missing directory has none.
fn entries(directory: &Path) -> Result<Vec<PathBuf>, Failed> {
    let failed = |source| (directory.to_owned(), source);
    let found = match fs::read_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        found => found.map_err(failed)?,
    };
    let mut paths = Vec::new();
    for entry in found {
        let entry = entry.map_err(failed)?;
        if !entry.file_name().as_encoded_bytes().starts_with(b".") {
            paths.push(entry.path());
        }
    }
    paths.sort();
    Ok(paths)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn export_of(objects: &Path, to: &Path) -> (u64, u64) {
        let mut export = Export {
            to: to.to_owned(),
            written: 0,
            damaged: 0,
        };
        export.runs(&objects.join("runs")).unwrap();
        export.shared(&objects.join("objects")).unwrap();
        (export.written, export.damaged)
    }

    #[test]
    fn objects_of_runs_and_shared_ones_become_files_named_by_their_hash() {
        let root = tempfile::tempdir().unwrap();
        let (objects, to) = (root.path().join("objects"), root.path().join("to"));
        assert_eq!(export_of(&objects, &to), (0, 0));
        let path = |of: &Path, text: &str| {
            let name = Digest::of(text).to_string();
            of.join(&name[..2])
                .join(&name[2..4])
                .join(format!("{name}.json"))
        };
        let (one, two) = (r#"{"a":1}"#, r#"{"b":2}"#);
        let name = Digest::of(one);
        fs::create_dir_all(objects.join("runs")).unwrap();
        let lines = format!("{name} {one}\n{name} {two}\nforeign\n{name} {one}");
        fs::write(objects.join("runs/run-a.jsonl"), lines).unwrap();
        let shared = path(&objects.join("objects"), two);
        fs::create_dir_all(shared.parent().unwrap()).unwrap();
        fs::write(&shared, two).unwrap();
        assert_eq!(export_of(&objects, &to), (2, 2));
        for text in [one, two] {
            assert_eq!(fs::read_to_string(path(&to, text)).unwrap(), text);
        }
        fs::write(objects.join("objects/stray"), "no folder").unwrap();
        assert_eq!(
            export_of(&objects, &to),
            (0, 3),
            "what is there is not written again"
        );
    }
}
