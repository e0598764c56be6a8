//! `models` and `thread show`.

use rye_client::exit::Exit;
use rye_client::json::models::{Models, Preview};
use rye_client::wire;
use rye_proto::v1;

use super::run;
use crate::cli;
use crate::failure::Failure;
use crate::input;
use crate::output::Format;
use crate::render;
use crate::session::Session;

pub(super) async fn list(session: &mut Session) -> Result<Exit, Failure> {
    let project = session.project()?.display().to_string();
    let answer = session.client().await?.models(&project).await?;
    let models = Models::from(answer);
    let output = &mut session.output;
    match output.format() {
        Format::Json => output.json(&models)?,
        Format::Text => {
            output.line(&render::models::models(&models))?;
            for provider in &models.providers {
                if let Some(lacks) = &provider.lacks {
                    output.note(&format!("{} needs {lacks}", provider.name));
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
        item: Some(wire::item_ref(&item)),
        project: session.project()?.display().to_string(),
        inputs_json: inputs.json,
        text_inputs: inputs.text,
        has_capabilities: !asked.capabilities.is_empty(),
        capabilities: asked.capabilities,
        limits: Some(run::limits(asked.limits)),
        model: asked.model.unwrap_or_default(),
        provider: asked.provider.unwrap_or_default(),
    };
    let answer = session.client().await?.preview(request).await?;
    let preview = Preview::new(item.id.to_string(), answer)?;
    let output = &mut session.output;
    for warning in &preview.warnings {
        output.warning(warning);
    }
    match output.format() {
        Format::Json => output.json(&preview)?,
        Format::Text => output.line(&render::models::preview(&preview))?,
    }
    Ok(Exit::Done)
}
