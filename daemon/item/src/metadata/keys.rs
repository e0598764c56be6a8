//! The closed list of keys of a tool, and where a file has them.

use rye_core::expr::nearest;
use rye_core::yaml;
use serde_json::{Map, Value};

use super::{Error, Unread, document};

/// Keys that are read, in every notation.
const READ: [&str; 19] = [
    "version",
    "tool_type",
    "executor_id",
    "category",
    "name",
    "description",
    "effect",
    "config_schema",
    "input_schema",
    "env_config",
    "config",
    "config_resolve",
    "inputs",
    "outputs",
    "child_constraints",
    "env_requires",
    "anchor",
    "verify_deps",
    "result_limit",
];

/// Keys that are for people.
const INFORMATIVE: [&str; 6] = [
    "author",
    "tags",
    "title",
    "license",
    "references",
    "created_at",
];

/// Keys that mean something, but not to this release.
const LATER: [&str; 3] = ["permissions", "isolation", "resources"];

/// Keys by which the original decided how to start an item.
const IGNORED: [&str; 4] = [
    "execution_owner",
    "native_async",
    "native_resume",
    "tool_id",
];

/// The fields of a tool, under their YAML names, and where they stand.
#[derive(Debug)]
pub(super) struct Fields {
    pub(super) values: Map<String, Value>,
    places: Places,
}

#[derive(Debug)]
enum Places {
    /// The line of each field.
    Lines(Vec<(String, usize)>),
    /// Those of a YAML text that stands so many lines below the top of its file.
    Yaml(usize, yaml::Document),
}

impl Fields {
    /// No fields yet, of a file whose fields stand in lines.
    pub(super) fn new() -> Self {
        Self {
            values: Map::new(),
            places: Places::Lines(Vec::new()),
        }
    }

    /// Those of a YAML text that stands `above` lines below the top of its file.
    pub(super) fn of_yaml(text: &str, above: usize) -> Result<Self, Error> {
        let (document, values) = document(text, above)?;
        Ok(Self {
            values,
            places: Places::Yaml(above, document),
        })
    }

    /// Adds what stands in `line`; the last one of a name wins.
    pub(super) fn put(&mut self, field: &str, value: Value, line: usize) {
        self.values.insert(field.to_owned(), value);
        if let Places::Lines(lines) = &mut self.places {
            lines.push((field.to_owned(), line));
        }
    }

    /// Where the value at the JSON pointer stands, or the nearest one above it that has a place.
    pub(super) fn line(&self, pointer: &str) -> Option<usize> {
        match &self.places {
            Places::Yaml(above, document) => Some(above + document.key_position(pointer).line),
            Places::Lines(lines) => {
                let field = pointer.split('/').nth(1)?;
                let mut last = lines.iter().rev();
                last.find(|(known, _)| known == field)
                    .map(|(_, line)| *line)
            }
        }
    }

    /// The keys of the original that nothing depends on.
    pub(super) fn ignored(&self) -> Vec<String> {
        let keys = self.values.keys();
        keys.filter(|key| IGNORED.contains(&key.as_str()))
            .cloned()
            .collect()
    }

    /// The keys that say something that would not happen.
    pub(super) fn unread(&self) -> Vec<Unread> {
        let is_free = |key: &str| {
            READ.contains(&key)
                || INFORMATIVE.contains(&key)
                || IGNORED.contains(&key)
                || key.starts_with("x-")
        };
        let unread = self.values.keys().filter(|key| !is_free(key));
        unread
            .map(|key| {
                let mut pointer = String::new();
                yaml::push_segment(&mut pointer, key);
                let is_known = LATER.contains(&key.as_str());
                let known = READ.into_iter().chain(INFORMATIVE).chain(LATER);
                Unread {
                    key: key.clone(),
                    line: self.line(&pointer),
                    is_known,
                    near: if is_known { None } else { nearest(key, known) },
                }
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reference_lists_the_keys_of_tool_files() {
        let known = READ.into_iter().chain(INFORMATIVE);
        let known = known.chain(LATER).chain(IGNORED);
        rye_pages::Table::read("docs/reference.md", "tool file").assert_lists(known);
    }
}
