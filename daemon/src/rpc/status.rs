//! Errors as gRPC statuses: one exhaustive mapping. The trailer `rye-reason` has a word for programs.

use rye_core::error::{ErrorKind, Kinded, with_sources};
use tonic::metadata::MetadataValue;
use tonic::{Code, Status};

use crate::port::Refusal;
use crate::{cache, inspect, projects, supervisor};

/// Most bytes of a message in the trailers. Clients refuse 8 KiB of headers or more, and then get no answer.
const MESSAGE_BYTES: usize = 4000;

fn code(kind: ErrorKind) -> Code {
    match kind {
        ErrorKind::NotFound => Code::NotFound,
        ErrorKind::Invalid => Code::InvalidArgument,
        ErrorKind::Precondition => Code::FailedPrecondition,
        ErrorKind::Exists => Code::AlreadyExists,
        ErrorKind::Denied => Code::PermissionDenied,
        ErrorKind::Exhausted => Code::ResourceExhausted,
        ErrorKind::Unavailable => Code::Unavailable,
        ErrorKind::DataLoss => Code::DataLoss,
        ErrorKind::Bug => Code::Internal,
    }
}

/// The status of `error`: its chain of causes as the message, and the word of its kind as the reason.
fn of(error: &(impl Kinded + 'static)) -> Status {
    status_of(error, error.kind().word())
}

fn status_of(error: &(impl Kinded + 'static), reason: &str) -> Status {
    let kind = error.kind();
    if kind == ErrorKind::Bug {
        tracing::error!(error = %with_sources(error), "a call failed");
    }
    let status = Status::new(code(kind), bounded(&with_sources(error)));
    with_reason(status, reason)
}

/// Cuts a message so that it fits into the trailers, between lines if it has several. States how much is omitted.
fn bounded(message: &str) -> String {
    let mut bytes = 0;
    let fitting = message.char_indices().find(|(_, character)| {
        bytes += encoded_bytes(*character);
        bytes > MESSAGE_BYTES
    });
    let Some((end, _)) = fitting else {
        return message.to_owned();
    };
    let (kept, rest) = message.split_at(end);
    match kept.rsplit_once('\n') {
        Some((lines, _cut)) => {
            let more = 1 + rest.trim_end().matches('\n').count();
            format!("{lines}\nand {more} more")
        }
        None => format!("{kept}… (and {} more characters)", rest.chars().count()),
    }
}

/// Bytes of a character in a trailer, where most are percent-encoded byte by byte.
const fn encoded_bytes(character: char) -> usize {
    if character.is_ascii_alphanumeric() {
        1
    } else {
        3 * character.len_utf8()
    }
}

impl From<supervisor::Error> for Status {
    fn from(error: supervisor::Error) -> Self {
        status_of(&error, error.reason())
    }
}

#[expect(
    clippy::needless_pass_by_value,
    reason = "errors are mapped by name, and `Status` is foreign to `From` here"
)]
pub(super) fn of_journal(error: rye_journal::Error) -> Status {
    use rye_journal::Error::{MemoryFull, TooLong};
    if matches!(error, MemoryFull { .. } | TooLong { .. }) {
        // A slow reader that was cut off can continue at once; a retry of this call would not help.
        return status_of(&error, "memory_exceeded");
    }
    of(&error)
}

impl From<Refusal> for Status {
    fn from(error: Refusal) -> Self {
        of(&error)
    }
}

impl From<inspect::Error> for Status {
    fn from(error: inspect::Error) -> Self {
        of(&error)
    }
}

impl From<projects::Error> for Status {
    fn from(error: projects::Error) -> Self {
        of(&error)
    }
}

impl From<cache::Error> for Status {
    fn from(error: cache::Error) -> Self {
        of(&error)
    }
}

/// The status of a malformed field.
pub(super) fn invalid(field: &str, why: impl std::fmt::Display) -> Status {
    let message = bounded(&format!("`{field}`: {why}"));
    with_reason(Status::invalid_argument(message), "invalid")
}

pub(super) fn with_reason(mut status: Status, reason: &str) -> Status {
    // The daemon's own words are valid ASCII.
    if let Ok(reason) = MetadataValue::try_from(reason) {
        status.metadata_mut().insert("rye-reason", reason);
    }
    status
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reference_lists_status_of_each_error_kind() {
        let kinds = rye_pages::Table::read("docs/reference.md", "error kinds");
        kinds.assert_lists(ErrorKind::ALL.map(ErrorKind::word));
        for kind in ErrorKind::ALL {
            let said = kinds.cell(kind.word(), "gRPC status").replace('_', "");
            let code = format!("{:?}", code(kind)).to_uppercase();
            assert_eq!(said, code, "{kind:?}");
        }
    }

    #[test]
    fn long_message_is_cut_with_count() {
        assert_eq!(bounded("short\nand sound"), "short\nand sound");
        let one = "x".repeat(MESSAGE_BYTES);
        assert_eq!(bounded(&one), one);
        assert_eq!(
            bounded(&format!("{one}yz")),
            format!("{one}… (and 2 more characters)")
        );
        let lines = bounded(&"a finding about a node\n".repeat(1000));
        let (kept, more) = lines.rsplit_once("\nand ").unwrap();
        assert_eq!(
            more,
            format!("{} more", 1000 - kept.lines().count()),
            "{lines}"
        );
        for text in ["ü ".repeat(5000), "日本\n".repeat(5000)] {
            let bytes: usize = bounded(&text).chars().map(encoded_bytes).sum();
            assert!(bytes < MESSAGE_BYTES + 200, "{bytes}");
        }
    }
}
