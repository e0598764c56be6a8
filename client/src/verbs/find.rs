//! Finding the runs that somebody names by the beginning of their ids, or by how long ago they were.
//!
//! A verb that only looks finds them anywhere, `@last` in this project if there is one. One that acts finds those of this project and no
//! other: a whole id means the same everywhere, and these names do not.

use rye_proto::v1;

use super::Session;
use crate::cli::{RunName, Verb};
use crate::failure::Failure;
use crate::project;

/// Runs that are asked for at once.
const PAGE: u32 = 1000;
/// Most runs that an ambiguous beginning is told to mean.
const SHOWN: usize = 5;

/// Puts ids in the place of other names of runs in `verb`.
pub(super) async fn runs(verb: &mut Verb, session: &mut Session) -> Result<(), Failure> {
    let acts = verb.acts();
    for name in verb.runs() {
        if name.is_whole() {
            continue;
        }
        let here = session.project().display().to_string();
        let found = match (name.ago(), acts) {
            (Some(ago), true) => newest(name, ago, here, session).await?,
            (Some(ago), false) => {
                let found = project::find(session.global.project.as_deref(), &session.environment);
                let found = found.map(|found| found.display().to_string());
                newest(name, ago, found.unwrap_or_default(), session).await?
            }
            (None, true) => beginning(name, here, session).await?,
            (None, false) => beginning(name, String::new(), session).await?,
        };
        *name = RunName::of(found);
    }
    Ok(())
}

/// The run that somebody started `ago` runs before the newest one: in `project`, or anywhere if that is empty.
async fn newest(
    name: &RunName,
    ago: usize,
    project: String,
    session: &mut Session,
) -> Result<String, Failure> {
    let mut request = v1::ListRequest {
        project,
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

/// The one run whose id begins so: in `project`, or anywhere if that is empty.
async fn beginning(
    name: &RunName,
    project: String,
    session: &mut Session,
) -> Result<String, Failure> {
    let mut request = v1::ListRequest {
        project,
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
        // The daemon, which knows whole ids only, says that there is no such run.
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
