//! Check of the configuration that every run of a project reads when it starts.

use std::sync::Arc;

use rye_core::definition::{Finding, Severity};
use rye_core::error::with_sources;
use rye_core::policy::Policy;
use rye_item::Library;

use crate::projects::Projects;

/// Reads the policy of the runs of the project as a start does. Adds to `found` the reason why each start is refused, or
/// the entries without effect.
pub(super) fn policy(
    library: &Library,
    projects: &Projects,
    found: &mut Vec<Finding>,
) -> Option<Arc<Policy>> {
    let snapshot = match library.snapshot() {
        Ok(snapshot) => snapshot,
        Err(error) => {
            found.push(refusal("configuration", &error));
            return None;
        }
    };
    let ignored = snapshot.ignored.iter();
    found.extend(ignored.map(|text| super::warning("no_effect", text.clone())));
    match projects.read_policy(&snapshot.policy) {
        Ok(policy) => Some(policy),
        Err(error) => {
            found.push(refusal("configuration", &error));
            None
        }
    }
}

/// Error about a file on which runs depend. It is an error even if the file only lacks a signature: the checked item
/// cannot run before it has one.
pub(super) fn refusal(code: &'static str, error: &(impl std::error::Error + 'static)) -> Finding {
    Finding {
        severity: Severity::Error,
        ..super::warning(code, with_sources(error))
    }
}
