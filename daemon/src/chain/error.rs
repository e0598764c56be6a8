//! Why an item cannot run.

use std::io;
use std::path::PathBuf;

use rye_core::error::{ErrorKind, Kinded};
use rye_core::id::{InvalidId, ItemId, ItemRef};
use rye_core::model::Failure;
use rye_item::{Library, library, lock};

/// Most elements of a chain, the primitive included.
pub(super) const MOST_ELEMENTS: usize = 10;

/// The line, for an error.
pub(super) fn in_line(line: Option<usize>) -> String {
    line.map_or_else(String::new, |line| format!(", line {line}"))
}

/// Why an item cannot run.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It is refused or not there; the item's own error names it, its file and the fix.
    #[error(transparent)]
    Item(Box<library::Error>),
    /// `executor_id` is not an id.
    #[error("`executor_id` of `{path}` is malformed")]
    ExecutorId {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: InvalidId,
    },
    /// The chain comes back to itself.
    #[error(
        "the chain of `{tool}` is circular: `{item}` occurs twice; fix the `executor_id` of `{path}`"
    )]
    Circular {
        /// Where it starts.
        tool: ItemId,
        /// What occurs twice.
        item: ItemId,
        /// The file that leads back.
        path: PathBuf,
    },
    /// The chain is too long.
    #[error(
        "the chain of `{tool}` is longer than {MOST_ELEMENTS} elements: let an `executor_id` of it name a runtime that is nearer to its end"
    )]
    TooDeep {
        /// Where it starts.
        tool: ItemId,
    },
    /// The chain ends at something that is neither a primitive nor native.
    #[error(
        "`{path}` names no `executor_id` and is not a primitive: name the runtime that runs it, such as \
         `rye/core/runtimes/python/function`"
    )]
    NoExecutor {
        /// The file.
        path: PathBuf,
    },
    /// A key that this version does not carry out.
    #[error(
        "`{path}`{}: the key `{key}` is not supported by this version of ryed; without it the item would not do what it says",
        in_line(*line)
    )]
    Unsupported {
        /// The file.
        path: PathBuf,
        /// The key.
        key: String,
        /// The line it stands in.
        line: Option<usize>,
    },
    /// A key that means nothing.
    #[error("`{path}`{}: the key `{key}` is unknown{hint}; correct it, or call it `x-…`", in_line(*line))]
    UnknownKey {
        /// The file.
        path: PathBuf,
        /// The key, with its parents.
        key: String,
        /// The line it stands in.
        line: Option<usize>,
        /// What it may be meant to be, in words; empty if nothing comes near.
        hint: String,
    },
    /// What is no program, and stands in a chain.
    #[error(
        "`{path}` is a library: a text that tools use, which cannot be executed; run a tool that uses it, or give it another `tool_type`"
    )]
    Library {
        /// The file.
        path: PathBuf,
    },
    /// An executor does not take this version.
    #[error(
        "`{child}` has the version {version}, and its executor `{parent}` takes {wanted}: change one of the two"
    )]
    Version {
        /// The file of what is run.
        child: PathBuf,
        /// Its version.
        version: String,
        /// The file of the executor.
        parent: PathBuf,
        /// What it takes, in words.
        wanted: String,
    },
    /// An executor asks for what it does not get.
    #[error(
        "`{parent}` needs {missing} as `inputs`, which the `outputs` of `{child}` do not name: add them there, or use another executor"
    )]
    Data {
        /// The file of what is run.
        child: PathBuf,
        /// The file of the executor.
        parent: PathBuf,
        /// The names.
        missing: String,
    },
    /// The lock of the tool cannot be used.
    #[error(transparent)]
    Lock(#[from] lock::Error),
    /// Something is not what the tool was locked with.
    #[error(
        "`{tool}` is not what it was locked as: `{part}` is {found}, and {locked} in `{path}`; if that is meant, write the lock anew \
         with `ryectl lock create {tool}`"
    )]
    LockMismatch {
        /// The tool.
        tool: ItemId,
        /// The lock.
        path: PathBuf,
        /// What differs.
        part: String,
        /// What it was, in words.
        locked: String,
        /// What it is, in words.
        found: String,
    },
    /// A file of a tool of several does not belong to it.
    #[error("`{path}` {problem}")]
    Dependency {
        /// The file.
        path: PathBuf,
        /// Why, and the fix.
        problem: String,
    },
    /// The copy of the files of a tool cannot be made.
    #[error(
        "the copy of the files of `{item}` cannot be made; see that the daemon may write to `trees` in its state directory, and that there is room"
    )]
    Copy {
        /// The tool.
        item: ItemRef,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The program that a tool brings along cannot be used.
    #[error("the program `{path}` {problem}")]
    Binary {
        /// The program.
        path: PathBuf,
        /// Why, and the fix.
        problem: String,
    },
    /// Variables without which the tool does not start.
    #[error(
        "`{item}` needs {names} in its environment; set it in the project's `.env` or by `env.pass`"
    )]
    Variables {
        /// The item.
        item: ItemRef,
        /// Those that are not set.
        names: String,
    },
    /// A value of the wrong shape.
    #[error("`{path}`: {field} {problem}")]
    Malformed {
        /// The file.
        path: PathBuf,
        /// The key, with its parents.
        field: String,
        /// What is wrong, and the fix.
        problem: String,
    },
    /// The interpreter is not there.
    #[error(
        "no interpreter for `{item}`: looked for {looked_for}; install it, or name the program in \
         the daemon's setting `interpreters` as `{variable}`"
    )]
    NoInterpreter {
        /// The item.
        item: ItemRef,
        /// Which names, and where.
        looked_for: String,
        /// The variable it is called by.
        variable: String,
    },
    /// The parameters do not fit the tool's schema.
    #[error("parameters of `{item}`: {}", failure.message)]
    Params {
        /// The item.
        item: ItemRef,
        /// What does not fit.
        failure: Box<Failure>,
    },
}

impl Error {
    /// The same error, with the id that may have been meant if an item is not there.
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
            // It does not come by waiting.
            Self::NoInterpreter { .. } | Self::Variables { .. } => ErrorKind::Precondition,
            // It may be somebody else's.
            Self::Binary { .. } | Self::Dependency { .. } | Self::LockMismatch { .. } => {
                ErrorKind::Denied
            }
            Self::Lock(error) => error.kind(),
            Self::Copy { .. } => ErrorKind::Exhausted,
            Self::ExecutorId { .. }
            | Self::Circular { .. }
            | Self::TooDeep { .. }
            | Self::NoExecutor { .. }
            | Self::Unsupported { .. }
            | Self::UnknownKey { .. }
            | Self::Library { .. }
            | Self::Version { .. }
            | Self::Data { .. }
            | Self::Malformed { .. }
            | Self::Params { .. } => ErrorKind::Invalid,
        }
    }
}
