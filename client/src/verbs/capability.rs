//! `get --capabilities` and `can`: the permissions of a run by its layers.

use rye_client::exit::Exit;
use rye_core::capability::{self, Layer};

use crate::cli;
use crate::failure::Failure;
use crate::output::Format;
use crate::render::capability::{self as render, Answer};
use crate::session::Session;

pub(super) async fn show(run: &cli::RunName, session: &mut Session) -> Result<Exit, Failure> {
    let run = session.client().await?.get(run.as_str()).await?;
    let layers: Vec<Layer> = run.layers.iter().map(Layer::from).collect();
    let output = &mut session.output;
    match output.format() {
        Format::Json => output.json(&layers)?,
        Format::Text => output.line(&render::layers(&layers))?,
    }
    Ok(Exit::Done)
}

pub(super) async fn can(can: &cli::Can, session: &mut Session) -> Result<Exit, Failure> {
    let client = session.client().await?;
    let run = client.get(can.run.as_str()).await?;
    let asked = vec![can.action.to_string()];
    let risk = match client.risks(&run.project, asked).await {
        Ok(told) => told.risks.into_iter().next(),
        // The layers decide without the risk.
        Err(error) => {
            session.output.warning(&error.to_string());
            None
        }
    };
    let layers: Vec<Layer> = run.layers.iter().map(Layer::from).collect();
    let checked = capability::check(&layers, &can.action);
    let answer = Answer {
        run_id: &run.run_id,
        action: can.action.to_string(),
        allowed: checked.is_ok(),
        refused_by: checked.err().flatten(),
        risk,
    };
    let output = &mut session.output;
    match output.format() {
        Format::Json => output.json(&answer)?,
        Format::Text => output.line(&render::answer(&answer))?,
    }
    Ok(if answer.allowed {
        Exit::Done
    } else {
        Exit::Refused
    })
}
