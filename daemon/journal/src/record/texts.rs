//! Long texts in records of ended runs, stored as objects.
//!
//! **Owns** the placeholder of such a text: a NUL, `text:`, and the digest. The text is stored unescaped, and once, no
//! matter how often the record holds it. A text that itself begins like a placeholder is stored as an object as well,
//! so that no text is mistaken for one. **Order.** The objects are on disk before the record that names them.
//! **Failure.** A record whose text is missing or damaged cannot be read; other records can.

use std::collections::{HashMap, VecDeque};
use std::io::{self, BufWriter};

use memchr::{memchr, memchr2, memmem};
use rye_core::digest::Digest;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::record::SPILL_BYTES;
use crate::record::stored;
use rye_host::blobs;

/// Start of a placeholder, before the digest.
const NAMED: &str = "\0text:";
/// The same start in JSON.
const NAMED_JSON: &[u8] = br"\u0000text:";

/// Limit in bytes on the cache of recently stored texts. The state of a run usually repeats its inputs.
const RECENT_BYTES: usize = 4 << 20;
/// Size in bytes of the buffer for JSON that is searched at once.
const CHUNK: usize = 32 << 10;

/// Encodes the record and stores its long texts in `objects`. In addition to the result, only one of its texts and the
/// cached texts are in memory. Blocks.
pub(crate) fn write<T: Serialize>(record: &T, objects: &blobs::Store) -> io::Result<Vec<u8>> {
    let mut out = BufWriter::with_capacity(CHUNK, Naming::new(objects));
    stored::write_to(record, &mut out)?;
    let naming = out.into_inner().map_err(io::IntoInnerError::into_error)?;
    Ok(naming.out)
}

/// Receives JSON and replaces long texts by placeholders.
struct Naming<'a> {
    objects: &'a blobs::Store,
    out: Vec<u8>,
    state: ScanState,
    /// Text that is being read, as JSON without its quotes.
    text: Vec<u8>,
    /// Texts that were stored last, the oldest first.
    recent: VecDeque<(String, Digest)>,
}

/// Position of the next byte in the JSON.
#[derive(Clone, Copy)]
enum ScanState {
    Outside,
    InText,
    AfterBackslash,
    /// After a text that has to be replaced unless it is a key.
    AfterText,
}

impl<'a> Naming<'a> {
    const fn new(objects: &'a blobs::Store) -> Self {
        Self {
            objects,
            out: Vec::new(),
            state: ScanState::Outside,
            text: Vec::new(),
            recent: VecDeque::new(),
        }
    }

    /// Consumes the beginning of `json`, which is not empty. Returns the number of consumed bytes.
    fn take(&mut self, json: &[u8]) -> io::Result<usize> {
        match self.state {
            ScanState::Outside => {
                let quote = memchr(b'"', json);
                self.out.extend(&json[..quote.unwrap_or(json.len())]);
                if quote.is_some() {
                    self.state = ScanState::InText;
                }
                Ok(quote.map_or(json.len(), |at| at + 1))
            }
            ScanState::InText => {
                let Some(at) = memchr2(b'"', b'\\', json) else {
                    self.text.extend(json);
                    return Ok(json.len());
                };
                self.text.extend(&json[..at]);
                if json[at] == b'\\' {
                    self.text.push(b'\\');
                    self.state = ScanState::AfterBackslash;
                } else if self.text.len() > SPILL_BYTES || self.text.starts_with(NAMED_JSON) {
                    self.state = ScanState::AfterText;
                } else {
                    self.keep();
                }
                Ok(at + 1)
            }
            ScanState::AfterBackslash => {
                self.text.push(json[0]);
                self.state = ScanState::InText;
                Ok(1)
            }
            ScanState::AfterText if json[0] == b':' => {
                self.keep();
                Ok(0)
            }
            ScanState::AfterText => self.name().map(|()| 0),
        }
    }

    /// Writes the text unchanged.
    fn keep(&mut self) {
        self.out.push(b'"');
        self.out.append(&mut self.text);
        self.out.push(b'"');
        self.state = ScanState::Outside;
    }

    /// Stores the text as an object and writes its placeholder, unless the decoded text is short.
    fn name(&mut self) -> io::Result<()> {
        let mut json = Vec::with_capacity(self.text.len() + 2);
        json.push(b'"');
        json.append(&mut self.text);
        json.push(b'"');
        let text: String = serde_json::from_slice(&json)?;
        self.state = ScanState::Outside;
        if text.len() <= SPILL_BYTES && !text.starts_with(NAMED) {
            self.out.append(&mut json);
            return Ok(());
        }
        drop(json);
        let name = format!("{NAMED}{}", self.digest(text)?);
        Ok(serde_json::to_writer(&mut self.out, &name)?)
    }

    /// Returns the digest of a text, and stores the text if it is not cached.
    fn digest(&mut self, text: String) -> io::Result<Digest> {
        let known = self.recent.iter().find(|(known, _)| *known == text);
        if let Some((_, digest)) = known {
            return Ok(*digest);
        }
        let digest = self.objects.put(text.as_bytes()).map_err(failed)?;
        self.recent.push_back((text, digest));
        let bytes = |recent: &VecDeque<(String, Digest)>| -> usize {
            recent.iter().map(|(text, _)| text.len()).sum()
        };
        while bytes(&self.recent) > RECENT_BYTES {
            self.recent.pop_front();
        }
        Ok(digest)
    }
}

impl io::Write for Naming<'_> {
    fn write(&mut self, json: &[u8]) -> io::Result<usize> {
        let mut rest = json;
        while !rest.is_empty() {
            let taken = self.take(rest)?;
            rest = &rest[taken..];
        }
        Ok(json.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Decodes the record in `bytes`, with its long texts. Blocks.
pub(crate) fn read<T: DeserializeOwned>(bytes: &[u8], objects: &blobs::Store) -> io::Result<T> {
    if !names_texts(bytes) {
        return stored::read(bytes);
    }
    let mut value: Value = stored::read(bytes)?;
    let mut known: HashMap<String, String> = HashMap::new();
    each_text(&mut value, &mut |text| {
        let Some(name) = text.strip_prefix(NAMED) else {
            return Ok(());
        };
        if let Some(known) = known.get(name) {
            text.clone_from(known);
            return Ok(());
        }
        let digest: Digest = name.parse().map_err(damaged)?;
        let kept = objects.get(&digest).map_err(failed)?;
        let kept = String::from_utf8(kept).map_err(damaged)?;
        known.insert(name.to_owned(), kept.clone());
        *text = kept;
        Ok(())
    })?;
    Ok(serde_json::from_value(value)?)
}

fn names_texts(json: &[u8]) -> bool {
    memmem::find(json, NAMED_JSON).is_some()
}

fn each_text(
    value: &mut Value,
    change: &mut impl FnMut(&mut String) -> io::Result<()>,
) -> io::Result<()> {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => Ok(()),
        Value::String(text) => change(text),
        Value::Array(list) => list
            .iter_mut()
            .try_for_each(|entry| each_text(entry, change)),
        Value::Object(map) => map
            .values_mut()
            .try_for_each(|entry| each_text(entry, change)),
    }
}

fn damaged(error: impl std::error::Error + Send + Sync + 'static) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}

/// Returns the error with the kind that the operating system reported.
fn failed(error: blobs::Error) -> io::Error {
    let kind = match &error {
        blobs::Error::Store { source, .. } => source.kind(),
        blobs::Error::Read { .. } | blobs::Error::Damaged { .. } => io::ErrorKind::InvalidData,
    };
    io::Error::new(kind, error)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Write as _;

    use serde_json::json;

    use super::*;

    fn store(root: &tempfile::TempDir) -> blobs::Store {
        blobs::Store::open(root.path().join("objects"))
    }

    fn kept(root: &tempfile::TempDir) -> u64 {
        fn below(path: &std::path::Path) -> u64 {
            let entries = fs::read_dir(path).into_iter().flatten();
            let sizes = entries.map(|entry| {
                let entry = entry.unwrap();
                let metadata = entry.metadata().unwrap();
                if metadata.is_dir() {
                    below(&entry.path())
                } else {
                    metadata.len()
                }
            });
            sizes.sum()
        }
        below(root.path())
    }

    #[test]
    fn long_text_is_stored_once_unescaped() {
        let root = tempfile::tempdir().unwrap();
        let objects = store(&root);
        let long = "\u{1}".repeat(SPILL_BYTES + 1);
        let record = json!({"a": long, "b": {"z": [long, "short"], "a": 1.5}, "c": null});
        let bytes = write(&record, &objects).unwrap();
        assert!(bytes.len() < 400, "{}", bytes.len());
        assert_eq!(kept(&root), u64::try_from(long.len()).unwrap());
        let again: Value = read(&bytes, &objects).unwrap();
        assert_eq!(again.to_string(), record.to_string(), "in the same order");
    }

    #[test]
    fn only_long_values_become_objects() {
        let root = tempfile::tempdir().unwrap();
        let objects = store(&root);
        let stays = |record: &Value| {
            let bytes = write(record, &objects).unwrap();
            assert_eq!(read::<Value>(&bytes, &objects).unwrap(), *record);
            bytes == stored::write(record).unwrap()
        };
        for part in ["x", "\"", "\\", "\\\"", "a\"b", "\u{1}", "é"] {
            let most = SPILL_BYTES / part.len();
            assert!(stays(&json!([1, part.repeat(most), "end"])), "{part}");
            let long = part.repeat(most + 1);
            assert!(!stays(&json!([1, long, "end"])), "{part}");
            assert!(stays(&json!({long.as_str(): [1, {long: null}]})), "{part}");
        }
        let short = vec!["x\"\\".repeat(1000); 100];
        assert!(stays(&json!({"a": short})));
    }

    #[test]
    fn text_extraction_accepts_json_in_pieces() {
        let root = tempfile::tempdir().unwrap();
        let objects = store(&root);
        let long = "a\"\\\u{0}é".repeat(SPILL_BYTES);
        let named = format!("{NAMED}x");
        let record = json!({"k\"": [long, "short\\", 1.5, {named.as_str(): named}], "again": long});
        let json = serde_json::to_vec(&record).unwrap();
        let mut whole = Naming::new(&objects);
        whole.write_all(&json).unwrap();
        for length in [1, 2, 7, 4096] {
            let mut pieces = Naming::new(&objects);
            for piece in json.chunks(length) {
                pieces.write_all(piece).unwrap();
            }
            assert_eq!(pieces.out, whole.out, "{length}");
        }
    }

    #[test]
    fn text_like_a_placeholder_round_trips() {
        let root = tempfile::tempdir().unwrap();
        let objects = store(&root);
        let secret = objects.put(b"of somebody else").unwrap();
        for text in [
            format!("{NAMED}{secret}"),
            NAMED.to_owned(),
            format!("x{NAMED}"),
        ] {
            let record = json!([text, {NAMED: 1}]);
            let bytes = write(&record, &objects).unwrap();
            assert_eq!(read::<Value>(&bytes, &objects).unwrap(), record);
        }
    }

    #[test]
    fn a_record_without_long_texts_is_stored_whole() {
        let root = tempfile::tempdir().unwrap();
        let objects = store(&root);
        let record = json!({"a": "x".repeat(SPILL_BYTES / 2), "b": "y".repeat(SPILL_BYTES)});
        let bytes = write(&record, &objects).unwrap();
        assert_eq!(bytes, stored::write(&record).unwrap());
        assert_eq!(kept(&root), 0);
    }

    #[test]
    fn record_with_missing_text_is_invalid_data() {
        let root = tempfile::tempdir().unwrap();
        let objects = store(&root);
        let bytes = write(&json!("x".repeat(SPILL_BYTES + 1)), &objects).unwrap();
        fs::remove_dir_all(root.path().join("objects")).unwrap();
        let error = read::<Value>(&bytes, &objects).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
    }
}
