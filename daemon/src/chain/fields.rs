//! Sections in the files of a chain, and errors about their keys and values.

use rye_core::declared::{self, Fields};
use rye_core::expr::did_you_mean;
use rye_core::model::Object;
use rye_item::Item;
use serde_json::Value;

use super::error::{Error, line_suffix};

/// A map in an element.
pub(super) struct Section<'m> {
    element: &'m Item,
    /// Keys from the top of the file, separated by dots.
    path: String,
    pub(super) map: &'m Object,
}

impl<'m> Section<'m> {
    /// Returns the map at `path` of `element`. Refuses keys that are not in `known`.
    pub(super) fn new(
        element: &'m Item,
        path: impl Into<String>,
        map: &'m Object,
        known: &[&str],
    ) -> Result<Self, Error> {
        let path = path.into();
        close_keys(element, &path, map, known)?;
        Ok(Self { element, path, map })
    }

    /// Returns the error that the value of `key` has `problem`.
    pub(super) fn malformed(&self, key: &str, problem: &str) -> Error {
        malformed(self.element, &format!("{}.{key}", self.path), problem)
    }
}

impl<'m> Fields<'m> for Section<'m> {
    type Error = Error;

    fn find(&self, key: &str) -> Option<&'m Value> {
        self.map.get(key)
    }

    fn misfit(&self, key: &str, expected: &str, _given: &Value) -> Error {
        self.malformed(key, &format!("must be {expected}"))
    }
}

/// Line of `field`, which includes its parent keys, separated by dots.
fn line_of(element: &Item, field: &str) -> Option<usize> {
    element.line(&format!("/{}", field.replace('.', "/")))
}

/// Returns an error about a value of the wrong form, with its line.
pub(super) fn malformed(element: &Item, field: &str, problem: &str) -> Error {
    Error::Malformed {
        path: element.path.clone(),
        field: format!("`{field}`{}", line_suffix(line_of(element, field))),
        problem: problem.to_owned(),
    }
}

/// Refuses keys of `map` that are not in `known`. The map is at `section`.
pub(super) fn close_keys(
    element: &Item,
    section: &str,
    map: &Object,
    known: &[&str],
) -> Result<(), Error> {
    match declared::unknown_key(map, known.iter().copied()) {
        None => Ok(()),
        Some((key, near)) => Err(unknown_key(element, section, key, near)),
    }
}

/// Returns an error about an unknown key of `section`.
pub(super) fn unknown_key(element: &Item, section: &str, key: &str, near: Option<&str>) -> Error {
    let field = format!("{section}.{key}");
    Error::UnknownKey {
        path: element.path.clone(),
        line: line_of(element, &field),
        hint: did_you_mean(near),
        key: field,
    }
}
