//! Reasons why an item cannot run.

use std::io;
use std::path::PathBuf;

use rye_core::error::{ErrorKind, Kinded};
use rye_core::id::{InvalidId, ItemId, ItemRef};
use rye_core::model::{Failure, Isolation};
use rye_item::{Library, library, lock};

/// Maximum number of elements of a chain, including the primitive.
pub(super) const MOST_ELEMENTS: usize = 10;

/// Returns `, line N`, or an empty text without a line.
pub(super) fn line_suffix(line: Option<usize>) -> String {
    line.map_or_else(String::new, |line| format!(", line {line}"))
}

/// Reason why an item cannot run.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It is refused or missing. The error of the library names the item, its file and the fix.
    #[error(transparent)]
    Item(Box<library::Error>),
    /// `executor_id` is not an id.
    #[error("`executor_id` of `{path}` is malformed")]
    ExecutorId {
        path: PathBuf,
        #[source]
        source: InvalidId,
    },
    #[error(
        "the chain of `{tool}` is circular: `{item}` occurs twice; fix the `executor_id` of `{path}`"
    )]
    Circular {
        /// First element.
        tool: ItemId,
        /// Element that occurs twice.
        item: ItemId,
        /// File whose executor closes the cycle.
        path: PathBuf,
    },
    #[error(
        "the chain of `{tool}` is longer than {MOST_ELEMENTS} elements: let an `executor_id` of it name a runtime that is nearer to its end"
    )]
    TooDeep {
        /// First element.
        tool: ItemId,
    },
    /// The last element is neither a primitive nor a native tool.
    #[error(
        "`{path}` names no `executor_id` and is not a primitive: name the runtime that runs it, such as \
         `rye/core/runtimes/python/function`"
    )]
    NoExecutor { path: PathBuf },
    #[error("`{item}` cannot run: the isolation `{level}` is not available: {cause}", level = level.as_str())]
    NoIsolation {
        item: ItemRef,
        level: Isolation,
        cause: String,
    },
    #[error("`{path}`{}: the key `{key}` is unknown{hint}; correct it, or call it `x-…`", line_suffix(*line))]
    UnknownKey {
        path: PathBuf,
        /// The key with its parent keys, separated by dots.
        key: String,
        line: Option<usize>,
        /// Suggestion for people; empty if no known key is similar.
        hint: String,
    },
    /// An element is a library, not a program.
    #[error(
        "`{path}` is a library: a text that tools use, which cannot be executed; run a tool that uses it, or give it another `tool_type`"
    )]
    Library { path: PathBuf },
    /// The executor does not accept the version of the element.
    #[error(
        "`{child}` has the version {version}, and its executor `{parent}` takes {wanted}: change one of the two"
    )]
    Version {
        /// File of the element.
        child: PathBuf,
        version: String,
        /// File of the executor.
        parent: PathBuf,
        /// Accepted versions, in words.
        wanted: String,
    },
    /// The executor requires outputs that the element does not declare.
    #[error(
        "`{parent}` needs {missing} as `inputs`, which the `outputs` of `{child}` do not name: add them there, or use another executor"
    )]
    Data {
        /// File of the element.
        child: PathBuf,
        /// File of the executor.
        parent: PathBuf,
        /// The missing names.
        missing: String,
    },
    /// The lock of the tool is unusable.
    #[error(transparent)]
    Lock(#[from] lock::Error),
    /// The tool differs from its lock.
    #[error(
        "`{tool}` is not what it was locked as: `{part}` is {found}, and {locked} in `{path}`; if that is meant, write the lock anew \
         with `ryectl lock create {tool}`"
    )]
    LockMismatch {
        tool: ItemId,
        /// File of the lock.
        path: PathBuf,
        /// Path of the difference in the lock.
        part: String,
        /// Value in the lock, in words.
        locked: String,
        /// Value of the tool, in words.
        found: String,
    },
    /// A file of a multi-file tool does not belong to it.
    #[error("`{path}` {problem}")]
    Dependency {
        path: PathBuf,
        /// Reason and fix.
        problem: String,
    },
    /// Copying the files of a multi-file tool failed.
    #[error(
        "the copy of the files of `{item}` cannot be made; see that the daemon may write to `trees` in its state directory, and that there is room"
    )]
    Copy {
        item: ItemRef,
        #[source]
        source: io::Error,
    },
    /// A program that is part of a tool is unusable.
    #[error("the program `{path}` {problem}")]
    Binary {
        path: PathBuf,
        /// Reason and fix.
        problem: String,
    },
    /// Variables that the tool requires are not set.
    #[error(
        "`{item}` needs {names} in its environment; set it in the project's `.env` or by `env.pass`"
    )]
    Variables {
        item: ItemRef,
        /// The missing names.
        names: String,
    },
    /// A value has the wrong form.
    #[error("`{path}`: {field} {problem}")]
    Malformed {
        path: PathBuf,
        /// The key with its parent keys, separated by dots, and its line.
        field: String,
        /// Problem and fix.
        problem: String,
    },
    #[error(
        "no interpreter for `{item}`: looked for {looked_for}; install it, or name the program in \
         the daemon's setting `interpreters` as `{variable}`"
    )]
    NoInterpreter {
        item: ItemRef,
        /// Names and directories that were tried.
        looked_for: String,
        /// Variable for the interpreter in templates.
        variable: String,
    },
    /// The parameters do not match the schema of the tool.
    #[error("parameters of `{item}`: {}", failure.message)]
    Params {
        item: ItemRef,
        failure: Box<Failure>,
    },
}

impl Error {
    /// Adds the id of a similar item if an item is missing.
    #[must_use]
    pub fn suggesting(self, library: &Library) -> Self {
        if let Self::Item(error) = self {
            return Self::Item(Box::new(error.suggesting(library)));
        }
        self
    }
}

impl Kinded for Error {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::Item(error) => error.kind(),
            // Waiting does not help.
            Self::NoInterpreter { .. } | Self::Variables { .. } | Self::NoIsolation { .. } => {
                ErrorKind::Precondition
            }
            // The file may come from someone else.
            Self::Binary { .. } | Self::Dependency { .. } | Self::LockMismatch { .. } => {
                ErrorKind::Denied
            }
            Self::Lock(error) => error.kind(),
            Self::Copy { .. } => ErrorKind::Exhausted,
            Self::ExecutorId { .. }
            | Self::Circular { .. }
            | Self::TooDeep { .. }
            | Self::NoExecutor { .. }
            | Self::UnknownKey { .. }
            | Self::Library { .. }
            | Self::Version { .. }
            | Self::Data { .. }
            | Self::Malformed { .. }
            | Self::Params { .. } => ErrorKind::Invalid,
        }
    }
}
