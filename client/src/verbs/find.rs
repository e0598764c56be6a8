//! Resolves items named by file, and runs named by the beginning of their id or by recency (`@last`).
//!
//! A verb that only reads finds items and runs anywhere; `@last` is of this project, if there is one. A verb that acts
//! finds only those of this project, because these names, unlike whole ids, mean different runs in different places.

use rye_core::id::ItemRef;
use rye_proto::v1;

use super::local::{self, Local};
use crate::cli::{ItemName, RunName, Verb};
use crate::failure::Failure;
use crate::local_error::LocalError;
use crate::session::Session;

/// Runs per page of a request.
const PAGE: u32 = 1000;
/// Most ids that an ambiguous beginning lists.
const SHOWN: usize = 5;

/// Replaces paths of items in `verb` by ids.
pub(super) fn items(verb: &mut Verb, session: &Session) -> Result<(), Failure> {
    if let Verb::Execute(execute) = verb {
        let kind = execute.kind;
        let asked = execute.item.of_kind(kind);
        asked.map_err(LocalError::usage)?;
    }
    for name in verb.items() {
        if let Some(item) = of_path(name, session)? {
            let found = name.found(&item);
            found.map_err(LocalError::usage)?;
        }
    }
    Ok(())
}

/// Returns the item that `name` refers to, if it is a path.
fn of_path(name: &ItemName, session: &Session) -> Result<Option<ItemRef>, Failure> {
    if name.has_type() {
        return Ok(None);
    }
    let path = match session.environment.absolute(name.as_str().as_ref()) {
        Ok(path) => path,
        // A directory that is gone has no files.
        Err(_) if !name.is_path() => return Ok(None),
        Err(gone) => return Err(gone.into()),
    };
    if !name.is_path() && !path.is_file() {
        return Ok(None);
    }
    let local = Local::of(session)?;
    if !path.is_file() {
        // A name that cannot be a file of an item is a misspelled id.
        return match name.item() {
            Err(no_id) if !name.is_below_a_space() => Err(no_id.into()),
            Ok(_) | Err(_) => Err(local::no_file(name.as_str()).into()),
        };
    }
    let place = match local.spaces.locate(&path) {
        Ok(place) => place,
        // A name that only resembles a path may still be an id.
        Err(_) if !name.is_path() => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    let root = local.spaces.root(place.space);
    let root = root.and_then(|root| std::fs::canonicalize(root).ok());
    if root.as_ref() != std::fs::canonicalize(&place.root).ok().as_ref() {
        let project = place.root.display();
        let message = format!("`{}` is an item of the project `{project}`", path.display());
        let other = LocalError::usage(message);
        return Err(other
            .with_hint(format!("name its project: --project {project}"))
            .into());
    }
    Ok(Some(place.item))
}

/// Replaces the other names of runs in `verb` by ids.
pub(super) async fn runs(verb: &mut Verb, session: &mut Session) -> Result<(), Failure> {
    let acts = verb.acts();
    for name in verb.runs() {
        if name.is_whole() {
            continue;
        }
        let here = session.project()?.display().to_string();
        let found = match (name.ago(), acts) {
            (Some(ago), true) => newest(name, ago, here, session).await?,
            (Some(ago), false) => {
                let found = session.found_project()?;
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

/// Returns the run that a user started `ago` runs before the newest, in `project` or, if that is empty, anywhere.
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
            return Err(no_such_run(name, &request.project).into());
        }
        left -= ids.len();
        request.page_token = page.next_page_token;
    }
}

/// Returns the only run whose id begins with `name`, in `project` or, if that is empty, anywhere.
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
        // One id may begin another: the id of a single step has a suffix.
        if let Some(whole) = found.iter().find(|id| *id == name.as_str()) {
            return Ok(whole.clone());
        }
        if page.next_page_token.is_empty() {
            break;
        }
        request.page_token = page.next_page_token;
    }
    match found.as_slice() {
        // The daemon knows only whole ids and reports that there is no such run.
        [] => Ok(name.to_string()),
        [one] => Ok(one.clone()),
        several => {
            let some: Vec<&str> = several.iter().take(SHOWN).map(String::as_str).collect();
            Err(LocalError::usage(format!(
                "`{name}` begins the ids of {} runs: {}; give more of it",
                several.len(),
                some.join(", ")
            ))
            .into())
        }
    }
}

fn no_such_run(name: &RunName, project: &str) -> LocalError {
    if project.is_empty() {
        return LocalError::not_found(format!("there is no run `{name}`"));
    }
    let message = format!("there is no run `{name}` of the project `{project}`");
    LocalError::not_found(message)
        .with_hint("of another project: name it by its whole id, or the project by --project")
}
