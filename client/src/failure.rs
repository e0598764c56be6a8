//! Why a verb did not do its work.

use std::io;

use rye_client::exit::Exit;
use rye_core::error::Kinded as _;

/// The end of a verb that could not do its part.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// The daemon, or the way to it.
    #[error(transparent)]
    Client(#[from] rye_client::Error),
    /// A value on the command line that is not JSON.
    #[error("{place} is not JSON")]
    NotJson {
        /// The flag, and the file it names.
        place: String,
        /// With line and column.
        source: serde_json::Error,
    },
    /// JSON, but no object.
    #[error("{place} must be a JSON object, such as {{\"key\": 1}}")]
    NotAnObject {
        /// The flag, and the file it names.
        place: String,
    },
    /// One input given twice.
    #[error("the input `{key}` is given twice with -i")]
    GivenTwice {
        /// Its key.
        key: String,
    },
    /// A file or stdin that cannot be read.
    #[error("cannot read {place}")]
    Unreadable {
        /// The flag, and the file it names.
        place: String,
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
            Self::NotJson { .. }
            | Self::NotAnObject { .. }
            | Self::GivenTwice { .. }
            | Self::Unreadable { .. } => Exit::Usage,
            Self::Output(_) => Exit::Failed,
            Self::Interrupts(_) => Exit::Internal,
        }
    }

    /// The mend, where there is one.
    pub(crate) fn hint(&self) -> Option<String> {
        match self {
            Self::Client(error) => error.hint(),
            Self::NotJson { .. } => {
                Some("text is given as `-i key=text`; JSON as `-i key:=JSON`".to_owned())
            }
            Self::NotAnObject { .. }
            | Self::GivenTwice { .. }
            | Self::Unreadable { .. }
            | Self::Output(_)
            | Self::Interrupts(_) => None,
        }
    }
}
