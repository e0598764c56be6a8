//! Tables of keys: what a map may have, and the JSON Schema of it for editors.

use serde_json::{Map, Value, json};

use super::types::any;
use crate::expr::nearest;

/// Keys of one type and purpose: their names, the schema of a value, and the purpose in a sentence for people.
#[derive(Debug, Clone, Copy)]
pub struct Key(
    pub &'static [&'static str],
    pub fn() -> Value,
    pub &'static str,
);

impl Key {
    /// Keys of a file that has no schema.
    pub const fn named(names: &'static [&'static str]) -> Self {
        Self(names, any, "")
    }
}

/// The keys that every file of the configuration has.
pub(crate) const ITEM: Key = Key::named(&[
    "version",
    "category",
    "name",
    "description",
    "author",
    "tags",
]);

/// Keys that the original writes at the top of its configuration files, without effect here.
pub(crate) const OF_THE_ORIGINAL: [&str; 2] = ["schema_version", "tool_type"];

/// The keys of one kind of map.
#[derive(Debug, Clone, Copy)]
pub struct Keys {
    /// The map with its article, such as `a node`.
    pub what: &'static str,
    /// Keys that are read, in the order in which people are shown them.
    pub keys: &'static [Key],
    /// Keys without which the map is refused, and the fix if the reader names it.
    pub required: &'static [(&'static str, &'static str)],
    /// Keys that people write though they belong elsewhere or nowhere, and the fix.
    pub misplaced: &'static [(&'static str, &'static str)],
}

impl Keys {
    /// A table without required or misplaced keys.
    pub const fn new(what: &'static str, keys: &'static [Key]) -> Self {
        Self {
            what,
            keys,
            required: &[],
            misplaced: &[],
        }
    }

    /// The names of the keys that are read.
    pub fn known(&self) -> impl Iterator<Item = &'static str> + Clone + use<> {
        self.keys.iter().flat_map(|Key(names, ..)| *names).copied()
    }

    /// The schema of such a map. It refuses other keys, except for free ones.
    pub fn schema(&self) -> Value {
        let mut properties = Map::new();
        for Key(names, schema, purpose) in self.keys {
            for name in *names {
                let mut schema = schema();
                if !purpose.is_empty() {
                    schema["description"] = json!(purpose);
                }
                properties.insert((*name).to_owned(), schema);
            }
        }
        let required = self.required.iter().map(|(key, _)| *key);
        json!({
            "type": "object",
            "properties": properties,
            "patternProperties": {"^x-": true},
            "additionalProperties": false,
            "required": required.collect::<Vec<_>>(),
        })
    }

    /// The schema of a file that is such a map.
    pub fn schema_of_file(&self, title: &str) -> Value {
        let mut schema = self.schema();
        schema["$schema"] = json!("https://json-schema.org/draft/2020-12/schema");
        schema["title"] = json!(title);
        schema
    }
}

/// The keys of `map` that are neither `known` nor free.
pub fn unknown_keys<'m, 'k>(
    map: &'m Map<String, Value>,
    known: impl IntoIterator<Item = &'k str, IntoIter: Clone>,
) -> impl Iterator<Item = &'m str> {
    let known = known.into_iter();
    let is_known = move |key: &str| is_free(key) || known.clone().any(|known| known == key);
    let keys = map.keys().map(String::as_str);
    keys.filter(move |key| !is_known(key))
}

/// The first key of `map` that is neither `known` nor free (`x-…`), and the known one that it is near to.
pub fn unknown_key<'m, 'k>(
    map: &'m Map<String, Value>,
    known: impl IntoIterator<Item = &'k str, IntoIter: Clone>,
) -> Option<(&'m str, Option<&'k str>)> {
    let known = known.into_iter();
    let key = unknown_keys(map, known.clone()).next()?;
    Some((key, nearest(key, known)))
}

/// True for a key that every map may have and nothing reads.
pub fn is_free(key: &str) -> bool {
    key.starts_with("x-")
}

/// True if a shell could set a variable of that name.
pub fn is_variable(name: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    !name.is_empty()
        && !name.starts_with(|first: char| first.is_ascii_digit())
        && name.bytes().all(is_plain)
}
