//! Refusals of calls that a layer of the run, or the item itself, does not allow.

use rye_core::callers::{CALLER_NOT_ALLOWED, Caller};
use rye_core::capability::{self, Layer, Primary};
use rye_core::id::ItemRef;
use rye_core::model::{Failure, Spec};
use rye_item::{Item, Library, Space};

use crate::chain::CallbackAuthority;

/// Failure code of an action that a layer of the run does not allow.
const DENIED: &str = "permission_denied";

/// True if the call was refused here. The run then has a warning.
pub fn is_refusal(failure: &Failure) -> bool {
    [DENIED, CALLER_NOT_ALLOWED].contains(&&*failure.code)
}

/// Returns an error unless `item` accepts calls by `caller`.
pub fn check_caller(caller: Caller, item: &Item) -> Result<(), Failure> {
    let callers = &item.metadata.callers;
    let checked = callers.check(caller, &item.item, item.path.display());
    checked.map_err(|refused| Failure::permanent(CALLER_NOT_ALLOWED, refused.to_string()))
}

/// Returns an error if the directive `item` does not accept calls by `caller`. The admission of its thread reports one
/// that cannot be read.
pub(super) fn check_directive(
    caller: Caller,
    library: &Library,
    item: &ItemRef,
) -> Result<(), Failure> {
    match library.resolve(item, Space::Project) {
        Ok(directive) => check_caller(caller, &directive),
        Err(_) => Ok(()),
    }
}

/// Returns an error that names the layer which does not allow the action, unless every layer of the run allows it.
pub fn permit(spec: &Spec, primary: Primary, item: &ItemRef) -> Result<(), Failure> {
    let permitted = capability::permit(&spec.layers, primary, item);
    permitted.map_err(|denied| Failure::permanent(DENIED, denied.to_string()))
}

/// Authority of the program of `tool` in calls of the daemon; `None` if it may make none.
pub(super) fn callbacks(tool: &Item) -> Option<CallbackAuthority> {
    let replays = tool.metadata.replays;
    let Some(patterns) = &tool.metadata.permissions else {
        let declared = None;
        return Some(CallbackAuthority { declared, replays });
    };
    let patterns = patterns.iter();
    let patterns: Vec<_> = patterns.map(|text| capability::normalise(text)).collect();
    let is_empty = patterns.is_empty();
    let declared = Layer {
        source: format!("permissions of {}", tool.item),
        patterns,
    };
    (!is_empty).then_some(CallbackAuthority {
        declared: Some(declared),
        replays,
    })
}
