//! `rye/file-system/…`: files of the project, for graphs and models.
//!
//! **Owns** the six tools `read`, `write`, `edit_lines`, `ls`, `glob` and `grep`. Parameters are parsed before the
//! visit of the project; the work runs in its file pool. **Never** leaves the project ([`place`]), never writes below
//! `.ai/state`, writes what takes effect without a signature only with [`UNSAFE_WRITE`], and never leaves a partial file: a write replaces the previous file atomically. **Order.** All new
//! contents of a batch are written to temporary files before the first rename. **Failure.** A refused call has changed
//! nothing. If the run of a call stops, the call is abandoned: a search ends soon, a write in progress completes.

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

use rye_core::capability::{Capability, Denied, UNSAFE_WRITE, permit_action};
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
    /// Reads lines of a file.
    Read,
    /// Writes whole files.
    Write,
    /// Replaces lines of a file.
    EditLines,
    /// Lists a directory.
    Ls,
    /// Finds files by name.
    Glob,
    /// Finds lines by content.
    Grep,
}

/// Maximum size in bytes of a file that is read or edited by lines.
const MOST_BYTES: u64 = 32 * 1024 * 1024;

#[derive(Debug, thiserror::Error)]
enum Error {
    #[error(transparent)]
    Project(#[from] projects::Error),
    #[error(
        "`{path}` is outside the project; name it relative to the project, and let no link on the way lead out"
    )]
    Outside {
        /// Path as given.
        path: String,
    },
    /// The path belongs to the daemon.
    #[error(
        "`{path}` lies below `.ai/state`, which holds the record of runs; write to another place"
    )]
    Protected {
        /// Path as given.
        path: String,
    },
    #[error(
        "`{path}` takes effect without a signature, so writing it needs `{UNSAFE_WRITE}` in `permissions`, which no wildcard covers"
    )]
    Unsafe {
        /// Path as given.
        path: String,
        #[source]
        source: Denied,
    },
    #[error("`{path}` does not exist in the project")]
    Missing {
        /// Path as given.
        path: String,
    },
    /// The file is of the wrong type.
    #[error("`{path}` is not {expected}")]
    Not {
        /// Path as given.
        path: String,
        /// Expected type, with its article.
        expected: &'static str,
    },
    /// The file is too large to be read or edited by lines.
    #[error(
        "`{path}` is larger than {} MiB; look for lines with `rye/file-system/grep`, or use `rye/bash`",
        MOST_BYTES / (1024 * 1024)
    )]
    TooLarge {
        /// Path as given.
        path: String,
    },
    #[error("{0}")]
    Invalid(String),
    /// The file is not the one that the caller has read.
    #[error("`{path}` {problem}; nothing was written: read it again")]
    Stale {
        /// Path as given.
        path: String,
        problem: String,
    },
    #[error("failed to use `{path}`")]
    Io {
        /// Path as given.
        path: String,
        #[source]
        source: io::Error,
    },
}

impl Kinded for Error {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::Project(error) => error.kind(),
            Self::Outside { .. } | Self::Protected { .. } | Self::Unsafe { .. } => {
                ErrorKind::Denied
            }
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

/// Work in the project; the `Watch` shows an abandoned call.
type Work = Box<dyn FnOnce(&Workspace, &Watch) -> Result<Value, Error> + Send>;

pub(super) async fn call(
    tool: FileTool,
    params: Object,
    session: &Session<'_>,
) -> Result<Value, Failure> {
    let work = parse_call(tool, params)?;
    let waiting = Waiting::default();
    let watch = Watch(Arc::clone(&waiting.0));
    let random = session.clock.random();
    let unsafe_write = permit_action(&session.spec.layers, Capability::unsafe_write());
    let done = session
        .projects
        .visit(session.spec, "files of a project", move |inside| {
            let directory = &inside.project.directory;
            work(&Workspace::open(directory, unsafe_write, random)?, &watch)
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

/// Parses the parameters of `tool`.
fn parse_call(tool: FileTool, params: Object) -> Result<Work, Failure> {
    Ok(match tool {
        FileTool::Read => {
            let asked: read::ReadParams = params_of(params)?;
            Box::new(move |place, _| read::read(place, &asked))
        }
        FileTool::Write => {
            let asked: write::WriteParams = params_of(params)?;
            Box::new(move |place, _| write::write(place, asked))
        }
        FileTool::EditLines => {
            let asked: edit::EditParams = params_of(params)?;
            Box::new(move |place, _| edit::edit(place, &asked))
        }
        FileTool::Ls => {
            let asked: search::LsParams = params_of(params)?;
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

/// Held by the waiting caller; dropping it abandons the work.
#[derive(Debug, Default)]
struct Waiting(Arc<AtomicBool>);

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Shows the work that its call was abandoned.
#[derive(Debug)]
struct Watch(Arc<AtomicBool>);

impl Watch {
    fn is_given_up(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// Path in the form of results.
fn shown(path: &Path) -> String {
    if path == Path::new("") {
        ".".to_owned()
    } else {
        path.display().to_string()
    }
}

/// Truncates `text` to `most` bytes, with a note.
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
