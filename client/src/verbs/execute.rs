//! `execute`.

use rye_client::exit::Exit;
use rye_client::{json, wire};
use rye_core::model::{Object, Status};
use rye_proto::v1;
use serde_json::Value;

use super::{Session, attach};
use crate::cli;
use crate::failure::Failure;
use crate::output::Format;

pub(super) async fn execute(execute: cli::Execute, session: &mut Session) -> Result<Exit, Failure> {
    let params_json = match execute.params {
        Some(source) => Value::Object(source.object("--params")?).to_string(),
        None => String::new(),
    };
    let request = v1::ExecuteRequest {
        item: Some(wire::item_ref(&execute.item.item()?)),
        project: session.project().display().to_string(),
        params_json,
        trace: execute.trace || execute.dry_run,
        dry_run: execute.dry_run,
    };
    let client = session.client().await?;
    let answer = client.execute(request).await?;
    let envelope = object("envelope_json", &answer.envelope_json)?;
    let output = &mut session.output;
    match output.format() {
        Format::Json => output.json(&envelope)?,
        Format::Text => {
            for step in envelope
                .get("trace")
                .and_then(Value::as_array)
                .into_iter()
                .flatten()
            {
                output.note(&step.to_string());
            }
            if let Some(data) = envelope.get("data").filter(|data| !data.is_null()) {
                output.json(data)?;
            }
        }
    }
    let text = |key: &str| envelope.get(key).and_then(Value::as_str);
    if text("status") != Some("error") {
        return Ok(if has_suppressed_errors(&envelope, &answer.run_id) {
            Exit::Failed
        } else {
            Exit::Done
        });
    }
    if !answer.run_id.is_empty() {
        let record = json::Run::new(&client.get(&answer.run_id).await?)?;
        if record.suspend.is_some() {
            attach::tell_suspended(&client, &record, output).await?;
            return Ok(Exit::Suspended);
        }
    }
    output.error(text("error").unwrap_or("the item failed and gave no reason"));
    Ok(Exit::Failed)
}

/// Whether `envelope` is that of a graph that handled the errors it met, which is no success to its caller.
fn has_suppressed_errors(envelope: &Object, run_id: &str) -> bool {
    let text = |key: &str| envelope.get("data")?.get(key)?.as_str();
    text("graph_run_id") == Some(run_id)
        && text("status") == Some(Status::CompletedWithErrors.as_str())
}

/// The JSON object in a field of an answer.
pub(super) fn object(field: &str, text: &str) -> Result<Object, Failure> {
    match wire::json(field, text)? {
        Some(Value::Object(object)) => Ok(object),
        Some(
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_),
        )
        | None => Err(Failure::Client(rye_client::Error::Malformed {
            what: format!("no JSON object in `{field}`"),
        })),
    }
}
