//! Text of a trusted-key file: reading, checking and writing.

use std::path::{Path, PathBuf};

use rye_core::clock::Timestamp;
use rye_core::seal::{self, Fingerprint, PublicKey};
use serde::Deserialize;

use super::{Error, PartialCoverage};

/// Content of a trusted-key file, or of a PEM file, which has no terms.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyFile {
    pub key: PublicKey,
    pub owner: Option<String>,
    /// The last moment at which it counts.
    pub not_after: Option<Timestamp>,
    /// From this moment on nothing it ever signed counts.
    pub revoked_at: Option<Timestamp>,
    /// Acceptance of its signatures that do not cover the whole file.
    pub partial: PartialCoverage,
    /// The only project in which it counts, by its real path; `None` for all.
    pub directory: Option<PathBuf>,
}

impl KeyFile {
    /// Makes the entry of a key without terms.
    pub fn new(key: PublicKey, owner: Option<String>) -> Self {
        Self {
            key,
            owner,
            not_after: None,
            revoked_at: None,
            partial: PartialCoverage::Refused,
            directory: None,
        }
    }
}

/// Fields of the file. Unknown keys are refused: a misspelt `revoked_at` must not be overlooked.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Form {
    #[serde(default, rename = "version")]
    _version: Option<String>,
    #[serde(default, rename = "category")]
    _category: Option<String>,
    #[serde(default, rename = "name")]
    _name: Option<String>,
    fingerprint: Fingerprint,
    #[serde(default)]
    owner: Option<String>,
    #[serde(default, rename = "attestation")]
    _attestation: Option<String>,
    #[serde(default)]
    not_after: Option<toml::Value>,
    #[serde(default)]
    revoked_at: Option<toml::Value>,
    #[serde(default)]
    accept_partial: bool,
    #[serde(default)]
    directory: Option<PathBuf>,
    public_key: FormKey,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FormKey {
    pem: String,
}

fn time(name: &str, value: Option<&toml::Value>) -> Result<Option<Timestamp>, String> {
    let Some(value) = value else {
        return Ok(None);
    };
    value
        .as_datetime()
        .map(ToString::to_string)
        .or_else(|| value.as_str().map(str::to_owned))
        .and_then(|text| Timestamp::parse(&text))
        .map(Some)
        .ok_or_else(|| format!("`{name}` is not a time like 2027-01-31T00:00:00Z"))
}

pub(super) fn read_form(text: &str) -> Result<KeyFile, String> {
    let form: Form = toml::from_str(text).map_err(|error| error.message().to_owned())?;
    let key = PublicKey::from_pem(&form.public_key.pem).map_err(|error| error.to_string())?;
    if *key.fingerprint() != form.fingerprint {
        return Err(format!(
            "its key has the fingerprint {}, not {}",
            key.fingerprint(),
            form.fingerprint
        ));
    }
    Ok(KeyFile {
        key,
        owner: form.owner,
        not_after: time("not_after", form.not_after.as_ref())?,
        revoked_at: time("revoked_at", form.revoked_at.as_ref())?,
        partial: if form.accept_partial {
            PartialCoverage::Accepted
        } else {
            PartialCoverage::Refused
        },
        directory: form.directory,
    })
}

/// Reads a PEM text or a trusted-key file. `subject` names the text in errors.
pub fn read_key(subject: &str, text: &str) -> Result<KeyFile, Error> {
    let not_a_key = |source| Error::NotAKey {
        subject: subject.to_owned(),
        source,
    };
    if text.trim_start().starts_with("-----BEGIN") {
        let key = PublicKey::from_pem(text).map_err(|source| not_a_key(Box::new(source)))?;
        return Ok(KeyFile::new(key, None));
    }
    read_form(&seal::normalise(text)).map_err(|reason| not_a_key(reason.into()))
}

/// Checks that `text`, in the file `path`, can be read as an entry.
pub(crate) fn check_entry(path: &Path, text: &str) -> Result<KeyFile, String> {
    let entry = read_form(text)?;
    let fingerprint = entry.key.fingerprint();
    if path
        .file_stem()
        .is_none_or(|stem| stem != fingerprint.as_str())
    {
        return Err(format!(
            "its name is not its fingerprint, {fingerprint}.toml"
        ));
    }
    Ok(entry)
}

/// Unsigned text of an entry: a file of the original system, with a line for each of its terms.
pub(super) fn form_of(entry: &KeyFile) -> String {
    let time = |name: &str, time: Option<Timestamp>| time.map(|at| format!("{name} = \"{at}\""));
    let mut lines = vec![
        "version = \"1.0.0\"".to_owned(),
        "category = \"keys/trusted\"".to_owned(),
        format!("fingerprint = \"{}\"", entry.key.fingerprint()),
    ];
    // A JSON string without control characters is a TOML string.
    let text = |name: &str, text: &str| format!("{name} = {}", serde_json::Value::from(text));
    lines.extend(entry.owner.as_deref().map(|owner| text("owner", owner)));
    lines.push("attestation = \"\"".to_owned());
    lines.extend(time("not_after", entry.not_after));
    lines.extend(time("revoked_at", entry.revoked_at));
    if entry.partial == PartialCoverage::Accepted {
        lines.push("accept_partial = true".to_owned());
    }
    let directory = entry.directory.as_ref().map(|path| path.to_string_lossy());
    lines.extend(directory.map(|path| text("directory", &path)));
    let key = entry.key.to_pem();
    lines.push(format!("\n[public_key]\npem = \"\"\"\n{key}\"\"\"\n"));
    lines.join("\n")
}
