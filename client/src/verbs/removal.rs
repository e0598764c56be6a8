//! `rm` and `prune`: removing runs that have ended.

use rye_client::exit::Exit;
use rye_proto::{convert, v1};
use serde_json::json;

use crate::cli;
use crate::failure::Failure;
use crate::output::{Format, Output};
use crate::session::Session;

pub(super) async fn rm(rm: &cli::Rm, session: &mut Session) -> Result<Exit, Failure> {
    let client = session.client().await?;
    let request = v1::RemoveRequest {
        run_ids: rm
            .runs
            .runs
            .iter()
            .map(|run| run.as_str().to_owned())
            .collect(),
        purge: rm.purge,
    };
    let removed = client.remove(request).await?;
    let output = &mut session.output;
    print(&removed.run_ids, output)?;
    note_files(removed.files_remain, output);
    Ok(Exit::Done)
}

pub(super) async fn prune(prune: &cli::Prune, session: &mut Session) -> Result<Exit, Failure> {
    let here = session.found_project()?;
    let selection = &prune.selection;
    let statuses = selection.statuses.iter();
    let statuses = statuses.map(|status| v1::RunStatus::from(*status).into());
    let mut request = v1::PruneRequest {
        older_than_ms: selection.older_than.map(convert::milliseconds),
        keep: selection.keep,
        statuses: statuses.collect(),
        project: here.map_or_else(String::new, |here| here.display().to_string()),
        dry_run: selection.dry_run,
        purge: false,
        page_token: String::new(),
    };
    let client = session.client().await?;
    let output = &mut session.output;
    let mut files_remain = false;
    loop {
        let page = client.prune(request.clone()).await?;
        print(&page.run_ids, output)?;
        files_remain |= page.files_remain;
        request.page_token = page.next_page_token;
        if request.page_token.is_empty() {
            break;
        }
    }
    if prune.purge && !selection.dry_run {
        // Once, after the last page, because each purge rewrites history.
        client
            .remove(v1::RemoveRequest {
                run_ids: Vec::new(),
                purge: true,
            })
            .await?;
    }
    note_files(files_remain, output);
    Ok(Exit::Done)
}

fn print(runs: &[String], output: &mut Output) -> Result<(), Failure> {
    for run in runs {
        match output.format() {
            Format::Json => output.json_line(&json!({"run_id": run}))?,
            Format::Text => output.line(run)?,
        }
    }
    Ok(())
}

fn note_files(remain: bool, output: &mut Output) {
    if remain {
        output.note(
            "some files of these runs in their projects are still there; the daemon removes them",
        );
    }
}
