//! Payload of a frame: one byte for the codec, then JSON lines, of which the first names their form.

use std::fmt;
use std::io;

/// Form of events of runs.
pub(super) const EVENTS: &str = "events/1";
/// Form of final records of runs.
pub(super) const RECORDS: &str = "records/1";
/// Form of entries of the index.
pub(super) const ENTRIES: &str = "entries/1";
/// Form of the directory of a section.
pub(super) const DIRECTORY: &str = "directory/1";
/// Form of the table of a full file.
pub(super) const TABLE: &str = "table/1";

/// Limit in bytes on the text of one frame. Blocks have 128 KiB, and most records a few MiB. A record may have a state and
/// collected results of 64 MiB each, and six bytes for each of these if they are short texts of NULs. Tests have less.
pub(super) const MAX_TEXT_BYTES: usize = if cfg!(test) { 96 << 20 } else { 1 << 30 };

const PLAIN: u8 = 0;
const ZSTD: u8 = 1;
const LEVEL: i32 = 1;

/// Compresses payloads, one after the other.
pub(super) struct Encoder(zstd::bulk::Compressor<'static>);

impl Encoder {
    pub(super) fn new() -> io::Result<Self> {
        zstd::bulk::Compressor::new(LEVEL).map(Self)
    }

    /// Returns the payload with `text`, compressed if that makes it shorter.
    pub(super) fn encode(&mut self, text: &[u8]) -> io::Result<Vec<u8>> {
        if text.len() > MAX_TEXT_BYTES {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        let compressed = self.0.compress(text)?;
        Ok(if compressed.len() < text.len() {
            [&[ZSTD], compressed.as_slice()].concat()
        } else {
            [&[PLAIN], text].concat()
        })
    }
}

impl fmt::Debug for Encoder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Encoder").finish_non_exhaustive()
    }
}

/// Returns the text in `payload`. Fails before it allocates more than `most` bytes.
pub(super) fn decode(payload: &[u8], most: usize) -> io::Result<Vec<u8>> {
    match payload.split_first() {
        Some((&PLAIN, text)) if text.len() <= most => Ok(text.to_vec()),
        Some((&ZSTD, data)) => zstd::bulk::decompress(data, most)
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error)),
        Some((&PLAIN, _)) => Err(damaged("its text is too long")),
        Some((codec, _)) => Err(damaged(format!("its codec {codec} is not known"))),
        None => Err(damaged("it is empty")),
    }
}

/// Returns a text of this form without lines.
pub(super) fn begin(form: &str) -> Vec<u8> {
    format!("\"{form}\"\n").into_bytes()
}

/// Returns the rest of `text` after the line that names its form.
pub(super) fn content<'t>(text: &'t [u8], form: &str) -> io::Result<&'t [u8]> {
    let content = text.strip_prefix(begin(form).as_slice());
    content.ok_or_else(|| damaged(format!("it is not of the form {form}")))
}

/// Returns the lines of `text` after the one that names its form.
pub(super) fn lines<'t>(text: &'t [u8], form: &str) -> io::Result<impl Iterator<Item = &'t [u8]>> {
    let lines = content(text, form)?;
    Ok(lines.split_inclusive(|byte| *byte == b'\n'))
}

/// Returns the error for stored bytes that are not what was written.
pub(super) fn damaged(reason: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, reason.into())
}

/// True for [`damaged`] bytes and truncated files. Other errors may not occur again.
pub(super) fn is_damage(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof
    )
}
