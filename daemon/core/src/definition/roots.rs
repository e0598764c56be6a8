//! The names with which templates and conditions can begin at one place of a file.

use std::collections::HashSet;
use std::sync::Arc;

use super::hook::HookEvent;

/// Names that exist everywhere.
pub(crate) const EVERYWHERE: [&str; 5] = ["state", "inputs", SERVICES, "_now", "_timestamp"];

/// The name of the services of the run, by their nodes.
pub(crate) const SERVICES: &str = "services";

/// Keys of a service below that name.
pub(crate) const OF_SERVICE: [&str; 4] = ["handle", "ports", "running", "ready"];

/// Keys of the result of a foreach or parallel node, besides the results of its items.
pub(crate) const COUNTS: [&str; 3] = ["count", "failed", "succeeded"];

/// The key of the list of item results of a foreach node.
pub(crate) const RESULTS: &str = "results";

/// Keys of the result of an approval.
pub(crate) const APPROVAL: [&str; 5] = ["approved", "answer", "comment", "by", "at"];

/// Keys of the result of a service.
pub(crate) const SERVICE: [&str; 5] = ["handle", "pid", "ports", "ready", "after_ms"];

/// Keys of the result of a wait for a process: for a line, for its end, or until it is ready.
pub(crate) const PROCESS_WAIT: [&str; 9] = [
    "line",
    "stream",
    "at",
    "groups",
    "exit_code",
    "signal",
    "cause",
    "ready",
    "ports",
];

/// Names with which an expression can begin at one place, besides [`EVERYWHERE`].
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Roots<'a> {
    /// True if `result` exists here.
    pub(super) result: bool,
    /// The variable of the foreach node.
    pub(super) variable: Option<&'a str>,
    /// The event of the hook.
    pub(super) event: Option<HookEvent>,
}

impl<'a> Roots<'a> {
    pub(super) fn has(&self, name: &str) -> bool {
        self.names().any(|known| known == name)
    }

    pub(super) fn names(&self) -> impl Iterator<Item = &'a str> + use<'a> {
        let result = self.result.then_some("result");
        let of_event = self.event.map_or(&[][..], HookEvent::names).iter().copied();
        let more = result.into_iter().chain(self.variable).chain(of_event);
        EVERYWHERE.into_iter().chain(more)
    }
}

/// The names that can be read at the reader's current place.
#[derive(Debug, Default)]
pub(crate) struct Scope<'d> {
    /// `None` if it depends on a part that could not be read: then any name is accepted.
    pub(super) roots: Option<Roots<'d>>,
    /// Keys that `result` can have; `None` if the item that the node uses decides.
    pub(super) result: Option<Arc<[String]>>,
    /// Names already reported at this node or hook.
    pub(super) reported: HashSet<String>,
}
