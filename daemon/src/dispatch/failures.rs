//! What goes wrong on the way to an action, as the failure of the action.

use rye_core::error::{Kinded, with_sources};
use rye_core::memory::Memory;
use rye_core::model::Failure;

use crate::chain;
use crate::exhausted::Exhausted;
use crate::port::Refusal;
use crate::process;

/// Why there is nothing to carry out.
pub(super) fn unplanned(error: &chain::Error) -> Failure {
    if matches!(error, chain::Error::NoInterpreter { .. }) {
        no_program(with_sources(error))
    } else if matches!(error, chain::Error::Variables { .. }) {
        Failure::permanent("missing_environment_variables", with_sources(error))
    } else if matches!(error, chain::Error::LockMismatch { .. }) {
        Failure::permanent("lock_mismatch", with_sources(error))
    } else if let chain::Error::Params { failure, .. } = error {
        // As of a graph or a directive whose inputs do not fit.
        Failure::permanent(&failure.code, with_sources(error))
    } else {
        refused(error)
    }
}

/// What a call gave back does not fit beside what all runs hold.
pub(super) fn memory_exceeded(memory: &Memory) -> Failure {
    let text = format!(
        "the values of all runs together may take {} MiB of memory (`limits.memory_mb`), and what the call gave back does not fit beside \
         the others; resume the run when others have ended",
        memory.most() >> 20
    );
    Failure::permanent("memory_exceeded", text)
}

/// Why a process did not start.
pub(super) fn unstarted(error: &process::Error) -> Failure {
    if matches!(error, process::Error::ProgramNotFound { .. }) {
        no_program(with_sources(error))
    } else {
        refused(error)
    }
}

/// What would carry the action out is not there: permanent, until somebody installs it.
fn no_program(message: String) -> Failure {
    Failure::permanent("executor_not_found", message)
}

/// An error on the way to the action, as the failure of the action.
pub(super) fn refused(error: &(impl Kinded + 'static)) -> Failure {
    match Exhausted::of(error) {
        Some(lack) => lack.failure(error),
        None => Refusal::from(error).of_item(),
    }
}
