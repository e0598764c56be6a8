//! Finding the runs that somebody names by the beginning of their ids, or by how long ago they were.

use rye_proto::v1;

use super::Session;
use crate::cli::RunName;
use crate::failure::Failure;
use crate::project;

/// Runs that are asked for at once.
const PAGE: u32 = 1000;
/// Most runs that an ambiguous beginning is told to mean.
const SHOWN: usize = 5;

/// Puts ids in the place of other names of runs.
pub(super) async fn runs(names: Vec<&mut RunName>, session: &mut Session) -> Result<(), Failure> {
    for name in names {
        if name.is_whole() {
            continue;
        }
        let found = match name.ago() {
            Some(ago) => newest(name, ago, session).await?,
            None => beginning(name, session).await?,
        };
        *name = RunName::of(found);
    }
    Ok(())
}

/// The run that somebody started `ago` runs before the newest one: in this project, or anywhere if there is none here.
async fn newest(name: &RunName, ago: usize, session: &mut Session) -> Result<String, Failure> {
    let here = project::find(session.global.project.as_deref(), &session.environment);
    let mut request = v1::ListRequest {
        project: here
            .map(|here| here.display().to_string())
            .unwrap_or_default(),
        page_size: PAGE,
        ..v1::ListRequest::default()
    };
    let client = session.client().await?;
    let mut left = ago;
    loop {
        let page = client.list(request.clone()).await?;
        let started = page.runs.into_iter().filter(|run| run.parent_id.is_empty());
        let mut ids: Vec<String> = started.map(|run| run.run_id).collect();
        if left < ids.len() {
            return Ok(ids.swap_remove(left));
        }
        if page.next_page_token.is_empty() {
            return Err(Failure::NoSuchRun {
                name: name.to_string(),
                project: request.project,
            });
        }
        left -= ids.len();
        request.page_token = page.next_page_token;
    }
}

/// The one run whose id begins so.
async fn beginning(name: &RunName, session: &mut Session) -> Result<String, Failure> {
    let mut request = v1::ListRequest {
        page_size: PAGE,
        ..v1::ListRequest::default()
    };
    let client = session.client().await?;
    let mut found: Vec<String> = Vec::new();
    loop {
        let page = client.list(request.clone()).await?;
        let ids = page.runs.into_iter().map(|run| run.run_id);
        found.extend(ids.filter(|id| id.starts_with(name.as_str())));
        // An id may begin another: that of a single step is one with a word more.
        if let Some(whole) = found.iter().find(|id| *id == name.as_str()) {
            return Ok(whole.clone());
        }
        if page.next_page_token.is_empty() {
            break;
        }
        request.page_token = page.next_page_token;
    }
    match found.as_slice() {
        // The daemon says that there is no such run.
        [] => Ok(name.to_string()),
        [one] => Ok(one.clone()),
        several => Err(Failure::SeveralRuns {
            name: name.to_string(),
            count: several.len(),
            some: several
                .iter()
                .take(SHOWN)
                .cloned()
                .collect::<Vec<_>>()
                .join(", "),
        }),
    }
}
