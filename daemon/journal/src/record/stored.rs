//! The stored form of records outside the log: `{"v":1,"record":…}`.
//!
//! **Owns** the version of that form. Records in `base` and in history are written and read only through this module.
//! Once a form is released, a change in the serialized types of the model needs a new version, and all released
//! versions stay readable. **Failure.** An unknown version has an error of its own ([`io::ErrorKind::Unsupported`]): a
//! later version of ryed wrote it, and nothing is damaged.

use std::fmt;
use std::io;
use std::marker::PhantomData;

use serde::de::{DeserializeOwned, Error as _, MapAccess, Unexpected, Visitor};
use serde::{Deserializer as _, Serialize};
use serde_json::Deserializer;

/// Version that is written.
const VERSION: u32 = 1;

#[derive(Serialize)]
struct Record<'a, T> {
    v: u32,
    record: &'a T,
}

#[cfg(test)]
pub(crate) fn write<T: Serialize>(record: &T) -> io::Result<Vec<u8>> {
    Ok(serde_json::to_vec(&Record { v: VERSION, record })?)
}

pub(crate) fn write_to<T: Serialize>(record: &T, out: impl io::Write) -> io::Result<()> {
    Ok(serde_json::to_writer(out, &Record { v: VERSION, record })?)
}

/// Decodes the record in `bytes`.
pub(crate) fn read<T: DeserializeOwned>(bytes: &[u8]) -> io::Result<T> {
    read_with(&mut Deserializer::from_slice(bytes))
}

/// Decodes the record that is all of `reader`. Its text is not held in memory.
pub(crate) fn read_from<T: DeserializeOwned>(reader: impl io::Read) -> io::Result<T> {
    read_with(&mut Deserializer::from_reader(reader))
}

fn read_with<'de, T: DeserializeOwned>(
    json: &mut Deserializer<impl serde_json::de::Read<'de>>,
) -> io::Result<T> {
    let mut version = None;
    let record = Versioned {
        version: &mut version,
        record: PhantomData,
    };
    let record = json.deserialize_map(record).and_then(|record| {
        json.end()?;
        Ok(record)
    });
    match version {
        Some(version) if version != VERSION => {
            let why = format!(
                "it was written in form {version}, and this version of ryed knows form {VERSION}: use the version that \
                 wrote it"
            );
            Err(io::Error::new(io::ErrorKind::Unsupported, why))
        }
        _ => Ok(record?),
    }
}

/// Reads a record after its version, because the record of another version may have any form.
struct Versioned<'a, T> {
    version: &'a mut Option<u32>,
    record: PhantomData<T>,
}

impl<'de, T: DeserializeOwned> Visitor<'de> for Versioned<'_, T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a version `v`, and then a `record`")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<T, A::Error> {
        let mut record = None;
        while let Some(key) = map.next_key::<String>()? {
            match (key.as_str(), *self.version) {
                ("v", None) => {
                    let version = map.next_value()?;
                    *self.version = Some(version);
                    if version != VERSION {
                        return Err(A::Error::custom("another version"));
                    }
                }
                ("record", Some(_)) if record.is_none() => record = Some(map.next_value()?),
                _ => return Err(A::Error::invalid_type(Unexpected::Str(&key), &self)),
            }
        }
        record.ok_or_else(|| A::Error::missing_field("record"))
    }
}
