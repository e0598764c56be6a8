//! Items of one folder.

use std::collections::BTreeSet;
use std::sync::Arc;

use rye_core::id::{ItemId, ItemKind, ItemRef};

use super::error::Error;
use super::item::Item;
use super::state::Library;
use crate::spaces::Space;

impl Library {
    /// Items of `kind` in the folder `category`, each as a project resolves it, ordered by id. A refused item is an
    /// error; it is not skipped.
    pub fn category(&self, kind: ItemKind, category: &ItemId) -> Result<Vec<Arc<Item>>, Error> {
        let of_system = self.built_in.keys().filter(|item| item.kind == kind);
        let of_system = of_system.map(|item| item.id.clone());
        let mut ids: BTreeSet<ItemId> = of_system
            .filter(|id| id.category() == category.as_str())
            .collect();
        for space in [Space::User, Space::Project] {
            let found = self.spaces.ids(kind, category.as_str(), space);
            ids.extend(found.map_err(|source| Error::Unreadable {
                item: ItemRef {
                    kind,
                    id: category.clone(),
                },
                source,
            })?);
        }
        let items = ids.into_iter().map(|id| ItemRef { kind, id });
        items
            .map(|item| self.resolve(&item, Space::Project))
            .collect()
    }

    /// Ids of the items of `kind` in the folder `category` and below it, as a project sees them; `None` if there are
    /// more than `most`. They are not verified.
    pub fn below(
        &self,
        kind: ItemKind,
        category: &ItemId,
        most: usize,
    ) -> Result<Option<BTreeSet<ItemId>>, Error> {
        let start = format!("{category}/");
        let of_system = self.built_in.keys().filter(|item| item.kind == kind);
        let of_system = of_system.filter(|item| item.id.as_str().starts_with(&start));
        let mut ids: BTreeSet<ItemId> = of_system.map(|item| item.id.clone()).collect();
        for space in [Space::User, Space::Project] {
            let found = self.spaces.ids_below(kind, category.as_str(), space, most);
            let found = found.map_err(|source| Error::Unreadable {
                item: ItemRef {
                    kind,
                    id: category.clone(),
                },
                source,
            })?;
            let Some(found) = found else { return Ok(None) };
            ids.extend(found);
        }
        Ok((ids.len() <= most).then_some(ids))
    }
}
