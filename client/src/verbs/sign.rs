//! `sign`.

use rye_client::exit::Exit;
use rye_item::sign::{self, Change, Signed};
use serde_json::json;

use super::local::{Local, SystemItems};
use super::{Session, go_on};
use crate::cli::Targets;
use crate::failure::Failure;
use crate::output::Format;

pub(super) fn sign(targets: &Targets, session: &mut Session) -> Result<Exit, Failure> {
    let local = Local::of(session)?;
    let key = local.key()?;
    let output = &mut session.output;
    local.warn_of_untrusted(key.public().fingerprint(), output);
    let mut exit = Exit::Done;
    let mut signed = Vec::new();
    for target in &targets.targets {
        let named = local.target(target, SystemItems::Out);
        let places = named.and_then(|target| Ok(sign::targets(&local.spaces, &target)?));
        let places = match places {
            Ok(places) => places,
            Err(failure) => {
                exit = go_on(exit, Err(failure), output);
                continue;
            }
        };
        for place in places {
            match sign::sign(&local.spaces, &place, &key, local.now) {
                Ok(done) => {
                    if output.format() == Format::Text {
                        output.line(&line(&done))?;
                    }
                    signed.push(done);
                }
                Err(error) => exit = go_on(exit, Err(error.into()), output),
            }
        }
    }
    if output.format() == Format::Json {
        let fingerprint = key.public().fingerprint();
        let signed: Vec<_> = signed
            .iter()
            .map(|done| {
                json!({
                    "path": done.path,
                    "id": done.item.to_string(),
                    "content_hash": done.content_hash,
                    "fingerprint": fingerprint,
                    "changed": done.change == Change::Written,
                    "named": done.named,
                })
            })
            .collect();
        output.json(&signed)?;
    }
    Ok(exit)
}

fn line(done: &Signed) -> String {
    let (item, path) = (&done.item, done.path.display());
    match done.change {
        Change::Written if done.named => {
            let name = item.id.name();
            format!("signed {item} ({path}), with a line that was missing: its name, `{name}`")
        }
        Change::Written => format!("signed {item} ({path})"),
        Change::Current => format!("{item} was signed already ({path})"),
    }
}
