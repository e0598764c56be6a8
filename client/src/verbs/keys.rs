//! `key generate|show|list|trust|untrust`.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use rye_client::exit::Exit;
use rye_core::clock::Timestamp;
use rye_core::seal::Fingerprint;
use rye_item::init;
use rye_item::trust::{self, KeyFile, PartialCoverage};
use serde_json::json;

use super::local::Local;
use crate::cli::KeyVerb;
use crate::failure::Failure;
use crate::local_error::LocalError;
use crate::output::{Format, Output, Reader};
use crate::render;
use crate::session::Session;

/// Longest prefix of a key file that is read.
const MOST_KEY_BYTES: u64 = 64 << 10;

/// Owner of a key whose file names none.
const DEFAULT_OWNER: &str = "local";

pub(super) fn key(verb: KeyVerb, session: &mut Session) -> Result<Exit, Failure> {
    let local = Local::of(session)?;
    let output = &mut session.output;
    match verb {
        KeyVerb::Generate => generate(&local, output),
        KeyVerb::Show => show(&local, output),
        KeyVerb::List => list(&local, output),
        KeyVerb::Trust {
            file,
            owner,
            accept_partial,
        } => trust(&local, &file, owner, accept_partial, output),
        KeyVerb::Untrust { fingerprint } => untrust(&local, &fingerprint, output),
    }?;
    Ok(Exit::Done)
}

fn generate(local: &Local, output: &mut Output) -> Result<(), Failure> {
    local.keys.create()?;
    // The user's own key is trusted; otherwise nothing that it signs would run.
    let (key, _) = init::user_key(&local.user, &local.keys, local.now)?;
    let fingerprint = key.public().fingerprint();
    match output.format() {
        Format::Json => output.json(&json!({
            "fingerprint": fingerprint,
            "private_key": local.keys.private_path(),
            "public_key": local.keys.public_path(),
        })),
        Format::Text => output.line(&format!(
            "made the key {fingerprint}\nprivate half: {}\npublic half: {}",
            local.keys.private_path().display(),
            local.keys.public_path().display()
        )),
    }
}

fn show(local: &Local, output: &mut Output) -> Result<(), Failure> {
    let key = local.key()?;
    let public = key.public();
    match (output.format(), output.reader()) {
        (Format::Json, _) => output.json(&json!({
            "fingerprint": public.fingerprint(),
            "pem": public.to_pem(),
            "path": local.keys.public_path(),
        })),
        (Format::Text, reader) => {
            if reader == Reader::Terminal {
                output.note(&format!("fingerprint {}", public.fingerprint()));
            }
            output.line(public.to_pem().trim_end())
        }
    }
}

fn list(local: &Local, output: &mut Output) -> Result<(), Failure> {
    let store = local.trust();
    let keys = store.keys();
    for refused in store.refused() {
        output.warning(&format!(
            "{} does not count: {}",
            refused.path.display(),
            refused.reason
        ));
    }
    if output.format() == Format::Json {
        let keys: Vec<_> = keys
            .iter()
            .map(|key| {
                json!({
                    "fingerprint": key.key.fingerprint(),
                    "owner": local.owner(key.key.fingerprint(), &key.owner),
                    "space": key.space.as_str(),
                    "not_after": key.not_after.map(|at| at.to_string()),
                    "revoked_at": key.revoked_at.map(|at| at.to_string()),
                    "accept_partial": key.partial == PartialCoverage::Accepted,
                })
            })
            .collect();
        return output.json(&keys);
    }
    let rows: Vec<[String; 4]> = keys
        .iter()
        .map(|key| {
            [
                key.key.fingerprint().to_string(),
                local.owner(key.key.fingerprint(), &key.owner).to_owned(),
                key.space.to_string(),
                match key.partial {
                    PartialCoverage::Refused => validity(key.revoked_at, key.not_after, local.now),
                    PartialCoverage::Accepted => format!(
                        "{}, partial too",
                        validity(key.revoked_at, key.not_after, local.now)
                    ),
                },
            ]
        })
        .collect();
    output.line(&render::table(
        ["FINGERPRINT", "OWNER", "SPACE", "STANDING"],
        &rows,
    ))
}

/// Returns the present validity of a key's signatures in words.
fn validity(revoked_at: Option<Timestamp>, not_after: Option<Timestamp>, now: Timestamp) -> String {
    match (revoked_at, not_after) {
        (Some(at), _) => format!("revoked {at}"),
        (None, Some(end)) if end < now => format!("expired {end}"),
        (None, Some(end)) => format!("trusted until {end}"),
        (None, None) => "trusted".to_owned(),
    }
}

/// Reads the public key from a PEM file or a trusted-key file.
pub(super) fn read_file(file: &Path) -> Result<KeyFile, Failure> {
    let place = format!("`{}`", file.display());
    let mut text = String::new();
    let read =
        File::open(file).and_then(|file| file.take(MOST_KEY_BYTES).read_to_string(&mut text));
    read.map_err(|error| LocalError::unreadable(&place, error))?;
    let key = trust::read_key(&place, &text);
    Ok(key.map_err(|error| LocalError::of(Exit::Usage, error))?)
}

fn trust(
    local: &Local,
    file: &Path,
    owner: Option<String>,
    accept_partial: bool,
    output: &mut Output,
) -> Result<(), Failure> {
    let mut entry = read_file(file)?;
    let fingerprint = entry.key.fingerprint().clone();
    let own = local.key()?;
    let mine = fingerprint == *own.public().fingerprint();
    let owner = match owner.or(entry.owner) {
        Some(name) if mine || name != trust::OWN => name,
        None if mine => trust::OWN.to_owned(),
        // Only the user's own key gets the user's name, whatever its file says.
        Some(_) | None => DEFAULT_OWNER.to_owned(),
    };
    entry.owner = Some(owner.clone());
    let before = trust::entry(&local.user, &fingerprint);
    if accept_partial || before.is_some_and(|before| before.partial == PartialCoverage::Accepted) {
        entry.partial = PartialCoverage::Accepted;
    }
    let path = trust::enter(&local.user, &entry, &own, local.now)?;
    let is_partial = entry.partial == PartialCoverage::Accepted;
    match output.format() {
        Format::Json => output.json(&json!({
            "fingerprint": fingerprint,
            "owner": owner,
            "path": path,
            "accept_partial": is_partial,
        })),
        Format::Text => {
            let standing = validity(entry.revoked_at, entry.not_after, local.now);
            let also = if is_partial {
                "; its signatures count also where they leave out parts of a file"
            } else {
                ""
            };
            output.line(&format!("{standing} {fingerprint} ({owner}){also}"))
        }
    }
}

fn untrust(local: &Local, fingerprint: &str, output: &mut Output) -> Result<(), Failure> {
    let fingerprint: Fingerprint = fingerprint.parse()?;
    let path = trust::untrust(&local.spaces, &fingerprint)?;
    match output.format() {
        Format::Json => output.json(&json!({"fingerprint": fingerprint, "path": path})),
        Format::Text => output.line(&format!("{fingerprint} is trusted no more")),
    }
}
