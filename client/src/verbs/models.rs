//! `models` and `thread show`.

use rye_client::exit::Exit;
use rye_proto::v1;
use serde::Serialize;

use super::run;
use crate::cli;
use crate::failure::Failure;
use crate::input;
use crate::output::Format;
use crate::render;
use crate::session::Session;

/// JSON form of `thread show`.
#[derive(Serialize)]
struct Preview<'a> {
    item_id: &'a str,
    #[serde(flatten)]
    preview: &'a v1::PreviewResponse,
}

pub(super) async fn list(session: &mut Session) -> Result<Exit, Failure> {
    let project = session.project()?.display().to_string();
    let models = session.client().await?.models(&project).await?;
    let output = &mut session.output;
    match output.format() {
        Format::Json => output.json(&models)?,
        Format::Text => {
            output.line(&render::models::models(&models))?;
            for provider in &models.providers {
                if !provider.lacks.is_empty() {
                    output.note(&format!("{} needs {}", provider.name, provider.lacks));
                }
            }
        }
    }
    for warning in &models.warnings {
        output.warning(warning);
    }
    Ok(Exit::Done)
}

pub(super) async fn show(show: cli::ThreadShow, session: &mut Session) -> Result<Exit, Failure> {
    let asked = show.asked;
    let inputs = input::inputs(asked.input, asked.inputs)?;
    let item = show.directive.item.item()?;
    let request = v1::PreviewRequest {
        item: Some((&item).into()),
        project: session.project()?.display().to_string(),
        inputs_json: inputs.json,
        text_inputs: inputs.text,
        has_capabilities: !asked.capabilities.is_empty(),
        capabilities: asked.capabilities,
        limits: Some(run::limits(asked.limits)),
        model: asked.model.unwrap_or_default(),
        provider: asked.provider.unwrap_or_default(),
    };
    let preview = session.client().await?.preview(request).await?;
    let item_id = item.id.as_str();
    let output = &mut session.output;
    for warning in &preview.warnings {
        output.warning(warning);
    }
    match output.format() {
        Format::Json => output.json(&Preview {
            item_id,
            preview: &preview,
        })?,
        Format::Text => output.line(&render::models::preview(item_id, &preview))?,
    }
    Ok(Exit::Done)
}
