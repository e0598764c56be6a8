//! Verbs that show runs, wait for them, or end them.

use std::time::Duration;

use rye_client::exit::Exit;
use rye_client::tree::Tree;
use rye_core::model::Status;
use rye_proto::{convert, v1};
use serde_json::json;

use super::attach;
use crate::cli;
use crate::failure::Failure;
use crate::output::{Format, Output};
use crate::render;
use crate::session::Session;

/// Default number of runs in a table.
const TABLE: usize = 20;
/// Runs per page of a request.
const PAGE: u32 = 1000;
/// Wait after which the user is notified of the cause.
const SOON: Duration = Duration::from_millis(300);
/// Heads of columns of durations. They are padded to the usual width, so that later columns do not move with the
/// values.
const TOOK: &str = "TOOK  ";

pub(super) async fn ps(ps: &cli::Ps, session: &mut Session) -> Result<Exit, Failure> {
    let statuses: Vec<Status> = match (ps.all, ps.statuses.as_slice()) {
        (true, []) => Vec::new(),
        (false, []) => Status::ALL
            .into_iter()
            .filter(|status| !status.is_terminal())
            .collect(),
        (_, named) => named.to_vec(),
    };
    let is_table = session.output.format() == Format::Text && !ps.quiet;
    let usual = if is_table && !ps.tree { TABLE } else { 0 };
    let most = match ps.count.unwrap_or(usual) {
        0 => usize::MAX,
        most => most,
    };
    let (runs, is_cut) = listed(ps, &statuses, most, session).await?;
    if ps.quiet {
        for run in &runs {
            session.output.line(&run.run_id)?;
        }
    } else if ps.tree {
        print_tree(runs, session)?;
    } else {
        print_runs(&runs, session)?;
    }
    if is_cut && ps.count.is_none() {
        let note = format!("these are the newest {TABLE}; `-n 0` shows all");
        session.output.note(&note);
    }
    Ok(Exit::Done)
}

/// Returns at most `most` of the selected runs, of the project if there is one here, and whether there are more.
async fn listed(
    ps: &cli::Ps,
    statuses: &[Status],
    most: usize,
    session: &mut Session,
) -> Result<(Vec<v1::Run>, bool), Failure> {
    let here = session.found_project()?;
    let statuses = statuses
        .iter()
        .map(|status| v1::RunStatus::from(*status).into());
    let mut request = v1::ListRequest {
        statuses: statuses.collect(),
        project: here
            .map(|here| here.display().to_string())
            .unwrap_or_default(),
        page_size: PAGE,
        ..v1::ListRequest::default()
    };
    let now = session.environment.now;
    let is_wanted = |run: &v1::Run| {
        let reason = run.suspend.as_ref().map(|why| why.reason.as_str());
        let since = run.started_at.as_ref().or(run.created_at.as_ref());
        let age = since.map(|since| now.ms_since(convert::timestamp(since)));
        let item = run.item.as_ref().map(|item| item.id.as_str());
        ps.reason
            .as_deref()
            .is_none_or(|wanted| reason == Some(wanted))
            && ps
                .item
                .as_ref()
                .is_none_or(|glob| item.is_some_and(|id| glob.is_match(id)))
            && ps
                .since
                .is_none_or(|most| age.is_some_and(|age| Duration::from_millis(age) <= most))
    };
    let client = session.client().await?;
    let mut runs = Vec::new();
    loop {
        let page = client.list(request.clone()).await?;
        runs.extend(page.runs.into_iter().filter(is_wanted));
        if runs.len() > most || page.next_page_token.is_empty() {
            let is_cut = runs.len() > most;
            runs.truncate(most);
            return Ok((runs, is_cut));
        }
        request.page_token = page.next_page_token;
    }
}

pub(super) async fn tree(run: &cli::RunName, session: &mut Session) -> Result<Exit, Failure> {
    let client = session.client().await?;
    let mut runs = vec![client.get(run.as_str()).await?];
    runs.extend(client.below(run.as_str()).await?);
    // The tree begins here, so ancestors are not shown.
    runs[0].parent_id.clear();
    print_tree(runs, session)?;
    Ok(Exit::Done)
}

pub(super) async fn chain(run: &cli::RunName, session: &mut Session) -> Result<Exit, Failure> {
    let runs = session.client().await?.chain(run.as_str()).await?;
    print_runs(&runs, session)?;
    Ok(Exit::Done)
}

/// Prints runs as a table or a JSON list.
fn print_runs(runs: &[v1::Run], session: &mut Session) -> Result<(), Failure> {
    if session.output.format() == Format::Json {
        return session.output.json(&runs);
    }
    let lines: Vec<_> = runs.iter().map(|run| (0, run)).collect();
    print_lines(&lines, session)
}

/// Prints runs below their parents, as an indented table or nested JSON.
fn print_tree(runs: Vec<v1::Run>, session: &mut Session) -> Result<(), Failure> {
    let trees = Tree::of_runs(runs);
    if session.output.format() == Format::Json {
        return session.output.json(&trees);
    }
    print_lines(&Tree::lines(&trees), session)
}

/// Prints a table of runs, each with its depth.
fn print_lines(lines: &[(usize, &v1::Run)], session: &mut Session) -> Result<(), Failure> {
    let now = session.environment.now;
    let project = lines.first().map(|(_, first)| &first.project);
    let is_one = lines.iter().all(|(_, run)| Some(&run.project) == project);
    let rows = lines.iter().map(|(level, run)| {
        let began = run.started_at.as_ref().or(run.created_at.as_ref());
        let age = began.map(|began| render::age(now.ms_since(convert::timestamp(began))));
        Ok::<_, Failure>([
            format!("{}{}", "  ".repeat(*level), run.run_id),
            render::status(run)?.to_owned(),
            render::why(run)?,
            run.steps.to_string(),
            age.unwrap_or_default(),
            render::ran(run).map(render::elapsed).unwrap_or_default(),
            run.item_id().to_owned(),
            run.parent_attempt.clone(),
            if is_one {
                String::new()
            } else {
                run.project.clone()
            },
        ])
    });
    let rows = rows.collect::<Result<Vec<[String; 9]>, _>>()?;
    let heads = [
        "RUN", "STATUS", "WHY", "STEPS", "AGE", TOOK, "ITEM", "FOR", "PROJECT",
    ];
    let width = session.output.width();
    session
        .output
        .line(&render::table_within(heads, &rows, width))
}

pub(super) async fn get(run: &cli::RunName, session: &mut Session) -> Result<Exit, Failure> {
    let client = session.client().await?;
    let record = client.get(run.as_str()).await?;
    let now = session.environment.now;
    let output = &mut session.output;
    match output.format() {
        Format::Json => output.json(&record)?,
        Format::Text => {
            output.line(&render::run(&record, now, output.style())?)?;
            attach::note_next_commands(&client, &record, output).await?;
        }
    }
    Ok(Exit::Done)
}

pub(super) async fn state(run: &cli::RunName, session: &mut Session) -> Result<Exit, Failure> {
    let text = session.client().await?.state(run.as_str()).await?;
    let state = convert::document("state", &text)?.unwrap_or_else(|| json!({}));
    session.output.json(&state)?;
    Ok(Exit::Done)
}

pub(super) async fn wait(wait: &cli::Wait, session: &mut Session) -> Result<Exit, Failure> {
    let ids: Vec<String> = wait.runs.runs.iter().map(cli::RunName::to_string).collect();
    let timeout = wait.timeout.filter(|timeout| !timeout.is_zero());
    let client = session
        .client()
        .await?
        .with_outage_notifier(session.output.outage_notifier());
    let answer = client.wait(&ids, timeout).await?;
    print_runs(&answer.runs, session)?;
    if answer.timed_out {
        return Ok(Exit::TimedOut);
    }
    let statuses = answer
        .runs
        .iter()
        .map(v1::Run::core_status)
        .collect::<Result<Vec<_>, _>>()?;
    Ok(Exit::of_runs(statuses))
}

pub(super) async fn cancel(runs: &[cli::RunName], session: &mut Session) -> Result<Exit, Failure> {
    let client = session.client().await?;
    let output = &mut session.output;
    let mut exit = Exit::Done;
    for run in runs {
        let ended = match client.cancel(run.as_str(), "").await {
            Ok(record) if output.format() == Format::Json => output.json_line(&record),
            Ok(record) => output.line(&render::cancelling(&record)?),
            Err(error) => Err(error.into()),
        };
        exit = output.part(exit, ended);
    }
    Ok(exit)
}

pub(super) async fn suspend(run: &cli::RunName, session: &mut Session) -> Result<Exit, Failure> {
    let client = session.client().await?;
    let output = &mut session.output;
    let asked = client.suspend(run.as_str());
    tokio::pin!(asked);
    let record = tokio::select! {
        record = &mut asked => record?,
        () = tokio::time::sleep(SOON) => {
            // The wait may be over by now.
            if let Ok(steps) = client.steps(run.as_str()).await
                && let Some(step) = steps.into_iter().rfind(|step| step.status == "running")
            {
                output.note(&format!("waiting for {} to end; `ryectl kill {run}` would not", render::step_at_hand(&step)));
            } else {
                output.note(&format!("waiting for what it is at to end; `ryectl kill {run}` would not"));
            }
            asked.await?
        }
    };
    let status = record.core_status()?;
    match (&record.suspend, output.format()) {
        (_, Format::Json) => output.json(&record)?,
        (Some(why), Format::Text) => {
            output.line(&format!("{run} is suspended: {}", render::suspension(why)))?;
            attach::note_next_commands(&client, &record, output).await?;
        }
        (None, Format::Text) if status.is_terminal() => {
            output.error(&format!("{run} has ended: {status}"));
        }
        (None, Format::Text) => output.error(&format!(
            "{run} was suspended and has been resumed since: {status}"
        )),
    }
    Ok(match record.suspend {
        Some(_) => Exit::Done,
        None => Exit::Precondition,
    })
}

pub(super) async fn say(say: &cli::Say, session: &mut Session) -> Result<Exit, Failure> {
    let (client, run) = (session.client().await?, &say.run);
    let record = client.say(run.as_str(), &say.text).await?;
    let output = &mut session.output;
    match (&record.suspend, output.format()) {
        (_, Format::Json) => output.json(&record)?,
        (Some(why), Format::Text) => {
            let why = render::suspension(why);
            output.line(&format!(
                "{run} gets the message when it is resumed; it is suspended: {why}"
            ))?;
            attach::note_next_commands(&client, &record, output).await?;
        }
        (None, Format::Text) => {
            output.line(&format!(
                "{run} gets the message before its model is called again"
            ))?;
        }
    }
    Ok(Exit::Done)
}

pub(super) async fn kill(kill: &cli::Kill, session: &mut Session) -> Result<Exit, Failure> {
    let client = session.client().await?;
    let output = &mut session.output;
    let mut exit = Exit::Done;
    for run in &kill.runs.runs {
        let ended = match client.kill(run.as_str(), kill.grace, kill.tree).await {
            Ok((_, receipt)) => print_receipt(&receipt, output),
            Err(error) => Err(error.into()),
        };
        exit = output.part(exit, ended);
    }
    Ok(exit)
}

fn print_receipt(receipt: &v1::KillReceipt, output: &mut Output) -> Result<(), Failure> {
    if output.format() == Format::Json {
        return output.json_line(receipt);
    }
    output.line(&killed_lines(receipt, 0).join("\n"))
}

/// Renders what was ended in a run, followed by its descendants, indented.
fn killed_lines(receipt: &v1::KillReceipt, level: usize) -> Vec<String> {
    let indent = "  ".repeat(level);
    let ended = receipt.processes.iter().map(|process| {
        let how = match (process.signal, process.exit) {
            (Some(signal), _) => format!("by signal {signal}"),
            (None, Some(code)) => format!("with exit code {code}"),
            (None, None) => "in an unknown way".to_owned(),
        };
        format!("{indent}  {} ({}) ended {how}", process.pid, process.comm)
    });
    let left = receipt
        .survivors
        .iter()
        .map(|pid| format!("{indent}  {pid} could not be ended"));
    let unknown = (!receipt.complete).then(|| {
        let adopted = receipt.adopted.iter();
        let adopted: Vec<String> = adopted
            .map(|process| format!("{} ({})", process.pid, process.comm))
            .collect();
        let adopted = if adopted.is_empty() {
            String::new()
        } else {
            format!("; these may be: {}", adopted.join(", "))
        };
        format!(
            "{indent}  this host cannot tell whether more is left{adopted}: see `ryectl daemon info`"
        )
    });
    let below = receipt.below.iter();
    std::iter::once(format!("{indent}{} is killed", receipt.run_id))
        .chain(ended)
        .chain(left)
        .chain(unknown)
        .chain(below.flat_map(|below| killed_lines(below, level + 1)))
        .collect()
}
