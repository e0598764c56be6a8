//! The items a graph names, each where it is named.

use super::actor::Actor;
use super::graph::Graph;
use super::read::{At, Reader};
use super::remark::{About, Remark};
use super::work::{Action, Caching};
use crate::capability::Primary;
use crate::id::ItemRef;
use crate::model::Object;

/// Hands each item that is named without a template to `look_up`, and warns of what it says.
pub(super) fn check(
    reader: &mut Reader<'_>,
    graph: &Graph,
    look_up: &dyn Fn(&ItemRef, &Object) -> Vec<Remark>,
) {
    reader.each_action(graph, |reader, at, action| {
        check_use(reader, at, action, look_up);
    });
}

/// `at` is the place of the action.
fn check_use<'d>(
    reader: &mut Reader<'d>,
    at: &At<'d>,
    action: &Action,
    look_up: &dyn Fn(&ItemRef, &Object) -> Vec<Remark>,
) {
    // What is fetched need not be fit to run.
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
        let params = || at.child("params");
        match about {
            About::Item => {
                let id = at.child("item_id").unwrap_or_else(|| at.clone());
                reader.warn(code, &id, message);
            }
            About::Params => {
                let place = params().unwrap_or_else(|| at.clone());
                reader.key_warn(code, &place, message);
            }
            About::Param(name) => {
                let place = params().and_then(|params| params.child(&name));
                reader.key_warn(code, &place.unwrap_or_else(|| at.clone()), message);
            }
        }
    }
}

/// Warns of each node that wants a result from the cache and starts a run, as `is_run` says: that is never answered so.
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
        let action = node.work.action();
        if let (Some(Primary::Fetch | Primary::Sign), Some(place)) =
            (action.map(|action| action.primary), at.child("cache_result"))
        {
            let message = "`cache_result` has no effect on a node that fetches or signs";
            reader.key_warn("no_effect", &place, message);
            return;
        }
        let item = action.and_then(Action::named);
        if let (Some(item), Some(place)) = (item, at.child("cache_result"))
            && is_run(&item)
        {
            let message = format!(
                "`cache_result` has no effect on a node that calls a graph or starts a thread, as `{}` does: say it at the nodes of \
                 that graph",
                item.id
            );
            reader.key_warn("no_effect", &place, message);
        }
    });
}
