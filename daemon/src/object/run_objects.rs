//! Objects of one run in one file, `runs/<run>.jsonl` below the objects of its project. Each line is `<sha256>
//! <canonical JSON>`. The bytes after the space hash to the name, so `grep ^HASH` finds an object and `sha256sum`
//! verifies it.
//!
//! **Never** trusts a file: content is verified, and a line of any length is skipped without being held in memory.
//! **Order**: lines are appended; a name that occurs twice names the same bytes. **Failure**: a crash leaves at most an
//! unterminated last line, which is ignored.

use std::fs::File;
use std::io::{self, BufRead as _, BufReader, Read as _, Write};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use rye_core::digest::{Digest, Written};
use rye_core::id::RunId;
use sha2::{Digest as _, Sha256};

use super::project_objects::{MAX_BYTES, OBJECTS};
use rye_host::blobs::PIECE;
use rye_host::safe_path::Dir;

/// Directory of the files below the objects of a project.
pub const RUNS: &str = "runs";
/// Bytes of a line before the object: the digits of its name, and a space.
const HEAD_BYTES: u64 = 64 + 1;

/// Name of the file of `run`.
pub fn file_name(run: &RunId) -> String {
    format!("{run}.jsonl")
}

/// Run whose file has the name `name`.
pub(super) fn run_of(name: &str) -> Option<RunId> {
    RunId::new(name.strip_suffix(".jsonl")?).ok()
}

/// Path of the file of `run` below a `files` directory.
pub fn path(run: &RunId) -> PathBuf {
    Path::new(OBJECTS).join(RUNS).join(file_name(run))
}

/// Writes the line of `object`.
pub fn write(out: &mut impl Write, object: &Written) -> io::Result<()> {
    writeln!(out, "{} {object}", object.hash)
}

/// Position of a line in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Row {
    /// Offset of its first byte.
    pub offset: u64,
    /// Length including LF.
    pub bytes: u64,
    /// Name at its start; `None` if that is not a digest.
    pub name: Option<Digest>,
}

impl Row {
    /// Offset and length of the object.
    const fn object(&self) -> (u64, u64) {
        let bytes = self.bytes.saturating_sub(HEAD_BYTES + 1);
        (self.offset + HEAD_BYTES, bytes)
    }

    /// True if the object in `file` matches its name.
    pub fn is_intact(&self, file: &File) -> io::Result<bool> {
        let mut hasher = Sha256::new();
        let (at, bytes) = self.object();
        each_piece(file, at, bytes, |piece| {
            hasher.update(piece);
            Ok(())
        })?;
        Ok(self.name == Some(<[u8; 32]>::from(hasher.finalize()).into()))
    }

    /// Copies the line from `file` to `out`.
    pub fn copy(&self, file: &File, out: &mut impl Write) -> io::Result<()> {
        each_piece(file, self.offset, self.bytes, |piece| out.write_all(piece))
    }
}

/// Passes `bytes` bytes of `file` from `at` to `take`, in pieces.
fn each_piece(
    file: &File,
    mut at: u64,
    bytes: u64,
    mut take: impl FnMut(&[u8]) -> io::Result<()>,
) -> io::Result<()> {
    let end = at + bytes;
    let mut piece = vec![0; PIECE];
    while at < end {
        let left = usize::try_from(end - at).map_or(PIECE, |left| left.min(PIECE));
        let piece = &mut piece[..left];
        file.read_exact_at(piece, at)?;
        take(piece)?;
        at += u64::try_from(left).map_err(io::Error::other)?;
    }
    Ok(())
}

/// Whole lines of a file, from its beginning. An unterminated last line is left out.
#[derive(Debug)]
pub struct Rows<'a> {
    input: BufReader<&'a File>,
    length: u64,
    at: u64,
}

impl<'a> Rows<'a> {
    /// Makes an iterator over `file`, whose position must be at its beginning.
    pub fn of(file: &'a File) -> io::Result<Self> {
        let length = file.metadata()?.len();
        let input = BufReader::with_capacity(PIECE, file);
        let at = 0;
        Ok(Self { input, length, at })
    }

    /// Total length of the lines read so far.
    pub const fn read_bytes(&self) -> u64 {
        self.at
    }

    pub fn read(&mut self) -> io::Result<Option<Row>> {
        let mut head = Vec::new();
        let input = &mut self.input;
        let begin = input.by_ref().take(HEAD_BYTES);
        let read = { begin }.read_until(b'\n', &mut head)?;
        let more = if head.ends_with(b"\n") {
            0
        } else {
            input.skip_until(b'\n')?
        };
        let bytes = u64::try_from(read + more).unwrap_or(u64::MAX);
        let offset = self.at;
        let end = offset.saturating_add(bytes);
        if bytes == 0 || end >= self.length && !self.ends_with_newline(end)? {
            return Ok(None);
        }
        self.at = end;
        let name = head.strip_suffix(b" ");
        let name = name.and_then(|name| std::str::from_utf8(name).ok()?.parse().ok());
        Ok(Some(Row {
            offset,
            bytes,
            name,
        }))
    }

    fn ends_with_newline(&self, end: u64) -> io::Result<bool> {
        let mut last = [0];
        self.input.get_ref().read_exact_at(&mut last, end - 1)?;
        Ok(last == *b"\n")
    }
}

/// Verified bytes of the object `digest` in the file `name` of `runs`; `None` if it is missing. A line with this name
/// and other bytes is skipped.
pub(super) fn find(runs: &Dir, name: &str, digest: &Digest) -> io::Result<Option<Vec<u8>>> {
    let Some(file) = runs.look(name)? else {
        return Ok(None);
    };
    let mut rows = Rows::of(&file)?;
    while let Some(row) = rows.read()? {
        let (at, length) = row.object();
        if row.name != Some(*digest) || length > MAX_BYTES {
            continue;
        }
        let mut bytes = vec![0; usize::try_from(length).map_err(io::Error::other)?];
        file.read_exact_at(&mut bytes, at)?;
        if Digest::of(&bytes) == *digest {
            return Ok(Some(bytes));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::sync::Arc;

    use rye_core::cas;
    use serde_json::json;

    use super::*;

    fn object(value: &str) -> Written {
        cas::node_result(Arc::new(json!(value)))
    }

    fn file_of(content: &[u8]) -> (tempfile::TempDir, Dir) {
        let root = tempfile::tempdir().unwrap();
        fs::write(root.path().join("a.jsonl"), content).unwrap();
        let dir = Dir::root(root.path()).unwrap();
        (root, dir)
    }

    fn lines(objects: &[&Written]) -> Vec<u8> {
        let mut text = Vec::new();
        for object in objects {
            write(&mut text, object).unwrap();
        }
        text
    }

    #[test]
    fn object_is_found_by_its_name_and_its_bytes_hash_to_it() {
        let (one, two) = (object("one"), object("two"));
        let (_root, runs) = file_of(&lines(&[&one, &two]));
        for object in [&one, &two] {
            let digest = object.hash.parse().unwrap();
            let found = find(&runs, "a.jsonl", &digest).unwrap().unwrap();
            assert_eq!(found, object.to_string().as_bytes());
        }
        assert_eq!(find(&runs, "a.jsonl", &Digest::of("x")).unwrap(), None);
        assert_eq!(find(&runs, "b.jsonl", &Digest::of("x")).unwrap(), None);
    }

    #[test]
    fn changed_object_is_skipped_and_later_copy_is_found() {
        let one = object("one");
        let mut text = lines(&[&one]);
        let digest = one.hash.parse().unwrap();
        let at = text.len() - 5;
        text[at] ^= 1;
        let (root, runs) = file_of(&text);
        assert_eq!(find(&runs, "a.jsonl", &digest).unwrap(), None);
        text.extend(lines(&[&one]));
        fs::write(root.path().join("a.jsonl"), text).unwrap();
        assert!(find(&runs, "a.jsonl", &digest).unwrap().is_some());
    }

    #[test]
    fn rows_end_at_incomplete_line() {
        let (one, two) = (object("one"), object("two"));
        let text = lines(&[&one, &two]);
        let first = u64::try_from(lines(&[&one]).len()).unwrap();
        for cut in usize::try_from(first).unwrap()..text.len() {
            let (root, _runs) = file_of(&text[..cut]);
            let file = File::open(root.path().join("a.jsonl")).unwrap();
            let mut rows = Rows::of(&file).unwrap();
            assert_eq!(rows.read().unwrap().unwrap().name, one.hash.parse().ok());
            assert_eq!(rows.read().unwrap(), None, "cut at {cut}");
            assert_eq!(rows.read_bytes(), first);
        }
    }

    #[test]
    fn invalid_lines_have_no_name() {
        let one = object("one");
        let foreign = format!("\nshort\n{}\n", "x".repeat(1 << 20));
        let (root, _runs) = file_of(&[foreign.as_bytes(), &lines(&[&one])].concat());
        let file = File::open(root.path().join("a.jsonl")).unwrap();
        let mut rows = Rows::of(&file).unwrap();
        for _ in 0..3 {
            assert_eq!(rows.read().unwrap().unwrap().name, None);
        }
        let row = rows.read().unwrap().unwrap();
        assert_eq!(row.name, one.hash.parse().ok());
        assert!(row.is_intact(&file).unwrap());
        assert_eq!(rows.read().unwrap(), None);
    }
}
