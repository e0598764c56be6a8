//! `init`.

use rye_client::Error;
use rye_client::exit::Exit;
use rye_item::init;
use rye_item::keys::{Found, KeyDir};
use serde_json::json;

use crate::failure::Failure;
use crate::output::Format;
use crate::session::Session;

/// Id of the sample graph.
const SAMPLE: &str = "sample/hello";

pub(super) fn init(session: &mut Session) -> Result<Exit, Failure> {
    let environment = &session.environment;
    let user = environment.user_root().ok_or(Error::NoUserSpace)?;
    // `init` makes a new project here, so parents are not searched.
    let project = match &session.global.project {
        Some(named) => environment.absolute(named)?,
        None => environment.here()?.to_owned(),
    };
    let done = init::init(&project, user, &KeyDir::of_user(user), environment.now)?;
    let new_key = done.key == Found::Created;
    let output = &mut session.output;
    if output.format() == Format::Json {
        output.json(&json!({
            "project": project,
            "written": done.written,
            "kept": done.kept,
            "signed": done.signed.iter().map(|signed| signed.item.to_string()).collect::<Vec<_>>(),
            "fingerprint": done.fingerprint,
            "new_key": new_key,
        }))?;
        return Ok(Exit::Done);
    }
    if new_key {
        output.line(&format!("made your signing key {}", done.fingerprint))?;
    }
    for path in &done.written {
        output.line(&format!("wrote {}", path.display()))?;
    }
    for path in &done.kept {
        output.line(&format!("kept {}, which was there", path.display()))?;
    }
    for signed in &done.signed {
        output.line(&format!("signed {}", signed.item))?;
    }
    output.note(&format!("next: `ryectl run {SAMPLE} -i name=Ada`"));
    Ok(Exit::Done)
}
