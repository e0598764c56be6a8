//! Reading of the files of a process while another process writes them.

use std::fs::{self, File};
use std::io::{self, BufRead as _, BufReader};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use super::LogCursor;
use super::file::{self, NEW, OLD, OutputLine, Stream};

/// A reader of lines behind a position, across the replacement of a file by the next one.
#[derive(Debug)]
pub struct Tail {
    directory: PathBuf,
    /// Position behind the last line that was read.
    from: LogCursor,
    /// The file in use, and its inode.
    open: Option<(BufReader<File>, u64)>,
    /// The beginning of a line that is not written completely.
    begun: Vec<u8>,
}

impl Tail {
    pub(super) fn new(directory: &Path, from: LogCursor) -> Self {
        Self {
            directory: directory.to_owned(),
            from,
            open: None,
            begun: Vec::new(),
        }
    }

    /// Position behind the last line that was read.
    pub const fn position(&self) -> LogCursor {
        self.from
    }

    /// Returns the first lines that were written since, at most `most`; an empty list if there are none. Blocks.
    pub fn read(&mut self, most: usize) -> io::Result<Vec<OutputLine>> {
        let mut lines = Vec::new();
        loop {
            // Looked up first: whatever a replaced file has was written before it was replaced.
            let newest = self.inode(NEW)?;
            if self.open.is_none() {
                self.open = self.next_file(None)?;
            }
            let Some((file, inode)) = &mut self.open else {
                return Ok(lines);
            };
            let inode = *inode;
            while lines.len() < most && file.read_until(b'\n', &mut self.begun)? > 0 {
                let Some(line) = self.begun.strip_suffix(b"\n") else {
                    break;
                };
                let line = OutputLine::read(line);
                self.begun.clear();
                // The position of a note may be behind lines that follow it.
                let is_note = |line: &OutputLine| line.stream == Stream::Note;
                let is_new = |line: &OutputLine| is_note(line) || line.cursor() > self.from;
                if let Some(line) = line.filter(is_new) {
                    if !is_note(&line) {
                        self.from = line.cursor();
                    }
                    lines.push(line);
                }
            }
            if lines.len() >= most {
                return Ok(lines);
            }
            if newest.is_none_or(|newest| newest == inode) {
                return Ok(lines);
            }
            self.begun.clear();
            self.open = self.next_file(Some(inode))?;
        }
    }

    fn inode(&self, name: &str) -> io::Result<Option<u64>> {
        match fs::metadata(self.directory.join(name)) {
            Ok(found) => Ok(Some(found.ino())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Opens the file after that with the inode `after`: the older one, unless it was read.
    fn next_file(&self, after: Option<u64>) -> io::Result<Option<(BufReader<File>, u64)>> {
        for name in [OLD, NEW] {
            if let Some(file) = file::opened(&self.directory, name)? {
                let inode = file.metadata()?.ino();
                if name == NEW || after != Some(inode) {
                    return Ok(Some((BufReader::new(file), inode)));
                }
            }
        }
        Ok(None)
    }
}
