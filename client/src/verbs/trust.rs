//! `trust DIR` and `untrust DIR`: projects whose directory others can change.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use rye_client::Error;
use rye_client::exit::Exit;
use rye_item::{directories, spaces};
use serde_json::json;

use crate::failure::Failure;
use crate::local_error::LocalError;
use crate::output::Format;
use crate::session::Session;

pub(super) fn trust(named: &Path, session: &mut Session) -> Result<Exit, Failure> {
    let user = user_space(session)?;
    let directory = fs::canonicalize(session.environment.absolute(named)?)
        .and_then(|found| {
            if found.is_dir() {
                Ok(found)
            } else {
                Err(io::ErrorKind::NotADirectory.into())
            }
        })
        .map_err(|error| LocalError::unreadable(&format!("`{}`", named.display()), error))?;
    let directory = project_of(&directory, &user);
    let path = directories::trust(&directory, &user)?;
    print(&directory, &path, "is trusted", session)
}

pub(super) fn untrust(named: &Path, session: &mut Session) -> Result<Exit, Failure> {
    let user = user_space(session)?;
    let absolute = session.environment.absolute(named)?;
    // A directory that is gone is named as it was trusted.
    let directory = fs::canonicalize(&absolute).unwrap_or(absolute);
    let directory = project_of(&directory, &user);
    let path = directories::untrust(&directory, &user)?;
    print(&directory, &path, "is trusted no more", session)
}

fn user_space(session: &Session) -> Result<PathBuf, Failure> {
    let user = session.environment.user_root();
    Ok(user.ok_or(Error::NoUserSpace)?.to_owned())
}

/// Returns the project that contains `directory`, or the directory itself outside any project.
fn project_of(directory: &Path, user: &Path) -> PathBuf {
    spaces::find_project(directory, user).unwrap_or_else(|| directory.to_owned())
}

fn print(
    directory: &Path,
    path: &Path,
    what: &str,
    session: &mut Session,
) -> Result<Exit, Failure> {
    let output = &mut session.output;
    match output.format() {
        Format::Json => output.json(&json!({"directory": directory, "path": path}))?,
        Format::Text => output.line(&format!("{} {what}", directory.display()))?,
    }
    Ok(Exit::Done)
}
