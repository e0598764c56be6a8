//! Configuration that affects the behaviour of runs, as a project sees it.

use std::path::Path;
use std::sync::{Arc, OnceLock, PoisonError};

use rye_core::id::{ItemId, ItemKind, ItemRef};
use rye_core::policy;
use rye_core::seal::{canonical, sha256_hex};
use serde_json::{Map, Value};

use super::error::Error;
use super::item::Item;
use super::narrow::narrow;
use super::snapshot::{Made, Snapshot};
use super::state::Library;
use crate::spaces::Space;
use crate::system::Embedded;
use crate::{cascade, metadata};

/// Files of `.ai/config/agent` that are part of the hash of the configuration. They are those of the original, which
/// finds cached results by this hash, and the two about hooks and retries, which also change the result of a graph.
const FILES: [&str; 6] = [
    "agent",
    "coordination",
    "error_classification",
    "hook_conditions",
    "hooks",
    "resilience",
];

/// File whose settings the original writes below a key with the name of the file.
const WRAPPED: &str = "agent/coordination";

/// File that holds limits.
const RESILIENCE: &str = "agent/resilience";

/// Spaces that may override the shipped files, lowest first.
const UPPER: [Space; 2] = [Space::User, Space::Project];

/// Verified files that a result was made of.
type Verified = Vec<Arc<Item>>;

/// Rule that combines the files of one name in several spaces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layers {
    /// They are merged: system, user, project.
    Merged,
    /// Only the first existing file counts: project, user, system.
    First,
}

impl Snapshot {
    /// Configuration as shipped, without files of a user or a project.
    pub fn shipped() -> Self {
        static SHIPPED: OnceLock<Snapshot> = OnceLock::new();
        let make = || {
            let merged = FILES.map(|name| shipped_file(&item_ref(name)).unwrap_or_default());
            Self::of(merged, Vec::new())
        };
        SHIPPED.get_or_init(make).clone()
    }

    /// Makes a snapshot of the merged content of each of [`FILES`].
    fn of(merged: [Map<String, Value>; FILES.len()], ignored: Vec<String>) -> Self {
        let there = FILES.iter().zip(merged).filter(|(_, map)| !map.is_empty());
        let (mut of_runs, mut all) = (Map::new(), Map::new());
        for (name, map) in there {
            let content = Value::Object(map);
            if policy::FILES.contains(name) {
                of_runs.insert((*name).to_owned(), content.clone());
            }
            all.insert(format!("{name}.yaml"), content);
        }
        Self {
            policy: Value::Object(of_runs).to_string().into(),
            hash: sha256_hex(canonical(&Value::Object(all))).into(),
            ignored: ignored.into(),
        }
    }
}

fn item_ref(name: &str) -> ItemRef {
    ItemRef {
        kind: ItemKind::Config,
        id: ItemId::new(format!("agent/{name}")).expect("the names of the files are plain words"),
    }
}

/// Content of the file `item` of the system space, if there is one.
fn shipped_file(item: &ItemRef) -> Option<Map<String, Value>> {
    let at_root = |embedded: &Embedded| embedded.place(Path::new(""));
    let embedded = Embedded::all()
        .into_iter()
        .find(|embedded| at_root(embedded).item == *item)?;
    Some(shipped(at_root(&embedded).extension, embedded.text()))
}

/// Content of a file of the system space.
fn shipped(extension: &str, text: &str) -> Map<String, Value> {
    metadata::configuration(extension, text)
        .ok()
        .and_then(|file| cascade::add_origin(file, Space::System).ok())
        .expect("a test merges every system item of type config")
}

impl Library {
    /// Configuration `item` as this project sees it: the files of the system, the user and the project, merged by the
    /// rules of [`cascade`]. Empty if there is none. A file of the user or the project must be verified like any item;
    /// a refused one is an error and is not skipped.
    pub fn config(&self, item: &ItemRef) -> Result<Map<String, Value>, Error> {
        let upper = UPPER.map(|space| self.config_file(item, space));
        let upper: Vec<_> = upper.into_iter().collect::<Result<_, _>>()?;
        Ok(self.merged(item, upper.iter().flatten())?.0)
    }

    /// Like [`Self::config`], without the files of projects, for settings that a project must not decide itself.
    pub fn own_config(&self, item: &ItemRef) -> Result<Map<String, Value>, Error> {
        let of_user = self.config_file(item, Space::User)?;
        Ok(self.merged(item, of_user.iter())?.0)
    }

    /// Configuration `item` for a tool, without the origins of its entries, and the files it was made of, lowest space
    /// first. Empty if there is none.
    pub fn layered(
        &self,
        item: &ItemRef,
        layers: Layers,
    ) -> Result<(Map<String, Value>, Verified), Error> {
        let mut files = Vec::new();
        for space in Space::Project.visible() {
            let file = match space {
                Space::System => self.built_in.get(item).cloned(),
                Space::User | Space::Project => self.config_file(item, *space)?,
            };
            files.extend(file);
            if layers == Layers::First && !files.is_empty() {
                break;
            }
        }
        files.reverse();
        let of_system = |file: &&Arc<Item>| file.space == Space::System;
        let upper = files.iter().filter(|file| !of_system(file));
        let below = files.iter().find(of_system).map(of_built_in);
        let (mut content, _ignored) = merged_over(below, item, upper.map(ConfigFile::of))?;
        cascade::remove_origins(&mut content);
        Ok((content, files))
    }

    /// Configuration that affects runs. It is merged again only if a file has changed. Otherwise a call looks for the
    /// files and reads those that exist.
    pub fn snapshot(&self) -> Result<Snapshot, Error> {
        let items = FILES.map(item_ref);
        let of = self.config_files(&items)?;
        {
            let made = self.snapshot.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(made) = &*made
                && same(&made.of, &of)
            {
                return Ok(made.snapshot.clone());
            }
        }
        let mut merged = FILES.map(|_| Map::new());
        let mut ignored = Vec::new();
        for (at, (merged, item)) in merged.iter_mut().zip(&items).enumerate() {
            let upper = of.iter().skip(at).step_by(FILES.len()).flatten();
            let (content, told) = self.merged(item, upper)?;
            *merged = content;
            ignored.extend(told);
        }
        let snapshot = Snapshot::of(merged, ignored);
        let mut made = self.snapshot.lock().unwrap_or_else(PoisonError::into_inner);
        *made = Some(Made {
            of,
            snapshot: snapshot.clone(),
        });
        Ok(snapshot)
    }

    /// Files of `items` above the system's: all of one space, then all of the next.
    fn config_files(
        &self,
        items: &[ItemRef; FILES.len()],
    ) -> Result<Vec<Option<Arc<Item>>>, Error> {
        let mut files = Vec::with_capacity(UPPER.len() * items.len());
        for space in UPPER {
            // Most projects have none. This costs one lookup instead of one for each name.
            let there = self.spaces.has_category(&items[0], space);
            let there = there.map_err(|source| Error::Unreadable {
                item: items[0].clone(),
                source,
            })?;
            for item in items {
                let file = there.then(|| self.config_file(item, space));
                files.push(file.transpose()?.flatten());
            }
        }
        Ok(files)
    }

    /// The verified file of `item` in `space`. A copy of the system's own file adds nothing and is left out.
    fn config_file(&self, item: &ItemRef, space: Space) -> Result<Option<Arc<Item>>, Error> {
        let found = self.find(item, space)?;
        Ok(found.filter(|found| found.space != Space::System))
    }

    /// Merges the files `upper` into the shipped file of this name. Also returns messages about ignored settings.
    fn merged<'f>(
        &self,
        item: &ItemRef,
        upper: impl Iterator<Item = &'f Arc<Item>>,
    ) -> Result<(Map<String, Value>, Vec<String>), Error> {
        let below = self.built_in.get(item).map(of_built_in);
        merged_over(below, item, upper.map(ConfigFile::of))
    }
}

/// The text of a file of the user or a project.
#[derive(Clone, Copy)]
pub(crate) struct ConfigFile<'f> {
    pub(crate) space: Space,
    pub(crate) path: &'f Path,
    pub(crate) extension: &'f str,
    pub(crate) text: &'f str,
}

impl<'f> ConfigFile<'f> {
    fn of(item: &'f Arc<Item>) -> Self {
        Self {
            space: item.space,
            path: &item.path,
            extension: item.extension,
            text: &item.text,
        }
    }
}

fn of_built_in(item: &Arc<Item>) -> Map<String, Value> {
    shipped(item.extension, &item.text)
}

/// Merges the files `upper` into the shipped file of this name, if there is one. Also returns messages about ignored
/// settings.
pub(crate) fn merged_over_shipped<'f>(
    item: &ItemRef,
    upper: impl Iterator<Item = ConfigFile<'f>>,
) -> Result<(Map<String, Value>, Vec<String>), Error> {
    merged_over(shipped_file(item), item, upper)
}

/// Merges the files `upper` into `below`. Also returns messages about ignored settings.
fn merged_over<'f>(
    below: Option<Map<String, Value>>,
    item: &ItemRef,
    upper: impl Iterator<Item = ConfigFile<'f>>,
) -> Result<(Map<String, Value>, Vec<String>), Error> {
    let mut merged = below.unwrap_or_default();
    let mut ignored = Vec::new();
    for file in upper {
        let content = metadata::configuration(file.extension, file.text);
        let mut content = content.map_err(|source| Error::Metadata {
            item: item.clone(),
            path: file.path.to_owned(),
            source,
        })?;
        unwrap(item, &mut content);
        if file.space == Space::Project && item.id.as_str() == RESILIENCE {
            ignored.extend(narrow(&merged, &mut content, file.path));
        }
        cascade::add_origin(content, file.space)
            .and_then(|content| cascade::merge(&mut merged, content))
            .map_err(|source| Error::Config {
                item: item.clone(),
                path: file.path.to_owned(),
                source,
            })?;
    }
    Ok((merged, ignored))
}

/// Moves the settings up that the original writes below a key with the name of the file, unless they would replace
/// others.
fn unwrap(item: &ItemRef, content: &mut Map<String, Value>) {
    let wrapper = item.id.name();
    if item.id.as_str() != WRAPPED {
        return;
    }
    let Some(Value::Object(inner)) = content.get(wrapper) else {
        return;
    };
    if !inner.keys().any(|key| content.contains_key(key))
        && let Some(Value::Object(inner)) = content.shift_remove(wrapper)
    {
        content.extend(inner);
    }
}

/// True if both lists hold the same file objects. A changed file is another object.
fn same(one: &[Option<Arc<Item>>], other: &[Option<Arc<Item>>]) -> bool {
    one.len() == other.len()
        && one.iter().zip(other).all(|pair| match pair {
            (Some(one), Some(other)) => Arc::ptr_eq(one, other),
            (None, None) => true,
            (Some(_), None) | (None, Some(_)) => false,
        })
}

#[cfg(test)]
mod tests;
