//! Errors as gRPC statuses: one exhaustive mapping, with a reason for programs and a hint for people in the trailing
//! metadata (`rye-reason`, `rye-hint`).

use rye_core::error::{ErrorKind, Kinded, chain};
use tonic::metadata::MetadataValue;
use tonic::{Code, Status};

use crate::journal::{self, FeedError};
use crate::{cache, supervisor};

/// The gRPC code of a kind of error.
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

fn reason(kind: ErrorKind) -> &'static str {
    match kind {
        ErrorKind::NotFound => "not_found",
        ErrorKind::Invalid => "invalid",
        ErrorKind::Precondition => "precondition",
        ErrorKind::Exists => "exists",
        ErrorKind::Denied => "denied",
        ErrorKind::Exhausted => "exhausted",
        ErrorKind::Unavailable => "unavailable",
        ErrorKind::DataLoss => "data_loss",
        ErrorKind::Bug => "bug",
    }
}

/// The status of `error`, its whole chain as the message.
fn of(error: &(impl Kinded + 'static)) -> Status {
    let kind = error.kind();
    if kind == ErrorKind::Bug {
        tracing::error!(error = %chain(error), "a call failed");
    }
    with_reason(Status::new(code(kind), chain(error)), reason(kind))
}

impl From<supervisor::Error> for Status {
    fn from(error: supervisor::Error) -> Self {
        of(&error)
    }
}

impl From<journal::Error> for Status {
    fn from(error: journal::Error) -> Self {
        of(&error)
    }
}

impl From<cache::Error> for Status {
    fn from(error: cache::Error) -> Self {
        of(&error)
    }
}

impl From<FeedError> for Status {
    fn from(error: FeedError) -> Self {
        of(&error)
    }
}

/// A malformed field of a request.
pub(super) fn invalid(field: &str, why: impl std::fmt::Display) -> Status {
    with_reason(
        Status::invalid_argument(format!("`{field}`: {why}")),
        "invalid",
    )
}

/// `status` with its reason attached.
pub(super) fn with_reason(mut status: Status, reason: &'static str) -> Status {
    status
        .metadata_mut()
        .insert("rye-reason", MetadataValue::from_static(reason));
    status
}
