//! `run`, `graph run` and `thread run`, and `resume`.

use std::collections::HashSet;

use rye_client::exit::Exit;
use rye_core::model::Durability;
use rye_proto::{convert, v1};

use super::attach;
use crate::cli::{self, Limit};
use crate::failure::Failure;
use crate::input;
use crate::local_error::LocalError;
use crate::session::Session;

pub(super) async fn run(run: cli::Run, session: &mut Session) -> Result<Exit, Failure> {
    let how = run.attach;
    let old = run.resume.clone();
    let request = request(run, session)?;
    let client = session.client().await?;
    let output = &mut session.output;
    let started = client.start(request).await?;
    for warning in &started.warnings {
        output.warning(warning);
    }
    if started.existed {
        output.note(&format!(
            "the run {} was started before with this key",
            started.run_id
        ));
    }
    if let Some(old) = old {
        attach::note_continuation(&old, &started.run_id, output);
    }
    attach::stay(&client, &started.run_id, &started.cursor, how, output).await
}

fn request(run: cli::Run, session: &Session) -> Result<v1::StartRequest, Failure> {
    let given = run.given;
    let asked = given.asked;
    let inputs = input::inputs(asked.input, asked.inputs)?;
    // Without the option, the graph and the daemon decide.
    let durability = given
        .durability
        .map_or_else(v1::Durability::default, |how| Durability::from(how).into());
    Ok(v1::StartRequest {
        item: Some((&run.item.item()?).into()),
        project: session.project()?.display().to_string(),
        inputs_json: inputs.json,
        text_inputs: inputs.text,
        has_capabilities: !asked.capabilities.is_empty(),
        capabilities: asked.capabilities,
        limits: Some(limits(asked.limits)),
        durability: durability.into(),
        idempotency_key: given.idempotency_key.unwrap_or_default(),
        resume_run_id: run
            .resume
            .as_ref()
            .map(cli::RunName::to_string)
            .unwrap_or_default(),
        model: asked.model.unwrap_or_default(),
        provider: asked.provider.unwrap_or_default(),
    })
}

/// Converts limits to the contract. Of two limits of one kind the later one counts.
pub(super) fn limits(asked: Vec<Limit>) -> v1::Limits {
    let mut limits = v1::Limits::default();
    for limit in asked {
        match limit {
            Limit::Steps(steps) => limits.steps = Some(steps),
            Limit::Depth(depth) => limits.depth = Some(depth),
            Limit::Spawns(spawns) => limits.spawns = Some(spawns),
            Limit::Spend(spend) => limits.spend = Some(spend.to_string()),
            Limit::Turns(turns) => limits.turns = Some(turns),
            Limit::Tokens(tokens) => limits.tokens = Some(tokens),
            Limit::Duration(time) => limits.duration_ms = Some(convert::milliseconds(time)),
        }
    }
    limits
}

/// Converts verdicts on attempts to the contract. Two verdicts on one attempt are refused.
pub(super) fn verdicts(answers: Vec<cli::Answer>) -> Result<Vec<v1::UncertainAnswer>, Failure> {
    let mut seen = HashSet::new();
    if let Some(twice) = answers.iter().find(|answer| !seen.insert(&answer.item)) {
        return Err(LocalError::usage(format!(
            "what became of `{}` is said twice with --uncertain",
            twice.item
        ))
        .into());
    }
    let answers = answers.into_iter().map(|answer| v1::UncertainAnswer {
        item: answer.item,
        verdict: v1::Verdict::from(answer.verdict).into(),
    });
    Ok(answers.collect())
}

pub(super) async fn resume(resume: cli::Resume, session: &mut Session) -> Result<Exit, Failure> {
    let raise = limits(resume.raises);
    let answers = verdicts(resume.answers)?;
    let result = resume.result.map(|result| result.json("--result"));
    let result = result.transpose()?;
    let result_json = result.map(|result| result.to_string()).unwrap_or_default();
    let request = v1::ResumeRequest {
        run_id: resume.run.to_string(),
        raise: Some(raise),
        answers,
        reason: resume.reason.unwrap_or_default(),
        result_json,
        message: resume.message.unwrap_or_default(),
        same_text: resume.same_text,
        failed: resume.failed,
    };
    let client = session.client().await?;
    let output = &mut session.output;
    let (run, cursor) = client.resume(request).await?;
    attach::note_continuation(&resume.run, &run.run_id, output);
    attach::stay(&client, &run.run_id, &cursor, resume.attach, output).await
}

pub(super) async fn watch(watch: &cli::Watch, session: &mut Session) -> Result<Exit, Failure> {
    let client = session.client().await?;
    let output = &mut session.output;
    let run = watch.run.as_str();
    Box::pin(attach::watch_run(&client, run, "", watch.staying, output)).await
}
