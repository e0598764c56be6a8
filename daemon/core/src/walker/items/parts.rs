//! The items of a foreach or parallel node, and the differences between the two kinds of node.

use std::num::NonZeroU32;

use serde_json::{Value, json};

use crate::definition::roots::{COUNTS, RESULTS};
use crate::definition::{Action, Foreach, ItemOrder, OnItemError, Parallel, Work};
use crate::id::Name;
use crate::model::graph::Items;
use crate::model::{Object, StepStatus};

/// Default limit of the concurrent items of a parallel node.
const AT_ONCE: u32 = 10;

/// The items of a node.
#[derive(Clone, Copy)]
pub(in crate::walker) enum Parts<'g> {
    /// Values of a list, with one action.
    Items(&'g Foreach),
    /// Actions with names.
    Branches(&'g Parallel),
}

impl<'g> Parts<'g> {
    pub(in crate::walker) const fn of(work: &'g Work) -> Option<Self> {
        match work {
            Work::Foreach(foreach) => Some(Self::Items(foreach)),
            Work::Parallel(parallel) => Some(Self::Branches(parallel)),
            Work::Action(_)
            | Work::Gate
            | Work::Return { .. }
            | Work::Fail(_)
            | Work::Wait(_)
            | Work::Approval(_) => None,
        }
    }

    pub(super) const fn on_item_error(self) -> OnItemError {
        match self {
            Self::Items(foreach) => foreach.on_item_error,
            Self::Branches(parallel) => parallel.on_item_error,
        }
    }

    /// Returns the limit of concurrent items; `usual` is that of the graph.
    pub(super) fn max_concurrent(self, usual: Option<NonZeroU32>) -> u32 {
        let said = match self {
            Self::Items(foreach) => match foreach.order {
                ItemOrder::Sequential => return 1,
                ItemOrder::Parallel { at_once } => at_once,
            },
            Self::Branches(parallel) => parallel.at_once,
        };
        said.or(usual).map_or(AT_ONCE, NonZeroU32::get)
    }

    /// True if each item starts only after the previous one has ended.
    pub(super) fn keeps_order(self) -> bool {
        matches!(self, Self::Items(foreach) if foreach.order == ItemOrder::Sequential)
    }

    pub(in crate::walker) fn action(self, item: u32) -> Option<&'g Action> {
        match self {
            Self::Items(foreach) => Some(&foreach.action),
            Self::Branches(parallel) => Some(&branch(parallel, item)?.1),
        }
    }

    /// Returns the identity of an item over crashes and continuations: its index in the list. The branches of a
    /// continuation may have other indexes, so theirs is their name.
    pub(super) fn identity(self, item: u32) -> Value {
        match self {
            Self::Items(_) => json!(item),
            Self::Branches(parallel) => json!(branch(parallel, item).map(|(name, _)| &**name)),
        }
    }

    /// Returns the action id of the step.
    pub(super) fn action_id(self) -> String {
        match self {
            Self::Items(foreach) => foreach.action.id.clone(),
            Self::Branches(_) => StepStatus::Parallel.as_str().to_owned(),
        }
    }

    pub(super) fn names(self) -> Vec<Name> {
        match self {
            Self::Items(_) => Vec::new(),
            Self::Branches(parallel) => {
                let branches = parallel.branches.iter();
                branches.map(|(name, _)| Name::clone(name)).collect()
            }
        }
    }

    /// Returns the result of the node: the results of its items, and their numbers: all, failed and succeeded. A branch
    /// with the name of a number replaces it.
    pub(super) fn result(self, collected: Vec<Value>, counts: &Counts) -> Value {
        let mut result: Object = match self {
            Self::Items(_) => Object::from_iter([(RESULTS.to_owned(), Value::Array(collected))]),
            Self::Branches(_) => {
                let names = self.names().into_iter().map(|name| name.to_string());
                names.zip(collected).collect()
            }
        };
        for (key, number) in COUNTS.into_iter().zip(counts.in_order()) {
            result.entry(key).or_insert_with(|| number.into());
        }
        Value::Object(result)
    }
}

pub(super) struct Counts {
    pub(super) count: u32,
    pub(super) failed: u32,
    pub(super) succeeded: u32,
}

impl Counts {
    pub(super) fn of(items: &Items) -> Self {
        let ended = items.results().flatten().count();
        let ended = u32::try_from(ended).unwrap_or(u32::MAX);
        Self {
            count: items.count(),
            failed: items.failed,
            succeeded: ended.saturating_sub(items.failed),
        }
    }

    /// Returns them in the order of [`COUNTS`].
    const fn in_order(&self) -> [u32; 3] {
        [self.count, self.failed, self.succeeded]
    }
}

fn branch(parallel: &Parallel, item: u32) -> Option<&(Name, Action)> {
    parallel.branches.get(usize::try_from(item).ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reference_lists_concurrent_items() {
        let limits = rye_pages::Table::read("docs/reference.md", "limits");
        limits.assert_cell("items or branches at once", "is", AT_ONCE);
    }
}
