//! `execute`.

use rye_client::exit::Exit;
use rye_core::model::Status;
use rye_proto::{convert, v1};
use serde_json::Value;

use super::attach;
use crate::cli;
use crate::failure::Failure;
use crate::output::Format;
use crate::session::Session;

pub(super) async fn execute(execute: cli::Execute, session: &mut Session) -> Result<Exit, Failure> {
    let params_json = match execute.params {
        Some(source) => Value::Object(source.object("--params")?).to_string(),
        None => String::new(),
    };
    let request = v1::ExecuteRequest {
        item: Some((&execute.item.item()?).into()),
        project: session.project()?.display().to_string(),
        params_json,
        trace: execute.trace || execute.dry_run,
        idempotency_key: String::new(),
        dry_run: execute.dry_run,
    };
    let client = session.client().await?;
    let answer = client.execute(request).await?;
    let envelope = convert::object("envelope_json", &answer.envelope_json)?;
    let output = &mut session.output;
    let text = |key: &str| envelope.get(key).and_then(Value::as_str);
    let failed = text("status") == Some("error");
    let data = envelope.get("data").filter(|data| !data.is_null());
    let graph = data.and_then(|data| of_graph(data, &answer.run_id));
    match output.format() {
        Format::Json => output.json(&envelope)?,
        Format::Text => {
            let trace = envelope.get("trace").and_then(Value::as_array);
            for step in trace.into_iter().flatten() {
                output.note(&step.to_string());
            }
            if let (false, Some(outcome)) = (failed, graph.or(data)) {
                output.outcome(outcome)?;
            }
        }
    }
    if !failed {
        // A graph that handled its errors is no success for its caller.
        let status = data.and_then(|data| data.get("status")?.as_str());
        let suppressed = graph.is_some() && status == Some(Status::CompletedWithErrors.as_str());
        return Ok(if suppressed { Exit::Failed } else { Exit::Done });
    }
    let record = if answer.run_id.is_empty() || client.is_program() {
        None
    } else {
        Some(client.get(&answer.run_id).await?)
    };
    if let Some(record) = record.as_ref().filter(|record| record.suspend.is_some()) {
        attach::note_suspension(&client, record, output).await?;
        return Ok(Exit::Suspended);
    }
    output.error(text("error").unwrap_or("the item failed and gave no reason"));
    if let Some(error) = record.as_ref().and_then(|record| record.error.as_ref()) {
        attach::note_process_output(error, output);
    }
    Ok(Exit::Failed)
}

/// Returns the outcome of a graph run, if `data` is its result: the output of its return node, or its state.
fn of_graph<'d>(data: &'d Value, run_id: &str) -> Option<&'d Value> {
    let is_result = data.get("graph_run_id")?.as_str() == Some(run_id);
    let output = data.get("output").filter(|_| is_result)?;
    match output.as_object() {
        Some(members) if members.is_empty() => data.get("state"),
        Some(_) | None => Some(output),
    }
}
