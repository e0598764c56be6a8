//! The items that a graph names, at each of their uses.

use super::actor::Actor;
use super::graph::Graph;
use super::read::{At, Reader};
use super::remark::{About, Remark};
use super::work::{Action, Caching};
use crate::capability::Primary;
use crate::id::ItemRef;
use crate::model::Object;

/// Calls `look_up` for each item that is named without a template, and reports its remarks as warnings.
pub(super) fn check(
    reader: &mut Reader<'_>,
    graph: &Graph,
    look_up: &dyn Fn(&ItemRef, &Object) -> Vec<Remark>,
) {
    reader.each_action(graph, |reader, at, action| {
        check_use(reader, at, action, look_up);
    });
}

/// `at` is the position of the action.
fn check_use<'d>(
    reader: &mut Reader<'d>,
    at: &At<'d>,
    action: &Action,
    look_up: &dyn Fn(&ItemRef, &Object) -> Vec<Remark>,
) {
    // An item that is only fetched need not be fit to run.
    let runs = action.primary == Primary::Execute;
    let (Some(item), Some(params), true) = (action.named(), action.params.as_object(), runs) else {
        return;
    };
    for remark in look_up(&item, params) {
        let Remark {
            code,
            message,
            about,
        } = remark;
        match about {
            About::Item => reader.warn(code, at.at("/item_id"), message),
            About::Params => {
                let place = at.child("params");
                reader.warn(code, place.as_ref().unwrap_or(at).named(), message);
            }
            About::Param(name) => {
                let place = at.child("params").and_then(|params| params.child(&name));
                reader.warn(code, place.as_ref().unwrap_or(at).named(), message);
            }
        }
    }
}

/// Warns of each node that requests a cached result and starts a run (`is_run`): its results are never cached.
pub(super) fn check_caching(
    reader: &mut Reader<'_>,
    graph: &Graph,
    is_run: &dyn Fn(&ItemRef) -> bool,
) {
    reader.each_actor(graph, |reader, at, actor| {
        let node = match actor {
            Actor::Node(_, node) if node.caching == Caching::On => node,
            Actor::Node(..) | Actor::Hook(..) => return,
        };
        let Some(action) = node.work.action() else {
            return;
        };
        let message = if matches!(action.primary, Primary::Fetch | Primary::Sign) {
            "`cache_result` has no effect on a node that fetches or signs".to_owned()
        } else if let Some(item) = action.named().filter(is_run) {
            format!(
                "`cache_result` has no effect on a node that calls a graph or starts a thread, as `{}` does: say it at the nodes of \
                 that graph",
                item.id
            )
        } else {
            return;
        };
        reader.warn("no_effect", at.at("/cache_result").named(), message);
    });
}
