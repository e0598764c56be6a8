//! A program that is part of a tool. It is read once, compared with the hash in the signed tool, and run from memory.

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use nix::fcntl::OFlag;
use rye_core::seal::sha256_hex;
use rye_host::safe_path;
use serde_json::{Map, Value};

use super::error::Error;
use super::fields::close_keys;
use super::template::Settings;

/// Maximum size of a program in bytes.
const MOST_BYTES: u64 = 64 << 20;

pub(super) const KEYS: [&str; 2] = ["path", "sha256"];

/// Returns the verified bytes of the program for this platform.
pub(super) fn read(settings: &Settings<'_>) -> Result<Vec<u8>, Error> {
    let platform = format!("{}-{}", std::env::consts::ARCH, std::env::consts::OS);
    let field = format!("binaries.{platform}");
    let wrong = |field: &str, problem: &str| settings.malformed_below("binaries", field, problem);
    let known = settings.mapping("binaries")?;
    let entry = known.and_then(|known| known.get(&platform));
    let (Some(entry), Some(element)) = (entry, settings.setter("binaries")) else {
        let there = known.map(|known| known.keys().cloned().collect::<Vec<_>>());
        let there = there.unwrap_or_default().join(", ");
        let problem =
            format!("is missing: the tool has a program for `{there}` and not for this machine");
        return Err(wrong(&field, &problem));
    };
    let Some(entry) = entry.as_object() else {
        return Err(wrong(&field, "must be a mapping of `path` and `sha256`"));
    };
    close_keys(element, &format!("config.{field}"), entry, &KEYS)?;
    let path =
        text(entry, "path").ok_or_else(|| wrong(&format!("{field}.path"), "must be a path"))?;
    let wanted = text(entry, "sha256")
        .filter(|hash| hash.len() == 64)
        .ok_or_else(|| wrong(&format!("{field}.sha256"), "must be 64 hexadecimal digits"))?;
    let directory = element.path.parent().unwrap_or(Path::new("/"));
    let shown = directory.join(path);
    let content = read_below(directory, Path::new(path)).map_err(|source| Error::Binary {
        path: shown.clone(),
        problem: format!("cannot be read below the tool's directory: {source}"),
    })?;
    let found = sha256_hex(&content);
    if found == wanted.to_ascii_lowercase() {
        return Ok(content);
    }
    Err(Error::Binary {
        path: shown,
        problem: format!(
            "has the SHA-256 {found}, and `{}` was signed for {wanted}; put the program back, or write the new hash and sign again",
            element.path.display()
        ),
    })
}

fn text<'e>(entry: &'e Map<String, Value>, key: &str) -> Option<&'e str> {
    entry.get(key)?.as_str()
}

/// Reads `path`, which must not lead out of `directory`.
fn read_below(directory: &Path, path: &Path) -> io::Result<Vec<u8>> {
    let folder = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_PATH | libc::O_DIRECTORY)
        .open(directory)?;
    let flags = OFlag::O_RDONLY | OFlag::O_NONBLOCK | OFlag::O_NOCTTY;
    let file = File::from(safe_path::open(&folder, path, flags)?);
    let about = file.metadata()?;
    if !about.is_file() {
        return Err(io::Error::other("it is not a file"));
    }
    let mut content = Vec::new();
    file.take(MOST_BYTES + 1).read_to_end(&mut content)?;
    if u64::try_from(content.len()).is_ok_and(|length| length <= MOST_BYTES) {
        Ok(content)
    } else {
        let most = MOST_BYTES >> 20;
        Err(io::Error::other(format!("it is larger than {most} MiB")))
    }
}
