//! Checks a transcript file without a daemon.

use std::fs::File;
use std::io::BufReader;
use std::path::Path;

use rye_client::exit::Exit;
use rye_core::error::with_sources;
use rye_core::id::RunId;
use rye_core::seal::{Fingerprint, PublicKey};
use rye_core::transcript::{self, TranscriptFault, Verdict};
use rye_item::keys as node_keys;
use rye_proto::v1;
use serde_json::json;

use super::super::keys;
use super::super::local::Local;
use crate::failure::Failure;
use crate::local_error::LocalError;
use crate::output::{Format, Output};
use crate::session::Session;

/// Checks the file at `path` with the public key in the file `key`, or else with the keys of nodes that the user has.
pub(super) fn verify(
    path: &Path,
    key: Option<&Path>,
    session: &mut Session,
) -> Result<Exit, Failure> {
    let file = File::open(path);
    let file =
        file.map_err(|error| LocalError::unreadable(&format!("`{}`", path.display()), error))?;
    let keys = match key {
        Some(key) => vec![keys::read_file(key)?.key],
        None => known_keys(session)?,
    };
    let verdict = transcript::verify(BufReader::new(file), &keys);
    report(path, &verdict, &mut session.output)
}

/// Returns the keys of the daemon of the state directory. If there are none, returns the trusted keys that are in
/// force.
fn known_keys(session: &Session) -> Result<Vec<PublicKey>, Failure> {
    let state_dir = session.choice().state_dir(&session.environment)?;
    let own = node_keys::public_of_node(&state_dir)?;
    if !own.is_empty() {
        return Ok(own);
    }
    let local = Local::of(session)?;
    let library = local.library();
    let trusted = local.trust().keys();
    let in_force = trusted.iter().filter(|key| library.lapsed(key).is_none());
    Ok(in_force.map(|key| key.key.clone()).collect())
}

fn report(path: &Path, verdict: &Verdict, output: &mut Output) -> Result<Exit, Failure> {
    let path = path.display();
    let Verdict {
        run,
        events,
        checkpoints,
        bytes,
        signers,
        fault,
    } = verdict;
    let problem = fault.as_ref().map(|fault| with_sources(fault));
    if output.format() == Format::Json {
        output.json_line(&json!({
            "run_id": run,
            "signers": signers,
            "verdict": v1::TranscriptVerdict {
                problem: problem.clone().unwrap_or_default(),
                events: *events,
                checkpoints: *checkpoints,
                bytes: *bytes,
            },
        }))?;
    } else if problem.is_none() {
        let run = run.as_ref().map(RunId::as_str).unwrap_or_default();
        let signers: Vec<&str> = signers.iter().map(Fingerprint::as_str).collect();
        let signers = signers.join(" and ");
        output.line(&format!(
            "`{path}` is the whole transcript of {run}, as it was written: {events} events, {checkpoints} checkpoints signed by {signers}"
        ))?;
    }
    let Some(problem) = problem else {
        return Ok(Exit::Done);
    };
    output.error(&format!(
        "`{path}`: {problem}; signatures prove its first {bytes} bytes"
    ));
    if matches!(fault, Some(TranscriptFault::UnknownKey { .. })) {
        output.hint("name the public key of the daemon that wrote it: --key PEM");
    }
    Ok(Exit::Failed)
}
