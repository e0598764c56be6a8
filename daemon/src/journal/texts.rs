//! Long texts of archived records, which are kept as objects.
//!
//! **Owns** what stands in their place: a NUL, `text:`, and the digest. The text is kept as it is, not as JSON writes it, and once,
//! however often the record holds it. A text of somebody else that begins like that is taken out as well, so that nothing is mistaken
//! for such a name. **Order.** The objects are on disk before the record that names them. **Failure.** A record whose text is gone
//! or damaged cannot be read; others can.

use std::collections::HashMap;
use std::io;

use memchr::{memchr, memchr2, memmem};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::record::SPILL_BYTES;
use super::stored;
use crate::object::{self, Digest};

/// What stands in the place of a text, before its digest.
const NAMED: &str = "\0text:";
/// The same as JSON has it.
const NAMED_JSON: &[u8] = br#""\u0000text:"#;

/// The record as it is stored, its long texts kept in `objects`. Blocks.
pub(super) fn write<T: Serialize>(record: &T, objects: &object::Store) -> io::Result<Vec<u8>> {
    let whole = stored::write(record)?;
    if !has_long_text(&whole) && !names_texts(&whole) {
        return Ok(whole);
    }
    drop(whole);
    let mut value = serde_json::to_value(record)?;
    // Inputs stand in the state again, as a rule: a text is hashed and looked for once.
    let mut known: Vec<(String, Digest)> = Vec::new();
    each_text(&mut value, &mut |text| {
        if text.len() <= SPILL_BYTES && !text.starts_with(NAMED) {
            return Ok(());
        }
        let same = known.iter().find(|(known, _)| known == text);
        let digest = if let Some((_, digest)) = same {
            *digest
        } else {
            let digest = objects.put(text.as_bytes()).map_err(failed)?;
            known.push((std::mem::take(text), digest));
            digest
        };
        *text = format!("{NAMED}{digest}");
        Ok(())
    })?;
    stored::write(&value)
}

/// The record that was stored as `bytes`, with its long texts. Blocks.
pub(super) fn read<T: DeserializeOwned>(bytes: &[u8], objects: &object::Store) -> io::Result<T> {
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

/// Whether there is a text in this JSON that may be long: it is no shorter there.
fn has_long_text(json: &[u8]) -> bool {
    let mut rest = json;
    while let Some(open) = memchr(b'"', rest) {
        rest = &rest[open + 1..];
        let Some(length) = until_quote(rest) else {
            return false;
        };
        if length > SPILL_BYTES {
            return true;
        }
        rest = &rest[length + 1..];
    }
    false
}

/// The length of the text at whose first byte `json` begins.
fn until_quote(json: &[u8]) -> Option<usize> {
    let mut length = 0;
    loop {
        let at = length + memchr2(b'"', b'\\', json.get(length..)?)?;
        if json[at] == b'"' {
            return Some(at);
        }
        length = at + 2;
    }
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

/// What became of the object, with the kind of what the system said.
fn failed(error: object::Error) -> io::Error {
    let kind = match &error {
        object::Error::Store { source, .. } => source.kind(),
        object::Error::Read { .. } | object::Error::Damaged { .. } => io::ErrorKind::InvalidData,
    };
    io::Error::new(kind, error)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use serde_json::json;

    use super::*;

    fn store(root: &tempfile::TempDir) -> object::Store {
        object::Store::open(root.path().join("objects"))
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
    fn a_long_text_is_kept_once_and_as_it_is_however_often_a_record_holds_it() {
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
    fn a_text_is_long_whatever_stands_in_it_and_many_short_ones_are_not() {
        let long = |text: &str| has_long_text(json!([1, text, "end"]).to_string().as_bytes());
        for part in ["x", "\"", "\\", "\\\"", "a\"b", "\u{1}", "é"] {
            assert!(long(&part.repeat(SPILL_BYTES + 1)), "{part}");
        }
        assert!(!long(&"x".repeat(SPILL_BYTES)));
        let short = vec!["x\"\\".repeat(1000); 100];
        assert!(!has_long_text(json!({"a": short}).to_string().as_bytes()));
        assert!(!has_long_text(b"\"cut off"));
    }

    #[test]
    fn a_text_that_looks_like_the_name_of_another_comes_back_as_it_was() {
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
    fn a_record_whose_text_is_gone_cannot_be_read() {
        let root = tempfile::tempdir().unwrap();
        let objects = store(&root);
        let bytes = write(&json!("x".repeat(SPILL_BYTES + 1)), &objects).unwrap();
        fs::remove_dir_all(root.path().join("objects")).unwrap();
        let error = read::<Value>(&bytes, &objects).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
    }
}
