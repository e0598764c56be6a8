//! Why a verb did not do its work.

use std::io;
use std::path::PathBuf;

use rye_client::exit::Exit;
use rye_core::error::{ErrorKind, Kinded as _};
use rye_core::id::InvalidId;
use rye_item::{draft, init, keys, library, lock, sign, spaces, trust};
use rye_proto::convert::Malformed;

use crate::{input, testing};

/// The end of a verb that could not do its part. Large causes are boxed: a result is moved more often than it fails.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// The daemon, or the way to it.
    #[error(transparent)]
    Client(#[from] rye_client::Error),
    /// The user's key.
    #[error(transparent)]
    Keys(#[from] keys::Error),
    /// The trusted keys.
    #[error(transparent)]
    Trust(#[from] trust::Error),
    /// What was to be trusted is no key.
    #[error(transparent)]
    NoKey(trust::Error),
    /// Signing.
    #[error(transparent)]
    Sign(Box<sign::Error>),
    /// Writing a lock.
    #[error(transparent)]
    Lock(#[from] lock::Error),
    /// Setting up a project.
    #[error(transparent)]
    Init(Box<init::Error>),
    /// Running tests.
    #[error(transparent)]
    Test(#[from] testing::Error),
    /// A tool that is to be imported is there already.
    #[error("`{}` is there already and says something else; look at both, then write over it with `--replace`", path.display())]
    Imported {
        /// Its file.
        path: PathBuf,
    },
    /// Writing an item to begin with.
    #[error(transparent)]
    Draft(#[from] draft::Error),
    /// Finding or opening an item.
    #[error(transparent)]
    Item(Box<library::Error>),
    /// A path that is no item.
    #[error(transparent)]
    Path(#[from] spaces::Error),
    /// A name that is none.
    #[error(transparent)]
    Name(#[from] InvalidId),
    /// A value on the command line that cannot be used.
    #[error(transparent)]
    Input(#[from] input::Error),
    /// Flags that do not go together, or not with what they are given for.
    #[error("{problem}")]
    Flags {
        /// The rule that they break.
        problem: &'static str,
    },
    /// One attempt answered twice.
    #[error("what became of `{item}` is said twice with --uncertain")]
    AnsweredTwice {
        /// The attempt.
        item: String,
    },
    /// A run that is named by its age, and there are not so many.
    #[error("there is no run `{name}`{}", if project.is_empty() { String::new() } else { format!(" of the project `{project}`") })]
    NoSuchRun {
        /// As it was named.
        name: String,
        /// Where it was looked for; anywhere if empty.
        project: String,
    },
    /// A beginning that several runs share.
    #[error("`{name}` begins the ids of {count} runs: {some}; give more of it")]
    SeveralRuns {
        /// As it was named.
        name: String,
        /// How many there are.
        count: usize,
        /// The first of them.
        some: String,
    },
    /// An item of another type than is asked for.
    #[error("{problem}")]
    OtherItem {
        /// What it is, and what is asked for.
        problem: String,
    },
    /// A file that is an item of another project.
    #[error("`{}` is an item of the project `{}`", path.display(), project.display())]
    OtherProject {
        /// The file.
        path: PathBuf,
        /// Its project.
        project: PathBuf,
    },
    /// A name that several items have.
    #[error("`{target}` is several items: {names}; say which")]
    SeveralItems {
        /// As it was given.
        target: String,
        /// With their types.
        names: String,
    },
    /// A target that names no file.
    #[error("there is no item and no file `{target}`")]
    NoFile {
        /// As it was given.
        target: String,
    },
    /// A target whose type is none.
    #[error(
        "`{word}` in `{target}` is not a type of item; use tool, directive, knowledge or config"
    )]
    NoType {
        /// What stands before the colon.
        word: String,
        /// As it was given.
        target: String,
    },
    /// A file that cannot be read.
    #[error("cannot read {place}")]
    Unreadable {
        /// The flag, and the file it names.
        place: String,
        /// The reason of the system.
        source: io::Error,
    },
    /// The log of the daemon cannot be read.
    #[error("cannot read the log of the daemon, `{}`", path.display())]
    NoLog {
        /// Where it would be.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The manual pages cannot be written.
    #[error("cannot write the manual pages to `{}`", path.display())]
    NoPages {
        /// Their directory.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Objects cannot be exported.
    #[error("cannot export objects: `{}`", path.display())]
    NoExport {
        /// The file or directory.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Stdout cannot be written.
    #[error("cannot write the output")]
    Output(#[source] io::Error),
    /// Ctrl-C cannot be listened for.
    #[error("cannot listen for Ctrl-C")]
    Interrupts(#[source] io::Error),
}

impl Failure {
    /// The exit code.
    pub(crate) fn exit(&self) -> Exit {
        match self {
            Self::Client(error) => Exit::of_error(error.kind()),
            Self::Keys(error) => local(error.kind()),
            Self::Trust(error) => local(error.kind()),
            Self::Sign(error) if error.is_about_the_words() => Exit::Usage,
            Self::Sign(error) => local(error.kind()),
            Self::Lock(error) => local(error.kind()),
            Self::Init(error) => local(error.kind()),
            Self::Draft(error) => local(error.kind()),
            Self::Test(error) => error.exit,
            Self::Item(error) => local(error.kind()),
            Self::Path(error) => local(error.kind()),
            Self::NoKey(_)
            | Self::Name(_)
            | Self::Flags { .. }
            | Self::Input(_)
            | Self::AnsweredTwice { .. }
            | Self::NoType { .. }
            | Self::OtherItem { .. }
            | Self::OtherProject { .. }
            | Self::SeveralItems { .. }
            | Self::SeveralRuns { .. }
            | Self::Unreadable { .. } => Exit::Usage,
            Self::NoFile { .. } | Self::NoSuchRun { .. } => Exit::NotFound,
            Self::NoLog { source, .. } if source.kind() == io::ErrorKind::NotFound => {
                Exit::NotFound
            }
            Self::NoLog { .. } => Exit::Refused,
            // Not 1: that says how a run ended.
            Self::Output(_)
            | Self::NoExport { .. }
            | Self::NoPages { .. }
            | Self::Imported { .. } => Exit::Precondition,
            Self::Interrupts(_) => Exit::Internal,
        }
    }

    /// The word for it, for programs.
    pub(crate) fn reason(&self) -> &str {
        if let Self::Client(error) = self {
            return error.reason();
        }
        let kind = match self.exit() {
            Exit::NotFound => ErrorKind::NotFound,
            Exit::Refused => ErrorKind::Denied,
            Exit::Precondition => ErrorKind::Precondition,
            Exit::Unreachable => ErrorKind::Unavailable,
            Exit::Internal => ErrorKind::Bug,
            Exit::Done
            | Exit::Failed
            | Exit::Usage
            | Exit::Suspended
            | Exit::TimedOut
            | Exit::Interrupted => ErrorKind::Invalid,
        };
        kind.word()
    }

    /// The fix, where there is one.
    pub(crate) fn hint(&self) -> Option<String> {
        match self {
            Self::Client(error) => error.hint(),
            Self::Input(error) => error.hint(),
            Self::NoLog { .. } => Some(
                "a daemon that `ryectl` starts logs there; that of a service manager logs where this one keeps logs, as in `journalctl -u ryed`"
                    .to_owned(),
            ),
            Self::OtherProject { project, .. } => {
                Some(format!("name its project: --project {}", project.display()))
            }
            // The local ones name their fix in the message.
            Self::Keys(_)
            | Self::Trust(_)
            | Self::NoKey(_)
            | Self::Sign(_)
            | Self::Lock(_)
            | Self::Init(_)
            | Self::Draft(_)
            | Self::Imported { .. }
            | Self::Test(_)
            | Self::Item(_)
            | Self::Path(_)
            | Self::Name(_)
            | Self::Flags { .. }
            | Self::AnsweredTwice { .. }
            | Self::NoType { .. }
            | Self::NoFile { .. }
            | Self::OtherItem { .. }
            | Self::SeveralItems { .. }
            | Self::SeveralRuns { .. }
            | Self::Unreadable { .. }
            | Self::NoExport { .. }
            | Self::NoPages { .. }
            | Self::Output(_)
            | Self::Interrupts(_) => None,
            Self::NoSuchRun { project, .. } => (!project.is_empty()).then(|| {
                "of another project: name it by its whole id, or the project by --project"
                    .to_owned()
            }),
        }
    }
}

/// The exit code of a failure that no daemon had a part in: a file that does not pass is a finding, and a disk that
/// does not answer is no unreachable daemon.
const fn local(kind: ErrorKind) -> Exit {
    match kind {
        ErrorKind::Invalid | ErrorKind::Unavailable => Exit::Failed,
        ErrorKind::NotFound
        | ErrorKind::Precondition
        | ErrorKind::Exists
        | ErrorKind::Denied
        | ErrorKind::Exhausted
        | ErrorKind::DataLoss
        | ErrorKind::Bug => Exit::of_error(kind),
    }
}

impl From<sign::Error> for Failure {
    fn from(error: sign::Error) -> Self {
        Self::Sign(Box::new(error))
    }
}

impl From<Malformed> for Failure {
    fn from(error: Malformed) -> Self {
        Self::Client(error.into())
    }
}

impl From<init::Error> for Failure {
    fn from(error: init::Error) -> Self {
        Self::Init(Box::new(error))
    }
}

impl From<library::Error> for Failure {
    fn from(error: library::Error) -> Self {
        Self::Item(Box::new(error))
    }
}
