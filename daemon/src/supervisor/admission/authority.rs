//! Authority to start a run: the permissions of a tool run, the caller who starts a run that no other run starts, and
//! the items that a graph names.

use std::collections::BTreeSet;

use rye_core::callers::Caller;
use rye_core::capability::Primary;
use rye_core::definition::{Action, Graph};
use rye_core::error::{ErrorKind, Kinded as _};
use rye_core::id::ItemRef;
use rye_core::model::{ApprovalRule, Spec};
use rye_item::{Item, Library};

use super::super::error::Error;
use super::super::request::{Start, StartAt};
use super::refused;
use crate::{chain, dispatch};

/// Refuses a new run that a person starts of an item which is not meant for people.
pub(super) fn check_person(request: &Start, item: &Item) -> Result<(), Error> {
    let is_continued = matches!(request.start_at, StartAt::Continue { .. });
    if request.lineage.is_some() || is_continued {
        return Ok(());
    }
    let checked = dispatch::check_caller(Caller::Person, item);
    checked.map_err(|failure| Error::CallerNotAllowed {
        message: failure.message,
    })
}

/// Refuses a tool run whose permissions do not cover the execution of its tool.
pub(super) fn check_permissions(spec: &Spec) -> Result<(), Error> {
    let permitted = dispatch::permit(spec, Primary::Execute, &spec.item);
    permitted.map_err(|failure| Error::Denied {
        message: failure.message,
    })
}

/// Refuses a graph that names an unsigned, modified or untrusted tool. A missing tool is the failure of its node, which
/// the graph may handle.
pub(super) fn refuse_tampered(graph: &Graph, library: &Library) -> Result<(), Error> {
    for item in named_calls(graph) {
        match chain::resolve(library, &item, None) {
            Err(source) if source.kind() == ErrorKind::Denied => {
                return Err(refused(&item, source));
            }
            Ok(_) | Err(_) => {}
        }
    }
    Ok(())
}

/// Items that the graph calls by name.
fn named_calls(graph: &Graph) -> BTreeSet<ItemRef> {
    graph.actions().filter_map(Action::named).collect()
}

/// The rules about approvals of the run above, or of the run that is continued.
pub(super) fn inherited_approvals(request: &Start) -> Vec<ApprovalRule> {
    match (&request.lineage, &request.start_at) {
        (Some(lineage), _) => lineage.spec.approvals.clone(),
        (None, StartAt::Continue { run, .. }) => run.spec.approvals.clone(),
        (None, StartAt::Start | StartAt::Injected(_) | StartAt::Node { .. }) => Vec::new(),
    }
}
