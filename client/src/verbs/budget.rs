//! `budget show`, `budget tree` and `budget raise`.

use rye_client::exit::Exit;
use rye_client::tree::Tree;
use rye_proto::v1;

use crate::cli;
use crate::failure::Failure;
use crate::output::Format;
use crate::render::budget as render;
use crate::session::Session;

pub(super) async fn show(run: &cli::RunName, session: &mut Session) -> Result<Exit, Failure> {
    let path = session.client().await?.budget(run.as_str()).await?;
    let output = &mut session.output;
    match output.format() {
        Format::Json => output.json(&path)?,
        Format::Text => output.line(&render::path(&path)?)?,
    }
    Ok(Exit::Done)
}

pub(super) async fn tree(run: &cli::RunName, session: &mut Session) -> Result<Exit, Failure> {
    let nodes = session.client().await?.budget_tree(run.as_str()).await?;
    let tree = Tree::of_accounts(nodes)?;
    let output = &mut session.output;
    match output.format() {
        Format::Json => output.json(&tree)?,
        Format::Text => output.line(&render::tree(&tree)?)?,
    }
    Ok(Exit::Done)
}

pub(super) async fn raise(
    raise: &cli::RaiseBudget,
    session: &mut Session,
) -> Result<Exit, Failure> {
    let client = session.client().await?;
    let output = &mut session.output;
    // Only the text form shows the former limit.
    let before = match output.format() {
        Format::Json => Vec::new(),
        Format::Text => client.budget(raise.run.as_str()).await?.path,
    };
    let request = v1::RaiseBudgetRequest {
        run_id: raise.run.to_string(),
        spend: raise.spend.to_string(),
        through: raise.through,
    };
    let raised = client.raise_budget(request).await?;
    if output.format() == Format::Json {
        output.json(&raised)?;
        return Ok(Exit::Done);
    }
    for budget in &raised {
        let before = before
            .iter()
            .find(|before| before.account == budget.account);
        output.line(&render::raised(budget, before)?)?;
    }
    Ok(Exit::Done)
}
