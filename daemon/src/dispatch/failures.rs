//! Errors before an action begins, converted to failures of the action, and failures because of a lost project.

use std::time::Instant;

use rye_core::error::{Kinded, with_sources};
use rye_core::id::ItemRef;
use rye_core::model::{Effect, Failure, RunKind};
use rye_process as process;

use crate::chain;
use crate::exhausted::Exhausted;
use crate::port::Refusal;
use crate::projects;
use crate::services::{AttemptCtx, Prepared};

/// Code of the failure of an action whose isolation the host or a setting does not allow.
pub const ISOLATION_UNAVAILABLE: &str = "isolation_unavailable";

/// Code of the failure of an attempt whose limits are required, and not enforced by the host.
pub const LIMITS_UNAVAILABLE: &str = "limits_unavailable";

/// Failure of an action whose chain or plan is refused.
pub(super) fn unplanned(error: &chain::Error) -> Failure {
    if matches!(error, chain::Error::NoInterpreter { .. }) {
        no_program(with_sources(error))
    } else if matches!(error, chain::Error::Variables { .. }) {
        Failure::permanent("missing_environment_variables", with_sources(error))
    } else if matches!(error, chain::Error::NoIsolation { .. }) {
        Failure::permanent(ISOLATION_UNAVAILABLE, with_sources(error)).decided()
    } else if matches!(error, chain::Error::LockMismatch { .. }) {
        Failure::permanent("lock_mismatch", with_sources(error))
    } else if let chain::Error::Params { failure, .. } = error {
        // The same code as for a graph or a directive whose inputs do not fit.
        Failure::permanent(&failure.code, with_sources(error))
    } else {
        refused(error)
    }
}

/// Failure of an action whose process did not start.
pub fn unstarted(error: &process::Error) -> Failure {
    if matches!(error, process::Error::ProgramNotFound { .. }) {
        no_program(with_sources(error))
    } else if matches!(error, process::Error::NoIsolation { .. }) {
        Failure::permanent(ISOLATION_UNAVAILABLE, with_sources(error)).decided()
    } else {
        refused(error)
    }
}

/// Failure of an action whose program is not installed; a retry does not help.
fn no_program(message: String) -> Failure {
    Failure::permanent("executor_not_found", message)
}

/// Prepared action that fails because the files of the project are unavailable.
pub(super) fn without_project(item: ItemRef, error: &projects::Error) -> Prepared {
    let why = error.gone().unwrap_or_else(|| refused(error));
    Prepared {
        item,
        plan: Err(why.into()),
        is_ready: false,
        chain: None,
        trace: None,
        since: Instant::now(),
    }
}

pub(super) fn refused(error: &(impl Kinded + 'static)) -> Failure {
    match Exhausted::of(error) {
        Some(lack) => lack.failure(error),
        None => Refusal::from(error).of_item(),
    }
}

/// True if a failed call may be repeated when its project is back. One that has begun is repeated as after a crash: only
/// in a graph, whose nodes declare their effect.
pub(super) fn may_begin_again(not_begun: bool, cx: &AttemptCtx) -> bool {
    let is_repeatable = cx.effect != Effect::AtMostOnce;
    not_begun || (is_repeatable && cx.spec.kind() == RunKind::Graph)
}

/// True if the directory of the project is gone or was replaced. False if the run must stop first.
pub(super) async fn is_project_gone(cx: &AttemptCtx) -> bool {
    tokio::select! {
        opened = cx.services.projects.open(&*cx.spec) => opened.is_err_and(|error| error.is_gone()),
        () = cx.stop.due() => false,
    }
}
