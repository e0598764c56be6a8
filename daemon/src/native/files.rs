//! `rye/file-system/…`: files of the project, for graphs and models.
//!
//! **Owns** the six tools `read`, `write`, `edit_lines`, `ls`, `glob` and `grep`. Parameters are read before the project is visited; the
//! work is done there, away from the runtime's workers. **Never** leaves the project ([`place`]), never writes below `.ai/state`, and never
//! leaves half a file: what is written takes the place of what was there as a whole. **Order.** The new contents of a batch are all written
//! beside their places before the first is moved there. **Failure.** What is refused has changed nothing. A call whose run is stopped is
//! given up: a search ends soon, a write that has begun ends by itself.

mod edit;
mod lines;
mod place;
mod read;
mod search;
#[cfg(test)]
mod tests;
mod walk;
mod write;

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rye_core::error::{ErrorKind, Kinded};
use rye_core::model::{Failure, Object};
use serde_json::Value;

use self::place::Workspace;
use super::{Session, read as params_of};
use crate::port::Refusal;
use crate::projects;

/// A tool below `rye/file-system`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileTool {
    /// The lines of a file.
    Read,
    /// Whole files.
    Write,
    /// Some lines of a file.
    EditLines,
    /// What lies in a directory.
    Ls,
    /// Files by their names.
    Glob,
    /// Lines by what they hold.
    Grep,
}

/// Largest file that is read or edited as lines.
const MOST_BYTES: u64 = 32 * 1024 * 1024;

/// Why a tool does not do what it is asked for.
#[derive(Debug, thiserror::Error)]
enum Error {
    /// The project cannot be used.
    #[error(transparent)]
    Project(#[from] projects::Error),
    /// A path leads out of the project.
    #[error(
        "`{path}` lies outside the project; name it relative to the project, and let no link on the way lead out"
    )]
    Outside {
        /// As given.
        path: String,
    },
    /// A path that is the daemon's own.
    #[error(
        "`{path}` lies below `.ai/state`, which holds the record of runs; write to another place"
    )]
    Protected {
        /// As given.
        path: String,
    },
    /// Nothing is there.
    #[error("`{path}` does not exist in the project")]
    Missing {
        /// As given.
        path: String,
    },
    /// What is there is of the wrong sort.
    #[error("`{path}` is not {expected}")]
    Not {
        /// As given.
        path: String,
        /// What it should be, with its article.
        expected: &'static str,
    },
    /// The file is too large to be worked on by lines.
    #[error(
        "`{path}` is larger than {} MiB; look for lines with `rye/file-system/grep`, or use `rye/bash`",
        MOST_BYTES / (1024 * 1024)
    )]
    TooLarge {
        /// As given.
        path: String,
    },
    /// A parameter cannot be.
    #[error("{0}")]
    Invalid(String),
    /// The file is not what the caller has read.
    #[error("`{path}` {problem}; nothing was written: read it again")]
    Stale {
        /// As given.
        path: String,
        /// What is different.
        problem: String,
    },
    /// The operating system refused.
    #[error("failed to use `{path}`")]
    Io {
        /// As given.
        path: String,
        /// Why.
        #[source]
        source: io::Error,
    },
}

impl Kinded for Error {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::Project(error) => error.kind(),
            Self::Outside { .. } | Self::Protected { .. } => ErrorKind::Denied,
            Self::Missing { .. } => ErrorKind::NotFound,
            Self::Not { .. } | Self::TooLarge { .. } | Self::Invalid(_) => ErrorKind::Invalid,
            Self::Stale { .. } => ErrorKind::Precondition,
            Self::Io { source, .. } if source.kind() == io::ErrorKind::PermissionDenied => {
                ErrorKind::Denied
            }
            Self::Io { .. } => ErrorKind::Unavailable,
        }
    }
}

/// Work in the project, and whether anybody still waits for it.
type Work = Box<dyn FnOnce(&Workspace, &Watch) -> Result<Value, Error> + Send>;

/// Calls `tool`.
pub(super) async fn call(
    tool: FileTool,
    params: Object,
    session: &Session<'_>,
) -> Result<Value, Failure> {
    let work = order(tool, params)?;
    let waiting = Waiting::default();
    let watch = Watch(Arc::clone(&waiting.0));
    let random = session.clock.random();
    let done = session
        .projects
        .visit(session.spec, "files of a project", move |inside| {
            work(&Workspace::open(&inside.project.directory, random)?, &watch)
        });
    done.await.map_err(|error: Error| {
        if let Error::Project(project) = &error
            && let Some(gone) = project.gone()
        {
            return gone;
        }
        Refusal::from(&error).of_file()
    })
}

/// What is to be done, if the parameters are such.
fn order(tool: FileTool, params: Object) -> Result<Work, Failure> {
    Ok(match tool {
        FileTool::Read => {
            let asked: read::Asked = params_of(params)?;
            Box::new(move |place, _| read::read(place, &asked))
        }
        FileTool::Write => {
            let asked: write::Asked = params_of(params)?;
            Box::new(move |place, _| write::write(place, asked))
        }
        FileTool::EditLines => {
            let asked: edit::Asked = params_of(params)?;
            Box::new(move |place, _| edit::edit(place, &asked))
        }
        FileTool::Ls => {
            let asked: search::Listed = params_of(params)?;
            Box::new(move |place, _| search::ls(place, &asked))
        }
        FileTool::Glob => {
            let asked: search::Globbed = params_of(params)?;
            Box::new(move |place, watch| search::glob(place, &asked, watch))
        }
        FileTool::Grep => {
            let asked: search::Grepped = params_of(params)?;
            Box::new(move |place, watch| search::grep(place, &asked, watch))
        }
    })
}

/// Somebody waits for work; when that is dropped, nobody does.
#[derive(Debug, Default)]
struct Waiting(Arc<AtomicBool>);

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Tells work whether it was given up.
#[derive(Debug)]
struct Watch(Arc<AtomicBool>);

impl Watch {
    fn is_given_up(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// A path as results show it.
fn shown(path: &Path) -> String {
    if path == Path::new("") {
        ".".to_owned()
    } else {
        path.display().to_string()
    }
}

/// `text` up to `most` bytes, with a note if that is not all.
fn cut(mut text: String, most: usize) -> String {
    if text.len() > most {
        let left_out = text.len() - text.floor_char_boundary(most);
        text.truncate(text.floor_char_boundary(most));
        let note = format!("\n[{left_out} more bytes]");
        text.push_str(&note);
    }
    text
}

fn failed(path: &Path, source: io::Error) -> Error {
    Error::Io {
        path: shown(path),
        source,
    }
}
