//! `graph step`, `graph validate` and `graph show`; `thread validate`.

use rye_client::exit::Exit;
use rye_core::model::Status;
use rye_proto::{convert, v1};
use serde::Serialize;
use serde_json::{Value, json};

use super::attach;
use super::run::verdicts;
use crate::cli::{self, Diagram};
use crate::failure::Failure;
use crate::input;
use crate::output::{Format, Output};
use crate::render;
use crate::session::Session;

pub(super) async fn step(step: cli::Step, session: &mut Session) -> Result<Exit, Failure> {
    let inputs = input::inputs(step.input, step.inputs)?;
    let state = step.state.map(|source| source.object("--state"));
    let state = state.transpose()?.map(Value::Object);
    let request = v1::StepRequest {
        item: Some((&step.item.item()?).into()),
        project: session.project()?.display().to_string(),
        node: step.node,
        inputs_json: inputs.json,
        text_inputs: inputs.text,
        inject_state_json: state.map(|state| state.to_string()).unwrap_or_default(),
        resume_from: step
            .resume_from
            .as_ref()
            .map(cli::RunName::to_string)
            .unwrap_or_default(),
        has_capabilities: !step.capabilities.is_empty(),
        capabilities: step.capabilities,
        answers: verdicts(step.answers)?,
    };
    let client = session.client().await?;
    let answer = client.step(request).await?;
    let output = &mut session.output;
    for warning in &answer.warnings {
        output.warning(warning);
    }
    let result = convert::document("result_json", &answer.result_json)?.unwrap_or(Value::Null);
    let run = answer.run.unwrap_or_default();
    let status = run.core_status()?;
    // A failed node fails its step, even if the graph would continue along an error edge.
    let failed = status.is_terminal() && result["success"] == Value::Bool(false);
    let status = if failed { Status::Error } else { status };
    match output.format() {
        Format::Json => output.json(&result)?,
        Format::Text => {
            let name = |key: &str| result[key].as_str().map(str::to_owned);
            let head = render::fields(&[
                ("run", Some(run.run_id.clone())),
                ("status", Some(output.style().status(status.as_str()))),
                ("node", name("executed_node")),
                (
                    "next",
                    name("next_node").or_else(|| Some("none".to_owned())),
                ),
            ]);
            let lines: Vec<String> = std::iter::once(head).chain(render::body(&run)?).collect();
            output.line(&lines.join("\n"))?;
        }
    }
    if run.suspend.is_some() {
        attach::note_suspension(&client, &run, output).await?;
    }
    match (&run.error, result["error"].as_str()) {
        (Some(error), _) => {
            output.error(&render::failure(error));
            attach::note_process_output(error, output);
        }
        (None, Some(error)) => output.error(error),
        (None, None) => {}
    }
    Ok(Exit::of_run(status))
}

pub(super) async fn validate(
    names: &[cli::ItemName],
    strict: bool,
    session: &mut Session,
) -> Result<Exit, Failure> {
    let mut items = Vec::new();
    for name in names {
        match name.pattern() {
            Some((kind, pattern)) => {
                items.extend(super::items::matching(kind, pattern, session).await?);
            }
            None => items.push(name.item()?),
        }
    }
    let client = session.client().await?;
    let project = session.project()?.display().to_string();
    let is_single = names.len() == 1 && names.iter().all(|name| name.pattern().is_none());
    let mut is_sound = true;
    for item in items {
        let request = v1::ValidateRequest {
            item: Some((&item).into()),
            project: project.clone(),
            strict,
        };
        let report = client.validate(request).await?;
        is_sound &= report.success && (!strict || report.warnings.is_empty());
        let output = &mut session.output;
        match output.format() {
            Format::Json if is_single => output.json(&report)?,
            Format::Json => output.json_line(&Validated {
                item: item.to_string(),
                path: &report.path,
                report: &report,
            })?,
            Format::Text => print_findings(&report, output)?,
        }
    }
    Ok(if is_sound { Exit::Done } else { Exit::Failed })
}

/// Result for one of several graphs in `graph validate --json`.
#[derive(Serialize)]
struct Validated<'a> {
    item: String,
    path: &'a str,
    #[serde(flatten)]
    report: &'a v1::ValidateResponse,
}

/// Prints the findings in a file.
fn print_findings(report: &v1::ValidateResponse, output: &mut Output) -> Result<(), Failure> {
    let path = &report.path;
    for finding in &report.errors {
        output.line(&render::finding(path, finding, ""))?;
    }
    for finding in &report.warnings {
        output.line(&render::finding(path, finding, "warning: "))?;
    }
    let count = |number: usize, what: &str| match number {
        0 => None,
        1 => Some(format!("1 {what}")),
        _ => Some(format!("{number} {what}s")),
    };
    let (errors, warnings) = (report.errors.len(), report.warnings.len());
    let found = [count(errors, "error"), count(warnings, "warning")];
    let found: Vec<String> = found.into_iter().flatten().collect();
    let found = if found.is_empty() {
        "ok".to_owned()
    } else {
        found.join(", ")
    };
    output.note(&format!("{path}: {found}"));
    Ok(())
}

pub(super) async fn show(show: &cli::Show, session: &mut Session) -> Result<Exit, Failure> {
    let (format, word) = match show.format {
        Diagram::Mermaid => (v1::DiagramFormat::Mermaid, "mermaid"),
        Diagram::Dot => (v1::DiagramFormat::Dot, "dot"),
        Diagram::Text => (v1::DiagramFormat::Text, "text"),
    };
    let item = show.item.item()?;
    let request = v1::ShowRequest {
        item: Some((&item).into()),
        project: session.project()?.display().to_string(),
        format: format.into(),
        run_id: show
            .run
            .as_ref()
            .map(cli::RunName::to_string)
            .unwrap_or_default(),
    };
    let text = session.client().await?.show(request).await?;
    let output = &mut session.output;
    match output.format() {
        Format::Json => output.json(&json!({
            "item_id": item.id,
            "run_id": show.run,
            "format": word,
            "text": text,
        }))?,
        Format::Text => output.line(text.trim_end())?,
    }
    Ok(Exit::Done)
}
