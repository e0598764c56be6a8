//! A directive merged with those it extends.

use serde::{Deserialize, Serialize};

use super::{Context, Directive, Permissions};
use crate::error::{ErrorKind, Kinded};
use crate::id::ItemRef;

/// Limit of the ancestors of a directive.
pub const MOST_PARENTS: usize = 10;

/// A directive merged with those it extends: all that a thread uses.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Effective {
    /// The directive. Its context is that of the whole lineage; its permissions are the nearest ones.
    pub directive: Directive,
    /// Its ancestors, the nearest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub parents: Vec<ItemRef>,
}

impl Effective {
    /// Returns its permissions; without any in its lineage it has none.
    pub fn permissions(&self) -> Permissions {
        self.directive.permissions.clone().unwrap_or_default()
    }
}

/// The reason for which a directive cannot extend another.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LineageError {
    /// It would extend itself.
    #[error("`{0}` extends itself: {path}", path = .1.join(" extends "))]
    Cycle(ItemRef, Vec<String>),
    /// It has too many ancestors.
    #[error("more than {MOST_PARENTS} directives extend each other below `{0}`")]
    TooLong(ItemRef),
    /// Its parent is in a space that the owner of a lower one may change.
    #[error(
        "`{child}` cannot extend `{parent}`, which is in a higher space; copy it next to `{child}`"
    )]
    Space { child: ItemRef, parent: ItemRef },
}

impl Kinded for LineageError {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::Cycle(..) | Self::TooLong(_) => ErrorKind::Invalid,
            Self::Space { .. } => ErrorKind::Denied,
        }
    }
}

/// A directive and its ancestors, as they are found. Verify the item that [`wanted`](Self::missing) returns,
/// [`add`](Self::add) it, and repeat until none is missing. `S` orders the spaces; a parent is in the space of its
/// child or in a smaller one.
#[derive(Debug, Clone)]
pub struct Lineage<S> {
    /// The leaf first.
    members: Vec<(ItemRef, S, Directive)>,
    missing: Option<ItemRef>,
}

impl<S: Copy + Ord> Lineage<S> {
    /// Begins with the leaf of the lineage.
    pub fn new(item: ItemRef, space: S, leaf: Directive) -> Result<Self, LineageError> {
        let mut lineage = Self {
            members: Vec::new(),
            missing: None,
        };
        lineage.put(item, space, leaf)?;
        Ok(lineage)
    }

    /// Returns the directive that is missing; `None` if the lineage is complete.
    pub const fn missing(&self) -> Option<&ItemRef> {
        self.missing.as_ref()
    }

    /// Adds the directive that was [`wanted`](Self::missing).
    pub fn add(&mut self, space: S, parent: Directive) -> Result<(), LineageError> {
        let Some(item) = self.missing.take() else {
            return Ok(());
        };
        self.put(item, space, parent)
    }

    fn put(&mut self, item: ItemRef, space: S, directive: Directive) -> Result<(), LineageError> {
        if let Some((child, below, _)) = self.members.last()
            && space > *below
        {
            return Err(LineageError::Space {
                child: child.clone(),
                parent: item,
            });
        }
        let wanted = directive.extends.clone();
        self.members.push((item, space, directive));
        if let Some(wanted) = &wanted {
            self.admit(wanted)?;
        }
        self.missing = wanted;
        Ok(())
    }

    /// Checks that `wanted` may be above all present members.
    fn admit(&self, wanted: &ItemRef) -> Result<(), LineageError> {
        let first = self.members.iter().position(|(item, ..)| item == wanted);
        if let Some(first) = first {
            let circle = self.members[first..].iter().map(|(item, ..)| item);
            let path = circle.chain([wanted]).map(ToString::to_string).collect();
            return Err(LineageError::Cycle(wanted.clone(), path));
        }
        match self.members.first() {
            Some((leaf, ..)) if self.members.len() > MOST_PARENTS => {
                Err(LineageError::TooLong(leaf.clone()))
            }
            Some(_) | None => Ok(()),
        }
    }

    /// Merges the directives. Lists of knowledge are joined, those of the root first. Permissions are those of the
    /// nearest directive that has some, with the risks acknowledged there. Nothing else is taken over.
    pub fn effective(self) -> Effective {
        let mut context = Context::default();
        for (_, _, directive) in self.members.iter().rev() {
            let own = &directive.context;
            join(&mut context.system, &own.system);
            join(&mut context.before, &own.before);
            join(&mut context.after, &own.after);
            join(&mut context.suppress, &own.suppress);
        }
        let mut members = self.members.into_iter();
        let (_, _, mut directive) = members.next().expect("a lineage begins with a leaf");
        let mut parents = Vec::new();
        for (item, _, parent) in members {
            parents.push(item);
            if directive.permissions.is_none() {
                directive.permissions = parent.permissions;
                directive.acknowledged = parent.acknowledged;
            }
        }
        directive.context = context;
        Effective { directive, parents }
    }
}

/// Appends the entries that `list` does not contain yet.
fn join<T: Clone + PartialEq>(list: &mut Vec<T>, more: &[T]) {
    for entry in more {
        if !list.contains(entry) {
            list.push(entry.clone());
        }
    }
}
