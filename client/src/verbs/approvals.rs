//! Questions of runs to people: listing and answering them.

use rye_client::exit::Exit;
use rye_proto::{convert, v1};

use super::attach;
use super::run::verdicts;
use crate::cli;
use crate::failure::Failure;
use crate::output::Format;
use crate::render;
use crate::session::Session;

pub(super) async fn list(asked: &cli::Approvals, session: &mut Session) -> Result<Exit, Failure> {
    let project = match &session.global.project {
        Some(_) => Some(session.project()?.display().to_string()),
        None => None,
    };
    let request = v1::ApprovalsRequest {
        run_id: asked
            .run
            .as_ref()
            .map(ToString::to_string)
            .unwrap_or_default(),
        project: project.unwrap_or_default(),
        ..v1::ApprovalsRequest::default()
    };
    let open = session.client().await?.approvals(request).await?;
    let output = &mut session.output;
    match output.format() {
        Format::Json => output.json(&open)?,
        Format::Text => {
            let rows: Vec<[String; 5]> = open
                .into_iter()
                .map(|asked| {
                    let until = asked.expires_at.as_ref().map(convert::timestamp);
                    let until = until.map(|at| at.to_string()).unwrap_or_default();
                    [asked.run_id, asked.id, asked.node, until, asked.message]
                })
                .collect();
            let heads = ["RUN", "ID", "NODE", "UNTIL", "MESSAGE"];
            output.line(&render::table(heads, &rows))?;
        }
    }
    Ok(Exit::Done)
}

pub(super) async fn approve(given: cli::Approve, session: &mut Session) -> Result<Exit, Failure> {
    let answer = match given.answer {
        Some(source) => source.json("--answer")?.to_string(),
        None => String::new(),
    };
    let request = v1::AnswerRequest {
        run_id: given.run.to_string(),
        approval_id: given.id.unwrap_or_default(),
        approved: true,
        answer_json: answer,
        comment: given.comment.unwrap_or_default(),
        answers: verdicts(given.answers)?,
    };
    answer_it(&given.run, request, session).await
}

pub(super) async fn deny(given: cli::Deny, session: &mut Session) -> Result<Exit, Failure> {
    let request = v1::AnswerRequest {
        run_id: given.run.to_string(),
        approval_id: given.id.unwrap_or_default(),
        approved: false,
        answer_json: String::new(),
        comment: given.comment.unwrap_or_default(),
        answers: Vec::new(),
    };
    answer_it(&given.run, request, session).await
}

async fn answer_it(
    run: &cli::RunName,
    request: v1::AnswerRequest,
    session: &mut Session,
) -> Result<Exit, Failure> {
    let approved = request.approved;
    let client = session.client().await?;
    let record = client.answer_approval(request).await?;
    let output = &mut session.output;
    match output.format() {
        Format::Json => output.json(&record)?,
        Format::Text => {
            let word = if approved { "approved" } else { "denied" };
            if let Some(why) = &record.suspend {
                let why = render::suspension(why);
                output.note(&format!("{word}; {run} is suspended: {why}"));
                attach::note_next_commands(&client, &record, output).await?;
            } else {
                output.note(&format!("{word}: {run} continues"));
                output.hint(&format!("ryectl attach {run}"));
            }
        }
    }
    Ok(Exit::Done)
}
