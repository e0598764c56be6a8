//! The stored form of records outside the log: `{"v":1,"record":…}`.
//!
//! **Owns** the version of that form. Records in `base` and in history are written and read only through this module.
//! Once a form is released, a change in the serialized types of the model needs a new version, and all released
//! versions stay readable. **Failure.** An unknown version has an error of its own ([`io::ErrorKind::Unsupported`]): a
//! later version of ryed wrote it, and nothing is damaged.

use std::io;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// Version that is written.
const VERSION: u32 = 1;

#[derive(Serialize)]
struct Record<'a, T> {
    v: u32,
    record: &'a T,
}

pub(crate) fn write<T: Serialize>(record: &T) -> io::Result<Vec<u8>> {
    Ok(serde_json::to_vec(&Record { v: VERSION, record })?)
}

pub(crate) fn write_to<T: Serialize>(record: &T, out: impl io::Write) -> io::Result<()> {
    Ok(serde_json::to_writer(out, &Record { v: VERSION, record })?)
}

/// Decodes the record in `bytes`.
pub(crate) fn read<T: DeserializeOwned>(bytes: &[u8]) -> io::Result<T> {
    #[derive(Deserialize)]
    struct Version {
        v: u32,
    }
    #[derive(Deserialize)]
    struct One<T> {
        record: T,
    }
    // Read first and alone, because the record of another version may have any form.
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
