//! What the items of a foreach or parallel node are, and where the two kinds of node differ.

use std::num::NonZeroU32;

use serde_json::{Value, json};

use crate::definition::{Action, Foreach, ItemOrder, OnItemError, Parallel, Work};
use crate::id::Name;
use crate::model::StepStatus;

/// Items of a parallel node that run at once if nobody says.
const AT_ONCE: u32 = 10;

/// What the items of a node are.
#[derive(Clone, Copy)]
pub(in crate::walker) enum Parts<'g> {
    /// Values of a list, and one action.
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

    /// Most at once; `usual` is what the graph says.
    pub(super) fn at_once(self, usual: Option<NonZeroU32>) -> u32 {
        let said = match self {
            Self::Items(foreach) => match foreach.order {
                ItemOrder::Sequential => return 1,
                ItemOrder::Parallel { at_once } => at_once,
            },
            Self::Branches(parallel) => parallel.at_once,
        };
        said.or(usual).map_or(AT_ONCE, NonZeroU32::get)
    }

    pub(in crate::walker) fn action(self, item: u32) -> Option<&'g Action> {
        match self {
            Self::Items(foreach) => Some(&foreach.action),
            Self::Branches(parallel) => Some(&branch(parallel, item)?.1),
        }
    }

    /// What tells an item from the others, over crashes and continuations: its place in the list. The branches of a continuation may stand
    /// at other places, so theirs is their name.
    pub(super) fn identity(self, item: u32) -> Value {
        match self {
            Self::Items(_) => json!(item),
            Self::Branches(parallel) => json!(branch(parallel, item).map(|(name, _)| &**name)),
        }
    }

    /// What the step is said to call.
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

    /// What the node comes to, of which `collected` says for each item what it came to.
    pub(super) fn result(self, collected: Vec<Value>, count: u32, failed: u32) -> Value {
        match self {
            Self::Items(_) => {
                let mut result = json!({"results": [], "count": count, "failed": failed});
                result["results"] = Value::Array(collected);
                result
            }
            Self::Branches(_) => {
                let names = self.names().into_iter().map(|name| name.to_string());
                names.zip(collected).collect()
            }
        }
    }
}

fn branch(parallel: &Parallel, item: u32) -> Option<&(Name, Action)> {
    parallel.branches.get(usize::try_from(item).ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reference_says_how_many_items_run_at_once() {
        let limits = rye_pages::Table::read("docs/reference.md", "limits");
        limits.assert_cell("items or branches at once", "is", AT_ONCE);
    }
}
