//! The form in which records of the model lie on disk, outside the log: `{"v":1,"record":…}`.
//!
//! **Owns** the number of that form. Records in `base` and in history are written and read through here and nowhere else. A form is a promise:
//! once it is released, what the types of the model write changes only with a new number, and every number that was ever released
//! stays readable. **Failure.** A number this version does not know has an error of its own ([`io::ErrorKind::Unsupported`]): a later
//! version wrote it, and nothing is damaged.

use std::io;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// The form that is written.
const VERSION: u32 = 1;

#[derive(Serialize)]
struct Record<'a, T> {
    v: u32,
    record: &'a T,
}

/// The record as it is stored.
pub(crate) fn write<T: Serialize>(record: &T) -> io::Result<Vec<u8>> {
    Ok(serde_json::to_vec(&Record { v: VERSION, record })?)
}

/// Writes the record as it is stored.
pub(crate) fn write_to<T: Serialize>(record: &T, out: impl io::Write) -> io::Result<()> {
    Ok(serde_json::to_writer(out, &Record { v: VERSION, record })?)
}

/// The record that was stored as `bytes`.
pub(crate) fn read<T: DeserializeOwned>(bytes: &[u8]) -> io::Result<T> {
    #[derive(Deserialize)]
    struct Version {
        v: u32,
    }
    #[derive(Deserialize)]
    struct One<T> {
        record: T,
    }
    // Looked at alone: what else a record of another form holds is not for us to judge.
    let Version { v } = serde_json::from_slice(bytes)?;
    if v == VERSION {
        let One { record } = serde_json::from_slice(bytes)?;
        return Ok(record);
    }
    let why = format!(
        "it was written in form {v}, and this version of ryed knows form {VERSION}: use the version that wrote it"
    );
    Err(io::Error::new(io::ErrorKind::Unsupported, why))
}
